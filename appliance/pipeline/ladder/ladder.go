// Package ladder decides what a box does about having more to analyse than it can: it lowers the analysis rates, for
// all cameras to the same; lets frames grow stale when the rates are at their lowest; gives up the analysis of the
// cameras of the lowest priority; and goes back up when there is room, without flapping. It is pure: time and what
// was counted are arguments.
package ladder

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Level is a step of the ladder.
type Level int

// The steps, from the top down.
const (
	// Normal: every camera is analysed as it asks for.
	Normal Level = iota
	// Reduced: no camera is analysed more often than Decision.Rate.
	Reduced
	// Stale: the rate is at its lowest; the staleness budget keeps what is analysed fresh.
	Stale
	// Shedding: the cameras of Decision.Shed are not analysed, and new cameras are refused.
	Shedding
)

// String is the level as a word.
func (l Level) String() string {
	return [...]string{"NORMAL", "REDUCED", "STALE", "SHEDDING"}[max(Normal, min(l, Shedding))]
}

// Config says how the ladder moves. Zero fields get the defaults in brackets.
type Config struct {
	// Lost is the share of frames lost to overload that is overload [0.1].
	Lost float64
	// Patience is how long overload lasts before a step down, and the least time between two [3 s].
	Patience time.Duration
	// Calm is how long there is none before a step up [10 s]. A step up that brings overload back doubles the wait for
	// the next try, up to MaxCalm [5 min].
	Calm, MaxCalm time.Duration
	// Floor is the lowest rate cameras are held to [1 frame a second].
	Floor float64
}

func (c Config) withDefaults() Config {
	if c.Lost <= 0 {
		c.Lost = 0.1
	}
	if c.Patience <= 0 {
		c.Patience = 3 * time.Second
	}
	if c.Calm <= 0 {
		c.Calm = 10 * time.Second
	}
	if c.MaxCalm <= 0 {
		c.MaxCalm = 5 * time.Minute
	}
	if c.Floor <= 0 {
		c.Floor = 1
	}
	return c
}

// Camera is what was counted of a live camera since the look before. Rates are frames a second.
type Camera struct {
	Name string
	// Priority orders shedding: the lowest goes first. Of equals the one registered last does.
	Priority int
	Since    time.Time
	// Wanted is the rate it asks for; 0: every frame it sends.
	Wanted float64
	// Analysed frames, and those lost because the box could not follow.
	Analysed, Lost float64
}

func (c *Camera) offered() float64 { return c.Analysed + c.Lost }

// Decision is what is done now.
type Decision struct {
	Level Level
	// Rate no camera exceeds; 0: none is held back.
	Rate float64
	// Shed cameras, in the order they were given up. Not to be changed.
	Shed []string
}

// Ladder remembers where the box stands. The zero value is not ready; use New.
type Ladder struct {
	cfg Config
	now Decision

	overSince, calmSince time.Time // zero: not so
	moved                time.Time // the last step
	raised               time.Time // the last step up; zero: it proved itself, or was taken back
	calm                 time.Duration
	peak                 float64 // what the box did when it had too much to do
	shed                 map[string]Camera
}

// New returns a ladder at its top.
func New(cfg Config) *Ladder {
	cfg = cfg.withDefaults()
	return &Ladder{cfg: cfg, calm: cfg.Calm, shed: map[string]Camera{}}
}

// Look takes what was counted and returns what to do from now on, and whether that is a change. Call it at a steady
// pace, about once a second.
func (l *Ladder) Look(now time.Time, cameras []Camera) (Decision, bool) {
	before := l.now
	l.forget(cameras)
	analysed, lost := 0.0, 0.0
	for i := range cameras {
		analysed += cameras[i].Analysed
		lost += cameras[i].Lost
	}
	if lost > l.cfg.Lost*(analysed+lost) && lost >= 0.5 {
		l.calmSince = time.Time{}
		if l.overSince.IsZero() {
			l.overSince = now
		}
		if now.Sub(l.overSince) >= l.cfg.Patience && now.Sub(l.moved) >= l.cfg.Patience {
			l.down(now, cameras, analysed)
		}
	} else {
		l.overSince = time.Time{}
		if l.calmSince.IsZero() {
			l.calmSince = now
		}
		l.calmed(now, cameras)
	}
	changed := before.Level != l.now.Level || before.Rate != l.now.Rate || !slices.Equal(before.Shed, l.now.Shed)
	return l.now, changed
}

