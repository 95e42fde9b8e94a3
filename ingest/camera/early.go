package camera

import (
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/capture"
)

// early holds a session's first units back for a moment. Servers send what they keep since the last keyframe in a burst:
// when those pictures were taken is known from the first that comes at its own pace.
type early struct {
	units []ingest.AccessUnit
	bytes int
	burst capture.Burst
	quiet *time.Timer // runs while it holds something
}

const (
	// How long the first units wait for another; the whole burst may take earlyMost times that.
	earlyWait  = 200 * time.Millisecond
	earlyMost  = 5
	earlyBytes = 4 << 20
)

// hold keeps a unit, and reports whether to wait for more.
func (e *early) hold(au ingest.AccessUnit, wait time.Duration) bool {
	over := e.burst.Over(au.Ticks, au.Received.Mono)
	e.units, e.bytes = append(e.units, au), e.bytes+len(au.Data)
	return !over && e.bytes < earlyBytes && au.Received.Mono-e.units[0].Received.Mono < earlyMost*wait
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
