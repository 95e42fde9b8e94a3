package camera

import (
	"cmp"
	"image"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/framebus"
	"github.com/vedette/vedette/ingest/motion"
	"github.com/vedette/vedette/internal/av"
)

// GateState is what a camera's motion gate does now.
type GateState int

// The states.
const (
	GateAbsent GateState = iota
	GateLearning
	GateOpen
	GateClosed
)

// gate is a session's motion gate; the decoder's goroutine alone uses it.
type gate struct {
	motion  *motion.Gate
	cfg     ingest.Gate
	ignored []bool
	luma    []byte
	epoch   *ingest.Epoch
}

// newGate returns nil when the camera has no gate.
func newGate(c ingest.Camera) *gate {
	if c.Gate == nil {
		return nil
	}
	g := &gate{cfg: *c.Gate, luma: make([]byte, motion.Cells)}
	// What is blanked later cannot be what opened the gate.
	for _, masks := range [][]ingest.Mask{c.Masks, c.Gate.Ignore} {
		g.ignore(masks)
	}
	return g
}

// ignore marks the cells that masks touch, by painting them into a picture of the cells' size.
func (g *gate) ignore(masks []ingest.Mask) {
	if len(masks) == 0 {
		return
	}
	if g.ignored == nil {
		g.ignored = make([]bool, motion.Cells)
	}
	pixels := make([]byte, motion.Cells*3/2)
	framebus.NewBlanker(masks, image.Pt(motion.Width, motion.Height)).Blank(pixels)
	for i := range g.ignored {
		g.ignored[i] = g.ignored[i] || pixels[i] != 0
	}
}

// look judges a frame and says what the gate does from now on.
func (g *gate) look(f ingest.Frame, p *av.Picture) (motion.Verdict, GateState) {
	if g.epoch != f.Epoch {
		g.epoch, g.motion = f.Epoch, motion.New(g.cfg, g.ignored)
	}
	if p.Luma(g.luma, motion.Width, motion.Height) != nil {
		return motion.Open, GateOpen // what cannot be judged passes
	}
	v := g.motion.Look(g.luma, f.Capture)
	switch {
	case !g.motion.Warm(f.Capture):
		return v, GateLearning
	case v == motion.Open:
		return v, GateOpen
	default:
		return v, GateClosed
	}
}

// pass reports whether the gate lets a frame pass, and counts those it holds back.
func (s *session) pass(f *ingest.Frame, p *av.Picture) bool {
	s.mu.Lock()
	g := s.gate
	s.mu.Unlock()
	verdict, state := motion.Open, GateAbsent
	if g != nil {
		verdict, state = g.look(*f, p)
	}
	f.Recheck = verdict == motion.Recheck
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.gate = state
	if verdict == motion.Closed {
		s.c.totals.Gated++
	}
	return verdict != motion.Closed
}

// still reports whether the gate is closed, and how long that may be believed without a look.
func (s *session) still() (recheck time.Duration, still bool) {
	s.mu.Lock()
	g := s.gate
	s.mu.Unlock()
	if g == nil {
		return 0, false
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return cmp.Or(g.cfg.Recheck, motion.DefaultRecheck), s.c.gate == GateClosed
}

// ahead looks at a keyframe's picture before its frame, while the gate is closed: whether nothing moves, and whether its frame
// is due all the same.
func (s *session) ahead(e *ingest.Epoch, at time.Time, p *av.Picture) (calm, due bool) {
	s.mu.Lock()
	g := s.gate
	s.mu.Unlock()
	if g == nil || g.epoch != e || p.Luma(g.luma, motion.Width, motion.Height) != nil {
		return false, false
	}
	v := g.motion.Ahead(g.luma, at)
	return v != motion.Open, v == motion.Recheck
}

// sameGate reports whether two settings make the same gate.
func sameGate(a, b ingest.Camera) bool {
	if a.Gate == nil || b.Gate == nil {
		return a.Gate == b.Gate
	}
	return a.Gate.Threshold == b.Gate.Threshold && a.Gate.Hold == b.Gate.Hold && a.Gate.Recheck == b.Gate.Recheck &&
		equalMasks(a.Gate.Ignore, b.Gate.Ignore) && equalMasks(a.Masks, b.Masks)
}
