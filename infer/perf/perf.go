// Package perf finds out how fast a server of the v2 protocol answers: under how many requests at once, or at
// what rate, it takes how long, and where the time goes.
//
// A measurement is a series of windows. It ends when the last three agree on throughput and latency, or when
// there have been too many. Requests hold zeros or random numbers in the shapes the server's metadata tells;
// models that keep state get sequences.
package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/v2client"
)

// Config says what to measure. Model and one of GRPC and HTTP are required, everything else may stay zero.
type Config struct {
	// GRPC and HTTP are addresses, host:port. With both, GRPC carries metadata and statistics, HTTP the requests. HTTP
	// may begin with https://.
	GRPC, HTTP string
	// Client says how to talk to them. Compress lets gRPC compress requests with gzip.
	Client   v2client.Config
	Compress bool
	Model    string
	// Version 0 leaves the choice to the server.
	Version int64

	// Concurrency is how many requests are kept under way; 0: 1. It is ignored with a Rate.
	Concurrency int
	// Rate sends so many requests a second, whatever comes back; Poisson at random moments instead of evenly.
	Rate    float64
	Poisson bool
	// Intervals, when given, are the pauses between requests instead, over and over.
	Intervals []time.Duration
	// GrowTo, when given, begins with Concurrency requests under way and adds GrowBy whenever each has been answered
	// GrowEvery times, up to so many. It is one window, of GrowTo times GrowEvery requests.
	GrowTo, GrowBy, GrowEvery int
	// Batch is the batch dimension of requests to models that have one; 0: 1.
	Batch int
	// Shapes gives dimensions the model leaves open, by input, without the batch dimension.
	Shapes map[string][]int64
	// Values fills inputs with numbers, by name, over and over; for models that do not bear zeros.
	Values map[string][]float64
	// Random fills tensors at random instead of with zeros.
	Random bool
	// Text fills inputs of strings; empty: "0", or with Random letters, TextLength of them; 0: 128.
	Text       string
	TextLength int
	// Data is what is sent instead of all that.
	Data *Data
	// Parameters go with every request: bool, int64, float64 or string.
	Parameters map[string]any
	// Streaming sends over one gRPC stream per worker.
	Streaming bool
	// SharedMemory puts tensors into shared memory instead of into messages, outputs of open size into OutputSize bytes;
	// 0: 100 KiB.
	SharedMemory bool
	OutputSize   int
	// JSONInputs and JSONOutputs have tensors travel as JSON instead of as bytes; HTTP alone can.
	JSONInputs, JSONOutputs bool
	// Called are models whose part in the work is told too; those of an ensemble's steps are in any case.
	Called []string
	// SequenceLength is the mean length of sequences of models that keep state; 0: that of the Data, or 20. They are up to
	// SequenceSpread, a share, shorter or longer; 0: 0.2, negative: none.
	SequenceLength int
	SequenceSpread float64
	// Sequences is how many are open at once at a Rate; 0: 4.
	Sequences int
	// FirstID and LastID bound the correlation ids; 0: any.
	FirstID, LastID uint64

	// Window is the length of one measurement; 0: 5 s. It lasts until something is answered, but Patience longer at most; 0: a
	// minute.
	Window, Patience time.Duration
	// WindowRequests ends a window after so many requests instead of a time, but not before a second, or the Window if that
	// is less, is over.
	WindowRequests int
	// Requests, when given, sends exactly so many after Warmup others and measures those, in one window.
	Requests, Warmup int
	// Percentile is the latency that has to settle, in percent; 0: the mean.
	Percentile int
	// Keep keeps every request for Result.Sent.
	Keep bool
	// Metrics is the address of the server's metrics, which are looked at every MetricsInterval; 0: 1 s.
	Metrics         string
	MetricsInterval time.Duration
	// Trace changes the server's trace settings of the model while it is measured, by their names in the protocol.
	Trace map[string][]string
	// Stability is how much the last three windows may differ, a share; 0: 0.1.
	Stability float64
	// strict refuses Shapes and Values of inputs that the model has not.
	strict bool
	// MaxWindows ends a measurement that does not settle; 0: 10.
	MaxWindows int
	// Progress is told after every window; nil: nobody watches.
	Progress func(Window)
}

// Window is what one window saw.
type Window struct {
	Throughput float64 // inferences a second
	Latency    Latency
	Requests   int
	Errors     int
	// Answers counts those of decoupled models, which give any number for a request.
	Answers int
	// Behind counts requests that could not be sent in time because too many were under way.
	Behind int
}

// Latency is how long requests took, those of decoupled models up to their last answer.
type Latency struct {
	Mean, P50, P90, P95, P99, Max time.Duration
	// Chosen is the percentile that was asked for; without one it is the P99.
	Chosen time.Duration
}

