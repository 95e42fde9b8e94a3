package repository

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/ensemble"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/schedule"
	"github.com/vedette/vedette/infer/stats"
)

// build loads every version of a plan and says which could not be.
func (r *Repository) build(ctx context.Context, p *plan) ([]*version, map[int64]error) {
	faults := make(map[int64]error)
	var out []*version
	for _, number := range p.versions {
		v, err := r.buildVersion(ctx, p, number)
		if err != nil {
			faults[number] = err
			continue
		}
		p.hold()
		out = append(out, v)
	}
	return out, faults
}

func (r *Repository) buildVersion(ctx context.Context, p *plan, number int64) (*version, error) {
	v := &version{
		repo: r, serial: r.serials.Add(1), ctx: r.life(), plan: p, id: p.id, name: p.name, number: number, cfg: clone(p.cfg),
		logger: r.logger.With(slog.String("model", p.name), slog.Int64("version", number)),
		empty:  make(chan struct{}, 1), closed: make(chan struct{}),
	}
	if err := v.load(ctx); err != nil {
		v.abandon()
		return nil, err
	}
	return v, nil
}

// load makes the version ready to serve. A model that crashes while it is
// loaded is an error like another.
func (v *version) load(ctx context.Context) (err error) {
	defer func() {
		if c := recover(); c != nil {
			err = fmt.Errorf("model crashed while it was loaded: %v", c)
		}
	}()
	r := v.repo
	machine := modelconfig.Machine{GPUs: r.cfg.GPUs}
	var be backend.Backend
	if v.cfg.GetEnsembleScheduling() == nil {
		if be = r.cfg.Backends[v.cfg.GetBackend()]; be == nil {
			return fmt.Errorf("unable to find backend library for backend '%s', try specifying runtime on the model configuration.", v.cfg.GetBackend()) //nolint:revive,staticcheck // clients match it
		}
		v.model = &backend.Model{
			Name: v.name, Version: v.number, Dir: v.plan.dir, VersionDir: versionDir(v.plan.dir, v.number), Config: v.cfg,
			Inferer: r, Logger: v.logger, Settings: r.settings(v.cfg.GetBackend()),
		}
		if !r.cfg.NoAutoComplete {
			if err := be.Complete(ctx, v.model); err != nil {
				return err
			}
		}
	}
	modelconfig.Normalise(v.cfg, machine)
	if err := modelconfig.Validate(v.cfg, machine); err != nil {
		return err
	}
	if be == nil {
		if v.ensemble, err = ensemble.New(ensemble.Config{Model: r.spelled(ctx, v.id, v.cfg), Lookup: r.Model, Inferer: r}); err != nil {
			return err
		}
		return v.describe()
	}
	if err := v.describe(); err != nil {
		return err
	}
	if err := v.instantiate(ctx, be); err != nil {
		return err
	}
	return v.schedule()
}

// describe derives from the configuration what requests are checked against.
func (v *version) describe() error {
	v.decoupled = v.cfg.GetModelTransactionPolicy().GetDecoupled()
	v.sequences = v.cfg.GetSequenceBatching() != nil
	v.cached = v.repo.cache != nil && v.cfg.GetResponseCache().GetEnable()
	v.sig = newSignature(v.cfg)
	v.controls = controlsOf(v.cfg)
	var err error
	if v.states, err = statesOf(v.cfg, v.plan.dir); err != nil {
		return err
	}
	if v.labels, err = labelsOf(v.cfg, v.plan.dir); err != nil {
		return err
	}
	v.info = &infer.ModelInfo{
		Name: v.name, Version: v.number, Platform: v.cfg.GetPlatform(), Config: v.cfg, Decoupled: v.decoupled,
		Inputs: tensorInfo(v.sig.inputs, v.sig.maxBatch), Outputs: tensorInfo(v.sig.outputs, v.sig.maxBatch),
	}
	if v.info.Platform == "" {
		v.info.Platform = v.cfg.GetBackend()
	}
	v.shown.Store(v.info)
	v.count()
	return nil
}

