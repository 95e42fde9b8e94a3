package sidecar

import (
	"os"
	"sync"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/internal/unixmsg"
)

// outbox holds what waits to be written to one client, so that nobody waits for it. A camera's status
// and counters replace those that still wait; access units are refused beyond a bound in bytes; a
// client so slow that everything else piles up is given up.
type outbox struct {
	mu      sync.Mutex // guards everything below
	queue   []*letter
	status  map[string]*letter // waiting, by camera
	counts  map[string]*letter
	bytes   int // of access units
	closed  bool
	changed sync.Cond
	room    sync.Cond // bytes went down
}

type letter struct {
	message *ingestv1.FromIngest
	file    *os.File // closed when it was sent
	bytes   int
}

const (
	maxLetters   = 4096
	maxUnitBytes = 4 << 20
)

func newOutbox() *outbox {
	o := &outbox{status: map[string]*letter{}, counts: map[string]*letter{}}
	o.changed.L, o.room.L = &o.mu, &o.mu
	return o
}

// put adds a message and takes the file over; false when the client has been given up.
func (o *outbox) put(m *ingestv1.FromIngest, f *os.File) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.putLocked(&letter{message: m, file: f})
}

// putUnit adds an access unit; false when too many wait already.
func (o *outbox) putUnit(m *ingestv1.FromIngest, bytes int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes > 0 && o.bytes+bytes > maxUnitBytes {
		return false
	}
	if !o.putLocked(&letter{message: m, bytes: bytes}) {
		return false
	}
	o.bytes += bytes
	return true
}

// waitUnit adds an access unit once there is room, leaving half of it to those who cannot wait; false when the client
// has been given up.
func (o *outbox) waitUnit(m *ingestv1.FromIngest, bytes int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.bytes > 0 && o.bytes+bytes > maxUnitBytes/2 {
		o.room.Wait()
	}
	if !o.putLocked(&letter{message: m, bytes: bytes}) {
		return false
	}
	o.bytes += bytes
	return true
}

func (o *outbox) putLocked(l *letter) bool {
	if len(o.queue) >= maxLetters {
		o.closeLocked()
	}
	if o.closed {
		if l.file != nil {
			_ = l.file.Close()
		}
		return false
	}
	var waiting map[string]*letter
	var camera string
	if s := l.message.GetCameraStatus(); s != nil {
		waiting, camera = o.status, s.GetCamera()
	} else if n := l.message.GetCounters(); n != nil {
		waiting, camera = o.counts, n.GetCamera()
	}
	if waiting != nil {
		if old := waiting[camera]; old != nil {
			old.message = l.message
			return true
		}
		waiting[camera] = l
	}
	o.queue = append(o.queue, l)
	o.changed.Signal()
	return true
}

// run writes until the client is gone or close is called.
func (o *outbox) run(msg *unixmsg.Conn) {
	defer o.close()
	var b []byte
	for {
		l := o.take()
		if l == nil {
			return
		}
		var err error
		if b, err = (proto.MarshalOptions{}).MarshalAppend(b[:0], l.message); err != nil {
			continue // cannot happen to messages of our own making
		}
		if l.file != nil {
			err = msg.Send(b, l.file)
			_ = l.file.Close()
		} else {
			err = msg.Send(b)
		}
		if err != nil {
			return
		}
		if cap(b) > 1<<20 {
			b = nil
		}
	}
}

// take waits for a message; nil after close.
func (o *outbox) take() *letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) == 0 && !o.closed {
		o.changed.Wait()
	}
	if o.closed {
		return nil
	}
	l := o.queue[0]
	o.queue[0] = nil
	o.queue = o.queue[1:]
	if o.bytes -= l.bytes; l.bytes > 0 {
		o.room.Broadcast()
	}
	if s := l.message.GetCameraStatus(); s != nil {
		delete(o.status, s.GetCamera())
	} else if n := l.message.GetCounters(); n != nil {
		delete(o.counts, n.GetCamera())
	}
	return l
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closeLocked()
}

func (o *outbox) closeLocked() {
	o.closed = true
	for _, l := range o.queue {
		if l.file != nil {
			_ = l.file.Close()
		}
	}
	o.queue = nil
	o.changed.Broadcast()
	o.room.Broadcast()
}
