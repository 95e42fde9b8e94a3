// Package metrics tells Prometheus how models and the machine are doing, under the names that dashboards made
// for Triton ask for, and adds latency histograms that percentiles can be taken of across machines.
package metrics

import (
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/stats"
)

// Config says what to tell. Models is required.
type Config struct {
	// Models returns the counters of every model version.
	Models func() []stats.Snapshot
	// Instances returns where instances run; nil: nobody knows.
	Instances func() []Instance
	// QueueBudget returns how long requests of a model version may queue, 0: as long as it takes; nil: none may
	// be told.
	QueueBudget func(model string, version int64) time.Duration
	// Backends are families that backends have of their own.
	Backends []prometheus.Collector
	// NoLatencies leaves the cumulative durations out (counter_latencies=false).
	NoLatencies bool
	// FirstResponse adds the histogram of decoupled models (histogram_latencies=true).
	FirstResponse bool
	// NoCPU and NoGPU leave the machine's numbers out.
	NoCPU, NoGPU bool
	// Interval is how old the machine's numbers may be; 0: 2 s.
	Interval time.Duration
	// Proc is where the kernel tells of itself; empty: /proc.
	Proc string
	// Logger hears once why something cannot be measured; nil discards.
	Logger *slog.Logger
}

// Handler serves the metrics.
func Handler(cfg Config) http.Handler { return handler(cfg, nvml.New()) }

func handler(cfg Config, lib nvml.Interface) http.Handler {
	if cfg.Interval <= 0 {
		cfg.Interval = 2 * time.Second
	}
	if cfg.Proc == "" {
		cfg.Proc = "/proc"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	devices := newGPU(lib, cfg)
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		&models{cfg: cfg, gpu: devices},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	reg.MustRegister(cfg.Backends...)
	if cfg.Instances != nil {
		reg.MustRegister(&instances{list: cfg.Instances})
	}
	if cfg.QueueBudget != nil {
		reg.MustRegister(&budgets{cfg: cfg})
	}
	if !cfg.NoCPU {
		reg.MustRegister(newCPU(cfg))
	}
	if !cfg.NoGPU {
		reg.MustRegister(devices)
	}
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn)})
}

// family is one name of the reference server's.
type family struct {
	name, help string
	gauge      bool
	value      func(*stats.Snapshot) float64
}

func micros(d stats.Duration) float64 { return float64(d.Total.Microseconds()) }

// families are told for every model.
//
//nolint:gochecknoglobals // a constant table; Go has no constant slices
var families = []family{
	{"nv_inference_request_success", "Number of successful inference requests, all batch sizes", false, func(s *stats.Snapshot) float64 { return float64(s.Success.Count) }},
	{"nv_inference_count", "Number of inferences performed (does not include cached requests)", false, func(s *stats.Snapshot) float64 { return float64(s.Inferences) }},
	{"nv_inference_exec_count", "Number of model executions performed (does not include cached requests)", false, func(s *stats.Snapshot) float64 { return float64(s.Executions) }},
	{"nv_inference_pending_request_count", "Instantaneous number of pending requests awaiting execution per-model.", true, func(s *stats.Snapshot) float64 { return float64(s.Pending) }},
	{"nv_model_load_duration_secs", "Model load time in seconds", true, func(s *stats.Snapshot) float64 { return s.LoadTime.Seconds() }},
}

// latencies are told for every model unless they are switched off.
//
//nolint:gochecknoglobals // a constant table; Go has no constant slices
var latencies = []family{
	{"nv_inference_request_duration_us", "Cumulative inference request duration in microseconds (includes cached requests)", false, func(s *stats.Snapshot) float64 { return micros(s.Success) }},
	{"nv_inference_queue_duration_us", "Cumulative inference queuing duration in microseconds (includes cached requests)", false, func(s *stats.Snapshot) float64 { return micros(s.Queue) }},
	{"nv_inference_compute_input_duration_us", "Cumulative compute input duration in microseconds (does not include cached requests)", false, func(s *stats.Snapshot) float64 { return micros(s.ComputeInput) }},
	{"nv_inference_compute_infer_duration_us", "Cumulative compute inference duration in microseconds (does not include cached requests)", false, func(s *stats.Snapshot) float64 { return micros(s.ComputeInfer) }},
	{"nv_inference_compute_output_duration_us", "Cumulative inference compute output duration in microseconds (does not include cached requests)", false, func(s *stats.Snapshot) float64 { return micros(s.ComputeOutput) }},
}

