package tracker

import (
	"time"

	"github.com/vedette/vedette/tracker/internal/assign"
)

// The published algorithm's constants.
const (
	byteLowScore         = 0.1
	byteSecondLimit      = 0.5
	byteUnconfirmedLimit = 0.7
	byteDuplicateLimit   = 0.15
)

// byteTrack is the conformance engine. Lists keep the published order, since
// the order decides which of two equal matches is taken.
type byteTrack struct {
	cfg     ByteTrack
	maxLost int
	frame   int
	lastID  int64

	tracked []*byteObject
	lost    []*byteObject
	free    []*byteObject
	ended   []Ended

	assign  assign.Solver
	columns columns

	// Scratch of one update.
	high, low, rest  []int32
	pool, unmatched  []*byteObject
	unconfirmed      []*byteObject
	activated, found []*byteObject
	newlyLost        []*byteObject
	nextTracked      []*byteObject
	nextLost         []*byteObject
	dropTracked      []bool
	dropLost         []bool
}

func newByteTrack(cfg ByteTrack) *byteTrack {
	return &byteTrack{cfg: cfg, maxLost: int(cfg.FrameRate / 30 * float64(cfg.TrackBuffer))}
}

func (b *byteTrack) identities() int64 { return b.lastID }

// hold does nothing: the algorithm counts frames, and a held sequence has none.
func (b *byteTrack) hold(time.Duration) {}

func (b *byteTrack) closeAll(at time.Duration) {
	for _, o := range b.tracked {
		b.end(o, EndClosed)
	}
	for _, o := range b.lost {
		b.end(o, EndClosed)
	}
	b.tracked, b.lost = b.tracked[:0], b.lost[:0]
}

func (b *byteTrack) drainEnded(out []Ended) []Ended {
	out = append(out, b.ended...)
	b.ended = b.ended[:0]
	return out
}

func (b *byteTrack) update(at time.Duration, dets []observation, out []Track) []Track {
	b.frame++
	b.split(dets)
	b.gather()
	for _, o := range b.pool {
		o.predict()
	}
	b.firstMatch(at, dets)
	b.secondMatch(at, dets)
	b.matchUnconfirmed(at, dets)
	b.startNew(at, dets)
	b.expire()
	b.rebuildLists()
	b.dropDuplicates()
	return b.report(out)
}

// split sorts the detections into those of high and of low score. A score
// equal to the threshold belongs to neither: so it is published.
func (b *byteTrack) split(dets []observation) {
	b.high, b.low = b.high[:0], b.low[:0]
	for i := range dets {
		switch s := dets[i].score; {
		case s > b.cfg.TrackThresh:
			b.high = append(b.high, int32(i))
		case s > byteLowScore && s < b.cfg.TrackThresh:
			b.low = append(b.low, int32(i))
		}
	}
}

func (b *byteTrack) gather() {
	b.pool, b.unconfirmed = b.pool[:0], b.unconfirmed[:0]
	b.activated, b.found, b.newlyLost = b.activated[:0], b.found[:0], b.newlyLost[:0]
	for _, o := range b.tracked {
		o.det = -1
		if o.activated {
			b.pool = append(b.pool, o)
		} else {
			b.unconfirmed = append(b.unconfirmed, o)
		}
	}
	for _, o := range b.lost {
		o.det = -1
		b.pool = append(b.pool, o)
	}
}

// firstMatch matches all that is followed or lost with high detections and
// leaves the rest of both sides in unmatched and rest.
func (b *byteTrack) firstMatch(at time.Duration, dets []observation) {
	b.match(b.pool, dets, b.high, b.cfg.MatchThresh, !b.cfg.NoFuseScore)
	b.unmatched, b.rest = b.unmatched[:0], b.rest[:0]
	for i, o := range b.pool {
		j := b.assign.Rows[i]
		switch {
		case j >= 0:
			b.take(o, &dets[b.high[j]], at)
		case o.state == byteTracked:
			b.unmatched = append(b.unmatched, o)
		}
	}
	for j, d := range b.high {
		if b.assign.Cols[j] < 0 {
			b.rest = append(b.rest, d)
		}
	}
}

// secondMatch gives what was followed until now a chance among the low
// detections: an object half hidden behind another is one of these.
func (b *byteTrack) secondMatch(at time.Duration, dets []observation) {
	b.match(b.unmatched, dets, b.low, byteSecondLimit, false)
	for i, o := range b.unmatched {
		if j := b.assign.Rows[i]; j >= 0 {
			b.take(o, &dets[b.low[j]], at)
			continue
		}
		o.state = byteLost
		b.newlyLost = append(b.newlyLost, o)
	}
}

func (b *byteTrack) matchUnconfirmed(at time.Duration, dets []observation) {
	b.match(b.unconfirmed, dets, b.rest, byteUnconfirmedLimit, !b.cfg.NoFuseScore)
	for i, o := range b.unconfirmed {
		if j := b.assign.Rows[i]; j >= 0 {
			b.take(o, &dets[b.rest[j]], at)
		} else {
			o.state = byteRemoved
		}
	}
}

func (b *byteTrack) startNew(at time.Duration, dets []observation) {
	for j, d := range b.rest {
		if b.assign.Cols[j] >= 0 || dets[d].score < b.cfg.TrackThresh+0.1 {
			continue
		}
		b.lastID++
		o := b.obtain()
		o.begin(&dets[d], b.lastID, b.frame, at)
		b.activated = append(b.activated, o)
	}
}

// take matches an object with a detection.
func (b *byteTrack) take(o *byteObject, d *observation, at time.Duration) {
	if o.state == byteTracked {
		b.activated = append(b.activated, o)
	} else {
		b.found = append(b.found, o)
	}
	o.correct(d)
	o.state, o.activated = byteTracked, true
	o.frame, o.last = b.frame, at
}

