package ingestclient

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
)

// parts holds what came of an answer in parts and waits for whoever asked. The link's reader must not wait for them; the
// sidecar bounds the answer.
type parts[T any] struct {
	mu   sync.Mutex // guards list
	list []*T
	came chan struct{} // one token: something came
}

func newParts[T any]() *parts[T] { return &parts[T]{came: make(chan struct{}, 1)} }

type (
	span = parts[ingestv1.AccessUnits]
	dump = parts[ingestv1.PacketDump]
)

// put adds a part; nil says that the connection has ended.
func (s *parts[T]) put(m *T) {
	s.mu.Lock()
	s.list = append(s.list, m)
	s.mu.Unlock()
	select {
	case s.came <- struct{}{}:
	default:
	}
}

func (s *parts[T]) take() []*T {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}

func (l *link) askSpan() (uint64, *span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	s := newParts[ingestv1.AccessUnits]()
	if l.ended {
		s.put(nil)
	} else {
		l.spans[l.asked] = s
	}
	return l.asked, s
}

func (l *link) answerSpan(m *ingestv1.AccessUnits) {
	l.mu.Lock()
	s := l.spans[m.GetRequestId()]
	if m.GetDone() {
		delete(l.spans, m.GetRequestId())
	}
	l.mu.Unlock()
	if s != nil {
		s.put(m)
	}
}

// AccessUnits asks for the coded pictures of a camera within a span of capture time and hands each to take, in decoding
// order, after the description of its stream where that begins or changes (nil otherwise). A span that reaches into the
// future is followed to its end. What is handed out may be kept but not changed. request_id is the client's business.
// The error is take's, an *ingest.Error (GONE: nothing of that time is kept), ErrDisconnected or the context's.
func (c *Client) AccessUnits(ctx context.Context, m *ingestv1.GetAccessUnits, take func(*ingestv1.StreamDescription, *ingestv1.AccessUnit) error) error {
	l := c.current()
	if l == nil {
		return ErrDisconnected
	}
	m = proto.CloneOf(m)
	id, s := l.askSpan()
	m.RequestId = id
	l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_GetAccessUnits{GetAccessUnits: m}})
	cancel := func(err error) error {
		l.forget(id)
		l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_GetAccessUnits{GetAccessUnits: &ingestv1.GetAccessUnits{RequestId: id, Cancel: true}}})
		return err
	}
	for {
		select {
		case <-s.came:
		case <-ctx.Done():
			return cancel(ctx.Err())
		}
		for _, p := range s.take() {
			switch {
			case p == nil:
				return ErrDisconnected
			case p.GetDone() && p.GetError() != nil:
				return &ingest.Error{Reason: ingest.Reason(p.GetError().GetReason()), Err: errors.New(p.GetError().GetMessage())}
			case p.GetDone():
				return nil
			}
			if err := take(p.GetDescription(), p.GetUnit()); err != nil {
				return cancel(err)
			}
		}
	}
}