// caches are told for models that use the response cache.
//
//nolint:gochecknoglobals // a constant table; Go has no constant slices
var caches = []family{
	{"nv_cache_num_hits_per_model", "Number of cache hits per model", false, func(s *stats.Snapshot) float64 { return float64(s.CacheHit.Count) }},
	{"nv_cache_num_misses_per_model", "Number of cache misses per model", false, func(s *stats.Snapshot) float64 { return float64(s.CacheMiss.Count) }},
	{"nv_cache_hit_duration_per_model", "Total cache hit duration per model, in microseconds", false, func(s *stats.Snapshot) float64 { return micros(s.CacheHit) }},
	{"nv_cache_miss_duration_per_model", "Total cache miss (insert+lookup) duration per model, in microseconds", false, func(s *stats.Snapshot) float64 { return micros(s.CacheMiss) }},
}

// models collects the counters of models. Their labels depend on their configurations, so that nothing can be
// described beforehand.
type models struct {
	cfg Config
	gpu *gpu
}

func (*models) Describe(chan<- *prometheus.Desc) {}

func (m *models) Collect(ch chan<- prometheus.Metric) {
	for _, s := range m.cfg.Models() {
		l := labels(&s)
		if len(s.GPUs) == 1 { // counters are a version's: they cannot be divided over devices
			if uuid := m.gpu.uuid(s.GPUs[0]); uuid != "" {
				l["gpu_uuid"] = uuid
			}
		}
		tell := func(list []family) {
			for _, f := range list {
				emit(ch, f, l, f.value(&s))
			}
		}
		tell(families)
		if !m.cfg.NoLatencies {
			tell(latencies)
		}
		if s.Cached {
			tell(caches)
		}
		for i, n := range s.Failures {
			withReason := maps.Clone(l)
			withReason["reason"] = infer.Reason(i).String()
			emit(ch, family{name: "nv_inference_request_failure", help: "Number of failed inference requests, all batch sizes"}, withReason, float64(n))
		}
		collectSummaries(ch, s.Summaries)
		histogram(ch, "vedette_inference_request_duration_seconds",
			"Duration of successful inference requests in seconds (includes cached requests)", l, &s.Latency, time.Second)
		if m.cfg.FirstResponse && s.Decoupled {
			histogram(ch, "nv_inference_first_response_histogram_ms",
				"Duration from request to first response in milliseconds", l, &s.FirstResponse, time.Millisecond)
		}
	}
	pool := family{"nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes", true, nil}
	emit(ch, pool, nil, 0)
	pool.name, pool.help = "nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes"
	emit(ch, pool, nil, 0)
}

// labels of a model version; a tag "k" of its configuration is the label "_k".
func labels(s *stats.Snapshot) prometheus.Labels {
	l := prometheus.Labels{"model": s.Name, "version": strconv.FormatInt(s.Version, 10)}
	if s.Namespace != "" {
		l["namespace"] = s.Namespace
	}
	for k, v := range s.Tags {
		l["_"+labelName(k)] = v
	}
	return l
}

// labelName makes a name that Prometheus takes of any key.
func labelName(key string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '_', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}

func emit(ch chan<- prometheus.Metric, f family, l prometheus.Labels, v float64) {
	kind := prometheus.CounterValue
	if f.gauge {
		kind = prometheus.GaugeValue
	}
	keys := slices.Sorted(maps.Keys(l))
	m, err := prometheus.NewConstMetric(prometheus.NewDesc(f.name, f.help, keys, nil), kind, v, values(l, keys)...)
	if err != nil {
		m = prometheus.NewInvalidMetric(prometheus.NewDesc(f.name, f.help, nil, nil), err)
	}
	ch <- m
}

func values(l prometheus.Labels, keys []string) []string {
	v := make([]string, len(keys))
	for i, k := range keys {
		v[i] = l[k]
	}
	return v
}

func histogram(ch chan<- prometheus.Metric, name, help string, l prometheus.Labels, h *stats.Histogram, unit time.Duration) {
	buckets := make(map[float64]uint64)
	h.Cumulative(func(bound time.Duration, events uint64) { buckets[float64(bound)/float64(unit)] = events })
	keys := slices.Sorted(maps.Keys(l))
	desc := prometheus.NewDesc(name, help, keys, nil)
	sum := float64(h.Sum) / float64(unit)
	if unit == time.Millisecond { // whole ones are what suites read
		sum = math.Round(sum)
	}
	m, err := prometheus.NewConstHistogram(desc, h.Count, sum, buckets, values(l, keys)...)
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	ch <- m
}

// once reports a fault of measuring the first time only.
type once struct {
	sync.Once
	logger *slog.Logger
}

func (o *once) warn(what string, err error) {
	o.Do(func() {
		o.logger.Warn("the machine cannot be measured", slog.String("what", what), slog.Any("err", err))
	})
}
