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

// Replay says what a set of rules makes of frames in order of their time.
func Replay(set Set, frames iter.Seq[Frame]) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		e := New(set)
		for f := range frames {
			for _, event := range e.Observe(f.Time, f.Objects) {
				if !yield(event) {
					return
				}
			}
		}
	}
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

// start is the beginning of the bucket a time is in. Days on which clocks are put forward or back have shorter or
// longer last buckets, and every day begins with a bucket.
func (c *Counts) start(at time.Time) time.Time {
	loc := c.Location
	if loc == nil {
		loc = time.UTC
	}
	local := at.In(loc)
	midnight := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, loc)
	if c.Length <= 0 {
		return midnight.UTC()
	}
	return midnight.Add(at.Sub(midnight) / c.Length * c.Length).UTC()
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
