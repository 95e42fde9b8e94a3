package camera

import (
	"slices"
	"sync"
	"time"

	"github.com/vedette/vedette/ingest"
)

// Coded is an access unit in its epoch.
type Coded struct {
	Epoch  *ingest.Epoch
	Number uint64
	Unit   ingest.AccessUnit
	// Capture time; Ticks of Unit count from the epoch's beginning.
	Capture time.Time
	Stream  ingest.Stream
	// Masked: the camera has privacy masks, which coded pictures do not show.
	Masked bool
}

// UnitWatcher takes access units. It must not block; false says that it could not take the unit, and
// units follow again from the next keyframe.
type UnitWatcher interface {
	Coded(Coded) bool
}

// units is the pre-roll ring, bounded in bytes, and those who watch.
type units struct {
	mu       sync.Mutex // guards everything below
	limit    int64
	span     time.Duration // the ring covers no more; 0: no bound
	ring     []Coded
	first    uint64 // units that were in the ring before its first
	bytes    int64
	grown    chan struct{} // closed when a unit is added; nil: nobody waits
	watchers map[UnitWatcher]*watcher
	dropped  uint64
}

type watcher struct {
	waiting bool // for a keyframe
	lost    bool // the next unit follows a gap
}

// setLimit sets the ring's size by a camera's setting.
func (u *units) setLimit(setting int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limit, u.span = max(setting, 0), 0
	if setting == 0 {
		u.limit, u.span = 8<<20, 30*time.Second
	}
	u.trimLocked()
}

func (u *units) add(c Coded) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.limit > 0 {
		u.ring = append(u.ring, c)
		u.bytes += int64(len(c.Unit.Data))
		u.trimLocked()
		if u.grown != nil {
			close(u.grown)
			u.grown = nil
		}
	}
	for w, state := range u.watchers {
		if state.waiting && !c.Unit.Keyframe {
			if state.lost { // otherwise it has just come
				u.dropped++
			}
			continue
		}
		one := c
		one.Unit.Lost = one.Unit.Lost || state.lost
		if state.waiting = !w.Coded(one); state.waiting {
			u.dropped++
			state.lost = true
			continue
		}
		state.lost = false
	}
}

// trimLocked drops whole groups of pictures from the front until the ring fits, so that it always
// begins with a keyframe; a group larger than the ring is cut.
func (u *units) trimLocked() {
	drop := 0
	if n := len(u.ring); n > 0 && u.span > 0 {
		// A group goes when the one behind it covers the time by itself.
		oldest := u.ring[n-1].Capture.Add(-u.span)
		for i := 1; i < n && !u.ring[i].Capture.After(oldest); i++ {
			if u.ring[i].Unit.Keyframe {
				drop = i
			}
		}
	}
	for i := range drop {
		u.bytes -= int64(len(u.ring[i].Unit.Data))
	}
	for drop < len(u.ring) && (u.bytes > u.limit || drop > 0 && !u.ring[drop].Unit.Keyframe) {
		u.bytes -= int64(len(u.ring[drop].Unit.Data))
		drop++
	}
	if drop == 0 {
		return
	}
	clear(u.ring[:drop])
	u.ring, u.first = u.ring[drop:], u.first+uint64(drop)
}

// from returns the place of the last keyframe at or before a capture time, else of the oldest keyframe; false when
// nothing is kept.
func (u *units) from(at time.Time) (place uint64, kept bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	found := len(u.ring)
	for i, c := range slices.Backward(u.ring) {
		if c.Unit.Keyframe {
			found = i
			if !c.Capture.After(at) {
				break
			}
		}
	}
	return u.first + uint64(found), u.limit > 0
}

// next returns the unit at a place and the place behind it. When the ring has lost the place, the unit is the oldest one
// there is, marked as behind a gap. A nil unit says to wait for more.
func (u *units) next(place uint64) (unit *Coded, behind uint64, more <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	lost := place < u.first
	place = max(place, u.first)
	if i := int(place - u.first); i < len(u.ring) {
		c := u.ring[i]
		c.Unit.Lost = c.Unit.Lost || lost
		return &c, place + 1, nil
	}
	if u.grown == nil {
		u.grown = make(chan struct{})
	}
	return nil, place, u.grown
}

// watch begins with the newest keyframe at least roll ago; without roll, with the next keyframe... unless
// the ring holds one, so that a viewer sees something at once.
func (u *units) watch(w UnitWatcher, roll time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.watchers == nil {
		u.watchers = map[UnitWatcher]*watcher{}
	}
	state := &watcher{waiting: true}
	u.watchers[w] = state
	if len(u.ring) == 0 {
		return
	}
	since := u.ring[len(u.ring)-1].Capture.Add(-roll)
	from := -1
	for i, c := range slices.Backward(u.ring) {
		if c.Unit.Keyframe {
			if from = i; !c.Capture.After(since) {
				break
			}
		}
	}
	if from < 0 {
		return
	}
	for _, c := range u.ring[from:] {
		if !w.Coded(c) {
			u.dropped++
			state.lost = true
			return
		}
	}
	state.waiting = false
}

func (u *units) unwatch(w UnitWatcher) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.watchers, w)
}

func (u *units) droppedCount() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dropped
}
