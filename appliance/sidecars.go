package appliance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/pipeline"
	"github.com/vedette/vedette/internal/child"
)

// Sidecars says how to start vedette-ingest and vedette-infer.
type Sidecars struct {
	// Dir is where the two programs are.
	Dir string
	// ONNXRuntime is the library; empty: inference finds it beside itself.
	ONNXRuntime string
	// InferHTTP, InferGRPC and InferMetrics are the public addresses of inference; empty: not served.
	InferHTTP, InferGRPC, InferMetrics string
	// Output receives what they print; nil: discarded.
	Output io.Writer
}

// sidecars are the supervised children.
type sidecars struct {
	ingest, infer *child.Child
}

func newSidecars(cfg *Config) (*sidecars, error) {
	s := cfg.Sidecars
	for _, name := range []string{"vedette-ingest", "vedette-infer"} {
		if _, err := os.Stat(filepath.Join(s.Dir, name)); err != nil {
			return nil, fmt.Errorf("%s is not beside this program: %w (install all three programs in one folder, or start the sidecars yourself and use \"vedette serve\")", name, err)
		}
	}
	imported := filepath.Join(cfg.DataDir, "models")
	if err := os.MkdirAll(imported, 0o755); err != nil {
		return nil, fmt.Errorf("make the repository of imported models: %w", err)
	}
	infer := []string{
		"--exit-timeout-secs", "2", "--model-repository", cfg.Models, "--model-repository", imported, "--model-control-mode", "explicit", "--load-model", "*",
		"--private-socket", cfg.InferSocket, "--memory-socket", cfg.InferDoor, "--ingest-socket", cfg.IngestSocket,
	}
	for _, p := range []struct{ address, what string }{{s.InferHTTP, "http"}, {s.InferGRPC, "grpc"}, {s.InferMetrics, "metrics"}} {
		if p.address == "" {
			infer = append(infer, "--allow-"+p.what+"=false")
			continue
		}
		host, port, err := net.SplitHostPort(p.address)
		if err != nil {
			return nil, fmt.Errorf("--infer-%s %q is not host:port: %w", p.what, p.address, err)
		}
		if host == "" {
			host = "0.0.0.0"
		}
		infer = append(infer, "--"+p.what+"-address", host, "--"+p.what+"-port", port)
	}
	if s.ONNXRuntime != "" {
		infer = append(infer, "--onnxruntime", s.ONNXRuntime)
	}
	out := &lines{w: s.Output}
	if s.Output == nil {
		out.w = io.Discard
	}
	return &sidecars{
		ingest: child.New(child.Config{
			Name: "vedette-ingest", Path: filepath.Join(s.Dir, "vedette-ingest"), Args: []string{"--socket", cfg.IngestSocket}, Env: []string{ingestMemory}, Output: out, Logger: cfg.Logger,
		}),
		infer: child.New(child.Config{
			Name: "vedette-infer", Path: filepath.Join(s.Dir, "vedette-infer"), Args: infer, Output: out, Logger: cfg.Logger,
		}),
	}, nil
}

// ingestMemory keeps the C library from giving every thread a store of small pieces of memory. What decoders have freed lies
// in them all over the heap, so that hardly a page of it is ever empty and given back. vedette-ingest.service sets the same, and
// so does make soak-ingest, which tells what it comes to.
const ingestMemory = "GLIBC_TUNABLES=glibc.malloc.tcache_count=0"

func (s *sidecars) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.ingest.Run(ctx) })
	g.Go(func() error { return s.infer.Run(ctx) })
	return g.Wait()
}

// restartIngest is how the ingest sidecar is started anew; nil: somebody else runs it.
func (a *Appliance) restartIngest() func(reason string) {
	if a.kids == nil {
		return nil
	}
	return a.kids.ingest.Restart
}

// restartInference is how the inference sidecar is started anew; nil: somebody else runs it.
func (a *Appliance) restartInference() func(reason string) {
	if a.kids == nil {
		return nil
	}
	return a.kids.infer.Restart
}

