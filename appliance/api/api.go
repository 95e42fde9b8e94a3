// Package api is what an operator and their programs meet: the gRPC services of vedette.v1, the same as JSON over
// HTTP, the dashboard, metrics and health, behind one gate.
package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/test/bufconn"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/store"
)

// Pictures is where the API gets pictures and probes from.
type Pictures interface {
	// Picture returns the newest picture of a camera.
	Picture(ctx context.Context, req PictureRequest) (*vedettev1.GetSnapshotResponse, error)
	// Probe tries a source once.
	Probe(ctx context.Context, source *vedettev1.Source) (*vedettev1.ProbeCameraResponse, error)
	// DumpPackets hands the parts of a capture of a camera's packets to take.
	DumpPackets(ctx context.Context, camera string, d time.Duration, maxBytes int64, take func([]byte) error) error
}

// Video is where the API gets coded pictures from.
type Video interface {
	// Watch hands take a stream's coded pictures as they come, until take fails, ctx ends or the camera is removed. A
	// description that is not nil goes before its unit.
	Watch(ctx context.Context, camera string, main bool, take func(*ingestv1.StreamDescription, *ingestv1.AccessUnit) error) error
}

// Capacity is what the box knows of how many cameras fit on it.
type Capacity interface {
	// Admit returns nil when a camera fits beside the others or costs no more than what it was (nil: it is new), and
	// otherwise a *ReasonError with what was measured.
	Admit(was, c *vedettev1.Camera) error
	// Capacity answers GetCapacity.
	Capacity(req *vedettev1.GetCapacityRequest) *vedettev1.Capacity
	// Measure measures the box with a pipeline; empty: the default one.
	Measure(ctx context.Context, pipeline string) error
}

// Config is what the API serves. Store, Cameras, Pictures, System and at least one listener are required.
type Config struct {
	Store    *store.Store
	Cameras  *cameras.Registry
	Pictures Pictures
	// Video, nil: there is none.
	Video Video
	// System describes the box; the answer is the caller's.
	System func() *vedettev1.System
	// Capacity knows how many cameras fit; nil: any number does.
	Capacity Capacity
	// Timing tells where the time of a camera's frames went, by its id; nil: nobody knows.
	Timing func(camera string) *vedettev1.FrameTiming
	// Rules, Sinks and Models are served as they are; nil: not served.
	Rules  vedettev1.RuleServiceServer
	Sinks  vedettev1.SinkServiceServer
	Models vedettev1.ModelServiceServer
	// History answers GetHistory; nil: there is none.
	History func(start time.Time, cameras []string) *vedettev1.GetHistoryResponse
	// Doctor looks at the machine, and Bundle writes a support bundle; nil: not served.
	Doctor func(context.Context) []*vedettev1.Finding
	Bundle func(context.Context, io.Writer) error
	// Metrics answers /metrics; nil: there is none.
	Metrics http.Handler
	// Dashboard makes what answers everything outside /v1, given a connection to the API; nil: there is none.
	// Its Close is called at the end.
	Dashboard func(grpc.ClientConnInterface) (Dashboard, error)
	// Visitors lets loopback clients without a token look at everything (a demonstration).
	Visitors bool

	// HTTP serves JSON and the dashboard, GRPC the services over TCP, and Local the services on a Unix socket
	// whose every client is an admin. Run closes them; nil ones are not served.
	HTTP, GRPC, Local net.Listener
	// Reflection lets clients of any role ask which methods there are (grpc.reflection.v1 and v1alpha).
	Reflection bool

	// Logger, nil: discarded.
	Logger *slog.Logger
	// Now, nil: time.Now.
	Now func() time.Time
}

// Dashboard is an http.Handler with streams of its own, which Close ends.
type Dashboard interface {
	http.Handler
	Close()
}

// Server serves the API.
type Server struct {
	cfg Config
}

// New returns a server that Run starts.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Server{cfg: cfg}
}

