// Package appliance is the control plane: it holds the box's state, supervises or finds the two sidecars, takes
// frames through the pipeline and serves the API, the dashboard and the command line.
package appliance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/certificate"
	"github.com/vedette/vedette/appliance/models"
	"github.com/vedette/vedette/appliance/pipeline"
	"github.com/vedette/vedette/appliance/rulebook"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/appliance/sinks"
	"github.com/vedette/vedette/appliance/spans"
	"github.com/vedette/vedette/appliance/video"
	"github.com/vedette/vedette/appliance/vitals"
	"github.com/vedette/vedette/internal/sdnotify"
	"github.com/vedette/vedette/store"
	"github.com/vedette/vedette/web"
)

// Config is how an Appliance is made. DataDir is required.
type Config struct {
	// DataDir is where everything is kept; made when missing.
	DataDir string
	// HTTP and GRPC are the addresses of the dashboard with JSON and of the gRPC API; empty: not served.
	HTTP, GRPC string
	// Reflection lets gRPC clients with a token ask which methods there are.
	Reflection bool
	// TLS is for addresses that others can reach, which are served no other way; its Dir is DataDir.
	TLS certificate.Config
	// Sockets, by "http" and "grpc", are listened on instead of what HTTP and GRPC name; empty HTTP or GRPC: not even they.
	Sockets sdnotify.Sockets
	// SecretKey is the file of the key that seals passwords; empty: in DataDir.
	SecretKey string

	// IngestSocket, InferSocket and InferDoor are the sidecars' sockets; empty: in DataDir/run, and InferDoor beside
	// InferSocket.
	IngestSocket, InferSocket, InferDoor string
	// Models is the model repository.
	Models string
	// InferenceTimeout is how long inference may take for a frame; 0: 5 s.
	InferenceTimeout time.Duration
	// Spans, when its Endpoint is set, is where the ways of sampled frames are sent.
	Spans spans.Config
	// Settings is the configuration file of an installed box, and Library ONNX Runtime, for the doctor and the support
	// bundle; Library empty: not checked.
	Settings, Library string
	// Log is what was logged last, for the support bundle; nil: nobody kept it.
	Log func() []byte
	// IngestProgram is vedette-ingest, to measure what decoding costs; empty: it is not measured.
	IngestProgram string

	// Follow has the box follow a state.
	Follow Following
	// Retention bounds what is kept.
	Retention store.Retention

	// Sidecars, when set, are started and supervised; otherwise somebody else runs them.
	Sidecars *Sidecars
	// Demo registers a camera that shows a rendered street, and lets loopback clients look without a token.
	Demo bool

	// Version of the program.
	Version string
	// Out receives what a person who starts the appliance by hand wants to know; nil: nothing.
	Out io.Writer
	// Logger, nil: discarded.
	Logger *slog.Logger
}

// Appliance is the control plane of one box.
type Appliance struct {
	cfg     Config
	start   time.Time
	cameras *cameras.Registry
	rules   *rulebook.Book
	sinks   *sinks.Sinks
	boxID   string
	pipe    *pipeline.Pipeline
	video   *video.Hub
	vitals  *vitals.Recorder
	metrics *prometheus.Registry
	store   *store.Store
	kids    *sidecars
	budget  *budget
	// fingerprint is of the certificate that the listeners serve; empty: they are on loopback.
	fingerprint string
}

// New returns an appliance that Run starts.
func New(cfg Config) *Appliance {
	if cfg.IngestSocket == "" {
		cfg.IngestSocket = filepath.Join(cfg.DataDir, "run", "ingest.sock")
	}
	if cfg.InferSocket == "" {
		cfg.InferSocket = filepath.Join(cfg.DataDir, "run", "infer.sock")
	}
	if cfg.InferDoor == "" {
		cfg.InferDoor = filepath.Join(filepath.Dir(cfg.InferSocket), "infer-memory.sock")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}
	return &Appliance{cfg: cfg, metrics: prometheus.NewRegistry()}
}

// LocalSocket is where the API of an appliance with this data directory is for whoever owns the directory.
func LocalSocket(dataDir string) string { return filepath.Join(dataDir, "run", "api.sock") }

