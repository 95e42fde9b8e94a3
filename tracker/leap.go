package tracker

import (
	"math"
	"time"
)

// How far an object may be from where it was first seen, in parts of the longer side of its box: by its speed, and at most.
// At low rates who walks leaves his place between two frames, and nothing of him overlaps.
const (
	leapSpeed = 8.0 // a second
	leapReach = 1.5
	leapFall  = 0.5 // up or down, of its height
)

// leap is the last round: it gives tracks that were seen once a detection that overlaps with nothing, when it is in reach, of
// the same size, and neither has another to go to. The frame is dt seconds after the one before.
func (e *elapsed) leap(dets []observation, at time.Duration, dt float64) {
	if dt <= shortStep.Seconds() {
		return
	}
	reach := min(leapReach, leapSpeed*dt)
	for _, o := range e.tracks {
		if o.confirmed || o.det >= 0 {
			continue
		}
		only := int32(-1)
		several := false
		for _, d := range e.rest {
			if !e.taken[d] && inReach(o, &dets[d], reach) {
				several = only >= 0
				only = d
			}
			if several {
				break
			}
		}
		if only < 0 || several || e.wanted(&dets[only], reach) > 1 {
			continue
		}
		d := &dets[only]
		if !alikeSize(o.obs.Width(), d.Width()) || !alikeSize(o.obs.Height(), d.Height()) {
			continue
		}
		dx, dy := (d.X1+d.X2-o.obs.X1-o.obs.X2)/2, (d.Y1+d.Y2-o.obs.Y1-o.obs.Y2)/2
		e.taken[only] = true
		e.take(o, d, at)
		lx, ly := lengths(d.Width(), d.Height(), &e.p)
		o.x.between(dx, dt, e.p.measure*lx)
		o.y.between(dy, dt, e.p.measure*ly)
		o.place()
	}
}

// inReach tells whether a detection may be an object that was not seen in this frame.
func inReach(o *object, d *observation, reach float64) bool {
	side := reach * max(o.obs.Width(), o.obs.Height())
	dx, dy := (d.X1+d.X2-o.obs.X1-o.obs.X2)/2, (d.Y1+d.Y2-o.obs.Y1-o.obs.Y2)/2
	return d.group == o.group && math.Abs(dx) <= side && math.Abs(dy) <= min(side, leapFall*o.obs.Height())
}

// wanted counts the objects not seen in this frame that a detection may be.
func (e *elapsed) wanted(d *observation, reach float64) (n int) {
	for _, o := range e.tracks {
		if o.det < 0 && inReach(o, d, reach) {
			n++
		}
	}
	return n
}