// count prepares what is counted of the version.
func (v *version) count() {
	var first []time.Duration
	for _, c := range v.cfg.GetModelMetrics().GetMetricControl() {
		if c.GetMetricIdentifier().GetFamily() == "nv_inference_first_response_histogram_ms" {
			for _, ms := range c.GetHistogramOptions().GetBuckets() {
				first = append(first, time.Duration(ms*float64(time.Millisecond)))
			}
		}
	}
	var summaries *stats.Summaries
	if v.repo.cfg.Summaries != nil {
		summaries = v.repo.cfg.Summaries(v.snapshot())
	}
	v.stats.Configure(first, summaries)
}

func tensorInfo(ports []port, maxBatch int64) []infer.TensorInfo {
	out := make([]infer.TensorInfo, 0, len(ports))
	for _, p := range ports {
		var shape []int64
		if maxBatch > 0 {
			shape = append(shape, -1)
		}
		out = append(out, infer.TensorInfo{Name: p.name, DataType: p.dataType, Shape: append(shape, p.dims...)})
	}
	return out
}

// labelsOf reads the label files, one class a line.
func labelsOf(cfg *inference.ModelConfig, dir string) (map[string][]string, error) {
	out := make(map[string][]string)
	for _, o := range cfg.GetOutput() {
		name := o.GetLabelFilename()
		if name == "" {
			continue
		}
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("label file '%s' of output '%s' must be inside the model's directory", name, o.GetName())
		}
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("labels of output '%s': %w", o.GetName(), err)
		}
		s := bufio.NewScanner(f)
		for s.Scan() {
			out[o.GetName()] = append(out[o.GetName()], strings.TrimRight(s.Text(), "\r"))
		}
		err = s.Err()
		_ = f.Close() // it was only read
		if err != nil {
			return nil, fmt.Errorf("labels of output '%s': %w", o.GetName(), err)
		}
	}
	return out, nil
}

// instantiate loads the instances that the groups ask for.
func (v *version) instantiate(ctx context.Context, be backend.Backend) error {
	for _, at := range placements(v.cfg, v.repo.cfg.Cores) {
		in, err := v.instance(ctx, be, v.cfg, at)
		if err != nil {
			return err
		}
		all := append(slices.Clone(v.loaded()), in)
		v.instances.Store(&all)
	}
	v.tellUnused()
	return nil
}

// tellUnused warns of parameters that change nothing: a Triton configuration may have any, but most are mistyped.
func (v *version) tellUnused() {
	unused, known := v.model.Unused()
	for _, key := range unused {
		switch key {
		case "sequence.max_queue_size", "sequence.max_idle_microseconds", "sequence.queue_policy", "queue_budget_ms":
			// The server's own.
		case "labels", "fresh", "description", "family", "size":
			// What the appliance and its tools read of a detector, a tracker and a pipeline.
		default:
			v.logger.Warn("parameter of the model has no effect: its backend does not know it", slog.String("parameter", key),
				slog.String("backend", v.cfg.GetBackend()), slog.Any("known", known))
		}
	}
}

// instance loads and warms one.
func (v *version) instance(ctx context.Context, be backend.Backend, cfg *inference.ModelConfig, at backend.Placement) (*instance, error) {
	inst, err := be.NewInstance(ctx, v.model, at)
	if err != nil {
		return nil, err
	}
	in := &instance{name: at.Name, model: inst, at: at, group: groupOf(cfg, at.Group)}
	in.keeper, _ = inst.(backend.SequenceKeeper)
	if v.sequences && (in.keeper != nil || len(v.states) > 0) {
		in.open = make(map[uint64]*schedule.Sequence)
	}
	if v.repo.limiter != nil {
		in.permit, err = v.repo.limiter.register(in.group, at.GPU)
	}
	if err == nil {
		err = v.warm(ctx, in)
	}
	if err != nil {
		v.close(in)
		return nil, err
	}
	return in, nil
}

func groupOf(cfg *inference.ModelConfig, name string) *inference.ModelInstanceGroup {
	for _, g := range cfg.GetInstanceGroup() {
		if g.GetName() == name {
			return g
		}
	}
	return nil
}

