package tracker

import (
	"math"
	"time"
)

// object is one object of the default mode.
type object struct {
	id         int64
	x, y, w, h axis // centre and size
	box        Box  // predicted for now, or corrected
	obs        Box  // as last observed
	score      float64
	group      int
	class      classVote
	unseen     time.Duration // since last seen, without holds
	misses     int
	hits       int
	confirmed  bool
	reported   bool
	start      time.Duration
	last       time.Duration
	det        int
}

func (o *object) public(s State) Track {
	return Track{
		ID: o.id, Box: o.obs, Score: o.score, Class: o.class.best(), State: s,
		Start: o.start, Last: o.last, Detection: o.det,
	}
}

func (o *object) begin(d *observation, id int64, at time.Duration, p *tuning) {
	*o = object{
		id: id, obs: d.Box, box: d.Box, score: d.score, group: d.group, det: d.index,
		hits: 1, start: at, last: at,
	}
	o.class.add(d.class, d.score)
	w, h := d.Width(), d.Height()
	lx, ly := lengths(w, h, p)
	o.x.start(d.X1+w/2, 2*p.measure*lx, p.startVel*lx)
	o.y.start(d.Y1+h/2, 2*p.measure*ly, p.startVel*ly)
	o.w.start(w, 2*p.measure*lx, p.startVel*lx)
	o.h.start(h, 2*p.measure*ly, p.startVel*ly)
}

// lengths are the yardsticks of noise along x and y.
func lengths(w, h float64, p *tuning) (x, y float64) {
	return w + p.mix*(h-w), h
}

const (
	// longStep is the step from which nobody walks straight on.
	longStep = time.Second
	// shortStep is the step up to which no speed can be seen: frames stamped when they arrive may
	// lie closer than they were taken, and a motion over almost no time is any speed.
	shortStep = 10 * time.Millisecond
)

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// predict moves the object on by its own speed. A fading speed is that of an
// object nobody looked at meanwhile: it may have stopped or turned.
func (o *object) predict(dt float64, p *tuning, fading bool) {
	if dt <= 0 {
		return
	}
	lx, ly := lengths(o.w.pos, o.h.pos, p)
	if o.misses > 0 {
		o.w.vel, o.h.vel = 0, 0
	}
	damp := 0.0
	if fading {
		damp = p.damp
	}
	o.x.advance(dt, p.noisePos*lx, p.noiseVel*lx, damp)
	o.y.advance(dt, p.noisePos*ly, p.noiseVel*ly, damp)
	o.w.advance(dt, p.noiseSize*lx, p.noiseGrow*lx, damp)
	o.h.advance(dt, p.noiseSize*ly, p.noiseGrow*ly, damp)
	o.w.pos = min(max(o.w.pos, 0.2*o.obs.Width()), 5*o.obs.Width())
	o.h.pos = min(max(o.h.pos, 0.2*o.obs.Height()), 5*o.obs.Height())
	o.place()
}

// place puts the box where the state says.
func (o *object) place() {
	w, h := o.w.pos, o.h.pos
	o.box = Box{o.x.pos - w/2, o.y.pos - h/2, o.x.pos + w/2, o.y.pos + h/2}
}

func (o *object) correct(d *observation, at time.Duration, p *tuning) {
	w, h := d.Width(), d.Height()
	lx, ly := lengths(w, h, p)
	o.x.correct(d.X1+w/2, p.measure*lx)
	o.y.correct(d.Y1+h/2, p.measure*ly)
	o.w.correct(w, p.measure*lx)
	o.h.correct(h, p.measure*ly)
	o.score = d.score
	o.class.add(d.class, d.score)
	o.obs, o.det, o.last = d.Box, d.index, at
	o.unseen, o.misses = 0, 0
	o.place()
}

// advance predicts dt seconds ahead: noise grows with time, so that two short
// steps leave the same uncertainty as one long step.
func (a *axis) advance(dt, noisePos, noiseVel, damp float64) {
	qp, qv := noisePos*noisePos, noiseVel*noiseVel
	move := dt
	if damp > 0 {
		f := math.Exp(-dt / damp)
		move = damp * (1 - f)
		a.pos += a.vel * move
		a.vel *= f
	} else {
		a.pos += a.vel * dt
	}
	a.pp += 2*move*a.pv + move*move*a.vv + qp*dt + qv*dt*dt*dt/3
	a.pv += move*a.vv + qv*dt*dt/2
	a.vv += qv * dt
}

// classVote decides a track's class by the scores seen for each.
type classVote struct {
	class  [4]int
	weight [4]float64
}

func (v *classVote) add(class int, score float64) {
	least := 0
	for i := range v.class {
		v.weight[i] *= 0.98
		if v.weight[i] > 0 && v.class[i] == class {
			v.weight[i] += max(score, 1e-3)
			return
		}
		if v.weight[i] < v.weight[least] {
			least = i
		}
	}
	v.class[least], v.weight[least] = class, max(score, 1e-3)
}

func (v *classVote) best() int {
	at := 0
	for i := range v.class {
		if v.weight[i] > v.weight[at] {
			at = i
		}
	}
	return v.class[at]
}
