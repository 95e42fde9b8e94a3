// Package v2grpc serves the v2 inference protocol over gRPC, as Triton's clients speak it.
//
// Tensors are not copied where gRPC itself does not: a request is parsed in the message's own buffer, whose
// raw tensors the model reads in place, and the tensors of a response are handed to the transport as they
// are. A Server belongs to one listener; what is registered or begun through it (shared memory, sequences)
// cannot be reached from another.
package v2grpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress requests and ask for compressed responses
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/trace"
	"github.com/vedette/vedette/internal/grpcpool"
	"github.com/vedette/vedette/internal/intern"
	"github.com/vedette/vedette/internal/underway"
)

// Config says what to serve and how. Inferer and Catalog are required, everything else may stay zero.
type Config struct {
	Inferer infer.Inferer
	Catalog infer.Catalog
	// Instances tells where a model's instances run; nil: nobody knows.
	Instances func(model string) []*inference.ModelMetadataResponse_InstanceMetadata
	// Regions are the listener's own; nil refuses shared memory.
	Regions *shm.Registry
	// Scope keeps the listener's sequences apart from those of other listeners.
	Scope string
	// Frames checks after every inference that a frame read from a slot was not overwritten meanwhile.
	Frames bool
	// Pool lends memory for tensors that cannot be used in place; nil allocates.
	Pool *tensor.Pool
	// Trace and Log hold the settings of those extensions; nil makes them unimplemented.
	Trace *trace.Settings
	Log   LogSettings
	// TLS is the server's side of it; nil is plain text.
	TLS *tls.Config
	// Keepalive of connections; zero fields take the defaults of Triton.
	Keepalive Keepalive
	// Restricted closes groups of calls to those who do not know a header.
	Restricted []Restriction
	// ForwardHeaders turns request metadata with matching keys into parameters of the request; nil forwards none.
	ForwardHeaders *regexp.Regexp
	// Compress asks for gzip on responses of inference whatever the client sent.
	Compress bool
	// MaxStreamRequests and MaxStreamBytes bound the requests of one stream that have no answer yet, in number and in
	// bytes: the next one waits in the connection, as its client does, until another has its answer written. One request
	// alone may be larger. 0: 1024 and 512 MiB.
	MaxStreamRequests, MaxStreamBytes int
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

// Restriction closes the groups of calls named in APIs (health, metadata, inference, shared-memory,
// model-config, model-repository, statistics, trace, logging) unless the request carries Header with Value.
type Restriction struct {
	APIs          []string
	Header, Value string
}

// Keepalive is when connections are probed, and how often clients may probe.
type Keepalive struct {
	Time                time.Duration // between probes of an idle connection; 0: 2 h
	Timeout             time.Duration // for the answer; 0: 20 s
	PermitWithoutCalls  bool
	MinRecvPingInterval time.Duration // between probes of a client; 0: 5 min
	MaxConnectionAge    time.Duration // 0: for ever
	MaxConnectionGrace  time.Duration // 0: for ever
}

// Server serves one listener.
type Server struct {
	inference.UnimplementedGRPCInferenceServiceServer
	grpc_health_v1.UnimplementedHealthServer

	cfg      Config
	names    intern.Names
	calls    sync.Pool
	readers  sync.WaitGroup // of streams
	stopping atomic.Bool
	underWay *underway.Calls
	quit     chan struct{} // closed when the server begins to stop
}

// New makes a server; it does not listen.
func New(cfg Config) *Server {
	if cfg.Regions == nil {
		cfg.Regions = shm.New(shm.Config{})
	}
	if cfg.MaxStreamRequests <= 0 {
		cfg.MaxStreamRequests = 1024
	}
	if cfg.MaxStreamBytes <= 0 {
		cfg.MaxStreamBytes = 512 << 20
	}
	if cfg.StopTimeout <= 0 {
		cfg.StopTimeout = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, underWay: underway.New(), quit: make(chan struct{})}
}

const (
	// delivered is how long after a call its answer is with the client: grpc-go waits no longer for its goodbye either.
	delivered = 5 * time.Second
	// farewell is what clients get to close connections on which nothing happens.
	farewell = 200 * time.Millisecond
)

// Run serves ln, which it closes, until ctx ends; calls under way then get StopTimeout to end, and streams end
// as soon as nothing is under way on them. Whoever comes meanwhile is told that the server stops. Run is called once.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	srv := grpc.NewServer(s.options()...)
	srv.RegisterService(serviceDesc(), s)
	grpc_health_v1.RegisterHealthServer(srv, s)
	done := make(chan error, 1) // the one result of Serve
	var wg sync.WaitGroup
	wg.Go(func() { done <- srv.Serve(ln) })
	defer wg.Wait()
	select {
	case err := <-done:
		return fmt.Errorf("serve gRPC at %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.stopping.Store(true)
	close(s.quit)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StopTimeout)
	defer cancel()
	hard := context.AfterFunc(grace, srv.Stop)
	defer hard()
	s.underWay.Wait(grace)
	if s.underWay.Quiet() > delivered {
		// Idle clients in C and Python do not look at their connections, and never answer what a graceful stop asks them.
		soon := time.AfterFunc(farewell, srv.Stop)
		defer soon.Stop()
	}
	srv.GracefulStop()
	s.readers.Wait()
	return nil
}

// count counts the calls that are not inference, which counts itself.
func (s *Server) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	s.underWay.Begin()
	defer func() { s.underWay.End(s.stopping.Load()) }()
	return handle(ctx, req)
}