// Run serves until ctx ends, then ends streams and lets requests finish, for at most a second.
func (s *Server) Run(ctx context.Context) error {
	g := &gate{store: s.cfg.Store, now: s.cfg.Now}
	if s.cfg.Visitors {
		g.visitor = "visitor_" + random()
	}
	stopping, stop := context.WithCancel(context.WithoutCancel(ctx)) // ends the streams
	defer stop()
	rpc := s.grpcServer(stopping, g)

	// The JSON gateway and the dashboard are clients like any other, over memory.
	inside := bufconn.Listen(256 << 10)
	conn, err := grpc.NewClient("passthrough:///inside", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return inside.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return fmt.Errorf("connect the JSON gateway: %w", err)
	}
	defer func() { _ = conn.Close() }()
	handler, closeHandler, err := s.handler(ctx, conn, g)
	if err != nil {
		return err
	}

	web := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug), // whoever connects could fill the log otherwise
	}
	run, runCtx := errgroup.WithContext(ctx)
	for _, ln := range []net.Listener{inside, s.cfg.GRPC, s.cfg.Local} {
		if ln != nil {
			run.Go(func() error {
				if err := rpc.Serve(ln); !errors.Is(err, grpc.ErrServerStopped) { // ended before it began
					return err
				}
				return nil
			})
		}
	}
	if s.cfg.HTTP != nil {
		run.Go(func() error {
			if err := web.Serve(s.cfg.HTTP); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve HTTP on %s: %w", s.cfg.HTTP.Addr(), err)
			}
			return nil
		})
	}
	run.Go(func() error {
		<-runCtx.Done()
		stop()
		closeHandler()
		stopHTTP(ctx, web)
		stopGRPC(rpc)
		return nil
	})
	return run.Wait()
}

const stopTimeout = time.Second

func stopHTTP(ctx context.Context, web *http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if web.Shutdown(ctx) != nil {
		_ = web.Close()
	}
}

func stopGRPC(rpc *grpc.Server) {
	timer := time.AfterFunc(stopTimeout, rpc.Stop)
	defer timer.Stop()
	rpc.GracefulStop()
}

func (s *Server) grpcServer(stopping context.Context, g *gate) *grpc.Server {
	rpc := grpc.NewServer(
		grpc.ChainUnaryInterceptor(s.unaryFaults, s.audited(g), s.once(g)),
		grpc.ChainStreamInterceptor(s.streamFaults, g.stream),
		grpc.MaxRecvMsgSize(4<<20),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(encodingproto.Name)}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)
	vedettev1.RegisterCameraServiceServer(rpc, &cameraService{cfg: &s.cfg, gate: g, stopping: stopping})
	vedettev1.RegisterAnalyticsServiceServer(rpc, &analyticsService{cfg: &s.cfg, stopping: stopping})
	vedettev1.RegisterEventServiceServer(rpc, &eventService{cfg: &s.cfg, stopping: stopping})
	vedettev1.RegisterSystemServiceServer(rpc, &systemService{cfg: &s.cfg})
	vedettev1.RegisterTokenServiceServer(rpc, &tokenService{cfg: &s.cfg, gate: g})
	vedettev1.RegisterUserServiceServer(rpc, &userService{cfg: &s.cfg, gate: g, door: newDoor(s.cfg.Store, s.cfg.Now)})
	if s.cfg.Rules != nil {
		vedettev1.RegisterRuleServiceServer(rpc, s.cfg.Rules)
	}
	if s.cfg.Sinks != nil {
		vedettev1.RegisterSinkServiceServer(rpc, s.cfg.Sinks)
	}
	if s.cfg.Models != nil {
		vedettev1.RegisterModelServiceServer(rpc, s.cfg.Models)
	}
	healthpb.RegisterHealthServer(rpc, health.NewServer())
	if s.cfg.Reflection {
		reflection.Register(rpc)
	}
	return rpc
}

// unaryFaults and streamFaults turn errors into what clients may see.
func (s *Server) unaryFaults(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	resp, err := next(ctx, req)
	return resp, toStatus(ctx, s.cfg.Logger, err)
}

func (s *Server) streamFaults(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return toStatus(stream.Context(), s.cfg.Logger, next(srv, stream))
}
