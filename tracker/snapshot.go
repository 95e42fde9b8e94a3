package tracker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// snapshotMagic opens every snapshot; its last byte is the layout's version.
const snapshotMagic = "VTRK\x01"

var errSnapshot = errors.New("tracker snapshot: truncated or damaged")

// MarshalBinary returns the tracker's whole state, for a planned reload: a
// tracker of the same Config that is given it goes on as this one would.
func (t *Tracker) MarshalBinary() ([]byte, error) {
	w := &writer{buf: []byte(snapshotMagic)}
	w.int(int64(t.cfg.Mode))
	w.bool(t.seen)
	w.int(int64(t.given))
	w.int(int64(t.now))
	for _, n := range t.stats.fields() {
		w.int(*n)
	}
	t.engine.snapshot(w)
	return w.buf, nil
}

// UnmarshalBinary replaces the tracker's state by a snapshot's. On an error
// the tracker is as it was.
func (t *Tracker) UnmarshalBinary(data []byte) error {
	if len(data) < len(snapshotMagic) || string(data[:len(snapshotMagic)]) != snapshotMagic {
		return errors.New("tracker snapshot: not a snapshot of this version")
	}
	r := &reader{buf: data[len(snapshotMagic):]}
	if mode := Mode(r.int()); r.err == nil && mode != t.cfg.Mode {
		return fmt.Errorf("tracker snapshot: made in mode %v, this tracker's is %v", mode, t.cfg.Mode)
	}
	next := Tracker{cfg: t.cfg, groups: t.groups, engine: newEngine(t.cfg)}
	next.seen = r.bool()
	next.given = time.Duration(r.int())
	next.now = time.Duration(r.int())
	for _, n := range next.stats.fields() {
		*n = r.int()
	}
	next.engine.restore(r)
	if r.err == nil && len(r.buf) > 0 {
		r.err = errSnapshot
	}
	if r.err != nil {
		return r.err
	}
	*t = next
	return nil
}

func (s *Stats) fields() []*int64 {
	return []*int64{&s.Frames, &s.Holds, &s.Invalid, &s.Excess, &s.Backwards}
}

func (b *byteTrack) snapshot(w *writer) {
	w.int(int64(b.frame))
	w.int(b.lastID)
	for _, list := range [2][]*byteObject{b.tracked, b.lost} {
		w.int(int64(len(list)))
		for _, o := range list {
			o.snapshot(w)
		}
	}
}

func (b *byteTrack) restore(r *reader) {
	b.frame = int(r.int())
	b.lastID = r.int()
	for _, list := range [2]*[]*byteObject{&b.tracked, &b.lost} {
		for range r.length() {
			o := new(byteObject)
			o.restore(r)
			*list = append(*list, o)
		}
	}
}

func (o *byteObject) snapshot(w *writer) {
	w.int(o.id)
	for _, a := range []*axis{&o.x, &o.y, &o.a, &o.h} {
		a.snapshot(w)
	}
	w.float(o.score)
	for _, n := range []int{o.class, o.group, int(o.state), o.frame, o.started, int(o.start), int(o.last)} {
		w.int(int64(n))
	}
	w.bool(o.activated)
	w.bool(o.reported)
	w.bool(o.removed)
	w.bool(o.removing)
}

func (o *byteObject) restore(r *reader) {
	o.id = r.int()
	for _, a := range []*axis{&o.x, &o.y, &o.a, &o.h} {
		a.restore(r)
	}
	o.score = r.float()
	o.class, o.group, o.state = int(r.int()), int(r.int()), byteState(r.int())
	o.frame, o.started = int(r.int()), int(r.int())
	o.start, o.last = time.Duration(r.int()), time.Duration(r.int())
	o.activated, o.reported = r.bool(), r.bool()
	o.removed, o.removing = r.bool(), r.bool()
	o.det = -1
	o.place()
}

func (a *axis) snapshot(w *writer) {
	for _, f := range []float64{a.pos, a.vel, a.pp, a.pv, a.vv} {
		w.float(f)
	}
}

