// Package analyze finds the configuration under which a server runs models best: it loads them with one configuration
// after the other, measures each under load, and keeps what is within the limits.
package analyze

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/perf"
	"github.com/vedette/vedette/infer/v2client"
)

// Config says what to try. Models and Load.GRPC are required; the server must be in explicit mode. A list left empty
// is not varied.
type Config struct {
	// Models are asked, all at once. Of an ensemble the models of its steps are varied.
	Models []string
	// Load is how requests are sent; its Model, Concurrency and Batch are varied.
	Load perf.Config
	// Memory tells how much memory the server's process has, in bytes; nil: it is not measured.
	Memory func(context.Context) (int64, error)

	Instances   []int           // loaded copies of the model
	Threads     []int           // of ONNX Runtime within one execution
	MaxBatches  []int           // the largest batch the server makes
	Delays      []time.Duration // that a request may wait for a batch; below 0: as it is
	Concurrency []int           // requests under way, for each model asked; empty: 1, 4 and 16
	Batches     []int           // the batch dimension of each request; empty: 1

	// MaxLatency bounds every model's p99; 0: it may take as long as it takes. MaxMemory bounds the server's memory, in
	// bytes; 0: no bound.
	MaxLatency time.Duration
	MaxMemory  int64

	// Checkpoint is the file that keeps what was measured, so that a run that was cut off goes on where it was; empty: none.
	// What failed is tried again. Sent says in any words what the Load sends: what was measured counts for the same words.
	Checkpoint string
	Sent       string
	// Progress is told every point, measured or remembered, and how many there will be as far as is known; nil: nobody watches.
	Progress func(done, total int, p *Point)
}

// Settings are what is varied of a model's configuration; 0 (and a negative delay) leaves it as it is.
type Settings struct {
	Model                        string
	Instances, Threads, MaxBatch int
	Delay                        time.Duration
}

// Point is one measurement.
type Point struct {
	// Settings are those of every model that is varied.
	Settings []Settings

	Concurrency, Batch int
	// Throughput is the sum of the models asked, inferences a second; P50 and P99 are the slowest one's.
	Throughput float64
	P50, P99   time.Duration
	// Shares are each model's throughput, in the order they were given.
	Shares []float64
	Memory int64 // of the server, bytes; 0: unknown
	Errors int
	// Error is the first of them.
	Error string
	// Fault is why there is no measurement: the server did not take the settings, or nothing could be asked; empty: there is.
	Fault string
}

// Report is what was found.
type Report struct {
	Models []string
	Points []*Point
	// Best is the fastest point within the limits; nil: there is none. Of several models asked at once, the fastest is the one
	// with the largest sum of throughputs, each against its own at the first point, so that a quick model does not outweigh
	// a slow one.
	Best *Point
	// Configs are the configurations of the models that were varied, with the best point's settings.
	Configs []*inference.ModelConfig

	limits *Config
}

// Run measures everything and leaves the models as they are on disk. One model is tried in every combination. Several
// are varied in turns, each while the others keep their best, until a turn of all changes nothing.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if len(cfg.Models) == 0 || cfg.Load.GRPC == "" {
		return nil, errors.New("analyze: a model and the gRPC address of its server must be given")
	}
	client, err := v2client.New(cfg.Load.GRPC, v2client.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	s := &sweep{cfg: &cfg, client: client, streams: make(map[string]bool)}
	for _, model := range cfg.Models {
		if err := s.subject(ctx, model); err != nil {
			return nil, err
		}
	}
	if s.kept, err = restore(&cfg, s.subjects); err != nil {
		return nil, err
	}
	err = s.run(ctx)
	for i := range s.subjects {
		if e := s.put(context.WithoutCancel(ctx), i, asItIs(s.subjects[i])); err == nil && e != nil {
			err = fmt.Errorf("load model %q as it was: %w", s.subjects[i].GetName(), e)
		}
	}
	if err != nil {
		return nil, err
	}
	return s.report(), nil
}

