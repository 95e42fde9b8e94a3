package ingestclient

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
)

func (l *link) askDump() (uint64, *dump) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	d := newParts[ingestv1.PacketDump]()
	if l.ended {
		d.put(nil)
	} else {
		l.dumps[l.asked] = d
	}
	return l.asked, d
}

func (l *link) answerDump(m *ingestv1.PacketDump) {
	l.mu.Lock()
	d := l.dumps[m.GetRequestId()]
	if m.GetDone() {
		delete(l.dumps, m.GetRequestId())
	}
	l.mu.Unlock()
	if d != nil {
		d.put(m)
	}
}

// DumpPackets asks for what a camera and the sidecar say to each other and hands the parts of the file to take. It returns
// how many packets were left out. request_id is the client's business. The error is take's, an *ingest.Error,
// ErrDisconnected or the context's.
func (c *Client) DumpPackets(ctx context.Context, m *ingestv1.DumpPackets, take func([]byte) error) (dropped uint64, err error) {
	l := c.current()
	if l == nil {
		return 0, ErrDisconnected
	}
	m = proto.CloneOf(m)
	id, d := l.askDump()
	m.RequestId = id
	l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_DumpPackets{DumpPackets: m}})
	cancel := func(err error) error {
		l.forget(id)
		l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_DumpPackets{DumpPackets: &ingestv1.DumpPackets{RequestId: id, Cancel: true}}})
		return err
	}
	for {
		select {
		case <-d.came:
		case <-ctx.Done():
			return 0, cancel(ctx.Err())
		}
		for _, p := range d.take() {
			switch {
			case p == nil:
				return 0, ErrDisconnected
			case p.GetDone() && p.GetError() != nil:
				return 0, &ingest.Error{Reason: ingest.Reason(p.GetError().GetReason()), Err: errors.New(p.GetError().GetMessage())}
			case p.GetDone():
				return p.GetDropped(), nil
			}
			if err := take(p.GetData()); err != nil {
				return 0, cancel(err)
			}
		}
	}
}