func (b *byteTrack) expire() {
	for _, o := range b.lost {
		if b.frame-o.frame > b.maxLost {
			o.state, o.removing = byteRemoved, true
		}
	}
}

// rebuildLists makes the lists of the next frame. What is removed in this
// frame stays among the lost for one frame more; what was removed before and
// found again is forgotten at once when it is lost again. The published code
// keeps all it ever removed in order to know: a mark on the object does, since
// nothing else is ever looked up there.
func (b *byteTrack) rebuildLists() {
	next := b.nextTracked[:0]
	next = appendTracked(next, b.tracked)
	next = appendTracked(next, b.activated)
	next = appendTracked(next, b.found)
	lost := b.nextLost[:0]
	for _, list := range [2][]*byteObject{b.lost, b.newlyLost} {
		for _, o := range list {
			if o.listed {
				continue
			}
			if o.removed {
				b.end(o, EndLost)
				continue
			}
			o.listed = true
			lost = append(lost, o)
		}
	}
	for _, o := range b.unconfirmed {
		if o.state == byteRemoved {
			b.release(o)
		}
	}
	for _, o := range next {
		o.listed = false
	}
	for _, o := range lost {
		o.listed = false
		o.removed = o.removed || o.removing
	}
	b.nextTracked, b.tracked = b.tracked[:0], next
	b.nextLost, b.lost = b.lost[:0], lost
}

func appendTracked(to, from []*byteObject) []*byteObject {
	for _, o := range from {
		if o.state == byteTracked && !o.listed {
			o.listed = true
			to = append(to, o)
		}
	}
	return to
}

// dropDuplicates forgets the younger of two objects in the same place, one
// followed and one lost; all pairs are judged before any is dropped.
func (b *byteTrack) dropDuplicates() {
	if len(b.lost) == 0 || len(b.tracked) == 0 {
		return
	}
	b.dropTracked = refill(b.dropTracked, len(b.tracked), false)
	b.dropLost = refill(b.dropLost, len(b.lost), false)
	some := false
	for i, p := range b.tracked {
		for j, q := range b.lost {
			if p.group != q.group || 1-b.iou(&p.box, &q.box) >= byteDuplicateLimit {
				continue
			}
			some = true
			if p.frame-p.started > q.frame-q.started {
				b.dropLost[j] = true
			} else {
				b.dropTracked[i] = true
			}
		}
	}
	if some {
		b.tracked = b.drop(b.tracked, b.dropTracked)
		b.lost = b.drop(b.lost, b.dropLost)
	}
}

func (b *byteTrack) drop(list []*byteObject, which []bool) []*byteObject {
	kept := list[:0]
	for i, o := range list {
		if which[i] {
			b.end(o, EndDuplicate)
		} else {
			kept = append(kept, o)
		}
	}
	return kept
}

func (b *byteTrack) report(out []Track) []Track {
	for _, o := range b.tracked {
		if !o.activated {
			continue
		}
		w, h := o.a.pos*o.h.pos, o.h.pos
		if b.cfg.AspectRatio > 0 && w/h > b.cfg.AspectRatio {
			continue
		}
		if b.cfg.MinBoxArea > 0 && !(w*h > b.cfg.MinBoxArea) {
			continue
		}
		o.reported = true
		out = append(out, o.public())
	}
	return out
}

func (b *byteTrack) obtain() *byteObject {
	if n := len(b.free); n > 0 {
		o := b.free[n-1]
		b.free = b.free[:n-1]
		return o
	}
	return new(byteObject)
}

func (b *byteTrack) end(o *byteObject, why EndReason) {
	if o.reported {
		t := o.public()
		t.State, t.Detection = Lost, -1
		b.ended = append(b.ended, Ended{Track: t, Reason: why})
	}
	b.release(o)
}

func (b *byteTrack) release(o *byteObject) {
	*o = byteObject{}
	b.free = append(b.free, o)
}

// match fills b.assign with the best matches between objects and the chosen
// detections.
func (b *byteTrack) match(objects []*byteObject, dets []observation, chosen []int32, limit float64, fuse bool) {
	b.assign.Reset(len(objects), len(chosen))
	if len(objects) == 0 || len(chosen) == 0 {
		return
	}
	b.columns.build(dets, chosen)
	for i, o := range objects {
		for _, j := range b.columns.near(o.box.X1-1, o.box.X2+1) {
			det := &dets[chosen[j]]
			if o.group != det.group {
				continue
			}
			sim := b.iou(&o.box, &det.Box)
			if sim <= 0 {
				continue
			}
			if fuse {
				sim *= det.score
			}
			if cost := 1 - sim; cost < limit {
				b.assign.Add(i, int(j), limit-cost)
			}
		}
	}
	b.assign.Solve()
}

// iou is the overlap of two boxes; with the extra pixel on every length unless
// plain overlap is asked for.
func (b *byteTrack) iou(p, q *Box) float64 {
	one := 1.0
	if b.cfg.PlainIoU {
		one = 0
	}
	w := min(p.X2, q.X2) - max(p.X1, q.X1) + one
	if w <= 0 {
		return 0
	}
	h := min(p.Y2, q.Y2) - max(p.Y1, q.Y1) + one
	if h <= 0 {
		return 0
	}
	area := (q.X2 - q.X1 + one) * (q.Y2 - q.Y1 + one)
	return w * h / ((p.X2-p.X1+one)*(p.Y2-p.Y1+one) + area - w*h)
}

// refill returns a slice of n values v, in s's memory if it fits.
func refill[T any](s []T, n int, v T) []T {
	if cap(s) < n {
		s = make([]T, n, n+n/2)
	}
	s = s[:n]
	for i := range s {
		s[i] = v
	}
	return s
}
