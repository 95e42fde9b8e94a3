package stats

import "time"

// Histogram counts durations in fixed buckets, so that percentiles can be
// added over machines.
type Histogram struct {
	Buckets [len(bounds) + 1]uint64 // the last one has no bound
	Sum     time.Duration
	Count   uint64
}

// bounds are the upper ends of the buckets.
//
//nolint:gochecknoglobals // a constant table; Go has no constant arrays
var bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Bounds are the upper ends of all buckets but the last.
func Bounds() []time.Duration { return bounds[:] }

// Observe counts n events of equal duration.
func (h *Histogram) Observe(d time.Duration, n uint64) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.Buckets[i] += n
	h.Sum += d * time.Duration(n)
	h.Count += n
}
