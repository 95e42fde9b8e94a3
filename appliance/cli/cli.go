// Package cli is the command line of the appliance: it runs the box, and it is a client of its API.
package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/vedette/vedette/appliance"
	"github.com/vedette/vedette/appliance/certificate"
	"github.com/vedette/vedette/appliance/spans"
	"github.com/vedette/vedette/internal/sdnotify"
	"github.com/vedette/vedette/store"
)

// Env is what a command may use of the process it runs in.
type Env struct {
	Args           []string
	Stdin          io.Reader // may be nil where no command reads it
	Stdout, Stderr io.Writer
	Version        string
	// Executable is the path of the running program; the sidecars and what ships with it are found beside it.
	Executable string
	// Reload returns what tells that the settings are to be read again; nil: nothing does.
	Reload func() <-chan os.Signal
	// Sockets are listening sockets that the program was given for the appliance.
	Sockets sdnotify.Sockets
	// Commands are further verbs: options of the command line library that add them.
	Commands []kong.Option
}

// extend adds the further verbs, which print to an io.Writer they are given.
func (e *Env) extend(k *kong.Kong) error {
	for _, option := range append(e.Commands, kong.BindTo(e.Stdout, (*io.Writer)(nil))) {
		if err := option.Apply(k); err != nil {
			return err
		}
	}
	return nil
}

// grammar is the whole command line.
type grammar struct {
	Config   kong.ConfigFlag `type:"existingfile" placeholder:"FILE" help:"YAML file with the same settings as the flags."`
	LogLevel slog.Level      `default:"info" env:"VEDETTE_LOG_LEVEL" help:"debug, info, warn or error."`
	DataDir  string          `default:"data" type:"path" env:"VEDETTE_DATA_DIR" help:"Folder where everything is kept."`

	Run        runCommand        `cmd:"" help:"Run the appliance and both sidecars."`
	Serve      serveCommand      `cmd:"" help:"Run the appliance alone; somebody else runs the sidecars."`
	Camera     cameraCommands    `cmd:"" help:"Register, show, change and remove cameras."`
	Track      trackCommands     `cmd:"" help:"Show what was followed."`
	Detection  detectionCommands `cmd:"" help:"Show what was seen frame by frame."`
	Event      eventCommands     `cmd:"" help:"Show what happened, with its pictures and clips."`
	Rule       ruleCommands      `cmd:"" help:"Draw, show and remove zones and lines."`
	Sink       sinkCommands      `cmd:"" help:"Say where events go."`
	Model      modelCommands     `cmd:"" help:"Fetch, import, list and remove detectors."`
	User       userCommands      `cmd:"" help:"Say which people may log in."`
	Token      tokenCommands     `cmd:"" help:"Say who may use the API."`
	System     systemCommand     `cmd:"" help:"Show versions, processes and storage."`
	Audit      auditCommand      `cmd:"" help:"Show who changed what."`
	Backup     backupCommands    `cmd:"" help:"Copy the database while the box goes on."`
	Restore    restoreCommand    `cmd:"" help:"Put a backup into an empty data directory."`
	Export     exportCommand     `cmd:"" help:"Write history as Parquet, CSV, JSON lines or MOT."`
	Import     importCommand     `cmd:"" help:"Read history into the data directory of an appliance that does not run."`
	Apply      applyCommand      `cmd:"" help:"Make the box what a file says: its cameras, zones, lines and sinks."`
	State      stateCommands     `cmd:"" help:"Put a state into a registry, for boxes to follow."`
	Call       callCommand       `cmd:"" help:"Call any method of the API with a request as JSON."`
	Doctor     doctorCommands    `cmd:"" help:"Look for what is wrong with this machine, or with one camera, and say what to do."`
	Bundle     bundleCommand     `cmd:"" name:"support-bundle" help:"Collect what a report of a fault needs, without secrets."`
	Setting    configCommands    `cmd:"" name:"config" help:"Check the configuration file."`
	Completion completionCommand `cmd:"" help:"Print a completion script for a shell."`
	Complete   completeCommand   `cmd:"" hidden:""`
	Version    versionCommand    `cmd:"" help:"Print the version."`
}

// Run executes a command until it ends or ctx does. The error is for the person who typed it.
func Run(ctx context.Context, env Env) error {
	var g grammar
	kctx, err := env.parse(ctx, &g)
	if err != nil {
		return err
	}
	return kctx.Run()
}