func (a *axis) restore(r *reader) {
	for _, f := range []*float64{&a.pos, &a.vel, &a.pp, &a.pv, &a.vv} {
		*f = r.float()
	}
}

// writer appends fixed-size little-endian values.
type writer struct{ buf []byte }

func (w *writer) int(n int64)     { w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(n)) }
func (w *writer) float(f float64) { w.int(int64(math.Float64bits(f))) }

func (w *writer) bool(b bool) {
	var v byte
	if b {
		v = 1
	}
	w.buf = append(w.buf, v)
}

// reader is the counterpart of writer; after the first error it gives zeros.
type reader struct {
	buf []byte
	err error
}

func (r *reader) int() int64 {
	if len(r.buf) < 8 {
		r.err, r.buf = errSnapshot, nil
		return 0
	}
	n := binary.LittleEndian.Uint64(r.buf)
	r.buf = r.buf[8:]
	return int64(n)
}

func (r *reader) float() float64 {
	f := math.Float64frombits(uint64(r.int()))
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.err = errSnapshot
	}
	return f
}

func (r *reader) bool() bool {
	if len(r.buf) < 1 {
		r.err, r.buf = errSnapshot, nil
		return false
	}
	b := r.buf[0]
	r.buf = r.buf[1:]
	if b > 1 {
		r.err = errSnapshot
	}
	return b == 1
}

// length reads a count of things that take at least eight bytes each.
func (r *reader) length() int {
	n := r.int()
	if n < 0 || n > int64(len(r.buf)/8) {
		r.err, r.buf = errSnapshot, nil
		return 0
	}
	return int(n)
}

func (e *elapsed) snapshot(w *writer) {
	w.int(e.lastID)
	w.bool(e.began)
	w.int(int64(e.now))
	w.int(int64(e.held))
	w.int(e.frames)
	w.float(e.alike.vx)
	w.float(e.alike.vy)
	w.int(int64(len(e.tracks)))
	for _, o := range e.tracks {
		o.snapshot(w)
	}
}

func (e *elapsed) restore(r *reader) {
	e.lastID = r.int()
	e.began = r.bool()
	e.now = time.Duration(r.int())
	e.held = time.Duration(r.int())
	e.frames = r.int()
	e.alike.vx, e.alike.vy = r.float(), r.float()
	for range r.length() {
		o := new(object)
		o.restore(r)
		e.tracks = append(e.tracks, o)
	}
}

func (o *object) snapshot(w *writer) {
	for _, n := range o.ints() {
		w.int(int64(*n))
	}
	for _, f := range o.floats() {
		w.float(*f)
	}
	for _, b := range []bool{o.confirmed, o.reported} {
		w.bool(b)
	}
	w.int(o.id)
	w.int(int64(o.start))
	w.int(int64(o.last))
	w.int(int64(o.unseen))
}

func (o *object) restore(r *reader) {
	for _, n := range o.ints() {
		*n = int(r.int())
	}
	for _, f := range o.floats() {
		*f = r.float()
	}
	for _, b := range []*bool{&o.confirmed, &o.reported} {
		*b = r.bool()
	}
	o.id = r.int()
	o.start, o.last, o.unseen = time.Duration(r.int()), time.Duration(r.int()), time.Duration(r.int())
	o.det = -1
	if !(o.obs.Width() > 0 && o.obs.Height() > 0) {
		r.err = errSnapshot
	}
}

func (o *object) ints() []*int {
	n := []*int{&o.group, &o.misses, &o.hits}
	for i := range o.class.class {
		n = append(n, &o.class.class[i])
	}
	return n
}

func (o *object) floats() []*float64 {
	f := []*float64{&o.score}
	for _, a := range []*axis{&o.x, &o.y, &o.w, &o.h} {
		f = append(f, &a.pos, &a.vel, &a.pp, &a.pv, &a.vv)
	}
	f = append(f, o.box.fields()...)
	f = append(f, o.obs.fields()...)
	for i := range o.class.weight {
		f = append(f, &o.class.weight[i])
	}
	return f
}

func (b *Box) fields() []*float64 { return []*float64{&b.X1, &b.Y1, &b.X2, &b.Y2} }
