package ensemble

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// flight is one request on its way through the graph. Flights are used again.
type flight struct {
	e     *Ensemble
	ctx   context.Context //nolint:containedctx // the request's own
	req   *infer.Request
	reply func(infer.Reply)

	mu      sync.Mutex
	tensors []value
	steps   []stride
	running int // steps handed out and tickets not passed
	err     error

	responses []*infer.Response // of steps; their memory is in tensors
	response  *infer.Response

	// A response of a decoupled step opens a branch: a flight of its own for
	// the steps behind, which knows what its parent knows.
	parent   *flight
	origin   int       // the decoupled step, -1 in the request's own flight
	plain    int       // of running, those that are neither decoupled nor branches
	parked   []*flight // branches that need what plain steps still make
	branches int
	room     sync.Cond    // a branch ended
	users    atomic.Int32 // of its memory: its response, and its branches
	timed    bool         // the client asks when each step ended
	place    place        // of it in its sequence

	// A caller that waits runs steps itself, one after the other: while driven,
	// one of the steps that may start is left to it.
	driven bool
	todo   []*stride

	out outbox // of the request's own flight

	// The branches in the order of the responses, which is that of their
	// answers. The outbox of the request's own flight guards it.
	first, last *flight
	next        *flight       // behind this one
	ended       bool          // nothing more will be held
	held        []infer.Reply // until it is this one's turn
}

// value is a tensor of the graph.
type value struct {
	tensor.Tensor
	set     bool // it is there, or known to be left out
	absent  bool
	batched bool // the shape has a batch dimension
}

// stride is one step of a flight.
type stride struct {
	f       *flight
	index   int
	started bool
	failed  bool // passes without its inputs
	ticket  ticket
	ticking bool
	ended   time.Time // when f.timed
	req     infer.Request
	reply   func(infer.Reply)
}

func (e *Ensemble) newFlight(ctx context.Context, req *infer.Request, reply func(infer.Reply)) *flight {
	f, ok := e.flights.Get().(*flight)
	if !ok {
		f = &flight{e: e, origin: -1, tensors: make([]value, len(e.tensors)), steps: make([]stride, len(e.steps))}
		f.room.L = &f.mu
		for i := range f.steps {
			s := &f.steps[i]
			s.f, s.index = f, i
			s.reply = s.take
			s.ticket.pass = s.pass
		}
		f.response = infer.NewResponse(nil, func(*infer.Response) { f.drop() })
	}
	f.ctx, f.req, f.reply = ctx, req, reply
	f.timed = req.Parameters[stepTimes] == true
	f.place = place{req.Correlation, req.SequenceStart, req.SequenceEnd}
	f.users.Store(1)
	return f
}

// drop ends one use of the flight's memory: its own response's, or a branch's.
func (f *flight) drop() {
	if f.users.Add(-1) == 0 {
		f.free()
	}
}

// free makes the flight ready for the next request.
func (f *flight) free() {
	parent := f.parent
	for i, r := range f.responses {
		r.Release()
		f.responses[i] = nil
	}
	f.responses = f.responses[:0]
	clear(f.tensors)
	for i := range f.steps {
		s := &f.steps[i]
		s.started, s.failed, s.ticking, s.ended = false, false, false, time.Time{}
		s.ticket = ticket{pass: s.ticket.pass}
		clear(s.req.Inputs)
		s.req = infer.Request{Inputs: s.req.Inputs[:0], Outputs: s.req.Outputs[:0]}
	}
	f.ctx, f.req, f.reply, f.err, f.running = nil, nil, nil, nil, 0
	f.parent, f.origin, f.plain, f.branches, f.out = nil, -1, 0, 0, outbox{}
	f.first, f.last, f.next, f.ended, f.held = nil, nil, nil, false, nil
	f.driven, f.todo = false, f.todo[:0]
	f.e.flights.Put(f)
	if parent != nil {
		parent.drop()
	}
}

// admit takes the tickets and starts the first steps.
func (f *flight) admit() {
	e := f.e
	for i := range f.steps {
		s := &f.steps[i]
		if !e.needed(f.req, i) || e.steps[i].source >= 0 {
			s.started = true
			continue
		}
		f.queue(i)
	}
	f.mu.Lock()
	for _, t := range e.inputs {
		f.tensors[t] = value{set: true, absent: true}
	}
	for i := range f.req.Inputs {
		in := &f.req.Inputs[i]
		f.tensors[e.inputs[in.Name]] = value{Tensor: *in, set: true, batched: e.batched}
	}
	f.advanceLocked()
}

// queue takes the ticket of a step with state.
func (f *flight) queue(i int) {
	if !f.e.steps[i].stateful || f.place.id.IsZero() {
		return
	}
	s := &f.steps[i]
	s.ticking = true
	s.ticket.line = line{i, f.req.Scope, f.place.id}
	f.e.tickets.take(&s.ticket)
	f.running++
	f.plain++
}

