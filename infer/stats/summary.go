package stats

import "time"

// Summaries take single durations in microseconds, for percentiles over the
// last minute. Any may be nil.
type Summaries struct {
	Request, Queue, ComputeInput, ComputeInfer, ComputeOutput, CacheHit, CacheMiss Observer
}

// Observer takes one value.
type Observer interface{ Observe(value float64) }

// observe gives one duration n times.
func observe(o Observer, d time.Duration, n int) {
	if o == nil {
		return
	}
	for range n {
		o.Observe(float64(d.Nanoseconds()) / 1e3)
	}
}