// forget drops shed cameras that are gone, and gives one back when no other is left.
func (l *Ladder) forget(cameras []Camera) {
	there := map[string]bool{}
	for i := range cameras {
		there[cameras[i].Name] = true
	}
	gone := func(n string) bool { return !there[n] }
	if slices.ContainsFunc(l.now.Shed, gone) {
		l.now.Shed = slices.DeleteFunc(slices.Clone(l.now.Shed), gone)
	}
	if n := len(l.now.Shed); n > 0 && n >= len(cameras) {
		l.now.Shed = slices.Clone(l.now.Shed[:len(cameras)-1])
	}
	if l.now.Level == Shedding && len(l.now.Shed) == 0 {
		l.now.Level = Stale
	}
}

// down takes one step down.
func (l *Ladder) down(now time.Time, cameras []Camera, analysed float64) {
	l.peak = analysed
	if !l.raised.IsZero() && now.Sub(l.raised) < 2*l.calm {
		l.calm = min(2*l.calm, l.cfg.MaxCalm)
	}
	l.raised, l.moved = time.Time{}, now
	switch l.now.Level {
	case Normal, Reduced:
		rate := fit(cameras, 0.9*analysed)
		if l.now.Rate > 0 {
			rate = min(rate, 0.8*l.now.Rate)
		}
		l.now.Level, l.now.Rate = Reduced, max(rate, l.cfg.Floor)
		if rate <= l.cfg.Floor {
			l.now.Level = Stale
		}
	case Stale, Shedding:
		if c := l.victim(cameras); c != nil {
			l.shed[c.Name] = *c
			l.now.Shed = append(slices.Clone(l.now.Shed), c.Name)
			l.now.Level = Shedding
		}
	}
}

// fit returns the rate that, as everybody's limit, makes what cameras send add up to the total.
func fit(cameras []Camera, total float64) float64 {
	offers := make([]float64, len(cameras))
	for i := range cameras {
		offers[i] = cameras[i].offered()
	}
	slices.Sort(offers)
	for i, o := range offers {
		share := total / float64(len(offers)-i)
		if o > share {
			return share
		}
		total -= o
	}
	return math.Inf(1) // it fits
}

// victim is the camera whose analysis is given up next; nil: the last one keeps its.
func (l *Ladder) victim(cameras []Camera) *Camera {
	var left []*Camera
	for i := range cameras {
		if !slices.Contains(l.now.Shed, cameras[i].Name) {
			left = append(left, &cameras[i])
		}
	}
	if len(left) < 2 {
		return nil
	}
	return slices.MinFunc(left, func(a, b *Camera) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), b.Since.Compare(a.Since), cmp.Compare(b.Name, a.Name))
	})
}

// calmed takes a step up when it is time.
func (l *Ladder) calmed(now time.Time, cameras []Camera) {
	quiet := min(now.Sub(l.calmSince), now.Sub(l.moved))
	if l.now.Level == Normal {
		if quiet >= 2*l.calm { // the last step up has proved itself
			l.calm = l.cfg.Calm
		}
		return
	}
	next, load := l.above(cameras)
	wait := l.cfg.Calm
	if load > 0.9*l.peak { // more than the box is known to do: a try
		wait = l.calm
	}
	if quiet < wait {
		return
	}
	l.now, l.moved, l.raised = next, now, now
}

// above is one step up, and what the box would have to do there.
func (l *Ladder) above(cameras []Camera) (next Decision, load float64) {
	next = l.now
	for i := range cameras {
		load += cameras[i].offered()
	}
	if n := len(next.Shed); n > 0 {
		back := l.shed[next.Shed[n-1]]
		next.Shed = slices.Clone(next.Shed[:n-1])
		if n == 1 {
			next.Level = Stale
		}
		return next, load + min(wanted(&back), next.Rate)
	}
	next.Level, next.Rate = Reduced, 1.25*l.now.Rate
	most := 0.0
	load = 0
	for i := range cameras {
		c := &cameras[i]
		most = max(most, wanted(c))
		if c.offered() < 0.9*l.now.Rate { // it has no more
			load += c.offered()
			continue
		}
		load += min(wanted(c), next.Rate)
	}
	if next.Rate >= most {
		next.Level, next.Rate = Normal, 0
	}
	return next, load
}

// wanted is the rate a camera asks for; those that want every frame send some thirty at most.
func wanted(c *Camera) float64 {
	if c.Wanted > 0 {
		return c.Wanted
	}
	return 30
}
