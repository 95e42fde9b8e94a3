// Package rules turns what is seen into what happened: objects that enter, stay in and leave zones, and cross lines.
//
// The package is pure. Time comes with every frame, nothing here reads a clock, starts a goroutine or does I/O; the
// same frames always give the same events. Every wait is in time, not in frames, so that a rule means the same at any
// frame rate.
//
// Places are fractions of the picture: 0,0 is the upper left corner, 1,1 the lower right one.
package rules

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Point is a place in the picture.
type Point struct{ X, Y float64 }

// Object is one followed thing in one frame.
type Object struct {
	// Sequence and Local name its track; together they are never used again.
	Sequence, Local int64
	Class           string
	Score           float64
	// The box: X1 <= X2, Y1 <= Y2.
	X1, Y1, X2, Y2 float64
}

// Subject is what every rule says about the objects it looks at. The zero value looks at all of them, always.
type Subject struct {
	// ID names the rule in its events, and Revision tells it from what it was before a change.
	ID, Revision string
	// Center: the middle of the box stands for the object; otherwise the middle of its lower edge does.
	Center bool
	// Classes, empty: every class.
	Classes []string
	// MinScore: what is seen with less is not seen.
	MinScore float64
	// Inertia is how long an object must be on the other side before that counts; 0: at once, however near. A twentieth less
	// will do: frames do not come to the millisecond.
	Inertia time.Duration
	// Schedule, nil: always.
	Schedule *Schedule
}

// Zone is a part of the picture.
type Zone struct {
	Subject
	// Polygon has at least three corners.
	Polygon []Point
	// Dwell: an object inside for that long without a break is told; 0: never.
	Dwell time.Duration
	// Loitering: an object whose visits add up to that is told; 0: never.
	Loitering time.Duration
	// Occupancy: that many objects inside, and no longer, is told; 0: never.
	Occupancy int
}

// Line has a right and a left side, as seen by somebody who stands on From and looks at To. Forward is from its left
// to its right. Whoever goes round its ends does not cross it.
type Line struct {
	Subject
	From, To Point
}

// Set is what is watched of one camera. An Engine keeps it; it must not be changed any more.
type Set struct {
	Zones []Zone
	Lines []Line
}

// Event is something that happened.
type Event struct {
	// Type is one of the constants of this package.
	Type string
	// Rule is the id of the zone or line.
	Rule string
	// Time is that of the frame that settled it; Since is when it really began, an inertia earlier.
	Time, Since time.Time
	// Sequence and Local name the track; 0 when it is about no single one.
	Sequence, Local int64
	Class           string
	Score           float64
	// Direction of a crossing: Forward or Backward.
	Direction string
	// Spent is how long the object was in the zone: in this visit (left, dwell), or in all (loitering).
	Spent time.Duration
	// Inside is how many objects are in the zone after the event.
	Inside int
	// Reason is why an object counts as gone although it was not seen leaving: TrackEnded, RuleChanged, OffSchedule.
	Reason string
}

// Types of events, directions and reasons.
const (
	ZoneEntered   = "zone_entered"
	ZoneLeft      = "zone_left"
	ZoneDwell     = "zone_dwell"
	ZoneLoitering = "zone_loitering"
	ZoneOccupied  = "zone_occupied"
	ZoneCleared   = "zone_cleared"
	LineCrossed   = "line_crossed"

	Forward  = "forward"
	Backward = "backward"

	TrackEnded  = "track_ended"
	RuleChanged = "rule_changed"
	OffSchedule = "off_schedule"
)

// follower is a rule at work.
type follower interface {
	subject() *Subject
	see(at time.Time, k key, o *Object, out []Event) []Event
	// settle is called once a frame, after all objects.
	settle(at time.Time, out []Event) []Event
	// lose forgets one object, for the reason given.
	lose(at time.Time, k key, reason string, out []Event) []Event
	// keys are the objects that are known.
	keys() []key
}

// key tells objects apart. A class is part of it: what was one class's past never becomes another's.
type key struct {
	sequence, local int64
	class           string
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.sequence, b.sequence), cmp.Compare(a.local, b.local), cmp.Compare(a.class, b.class))
}

// Engine applies the rules of one camera. One goroutine may use it at a time. It knows a track until it is told that
// the track is over, however long nothing is seen: frames may be held back while nothing moves.
type Engine struct {
	followers []follower
	last      map[key]time.Time
	now       time.Time
}

