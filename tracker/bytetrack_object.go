package tracker

import "time"

// byteState is a track's state in the published algorithm. A track that was
// removed can be found again one frame later, so it keeps its data.
type byteState int8

const (
	byteTracked byteState = iota
	byteLost
	byteRemoved
)

// byteObject is one object of the conformance mode.
type byteObject struct {
	id        int64
	x, y      axis // centre
	a, h      axis // width over height; height
	score     float64
	class     int
	group     int
	state     byteState
	activated bool
	reported  bool
	removed   bool // was put among the removed in an earlier frame
	removing  bool // was put among the removed in this frame
	listed    bool // scratch: already in the list being built
	frame     int  // last matched
	started   int
	start     time.Duration
	last      time.Duration
	det       int
	box       Box // of the state, kept for association
}

func (o *byteObject) begin(d *observation, id int64, frame int, at time.Duration) {
	w, h := d.Width(), d.Height()
	*o = byteObject{
		id: id, score: d.score, class: d.class, group: d.group, det: d.index,
		activated: frame == 1, frame: frame, started: frame, start: at, last: at,
	}
	o.x.start(d.X1+w/2, h/10, h/16)
	o.y.start(d.Y1+h/2, h/10, h/16)
	o.a.start(w/h, 1e-2, 1e-5)
	o.h.start(h, h/10, h/16)
	o.place()
}

func (o *byteObject) predict() {
	if o.state != byteTracked {
		o.h.vel = 0
	}
	h := o.h.pos
	o.x.step(h/20, h/160)
	o.y.step(h/20, h/160)
	o.a.step(1e-2, 1e-5)
	o.h.step(h/20, h/160)
	o.place()
}

func (o *byteObject) correct(d *observation) {
	w, h := d.Width(), d.Height()
	std := o.h.pos / 20
	o.x.correct(d.X1+w/2, std)
	o.y.correct(d.Y1+h/2, std)
	o.a.correct(w/h, 1e-1)
	o.h.correct(h, std)
	o.score, o.class, o.det = d.score, d.class, d.index
	o.place()
}

// place keeps the box of the state.
func (o *byteObject) place() {
	h := o.h.pos
	w := o.a.pos * h
	x, y := o.x.pos-w/2, o.y.pos-h/2
	o.box = Box{x, y, x + w, y + h}
}

func (o *byteObject) public() Track {
	state := Tracked
	if o.state != byteTracked {
		state = Lost
	}
	return Track{
		ID: o.id, Box: o.box, Score: o.score, Class: o.class, State: state,
		Start: o.start, Last: o.last, Detection: o.det,
	}
}
