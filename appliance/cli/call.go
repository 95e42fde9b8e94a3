package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type callCommand struct {
	client
	Method  string `arg:"" optional:"" complete:"method" help:"Such as GetSystem or SystemService.GetSystem; without one, all are listed."`
	Request string `arg:"" optional:"" default:"{}" help:"The request as JSON; @FILE reads it from a file, - from standard input."`

	Messages int `placeholder:"N" help:"Stop after so many messages of a stream; without, when it ends or at Ctrl-C."`
}

// methods are those of every service of the API.
func methods() (list []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage(vedettev1.File_vedette_v1_system_proto.Package(), func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				list = append(list, s.Methods().Get(j))
			}
		}
		return true
	})
	return list
}

func findMethod(name string) (protoreflect.MethodDescriptor, error) {
	want := strings.ReplaceAll(strings.TrimPrefix(name, "vedette.v1."), "/", ".")
	for _, m := range methods() {
		if string(m.Name()) == want || string(m.Parent().Name())+"."+string(m.Name()) == want {
			return m, nil
		}
	}
	return nil, fmt.Errorf("the API has no method %q (vedette call lists them)", name)
}

// Run calls any method of the API.
func (c *callCommand) Run(ctx context.Context, env *Env, g *grammar) error {
	if c.Method == "" {
		return listMethods(env)
	}
	m, err := findMethod(c.Method)
	if err != nil {
		return err
	}
	text, err := c.text(env)
	if err != nil {
		return err
	}
	in, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		return err
	}
	out, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return err
	}
	req := in.New().Interface()
	if err := protojson.Unmarshal(text, req); err != nil {
		return fmt.Errorf("the request is no %s: %w", m.Input().Name(), err)
	}
	path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		if !m.IsStreamingServer() {
			resp := out.New().Interface()
			if err := conn.Invoke(ctx, path, req, resp); err != nil {
				return err
			}
			return printJSON(env.Stdout, resp)
		}
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
		if err != nil {
			return err
		}
		if err := errors.Join(stream.SendMsg(req), stream.CloseSend()); err != nil {
			return err
		}
		got := 0
		return follow(ctx, &client{Output: "json"}, env, func() (proto.Message, error) {
			if got++; c.Messages > 0 && got > c.Messages {
				return nil, io.EOF
			}
			resp := out.New().Interface()
			return resp, stream.RecvMsg(resp)
		}, nil)
	})
}

func (c *callCommand) text(env *Env) ([]byte, error) {
	switch {
	case c.Request == "-":
		return io.ReadAll(env.Stdin)
	case strings.HasPrefix(c.Request, "@"):
		return os.ReadFile(c.Request[1:])
	}
	return []byte(c.Request), nil
}

func listMethods(env *Env) error {
	rows := [][]string{{"METHOD", "REQUEST", "ANSWER"}}
	for _, m := range methods() {
		answer := string(m.Output().Name())
		if m.IsStreamingServer() {
			answer = "stream of " + answer
		}
		rows = append(rows, []string{string(m.Parent().Name()) + "." + string(m.Name()), string(m.Input().Name()), answer})
	}
	return table(env.Stdout, rows...)
}
