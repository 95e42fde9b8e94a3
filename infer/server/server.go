// Package server is the inference sidecar as a whole: a model repository, its frontends and what watches them.
//
// Public clients come by HTTP and gRPC, each with shared memory and sequences of their own; the appliance
// comes by a Unix socket nobody else can open, beside which a second one takes the memory of its frames.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"golang.org/x/sync/errgroup"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend/stream"
	"github.com/vedette/vedette/infer/metrics"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/trace"
	"github.com/vedette/vedette/infer/v2client"
	"github.com/vedette/vedette/infer/v2grpc"
	"github.com/vedette/vedette/infer/v2http"
	"github.com/vedette/vedette/internal/sdnotify"
)

// Config says what to serve and where. Repository.Roots is required; an address left empty is not served.
type Config struct {
	// Repository says which models; its Backends, Logger and Pool are filled in.
	Repository repository.Config
	// ONNXRuntime is the path of ONNX Runtime's library.
	ONNXRuntime string

	// HTTP, GRPC and Metrics are host:port.
	HTTP, GRPC, Metrics string
	// Sockets, by "http", "grpc" and "metrics", are listened on instead of those that HTTP, GRPC and Metrics name; they
	// switch nothing on that is empty.
	Sockets sdnotify.Sockets
	// PrivateSocket serves gRPC to the appliance; MemorySocket takes the memory of its frames.
	PrivateSocket, MemorySocket string

	// IngestSocket is the ingest sidecar's, for models that watch cameras; empty: there are none.
	IngestSocket string

	// AllowClientMemory lets public clients register shared memory.
	AllowClientMemory bool
	// ExitOnError ends Run when a model of the start does not load.
	ExitOnError bool
	// ExitTimeout is what requests under way get to end. 0: 30 s.
	ExitTimeout time.Duration

	HTTPTLS, GRPCTLS                       *tls.Config
	HTTPMaxInput                           int64
	HTTPForwardHeaders, GRPCForwardHeaders *regexp.Regexp
	HTTPRestricted                         []v2http.Restriction
	GRPCRestricted                         []v2grpc.Restriction
	GRPCKeepalive                          v2grpc.Keepalive
	GRPCCompress                           bool

	// MetricsOptions chooses families; its Models is filled in.
	MetricsOptions metrics.Config
	Trace          trace.Config
	Spans          *trace.SpansConfig // traces are spans of OpenTelemetry in place of files; nil: they are not
	// Log is where to and what is logged; the zero value is warnings and errors on Output nil: nowhere.
	Log LogConfig

	// Ready is called when the models of the start are loaded; nil: nobody waits for it.
	Ready func() error
	// Watchdog runs beside everything else, with a function that tells whether the server lives; nil: none.
	Watchdog func(ctx context.Context, alive func() bool) error
	// Listening is told each address when it is open; nil: nobody asks.
	Listening func(what string, at net.Addr)
}

// Server is the sidecar.
type Server struct {
	cfg    Config
	log    *logs
	logger *slog.Logger
	repo   *repository.Repository
	pool   tensor.Pool
	stream *stream.Backend

	public, private *shm.Registry
	traces          *trace.Settings
	spans           *trace.Spans // nil: traces go to files
	observer        observer
}

// New checks the configuration; nothing is opened before Run.
func New(cfg Config) (*Server, error) {
	if cfg.ExitTimeout <= 0 {
		cfg.ExitTimeout = 30 * time.Second
	}
	s := &Server{cfg: cfg, log: newLogs(cfg.Log)}
	s.logger = slog.New(s.log)
	s.cfg.Repository.Logger, s.cfg.Repository.Pool = s.logger, &s.pool
	s.stream = stream.New(stream.Config{Socket: cfg.IngestSocket, Program: "vedette-infer"})
	if s.cfg.Repository.Backends == nil {
		s.cfg.Repository.Backends = backends(cfg.ONNXRuntime, &s.pool, s.stream, s.logger)
	}
	for _, b := range s.cfg.Repository.Backends {
		if c, ok := b.(prometheus.Collector); ok {
			s.cfg.MetricsOptions.Backends = append(s.cfg.MetricsOptions.Backends, c)
		}
	}
	var err error
	tracing := cfg.Trace
	tracing.Known = func(model string) bool {
		_, err := s.repo.ModelReady(model, -1)
		return infer.CodeOf(err) != infer.NotFound || err == nil
	}
	if cfg.Spans != nil {
		if s.spans, err = trace.NewSpans(context.Background(), *cfg.Spans); err != nil {
			return nil, fmt.Errorf("--trace-config opentelemetry: %w", err)
		}
		tracing.Spans = s.spans
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { s.logger.Warn("spans are lost", slog.Any("err", err)) }))
	}
	tracing.Failed = func(err error) { s.logger.Error("a trace is lost", slog.Any("err", err)) }
	s.traces = trace.New(tracing)
	s.observer.traces = s.traces
	s.cfg.Repository.Backends = s.observer.observe(s.cfg.Repository.Backends)
	if s.cfg.Repository.GPUs == nil {
		s.cfg.Repository.GPUs = gpus(cfg.ONNXRuntime)
	}
	if s.repo, err = repository.New(s.cfg.Repository); err != nil {
		return nil, err
	}
	s.public = shm.New(shm.Config{AllowNamed: cfg.AllowClientMemory, Pool: &s.pool})
	s.private = shm.New(shm.Config{Pool: &s.pool})
	return s, nil
}