// needed tells whether a step contributes to what the request asks for. Steps
// with state always run: what they miss they never learn.
func (e *Ensemble) needed(req *infer.Request, i int) bool {
	s := &e.steps[i]
	if s.stateful || len(req.Outputs) == 0 {
		return true
	}
	for _, o := range s.feeds {
		if slices.ContainsFunc(req.Outputs, func(w infer.OutputSpec) bool { return w.Name == e.outputs[o].name }) {
			return true
		}
	}
	return false
}

// advanceLocked starts every step that has its inputs, unlocks, and ends the
// flight when nothing is left to wait for.
func (f *flight) advanceLocked() {
	if f.err == nil && f.ctx.Err() != nil {
		f.err = cancelled()
	}
	var first [4]*stride
	start := first[:0]
	for i := range f.steps {
		s := &f.steps[i]
		if s.started {
			continue
		}
		if f.err != nil {
			s.started, s.failed = true, true
			if s.ticking {
				start = append(start, s)
			}
			continue
		}
		if f.hasLocked(i) {
			s.started = true
			if !s.ticking {
				f.running++
				if !f.e.steps[i].decoupled {
					f.plain++
				}
			}
			start = append(start, s)
		}
	}
	end := f.running == 0
	if !end && len(start) == 0 && f.stuckLocked() {
		// Only tickets of steps that will never have their inputs are left.
		f.err = f.e.deadlock(f.req)
		f.advanceLocked()
		return
	}
	if f.driven && !end {
		start = f.leaveLocked(start)
	}
	var open []*flight
	if f.plain == 0 && len(f.parked) > 0 {
		open, f.parked = f.parked, nil
	}
	f.mu.Unlock()
	if end {
		f.finish()
		return
	}
	for _, b := range open {
		f.open(b)
	}
	for _, s := range start {
		if s.ticking {
			f.e.tickets.redeem(&s.ticket)
		} else {
			s.pass()
		}
	}
}

// leaveLocked takes the last of the steps that need no ticket out of start and
// leaves it to the driver; the others go to their models meanwhile.
func (f *flight) leaveLocked(start []*stride) []*stride {
	for i, s := range slices.Backward(start) {
		if !s.ticking {
			f.todo = append(f.todo, s)
			return slices.Delete(start, i, i+1)
		}
	}
	return start
}

// drive runs the flight as far as that needs nobody to be waited for.
func (f *flight) drive() {
	f.users.Add(1) // the flight may end underneath
	f.driven = true
	f.admit()
	f.mu.Lock()
	for len(f.todo) > 0 {
		s := f.todo[len(f.todo)-1]
		f.todo = f.todo[:len(f.todo)-1]
		f.mu.Unlock()
		s.hand(f.e.inline)
		f.mu.Lock()
	}
	f.driven = false
	f.mu.Unlock()
	f.drop()
}

// stuckLocked tells whether all that keeps the flight going are tickets of
// steps not started.
func (f *flight) stuckLocked() bool {
	waiting := 0
	for i := range f.steps {
		if f.steps[i].ticking && !f.steps[i].started {
			waiting++
		}
	}
	return waiting == f.running
}

func (f *flight) hasLocked(i int) bool {
	for _, b := range f.e.steps[i].inputs {
		if !f.tensors[b.tensor].set {
			return false
		}
	}
	return true
}

// finish answers the request.
func (f *flight) finish() {
	if f.e.decoupled {
		f.finishStream()
		return
	}
	reply := f.reply
	if f.err == nil {
		f.collect()
	}
	if f.err != nil {
		err := f.err
		f.response.Release() // frees the flight
		reply(infer.Reply{Err: err, Final: true})
		return
	}
	reply(infer.Reply{Response: f.response, Final: true})
}

// collect gathers the outputs that are asked for.
func (f *flight) collect() {
	for _, o := range f.e.outputs {
		wanted := len(f.req.Outputs) == 0 ||
			slices.ContainsFunc(f.req.Outputs, func(w infer.OutputSpec) bool { return w.Name == o.name })
		if !wanted {
			continue
		}
		v := &f.tensors[o.tensor]
		if !v.set || v.absent {
			f.err = f.e.deadlock(f.req)
			return
		}
		f.response.AddView(o.name, v.DataType, shaped(v, f.e.batched, o.dims), v.Data)
	}
	if f.timed {
		f.response.Parameters = map[string]any{stepTimes: f.times()}
	}
}

// wrap says in which ensemble a step failed.
func (e *Ensemble) wrap(err error) error {
	return &infer.Error{Code: infer.CodeOf(err), Reason: infer.ReasonOf(err), Message: "in ensemble '" + e.name + "', " + err.Error()}
}

func (e *Ensemble) deadlock(req *infer.Request) error {
	id := req.ID
	if id == "" {
		id = "<id_unknown>"
	}
	return infer.Errorf(infer.InvalidArgument,
		"in ensemble '%s', [request id: %s] unexpected deadlock, at least one output is not set while no more ensemble steps can be made", e.name, id)
}

func cancelled() error {
	e := infer.Errorf(infer.Cancelled, "request cancelled")
	e.Reason = infer.ReasonCanceled
	return e
}
