package appliance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/capacity"
	"github.com/vedette/vedette/appliance/pipeline"
	"github.com/vedette/vedette/internal/child"
)

// budget is what the box knows of its own capacity: it reads its counters, keeps what it has learnt in a file, and
// answers for it.
type budget struct {
	file    string
	ingest  string // the program, for its measurement; empty: it is not there
	cameras *cameras.Registry
	pipe    *pipeline.Pipeline
	kids    *sidecars // nil: somebody else runs them
	logger  *slog.Logger

	measuring sync.Mutex // one active measurement at a time

	mu    sync.Mutex // guards what follows
	costs capacity.Costs
	meter capacity.Meter
}

const readEvery = 10 * time.Second

// newBudget takes up what an earlier run has learnt on the same number of cores.
func newBudget(a *Appliance) *budget {
	b := &budget{
		file: filepath.Join(a.cfg.DataDir, "capacity.json"), ingest: a.cfg.IngestProgram, cameras: a.cameras, pipe: a.pipe, kids: a.kids,
		logger: a.cfg.Logger,
	}
	data, err := os.ReadFile(b.file)
	if err == nil {
		err = json.Unmarshal(data, &b.costs)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.cfg.Logger.Warn("what was measured before cannot be read; it is measured anew", slog.Any("err", err))
	}
	if cores := float64(runtime.NumCPU()); err != nil || b.costs.Cores != cores {
		b.costs = capacity.Costs{Cores: cores}
	}
	return b
}

// run reads the counters until ctx ends.
func (b *budget) run(ctx context.Context) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			b.read(ctx, now)
		}
	}
}

func (b *budget) read(ctx context.Context, now time.Time) {
	r := capacity.Reading{Time: now.UTC(), Cameras: map[string]capacity.CameraReading{}}
	var ok bool
	if r.Processor, r.Processes, ok = processorTime(b.processes()); !ok {
		return
	}
	list, _ := b.cameras.List("", math.MaxInt32)
	for _, c := range list {
		id, err := cameras.ID(c.GetName())
		n := b.pipe.Counters(id)
		if err != nil || n == nil {
			continue
		}
		m := c.GetStatus().GetMedia()
		r.Cameras[id] = capacity.CameraReading{
			Codec: m.GetCodec(), Width: int(m.GetWidth()), Height: int(m.GetHeight()), Pipeline: pipelineOf(c.GetAnalysis()),
			Analysed: c.GetStatus().GetAnalysedFrames(), Decoded: int64(n.GetFramesDecoded()), Decoding: time.Duration(n.GetDecodeCpuNs()),
		}
	}
	places := b.places(ctx, r)
	b.mu.Lock()
	changed := b.meter.Read(r, &b.costs)
	for name, at := range places {
		changed = b.costs.RunsOn(name, at.model, at.provider) || changed
	}
	costs := b.costs.Clone()
	b.mu.Unlock()
	if changed {
		b.save(&costs)
	}
}

// place is where the model of a pipeline runs.
type place struct{ model, provider string }

// places asks where the models of the pipelines run that are in use.
func (b *budget) places(ctx context.Context, r capacity.Reading) map[string]place {
	ctx, cancel := context.WithTimeout(ctx, readEvery/2)
	defer cancel()
	out, asked := map[string]place{}, map[string]bool{}
	for _, c := range r.Cameras {
		if asked[c.Pipeline] {
			continue
		}
		asked[c.Pipeline] = true
		if model, provider, err := b.pipe.Detector(ctx, c.Pipeline); err == nil { // otherwise nothing runs
			out[c.Pipeline] = place{model, provider}
		}
	}
	return out
}

