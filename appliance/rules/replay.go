package rules

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// Frame is one analysed frame.
type Frame struct {
	Time    time.Time
	Objects []Object
}

// goneAfter is how long after it was last seen a track is over for Replay, as it is for the pipeline.
const goneAfter = 3 * time.Second

// Replay says what a set of rules makes of frames in order of their time. Nobody tells it when a track is over: one is
// that has not been seen for some seconds, and is not in the frame after them.
func Replay(set Set, frames iter.Seq[Frame]) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		e := New(set)
		for f := range frames {
			for _, event := range append(e.expire(f), e.Observe(f.Time, f.Objects)...) {
				if !yield(event) {
					return
				}
			}
		}
	}
}

// expire ends the tracks that are over when a frame comes, with the frame before it: of those that show nothing there is
// no history.
func (e *Engine) expire(f Frame) []Event {
	return e.end(e.now, func(k key) bool {
		return f.Time.Sub(e.last[k]) > goneAfter && !slices.ContainsFunc(f.Objects, func(o Object) bool {
			return o.Sequence == k.sequence && o.Local == k.local
		})
	})
}

// Bucket is what is counted apart.
type Bucket struct {
	Start                        time.Time
	Rule, Type, Class, Direction string
}

// Counts counts events by rule, type, class and direction in buckets of a length, which begin at multiples of it after
// midnight in a place (nil: UTC). Only crossings and entries count.
type Counts struct {
	Length   time.Duration
	Location *time.Location
	n        map[Bucket]int64
}

// Add counts one event.
func (c *Counts) Add(e Event) {
	if e.Type != LineCrossed && e.Type != ZoneEntered {
		return
	}
	if c.n == nil {
		c.n = map[Bucket]int64{}
	}
	c.n[Bucket{c.start(e.Time), e.Rule, e.Type, e.Class, e.Direction}]++
}

// start is the beginning of the bucket a time is in. Every day begins with a bucket. On a day that is longer because
// clocks are put back, the last bucket is, unless buckets are so short that they still fit.
func (c *Counts) start(at time.Time) time.Time {
	loc := c.Location
	if loc == nil {
		loc = time.UTC
	}
	local := at.In(loc)
	midnight := dayStart(local)
	if c.Length <= 0 {
		return midnight.UTC()
	}
	n := at.Sub(midnight) / c.Length
	if c.Length > time.Hour {
		n = min(n, (24*time.Hour-1)/c.Length)
	}
	return midnight.Add(n * c.Length).UTC()
}

// dayStart is the first moment of the day of a time in its place. It is midnight, where clocks are not put forward over it,
// or back to it.
func dayStart(at time.Time) time.Time {
	year, month, day := at.Date()
	start := time.Date(year, month, day, 0, 0, 0, 0, at.Location())
	since, until := start.ZoneBounds()
	if start.Day() != day { // no clock showed midnight
		return until
	}
	_, before := since.Add(-1).Zone()
	if first := time.Date(year, month, day, 0, 0, 0, 0, time.FixedZone("", before)); first.Before(since) { // clocks showed it twice
		return first
	}
	return start
}

// All goes through the buckets by time, rule, type, class and direction.
func (c *Counts) All() iter.Seq2[Bucket, int64] {
	return func(yield func(Bucket, int64) bool) {
		for _, b := range slices.SortedFunc(maps.Keys(c.n), func(a, b Bucket) int {
			return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Type, b.Type),
				cmp.Compare(a.Class, b.Class), cmp.Compare(a.Direction, b.Direction))
		}) {
			if !yield(b, c.n[b]) {
				return
			}
		}
	}
}
