// Package motion tells a still scene from one worth analysing, by a small picture of its brightness.
//
// A Gate is a plain struct without a clock: every call brings the time. It learns the scene's background
// and how much each part of it flickers by itself. A change of light moves the whole picture at once and is
// taken out before parts are compared. Whatever it holds back, it lets a frame pass from time to time.
package motion

import (
	"slices"
	"time"

	"github.com/vedette/vedette/ingest"
)

// The small pictures a Gate looks at.
const (
	// Width in cells.
	Width = 64
	// Height in cells.
	Height = 36
	// Cells in all.
	Cells = Width * Height
)

// DefaultRecheck is how often a frame passes at least, unless a camera's settings say otherwise.
const DefaultRecheck = 10 * time.Second

// Verdict on one frame.
type Verdict int

// The verdicts.
const (
	// Open: something moves, or did a moment ago, or the scene is not known yet.
	Open Verdict = iota + 1
	// Recheck: nothing moves, but the frame passes: it is time for one, or the scene has changed all over.
	Recheck
	// Closed: nothing moves.
	Closed
)

const (
	warmUp = 2 * time.Second // to learn a scene
	// So many pictures at most are kept while it is learnt, evenly apart.
	samples = 16
	gap     = time.Minute // without a frame, after which the scene is learnt anew
	// How fast the background follows what does not move, and what does: a car that parked belongs to it
	// after a while.
	still, moving = 3 * time.Second, 15 * time.Second
	// A cell has changed when it differs by more than this many grey levels, and by more than its own flicker
	// times a factor.
	leastChange, flickerFactor, mostFlicker = 7, 3, 10
	// A shift of the whole picture beyond this is a change of light, taken over at once.
	lightShift = 6
	// More than this share changed: another scene, not something in it.
	otherScene = 0.5
)

// Gate is one camera's. Not safe for concurrent use.
type Gate struct {
	cfg     ingest.Gate
	ignored []bool // cells whose motion does not count; nil: none
	counted int
	sampled []int // cells that tell the light: some of those that are not ignored

	learnt              [][]byte // pictures of the time in which the scene is learnt
	background, flicker []float32
	begun, last         time.Time
	openUntil, passed   time.Time
}

// New returns a gate. ignored marks cells, row by row, whose motion does not count; nil: all count.
func New(cfg ingest.Gate, ignored []bool) *Gate {
	if cfg.Threshold <= 0 {
		cfg.Threshold = 0.002
	}
	if cfg.Hold <= 0 {
		cfg.Hold = 2 * time.Second
	}
	if cfg.Recheck <= 0 {
		cfg.Recheck = DefaultRecheck
	}
	g := &Gate{cfg: cfg, ignored: ignored}
	// Every third cell is enough for a median, and no row or column is left out (64 is no multiple of 3).
	for i := range Cells {
		if g.ignores(i) {
			continue
		}
		g.counted++
		if i%3 == 0 {
			g.sampled = append(g.sampled, i)
		}
	}
	return g
}

func (g *Gate) ignores(cell int) bool { return cell < len(g.ignored) && g.ignored[cell] }

// Warm reports whether the scene has been learnt by time at.
func (g *Gate) Warm(at time.Time) bool { return !g.begun.IsZero() && at.Sub(g.begun) >= warmUp }

// Look takes the next frame's small picture (Cells bytes, row by row) and its capture time.
func (g *Gate) Look(luma []byte, at time.Time) Verdict {
	if passed := at.Sub(g.last); g.begun.IsZero() || passed < 0 || passed > gap {
		g.learn(luma)
		g.begun, g.learnt = at, nil
	}
	passed := at.Sub(g.last)
	g.last = at
	if !g.Warm(at) {
		if at.Sub(g.begun) >= warmUp*time.Duration(len(g.learnt))/samples {
			g.learnt = append(g.learnt, slices.Clone(luma))
		}
		g.openUntil, g.passed = at, at
		return Open
	}
	if g.learnt != nil {
		g.settle()
	}
	share := g.compare(luma, passed)
	switch {
	case share > otherScene:
		g.learn(luma)
		g.passed = at
		return Recheck
	case share >= g.cfg.Threshold && share > 0:
		g.openUntil = at.Add(g.cfg.Hold)
	}
	switch {
	case !at.After(g.openUntil):
		g.passed = at
		return Open
	case at.Sub(g.passed) >= g.cfg.Recheck:
		g.passed = at
		return Recheck
	}
	return Closed
}

// Ahead looks at a picture whose frame may never be given to Look: Closed where nothing moves and none is due, Recheck where
// one is. Then the background follows it. Open where something moves or the scene is not known: then nothing is learnt, so
// that the frames before it can be looked at first.
func (g *Gate) Ahead(luma []byte, at time.Time) Verdict {
	passed := at.Sub(g.last)
	if !g.Warm(at) || g.learnt != nil || passed < 0 || passed > gap || !at.After(g.openUntil) {
		return Open
	}
	background, flicker := slices.Clone(g.background), slices.Clone(g.flicker)
	if share := g.compare(luma, passed); share > otherScene || share >= g.cfg.Threshold && share > 0 {
		g.background, g.flicker = background, flicker
		return Open
	}
	if g.last = at; at.Sub(g.passed) >= g.cfg.Recheck {
		return Recheck
	}
	return Closed
}

// learn takes a picture as the background.
func (g *Gate) learn(luma []byte) {
	g.background, g.flicker = make([]float32, Cells), make([]float32, Cells)
	for i := range g.background {
		g.background[i] = float32(luma[i])
	}
}

// settle makes the background of what each cell showed most of the time while the scene was learnt, so that what passed
// through it meanwhile does not belong to it: the median, and as flicker half the distance of the quartiles.
func (g *Gate) settle() {
	cell := make([]byte, len(g.learnt))
	for i := range g.background {
		for n, luma := range g.learnt {
			cell[n] = luma[i]
		}
		slices.Sort(cell)
		g.background[i] = float32(cell[len(cell)/2])
		g.flicker[i] = min(float32(cell[3*len(cell)/4]-cell[len(cell)/4])/2, mostFlicker)
	}
	g.learnt = nil
}

// compare returns the share of cells that changed and lets the background follow.
func (g *Gate) compare(luma []byte, passed time.Duration) float64 {
	shift := g.light(luma)
	slow, quick := weight(passed, moving), weight(passed, still)
	changed := 0
	for i, b := range g.background {
		d := float32(luma[i]) - b - shift
		size := max(d, -d)
		follow := quick
		if size > max(leastChange, flickerFactor*g.flicker[i]) {
			follow = slow
			if !g.ignores(i) {
				changed++
			}
		}
		g.background[i] = b + follow*(d+shift)
		if shift > lightShift || shift < -lightShift {
			g.background[i] = b + shift + follow*d
		}
		g.flicker[i] = min(g.flicker[i]+follow*(size-g.flicker[i]), mostFlicker)
	}
	return float64(changed) / float64(max(g.counted, 1))
}

// light returns how much brighter the whole picture is: the median of the differences to half a grey level, which nothing
// that covers less than half of what is looked at moves.
func (g *Gate) light(luma []byte) float32 {
	const most = 256
	var count [4 * most]uint16
	for _, i := range g.sampled {
		count[int(2*(float32(luma[i])-g.background[i]+most))]++
	}
	below := 0
	for step, n := range count {
		if below += int(n); below > len(g.sampled)/2 {
			return float32(step)/2 - most
		}
	}
	return 0
}

// weight of a new value after a time, for an average over another.
func weight(passed, over time.Duration) float32 {
	return float32(min(max(float64(passed)/float64(over), 0), 0.5))
}
