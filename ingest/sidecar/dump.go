package sidecar

import (
	"cmp"
	"context"
	"errors"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/wire"
)

const (
	dumpTime  = 10 * time.Second
	dumpBytes = 64 << 20
)

// dump begins or ends the answer to a DumpPackets.
func (c *conn) dump(m *ingestv1.DumpPackets) {
	c.mu.Lock()
	end := c.dumps[m.GetRequestId()]
	delete(c.dumps, m.GetRequestId())
	c.mu.Unlock()
	if end != nil {
		end()
	}
	if m.GetCancel() {
		return
	}
	end = c.background(func(ctx context.Context) {
		last := c.dumping(ctx, m)
		last.RequestId, last.Done = m.GetRequestId(), true
		c.out.put(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_PacketDump{PacketDump: last}}, nil)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dumps[m.GetRequestId()] = end
}

// dumping sends the file and returns its end.
func (c *conn) dumping(ctx context.Context, m *ingestv1.DumpPackets) *ingestv1.PacketDump {
	e := c.s.entry(m.GetCamera())
	if e == nil || !c.mayHear(e) {
		return &ingestv1.PacketDump{Error: wire.Fault(&ingest.Error{Reason: ingest.ReasonNotFound, Err: errors.New("no camera of this name")})}
	}
	l := e.tap.Listen(cmp.Or(m.GetMaxBytes(), dumpBytes))
	over := time.NewTimer(cmp.Or(time.Duration(m.GetDurationNs()), dumpTime))
	defer over.Stop()
	for ended := false; ; {
		b, full := l.Take()
		if len(b) > 0 && !c.out.waitUnit(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_PacketDump{PacketDump: &ingestv1.PacketDump{
			RequestId: m.GetRequestId(), Data: b,
		}}}, len(b)) {
			ended = true
		}
		if ended || full {
			return &ingestv1.PacketDump{Dropped: l.Close()}
		}
		select {
		case <-l.Came():
		case <-over.C:
			ended = true
		case <-e.done:
			ended = true
		case <-ctx.Done():
			ended = true
		}
	}
}
