// Package collect decides whose frame goes to inference next, and when. It is pure: time is an argument, there is no
// clock, goroutine or lock in it.
//
// As many frames are at inference as keep it busy; all others wait outside, where a newer frame can still take the
// place of an older one. Turns are dealt by start-time fair queueing (Goyal, Vin and Cheng, 1996), weighted by the
// camera's priority: whatever one camera sends, the others keep their share. Where a model runs several frames for
// little more than the price of one, a round of frames is gathered, for no longer than a window that follows the
// fastest camera; a camera that is silent is not waited for.
package collect

import (
	"cmp"
	"slices"
	"time"
)

// Limits of what is at inference at once.
type Limits struct {
	// Slots is the number of frames; less than 1: 1.
	Slots int
	// Batch is how many frames the model runs together with profit; up to 1: no frame waits for another.
	Batch int
}

// The window of a round and what it is made of.
const (
	// First is the window of the first round, so that a model that plans by its first batch sees a full one.
	First = 100 * time.Millisecond
	// Floor is the least the window that follows the fastest camera can be.
	Floor = 2 * time.Millisecond
	// Cap is the most it can be.
	Cap = 100 * time.Millisecond
	// Fallback is the window while no camera's rate is known.
	Fallback = 30 * time.Millisecond
	// Silence is how long a camera that sends nothing is still waited for.
	Silence = 2 * time.Second

	smoothing = 0.2 // of the time an answer takes
)

// Source is one camera as the collector knows it.
type Source struct {
	// Weight is its share where frames wait; 0: 1.
	Weight float64
	// Live cameras are waited for when a round is gathered; recorded material is not.
	Live bool
}

// source is what is known of a camera.
type source struct {
	Source
	name     string
	waiting  bool
	since    time.Time // it waits
	inFlight int
	finish   float64 // virtual time at which its last turn is used up
	arrivals arrivals
}

// Collector deals the turns of one pipeline. The zero value is not ready; use New.
type Collector struct {
	limits   Limits
	sources  map[string]*source
	inFlight int
	virtual  float64       // start of the turn dealt last
	took     time.Duration // an answer, smoothed; 0: not known yet
	round    time.Time     // when the first frame of the round that is gathered came; zero: none waits
	rounds   int
}

// New returns a collector without cameras.
func New(l Limits) *Collector {
	c := &Collector{sources: map[string]*source{}}
	c.SetLimits(l)
	return c
}

// SetLimits changes the limits from the next decision on.
func (c *Collector) SetLimits(l Limits) {
	l.Slots, l.Batch = max(l.Slots, 1), max(l.Batch, 1)
	c.limits = l
}

// Put adds a camera or changes it.
func (c *Collector) Put(name string, s Source) {
	if s.Weight <= 0 {
		s.Weight = 1
	}
	if old := c.sources[name]; old != nil {
		old.Source = s
		return
	}
	c.sources[name] = &source{Source: s, name: name}
}

// Remove forgets a camera; what it had at inference no longer counts.
func (c *Collector) Remove(name string) {
	if s := c.sources[name]; s != nil {
		c.inFlight -= s.inFlight
		delete(c.sources, name)
	}
}

// Arrived tells of a frame that came, whatever becomes of it: rates are counted by it.
func (c *Collector) Arrived(now time.Time, name string) {
	if s := c.sources[name]; s != nil {
		s.arrivals.add(now)
	}
}

// Wait says that a camera has a frame to send.
func (c *Collector) Wait(now time.Time, name string) {
	if s := c.sources[name]; s != nil && !s.waiting {
		s.waiting, s.since = true, now
	}
}

// Leave says that a camera has none any more.
func (c *Collector) Leave(name string) {
	if s := c.sources[name]; s != nil {
		s.waiting = false
	}
}

// Done says that a turn is over. Took is how long the answer took; 0 when there was none.
func (c *Collector) Done(name string, took time.Duration) {
	s := c.sources[name]
	if s == nil || s.inFlight == 0 {
		return
	}
	s.inFlight--
	c.inFlight--
	switch {
	case took <= 0:
	case c.took == 0:
		c.took = took
	default:
		c.took += time.Duration(smoothing * float64(took-c.took))
	}
}

// InFlight is the number of turns dealt and not over.
func (c *Collector) InFlight() int { return c.inFlight }

// Decide deals turns: one to each camera returned, which then no longer waits. When wake is not zero, Decide must be
// called again then, should nothing else happen before.
func (c *Collector) Decide(now time.Time) (turns []string, wake time.Time) {
	var waiting []*source
	for _, s := range c.sources {
		if s.waiting {
			waiting = append(waiting, s)
		}
	}
	if len(waiting) == 0 {
		c.round = time.Time{}
		return nil, time.Time{}
	}
	if c.round.IsZero() {
		c.round = now
	}
	free := c.limits.Slots - c.inFlight
	if free <= 0 {
		return nil, time.Time{} // the next answer makes room
	}
	if at := c.closes(now, len(waiting), free); now.Before(at) {
		return nil, at
	}
	slices.SortFunc(waiting, func(a, b *source) int {
		return cmp.Or(cmp.Compare(c.start(a), c.start(b)), a.since.Compare(b.since), cmp.Compare(a.name, b.name))
	})
	for _, s := range waiting[:min(free, len(waiting))] {
		at := c.start(s)
		c.virtual = max(c.virtual, at)
		s.finish = at + 1/s.Weight
		s.waiting = false
		s.inFlight++
		c.inFlight++
		turns = append(turns, s.name)
	}
	c.rounds++
	c.round = time.Time{}
	if len(turns) < len(waiting) {
		c.round = now
	}
	return turns, time.Time{}
}

// start is the virtual time at which a camera's next turn begins: a camera that was away saves up nothing.
func (c *Collector) start(s *source) float64 { return max(s.finish, c.virtual) }

// closes is when the round that is gathered goes, with so many frames in it and so much room.
func (c *Collector) closes(now time.Time, waiting, free int) time.Time {
	if c.limits.Batch <= 1 || waiting >= min(free, c.limits.Batch) || !c.expected(now) {
		return c.round
	}
	return c.round.Add(c.window(now))
}

// expected tells whether a camera is about to send a frame.
func (c *Collector) expected(now time.Time) bool {
	for _, s := range c.sources {
		if s.Live && !s.waiting && s.inFlight == 0 && s.arrivals.alive(now) {
			return true
		}
	}
	return false
}

// window is how long a round may be gathered: what the fastest camera leaves between two of its frames once the
// answer is there.
func (c *Collector) window(now time.Time) time.Duration {
	if c.rounds == 0 {
		return First
	}
	var fastest time.Duration
	for _, s := range c.sources {
		if p := s.arrivals.period(now); s.Live && p > 0 && (fastest == 0 || p < fastest) {
			fastest = p
		}
	}
	if fastest == 0 {
		return Fallback
	}
	return min(max(fastest-c.took, Floor), Cap)
}