// Server is where the time went inside the server, per request, from its statistics in the same windows.
type Server struct {
	Queue, ComputeInput, ComputeInfer, ComputeOutput time.Duration
	Inferences, Executions                           uint64
}

// Part is what one of several models contributed.
type Part struct {
	Model string
	Server
}

// Result is a measurement: the sum of its last three windows.
type Result struct {
	Window

	// Address is where the requests went.
	Address     string
	Concurrency int
	Rate        float64
	Stable      bool
	Windows     int
	Server      Server
	// Parts are the models that the model calls: what a request of theirs cost, however many one of the model brings.
	Parts []Part `json:",omitempty"`
	// Error is the first error that was seen; empty: none was.
	Error string
	// Metrics are the means of the server's gauges of processor, GPU and memory.
	Metrics map[string]float64 `json:",omitempty"`
	// Sent are all requests in all windows, which end at Bounds; nil unless they were to be kept.
	Sent   []Request   `json:"-"`
	Bounds []time.Time `json:"-"`
}

// Request is one that was sent.
type Request struct {
	Begin    time.Time
	Sequence uint64
	Answers  []time.Time
}

// Outside is the mean time per request that the server's statistics do not tell of: its ways there and back, and what
// becomes of it in the client and in the server before it waits for the model.
func (r *Result) Outside() time.Duration {
	s := r.Server
	return max(0, r.Latency.Mean-s.Queue-s.ComputeInput-s.ComputeInfer-s.ComputeOutput)
}

// defaultSequence is the mean length of sequences nobody said anything of.
const defaultSequence = 20

// timed tells that requests leave by the clock.
func (c *Config) timed() bool { return c.Rate > 0 || len(c.Intervals) > 0 }

