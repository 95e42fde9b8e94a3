package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/v2client"
)

// server is one address. After it could not be reached it is passed over for a
// while that doubles with every failure.
type server struct {
	address string
	grpc    *v2client.Client
	http    *v2client.HTTP

	mu    sync.Mutex // guards what follows
	until time.Time  // passed over until then
	wait  time.Duration
}

const (
	firstRest = 100 * time.Millisecond
	lastRest  = 10 * time.Second
)

func (s *server) close() error {
	if s.http != nil {
		return s.http.Close()
	}
	if s.grpc != nil {
		return s.grpc.Close()
	}
	return nil
}

// resting tells whether the server is passed over.
func (s *server) resting(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.until)
}

// heard notes whether the server could be reached.
func (s *server) heard(now time.Time, reached bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reached {
		s.until, s.wait = time.Time{}, 0
		return
	}
	s.wait = min(max(2*s.wait, firstRest), lastRest)
	s.until = now.Add(s.wait)
}

func (s *server) infer(ctx context.Context, req *v2client.Request) (*v2client.Response, error) {
	if s.http != nil {
		return s.http.Infer(ctx, req)
	}
	return s.grpc.Infer(ctx, req)
}

// config asks what the model there takes and gives.
func (s *server) config(ctx context.Context, model string, version int64) (*inference.ModelConfig, error) {
	r, err := s.tell().ModelConfig(ctx, &inference.ModelConfigRequest{Name: model, Version: versionText(version)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.address, err)
	}
	return r.GetConfig(), nil
}

// tell is who tells of the server's models.
func (s *server) tell() v2client.Describer {
	if s.http != nil {
		return s.http
	}
	return s.grpc
}

func versionText(version int64) string {
	if version <= 0 {
		return ""
	}
	return strconv.FormatInt(version, 10)
}

// reached tells whether a server took the request, whatever became of it.
func reached(err error) bool {
	if err == nil {
		return true
	}
	if e, ok := errors.AsType[*v2client.StatusError](err); ok {
		return e.Status != http.StatusServiceUnavailable && e.Status != http.StatusBadGateway
	}
	if _, ok := errors.AsType[*v2client.AnswerError](err); ok {
		return true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	if s, ok := status.FromError(err); ok {
		return s.Code() != codes.Unavailable
	}
	return false
}

// translate turns a remote error into ours, with the class it had there.
func translate(address string, err error) error {
	e := &infer.Error{Code: infer.Unavailable, Reason: infer.ReasonBackend}
	message := err.Error()
	if s, ok := errors.AsType[*v2client.StatusError](err); ok {
		message = s.Message
		switch s.Status {
		case http.StatusBadRequest:
			e.Code = infer.InvalidArgument
		case http.StatusNotFound:
			e.Code = infer.NotFound
		case http.StatusNotImplemented:
			e.Code = infer.Unsupported
		case http.StatusServiceUnavailable, http.StatusBadGateway:
		default:
			e.Code = infer.Internal
		}
	} else if a, ok := errors.AsType[*v2client.AnswerError](err); ok {
		e.Code, message = infer.Internal, a.Message
	} else if s, ok := status.FromError(err); ok {
		message = s.Message()
		switch s.Code() {
		case codes.InvalidArgument:
			e.Code = infer.InvalidArgument
		case codes.NotFound:
			e.Code = infer.NotFound
		case codes.Unimplemented:
			e.Code = infer.Unsupported
		case codes.AlreadyExists:
			e.Code = infer.AlreadyExists
		case codes.Canceled:
			e.Code = infer.Cancelled
		case codes.Internal, codes.Unknown:
			e.Code = infer.Internal
		default:
		}
	}
	e.Message = fmt.Sprintf("remote server %s: %s", address, message)
	return e
}
