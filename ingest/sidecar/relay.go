package sidecar

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/wire"
	"github.com/vedette/vedette/internal/unixmsg"
)

// relay is one client's connection to the process of an isolated camera. Messages about that camera pass through
// unchanged, both ways, with their descriptors; states and counters come by the worker's own connection.
type relay struct {
	c      *conn
	w      *worker
	cancel context.CancelFunc

	mu      sync.Mutex    // guards everything below
	msg     *unixmsg.Conn // nil: there is no connection
	watches map[string]*ingestv1.ToIngest
	pending map[uint64]*request
	epoch   string // whose slots are open
}

// request waits for its answer.
type request struct {
	ask  *ingestv1.ToIngest
	lost *ingestv1.FromIngest // what is answered if the process ends first
	sent bool
	made time.Time
}

const (
	relayRetry = 100 * time.Millisecond
	// How long a request waits for a process that is about to start.
	relayPatience = 2 * time.Second
)

// relay returns the client's connection to the process of a camera; nil when the client has gone.
func (c *conn) relay(w *worker) *relay {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	r := c.relays[w]
	if r == nil {
		r = &relay{c: c, w: w, watches: map[string]*ingestv1.ToIngest{}, pending: map[uint64]*request{}}
		c.relays[w] = r
		r.cancel = c.background(r.run)
	}
	return r
}

// relayOf returns the relay a lease came by, or nil.
func (c *conn) relayOf(lease uint64) *relay {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w, r := range c.relays {
		if w.number == lease/leasesPerWorker {
			return r
		}
	}
	return nil
}

// dropRelay ends the connection to a process that is no more.
func (c *conn) dropRelay(w *worker) {
	c.mu.Lock()
	r := c.relays[w]
	delete(c.relays, w)
	c.mu.Unlock()
	if r != nil {
		r.cancel()
	}
}

// forward passes a request about an isolated camera on; false when it is none.
func (c *conn) forward(m *ingestv1.ToIngest) bool {
	var name string
	var id uint64
	var lost *ingestv1.FromIngest
	var r *relay
	fault := wire.Fault(gone(errors.New("the process of the camera has ended")))
	switch {
	case m.GetGetPicture() != nil:
		g := m.GetGetPicture()
		name, id, r = g.GetCamera(), g.GetRequestId(), c.relayOf(g.GetLeaseId())
		lost = &ingestv1.FromIngest{Message: &ingestv1.FromIngest_Picture{Picture: &ingestv1.Picture{RequestId: id, Camera: name, Error: fault}}}
	case m.GetGetProbe() != nil:
		// Where its session is, so that there is one.
		g := m.GetGetProbe()
		want := wire.Camera(g.GetCamera())
		id, lost = g.GetRequestId(), &ingestv1.FromIngest{Message: &ingestv1.FromIngest_Probe{Probe: &ingestv1.Probe{RequestId: g.GetRequestId(), Error: fault}}}
		for _, e := range c.s.entries() {
			if e.worker != nil && e.worker.reads(want) {
				r = c.relay(e.worker)
			}
		}
	case m.GetGetAccessUnits() != nil:
		g := m.GetGetAccessUnits()
		name, id = g.GetCamera(), g.GetRequestId()
		lost = &ingestv1.FromIngest{Message: &ingestv1.FromIngest_AccessUnits{AccessUnits: &ingestv1.AccessUnits{RequestId: id, Done: true, Error: fault}}}
		if g.GetCancel() {
			r = c.asked(id)
		}
	case m.GetDumpPackets() != nil:
		g := m.GetDumpPackets()
		name, id = g.GetCamera(), g.GetRequestId()
		lost = &ingestv1.FromIngest{Message: &ingestv1.FromIngest_PacketDump{PacketDump: &ingestv1.PacketDump{RequestId: id, Done: true, Error: fault}}}
		if g.GetCancel() {
			r = c.asked(id)
		}
	}
	if name != "" {
		if e := c.s.entry(name); e != nil && e.worker != nil {
			r = c.relay(e.worker)
		}
	}
	if r == nil {
		return false
	}
	r.mu.Lock()
	r.pending[id] = &request{ask: m, lost: lost, sent: r.msg != nil, made: time.Now()}
	r.mu.Unlock()
	r.send(m)
	return true
}

// asked returns the relay a request went by, or nil.
func (c *conn) asked(id uint64) *relay {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.relays {
		r.mu.Lock()
		_, mine := r.pending[id]
		r.mu.Unlock()
		if mine {
			return r
		}
	}
	return nil
}

func (r *relay) answered(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, id)
}