func (c *Config) defaults() error {
	switch {
	case c.Model == "":
		return errors.New("measure: no model is named")
	case c.GRPC == "" && c.HTTP == "":
		return errors.New("measure: no address is given")
	case c.Streaming && c.HTTP != "":
		return errors.New("measure: streams need gRPC, and HTTP was asked for")
	case (c.JSONInputs || c.JSONOutputs) && c.HTTP == "":
		return errors.New("measure: tensors as JSON need HTTP, and gRPC was asked for")
	case (c.JSONInputs || c.JSONOutputs) && c.SharedMemory:
		return errors.New("measure: tensors are in shared memory or in JSON, not in both")
	case c.Rate < 0 || math.IsNaN(c.Rate):
		return fmt.Errorf("measure: a rate of %v requests a second", c.Rate)
	case c.Percentile < 0 || c.Percentile > 99:
		return fmt.Errorf("measure: percentile %d is not within 1 and 99", c.Percentile)
	case c.LastID > 0 && (c.FirstID == 0 || c.LastID < c.FirstID):
		return fmt.Errorf("measure: correlation ids from %d to %d", c.FirstID, c.LastID)
	case c.GrowTo > 0 && (c.GrowTo < c.Concurrency || c.GrowBy < 1 || c.GrowEvery < 1 || c.timed()):
		return fmt.Errorf("measure: concurrency that grows from %d to %d by %d every %d requests", c.Concurrency, c.GrowTo, c.GrowBy, c.GrowEvery)
	}
	for _, i := range c.Intervals {
		if i <= 0 {
			return fmt.Errorf("measure: an interval of %v between requests", i)
		}
	}
	for _, d := range []struct {
		field *int
		value int
	}{{&c.Concurrency, 1}, {&c.Batch, 1}, {&c.Sequences, 4}, {&c.TextLength, 128}, {&c.MaxWindows, 10}, {&c.OutputSize, 100 << 10}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if c.Window <= 0 {
		c.Window = 5 * time.Second
	}
	if c.Patience <= 0 {
		c.Patience = time.Minute
	}
	if c.Stability <= 0 {
		c.Stability = 0.1
	}
	if c.MetricsInterval <= 0 {
		c.MetricsInterval = time.Second
	}
	if c.SequenceSpread == 0 {
		c.SequenceSpread = 0.2
	}
	c.SequenceSpread = max(c.SequenceSpread, 0)
	if c.GrowTo > 0 {
		c.Requests = c.GrowTo * c.GrowEvery
	}
	if c.Requests > 0 {
		c.MaxWindows = 1
	}
	return nil
}

// connections are those of one measurement.
type connections struct {
	grpc *v2client.Client // nil: everything goes over HTTP
	http *v2client.HTTP   // nil: requests go over gRPC
}

func connect(cfg *Config) (*connections, error) {
	c := new(connections)
	if cfg.GRPC != "" {
		var extra []grpc.DialOption
		if cfg.Compress {
			extra = append(extra, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
		}
		var err error
		if c.grpc, err = v2client.New(cfg.GRPC, cfg.Client, extra...); err != nil {
			return nil, err
		}
	}
	if cfg.HTTP != "" {
		base := cfg.HTTP
		if !strings.Contains(base, "://") {
			base = "http://" + base
		}
		c.http = v2client.NewHTTP(base, cfg.Client)
	}
	return c, nil
}

func (c *connections) describer() v2client.Describer {
	if c.grpc != nil {
		return c.grpc
	}
	return c.http
}

// trace changes the trace settings of the model, and returns what has it follow the server again.
func (c *connections) trace(ctx context.Context, cfg *Config) (restore func(), err error) {
	if len(cfg.Trace) == 0 {
		return func() {}, nil
	}
	var tracer v2client.Tracer = c.http
	if c.grpc != nil {
		tracer = c.grpc
	}
	set := func(ctx context.Context, values func(name string) []string) error {
		req := &inference.TraceSettingRequest{ModelName: cfg.Model, Settings: make(map[string]*inference.TraceSettingRequest_SettingValue)}
		for name := range cfg.Trace {
			req.Settings[name] = &inference.TraceSettingRequest_SettingValue{Value: values(name)}
		}
		_, err := tracer.TraceSetting(ctx, req)
		return err
	}
	if err := set(ctx, func(name string) []string { return cfg.Trace[name] }); err != nil {
		return nil, fmt.Errorf("trace model %q: %w", cfg.Model, err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = set(ctx, func(string) []string { return nil }) // the measurement counts all the same
	}, nil
}

func (c *connections) close() {
	if c.grpc != nil {
		_ = c.grpc.Close()
	}
	if c.http != nil {
		_ = c.http.Close()
	}
}

// said is what a server said, without gRPC's own words about it.
func said(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	text := s.Message()
	if at := strings.LastIndex(text, "desc = "); s.Code() == codes.Unavailable && at >= 0 {
		text = "the server cannot be reached: " + strings.Trim(text[at+len("desc = "):], `"`)
	}
	return errors.New(text)
}

// Run measures once. A measurement in which every request of a window fails ends with it: Result.Error tells why.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	c, err := connect(&cfg)
	if err != nil {
		return nil, err
	}
	defer c.close()
	m, err := describe(ctx, c.describer(), &cfg)
	if err != nil {
		return nil, err
	}
	restore, err := c.trace(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	defer restore()
	l, err := newLoad(ctx, &cfg, c, m)
	if err != nil {
		return nil, err
	}
	defer l.close(ctx)
	gauges, err := watchMetrics(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	res, err := l.measure(ctx, func() snapshot {
		all, err := statistics(ctx, c.describer(), m.all)
		return snapshot{all, err}
	})
	means := gauges()
	if err != nil {
		return nil, err
	}
	res.Address, res.Metrics = cmp.Or(cfg.HTTP, cfg.GRPC), means
	if res.Rate = cfg.Rate; !cfg.timed() {
		res.Concurrency = int(l.working.Load())
	}
	return res, nil
}

// sample is one answered request.
type sample struct {
	begin    time.Time
	took     time.Duration
	err      error
	sequence uint64
	answers  []time.Time
}

// snapshot is what the server's statistics were at a moment.
type snapshot struct {
	all []counters // of the model and of those it calls
	err error
}

// measure runs the load, window by window, until it settles.
func (l *load) measure(ctx context.Context, look func() snapshot) (*Result, error) {
	if l.cfg.Warmup > 0 {
		samples, stop := l.begin(ctx, l.cfg.Warmup)
		for range samples { // until the last worker has ended
			continue
		}
		if stop(); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	first := look()
	if first.err != nil {
		return nil, first.err
	}
	looks := []*snapshot{&first} // then those at the ends of the last windows; the load goes on meanwhile
	var looking sync.WaitGroup
	defer looking.Wait()
	samples, stop := l.begin(ctx, l.cfg.Requests)
	defer stop()
	res := new(Result)
	var windows []Window
	var kept [][]time.Duration
	for res.Windows < l.cfg.MaxWindows {
		w, times, err := l.window(ctx, samples, res)
		if err != nil {
			return nil, err
		}
		at := new(snapshot)
		looking.Go(func() { *at = look() })
		looks = append(looks, at)
		res.Windows++
		if l.cfg.Progress != nil {
			l.cfg.Progress(w)
		}
		if l.cfg.Keep {
			res.Bounds = append(res.Bounds, time.Now())
		}
		windows, kept = append(windows, w), append(kept, times)
		if n := len(windows); n > 3 {
			windows, kept, looks = windows[n-3:], kept[n-3:], looks[1:]
		}
		if len(windows) == 3 && l.cfg.stable(windows) {
			res.Stable = true
			break
		}
		if w.Requests == 0 {
			break
		}
	}
	res.Window = l.cfg.sum(windows, kept)
	if l.cfg.Requests > 0 {
		res.Stable = res.Requests > 0 // there is one window, of what was asked for
	}
	if res.Requests == 0 && res.Errors == 0 {
		return nil, fmt.Errorf("measure model %q: no request was answered within %v", l.cfg.Model, l.cfg.Window+l.cfg.Patience)
	}
	looking.Wait()
	before, after := looks[0], looks[len(looks)-1]
	switch {
	case after.err != nil && res.Error != "":
		return nil, fmt.Errorf("measure model %q: %d requests failed, the first: %s", l.cfg.Model, res.Errors, res.Error)
	case after.err != nil:
		return nil, after.err
	case before.err != nil:
		return nil, before.err
	}
	res.Server = after.all[0].since(before.all[0])
	for i, m := range l.model.all[1:] {
		res.Parts = append(res.Parts, Part{m.name, after.all[i+1].since(before.all[i+1])})
	}
	return res, nil
}

// window collects samples for the length of a window.
func (l *load) window(ctx context.Context, samples <-chan sample, res *Result) (Window, []time.Duration, error) {
	var w Window
	var times []time.Duration
	begin := time.Now()
	timer := time.NewTimer(l.cfg.Window)
	defer timer.Stop()
	end, late := timer.C, false
	count := max(l.cfg.Requests, l.cfg.WindowRequests)
	if count > 0 {
		end = nil
	}
	least := time.Duration(0)
	if l.cfg.Requests == 0 && l.cfg.WindowRequests > 0 {
		least = min(time.Second, l.cfg.Window)
	}
	for over := false; !over; {
		select {
		case <-ctx.Done():
			return w, nil, context.Cause(ctx)
		case s, more := <-samples:
			if !more {
				over = true
				break
			}
			if s.err != nil {
				w.Errors++
				if res.Error == "" {
					res.Error = said(s.err).Error()
				}
			} else {
				times = append(times, s.took)
			}
			if l.cfg.Keep && !s.begin.IsZero() {
				res.Sent = append(res.Sent, Request{Begin: s.begin, Sequence: s.sequence, Answers: s.answers})
			}
			over = late || count > 0 && len(times)+w.Errors >= count && time.Since(begin) >= least
		case <-end:
			if over = late || len(times)+w.Errors > 0; !over {
				late = true
				timer.Reset(l.cfg.Patience)
			}
		}
	}
	w.Requests, w.Behind, w.Answers = len(times), int(l.behind.Swap(0)), int(l.answers.Swap(0))
	w.Throughput = float64(len(times)*l.batch()) / time.Since(begin).Seconds()
	w.Latency = l.cfg.latency(times)
	return w, times, nil
}

// stable tells whether windows agree on throughput and on the latency that matters.
func (c *Config) stable(windows []Window) bool {
	within := func(value func(Window) float64) bool {
		low, high := math.Inf(1), 0.0
		for _, w := range windows {
			low, high = min(low, value(w)), max(high, value(w))
		}
		mean := (low + high) / 2
		return high > 0 && high-low <= 2*c.Stability*mean
	}
	return within(func(w Window) float64 { return w.Throughput }) &&
		within(func(w Window) float64 {
			if c.Percentile > 0 {
				return float64(w.Latency.Chosen)
			}
			return float64(w.Latency.Mean)
		})
}

func (c *Config) sum(windows []Window, times [][]time.Duration) Window {
	var total Window
	for _, w := range windows {
		total.Throughput += w.Throughput / float64(len(windows))
		total.Requests += w.Requests
		total.Errors += w.Errors
		total.Behind += w.Behind
		total.Answers += w.Answers
	}
	total.Latency = c.latency(slices.Concat(times...))
	return total
}

// latency sorts times.
func (c *Config) latency(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	slices.Sort(times)
	total := time.Duration(0)
	for _, t := range times {
		total += t
	}
	at := func(share float64) time.Duration {
		return times[min(int(math.Ceil(share*float64(len(times))))-1, len(times)-1)]
	}
	chosen := at(0.99)
	if c.Percentile > 0 {
		chosen = at(float64(c.Percentile) / 100)
	}
	return Latency{
		Chosen: chosen, Mean: total / time.Duration(len(times)), P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99), Max: times[len(times)-1],
	}
}

// pause is how long to wait for the next request of a rate.
func pause(rate float64, poisson bool, r *rand.Rand) time.Duration {
	interval := float64(time.Second) / rate
	if poisson {
		interval *= r.ExpFloat64()
	}
	return time.Duration(interval)
}
