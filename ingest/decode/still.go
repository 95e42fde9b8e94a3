package decode

import (
	"context"
	"image"
	"time"

	"github.com/vedette/vedette/internal/av"
)

// While a motion gate is closed, the sizes of coded pictures tell whether anything begins to move: an encoder that finds
// its picture where it was has little to say. Units of their usual size wait undecoded. So does the next keyframe, once a
// decoder of its own has shown it to the gate and nothing moves there, and what waited before it is superfluous. A larger
// unit, a keyframe in which something moves, or anything else than a still scene, has all that wait decoded at once and in
// order, so that the first pictures of what moves are not missing.

const (
	// Sizes of so many pictures must be known, and the newest so many count.
	leastSizes, mostSizes = 16, 64
	// A picture is larger than usual beyond the largest of them by this factor and this many bytes.
	sizeFactor, sizeMargin = 1.25, 256
	// What waits is bounded, and so is the time it takes to decode it at once.
	maxHeld, maxHeldBytes = 64, 2 << 20
	// Keyframes that come more often than every so many units are decoded as they come.
	leastGroup = 4
)

// still holds back the units of a scene in which nothing moves. The zero value is ready.
type still struct {
	sizes [mostSizes]int
	known int
	held  []Unit
	bytes int
	since time.Time // capture of the newest unit whose picture was looked at
	group int       // units since the last keyframe
}

// usual reports whether a unit is no larger than others of a still scene, and learns its size.
func (s *still) usual(bytes int) bool {
	n := min(s.known, mostSizes)
	largest := 0
	for _, size := range s.sizes[:n] {
		largest = max(largest, size)
	}
	s.sizes[s.known%mostSizes] = bytes
	s.known++
	return n >= leastSizes && bytes <= int(sizeFactor*float64(largest))+sizeMargin
}

// holds reports whether u waits; if not, everything that waited has been dealt with and u is to be decoded.
func (w *worker) holds(ctx context.Context, u *Unit) (bool, error) {
	s := &w.still
	if w.d.cfg.Still == nil {
		return false, nil
	}
	recheck, closed := w.d.cfg.Still()
	if !closed {
		s.known = 0
	}
	s.group++
	at := u.Stamp.Capture
	waits := closed && w.synced && !u.Lost && !u.Damaged && !w.looked()
	if whole(*u) {
		few := s.group < leastGroup || s.known < leastSizes
		s.group = 0
		calm, due := closed && few, true
		if waits && !few {
			calm, due = w.calm(ctx, *u)
		}
		if waits = calm && !due; calm {
			u.Lost = u.Lost || len(s.held) > 0 // to the decoder
			w.forget()
			s.since = at
		}
	} else {
		// What a decoder that is behind still holds back comes before what would wait.
		waits = waits && s.usual(len(u.Data)) && (len(s.held) > 0 || len(w.pending) == 0) && at.Sub(s.since).Abs() < recheck
	}
	if waits && len(s.held) < maxHeld && s.bytes+len(u.Data) <= maxHeldBytes {
		s.held = append(s.held, *u)
		s.bytes += len(u.Data)
		w.d.out.Skipped()
		return true, nil
	}
	s.since = at
	held := s.held
	s.held, s.bytes = nil, 0
	for _, h := range held {
		h.Held = true
		if err := w.decode(ctx, h); err != nil {
			return false, err
		}
	}
	return false, nil
}

// calm reports whether nothing moves in a keyframe, which has not been decoded yet, and whether it is due all the same.
func (w *worker) calm(ctx context.Context, u Unit) (calm, due bool) {
	if len(w.pending) > 0 && len(w.still.held) == 0 {
		// The gate has not seen what a decoder that is behind holds back.
		if w.finish(ctx) != nil {
			return false, false
		}
		clear(w.pending)
		if _, closed := w.d.cfg.Still(); !closed {
			return false, false
		}
	}
	if !w.wanted(u) {
		return true, false // it tells nothing that is asked for
	}
	return w.look(ctx, u)
}

// look shows the gate a keyframe's picture, by a decoder of its own, in software: a device takes long to open one more. Where
// nothing moves, it is the newest picture.
func (w *worker) look(ctx context.Context, u Unit) (calm, due bool) {
	dec, err := w.d.cfg.Open(Software, av.DecoderConfig{Codec: codecOf(u.Codec)})
	if err != nil {
		return false, false
	}
	one := metered{dec, &w.d.cpu}
	defer one.Close()
	w.d.hold()
	err = one.Send(u.Data, 0)
	w.d.letGo()
	if err != nil || ctx.Err() != nil {
		return false, false
	}
	one.Drain()
	e := u.Epoch
	if e == w.from {
		e = w.epoch
	}
	if ok, err := one.Receive(&w.picture); !ok || err != nil || w.picture.Corrupt || e != w.epoch || image.Pt(w.picture.Width, w.picture.Height) != w.size {
		return false, false
	}
	if calm, due = w.d.cfg.Ahead(e, u.Stamp.Capture, &w.picture); !calm || due {
		return calm, due
	}
	f := w.frame(pending{unit: u})
	w.d.counts.decoded.Add(1)
	w.d.out.Decoded(f)
	w.d.latest.put(f, &w.picture)
	return true, false
}

// forget counts what waited and is not needed any more.
func (w *worker) forget() {
	for _, h := range w.still.held {
		if w.sampler.take(h.Stamp.Capture) {
			w.d.counts.still.Add(1)
		} else {
			w.d.counts.unsampled.Add(1)
		}
	}
	w.still.held, w.still.bytes = nil, 0
}