func (s *Server) options() []grpc.ServerOption {
	k := s.cfg.Keepalive
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{}),
		grpc.UnaryInterceptor(s.count),
		grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:                  orDefault(k.Time, 2*time.Hour),
			Timeout:               orDefault(k.Timeout, 20*time.Second),
			MaxConnectionAge:      k.MaxConnectionAge,
			MaxConnectionAgeGrace: k.MaxConnectionGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             orDefault(k.MinRecvPingInterval, 5*time.Minute),
			PermitWithoutStream: k.PermitWithoutCalls,
		}),
		// Workers keep their grown stacks from one call to the next.
		grpc.NumStreamWorkers(streamWorkers),
		// Wide windows: a tensor of some megabytes must not wait for a window update per 64 KiB.
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		grpc.WriteBufferSize(128 << 10),
		grpc.ReadBufferSize(128 << 10),
		experimental.BufferPool(new(grpcpool.Pool)),
		grpc.WaitForHandlers(true),
	}
	if s.cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(s.cfg.TLS)))
	}
	return opts
}

const (
	streamWorkers = 16
	window        = 8 << 20
)

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// serviceDesc is the generated service with the two calls that carry tensors replaced by our own.
func serviceDesc() *grpc.ServiceDesc {
	d := inference.GRPCInferenceService_ServiceDesc
	d.Methods = append([]grpc.MethodDesc(nil), d.Methods...)
	for i := range d.Methods {
		if d.Methods[i].MethodName == "ModelInfer" {
			d.Methods[i].Handler = modelInfer
		}
	}
	d.Streams = append([]grpc.StreamDesc(nil), d.Streams...)
	for i := range d.Streams {
		if d.Streams[i].StreamName == "ModelStreamInfer" {
			d.Streams[i].Handler = modelStreamInfer
		}
	}
	return &d
}

// statusOf turns any error into a gRPC status.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	if st, ok := status.FromError(err); ok {
		if len(st.Message()) > maxMessage {
			return status.Error(st.Code(), clip(st.Message()))
		}
		return st.Err()
	}
	return status.Error(codes.Code(infer.CodeOf(err).GRPC()), clip(err.Error()))
}

// maxMessage bounds the text of a status: it travels in a header, escaped to thrice its size, and clients that take 8 KiB
// of headers, as those on gRPC's core do, would see a broken stream in place of the status.
const maxMessage = 2 << 10

func clip(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "..."
}

// admit refuses a call while the server stops, and one of a closed group without its header.
func (s *Server) admit(ctx context.Context, api string) error {
	if s.stopping.Load() {
		return errStopping()
	}
	if len(s.cfg.Restricted) == 0 {
		return nil
	}
	return s.unlocked(ctx, api)
}

func errStopping() error {
	return status.Error(codes.Unavailable, "GRPC server is shutting down and has stopped accepting new requests.")
}
