package decode

import (
	"context"
	"time"
)

// While a motion gate is closed, the sizes of coded pictures tell whether anything begins to move: an encoder that finds
// its picture where it was has little to say. Units of their usual size wait undecoded until the next keyframe, which is
// decoded and looked at, and makes them superfluous. A larger one, or anything else than a still scene, has all that wait
// decoded at once, so that nothing is missing.

const (
	// Sizes of so many pictures must be known, and the newest so many count.
	leastSizes, mostSizes = 16, 64
	// A picture is larger than usual beyond the largest of them by this factor and this many bytes.
	sizeFactor, sizeMargin = 1.25, 256
	// What waits is bounded, and so is the time it takes to decode it at once.
	maxHeld, maxHeldBytes = 64, 2 << 20
)

// still holds back the units of a scene in which nothing moves. The zero value is ready.
type still struct {
	sizes [mostSizes]int
	known int
	held  []Unit
	bytes int
	since time.Time // capture of the newest picture decoded
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
func (w *worker) holds(ctx context.Context, u Unit) (bool, error) {
	s := &w.still
	if w.d.cfg.Still == nil {
		return false, nil
	}
	recheck, closed := w.d.cfg.Still()
	if !closed {
		s.known = 0
	}
	if whole(u) && closed {
		w.forget()
	}
	calm := closed && !whole(u) && w.synced && !u.Lost && !u.Damaged && s.usual(len(u.Data))
	if calm && !w.looked() && len(s.held) < maxHeld && s.bytes+len(u.Data) <= maxHeldBytes && u.Stamp.Capture.Sub(s.since).Abs() < recheck {
		s.held = append(s.held, u)
		s.bytes += len(u.Data)
		w.d.out.Skipped()
		return true, nil
	}
	s.since = u.Stamp.Capture
	held := s.held
	s.held, s.bytes = nil, 0
	for _, h := range held {
		if err := w.decode(ctx, h); err != nil {
			return false, err
		}
	}
	return false, nil
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
