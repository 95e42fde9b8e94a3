// Package v2http serves the v2 inference protocol over HTTP, as Triton's clients and KServe's speak it.
//
// Requests are JSON, or JSON followed by the tensors' bytes, or bytes alone; responses likewise. Tensors that
// come as bytes are read where the message lies, and those in JSON are parsed straight into memory that is
// lent. A response leaves in one write where it fits the connection's buffer, and large tensors follow from
// where they are.
package v2http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/trace"
	"github.com/vedette/vedette/internal/intern"
	"github.com/vedette/vedette/internal/underway"
)

// Config says what to serve and how. Inferer and Catalog are required, everything else may stay zero.
type Config struct {
	Inferer infer.Inferer
	Catalog infer.Catalog
	// Instances returns where the instances of a model run; nil: nobody knows.
	Instances func(model string) []Instance
	// Regions are the listener's own; nil refuses shared memory.
	Regions *shm.Registry
	// Scope keeps the listener's sequences apart from those of other listeners.
	Scope string
	// Pool lends memory for messages and tensors; nil allocates.
	Pool *tensor.Pool
	// Trace and Log hold the settings of those extensions; nil makes them unimplemented.
	Trace *trace.Settings
	Log   LogSettings
	// TLS is the server's side of it; nil is plain text.
	TLS *tls.Config
	// MaxInputSize bounds JSON, raw requests and what a compressed body unfolds to, in bytes. 0: 64 MiB.
	MaxInputSize int64
	// MaxBodySize bounds a whole body, binary tensors included. 0: 2 GiB.
	MaxBodySize int64
	// Restricted closes groups of calls to those who do not know a header.
	Restricted []Restriction
	// ForwardHeaders turns headers whose names match into parameters of the request; nil forwards none.
	ForwardHeaders *regexp.Regexp
	// StopTimeout is what calls under way get to end after Run was told to stop. 0: 10 s.
	StopTimeout time.Duration
	// Logger gets what is nobody else's to report; nil discards.
	Logger *slog.Logger
}

// LogSettings are the settings of the logging extension: values are bool, uint32 or string.
type LogSettings interface {
	Settings() map[string]any
	Update(map[string]any) error
}

// Instance is a loaded copy of a model and where it really runs.
type Instance struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Provider is cpu or the accelerator before it; Fallbacks counts how often that was given up, Reason is why
	// it is not in use now.
	Provider  string `json:"provider"`
	Fallbacks int    `json:"fallbacks"`
	Reason    string `json:"reason,omitempty"`
	// Note tells what is to be known of the provider.
	Note string `json:"note,omitempty"`
}

// Restriction closes the groups of calls named in APIs (health, metadata, inference, shared-memory,
// model-config, model-repository, statistics, trace, logging) unless the request carries Header with Value.
type Restriction struct {
	APIs          []string
	Header, Value string
}

// Server serves one listener.
type Server struct {
	cfg      Config
	names    intern.Names
	calls    sync.Pool
	stopping atomic.Bool
	underWay *underway.Calls
	quick    *quick // nil until Run
}

// New makes a server; it does not listen.
func New(cfg Config) *Server {
	if cfg.Regions == nil {
		cfg.Regions = shm.New(shm.Config{})
	}
	if cfg.MaxInputSize <= 0 {
		cfg.MaxInputSize = 64 << 20
	}
	if cfg.MaxBodySize <= 0 {
		cfg.MaxBodySize = 2 << 30
	}
	if cfg.StopTimeout <= 0 {
		cfg.StopTimeout = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, underWay: underway.New()}
}

// Run serves ln, which it closes, until ctx ends; calls under way then get StopTimeout to end, and whoever comes meanwhile
// is told that the server stops.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: time.Minute,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    1 << 20,
		TLSConfig:         s.cfg.TLS,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	s.quick = &quick{back: newFeed(ln.Addr()), conns: make(map[*quickConn]struct{})}
	done := make(chan error, 2) // the results of Serve
	var wg sync.WaitGroup
	wg.Go(func() { done <- srv.Serve(s.quick.back) })
	wg.Go(func() {
		if s.cfg.TLS != nil {
			done <- srv.ServeTLS(ln, "", "")
			return
		}
		done <- srv.Serve(ln)
	})
	defer wg.Wait()
	select {
	case err := <-done:
		_ = srv.Close()
		expired, cancel := context.WithCancel(ctx)
		cancel()
		s.quick.stop(expired)
		return fmt.Errorf("serve HTTP at %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.stopping.Store(true)
	srv.SetKeepAlivesEnabled(false)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StopTimeout)
	defer cancel()
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		s.quick.stop(grace)
	}()
	defer func() { <-quiet }()
	s.underWay.Wait(grace)
	if err := srv.Shutdown(grace); err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("stop HTTP at %s: %w", ln.Addr(), err)
		}
		_ = srv.Close()
	}
	return nil
}
