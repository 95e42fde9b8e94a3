package camera

import (
	"io"
	"sync"

	"github.com/vedette/vedette/ingest/decode"
)

// handoff passes a file's units from the goroutine that reads to the one that decodes. Whoever had to wait is
// woken when there is work for a while, not for a single unit: waking a goroutine costs as much as decoding
// part of a small picture.
type handoff struct {
	mu      sync.Mutex // guards everything below
	changed sync.Cond
	units   []decode.Unit
	bytes   int
	full    bool // the reader waits until half is gone
	ended   bool // nothing follows
	stopped bool // nobody takes
}

const (
	maxHandoff      = 64
	maxHandoffBytes = 4 << 20
)

func newHandoff() *handoff {
	h := &handoff{}
	h.changed.L = &h.mu
	return h
}

// put waits for room; the unit is dropped after stop.
func (h *handoff) put(u decode.Unit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.full && !h.stopped {
		h.changed.Wait()
	}
	if h.stopped {
		return
	}
	h.units = append(h.units, u)
	h.bytes += len(u.Data)
	h.full = len(h.units) >= maxHandoff || h.bytes >= maxHandoffBytes
	if len(h.units) == 1 {
		h.changed.Broadcast()
	}
}

// take waits for a unit; io.EOF says that none follows.
func (h *handoff) take() (decode.Unit, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.units) == 0 && !h.ended && !h.stopped {
		h.changed.Wait()
	}
	if h.stopped || len(h.units) == 0 {
		return decode.Unit{}, io.EOF
	}
	u := h.units[0]
	h.units[0] = decode.Unit{}
	h.units = h.units[1:]
	h.bytes -= len(u.Data)
	if h.full && len(h.units) <= maxHandoff/2 && h.bytes <= maxHandoffBytes/2 {
		h.full = false
		h.changed.Broadcast()
	}
	return u, nil
}

// end says that nothing follows what is there.
func (h *handoff) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.changed.Broadcast()
}

// stop ends both sides at once.
func (h *handoff) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped, h.units = true, nil
	h.changed.Broadcast()
}
