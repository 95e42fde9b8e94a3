package tracker

import (
	"math"
	"slices"
)

// alike estimates how all objects moved alike beyond what each one's own
// motion explains, as they do when the camera turns or shakes.
type alike struct {
	columns   columns
	seen      []int32 // tracks seen until now
	bestTrack []int32
	bestDet   []int32
	bestSim   []float64
	dx, dy    []float64 // of each pair, pixels
	vx, vy    float64   // pixels a second, at the last frame
}

const (
	alikePasses  = 2
	alikeStill   = 0.01 // heights: less than this is no motion
	alikeLeast   = 4    // pairs that must show it
	alikeOverlap = 0.3  // of a pair
)

// moveAlike moves every prediction by the motion common to all: first by a
// share of what it was at the frame before, then twice by what is seen now,
// since the first move brings more pairs together.
func (e *elapsed) moveAlike(dets []observation, dt float64) {
	c := &e.alike
	dx, dy := e.p.carry*c.vx*dt, e.p.carry*c.vy*dt
	e.moveAll(dx, dy)
	if len(e.tracks) < alikeLeast || len(e.high) < alikeLeast {
		c.vx, c.vy = 0, 0
		return
	}
	c.columns.build(dets, e.high)
	e.pairs(dets)
	if x, y, ok := e.jump(dets); ok {
		e.moveAll(x, y)
		dx, dy = dx+x, dy+y
		e.pairs(dets)
	}
	for pass := range alikePasses {
		if pass > 0 {
			e.pairs(dets)
		}
		if len(c.dx) < alikeLeast {
			break
		}
		x, y := e.p.common*consensus(c.dx, e.p.agree), e.p.common*consensus(c.dy, e.p.agree)
		e.moveAll(x, y)
		dx, dy = dx+x, dy+y
		if math.Abs(x)+math.Abs(y) < alikeStill*e.tracks[0].box.Height() {
			break // the pairs would be the same
		}
	}
	switch {
	case dt > longStep.Seconds():
		c.vx, c.vy = 0, 0
	case dt > shortStep.Seconds():
		c.vx, c.vy = dx/dt, dy/dt
	}
}

// jump finds a motion so large that few objects overlap with where they were:
// a camera that swings, or looks rarely. Each pair of a track and a detection
// of its size proposes a motion; one that explains most tracks, and many more
// than standing still does, is taken.
func (e *elapsed) jump(dets []observation) (dx, dy float64, ok bool) {
	c := &e.alike
	c.seen = c.seen[:0]
	for i, o := range e.tracks {
		if o.misses == 0 {
			c.seen = append(c.seen, int32(i))
		}
	}
	if len(c.seen) < alikeLeast || 2*len(c.dx) >= len(c.seen) {
		return 0, 0, false
	}
	c.seen = c.seen[:min(len(c.seen), jumpVoters)]
	still := e.support(dets, 0, 0, 0)
	if 2*still >= len(c.seen) {
		return 0, 0, false
	}
	best := max(alikeLeast-1, (6*len(c.seen)-1)/10, 2*still)
	proposals := 0
	for _, i := range c.seen[:min(len(c.seen), jumpProposers)] {
		o := e.tracks[i]
		w, h := o.box.Width(), o.box.Height()
		for _, d := range e.high {
			det := &dets[d]
			x, y := (det.X1+det.X2-o.box.X1-o.box.X2)/2, (det.Y1+det.Y2-o.box.Y1-o.box.Y2)/2
			if det.group != o.group || math.Abs(x) > jumpReach*h || math.Abs(y) > jumpReach*h ||
				!alikeSize(w, det.Width()) || !alikeSize(h, det.Height()) {
				continue
			}
			if proposals++; proposals > jumpProposals {
				return dx, dy, ok
			}
			if n := e.support(dets, x, y, best); n > best {
				best, dx, dy, ok = n, x, y, true
			}
		}
	}
	return dx, dy, ok
}

const (
	jumpProposers = 8   // tracks that propose
	jumpProposals = 300 // looked at
	jumpVoters    = 40  // tracks that vote
	jumpOverlap   = 0.4
	jumpReach     = 2.5 // heights of the proposing track
)

func alikeSize(a, b float64) bool { return a < 1.25*b && b < 1.25*a }

// support counts the seen tracks that find a detection when moved; it may stop
// when they cannot be more than a number any longer.
func (e *elapsed) support(dets []observation, dx, dy float64, most int) int {
	c := &e.alike
	n := 0
	for at, i := range c.seen {
		if n+len(c.seen)-at <= most {
			break
		}
		o := e.tracks[i]
		box := Box{o.box.X1 + dx, o.box.Y1 + dy, o.box.X2 + dx, o.box.Y2 + dy}
		area := box.Width() * box.Height()
		for _, j := range c.columns.near(box.X1, box.X2) {
			d := &dets[e.high[j]]
			if d.group == o.group && overlap(&box, &d.Box, area, d.Width()*d.Height(), 0) > jumpOverlap {
				n++
				break
			}
		}
	}
	return n
}

func (e *elapsed) moveAll(dx, dy float64) {
	if dx == 0 && dy == 0 {
		return
	}
	for _, o := range e.tracks {
		o.x.pos += dx
		o.y.pos += dy
		o.place()
	}
}

// pairs finds tracks and detections that are each other's best, and what lies
// between them.
func (e *elapsed) pairs(dets []observation) {
	c := &e.alike
	c.bestTrack = refill(c.bestTrack, len(e.high), -1)
	c.bestSim = refill(c.bestSim, len(e.high), alikeOverlap)
	c.bestDet = refill(c.bestDet, len(e.tracks), -1)
	for i, o := range e.tracks {
		if o.misses > 0 {
			continue
		}
		area, best := o.box.Width()*o.box.Height(), alikeOverlap
		for _, j := range c.columns.near(o.box.X1, o.box.X2) {
			d := &dets[e.high[j]]
			if d.group != o.group {
				continue
			}
			sim := overlap(&o.box, &d.Box, area, d.Width()*d.Height(), 0)
			if sim > best {
				best, c.bestDet[i] = sim, j
			}
			if sim > c.bestSim[j] {
				c.bestSim[j], c.bestTrack[j] = sim, int32(i)
			}
		}
	}
	c.dx, c.dy = c.dx[:0], c.dy[:0]
	for i, j := range c.bestDet {
		if j < 0 || c.bestTrack[j] != int32(i) {
			continue
		}
		det, box := &dets[e.high[j]].Box, &e.tracks[i].box
		c.dx = append(c.dx, (det.X1+det.X2-box.X1-box.X2)/2)
		c.dy = append(c.dy, (det.Y1+det.Y2-box.Y1-box.Y2)/2)
	}
}

// consensus is the median of the values, made smaller the more they differ
// from it: what is common to all is not what half of them do. It reorders v.
func consensus(v []float64, weight float64) float64 {
	m := median(v)
	if m == 0 {
		return 0
	}
	for i := range v {
		v[i] = math.Abs(v[i] - m)
	}
	spread := median(v)
	return m * m * m / (m*m + weight*spread*spread)
}

// median reorders v.
func median(v []float64) float64 {
	slices.Sort(v)
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}