// alive tells whether the server gets on with its work: whether its repository, and with a private socket its frontend too,
// answer within ten seconds.
func (s *Server) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if s.cfg.PrivateSocket != "" {
		c, err := v2client.New("unix:"+s.cfg.PrivateSocket, v2client.Config{})
		if err != nil {
			return false
		}
		defer func() { _ = c.Close() }()
		_, err = c.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{})
		return err == nil
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = s.repo.ModelReady("", -1) // its answer does not matter, that it comes does
	}()
	select {
	case <-answered:
		return true
	case <-ctx.Done():
		return false
	}
}

// Logger is the server's, for what the process has to say besides.
func (s *Server) Logger() *slog.Logger { return s.logger }

// Run serves until ctx ends. It stops backwards: frontends first, models when nobody can ask any more.
func (s *Server) Run(ctx context.Context) (err error) {
	if c, ok := s.cfg.Log.Output.(io.Closer); ok && s.cfg.Log.CloseOutput {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	defer s.closeSpans(context.WithoutCancel(ctx))
	if err := s.checkRoots(); err != nil {
		return err
	}
	tasks, err := s.open(ctx)
	if err != nil {
		return err
	}
	models, stopModels := context.WithCancel(context.WithoutCancel(ctx))
	defer stopModels()
	var inner errgroup.Group
	inner.Go(func() error { return s.repo.Run(models, s.cfg.ExitTimeout) })

	g, ctx := errgroup.WithContext(ctx)
	// Requests that have no end would hold the frontends up.
	stop := context.AfterFunc(ctx, s.stream.Stop)
	defer stop()
	for _, t := range tasks {
		g.Go(func() error { return t(ctx) })
	}
	g.Go(func() error { return s.start(ctx) })
	g.Go(func() error { return s.giveBack(ctx) })
	if s.cfg.Watchdog != nil {
		g.Go(func() error { return s.cfg.Watchdog(ctx, func() bool { return s.alive(ctx) }) })
	}
	err = g.Wait()
	stopModels()
	if e := s.ended(&inner); err == nil {
		err = e
	}
	s.public.Drop("")
	s.private.Drop("")
	return err
}

// ended waits until the models have ended. One that never does, in its load or in a request, does not keep the server.
func (s *Server) ended(models *errgroup.Group) error {
	done := make(chan error, 1)
	go func() { done <- models.Wait() }()
	late := time.NewTimer(s.cfg.ExitTimeout + 5*time.Second)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return errors.New("exit timeout expired: a model does not end; exiting")
	}
}

// closeSpans sends the spans that wait.
func (s *Server) closeSpans(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := s.spans.Close(ctx); err != nil {
		s.logger.Warn("the last spans are lost", slog.Any("err", err))
	}
}

// checkRoots refuses directories that are not there. What an appliance will put in place later may be missing:
// it sets ExitOnError to false.
func (s *Server) checkRoots() error {
	if !s.cfg.ExitOnError {
		return nil
	}
	for _, root := range s.cfg.Repository.Roots {
		if strings.Contains(root, "://") {
			continue
		}
		if st, err := os.Stat(root); err != nil {
			return fmt.Errorf("model repository: %w: name a directory that holds one for each model with --model-repository", err)
		} else if !st.IsDir() {
			return fmt.Errorf("model repository %s is not a directory: name one that holds a directory for each model with --model-repository", root)
		}
	}
	return nil
}

// start waits for the models of the start and says so.
func (s *Server) start(ctx context.Context) error {
	err := s.repo.Loaded(ctx)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // told to stop before the models were loaded
	case err != nil:
		if s.cfg.ExitOnError {
			return fmt.Errorf("load models: %w (--exit-on-error=false serves the others)", err)
		}
		s.logger.ErrorContext(ctx, "some models did not load", slog.Any("err", err))
	}
	if s.cfg.Ready != nil {
		if err := s.cfg.Ready(); err != nil {
			return err
		}
	}
	s.logger.InfoContext(ctx, "models are loaded")
	<-ctx.Done()
	return nil
}

// task is one listener's life.
type task func(ctx context.Context) error

