package decode

import (
	"context"
	"sync"
	"time"

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
	// Held: it has waited for the motion gate.
	Held bool
}

const (
	// tardy is how long a unit waits in a queue that is behind.
	tardy = 500 * time.Millisecond
	// patience is how long a queue may be behind until it gives up: a pause of the process or a large keyframe is caught up with sooner.
	patience = time.Second
)

// queue holds units between the reader, which never waits, and the decoder. It is bounded in bytes, and in time: frames
// that come late are of no use to anybody. Over a bound, everything goes up to the next keyframe, because what lies
// between cannot be decoded any more.
type queue struct {
	limit int

	mu      sync.Mutex // guards everything below
	units   []Unit
	bytes   int
	behind  time.Duration // mono since which it has been behind; 0: it is not
	skip    bool          // waiting for a keyframe after an overflow
	late    uint64        // units dropped so far
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
		q.drop(len(q.units)) // whatever waits is older than what comes
		q.skip = true
	}
	if q.tooLate(u.Received.Mono) {
		q.drop(q.newestKeyframe())
		q.skip = len(q.units) == 0
	}
	if q.skip && !u.Keyframe {
		q.late++
		return
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

// tooLate tells whether what waits has been waiting too long, for too long.
func (q *queue) tooLate(now time.Duration) bool {
	if len(q.units) == 0 || now-q.units[0].Received.Mono < tardy {
		q.behind = 0
		return false
	}
	if q.behind == 0 {
		q.behind = now
	}
	return now-q.behind >= patience
}

// newestKeyframe is where decoding can begin further on in what waits; its end when nowhere.
func (q *queue) newestKeyframe() int {
	for i := len(q.units) - 1; i > 0; i-- {
		if q.units[i].Keyframe {
			return i
		}
	}
	return len(q.units)
}

// drop drops the first n units.
func (q *queue) drop(n int) {
	for i := range q.units[:n] {
		q.bytes -= len(q.units[i].Data)
	}
	clear(q.units[:n])
	q.late += uint64(n)
	q.units, q.behind = q.units[n:], 0
	if len(q.units) > 0 {
		q.units[0].Lost = true
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
