package camera

import (
	"time"

	"github.com/vedette/vedette/ingest"
)

// early holds a session's first units back for a moment. Servers send what they keep since the last keyframe in a burst:
// when those pictures were taken is known from the first that comes at its own pace.
type early struct {
	units []ingest.AccessUnit
	bytes int
	least time.Duration // arrival less media time of the quickest
	paced int           // of the last units came at their own pace
	quiet *time.Timer   // runs while it holds something
}

const (
	// How long the first units wait for another; the whole burst may take earlyMost times that.
	earlyWait = 200 * time.Millisecond
	earlyMost = 5
	// What comes this much earlier than media time says comes in a burst, as does what comes sooner after its predecessor.
	earlyPace = 10 * time.Millisecond
	// So many units in a row at their own pace end the burst; one may only be a pause in it.
	earlyPaced = 2
	earlyBytes = 4 << 20
)

// hold keeps a unit, and reports whether to wait for more.
func (e *early) hold(au ingest.AccessUnit, wait time.Duration) bool {
	delay := au.Received.Mono - au.Ticks.Duration()
	if n := len(e.units); n == 0 {
		e.least = delay
	} else if delay > e.least-earlyPace && au.Received.Mono-e.units[n-1].Received.Mono >= earlyPace {
		e.paced++
	} else {
		e.paced = 0
	}
	e.least = min(e.least, delay)
	e.units, e.bytes = append(e.units, au), e.bytes+len(au.Data)
	return e.paced < earlyPaced && e.bytes < earlyBytes && au.Received.Mono-e.units[0].Received.Mono < earlyMost*wait
}

// AccessUnit is part of ingest.Sink.
func (s *session) AccessUnit(au ingest.AccessUnit) {
	s.order.Lock()
	defer s.order.Unlock()
	if s.early == nil {
		s.deliver(au)
		return
	}
	// The deadlines of tests are shorter.
	wait := min(earlyWait, s.c.cfg.Deadlines.FirstFrame/25)
	if !s.early.hold(au, wait) {
		s.settleLocked()
		return
	}
	if s.early.quiet == nil {
		s.early.quiet = time.AfterFunc(wait, s.settle)
		return
	}
	s.early.quiet.Reset(wait)
}

// settle hands on what was held back.
func (s *session) settle() {
	s.order.Lock()
	defer s.order.Unlock()
	if s.early != nil {
		s.settleLocked()
	}
}

func (s *session) settleLocked() {
	held := s.early
	s.early = nil
	if held.quiet != nil {
		held.quiet.Stop()
	}
	s.mu.Lock()
	for _, au := range held.units {
		s.clock.Witness(au.Ticks, au.Received)
	}
	s.mu.Unlock()
	for _, au := range held.units {
		s.deliver(au)
	}
	s.c.mu.Lock()
	s.c.meter.restart()
	s.c.mu.Unlock()
}

// forget drops what is still held back when the session is over.
func (s *session) forget() {
	s.order.Lock()
	defer s.order.Unlock()
	if s.early != nil && s.early.quiet != nil {
		s.early.quiet.Stop()
	}
	s.early = nil
}
