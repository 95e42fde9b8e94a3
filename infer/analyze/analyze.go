// Package analyze finds the configuration under which a server runs a model best: it loads the model with one
// configuration after the other, measures each under load, and keeps what is within the limits.
package analyze

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/perf"
	"github.com/vedette/vedette/infer/v2client"
)

// Config says what to try. Load.Model and Load.GRPC are required; the server must be in explicit mode. A list left
// empty is not varied.
type Config struct {
	// Load is how requests are sent; its Concurrency and Batch are varied.
	Load perf.Config
	// Metrics is the server's metrics address, host:port; empty: memory is not measured.
	Metrics string

	Instances   []int           // loaded copies of the model
	Threads     []int           // of ONNX Runtime within one execution
	MaxBatches  []int           // the largest batch the server makes
	Delays      []time.Duration // that a request may wait for a batch
	Concurrency []int           // requests under way; empty: 1, 4 and 16
	Batches     []int           // the batch dimension of each request; empty: 1

	// MaxLatency bounds p99; 0: it may take as long as it takes. MaxMemory bounds the server's memory, in bytes; 0: no bound.
	MaxLatency time.Duration
	MaxMemory  int64

	// Checkpoint is the file that keeps what was measured, so that a run that was cut off goes on where it was; empty: none.
	Checkpoint string
	// Progress is told every point, measured or remembered; nil: nobody watches.
	Progress func(done, total int, p Point)
}

// Settings are what is varied of a model's configuration; 0 (and a negative delay) leaves it as it is.
type Settings struct {
	Instances, Threads, MaxBatch int
	Delay                        time.Duration
}

// Point is one measurement.
type Point struct {
	Settings

	Concurrency, Batch int
	Throughput         float64 // inferences a second
	P50, P99           time.Duration
	Memory             int64 // of the server, bytes; 0: unknown
	Errors             int
	// Fault is why the server did not take the settings; empty: it did.
	Fault string
}

// Report is what was found.
type Report struct {
	Model  string
	Points []Point
	// Best is the fastest point within the limits; nil: there is none.
	Best *Point
	// Config is the model's configuration with the best point's settings.
	Config *inference.ModelConfig
}