func load(ctx context.Context, c *v2client.Client, model string, conf *inference.ModelConfig) error {
	req := &inference.RepositoryModelLoadRequest{ModelName: model}
	if conf != nil {
		req.Parameters = map[string]*inference.ModelRepositoryParameter{
			"config": {ParameterChoice: &inference.ModelRepositoryParameter_StringParam{StringParam: string(modelconfig.AppendJSON(nil, conf))}},
		}
	}
	if _, err := c.RepositoryModelLoad(ctx, req); err != nil {
		return errors.New(status.Convert(err).Message())
	}
	return nil
}

// sweep is a run over all points.
type sweep struct {
	cfg      *Config
	client   *v2client.Client
	subjects []*inference.ModelConfig // the models that are varied, as they are
	streams  map[string]bool          // the models that only a stream can ask
	loaded   []Settings               // what each of them is loaded with
	kept     *checkpoint
	points   []*Point
	best     *Point
}

// subject adds what is varied for a model: itself, or the models of its steps. They are loaded as they are on disk: a run
// that was killed may have left them otherwise.
func (s *sweep) subject(ctx context.Context, model string) error {
	if err := load(ctx, s.client, model, nil); err != nil {
		return fmt.Errorf("load model %q (the server must run with --model-control-mode=explicit): %w", model, err)
	}
	resp, err := s.client.ModelConfig(ctx, &inference.ModelConfigRequest{Name: model})
	if err != nil {
		return fmt.Errorf("describe model %q: %s", model, status.Convert(err).Message())
	}
	c := resp.GetConfig()
	s.streams[model] = c.GetModelTransactionPolicy().GetDecoupled()
	for _, step := range c.GetEnsembleScheduling().GetStep() {
		if err := s.subject(ctx, step.GetModelName()); err != nil {
			return err
		}
	}
	if c.GetEnsembleScheduling() != nil || slices.ContainsFunc(s.subjects, func(o *inference.ModelConfig) bool { return o.GetName() == c.GetName() }) {
		return nil
	}
	s.subjects, s.loaded = append(s.subjects, c), append(s.loaded, asItIs(c))
	return nil
}

func asItIs(c *inference.ModelConfig) Settings { return Settings{Model: c.GetName(), Delay: -1} }

func orOne[T any](list []T, one ...T) []T {
	if len(list) == 0 {
		return one
	}
	return list
}

// settings lists what a model is tried with: those that make a difference to it.
func (s *sweep) settings(c *inference.ModelConfig) []Settings {
	var out []Settings
	for _, instances := range orOne(s.cfg.Instances, 0) {
		for _, threads := range orOne(s.cfg.Threads, 0) {
			for _, batch := range orOne(s.cfg.MaxBatches, 0) {
				for _, delay := range orOne(s.cfg.Delays, -1) {
					if set := lean(c, Settings{c.GetName(), instances, threads, batch, delay}); !slices.Contains(out, set) {
						out = append(out, set)
					}
				}
			}
		}
	}
	return out
}

// lean leaves out of settings what does not change the model's configuration.
func lean(c *inference.ModelConfig, set Settings) Settings {
	config := modelconfig.AppendJSON(nil, with(c, set))
	for _, without := range []func(*Settings){
		func(s *Settings) { s.Instances = 0 }, func(s *Settings) { s.Threads = 0 },
		func(s *Settings) { s.MaxBatch = 0 }, func(s *Settings) { s.Delay = -1 },
	} {
		less := set
		if without(&less); bytes.Equal(config, modelconfig.AppendJSON(nil, with(c, less))) {
			set = less
		}
	}
	return set
}