func (b *budget) save(c *capacity.Costs) {
	data, err := json.Marshal(c)
	if err == nil {
		err = os.WriteFile(b.file+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(b.file+".new", b.file)
	}
	if err != nil {
		b.logger.Warn("what was measured of this box cannot be kept", slog.Any("err", err))
	}
}

func pipelineOf(a *vedettev1.Analysis) string {
	if p := a.GetPipeline(); p != "" {
		return p
	}
	return pipeline.DefaultPipeline
}

// processes are the ids of all three; fewer when they cannot be told.
func (b *budget) processes() []int {
	pids := []int{os.Getpid()}
	if b.kids != nil {
		for _, c := range []*child.Child{b.kids.ingest, b.kids.infer} {
			if pid := c.Status().PID; pid > 0 {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	found, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return pids
	}
	for _, path := range found {
		comm, err := os.ReadFile(path)
		if name := strings.TrimSpace(string(comm)); err != nil || (name != "vedette-ingest" && name != "vedette-infer") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processorTime adds up what three processes have spent, and names the run of each.
func processorTime(pids []int) (sum time.Duration, run string, ok bool) {
	for _, pid := range pids {
		spent, ok := spentBy(pid)
		if !ok {
			return 0, "", false
		}
		sum += spent
	}
	return sum, fmt.Sprint(pids), len(pids) == 3
}

// spentBy reads utime and stime of /proc/PID/stat.
func spentBy(pid int) (time.Duration, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, false
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	return time.Duration(user+system) * tick, err1 == nil && err2 == nil
}

// enabled lists the cameras that cost something, but for that of a name.
func (b *budget) enabled(except string) []capacity.Camera {
	list, _ := b.cameras.List("", math.MaxInt32)
	var out []capacity.Camera
	for _, c := range list {
		if c.GetName() != except && weighed(c) {
			out = append(out, cameraOf(c, capacity.Camera{}, gatedShare(c)))
		}
	}
	return out
}

// weighed tells whether a camera costs something: a disabled one does not, and one that is recorded takes what is left.
func weighed(c *vedettev1.Camera) bool {
	return c.GetDesiredState() != vedettev1.DesiredState_DESIRED_STATE_DISABLED && !c.GetAnalysis().GetEveryFrame()
}

// cameraOf is a camera as far as it costs something; usual is what it is taken to send until it has sent something, share
// how much of what it asks for its motion gate lets through.
func cameraOf(c *vedettev1.Camera, usual capacity.Camera, share float64) capacity.Camera {
	cam := usual
	if m := c.GetStatus().GetMedia(); m.GetWidth() > 0 {
		cam = capacity.Camera{Codec: m.GetCodec(), Width: int(m.GetWidth()), Height: int(m.GetHeight()), FPS: m.GetFps()}
	}
	cam.Name, cam.Pipeline = c.GetName(), pipelineOf(c.GetAnalysis())
	cam.Analysed, cam.Paused = wantedRate(c.GetAnalysis(), cam.FPS), c.GetAnalysis().GetPaused()
	if c.GetAnalysis().GetMotionGate() != nil {
		cam.Analysed *= share
	}
	return cam
}

// leastGated is the share of what a gated camera asks for that it is counted with at least.
const leastGated = 0.25

// gatedShare is the share of what a camera asks for that its motion gate has lately let through.
func gatedShare(c *vedettev1.Camera) float64 {
	s := c.GetStatus()
	if want := wantedRate(c.GetAnalysis(), s.GetMedia().GetFps()); want > 0 && c.GetAnalysis().GetMotionGate() != nil {
		return min(max(s.GetAnalysedFps()/want, leastGated), 1)
	}
	return leastGated
}

// wantedRate is how often a camera is to be analysed.
func wantedRate(a *vedettev1.Analysis, sends float64) float64 {
	switch {
	case a.GetPaused():
		return 0
	case a.GetFps() > 0:
		return a.GetFps()
	case sends > 0:
		return sends
	}
	return capacity.Usual(nil).FPS
}

// Admit implements api.Capacity.
func (b *budget) Admit(was, c *vedettev1.Camera) error {
	if !weighed(c) {
		return nil
	}
	beside := b.enabled(c.GetName())
	usual, share := capacity.Usual(beside), leastGated
	b.mu.Lock()
	costs := b.costs.Clone()
	b.mu.Unlock()
	if was != nil {
		share = gatedShare(was)
	}
	cam := cameraOf(c, usual, share)
	if was != nil && weighed(was) {
		before := cameraOf(was, usual, share)
		if costs.Of(cam).Most() <= costs.Of(before).Most() && cam.Analysed <= before.Analysed {
			return nil
		}
	}
	if load := b.pipe.Load(); len(load.Shed) > 0 {
		measured := map[string]string{
			"cores": fmt.Sprintf("%.4g", costs.Cores), "limit": percent(capacity.Limit), "analysed_fps": fmt.Sprintf("%.1f", load.Analysed), "shed_cameras": strconv.Itoa(len(load.Shed)),
		}
		if unknown := costs.Unknown(append(beside, cam)); len(unknown) == 0 {
			measured["used"], measured["wanted"] = percent(costs.Sum(beside).Most()), percent(costs.Of(cam).Most())
		}
		return b.refusal(fmt.Sprintf("the box is overloaded: it analyses %.1f frames a second, and %d of its cameras not at all any more", load.Analysed, len(load.Shed)), measured)
	}
	err := costs.Admit(cam, beside)
	if e, ok := errors.AsType[*capacity.ExceededError](err); ok {
		return b.refusal(e.Error(), map[string]string{
			"cores": fmt.Sprintf("%.4g", e.Cores), "limit": percent(capacity.Limit), "used": percent(e.Used.Most()), "wanted": percent(e.Wants.Most()),
			"frame_ms": fmt.Sprintf("%.1f", e.Pipeline.Processor.Seconds()*1000), "provider": e.Pipeline.Provider,
		})
	}
	return err
}

func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

func (b *budget) refusal(message string, measured map[string]string) error {
	return &api.ReasonError{
		Code: codes.ResourceExhausted, Reason: "CAPACITY_EXCEEDED", Message: message, Metadata: measured,
		Hint: "lower analysis.fps, gate cameras by motion, disable others, or ask for it all the same with allow_overload; vedette doctor capacity shows the budget",
	}
}

// Capacity implements api.Capacity.
func (b *budget) Capacity(req *vedettev1.GetCapacityRequest) *vedettev1.Capacity {
	beside := b.enabled("")
	wish := capacity.Usual(beside)
	if req.GetCodec() != "" {
		wish.Codec = strings.ToUpper(req.GetCodec())
	}
	if req.GetWidth() > 0 && req.GetHeight() > 0 {
		wish.Width, wish.Height = int(req.GetWidth()), int(req.GetHeight())
	}
	if req.GetFps() > 0 {
		wish.FPS = req.GetFps()
	}
	wish.Analysed = 5
	if req.GetAnalysisFps() > 0 {
		wish.Analysed = req.GetAnalysisFps()
	}
	wish.Pipeline = pipelineOf(&vedettev1.Analysis{Pipeline: req.GetPipeline()})
	b.mu.Lock()
	c := b.costs.Clone()
	b.mu.Unlock()
	out := &vedettev1.Capacity{
		Measured: c.Known(wish.Pipeline), Cores: c.Cores, Used: c.Sum(beside).Most(), Limit: capacity.Limit, CameraCost: c.Of(wish).Most(),
		UnmeasuredPipelines: c.Unknown(beside),
	}
	if !c.Time.IsZero() {
		out.MeasureTime = timestamppb.New(c.Time)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Pipelines)) {
		out.Pipelines = append(out.Pipelines, pipelineCost(name, c.Pipelines[name]))
	}
	for _, d := range c.Decoders {
		out.Decoders = append(out.Decoders, &vedettev1.DecodeCost{
			Codec: d.Codec, Width: int32(d.Width), Height: int32(d.Height), ProcessorTime: durationpb.New(d.Processor), Frames: d.Frames,
		})
	}
	if !out.GetMeasured() {
		out.Summary = fmt.Sprintf("what analysis by %s takes is not measured on this box yet: let a camera run with it for a minute, or run vedette doctor capacity --measure", wish.Pipeline)
		return out
	}
	out.CamerasLeft, out.CamerasTotal = int32(c.Fit(wish, beside)), int32(c.Fit(wish, nil))
	out.Summary = fmt.Sprintf("%d cameras of %dx%d %s at %.4g frames a second, %.4g of them analysed, fit on this box; beside the %d there are, %d more",
		out.GetCamerasTotal(), wish.Width, wish.Height, wish.Codec, wish.FPS, wish.Analysed, len(beside), out.GetCamerasLeft())
	if unknown := out.GetUnmeasuredPipelines(); len(unknown) > 0 {
		out.Summary += ", less what analysis by " + strings.Join(unknown, ", ") + " takes, which is not measured yet"
	}
	return out
}

func pipelineCost(name string, p capacity.Pipeline) *vedettev1.PipelineCost {
	_, rate := p.Best()
	m := &vedettev1.PipelineCost{Pipeline: name, Model: p.Model, Provider: p.Provider, ProcessorTime: durationpb.New(p.Processor), FramesPerSecond: rate}
	add := func(provider string, batches []capacity.Batch) {
		for _, b := range batches {
			m.Batches = append(m.Batches, &vedettev1.BatchCost{Provider: provider, Size: int32(b.Size), Duration: durationpb.New(b.Took)})
		}
	}
	add(p.Provider, p.Batches)
	for _, provider := range slices.Sorted(maps.Keys(p.Elsewhere)) {
		add(provider, p.Elsewhere[provider])
	}
	return m
}

// Measure implements api.Capacity.
func (b *budget) Measure(ctx context.Context, name string) error {
	if !b.measuring.TryLock() {
		return &api.ReasonError{Code: codes.Aborted, Reason: "MEASURING", Message: "the box is measuring itself already", Hint: "try again in some seconds"}
	}
	defer b.measuring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	name = pipelineOf(&vedettev1.Analysis{Pipeline: name})
	model, err := b.pipe.MeasureModel(ctx, name)
	if err != nil {
		return &api.ReasonError{Code: codes.Unavailable, Reason: "MEASURE_FAILED", Message: fmt.Sprintf("measure pipeline %q: %v", name, err)}
	}
	decoders, err := b.decoders(ctx)
	if err != nil {
		b.logger.WarnContext(ctx, "decoding was not measured", slog.Any("err", err))
	}
	b.mu.Lock()
	c := b.costs.Clone()
	c.RunsOn(name, model.Model, model.Provider)
	p := c.Pipelines[name]
	p.Instances, p.Batches = model.Instances, nil
	for _, m := range model.Batches {
		p.Batches = append(p.Batches, capacity.Batch{Size: m.Size, Took: m.Took})
	}
	c.Pipelines[name] = p
	c.Reckoned(decoders)
	c.Time = time.Now().UTC()
	b.costs = c
	kept := c.Clone()
	b.mu.Unlock()
	b.save(&kept)
	return nil
}

// decoders has the ingest program decode its clips.
func (b *budget) decoders(ctx context.Context) ([]capacity.Decoder, error) {
	if b.ingest == "" {
		return nil, errors.New("vedette-ingest is not beside this program")
	}
	out, err := exec.CommandContext(ctx, b.ingest, "--measure-decode").Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", b.ingest, err)
	}
	var list []capacity.Decoder
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("read what %s measured: %w", b.ingest, err)
	}
	return list, nil
}
