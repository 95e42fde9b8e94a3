package tracker

import (
	"math"
	"time"

	"github.com/vedette/vedette/tracker/internal/assign"
)

// elapsed is the engine of the default mode.
type elapsed struct {
	p          tuning
	reportLost bool

	lastID int64
	began  bool
	now    time.Duration // time of the last call
	held   time.Duration // since the last frame
	frames int64

	tracks []*object // confirmed or not, seen or lost
	free   []*object
	ended  []Ended

	assign  assign.Solver
	columns columns

	// Scratch of one update.
	high, low, rest []int32
	taken           []bool
	weight          []float64 // power of each detection's score
	pool            []*object
	alike           alike
}

func newElapsed(p tuning, reportLost bool) *elapsed {
	return &elapsed{p: p, reportLost: reportLost}
}

func (e *elapsed) identities() int64 { return e.lastID }

func (e *elapsed) hold(at time.Duration) {
	if e.began {
		e.held += at - e.now
	}
	e.now = at
}

func (e *elapsed) closeAll(time.Duration) {
	for _, o := range e.tracks {
		e.end(o, EndClosed)
	}
	e.tracks = e.tracks[:0]
}

func (e *elapsed) drainEnded(out []Ended) []Ended {
	out = append(out, e.ended...)
	e.ended = e.ended[:0]
	return out
}

func (e *elapsed) update(at time.Duration, dets []observation, out []Track) []Track {
	dt := e.pass(at)
	e.split(dets)
	e.moveAlike(dets, dt)
	e.round(dets, e.high, at, first)
	e.round(dets, e.low, at, second)
	if e.p.wide > 0 {
		e.remaining()
		e.round(dets, e.rest, at, third)
	}
	e.remaining()
	e.round(dets, e.rest, at, fourth)
	e.leap(dets, at, dt)
	e.begin(dets, at)
	e.prune()
	return e.report(out)
}

// pass lets the time since the last call go by.
func (e *elapsed) pass(at time.Duration) (seconds float64) {
	var dt time.Duration
	if e.began {
		dt = at - e.now
	}
	e.began, e.now = true, at
	e.frames++
	if dt > milliseconds(e.p.gapMs) {
		for _, o := range e.tracks {
			e.end(o, EndGap)
		}
		e.tracks = e.tracks[:0]
	}
	for _, o := range e.tracks {
		o.unseen += dt
		o.det = -1
		if e.held > 0 {
			o.predict(e.held.Seconds(), &e.p, true)
		}
		o.predict(dt.Seconds(), &e.p, o.misses > 0 || dt > longStep)
	}
	seconds = (dt + e.held).Seconds()
	e.held = 0
	return seconds
}

func (e *elapsed) split(dets []observation) {
	e.high, e.low = e.high[:0], e.low[:0]
	e.taken = refill(e.taken, len(dets), false)
	e.weight = refill(e.weight, len(dets), 1)
	for i := range dets {
		if e.p.fuse != 0 {
			e.weight[i] = math.Pow(min(1, max(0, dets[i].score)), e.p.fuse)
		}
		switch s := dets[i].score; {
		case s >= e.p.high:
			e.high = append(e.high, int32(i))
		case s >= e.p.low:
			e.low = append(e.low, int32(i))
		}
	}
}

// remaining lists the trusted detections not taken yet.
func (e *elapsed) remaining() {
	e.rest = e.rest[:0]
	for _, d := range e.high {
		if !e.taken[d] {
			e.rest = append(e.rest, d)
		}
	}
}

// stage is a round of matching.
type stage int8

const (
	first  stage = iota // all confirmed tracks, trusted detections
	second              // tracks seen until now, doubtful detections
	third               // what is left of the first, with wider boxes
	fourth              // tracks not yet confirmed, what is left of the trusted
)