// lines lets several children write to one place without tearing each other's lines.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// system describes the box.
func (a *Appliance) system() *vedettev1.System {
	sys := &vedettev1.System{
		Version: a.cfg.Version, StartTime: timestamppb.New(a.start), ServerTime: timestamppb.Now(), Demo: a.cfg.Demo, Sample: a.vitals.Latest(), Box: a.boxName(), BoxId: a.boxID,
		Processes: []*vedettev1.Process{
			{Name: "vedette", State: vedettev1.ProcessState_PROCESS_STATE_READY, SinceTime: timestamppb.New(a.start)},
			process("vedette-ingest", a.pipe.Ingest()), process("vedette-infer", a.pipe.Inference()),
		},
	}
	if a.kids == nil {
		for _, p := range sys.GetProcesses() {
			if p.GetState() == vedettev1.ProcessState_PROCESS_STATE_UNAVAILABLE {
				p.Message += " (look at it: systemctl status " + p.GetName() + ")"
			}
		}
	}
	if a.kids != nil {
		for i, c := range []*child.Child{a.kids.ingest, a.kids.infer} {
			describe(sys.GetProcesses()[i+1], c.Status())
		}
	}
	sys.Load = load(a.pipe.Load())
	return sys
}

func load(l pipeline.Load) *vedettev1.Load {
	m := &vedettev1.Load{
		Level: vedettev1.LoadLevel(l.Level) + vedettev1.LoadLevel_LOAD_LEVEL_NORMAL, Message: l.Message(), LimitedFps: l.Rate, AnalysedFps: l.Analysed, LostFps: l.Lost,
	}
	if !l.Since.IsZero() {
		m.SinceTime = timestamppb.New(l.Since)
	}
	for _, c := range l.Shed {
		m.Shed = append(m.Shed, cameras.Name(c))
	}
	return m
}

// timing is the stage waterfall of a camera.
func (a *Appliance) timing(camera string) *vedettev1.FrameTiming {
	t := a.pipe.Timing(camera)
	m := &vedettev1.FrameTiming{}
	for _, s := range t.Stages {
		v := &vedettev1.StageTiming{Stage: s.Stage, P50: durationpb.New(s.P50), P99: durationpb.New(s.P99), Max: durationpb.New(s.Max), Frames: int32(s.Frames)}
		if s.Stage == "total" {
			m.Total = v
			continue
		}
		m.Stages = append(m.Stages, v)
	}
	for i := range t.Frames {
		f := &t.Frames[i]
		v := &vedettev1.FrameStamps{Sequence: f.Sequence, Frame: f.Number, CaptureTime: timestamppb.New(f.Capture)}
		for _, s := range f.Stamps {
			v.Stages = append(v.Stages, &vedettev1.StageStamp{Stage: s.Stage, End: durationpb.New(s.End)})
		}
		m.Frames = append(m.Frames, v)
	}
	return m
}

func process(name string, err error) *vedettev1.Process {
	p := &vedettev1.Process{Name: name, State: vedettev1.ProcessState_PROCESS_STATE_READY}
	switch {
	case errors.Is(err, pipeline.ErrUpgrading):
		p.State, p.Reason, p.Message = vedettev1.ProcessState_PROCESS_STATE_UPGRADING, "UPGRADING", err.Error()
	case errors.Is(err, pipeline.ErrSilent):
		p.State, p.Reason, p.Message = vedettev1.ProcessState_PROCESS_STATE_UNAVAILABLE, "NO_ANSWER", err.Error()
	case err != nil:
		p.State, p.Reason, p.Message = vedettev1.ProcessState_PROCESS_STATE_UNAVAILABLE, "UNAVAILABLE", err.Error()
	}
	return p
}

// describe adds what the supervisor knows.
func describe(p *vedettev1.Process, s child.Status) {
	p.Restarts, p.SinceTime = int64(s.Restarts), timestamppb.New(s.Since)
	if p.GetState() == vedettev1.ProcessState_PROCESS_STATE_READY || p.GetReason() == "NO_ANSWER" {
		return
	}
	switch {
	case s.State == child.Running && time.Since(s.Since) < 10*time.Second && s.Reason == "":
		p.State, p.Reason, p.Message = vedettev1.ProcessState_PROCESS_STATE_STARTING, "STARTING", ""
	case s.State == child.Waiting:
		p.Reason, p.Message = "ENDED", s.Reason
	}
}