func (s *sweep) run(ctx context.Context) error {
	start := make([]Settings, len(s.subjects))
	lists := make([][]Settings, len(s.subjects))
	for i, c := range s.subjects {
		start[i], lists[i] = asItIs(c), s.settings(c)
	}
	if len(s.subjects) == 1 {
		if list := lists[0]; !slices.Contains(list, start[0]) { // what all others are compared with
			lists[0] = slices.Insert(list, 0, start[0])
		}
		for k, set := range lists[0] {
			if err := s.try(ctx, []Settings{set}, len(lists[0])-k-1); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.try(ctx, start, s.untried(start, lists, 0, 0)); err != nil {
		return err
	}
	for changed := true; changed; {
		changed = false
		for i := range s.subjects {
			current := start
			if s.best != nil {
				current = s.best.Settings
			}
			before := s.best
			for k, set := range lists[i] {
				all := slices.Clone(current)
				if all[i] = set; s.tried(all) {
					continue
				}
				if err := s.try(ctx, all, s.untried(current, lists, i, k+1)); err != nil {
					return err
				}
			}
			changed = changed || s.best != before
		}
	}
	return nil
}

// untried counts what this turn still has to try beside the current settings: of model i from its k-th on, then all of the others.
func (s *sweep) untried(current []Settings, lists [][]Settings, i, k int) int {
	n := 0
	for ; i < len(lists); i, k = i+1, 0 {
		for _, set := range lists[i][k:] {
			all := slices.Clone(current)
			if all[i] = set; set != current[i] && !s.tried(all) {
				n++
			}
		}
	}
	return n
}

func (s *sweep) tried(set []Settings) bool {
	return slices.ContainsFunc(s.points, func(p *Point) bool { return slices.Equal(p.Settings, set) })
}

// try measures settings under every load; left more settings are known to follow.
func (s *sweep) try(ctx context.Context, set []Settings, left int) error {
	var points []*Point
	for _, n := range orOne(s.cfg.Concurrency, 1, 4, 16) {
		for _, b := range orOne(s.cfg.Batches, 1) {
			points = append(points, &Point{Settings: set, Concurrency: n, Batch: b})
		}
	}
	total := len(s.points) + (left+1)*len(points)
	ready, fault := false, ""
	for _, p := range points {
		if known := s.kept.find(p); known != nil {
			p = known
		} else {
			for i := 0; i < len(set) && !ready && fault == ""; i++ {
				if err := s.put(ctx, i, set[i]); err != nil {
					if err := s.lost(ctx, err); err != nil {
						return err
					}
					fault = err.Error()
				}
			}
			ready = fault == ""
			if p.Fault = fault; fault == "" {
				if err := s.measure(ctx, p); err != nil {
					if err := s.lost(ctx, err); err != nil {
						return err
					}
					p.Fault, ready = err.Error(), false
					clear(s.loaded) // a server that was started anew has nothing
				}
			}
			if err := s.kept.add(p); err != nil {
				return err
			}
		}
		s.points = append(s.points, p)
		if s.cfg.within(p) && (s.best == nil || s.score(p) > s.score(s.best) || (s.score(p) == s.score(s.best) && p.P99 < s.best.P99)) {
			s.best = p
		}
		if s.cfg.Progress != nil {
			s.cfg.Progress(len(s.points), total, p)
		}
	}
	return nil
}

// lost tells whether an error means that nothing more can be measured: the run was ended, or the server is gone.
func (s *sweep) lost(ctx context.Context, because error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, err := s.client.ServerLive(ctx, &inference.ServerLiveRequest{}); err != nil {
		return fmt.Errorf("the server is gone: %w", because)
	}
	return nil
}

// put loads a model with settings unless it has them.
func (s *sweep) put(ctx context.Context, i int, set Settings) error {
	if s.loaded[i] == set {
		return nil
	}
	conf := with(s.subjects[i], set)
	if set == asItIs(s.subjects[i]) {
		conf = nil
	}
	s.loaded[i] = Settings{} // unknown if this fails
	if err := load(ctx, s.client, set.Model, conf); err != nil {
		return err
	}
	s.loaded[i] = set
	return nil
}

// with is a model's configuration with settings; what does not concern the model is left out.
func with(original *inference.ModelConfig, set Settings) *inference.ModelConfig {
	c := proto.CloneOf(original)
	if set.Instances > 0 && len(c.GetInstanceGroup()) > 0 {
		c.InstanceGroup = c.InstanceGroup[:1]
		c.InstanceGroup[0].Count = int32(set.Instances)
	}
	if set.Threads > 0 && c.GetBackend() == "onnxruntime" {
		if c.Parameters == nil {
			c.Parameters = make(map[string]*inference.ModelParameter)
		}
		c.Parameters["intra_op_thread_count"] = &inference.ModelParameter{StringValue: strconv.Itoa(set.Threads)}
	}
	if set.MaxBatch > 0 && c.GetMaxBatchSize() > 0 { // a model without batches would get another shape with them
		c.MaxBatchSize = int32(set.MaxBatch)
		if d := c.GetDynamicBatching(); d != nil {
			d.PreferredBatchSize = nil // those of another size
		}
	}
	if set.Delay >= 0 && c.GetSequenceBatching() == nil && c.GetMaxBatchSize() > 0 {
		if c.GetDynamicBatching() == nil {
			c.SchedulingChoice = &inference.ModelConfig_DynamicBatching{DynamicBatching: &inference.ModelDynamicBatching{}}
		}
		c.GetDynamicBatching().MaxQueueDelayMicroseconds = uint64(set.Delay.Microseconds())
	}
	return c
}

// measure asks every model at once.
func (s *sweep) measure(ctx context.Context, p *Point) error {
	results := make([]*perf.Result, len(s.cfg.Models))
	g, loading := errgroup.WithContext(ctx)
	for i, model := range s.cfg.Models {
		g.Go(func() error {
			l := s.cfg.Load
			l.Model, l.Concurrency, l.Batch, l.Streaming = model, p.Concurrency, p.Batch, s.streams[model]
			if len(s.cfg.Models) > 1 {
				l.Stability = 1e-9 // all for the same time, so that none is measured alone
			}
			var err error
			results[i], err = perf.Run(loading, l)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, r := range results {
		p.Throughput += r.Throughput
		p.Shares = append(p.Shares, r.Throughput)
		p.P50, p.P99 = max(p.P50, r.Latency.P50), max(p.P99, r.Latency.P99)
		p.Errors += r.Errors
		p.Error = cmp.Or(p.Error, r.Error)
	}
	if s.cfg.Memory != nil {
		var err error
		if p.Memory, err = s.cfg.Memory(ctx); err != nil {
			return fmt.Errorf("measure the server's memory: %w", err)
		}
	}
	return nil
}

// score is what is looked for the most of.
func (s *sweep) score(p *Point) float64 {
	first := s.points[0]
	if len(p.Shares) < 2 || len(first.Shares) < len(p.Shares) {
		return p.Throughput
	}
	sum := 0.0
	for i, v := range p.Shares {
		if first.Shares[i] > 0 {
			sum += v / first.Shares[i]
		}
	}
	return sum
}

// metricsMemory asks a server's metrics how much memory its process has.
func metricsMemory(ctx context.Context, address string) (int64, error) {
	const family = "process_resident_memory_bytes"
	all, err := perf.ReadMetrics(ctx, address, family)
	if err != nil {
		return 0, err
	}
	v, ok := all[family]
	if !ok {
		return 0, fmt.Errorf("%s does not tell %s", address, family)
	}
	return int64(v), nil
}

// within tells whether a point keeps to the limits.
func (c *Config) within(p *Point) bool {
	return p.Fault == "" && p.Errors == 0 && p.Throughput > 0 &&
		(c.MaxLatency <= 0 || p.P99 <= c.MaxLatency) && (c.MaxMemory <= 0 || (p.Memory > 0 && p.Memory <= c.MaxMemory))
}

func (s *sweep) report() *Report {
	r := &Report{Models: s.cfg.Models, Points: s.points, Best: s.best, limits: s.cfg}
	if r.Best != nil {
		for i, set := range r.Best.Settings {
			r.Configs = append(r.Configs, with(s.subjects[i], set))
		}
	}
	return r
}