// Run works until ctx ends, then stops everything it started, the sidecars included.
func (a *Appliance) Run(ctx context.Context) error {
	a.start = time.Now()
	if err := a.directories(); err != nil {
		return err
	}
	s := newStages(ctx)
	defer s.stop()
	if err := a.run(s); err != nil { //nolint:contextcheck // the parts live by the stages' context, which is derived from ctx
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	cause := s.wait()
	if ctx.Err() == nil {
		return cause
	}
	return nil
}

func (a *Appliance) run(s *stages) error {
	listeners, err := a.listen(s.ctx)
	if err != nil {
		return err
	}
	handed := false
	defer func() {
		if !handed {
			closeListeners(listeners)
		}
	}()
	if err := a.encrypt(&listeners); err != nil {
		return err
	}
	if a.cfg.SecretKey == "" {
		a.cfg.SecretKey = filepath.Join(a.cfg.DataDir, "secret.key")
	}
	secrets, err := secret.Open(a.cfg.SecretKey)
	if err != nil {
		return err
	}
	a.store = store.New(store.Config{Dir: a.cfg.DataDir, Retention: a.cfg.Retention, Logger: a.cfg.Logger.With(slog.String("part", "store"))})
	s.start("the store", a.store.Run)
	if err := s.await(a.store.Ready()); err != nil {
		return err
	}
	a.cameras = cameras.New(cameras.Config{Store: a.store, Secrets: secrets, Logger: a.cfg.Logger})
	if err := a.cameras.Load(s.ctx); err != nil {
		return err
	}
	a.boxID = secrets.ID()
	if err := a.startRules(s, secrets); err != nil {
		return err
	}
	token, err := a.firstToken(s.ctx)
	if err != nil {
		return err
	}
	if a.cfg.Demo {
		if err := a.startDemo(s); err != nil {
			return err
		}
	}
	if a.cfg.Sidecars != nil {
		if a.kids, err = newSidecars(&a.cfg); err != nil {
			return err
		}
		s.start("the supervision of the sidecars", a.kids.run)
	}
	if err := a.startPipeline(s); err != nil {
		return err
	}
	a.startVitals(s)
	if err := a.startAPI(s, listeners); err != nil {
		return err
	}
	handed = true
	if a.cfg.Follow.Source != "" {
		s.start("following the desired state", a.follow)
	}
	s.start("the watchdog", a.watchdog)
	a.welcome(token)
	if err := sdnotify.Ready(); err != nil {
		a.cfg.Logger.Warn("systemd was not told", slog.Any("err", err))
	}
	return nil
}

// directories makes the data directory and its run folder, for their owner alone.
func (a *Appliance) directories() error {
	if a.cfg.DataDir == "" {
		return errors.New("no data directory: give one with --data-dir")
	}
	for _, dir := range []string{a.cfg.DataDir, filepath.Join(a.cfg.DataDir, "run")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the data directory: %w (choose another with --data-dir, or have it made for this user)", err)
		}
	}
	probe, err := os.CreateTemp(a.cfg.DataDir, ".write-*")
	if err != nil {
		return fmt.Errorf("the data directory cannot be written: %w (make this user its owner, or choose another with --data-dir)", err)
	}
	_ = probe.Close()
	_ = os.Remove(probe.Name())
	for _, path := range []string{LocalSocket(a.cfg.DataDir), a.cfg.IngestSocket, a.cfg.InferSocket, a.cfg.InferDoor} {
		if len(path) > maxSocketPath {
			return fmt.Errorf("the path %s has %d bytes, a socket's may have %d: choose a shorter --data-dir", path, len(path), maxSocketPath)
		}
	}
	return nil
}

// maxSocketPath is what the kernel allows (sun_path, with its final zero).
const maxSocketPath = 107

type listeners struct{ http, grpc, local net.Listener }

func closeListeners(l listeners) {
	for _, ln := range []net.Listener{l.http, l.grpc, l.local} {
		if ln != nil {
			_ = ln.Close()
		}
	}
}

// listen takes the ports first: a second appliance must fail before it touches anything.
func (a *Appliance) listen(ctx context.Context) (l listeners, err error) {
	defer func() {
		if err != nil {
			closeListeners(l)
		}
	}()
	if l.http, err = listenTCP(ctx, a.cfg.Sockets, "http", &a.cfg.HTTP); err != nil {
		return l, err
	}
	if l.grpc, err = listenTCP(ctx, a.cfg.Sockets, "grpc", &a.cfg.GRPC); err != nil {
		return l, err
	}
	l.local, err = listenLocal(ctx, LocalSocket(a.cfg.DataDir))
	return l, err
}