// watch begins or ends watching something, now and after every reconnect.
func (r *relay) watch(what string, m *ingestv1.ToIngest) {
	r.mu.Lock()
	r.watches[what] = m
	r.mu.Unlock()
	r.send(m)
}

// send writes to the process; false when there is no connection.
func (r *relay) send(m *ingestv1.ToIngest) bool {
	r.mu.Lock()
	msg := r.msg
	r.mu.Unlock()
	if msg == nil {
		return false
	}
	b, err := proto.Marshal(m)
	return err == nil && msg.Send(b) == nil
}

// run keeps the connection until ctx ends.
func (r *relay) run(ctx context.Context) {
	for ctx.Err() == nil {
		r.session(ctx)
		t := time.NewTimer(relayRetry)
		select {
		case <-t.C:
		case <-r.w.over:
			t.Stop()
			r.ended()
			return
		case <-ctx.Done():
			t.Stop()
		}
	}
}

func (r *relay) session(ctx context.Context) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "unix", r.w.socket)
	if err != nil {
		r.giveUp()
		return
	}
	msg := unixmsg.New(raw.(*net.UnixConn))
	stop := context.AfterFunc(ctx, func() { _ = msg.Close() })
	defer stop()
	r.mu.Lock()
	r.msg = msg
	said := []*ingestv1.ToIngest{{Message: &ingestv1.ToIngest_Hello{Hello: &ingestv1.Hello{Contract: ingestv1.Contract(), Program: r.c.s.cfg.Program}}}}
	for _, m := range r.watches {
		said = append(said, m)
	}
	for _, q := range r.pending {
		if !q.sent {
			q.sent = true
			said = append(said, q.ask)
		}
	}
	r.mu.Unlock()
	for _, m := range said {
		r.send(m)
	}
	for r.receive(msg) {
	}
	_ = msg.Close()
	msg.Discard()
	r.ended()
}

// receive passes one message on; false at the end of the connection.
func (r *relay) receive(msg *unixmsg.Conn) bool {
	payload, files, err := msg.Receive()
	if err != nil {
		return false
	}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	m := &ingestv1.FromIngest{}
	if proto.Unmarshal(payload, m) != nil {
		return false
	}
	switch t := m.GetMessage().(type) {
	case *ingestv1.FromIngest_Hello, *ingestv1.FromIngest_CameraStatus, *ingestv1.FromIngest_Counters, *ingestv1.FromIngest_ClockStep, *ingestv1.FromIngest_Alive:
		return true
	case *ingestv1.FromIngest_SlotsOpened:
		r.open(t.SlotsOpened.GetStreamEpoch())
		if len(files) == 1 {
			var f *os.File
			f, files = files[0], nil
			r.c.out.put(m, f)
		}
		return true
	case *ingestv1.FromIngest_SlotsClosed:
		r.open("")
	case *ingestv1.FromIngest_Picture:
		r.answered(t.Picture.GetRequestId())
	case *ingestv1.FromIngest_Probe:
		r.answered(t.Probe.GetRequestId())
	case *ingestv1.FromIngest_AccessUnit:
		// Waiting here is waited for there, where whole groups of pictures are dropped and counted.
		r.c.out.waitUnit(m, len(payload))
		return true
	case *ingestv1.FromIngest_AccessUnits:
		if t.AccessUnits.GetDone() {
			r.answered(t.AccessUnits.GetRequestId())
			break
		}
		r.c.out.waitUnit(m, len(payload))
		return true
	case *ingestv1.FromIngest_PacketDump:
		if t.PacketDump.GetDone() {
			r.answered(t.PacketDump.GetRequestId())
			break
		}
		r.c.out.waitUnit(m, len(payload))
		return true
	}
	r.c.out.put(m, nil)
	return true
}

func (r *relay) open(epoch string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch = epoch
}

// ended tells the client what has ended with the connection.
func (r *relay) ended() {
	r.mu.Lock()
	epoch, pending := r.epoch, r.pending
	r.msg, r.epoch, r.pending = nil, "", map[uint64]*request{}
	r.mu.Unlock()
	if epoch != "" {
		r.c.SlotsClosed(r.w.name, &ingest.Epoch{ID: epoch})
	}
	for _, q := range pending {
		r.c.out.put(q.lost, nil)
	}
}

// giveUp answers what has waited too long for the process to start.
func (r *relay) giveUp() {
	r.mu.Lock()
	var lost []*ingestv1.FromIngest
	for id, q := range r.pending {
		if time.Since(q.made) > relayPatience {
			delete(r.pending, id)
			lost = append(lost, q.lost)
		}
	}
	r.mu.Unlock()
	for _, m := range lost {
		r.c.out.put(m, nil)
	}
}