// New returns an engine that has seen nothing.
func New(set Set) *Engine {
	e := &Engine{last: map[key]time.Time{}}
	e.Change(set)
	return e
}

// Change puts other rules in place. Rules with the same id and revision go on; those that end let go of their objects,
// which gives events.
func (e *Engine) Change(set Set) []Event {
	type name struct{ id, revision string }
	old := map[name]follower{}
	for _, f := range e.followers {
		old[name{f.subject().ID, f.subject().Revision}] = f
	}
	e.followers = nil
	keep := func(s *Subject, fresh follower) {
		n := name{s.ID, s.Revision}
		if f := old[n]; f != nil {
			delete(old, n)
			fresh = f
		}
		e.followers = append(e.followers, fresh)
	}
	for i := range set.Zones {
		keep(&set.Zones[i].Subject, newZoneFollower(&set.Zones[i]))
	}
	for i := range set.Lines {
		keep(&set.Lines[i].Subject, newLineFollower(&set.Lines[i]))
	}
	var out []Event
	for _, n := range slices.SortedFunc(maps.Keys(old), func(a, b name) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.revision, b.revision)) }) {
		out = dismiss(old[n], e.now, RuleChanged, out)
	}
	return out
}

func dismiss(f follower, at time.Time, reason string, out []Event) []Event {
	for _, k := range f.keys() {
		out = f.lose(at, k, reason, out)
	}
	return f.settle(at, out)
}

// Observe takes the objects of one frame, which may be none. Times should not go back; one that does counts as the
// latest before it.
func (e *Engine) Observe(at time.Time, objects []Object) []Event {
	at = e.advance(at)
	var out []Event
	for i := range objects {
		o := &objects[i]
		e.last[key{o.Sequence, o.Local, o.Class}] = at
	}
	for _, f := range e.followers {
		s := f.subject()
		if s.Schedule != nil && !s.Schedule.Active(at) {
			out = dismiss(f, at, OffSchedule, out)
			continue
		}
		for i := range objects {
			if o := &objects[i]; s.looksAt(o) {
				out = f.see(at, key{o.Sequence, o.Local, o.Class}, o, out)
			}
		}
		out = f.settle(at, out)
	}
	return out
}

// End says that a track is over.
func (e *Engine) End(sequence, local int64, at time.Time) []Event {
	return e.end(at, func(k key) bool { return k.sequence == sequence && k.local == local })
}

// EndSequence says that all tracks of a sequence are over.
func (e *Engine) EndSequence(sequence int64, at time.Time) []Event {
	return e.end(at, func(k key) bool { return k.sequence == sequence })
}

func (e *Engine) end(at time.Time, over func(key) bool) []Event {
	at = e.advance(at)
	var out []Event
	for k := range e.sortedLast() {
		if over(k) {
			out = e.forget(k, at, out)
		}
	}
	for _, f := range e.followers {
		out = f.settle(at, out)
	}
	if len(e.last) == 0 {
		e.now = time.Time{} // the next stream may have another clock
	}
	return out
}

func (e *Engine) advance(at time.Time) time.Time {
	if at.After(e.now) {
		e.now = at
	}
	return e.now
}

func (e *Engine) forget(k key, at time.Time, out []Event) []Event {
	delete(e.last, k)
	for _, f := range e.followers {
		out = f.lose(at, k, TrackEnded, out)
	}
	return out
}

// sortedLast goes through what is known in a fixed order.
func (e *Engine) sortedLast() func(yield func(key, time.Time) bool) {
	keys := slices.SortedFunc(maps.Keys(e.last), compareKeys)
	return func(yield func(key, time.Time) bool) {
		for _, k := range keys {
			if !yield(k, e.last[k]) {
				return
			}
		}
	}
}

// settled tells whether something has been so for the inertia.
func (s *Subject) settled(d time.Duration) bool { return d >= s.Inertia-s.Inertia/20 }

func (s *Subject) looksAt(o *Object) bool {
	return o.Score >= s.MinScore && (len(s.Classes) == 0 || slices.Contains(s.Classes, o.Class))
}

func (s *Subject) anchor(o *Object) Point {
	p := Point{X: (o.X1 + o.X2) / 2, Y: o.Y2}
	if s.Center {
		p.Y = (o.Y1 + o.Y2) / 2
	}
	return p
}
