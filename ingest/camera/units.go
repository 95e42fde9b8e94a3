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
	ring     []Coded
	bytes    int64
	watchers map[UnitWatcher]*watcher
	dropped  uint64
}

type watcher struct {
	waiting bool // for a keyframe
	lost    bool // the next unit follows a gap
}

// preRoll returns the ring's size for a camera's setting.
func preRoll(setting int64) int64 {
	if setting == 0 {
		return 8 << 20
	}
	return max(setting, 0)
}

func (u *units) setLimit(bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limit = bytes
	u.trimLocked()
}

func (u *units) add(c Coded) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.limit > 0 {
		u.ring = append(u.ring, c)
		u.bytes += int64(len(c.Unit.Data))
		u.trimLocked()
	}
	for w, state := range u.watchers {
		if state.waiting && !c.Unit.Keyframe {
			u.dropped++
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
	for u.bytes > u.limit && drop < len(u.ring) {
		u.bytes -= int64(len(u.ring[drop].Unit.Data))
		drop++
	}
	if drop == 0 {
		return
	}
	for drop < len(u.ring) && !u.ring[drop].Unit.Keyframe {
		u.bytes -= int64(len(u.ring[drop].Unit.Data))
		drop++
	}
	clear(u.ring[:drop])
	u.ring = u.ring[drop:]
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