// placements spells out the instance groups. The threads of all CPU instances
// of the model together stay within the cores.
func placements(cfg *inference.ModelConfig, cores int) []backend.Placement {
	var out []backend.Placement
	onCPU := 0
	for _, g := range cfg.GetInstanceGroup() {
		gpus := []int32{-1}
		if g.GetKind() == inference.ModelInstanceGroup_KIND_GPU {
			gpus = g.GetGpus()
		}
		index := 0
		for range g.GetCount() {
			for _, gpu := range gpus {
				out = append(out, backend.Placement{
					Name: fmt.Sprintf("%s_%d", g.GetName(), index), Group: g.GetName(), Index: index, Kind: g.GetKind(), GPU: int(gpu),
					Profiles: g.GetProfile(), Secondary: g.GetSecondaryDevices(), Passive: g.GetPassive(),
				})
				index++
				if gpu < 0 {
					onCPU++
				}
			}
		}
	}
	for i := range out {
		out[i].CPUThreads = max(1, cores/max(1, onCPU))
	}
	return out
}

// schedule puts the scheduler before the instances that take part.
func (v *version) schedule() error {
	var active []*instance
	for _, in := range v.loaded() {
		if !in.at.Passive {
			active = append(active, in)
		}
	}
	if len(active) == 0 {
		return v.allPassive()
	}
	v.active.Store(&active)
	cfg := schedule.Config{
		Model: v.cfg, Instances: len(active), Run: v.run, Logger: v.logger,
		Reject: func(s *schedule.Job, err *infer.Error) {
			if j, ok := s.Payload.(*job); ok {
				j.reject(err)
			}
		},
		Gone: v.gone, Ended: active[0].open != nil, NextSequence: &v.repo.sequences,
		HoldQueued: v.repo.cfg.HoldQueued, HoldBacklog: v.repo.cfg.HoldBacklog,
	}
	if v.repo.limiter != nil {
		cfg.Limiter = v
	}
	if v.sig.mixed() {
		cfg.Compatible = v.compatible
	}
	if v.cfg.GetDynamicBatching().GetPreserveOrdering() || v.cfg.GetSequenceBatching().GetOldest().GetPreserveOrdering() {
		v.order = newOrder()
	}
	var err error
	v.sched, err = schedule.New(cfg)
	return err
}

// mixed tells whether requests of the model can differ in what may not differ
// within a batch.
func (s *signature) mixed() bool {
	for _, p := range s.inputs {
		if p.variable && !p.ragged || p.optional {
			return true
		}
	}
	return false
}

// compatible tells whether two requests may share a batch: the same inputs, and
// those of variable size that are not ragged in the same shape.
func (v *version) compatible(a, b *schedule.Job) bool {
	x, ok := a.Payload.(*job)
	if !ok {
		return false
	}
	y, ok := b.Payload.(*job)
	if !ok || len(x.Request.Inputs) != len(y.Request.Inputs) {
		return false
	}
	for i := range x.Request.Inputs {
		s := &x.Request.Inputs[i]
		t := y.Input(s.Name)
		if t == nil {
			return false
		}
		p := v.sig.input(s.Name)
		if !p.variable || p.ragged {
			continue
		}
		m, n := x.Input(s.Name).Shape, t.Shape
		if len(m) != len(n) {
			return false
		}
		for k := range m {
			if m[k] != n[k] && (k > 0 || v.sig.maxBatch == 0) {
				return false
			}
		}
	}
	return true
}

func (v *version) allPassive() error {
	return fmt.Errorf("model '%s' has no instance that may be scheduled: every group is passive", v.name)
}

// abandon closes what a failed load had opened.
func (v *version) abandon() {
	for _, in := range v.loaded() {
		v.close(in)
	}
	v.instances.Store(nil)
}

// settings are a backend's own over those of every backend.
func (r *Repository) settings(backend string) map[string]string {
	all := maps.Clone(r.cfg.Settings[""])
	if all == nil {
		return r.cfg.Settings[backend]
	}
	maps.Copy(all, r.cfg.Settings[backend])
	return all
}