// Run measures everything and leaves the model as it is on disk.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Load.Model == "" || cfg.Load.GRPC == "" {
		return nil, errors.New("analyze: a model and the gRPC address of its server must be given")
	}
	client, err := v2client.New(cfg.Load.GRPC, v2client.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	if err := load(ctx, client, cfg.Load.Model, nil); err != nil {
		return nil, fmt.Errorf("load model %q (the server must run with --model-control-mode=explicit): %w", cfg.Load.Model, err)
	}
	resp, err := client.ModelConfig(ctx, &inference.ModelConfigRequest{Name: cfg.Load.Model})
	if err != nil {
		return nil, fmt.Errorf("describe model %q: %w", cfg.Load.Model, err)
	}
	s := &sweep{cfg: &cfg, client: client, original: resp.GetConfig()}
	if s.kept, err = restore(cfg.Checkpoint, s.original); err != nil {
		return nil, err
	}
	err = s.run(ctx)
	if e := load(context.WithoutCancel(ctx), client, cfg.Load.Model, nil); err == nil && e != nil {
		err = fmt.Errorf("load model %q as it was: %w", cfg.Load.Model, e)
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
	_, err := c.RepositoryModelLoad(ctx, req)
	return err
}

// sweep is a run over all points.
type sweep struct {
	cfg      *Config
	client   *v2client.Client
	original *inference.ModelConfig
	kept     *checkpoint
	points   []Point
}

func orOne[T any](list []T, one ...T) []T {
	if len(list) == 0 {
		return one
	}
	return list
}

// plan lists what is to be measured, settings by settings.
func (s *sweep) plan() [][]Point {
	var out [][]Point
	for _, instances := range orOne(s.cfg.Instances, 0) {
		for _, threads := range orOne(s.cfg.Threads, 0) {
			for _, batch := range orOne(s.cfg.MaxBatches, 0) {
				for _, delay := range orOne(s.cfg.Delays, -1) {
					var points []Point
					for _, n := range orOne(s.cfg.Concurrency, 1, 4, 16) {
						for _, b := range orOne(s.cfg.Batches, 1) {
							points = append(points, Point{Settings: Settings{instances, threads, batch, delay}, Concurrency: n, Batch: b})
						}
					}
					out = append(out, points)
				}
			}
		}
	}
	return out
}

func (s *sweep) run(ctx context.Context) error {
	plan := s.plan()
	total := 0
	for _, points := range plan {
		total += len(points)
	}
	for _, points := range plan {
		loaded, fault := false, ""
		for _, p := range points {
			if known, ok := s.kept.find(p); ok {
				p = known
			} else {
				if !loaded {
					loaded = true
					if err := load(ctx, s.client, s.cfg.Load.Model, s.with(p.Settings)); err != nil {
						if ctx.Err() != nil {
							return context.Cause(ctx)
						}
						fault = err.Error()
					}
				}
				if p.Fault = fault; fault == "" {
					if err := s.measure(ctx, &p); err != nil {
						return err
					}
				}
				if err := s.kept.add(p); err != nil {
					return err
				}
			}
			s.points = append(s.points, p)
			if s.cfg.Progress != nil {
				s.cfg.Progress(len(s.points), total, p)
			}
		}
	}
	return nil
}

// with is the model's configuration with settings.
func (s *sweep) with(set Settings) *inference.ModelConfig {
	c, ok := proto.Clone(s.original).(*inference.ModelConfig)
	if !ok {
		return s.original // cannot be: a clone is of its original's type
	}
	if set.Instances > 0 && len(c.GetInstanceGroup()) > 0 {
		c.InstanceGroup = c.InstanceGroup[:1]
		c.InstanceGroup[0].Count = int32(set.Instances)
	}
	if set.Threads > 0 {
		if c.Parameters == nil {
			c.Parameters = make(map[string]*inference.ModelParameter)
		}
		c.Parameters["intra_op_thread_count"] = &inference.ModelParameter{StringValue: strconv.Itoa(set.Threads)}
	}
	if set.MaxBatch > 0 {
		c.MaxBatchSize = int32(set.MaxBatch)
		if d := c.GetDynamicBatching(); d != nil {
			d.PreferredBatchSize = nil // those of another size
		}
	}
	if set.Delay >= 0 && c.GetSequenceBatching() == nil && c.GetEnsembleScheduling() == nil {
		if c.GetDynamicBatching() == nil {
			c.SchedulingChoice = &inference.ModelConfig_DynamicBatching{DynamicBatching: &inference.ModelDynamicBatching{}}
		}
		c.GetDynamicBatching().MaxQueueDelayMicroseconds = uint64(set.Delay.Microseconds())
	}
	return c
}

func (s *sweep) measure(ctx context.Context, p *Point) error {
	load := s.cfg.Load
	load.Concurrency, load.Batch = p.Concurrency, p.Batch
	res, err := perf.Run(ctx, load)
	if err != nil {
		return err
	}
	p.Throughput, p.P50, p.P99, p.Errors = res.Throughput, res.Latency.P50, res.Latency.P99, res.Errors
	if s.cfg.Metrics != "" {
		if p.Memory, err = memory(ctx, s.cfg.Metrics); err != nil {
			return fmt.Errorf("measure the server's memory: %w", err)
		}
	}
	return nil
}

// memory asks how much the server's process has.
func memory(ctx context.Context, address string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(io.LimitReader(resp.Body, 16<<20)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "process_resident_memory_bytes "); ok {
			v, err := strconv.ParseFloat(text, 64)
			return int64(v), err
		}
	}
	return 0, fmt.Errorf("%s does not tell process_resident_memory_bytes", address)
}

// within tells whether a point keeps to the limits.
func (c *Config) within(p Point) bool {
	return p.Fault == "" && p.Errors == 0 && p.Throughput > 0 &&
		(c.MaxLatency <= 0 || p.P99 <= c.MaxLatency) && (c.MaxMemory <= 0 || (p.Memory > 0 && p.Memory <= c.MaxMemory))
}

func (s *sweep) report() *Report {
	r := &Report{Model: s.cfg.Load.Model, Points: s.points}
	for i := range r.Points {
		p := &r.Points[i]
		if s.cfg.within(*p) && (r.Best == nil || p.Throughput > r.Best.Throughput || (p.Throughput == r.Best.Throughput && p.P99 < r.Best.P99)) {
			r.Best = p
		}
	}
	if r.Best != nil {
		r.Config = s.with(r.Best.Settings)
	}
	return r
}
