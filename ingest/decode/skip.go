package decode

import (
	"time"

	"github.com/vedette/vedette/ingest"
)

// Pictures that will not be analysed are not decoded where the stream allows it: those no other refers to, always; all
// but keyframes, when those alone come often enough. While somebody looks at the newest picture, it is kept new.

const (
	// lookTime is how long somebody who asked for the newest picture is taken to look.
	lookTime = 5 * time.Second
	// freshTime is how old the newest picture may be for the first who asks.
	freshTime = 2 * time.Second
)

// wanted reports whether a unit's picture would be chosen or looked at.
func (w *worker) wanted(u Unit) bool {
	return w.sampler.wants(u.Stamp.Capture) || w.looked()
}

func (w *worker) looked() bool {
	at := time.Duration(w.d.asked.Load())
	return at > 0 && ingest.Now().Mono-at < lookTime
}

// skips reports whether a unit is not to be decoded because keyframes alone are enough. What depends on it cannot be
// decoded either, up to the next keyframe.
func (w *worker) skips(u Unit) bool {
	if whole(u) {
		w.groups.keyframe(u.Stamp.Capture)
	}
	if !w.groups.enough(w.sampler.period) || w.looked() {
		return false
	}
	if at := u.Stamp.Capture; whole(u) && (w.sampler.wants(at) || at.Sub(w.fresh).Abs() >= freshTime) {
		w.fresh = at
		return false
	}
	w.synced = false
	return true
}

// whole reports whether a unit's picture is right whatever was decoded before it.
func whole(u Unit) bool { return u.Keyframe && u.Recovery == 0 }

// groups knows how far apart keyframes are. The zero value is ready.
type groups struct {
	last    time.Time
	between [4]time.Duration // the newest distances
	known   int
}

func (g *groups) keyframe(at time.Time) {
	if d := at.Sub(g.last); !g.last.IsZero() && d > 0 {
		g.between[g.known%len(g.between)] = d
		g.known++
	}
	g.last = at
}

// longest is the longest of the newest distances; 0: too few are known.
func (g *groups) longest() time.Duration {
	if g.known < 2 {
		return 0
	}
	longest := time.Duration(0)
	for _, d := range g.between[:min(g.known, len(g.between))] {
		longest = max(longest, d)
	}
	return longest
}

// enough reports whether a keyframe comes at least once a period.
func (g *groups) enough(period time.Duration) bool {
	longest := g.longest()
	return longest > 0 && period >= longest
}