// listenTCP listens on the socket of that name, or on an address, and puts the address that it is in its place.
func listenTCP(ctx context.Context, sockets sdnotify.Sockets, name string, to *string) (net.Listener, error) {
	address := *to
	if address == "" {
		return nil, nil
	}
	ln, err := sockets.Listen(name)
	if err != nil {
		return nil, err
	}
	if ln == nil {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("--%s %q is not host:port: %w", name, address, err)
		}
		if ln, err = new(net.ListenConfig).Listen(ctx, "tcp", address); err != nil {
			return nil, fmt.Errorf("%w (is another program, or another vedette, using the port? choose another with --%s)", err, name)
		}
	}
	*to = ln.Addr().String()
	return ln, nil
}

// listenLocal replaces a socket that nobody listens on any more.
func listenLocal(ctx context.Context, path string) (net.Listener, error) {
	if conn, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("another vedette is running with this data directory (it answers on %s)", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove an old socket: %w", err)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for the command line: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = ln.Close()
		return nil, fmt.Errorf("listen for the command line: %w", err)
	}
	return ln, nil
}

// firstToken makes the admin's token when there is no token at all, and keeps it in a file of its own.
func (a *Appliance) firstToken(ctx context.Context) (string, error) {
	list, err := a.store.ListTokens(ctx, "")
	if err != nil {
		return "", fmt.Errorf("look for tokens: %w", err)
	}
	if len(list) > 0 {
		return "", nil
	}
	token, err := api.NewToken(ctx, a.store, "admin", api.Admin)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(a.tokenFile(), []byte(token+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the first token: %w", err)
	}
	return token, nil
}

func (a *Appliance) tokenFile() string { return filepath.Join(a.cfg.DataDir, "admin.token") }

func (a *Appliance) startPipeline(s *stages) error {
	frames, err := a.startSpans(s)
	if err != nil {
		return err
	}
	a.pipe = pipeline.New(pipeline.Config{
		Store: a.store, IngestSocket: a.cfg.IngestSocket, InferSocket: a.cfg.InferSocket, InferDoor: a.cfg.InferDoor,
		Models: a.cfg.Models, Observer: &observer{cameras: a.cameras, kids: a.kids}, Rules: a.rules, Metrics: a.metrics, Logger: a.cfg.Logger,
		RestartInference: a.restartInference(), RestartIngest: a.restartIngest(), Frames: frames, AnswerTimeout: a.cfg.InferenceTimeout,
	})
	s.start("the pipeline", a.pipe.Run)
	a.video = video.New(video.Config{Socket: a.cfg.IngestSocket})
	s.start("live video", a.video.Run)
	a.budget = newBudget(a)
	s.start("the budget", a.budget.run)
	s.start("the cameras", func(ctx context.Context) error {
		for {
			desired, _, newer := a.cameras.Desired()
			a.pipe.SetCameras(wanted(desired))
			if err := a.rules.Forget(ctx); err != nil && ctx.Err() == nil {
				a.cfg.Logger.Error("rules of removed cameras stay", slog.Any("err", err))
			}
			select {
			case <-ctx.Done():
				return nil
			case <-newer:
			}
		}
	})
	return nil
}

// startSpans returns who is told of committed frames; nil without an endpoint.
func (a *Appliance) startSpans(s *stages) (func(pipeline.Timed), error) {
	if a.cfg.Spans.Endpoint == "" {
		return nil, nil
	}
	a.cfg.Spans.Version = a.cfg.Version
	a.cfg.Spans.Box, _ = os.Hostname() // without one, the box has no name
	sender, err := spans.New(s.ctx, a.cfg.Spans)
	if err != nil {
		return nil, err
	}
	s.start("the spans", func(ctx context.Context) error {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := sender.Close(ctx); err != nil {
			a.cfg.Logger.WarnContext(ctx, "the last spans were not sent", slog.Any("err", err))
		}
		return nil
	})
	return sender.Frame, nil
}

// startVitals begins to measure what the box spends.
func (a *Appliance) startVitals(s *stages) {
	cfg := vitals.Config{Dir: a.cfg.DataDir, Store: a.store, Metrics: a.metrics, Processes: a.processes, Cameras: func() []*vedettev1.Camera {
		list, _ := a.cameras.List("", math.MaxInt)
		return list
	}}
	if a.cfg.Sidecars != nil {
		cfg.InferMetrics = a.cfg.Sidecars.InferMetrics
	}
	a.vitals = vitals.New(cfg)
	s.start("the measurement of the box", a.vitals.Run)
}

// processes are the programs whose process ids are known: this one, and the sidecars that it supervises.
func (a *Appliance) processes() map[string]int {
	all := map[string]int{"vedette": os.Getpid()}
	if a.kids != nil {
		all["vedette-ingest"], all["vedette-infer"] = a.kids.ingest.Status().PID, a.kids.infer.Status().PID
	}
	return all
}

func (a *Appliance) startAPI(s *stages, l listeners) error {
	infer, err := grpc.NewClient("unix:"+a.cfg.InferSocket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return fmt.Errorf("prepare the connection to inference: %w", err)
	}
	a.metrics.MustRegister(newFindings(a.doctorConfig()), a.sinks, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	server := api.New(api.Config{
		Store: a.store, Cameras: a.cameras, Pictures: &pictures{pipe: a.pipe}, Video: a.video, System: a.system, Capacity: a.budget, Timing: a.timing, Rules: a.rules, Sinks: a.sinks,
		Models: models.New(infer, a.vitals.Inference), History: a.vitals.History, Doctor: a.examine, Bundle: a.bundle,
		Metrics: promhttp.HandlerFor(a.metrics, promhttp.HandlerOpts{}), Dashboard: a.dashboard, Visitors: a.cfg.Demo,
		HTTP: l.http, GRPC: l.grpc, Local: l.local, Reflection: a.cfg.Reflection, Logger: a.cfg.Logger,
	})
	s.start("the API", func(ctx context.Context) error {
		defer func() { _ = infer.Close() }()
		return server.Run(ctx)
	})
	return nil
}

func (a *Appliance) dashboard(conn grpc.ClientConnInterface) (api.Dashboard, error) {
	return web.New(web.Config{
		Cameras: vedettev1.NewCameraServiceClient(conn), Analytics: vedettev1.NewAnalyticsServiceClient(conn),
		Events: vedettev1.NewEventServiceClient(conn), System: vedettev1.NewSystemServiceClient(conn),
		Users: vedettev1.NewUserServiceClient(conn), Models: vedettev1.NewModelServiceClient(conn),
		Sinks: vedettev1.NewSinkServiceClient(conn), Logger: a.cfg.Logger,
	})
}

// watchdog tells systemd, when it asks, that the appliance gets on with its work: that its store reads, that what writes to
// it takes turns, and that its API answers. A disk that is full or broken is no reason to be started again.
func (a *Appliance) watchdog(ctx context.Context) error {
	conn, err := grpc.NewClient("unix:"+LocalSocket(a.cfg.DataDir), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("watch the API: %w", err)
	}
	defer func() { _ = conn.Close() }()
	err = sdnotify.Watchdog(ctx, func() bool {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, reading := a.store.ListTokens(ctx, "")
		writing := a.store.DeleteSinkCursor(ctx, "watchdog") // there is none: a turn of the writer, and nothing written
		_, answering := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return reading == nil && !errors.Is(writing, context.DeadlineExceeded) && answering == nil
	})
	if err != nil {
		return err
	}
	<-ctx.Done() // systemd expects nothing
	return nil
}

// welcome says where everything is and what to do next.
func (a *Appliance) welcome(token string) {
	out := a.cfg.Out
	_, _ = fmt.Fprintf(out, "\nVedette %s is running. Ctrl-C stops it.\n\n", a.cfg.Version)
	if a.cfg.HTTP != "" {
		_, _ = fmt.Fprintf(out, "  dashboard    %s://%s/\n  JSON         %s://%s/v1/tracks\n", scheme(a.cfg.HTTP), a.cfg.HTTP, scheme(a.cfg.HTTP), a.cfg.HTTP)
	}
	if a.cfg.GRPC != "" {
		_, _ = fmt.Fprintf(out, "  gRPC         %s\n", a.cfg.GRPC)
	}
	_, _ = fmt.Fprintf(out, "  data         %s\n", a.cfg.DataDir)
	if a.fingerprint != "" {
		_, _ = fmt.Fprintf(out, "  certificate  SHA-256 %s\n", a.fingerprint)
	}
	if token != "" {
		_, _ = fmt.Fprintf(out, "  admin token  %s\n               (shown once; also in %s, readable by you alone)\n", token, a.tokenFile())
	}
	_, _ = fmt.Fprintf(out, "\nNext:\n")
	if a.cfg.Demo {
		_, _ = fmt.Fprintf(out, "  open the dashboard, or: vedette track watch --data-dir %s\n", a.cfg.DataDir)
	}
	_, _ = fmt.Fprintf(out, "  vedette camera add door rtsp://USER:PASSWORD@ADDRESS/PATH --data-dir %s\n\n", a.cfg.DataDir)
}
