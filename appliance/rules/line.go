package rules

import (
	"maps"
	"math"
	"slices"
	"time"
)

// lineFollower watches a line.
type lineFollower struct {
	*Line
	walkers map[key]*walker
}

// The sides of a line. On the line itself an object stays on the side it was on.
type side int8

const (
	unknown side = iota
	left
	right
)

// walker is an object as one line knows it.
//
// Its confirmed side changes only after it has been on the other one for an inertia without a break, and clear of the line
// meanwhile, unless the inertia is 0; that change is a crossing only when the step over the line went between its ends. So
// a path that flickers across the line counts nothing, nor does who stands on it, and crossings of one object take turns
// unless it goes round an end.
type walker struct {
	home      side // where it was first seen
	confirmed side
	other     side      // where it was last seen, when that is not confirmed
	since     time.Time // of other
	through   bool      // the step to other went between the ends
	clear     bool      // it has been clear of the line there

	place   Point // the last one off the line
	at      side  // of place
	touched bool  // it was on the line since
	touch   Point // where, the last time
	score   float64
}

func newLineFollower(l *Line) *lineFollower {
	return &lineFollower{Line: l, walkers: map[key]*walker{}}
}

func (l *lineFollower) subject() *Subject { return &l.Subject }

func (l *lineFollower) keys() []key { return slices.SortedFunc(maps.Keys(l.walkers), compareKeys) }

// lose lets a walker go. One that was on its way back to the side it came from has come back: otherwise its first
// crossing would stay without its second. One that was last seen clear of the line has crossed it: whoever is fast, or
// leaves the picture behind the line, is seen there once.
func (l *lineFollower) lose(at time.Time, k key, reason string, out []Event) []Event {
	w := l.walkers[k]
	if w == nil {
		return out
	}
	delete(l.walkers, k)
	if w.other == unknown || !w.through || (w.other != w.home && !w.clear) {
		return out
	}
	return append(out, l.crossing(at, k, w, reason))
}

func (l *lineFollower) settle(_ time.Time, out []Event) []Event { return out }

func (l *lineFollower) see(at time.Time, k key, o *Object, out []Event) []Event {
	w := l.walkers[k]
	if w == nil {
		w = &walker{}
		l.walkers[k] = w
	}
	w.score = o.Score
	p := l.anchor(o)
	s := l.side(p)
	if s == unknown { // exactly on the line
		w.touched, w.touch = true, p
		s = w.at
	} else {
		if w.at != unknown && s != w.at {
			w.through = l.between(w.step(p))
			w.other, w.since, w.clear = s, at, false
		}
		w.place, w.at, w.touched = p, s, false
		w.clear = w.clear || l.Inertia == 0 || l.away(p, o) >= clearOf
	}
	switch {
	case s == unknown:
		return out
	case w.confirmed == unknown:
		// The side it comes from is where it is first seen, however briefly: nothing counts by that.
		w.confirmed, w.home = s, s
		return out
	case s == w.confirmed:
		w.other = unknown
		return out
	case !w.clear || !l.settled(at.Sub(w.since)):
		return out
	}
	if w.through {
		out = append(out, l.crossing(at, k, w, ""))
	}
	w.confirmed, w.other = s, unknown
	return out
}

// crossing is the event of a walker that goes to the other side.
func (l *lineFollower) crossing(at time.Time, k key, w *walker, reason string) Event {
	e := Event{
		Type: LineCrossed, Rule: l.ID, Time: at, Since: w.since, Sequence: k.sequence, Local: k.local, Class: k.class, Score: w.score,
		Direction: Forward, Reason: reason,
	}
	if w.other == left {
		e.Direction = Backward
	}
	return e
}

// step is the walker's way over the line: where it was on it, or the whole step.
func (w *walker) step(to Point) (from, until Point) {
	if w.touched {
		return w.touch, w.touch
	}
	return w.place, to
}

// onLine is how near the line, in fractions of the picture times the line's length, counts as on it.
const onLine = 1e-9

// turn is positive for points on the right of the line (y grows downwards).
func (l *Line) turn(p Point) float64 {
	return (l.To.X-l.From.X)*(p.Y-l.From.Y) - (l.To.Y-l.From.Y)*(p.X-l.From.X)
}

func (l *Line) side(p Point) side {
	switch d := l.turn(p); {
	case d > onLine:
		return right
	case d < -onLine:
		return left
	}
	return unknown
}

// clearOf is how far from a line or the edge of a zone an object is clear of it, in sizes of its own: boxes of whoever stands
// still move by less.
const clearOf = 0.2

// away is how far from the line an object is, in sizes of its own across the line.
func (l *Line) away(p Point, o *Object) float64 {
	size := math.Abs(l.To.X-l.From.X)*(o.Y2-o.Y1) + math.Abs(l.To.Y-l.From.Y)*(o.X2-o.X1)
	return math.Abs(l.turn(p)) / size
}

// between tells whether a step meets the line between its ends.
func (l *Line) between(from, until Point) bool {
	a, b := l.turn(from), l.turn(until)
	meet := from
	if a != b {
		t := a / (a - b)
		meet = Point{X: from.X + t*(until.X-from.X), Y: from.Y + t*(until.Y-from.Y)}
	}
	dx, dy := l.To.X-l.From.X, l.To.Y-l.From.Y
	along := ((meet.X-l.From.X)*dx + (meet.Y-l.From.Y)*dy) / (dx*dx + dy*dy)
	return along >= 0 && along <= 1
}
