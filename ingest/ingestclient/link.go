package ingestclient

import (
	"sync"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/internal/unixmsg"
)

// link is one connection.
type link struct {
	msg *unixmsg.Conn

	mu       sync.Mutex // guards everything below
	asked    uint64
	pictures map[uint64]chan *ingestv1.Picture
	probes   map[uint64]chan *ingestv1.Probe
	spans    map[uint64]*span
	dumps    map[uint64]*dump
	ended    bool
}

// send writes one message. A fault of the connection shows where it is read.
func (l *link) send(m *ingestv1.ToIngest) {
	b, err := proto.Marshal(m)
	if err == nil {
		err = l.msg.Send(b)
	}
	if err != nil {
		_ = l.msg.Close()
	}
}

func (l *link) release(id uint64) {
	l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_ReleaseLease{ReleaseLease: &ingestv1.ReleaseLease{LeaseIds: []uint64{id}}}})
}

func (l *link) ask() (uint64, <-chan *ingestv1.Picture) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	ch := make(chan *ingestv1.Picture, 1) // the one answer
	if l.ended {
		close(ch)
	} else {
		l.pictures[l.asked] = ch
	}
	return l.asked, ch
}

func (l *link) askProbe() (uint64, <-chan *ingestv1.Probe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	ch := make(chan *ingestv1.Probe, 1) // the one answer
	if l.ended {
		close(ch)
	} else {
		l.probes[l.asked] = ch
	}
	return l.asked, ch
}

func (l *link) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pictures, id)
	delete(l.probes, id)
	delete(l.spans, id)
	delete(l.dumps, id)
}

func (l *link) answer(p *ingestv1.Picture) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ch := l.pictures[p.GetRequestId()]; ch != nil {
		delete(l.pictures, p.GetRequestId())
		ch <- p
	}
}

func (l *link) answerProbe(p *ingestv1.Probe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ch := l.probes[p.GetRequestId()]; ch != nil {
		delete(l.probes, p.GetRequestId())
		ch <- p
	}
}

// end answers everybody who still waits.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, ch := range l.pictures {
		close(ch)
	}
	for _, ch := range l.probes {
		close(ch)
	}
	for _, s := range l.spans {
		s.put(nil)
	}
	for _, d := range l.dumps {
		d.put(nil)
	}
	clear(l.dumps)
	clear(l.spans)
	clear(l.pictures)
	clear(l.probes)
}