// open opens every listener, so that an address that is taken is an error at once, and returns what serves them.
func (s *Server) open(ctx context.Context) (tasks []task, err error) {
	var opened []net.Listener
	defer func() {
		if err != nil {
			for _, ln := range opened {
				_ = ln.Close()
			}
		}
	}()
	for _, l := range []struct {
		what, flag, address string
		serve               func(ctx context.Context, ln net.Listener) error
	}{
		{"HTTP", "--http-port (of vedette run: --infer-http)", s.cfg.HTTP, s.http().Run},
		{"gRPC", "--grpc-port (of vedette run: --infer-grpc)", s.cfg.GRPC, s.grpc().Run},
		{"metrics", "--metrics-port (of vedette run: --infer-metrics)", s.cfg.Metrics, s.serveMetrics},
	} {
		if l.address == "" {
			continue
		}
		ln, err := s.cfg.Sockets.Listen(strings.ToLower(l.what))
		if ln == nil && err == nil {
			ln, err = listen(ctx, l.address, l.flag)
		}
		if err != nil {
			return nil, err
		}
		s.announce(ctx, l.what, ln.Addr())
		opened = append(opened, ln)
		tasks = append(tasks, func(ctx context.Context) error { return l.serve(ctx, ln) })
	}
	if s.cfg.PrivateSocket != "" {
		ln, err := listenUnix(ctx, s.cfg.PrivateSocket)
		if err != nil {
			return nil, err
		}
		s.announce(ctx, "private", ln.Addr())
		opened = append(opened, ln)
		tasks = append(tasks, func(ctx context.Context) error { return s.privateGRPC().Run(ctx, ln) })
	}
	if s.cfg.MemorySocket != "" {
		ln, err := shm.Listen(s.cfg.MemorySocket)
		if err != nil {
			return nil, fmt.Errorf("listen at %s: %w", s.cfg.MemorySocket, err)
		}
		s.announce(ctx, "memory", ln.Addr())
		tasks = append(tasks, func(ctx context.Context) error { return shm.NewDoor(s.private, s.logger).Run(ctx, ln) })
	}
	if len(tasks) == 0 {
		return nil, errors.New("nothing is to be served: every listener is switched off")
	}
	return tasks, nil
}

func (s *Server) announce(ctx context.Context, what string, at net.Addr) {
	s.logger.InfoContext(ctx, "listening", slog.String("what", what), slog.String("address", at.String()))
	if tcp, ok := at.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		s.logger.WarnContext(ctx, "anyone who reaches this address can use the models: it asks for no token", slog.String("what", what), slog.String("address", at.String()))
	}
	if s.cfg.Listening != nil {
		s.cfg.Listening(what, at)
	}
}

func (s *Server) http() *v2http.Server {
	return v2http.New(v2http.Config{
		Inferer: s.traces.Inferer(s.repo, trace.HTTP), Catalog: s.repo, Instances: s.instances, Regions: s.public, Scope: "public",
		Pool: &s.pool, Trace: s.traces, Log: s.log, TLS: s.cfg.HTTPTLS, MaxInputSize: s.cfg.HTTPMaxInput, Restricted: s.cfg.HTTPRestricted, ForwardHeaders: s.cfg.HTTPForwardHeaders,
		StopTimeout: s.cfg.ExitTimeout, Logger: s.logger,
	})
}

func (s *Server) grpc() *v2grpc.Server {
	return v2grpc.New(v2grpc.Config{
		Inferer: s.traces.Inferer(s.repo, trace.GRPC), Catalog: s.repo, Instances: s.instanceMetadata, Regions: s.public, Scope: "public", Pool: &s.pool, Trace: s.traces, Log: s.log,
		TLS: s.cfg.GRPCTLS, Keepalive: s.cfg.GRPCKeepalive, Restricted: s.cfg.GRPCRestricted, ForwardHeaders: s.cfg.GRPCForwardHeaders,
		Compress: s.cfg.GRPCCompress, StopTimeout: s.cfg.ExitTimeout, Logger: s.logger,
	})
}

func (s *Server) privateGRPC() *v2grpc.Server {
	return v2grpc.New(v2grpc.Config{
		Inferer: s.traces.Inferer(s.repo, trace.GRPC), Catalog: s.repo, Instances: s.instanceMetadata, Regions: s.private, Scope: "private", Frames: true, Pool: &s.pool, Trace: s.traces, Log: s.log,
		Keepalive: v2grpc.Keepalive{MinRecvPingInterval: time.Second, PermitWithoutCalls: true}, StopTimeout: s.cfg.ExitTimeout, Logger: s.logger,
	})
}

func (s *Server) serveMetrics(ctx context.Context, ln net.Listener) error {
	options := s.cfg.MetricsOptions
	options.Models, options.Logger = s.repo.Counters, s.logger
	options.Instances = func() []metrics.Instance { return s.observer.list("") }
	options.QueueBudget = s.queueBudget
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler(options))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug)}
	var g errgroup.Group
	g.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
		return nil
	})
	err := srv.Serve(ln)
	if ctx.Err() != nil {
		return g.Wait()
	}
	return fmt.Errorf("serve metrics at %s: %w", ln.Addr(), err)
}
