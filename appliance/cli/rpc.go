package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// on connects, has do talk to the appliance, and makes its error one for a person.
func (c *client) on(ctx context.Context, g *grammar, do func(ctx context.Context, conn *grpc.ClientConn) error) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return plain(do(ctx, conn))
}

// show prints messages as JSON, or as a table with a row for each.
func show[M proto.Message](c *client, env *Env, header []string, list []M, row func(M) []string) error {
	if c.Output == "json" {
		messages := make([]proto.Message, len(list))
		for i, m := range list {
			messages[i] = m
		}
		return printJSON(env.Stdout, messages...)
	}
	rows := [][]string{header}
	for _, m := range list {
		rows = append(rows, row(m))
	}
	return table(env.Stdout, rows...)
}

// pages collects up to limit items (0: all) of a list that comes in pages of at most most.
func pages[M any](limit, most int32, next func(size int32, token string) ([]M, string, error)) (all []M, err error) {
	for token := ""; ; {
		size := most
		if limit > 0 {
			size = min(most, limit-int32(len(all)))
		}
		list, more, err := next(size, token)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
		if token = more; token == "" || (limit > 0 && int32(len(all)) >= limit) {
			return all, nil
		}
	}
}

// follow prints what a stream sends until it or ctx ends.
func follow[M proto.Message](ctx context.Context, c *client, env *Env, recv func() (M, error), line func(M) string) error {
	for {
		m, err := recv()
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return nil //nolint:nilerr // asked to stop
		}
		if err != nil {
			return err
		}
		if c.Output == "json" {
			err = printJSON(env.Stdout, m)
		} else if text := line(m); text != "" {
			_, err = fmt.Fprintln(env.Stdout, text)
		}
		if err != nil {
			return err
		}
	}
}

// watching is for lists that are looked at again and again.
type watching struct {
	Watch time.Duration `placeholder:"PAUSE" help:"Print again after each pause, such as 2s, until Ctrl-C."`
}

// again calls once, and again after each pause until ctx ends.
func (w *watching) again(ctx context.Context, env *Env, once func() error) error {
	if w.Watch <= 0 {
		return once()
	}
	tick := time.NewTicker(max(w.Watch, 100*time.Millisecond))
	defer tick.Stop()
	for {
		if err := once(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := fmt.Fprintln(env.Stdout); err != nil {
			return err
		}
	}
}

// save writes a file that came from the appliance; - is standard output.
func save(env *Env, path string, data []byte) error {
	if path == "-" {
		_, err := env.Stdout.Write(data)
		return err
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	_, err := fmt.Fprintf(env.Stderr, "%s: %d bytes\n", path, len(data))
	return err
}

// clock is a time as tables show it.
func clock(t interface{ AsTime() time.Time }) string {
	at := t.AsTime()
	if at.Unix() == 0 {
		return ""
	}
	return at.Local().Format("2006-01-02 15:04:05.000")
}

// word is the value of an enum without the name of its type.
func word(v fmt.Stringer, prefix string) string { return strings.TrimPrefix(v.String(), prefix) }

// lastPart is what follows the last slash of a name.
func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// childName is the full name of CAMERA/ID, or of a name that is full already.
func childName(text, kind string) string {
	if strings.Contains(text, "/"+kind+"/") {
		return fullName(text)
	}
	camera, id, _ := strings.Cut(text, "/")
	return fullName(camera) + "/" + kind + "/" + id
}
