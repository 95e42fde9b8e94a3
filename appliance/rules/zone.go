package rules

import (
	"maps"
	"math"
	"slices"
	"time"
)

// zoneFollower watches a zone.
type zoneFollower struct {
	*Zone
	visitors map[key]*visitor

	full      bool // as it was told
	fullSince time.Time
	changing  bool // the number inside says otherwise than full, since fullSince
}

// visitor is an object as one zone knows it. It enters when it has been inside for an inertia, and leaves when it has been
// outside for one and was clear of the zone meanwhile, unless the inertia is 0: who stands on the edge does not come and go.
type visitor struct {
	inside   bool      // as it counts
	other    bool      // it was last seen on the other side, since then
	since    time.Time // of other
	clear    bool      // it has been clear of the zone there
	entered  time.Time
	earlier  time.Duration // spent in visits before this one
	dwelt    bool          // was told of this visit
	loitered bool          // was told of this object
	score    float64
	seen     time.Time // the last time
	missed   time.Time // the first frame after it, in which it was not seen; zero: there was none
}

func newZoneFollower(z *Zone) *zoneFollower {
	return &zoneFollower{Zone: z, visitors: map[key]*visitor{}}
}

func (z *zoneFollower) subject() *Subject { return &z.Subject }

func (z *zoneFollower) keys() []key { return slices.SortedFunc(maps.Keys(z.visitors), compareKeys) }

func (z *zoneFollower) see(at time.Time, k key, o *Object, out []Event) []Event {
	v := z.visitors[k]
	if v == nil {
		v = &visitor{}
		z.visitors[k] = v
	}
	v.score, v.seen, v.missed = o.Score, at, time.Time{}
	p := z.anchor(o)
	if within(z.Polygon, p) == v.inside {
		v.other = false
		return z.stayed(at, k, v, out)
	}
	if !v.other {
		v.other, v.since, v.clear = true, at, z.Inertia == 0 || !v.inside
	}
	v.clear = v.clear || clearOfEdge(z.Polygon, p, o)
	if !v.clear || !z.settled(at.Sub(v.since)) {
		return out
	}
	v.other = false
	if v.inside {
		return z.leave(at, v.since, k, v, "", out)
	}
	v.inside, v.entered, v.dwelt = true, v.since, false
	e := z.event(ZoneEntered, at, v.since, k, v)
	return z.stayed(at, k, v, append(out, e))
}

// stayed tells what an object that is inside has reached by staying.
func (z *zoneFollower) stayed(at time.Time, k key, v *visitor, out []Event) []Event {
	if !v.inside {
		return out
	}
	spent := at.Sub(v.entered)
	if z.Dwell > 0 && !v.dwelt && spent >= z.Dwell {
		v.dwelt = true
		e := z.event(ZoneDwell, at, v.entered.Add(z.Dwell), k, v)
		e.Spent = spent
		out = append(out, e)
	}
	if z.Loitering > 0 && !v.loitered && v.earlier+spent >= z.Loitering {
		v.loitered = true
		e := z.event(ZoneLoitering, at, v.entered.Add(z.Loitering-v.earlier), k, v)
		e.Spent = v.earlier + spent
		out = append(out, e)
	}
	return out
}

func (z *zoneFollower) leave(at, since time.Time, k key, v *visitor, reason string, out []Event) []Event {
	v.inside = false
	spent := since.Sub(v.entered)
	v.earlier += spent
	e := z.event(ZoneLeft, at, since, k, v)
	e.Spent, e.Reason = spent, reason
	return append(out, e)
}

func (z *zoneFollower) lose(at time.Time, k key, reason string, out []Event) []Event {
	v := z.visitors[k]
	if v == nil {
		return out
	}
	delete(z.visitors, k)
	if !v.inside {
		return out
	}
	since := at
	switch {
	case v.other:
		since = v.since // it was last seen outside
	case reason == TrackEnded && !v.missed.IsZero():
		since = v.missed // where it was then nobody knows; before, in frames held back because nothing moved, it stayed
	}
	return z.leave(at, since, k, v, reason, out)
}

// settle notes who is missed, and tells when the zone has been full, or no longer full, for long enough.
func (z *zoneFollower) settle(at time.Time, out []Event) []Event {
	for _, v := range z.visitors {
		if v.missed.IsZero() && at.After(v.seen) {
			v.missed = at
		}
	}
	if z.Occupancy <= 0 {
		return out
	}
	if n := z.inside(); (n >= z.Occupancy) == z.full {
		z.changing = false
		return out
	}
	if !z.changing {
		z.changing, z.fullSince = true, at
	}
	if !z.settled(at.Sub(z.fullSince)) && len(z.visitors) > 0 {
		return out
	}
	z.full, z.changing = !z.full, false
	e := Event{Type: ZoneOccupied, Rule: z.ID, Time: at, Since: z.fullSince, Inside: z.inside()}
	if !z.full {
		e.Type = ZoneCleared
	}
	return append(out, e)
}

func (z *zoneFollower) event(kind string, at, since time.Time, k key, v *visitor) Event {
	return Event{
		Type: kind, Rule: z.ID, Time: at, Since: since, Sequence: k.sequence, Local: k.local, Class: k.class, Score: v.score, Inside: z.inside(),
	}
}

// inside counts tracks: one that changes its class for a moment is not two.
func (z *zoneFollower) inside() int {
	tracks := map[[2]int64]bool{}
	for k, v := range z.visitors {
		if v.inside {
			tracks[[2]int64{k.sequence, k.local}] = true
		}
	}
	return len(tracks)
}

// clearOfEdge tells whether an object is clear of the sides of a polygon.
func clearOfEdge(polygon []Point, p Point, o *Object) bool {
	w, h := o.X2-o.X1, o.Y2-o.Y1
	for i, j := 0, len(polygon)-1; i < len(polygon); j, i = i, i+1 {
		a, b := polygon[j], polygon[i]
		// In sizes of the object, with it in the middle.
		ax, ay, dx, dy := (a.X-p.X)/w, (a.Y-p.Y)/h, (b.X-a.X)/w, (b.Y-a.Y)/h
		t := min(max(-(ax*dx+ay*dy)/(dx*dx+dy*dy), 0), 1)
		if math.Hypot(ax+t*dx, ay+t*dy) < clearOf {
			return false
		}
	}
	return true
}

// within tells whether a point lies in a polygon (even-odd).
func within(polygon []Point, p Point) bool {
	in := false
	for i, j := 0, len(polygon)-1; i < len(polygon); j, i = i, i+1 {
		a, b := polygon[i], polygon[j]
		if (a.Y > p.Y) != (b.Y > p.Y) && p.X < (b.X-a.X)*(p.Y-a.Y)/(b.Y-a.Y)+a.X {
			in = !in
		}
	}
	return in
}
