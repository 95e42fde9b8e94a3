// Package perf finds out how fast a server of the v2 protocol answers: under how many requests at once, or at
// what rate, it takes how long, and where the time goes.
//
// A measurement is a series of windows. It ends when the last three agree on throughput and latency, or when
// there have been too many. Requests hold zeros or random numbers in the shapes the server's metadata tells;
// models that keep state get sequences.
package perf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/vedette/vedette/infer/v2client"
)

// Config says what to measure. Model and one of GRPC and HTTP are required, everything else may stay zero.
type Config struct {
	// GRPC and HTTP are addresses, host:port. With both, GRPC carries metadata and statistics, HTTP the requests.
	GRPC, HTTP string
	Model      string
	// Version 0 leaves the choice to the server.
	Version int64

	// Concurrency is how many requests are kept under way; 0: 1. It is ignored with a Rate.
	Concurrency int
	// Rate sends so many requests a second, whatever comes back; Poisson at random moments instead of evenly.
	Rate    float64
	Poisson bool
	// Batch is the batch dimension of requests to models that have one; 0: 1.
	Batch int
	// Shapes gives dimensions the model leaves open, by input, without the batch dimension.
	Shapes map[string][]int64
	// Values fills inputs with numbers, by name, over and over; for models that do not bear zeros.
	Values map[string][]float64
	// Random fills tensors at random instead of with zeros.
	Random bool
	// Streaming sends over one gRPC stream per worker.
	Streaming bool
	// SharedMemory puts tensors into shared memory instead of into messages.
	SharedMemory bool
	// SequenceLength is the mean length of sequences of models that keep state; 0: 20.
	SequenceLength int

	// Window is the length of one measurement; 0: 5 s.
	Window time.Duration
	// Stability is how much the last three windows may differ, a share; 0: 0.1.
	Stability float64
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
}

// Server is where the time went inside the server, per request, from its statistics.
type Server struct {
	Queue, ComputeInput, ComputeInfer, ComputeOutput time.Duration
	Inferences, Executions                           uint64
}

// Result is a measurement: the sum of its last three windows.
type Result struct {
	Window

	Concurrency int
	Rate        float64
	Stable      bool
	Windows     int
	Server      Server
	// Error is the first error that was seen; empty: none was.
	Error string
}

func (c *Config) defaults() error {
	switch {
	case c.Model == "":
		return errors.New("measure: no model is named")
	case c.GRPC == "" && c.HTTP == "":
		return errors.New("measure: no address is given")
	case c.GRPC == "":
		return errors.New("measure: the gRPC address is needed too: metadata and statistics come that way")
	case c.Streaming && c.HTTP != "":
		return errors.New("measure: streams need gRPC, and HTTP was asked for")
	case c.Rate < 0 || math.IsNaN(c.Rate):
		return fmt.Errorf("measure: a rate of %v requests a second", c.Rate)
	}
	for _, d := range []struct {
		field *int
		value int
	}{{&c.Concurrency, 1}, {&c.Batch, 1}, {&c.SequenceLength, 20}, {&c.MaxWindows, 10}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if c.Window <= 0 {
		c.Window = 5 * time.Second
	}
	if c.Stability <= 0 {
		c.Stability = 0.1
	}
	return nil
}

// Run measures once.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	client, err := v2client.New(cfg.GRPC, v2client.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	m, err := describe(ctx, client, &cfg)
	if err != nil {
		return nil, err
	}
	l, err := newLoad(ctx, &cfg, client, m)
	if err != nil {
		return nil, err
	}
	defer l.close(ctx)
	before, err := statistics(ctx, client, &cfg)
	if err != nil {
		return nil, err
	}
	res, err := l.measure(ctx)
	if err != nil {
		return nil, err
	}
	after, err := statistics(ctx, client, &cfg)
	if err != nil {
		return nil, err
	}
	res.Server = after.since(before)
	res.Concurrency, res.Rate = cfg.Concurrency, cfg.Rate
	return res, nil
}

// sample is one answered request.
type sample struct {
	took time.Duration
	err  error
}

// measure runs the load, window by window, until it settles.
func (l *load) measure(ctx context.Context) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	samples := make(chan sample, 1024) // workers should not wait for the sums
	var wg sync.WaitGroup
	wg.Go(func() { l.run(ctx, samples) })
	go func() { // ends with the workers
		wg.Wait()
		close(samples)
	}()
	defer func() {
		cancel()
		for range samples { // until the last worker has ended
			continue
		}
	}()
	res := new(Result)
	var windows []Window
	var kept [][]time.Duration
	for res.Windows < l.cfg.MaxWindows {
		w, times, err := l.window(ctx, samples, res)
		if err != nil {
			return nil, err
		}
		res.Windows++
		if l.cfg.Progress != nil {
			l.cfg.Progress(w)
		}
		windows, kept = append(windows, w), append(kept, times)
		if n := len(windows); n > 3 {
			windows, kept = windows[n-3:], kept[n-3:]
		}
		if len(windows) == 3 && stable(windows, l.cfg.Stability) {
			res.Stable = true
			break
		}
	}
	res.Window = sum(windows, kept)
	return res, nil
}

// window collects samples for the length of a window.
func (l *load) window(ctx context.Context, samples <-chan sample, res *Result) (Window, []time.Duration, error) {
	var w Window
	var times []time.Duration
	begin := time.Now()
	behind, answers := l.behind.Load(), l.answers.Load()
	end := time.NewTimer(l.cfg.Window)
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return w, nil, context.Cause(ctx)
		case s := <-samples:
			if s.err != nil {
				w.Errors++
				if res.Error == "" {
					res.Error = s.err.Error()
				}
				continue
			}
			times = append(times, s.took)
		case <-end.C:
			w.Requests, w.Behind, w.Answers = len(times), int(l.behind.Load()-behind), int(l.answers.Load()-answers)
			w.Throughput = float64(len(times)*l.batch()) / time.Since(begin).Seconds()
			w.Latency = latency(times)
			return w, times, nil
		}
	}
}

func stable(windows []Window, share float64) bool {
	within := func(value func(Window) float64) bool {
		low, high := math.Inf(1), 0.0
		for _, w := range windows {
			low, high = min(low, value(w)), max(high, value(w))
		}
		mean := (low + high) / 2
		return high > 0 && high-low <= 2*share*mean
	}
	return within(func(w Window) float64 { return w.Throughput }) &&
		within(func(w Window) float64 { return float64(w.Latency.Mean) })
}

func sum(windows []Window, times [][]time.Duration) Window {
	var total Window
	for _, w := range windows {
		total.Throughput += w.Throughput / float64(len(windows))
		total.Requests += w.Requests
		total.Errors += w.Errors
		total.Behind += w.Behind
		total.Answers += w.Answers
	}
	total.Latency = latency(slices.Concat(times...))
	return total
}

// latency sorts times.
func latency(times []time.Duration) Latency {
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
	return Latency{
		Mean: total / time.Duration(len(times)), P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99), Max: times[len(times)-1],
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
