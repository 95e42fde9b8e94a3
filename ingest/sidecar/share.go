package sidecar

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/packetdump"
	"github.com/vedette/vedette/ingest/rtsp"
	"github.com/vedette/vedette/internal/address"
	"github.com/vedette/vedette/internal/pause"
)

// sharing holds the open sessions, so that nothing is read twice: cameras with one address, main streams and probes take
// what one session delivers. Many cameras have room for one or two. The zero value is ready.
type sharing struct {
	mu   sync.Mutex
	open map[access]*shared
}

// access is what two sessions must have in common to be one.
type access struct {
	address, username, password, ca, pin string

	transport ingest.Transport
}

func accessOf(c ingest.Camera, uri string) access {
	return access{address.Key(uri), c.Username, c.Password, c.CA, c.CertificateSHA256, c.Transport}
}

// serves reports whether a session opened for a, by the transport it came to, is what want asks for.
func (a access) serves(want access, by ingest.Transport) bool {
	asked := want.transport
	if asked == ingest.TransportAuto || asked == by {
		want.transport = a.transport
	}
	return a == want
}

// reads reports whether one of a camera's streams is that of another camera, by whatever transport.
func reads(c, other ingest.Camera) bool {
	other.Transport = c.Transport
	want := accessOf(other, other.Address)
	return accessOf(c, c.Address) == want || accessOf(c, c.MainAddress) == want
}

// shared is one session with a camera. It is its source's sink and tap.
type shared struct {
	stop  context.CancelFunc
	ended chan struct{} // closed when the session is over
	err   error         // why; valid then

	// leaving, guarded by sharing.mu: the last who took something has gone.
	leaving bool

	mu      sync.Mutex // guards everything below
	members map[*member]ingest.Sink
	reached []ingest.Stage
	stream  ingest.Stream
	report  ingest.SenderReport
}

// member is one of those who take what a session delivers, as a source.
type member struct {
	sharing *sharing
	access  access
	tap     *packetdump.Tap // may be nil
	open    func(rtsp.Tap) ingest.Source
}

// source returns a source that takes part in the session with c, which open opens if nobody has.
func (s *sharing) source(c ingest.Camera, tap *packetdump.Tap, open func(rtsp.Tap) ingest.Source) ingest.Source {
	return &member{sharing: s, access: accessOf(c, c.Address), tap: tap, open: open}
}

// Run is part of ingest.Source.
func (m *member) Run(ctx context.Context, sink ingest.Sink) error {
	for ctx.Err() == nil {
		s := m.sharing.join(ctx, m, sink)
		if s == nil {
			continue
		}
		select {
		case <-s.ended:
			s.leave(m)
			return s.err
		case <-ctx.Done():
			m.sharing.leave(s, m)
		}
	}
	return nil
}

// join adds a member to the session, and opens one where there is none. It is nil when one had to end first, and did.
func (s *sharing) join(ctx context.Context, m *member, sink ingest.Sink) *shared {
	s.mu.Lock()
	one := s.find(m.access)
	if one != nil && one.leaving {
		s.mu.Unlock()
		select {
		case <-one.ended:
			pause.For(ctx, settle)
		case <-ctx.Done():
		}
		return nil
	}
	defer s.mu.Unlock()
	if one != nil {
		one.join(m, sink)
		return one
	}
	// It outlives the member that opens it.
	session, stop := context.WithCancel(context.WithoutCancel(ctx))
	one = &shared{stop: stop, ended: make(chan struct{}), members: map[*member]ingest.Sink{m: sink}}
	if s.open == nil {
		s.open = map[access]*shared{}
	}
	s.open[m.access] = one
	source := m.open(one)
	//nolint:gocritic // the last member waits for it
	go func() {
		defer stop()
		one.err = source.Run(session, one)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, m.access)
		close(one.ended)
	}()
	return one
}

// find returns the session that serves, nil where there is none; s.mu is held.
func (s *sharing) find(want access) *shared {
	if one := s.open[want]; one != nil {
		return one
	}
	for a, one := range s.open {
		if a.serves(want, one.transport()) {
			return one
		}
	}
	return nil
}

// leave takes a member out. With the last one the session ends, and is waited for.
func (s *sharing) leave(one *shared, m *member) {
	s.mu.Lock()
	last := one.leave(m) == 0
	one.leaving = last
	s.mu.Unlock()
	if last {
		one.stop()
		<-one.ended
	}
}

// settle gives a camera a moment to notice that a session has ended.
const settle = 100 * time.Millisecond

// transport is the one the session came to; TransportAuto while it is not known.
func (s *shared) transport() ingest.Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.Transport
}

// join tells a member what those before it were told.
func (s *shared) join(m *member, sink ingest.Sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stage := range s.reached {
		sink.Reached(stage)
	}
	if s.stream != (ingest.Stream{}) {
		sink.Stream(s.stream)
	}
	if !s.report.NTP.IsZero() {
		sink.SenderReport(s.report)
	}
	s.members[m] = sink
}

// leave returns how many are left.
func (s *shared) leave(m *member) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, m)
	return len(s.members)
}

// Reached is part of ingest.Sink.
func (s *shared) Reached(stage ingest.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.reached, stage) {
		s.reached = append(s.reached, stage)
	}
	for _, sink := range s.members {
		sink.Reached(stage)
	}
}

// Stream is part of ingest.Sink.
func (s *shared) Stream(d ingest.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = d
	for _, sink := range s.members {
		sink.Stream(d)
	}
}

// SenderReport is part of ingest.Sink.
func (s *shared) SenderReport(r ingest.SenderReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report = r
	for _, sink := range s.members {
		sink.SenderReport(r)
	}
}

// AccessUnit is part of ingest.Sink. Members do not block, as no shared source is a file.
func (s *shared) AccessUnit(au ingest.AccessUnit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sink := range s.members {
		sink.AccessUnit(au)
	}
}

// Packets is part of ingest.Sink.
func (s *shared) Packets(received, bytes, lost, bad uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sink := range s.members {
		sink.Packets(received, bytes, lost, bad)
	}
}

// Active is part of rtsp.Tap.
func (s *shared) Active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range s.members {
		if m.tap.Active() {
			return true
		}
	}
	return false
}

// Packet is part of rtsp.Tap.
func (s *shared) Packet(kind packetdump.Kind, at time.Time, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range s.members {
		if m.tap.Active() {
			m.tap.Packet(kind, at, payload)
		}
	}
}