// parse reads the command line, the environment and the settings' file.
func (e *Env) parse(ctx context.Context, g *grammar) (*kong.Context, error) {
	var files []string
	if strings.HasPrefix(e.Executable, "/usr/") {
		files = append(files, packagedSettings)
	}
	parser, err := kong.New(g, kong.Name("vedette"), kong.Description("Watches cameras and remembers what it saw."),
		kong.Configuration(yamlSettings, files...), kong.UsageOnError(), kong.Writers(e.Stdout, e.Stderr), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(e, g), kong.OptionFunc(e.extend))
	if err != nil {
		return nil, fmt.Errorf("command line: %w", err)
	}
	kctx, err := parser.Parse(e.Args)
	if err != nil {
		return nil, fmt.Errorf("%w (vedette --help lists everything)", err)
	}
	if err := judge(kctx); err != nil {
		return nil, err
	}
	return kctx, nil
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(env *Env) error {
	_, err := fmt.Fprintln(env.Stdout, "vedette", env.Version)
	return err
}

// serving are the settings of a running appliance.
type serving struct {
	HTTP           string `name:"http" default:"127.0.0.1:8080" env:"VEDETTE_HTTP" placeholder:"ADDR" help:"Dashboard, JSON and metrics (${default})."`
	GRPC           string `name:"grpc" default:"127.0.0.1:8090" env:"VEDETTE_GRPC" placeholder:"ADDR" help:"gRPC API (${default})."`
	GRPCReflection bool   `name:"grpc-reflection" env:"VEDETTE_GRPC_REFLECTION" help:"Tell gRPC clients with a token which methods there are."`
	Models         string `type:"path" env:"VEDETTE_MODELS" placeholder:"DIR" help:"Model repository; the shipped one by default."`

	InferenceTimeout time.Duration `default:"5s" env:"VEDETTE_INFERENCE_TIMEOUT" help:"How long inference may take for a frame before it is taken to hang (${default}); longer where a large model runs on a slow box."`

	TLSCert     string `name:"tls-cert" type:"path" env:"VEDETTE_TLS_CERT" placeholder:"FILE" help:"Certificate for addresses that others can reach; one is made by default."`
	TLSKey      string `name:"tls-key" type:"path" env:"VEDETTE_TLS_KEY" placeholder:"FILE" help:"Its key."`
	TLSClientCA string `name:"tls-client-ca" type:"path" env:"VEDETTE_TLS_CLIENT_CA" placeholder:"FILE" help:"Authorities whose certificates clients must show."`
	SecretKey   string `type:"path" env:"VEDETTE_SECRET_KEY" placeholder:"FILE" help:"Key that seals passwords; in the data directory by default."`

	Follow         string        `env:"VEDETTE_FOLLOW" placeholder:"SOURCE" help:"Keep the box in the state of a file, or of oci://HOST/REPOSITORY:TAG."`
	FollowKey      string        `type:"path" env:"VEDETTE_FOLLOW_KEY" placeholder:"FILE" help:"Public key (Ed25519) that such states must be signed with."`
	FollowInterval time.Duration `default:"30s" env:"VEDETTE_FOLLOW_INTERVAL" help:"How often to look for a newer one (${default})."`
	Hub            string        `env:"VEDETTE_HUB" placeholder:"URL" help:"Where to report how the box is: PUT URL/boxes/ID."`
	HubToken       string        `type:"path" env:"VEDETTE_HUB_TOKEN" placeholder:"FILE" help:"File of the token the hub asks for."`
	Box            string        `env:"VEDETTE_BOX" placeholder:"NAME" help:"Name of this box among others; the host's by default."`

	KeepDays      float64 `env:"VEDETTE_KEEP_DAYS" placeholder:"DAYS" help:"Delete history older than this; 0: when space runs out."`
	KeepMediaDays float64 `env:"VEDETTE_KEEP_MEDIA_DAYS" placeholder:"DAYS" help:"Delete pictures and clips older than this; 0: with their day."`
	KeepGiB       float64 `name:"keep-gib" env:"VEDETTE_KEEP_GIB" placeholder:"GIB" help:"Delete the oldest days while everything kept is larger; 0: no bound."`
	MinFreeGiB    float64 `name:"min-free-gib" env:"VEDETTE_MIN_FREE_GIB" placeholder:"GIB" help:"Delete the oldest days while less is free; 0: 5 % of the disk, at most 5."`

	TraceOTLP  string  `name:"trace-otlp" env:"VEDETTE_TRACE_OTLP" placeholder:"URL" help:"Send the ways of sampled frames to this OpenTelemetry collector (OTLP over gRPC), such as http://localhost:4317; off by default."`
	TraceRatio float64 `name:"trace-ratio" env:"VEDETTE_TRACE_RATIO" default:"0.01" placeholder:"SHARE" help:"Share of frames that are traced, 0 to 1 (${default})."`

	Demo bool `env:"VEDETTE_DEMO" help:"Show a rendered street as a camera, and let local browsers look without a token."`
}

func (s *serving) config(env *Env, g *grammar) (appliance.Config, error) {
	models := s.Models
	if models == "" {
		models = shippedModels(env.Executable)
	}
	if info, err := os.Stat(models); err != nil || !info.IsDir() {
		return appliance.Config{}, fmt.Errorf("there is no model repository at %s: give the folder with --models", models)
	}
	return appliance.Config{
		DataDir: g.DataDir, HTTP: s.HTTP, GRPC: s.GRPC, Reflection: s.GRPCReflection, Sockets: env.Sockets, Models: models, Demo: s.Demo, Version: env.Version, Out: env.Stdout,
		TLS: certificate.Config{Cert: s.TLSCert, Key: s.TLSKey, ClientCA: s.TLSClientCA}, SecretKey: s.SecretKey, Retention: s.retention(),
		Spans:            spans.Config{Endpoint: s.TraceOTLP, Ratio: s.TraceRatio},
		InferenceTimeout: s.InferenceTimeout,
		Settings:         packagedSettings, Library: shippedLibrary(env.Executable),
		IngestProgram: filepath.Join(filepath.Dir(env.Executable), "vedette-ingest"),
		Follow:        appliance.Following{Source: s.Follow, Key: s.FollowKey, Hub: s.Hub, HubToken: s.HubToken, Box: s.Box, Interval: s.FollowInterval},
	}, nil
}

func (s *serving) retention() store.Retention {
	days := func(n float64) time.Duration { return time.Duration(min(n, 1e5) * 24 * float64(time.Hour)) }
	return store.Retention{MaxAge: days(s.KeepDays), MediaAge: days(s.KeepMediaDays), MaxBytes: int64(s.KeepGiB * (1 << 30)), MinFree: int64(s.MinFreeGiB * (1 << 30))}
}

// shippedModels is where the models are in a checkout (bin/../models), beside the programs, or in a package.
func shippedModels(executable string) string {
	dir := filepath.Dir(executable)
	for _, p := range []string{filepath.Join(dir, "..", "models"), filepath.Join(dir, "models")} {
		if _, err := os.Stat(filepath.Join(p, "pipeline")); err == nil {
			return filepath.Clean(p)
		}
	}
	return "/usr/share/vedette/models"
}

type runCommand struct {
	serving
	InferHTTP    string `name:"infer-http" default:"127.0.0.1:8000" env:"VEDETTE_INFER_HTTP" placeholder:"ADDR" help:"v2 inference over HTTP (${default})."`
	InferGRPC    string `name:"infer-grpc" default:"127.0.0.1:8001" env:"VEDETTE_INFER_GRPC" placeholder:"ADDR" help:"v2 inference over gRPC (${default})."`
	InferMetrics string `name:"infer-metrics" default:"127.0.0.1:8002" env:"VEDETTE_INFER_METRICS" placeholder:"ADDR" help:"Metrics of inference (${default})."`
	Onnxruntime  string `type:"path" env:"VEDETTE_ONNXRUNTIME" placeholder:"FILE" help:"ONNX Runtime library; the shipped one by default."`
}

// Run runs all three processes until ctx ends.
func (c *runCommand) Run(ctx context.Context, env *Env, g *grammar) error {
	return keepServing(ctx, env, g, func(g *grammar) (appliance.Config, error) { return g.Run.appliance(env, g) })
}

func (c *runCommand) appliance(env *Env, g *grammar) (appliance.Config, error) {
	cfg, err := c.config(env, g)
	if err != nil {
		return cfg, err
	}
	cfg.Sidecars = &appliance.Sidecars{
		Dir: filepath.Dir(env.Executable), ONNXRuntime: c.Onnxruntime,
		InferHTTP: c.InferHTTP, InferGRPC: c.InferGRPC, InferMetrics: c.InferMetrics,
	}
	if c.Onnxruntime != "" {
		cfg.Library = c.Onnxruntime
	}
	return cfg, nil
}

type serveCommand struct {
	serving
	IngestSocket string `type:"path" env:"VEDETTE_INGEST_SOCKET" placeholder:"FILE" help:"Socket of vedette-ingest; in the data directory by default."`
	InferSocket  string `type:"path" env:"VEDETTE_INFER_SOCKET" placeholder:"FILE" help:"Private socket of vedette-infer; in the data directory by default."`
	InferMemory  string `type:"path" env:"VEDETTE_INFER_MEMORY" placeholder:"FILE" help:"Memory socket of vedette-infer; infer-memory.sock beside the private one by default."`
}

// Run runs the appliance until ctx ends.
func (c *serveCommand) Run(ctx context.Context, env *Env, g *grammar) error {
	return keepServing(ctx, env, g, func(g *grammar) (appliance.Config, error) { return g.Serve.appliance(env, g) })
}

func (c *serveCommand) appliance(env *Env, g *grammar) (appliance.Config, error) {
	cfg, err := c.config(env, g)
	if err != nil {
		return cfg, err
	}
	cfg.IngestSocket, cfg.InferSocket, cfg.InferDoor = c.IngestSocket, c.InferSocket, c.InferMemory
	return cfg, nil
}
