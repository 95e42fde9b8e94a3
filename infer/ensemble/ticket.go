package ensemble

import (
	"sync"

	"github.com/vedette/vedette/infer"
)

// tickets keeps the stateful steps of each sequence in the order in which the
// requests were admitted.
type tickets struct {
	mu    sync.Mutex
	lines map[line]*queue
}

// line is one step of one sequence.
type line struct {
	step  int
	scope string
	id    infer.CorrelationID
}

// queue is a line with somebody in it.
type queue struct {
	first, last *ticket
	busy        bool // somebody is letting them pass
}

// ticket is a request's place in a line.
type ticket struct {
	next  *ticket
	ready bool
	pass  func() // its turn: hand the step to its model
	line  line
}

// take joins a line.
func (ts *tickets) take(t *ticket) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.lines == nil {
		ts.lines = make(map[line]*queue)
	}
	q := ts.lines[t.line]
	if q == nil {
		q = new(queue)
		ts.lines[t.line] = q
	}
	if q.last == nil {
		q.first = t
	} else {
		q.last.next = t
	}
	q.last = t
}

// redeem says that a ticket could pass, and lets pass whoever is first and
// ready. Passing is handing over a step, not its end: the model's scheduler
// keeps the order from there.
func (ts *tickets) redeem(t *ticket) {
	ts.mu.Lock()
	t.ready = true
	key := t.line // a ticket that has passed may be in use again
	q := ts.lines[key]
	if q.busy {
		ts.mu.Unlock()
		return // who is at it will come to this one
	}
	q.busy = true
	for q.first != nil && q.first.ready {
		head := q.first
		q.first = head.next
		if q.first == nil {
			q.last = nil
		}
		ts.mu.Unlock()
		head.pass()
		ts.mu.Lock()
	}
	q.busy = false
	if q.first == nil {
		delete(ts.lines, key)
	}
	ts.mu.Unlock()
}
