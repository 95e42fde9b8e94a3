package pipeline

import (
	"os"
	"sync"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/ingestclient"
)

// message is what a lane is told besides frames.
type message any

// The messages of a lane.
type (
	// epochOpened brings the slots of a new stream epoch; the lane owns the file.
	epochOpened struct {
		slots *ingestv1.SlotsOpened
		file  *os.File
	}
	// epochClosed says that no frame of a stream epoch follows; an empty epoch means whichever is open.
	epochClosed struct {
		epoch  string
		reason string
	}
	// settingsChanged brings new settings of the camera.
	settingsChanged struct{ settings Analysing }
	// limited says what the box's load does to the camera: the rate it is held to (0: none), and whether it is given up.
	limited struct {
		rate float64
		shed bool
	}
	// dropped counts a frame that gave way to a newer one before the lane saw it.
	dropped struct{ cause string }
	// answered is a response or an error of the stream of a sequence.
	answered struct {
		stream *stream
		answer answer
	}
	// streamEnded says that nothing follows on the stream of a sequence.
	streamEnded struct {
		stream *stream
		err    error
	}
)

// inbox is where a lane's messages and frames wait. Whoever puts something in never waits: frames are bounded by the
// leases ingest grants, messages by what can happen to one camera between two looks.
type inbox struct {
	wake chan struct{} // one token: there is something

	mu       sync.Mutex // guards what follows
	messages []message
	notices  []ingestclient.Frame
	closed   bool
}

func newInbox() inbox { return inbox{wake: make(chan struct{}, 1)} }

// put returns false when the lane has ended; the message then stays the caller's.
func (b *inbox) put(m message) bool {
	b.mu.Lock()
	ok := !b.closed
	if ok {
		b.messages = append(b.messages, m)
	}
	b.mu.Unlock()
	b.signal()
	return ok
}

// announce adds a frame and returns the older ones it displaced: with newestOnly all that still waited, but for those that the
// motion gate held back, which displace none either.
func (b *inbox) announce(n ingestclient.Frame, newestOnly bool) (displaced []ingestclient.Frame, ok bool) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, false
	}
	if newestOnly && !n.GetHeld() {
		waited := b.notices
		b.notices = nil
		for _, w := range waited {
			if w.GetHeld() {
				b.notices = append(b.notices, w)
			} else {
				displaced = append(displaced, w)
			}
		}
	}
	b.notices = append(b.notices, n)
	b.mu.Unlock()
	b.signal()
	return displaced, true
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// takeMessage removes the message that waits longest.
func (b *inbox) takeMessage() (message, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.messages) == 0 {
		return nil, false
	}
	m := b.messages[0]
	b.messages = b.messages[1:]
	return m, true
}

// takeMessages empties the messages.
func (b *inbox) takeMessages() []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.messages
	b.messages = nil
	return m
}

// nextEpoch is the stream epoch of the frame that waits longest; empty when none waits.
func (b *inbox) nextEpoch() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.notices) == 0 {
		return ""
	}
	return b.notices[0].GetStreamEpoch()
}

// takeNotice removes the frame that waits longest.
func (b *inbox) takeNotice() (ingestclient.Frame, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.notices) == 0 {
		return ingestclient.Frame{}, false
	}
	n := b.notices[0]
	b.notices = b.notices[1:]
	return n, true
}

// takeNotices empties the frames.
func (b *inbox) takeNotices() []ingestclient.Frame {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.notices
	b.notices = nil
	return n
}

// refuse takes nothing any more and returns what was left.
func (b *inbox) refuse() ([]message, []ingestclient.Frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	m, n := b.messages, b.notices
	b.messages, b.notices = nil, nil
	return m, n
}
