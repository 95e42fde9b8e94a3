// Package v2client asks servers of the v2 inference protocol for inference, over gRPC or HTTP, with tensors in
// the message or in shared memory.
//
// Everything else a server can be asked (metadata, statistics, model control) is the generated client in
// api/inference, which Client carries along.
package v2client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/grpcpool"
)

// Config says how to talk to a server; the zero value is plain text without limits on messages.
type Config struct {
	// TLS is the client's side of it; nil is plain text.
	TLS *tls.Config
	// Keepalive probes an idle connection so often; 0: never.
	Keepalive time.Duration
	// Headers go with every call: as headers of HTTP, as metadata of gRPC.
	Headers map[string]string
}

// Client talks gRPC with one server. Safe for concurrent use.
type Client struct {
	inference.GRPCInferenceServiceClient

	conn *grpc.ClientConn
}

// New makes a client of target: host:port, or unix:///path. It connects when it is first used. Extra options of the
// gRPC library come last and win.
func New(target string, cfg Config, extra ...grpc.DialOption) (*Client, error) {
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	pool := new(grpcpool.Pool)
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32), grpc.ForceCodecV2(newCodec(pool))),
		experimental.WithBufferPool(pool),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
	}
	if cfg.Keepalive > 0 {
		opts = append(opts, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: cfg.Keepalive, PermitWithoutStream: true}))
	}
	if len(cfg.Headers) > 0 {
		md := headers(metadata.New(cfg.Headers))
		opts = append(opts, grpc.WithUnaryInterceptor(md.unary), grpc.WithStreamInterceptor(md.stream))
	}
	conn, err := grpc.NewClient(target, append(opts, extra...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target, err)
	}
	return &Client{GRPCInferenceServiceClient: inference.NewGRPCInferenceServiceClient(conn), conn: conn}, nil
}

// headers are added to every call.
type headers metadata.MD

func (h headers) with(ctx context.Context) context.Context {
	own, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewOutgoingContext(ctx, metadata.Join(own, metadata.MD(h)))
}

func (h headers) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(h.with(ctx), method, req, reply, conn, opts...)
}

func (h headers) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return streamer(h.with(ctx), desc, conn, method, opts...)
}

// window lets a tensor of some megabytes travel without waiting for window updates.
const window = 8 << 20

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.conn.Close() }

// Request asks for one inference.
type Request struct {
	Model string
	// Version 0 leaves the choice to the server.
	Version int64
	ID      string
	// Sequence is a correlation id: uint64 or string; nil is none.
	Sequence   any
	Start, End bool
	Priority   uint64
	// Timeout bounds the time in the server's queue; 0 leaves it to the server.
	Timeout time.Duration
	// Parameters are the model's own: bool, int64, float64 or string.
	Parameters map[string]any
	Inputs     []Input
	// Outputs wanted; empty is all of them, in the message.
	Outputs []Output
	// JSONInputs and JSONOutputs send and ask for tensors as JSON instead of as bytes behind it, which HTTP can.
	JSONInputs, JSONOutputs bool
	// InPlace lets Infer over gRPC send large tensors from where they are instead of copying them first. After an answer
	// they may be changed as ever; after an error some may still be on their way and must be left alone, for the garbage
	// collector.
	InPlace bool
}

// Input is a tensor to send. Its data is read until the call returns (but see InPlace); with Place set it is not sent: it is in
// shared memory already.
type Input struct {
	tensor.Tensor

	Place Place
}

// Output asks for one output.
type Output struct {
	Name string
	// Classes > 0 asks for so many highest values with their labels instead.
	Classes int
	// Place is where in shared memory it goes; the response then has no data of it.
	Place Place
}

// Place is a part of a registered region; the zero value is none.
type Place struct {
	Region       string
	Offset, Size int
}

// Response is what a model answered. Its tensors are views of the message, valid until Release.
type Response struct {
	Model, Version, ID string
	Parameters         map[string]any
	Outputs            []tensor.Tensor
	// Final is false when a stream will bring more for the same request.
	Final bool

	memory mem.Buffer // of the message; nil where the garbage collector has it
}

// Release lets another response use the memory of this one, whose tensors may not be read any more. It may be left out: the
// garbage collector then takes the memory.
func (r *Response) Release() {
	if r.memory != nil {
		clear(r.Outputs)
		r.memory.Free()
		r.memory = nil
	}
}

// Output finds an output by name; nil if there is none.
func (r *Response) Output(name string) *tensor.Tensor {
	for i := range r.Outputs {
		if r.Outputs[i].Name == name {
			return &r.Outputs[i]
		}
	}
	return nil
}

// Infer asks once.
func (c *Client) Infer(ctx context.Context, req *Request) (*Response, error) {
	m, err := req.message()
	if err != nil {
		return nil, err
	}
	var q any = m
	if req.InPlace {
		q = &question{m}
	}
	a := answer{ModelInferResponse: new(inference.ModelInferResponse)}
	if err := c.conn.Invoke(ctx, inference.GRPCInferenceService_ModelInfer_FullMethodName, q, &a); err != nil {
		return nil, err
	}
	resp, err := response(a.ModelInferResponse)
	if err != nil {
		return nil, err
	}
	resp.memory = a.memory
	return resp, nil
}

// Stream is a stream of requests and responses; one goroutine may send while one other receives.
type Stream struct {
	grpc.BidiStreamingClient[inference.ModelInferRequest, inference.ModelStreamInferResponse]
}

// Stream opens a stream, which ctx ends.
func (c *Client) Stream(ctx context.Context) (*Stream, error) {
	s, err := c.ModelStreamInfer(ctx)
	if err != nil {
		return nil, err
	}
	return &Stream{s}, nil
}

// SendRequest asks over the stream.
func (s *Stream) SendRequest(req *Request) error {
	m, err := req.message()
	if err != nil {
		return err
	}
	return s.Send(m)
}

// AnswerError is a request of a stream that failed, where the stream goes on, or an answer over HTTP that makes no sense.
type AnswerError struct{ ID, Message string }

// Error is the server's message.
func (e *AnswerError) Error() string { return e.Message }

// Next receives the next response. An *AnswerError is about one request, io.EOF the end, any other error the
// stream's.
func (s *Stream) Next() (*Response, error) {
	a := streamAnswer{ModelStreamInferResponse: new(inference.ModelStreamInferResponse)}
	err := s.RecvMsg(&a)
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, err
	}
	if text := a.GetErrorMessage(); text != "" {
		return nil, &AnswerError{ID: a.GetInferResponse().GetId(), Message: text}
	}
	resp, err := response(a.GetInferResponse())
	if err != nil {
		return nil, err
	}
	resp.memory = a.memory
	return resp, nil
}
