package stats

import "time"

// Histogram counts durations in fixed buckets, so that percentiles can be
// added over machines. The zero value has the buckets of Bounds.
type Histogram struct {
	// Bounds are the upper ends of all buckets but the last, ascending.
	Bounds  []time.Duration
	Buckets []uint64 // one more than bounds; nil before anything was counted
	Sum     time.Duration
	Count   uint64
}

//nolint:gochecknoglobals // constant tables; Go has no constant slices
var (
	bounds = []time.Duration{
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
		time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
		10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	}
	// The reference server's.
	firstResponseBounds = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 5 * time.Second}
)

// Bounds are the upper ends of a histogram's buckets if it does not say.
func Bounds() []time.Duration { return bounds }

// Observe counts n events of equal duration.
func (h *Histogram) Observe(d time.Duration, n uint64) {
	if h.Buckets == nil {
		if h.Bounds == nil {
			h.Bounds = bounds
		}
		h.Buckets = make([]uint64, len(h.Bounds)+1)
	}
	i := 0
	for i < len(h.Bounds) && d > h.Bounds[i] {
		i++
	}
	h.Buckets[i] += n
	h.Sum += d * time.Duration(n)
	h.Count += n
}

// Cumulative calls f for every bound with the number of events up to it.
func (h *Histogram) Cumulative(f func(bound time.Duration, events uint64)) {
	if h.Buckets == nil {
		h = &Histogram{Bounds: h.Bounds}
		h.Observe(0, 0)
	}
	sum := uint64(0)
	for i, bound := range h.Bounds {
		sum += h.Buckets[i]
		f(bound, sum)
	}
}
