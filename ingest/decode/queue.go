package decode

import (
	"context"
	"sync"

	"github.com/vedette/vedette/ingest"
)

// Unit is an access unit with what was found out about it.
type Unit struct {
	ingest.AccessUnit
	Epoch *ingest.Epoch
	// Capture and Quality of its time.
	Stamp Stamp
	// Codec of its stream.
	Codec ingest.Codec
}

// queue holds units between the reader, which never waits, and the decoder. It is bounded in bytes; over
// the bound, everything goes up to the next keyframe, because what lies between cannot
// be decoded any more.
type queue struct {
	limit int

	mu      sync.Mutex // guards everything below
	units   []Unit
	bytes   int
	skip    bool   // waiting for a keyframe after an overflow
	late    uint64 // units dropped so far
	changed chan struct{}
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, changed: make(chan struct{}, 1)}
}

// push never waits.
func (q *queue) push(u Unit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.skip && !u.Keyframe {
		q.late++
		return
	}
	if q.bytes+len(u.Data) > q.limit && len(q.units) > 0 {
		// Too far behind: whatever waits is older than what comes.
		q.late += uint64(len(q.units))
		q.units, q.bytes = nil, 0
		if !u.Keyframe {
			q.late++
			q.skip = true
			return
		}
		u.Lost = true
	}
	if q.skip {
		q.skip, u.Lost = false, true
	}
	q.units = append(q.units, u)
	q.bytes += len(u.Data)
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// pop waits for a unit.
func (q *queue) pop(ctx context.Context) (Unit, error) {
	for {
		q.mu.Lock()
		if len(q.units) > 0 {
			u := q.units[0]
			q.units[0] = Unit{}
			q.units = q.units[1:]
			q.bytes -= len(u.Data)
			q.mu.Unlock()
			return u, nil
		}
		q.mu.Unlock()
		select {
		case <-q.changed:
		case <-ctx.Done():
			return Unit{}, ctx.Err()
		}
	}
}

func (q *queue) dropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.late
}