func (e *elapsed) round(dets []observation, chosen []int32, at time.Duration, s stage) {
	e.pool = e.pool[:0]
	for _, o := range e.tracks {
		if o.det < 0 && e.open(o, s) {
			e.pool = append(e.pool, o)
		}
	}
	if len(e.pool) == 0 || len(chosen) == 0 {
		return
	}
	limit := [...]float64{e.p.first, e.p.second, e.p.third, e.p.tentative}[s]
	e.assign.Reset(len(e.pool), len(chosen))
	e.columns.build(dets, chosen)
	for i, o := range e.pool {
		l := e.looker(o, s)
		for _, j := range e.columns.near(o.box.X1-l.reachX, o.box.X2+l.reachX) {
			d := chosen[j]
			det := &dets[d]
			if det.X1-l.reachX >= o.box.X2 || det.X2+l.reachX <= o.box.X1 || det.group != o.group {
				continue
			}
			if sim := l.similarity(det, e.weight[d]); sim > limit {
				e.assign.Add(i, int(j), sim-limit)
			}
		}
	}
	e.assign.Solve()
	for i, o := range e.pool {
		if j := e.assign.Rows[i]; j >= 0 {
			d := chosen[j]
			e.taken[d] = true
			e.take(o, &dets[d], at)
		}
	}
}

func (e *elapsed) open(o *object, s stage) bool {
	switch s {
	case first, third:
		return o.confirmed
	case second:
		return o.confirmed && o.misses == 0
	default:
		return !o.confirmed
	}
}

func (e *elapsed) take(o *object, d *observation, at time.Duration) {
	o.correct(d, at, &e.p)
	o.hits++
	o.confirmed = o.confirmed || float64(o.hits) >= e.p.confirm
}

// begin makes new tracks of trusted detections that nothing explains.
func (e *elapsed) begin(dets []observation, at time.Duration) {
	for _, d := range e.rest {
		det := &dets[d]
		if e.taken[d] || det.score < e.p.fresh || e.explained(det) {
			continue
		}
		e.lastID++
		o := e.obtain()
		o.begin(det, e.lastID, at, &e.p)
		o.confirmed = e.frames == 1 || e.p.confirm <= 1
		e.tracks = append(e.tracks, o)
	}
}

// explained tells whether a detection is a second one of a matched object.
func (e *elapsed) explained(d *observation) bool {
	if e.p.freshIoU >= 1 {
		return false
	}
	area := d.Width() * d.Height()
	for _, o := range e.tracks {
		if o.det >= 0 && o.group == d.group &&
			overlap(&o.obs, &d.Box, o.obs.Width()*o.obs.Height(), area, 0) > e.p.freshIoU {
			return true
		}
	}
	return false
}

// prune ends what was not seen for too long, and lost tracks in the place of
// followed ones.
func (e *elapsed) prune() {
	kept := e.tracks[:0]
	for _, o := range e.tracks {
		if o.det >= 0 {
			kept = append(kept, o)
			continue
		}
		o.misses++
		switch {
		case !o.confirmed:
			e.release(o)
		case o.unseen > milliseconds(e.p.lostMs) && o.misses > 1:
			e.end(o, EndLost)
		default:
			kept = append(kept, o)
		}
	}
	e.tracks = kept
	e.dropDuplicates()
}

func (e *elapsed) dropDuplicates() {
	kept := e.tracks[:0]
	for _, o := range e.tracks {
		if o.det < 0 && e.duplicated(o) {
			e.end(o, EndDuplicate)
		} else {
			kept = append(kept, o)
		}
	}
	e.tracks = kept
}

func (e *elapsed) duplicated(o *object) bool {
	area := o.box.Width() * o.box.Height()
	for _, q := range e.tracks {
		if q.det >= 0 && q.group == o.group && q.hits > 1 && q.last-q.start > o.last-o.start &&
			overlap(&q.obs, &o.box, q.obs.Width()*q.obs.Height(), area, 0) > e.p.duplicate {
			return true
		}
	}
	return false
}

func (e *elapsed) report(out []Track) []Track {
	for _, o := range e.tracks {
		switch {
		case o.det >= 0 && o.confirmed:
			o.reported = true
			out = append(out, o.public(Tracked))
		case e.reportLost && o.reported:
			t := o.public(Lost)
			t.Box = o.box
			out = append(out, t)
		}
	}
	return out
}

func (e *elapsed) obtain() *object {
	if n := len(e.free); n > 0 {
		o := e.free[n-1]
		e.free = e.free[:n-1]
		return o
	}
	return new(object)
}

func (e *elapsed) end(o *object, why EndReason) {
	if o.reported {
		t := o.public(Lost)
		t.Detection = -1
		e.ended = append(e.ended, Ended{Track: t, Reason: why})
	}
	e.release(o)
}

func (e *elapsed) release(o *object) {
	*o = object{}
	e.free = append(e.free, o)
}
