package v2grpc

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/infer"
)

// modelInfer is the handler of ModelInfer.
//
//nolint:revive // the order of its parameters is gRPC's
func modelInfer(srv any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	s, ok := srv.(*Server)
	if !ok {
		return nil, status.Error(codes.Internal, "handler of another service")
	}
	s.underWay.Begin()
	defer func() { s.underWay.End(s.stopping.Load()) }()
	c := s.newCall()
	if err := dec(c); err != nil {
		c.free()
		return nil, err
	}
	out, err := s.unary(ctx, c)
	if err != nil {
		return nil, statusOf(err)
	}
	return out, nil
}

// unary runs one request and frees its call.
func (s *Server) unary(ctx context.Context, c *call) (encoded, error) {
	resp, err := s.do(ctx, c)
	if err != nil {
		c.free()
		return nil, err
	}
	if s.cfg.Compress {
		if err := grpc.SetSendCompressor(ctx, "gzip"); err != nil {
			s.cfg.Logger.DebugContext(ctx, "response is not compressed", slog.Any("err", err))
		}
	}
	return answer{call: c, resp: resp, last: true}.encode()
}

func (s *Server) do(ctx context.Context, c *call) (*infer.Response, error) {
	if err := s.admit(ctx, apiInference); err != nil {
		return nil, err
	}
	if err := c.resolve(ctx); err != nil {
		return nil, err
	}
	m, err := s.cfg.Catalog.Model(c.req.Model, c.req.Version)
	if err != nil {
		return nil, err
	}
	if m.Decoupled {
		return nil, infer.Errorf(infer.Unsupported, "ModelInfer RPC doesn't support models with decoupled transaction policy")
	}
	resp, err := infer.Await(ctx, s.cfg.Inferer, &c.req)
	if err != nil {
		return nil, err
	}
	if err := c.checkFrames(); err != nil {
		resp.Release()
		return nil, err
	}
	return resp, nil
}
