package remote

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

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
	secure  *tls.Config

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

// maxConfig bounds a configuration's JSON.
const maxConfig = 16 << 20

// config asks what the model there takes and gives.
func (s *server) config(ctx context.Context, model string, version int64) (*inference.ModelConfig, error) {
	v := ""
	if version > 0 {
		v = strconv.FormatInt(version, 10)
	}
	if s.grpc != nil {
		r, err := s.grpc.ModelConfig(ctx, &inference.ModelConfigRequest{Name: model, Version: v})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.address, err)
		}
		return r.GetConfig(), nil
	}
	path := []string{"v2", "models", model}
	if v != "" {
		path = append(path, "versions", v)
	}
	address, err := url.JoinPath(s.address, append(path, "config")...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.address, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.address, err)
	}
	transport := &http.Transport{TLSClientConfig: s.secure, Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.address, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing more to be read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxConfig))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.address, err)
	}
	if resp.StatusCode != http.StatusOK {
		var e struct{ Error string }
		if json.Unmarshal(body, &e) != nil || e.Error == "" {
			e.Error = resp.Status
		}
		return nil, fmt.Errorf("%s: %s", s.address, e.Error)
	}
	c := &inference.ModelConfig{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, c); err != nil {
		return nil, fmt.Errorf("%s: read the configuration: %w", s.address, err)
	}
	return c, nil
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
