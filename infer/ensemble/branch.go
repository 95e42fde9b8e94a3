package ensemble

import (
	"context"
	"sync"

	"github.com/vedette/vedette/infer"
)

// outbox gives the replies of a stream one after the other, from whatever
// goroutine they come. Its lock also guards who of the branches has its turn.
type outbox struct {
	mu    sync.Mutex
	queue []infer.Reply
	busy  bool
}

// drain delivers what is queued, unless somebody is at it already.
func (o *outbox) drain(reply func(infer.Reply)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		return
	}
	o.busy = true
	for len(o.queue) > 0 {
		r := o.queue[0]
		o.queue = o.queue[1:]
		o.mu.Unlock()
		reply(r)
		o.mu.Lock()
	}
	o.busy = false
}

// flush delivers what the root's outbox holds. Who delivers the last reply may
// be the last user of the root's memory.
func (f *flight) flush() {
	f.users.Add(1)
	f.out.drain(f.reply)
	f.drop()
}

// emitLocked puts a reply in its place in the stream: behind those of the
// branches before this one. The root's outbox is locked.
func (f *flight) emitLocked(r infer.Reply) {
	switch p := f.parent; {
	case p == nil:
		f.out.queue = append(f.out.queue, r)
	case p.first == f:
		p.emitLocked(r)
	default:
		f.held = append(f.held, r)
	}
}

// passLocked ends a branch's turn, and that of those behind it that have ended
// already. They are returned, to be dropped when nothing is locked. The root's
// outbox is.
func (f *flight) passLocked() (passed []*flight) {
	f.ended = true
	p := f.parent
	for p.first != nil && p.first.ended {
		passed = append(passed, p.first)
		p.first = p.first.next
		if p.first == nil {
			p.last = nil
			break
		}
		for _, r := range p.first.held {
			p.emitLocked(r)
		}
		p.first.held = nil
	}
	return passed
}

// root is the flight of the request itself.
func (f *flight) root() *flight {
	for f.parent != nil {
		f = f.parent
	}
	return f
}

// branch goes on behind a decoupled step with one of its responses. It blocks
// while as many branches are open as the configuration allows, which holds up
// the model that answers.
func (f *flight) branch(step int, r *infer.Response) {
	f.mu.Lock()
	for f.e.limit > 0 && f.branches >= f.e.limit && f.err == nil && f.ctx.Err() == nil {
		f.waitLocked()
	}
	f.running++
	f.branches++
	b := f.fork(step, r)
	if f.plain > 0 {
		f.parked = append(f.parked, b)
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	f.open(b)
}

// fork makes the branch of a response and gives it its place: in the stream of
// answers, and in the line before each step with state.
func (f *flight) fork(step int, r *infer.Response) *flight {
	e := f.e
	b := e.newFlight(f.ctx, f.req, f.reply)
	b.parent, b.origin = f, step
	b.place = placeOf(f.place, r.Parameters)
	b.responses = append(b.responses, r)
	f.users.Add(1)
	b.users.Add(1) // until its turn has passed
	for i := range b.steps {
		s := &b.steps[i]
		// Steps that are not behind the origin are the parent's; those behind a
		// further decoupled step are a further branch's.
		s.started = e.steps[i].source != step || !e.needed(f.req, i)
		if !s.started {
			b.queue(i)
		}
	}
	out := &f.root().out
	out.mu.Lock()
	defer out.mu.Unlock()
	if f.last == nil {
		f.first = b
	} else {
		f.last.next = b
	}
	f.last = b
	return b
}

// place is where a request stands in its sequence.
type place struct {
	id         infer.CorrelationID
	start, end bool
}

// placeOf is the place of what follows a response. A decoupled model that says
// so opens and closes sequences for the steps behind it.
func placeOf(p place, parameters map[string]any) place {
	start, hasStart := parameters["sequence_start"].(bool)
	end, hasEnd := parameters["sequence_end"].(bool)
	id, hasID := p.id, true
	switch v := parameters["sequence_id"].(type) {
	case int64:
		id = infer.CorrelationID{Num: uint64(v)}
	case uint64:
		id = infer.CorrelationID{Num: v}
	case string:
		id = infer.CorrelationID{Str: v}
	default:
		hasID = false
	}
	if hasStart || hasEnd || hasID {
		return place{id, start, end}
	}
	return p
}

// open starts a branch.
func (f *flight) open(b *flight) {
	f.mu.Lock()
	copy(b.tensors, f.tensors)
	b.err = f.err
	f.mu.Unlock()
	st := &f.e.steps[b.origin]
	for _, o := range st.outputs {
		if out := b.responses[0].Output(o.port); out != nil {
			b.tensors[o.tensor] = value{Tensor: *out, set: true, batched: st.batched}
		} else if f.e.dispensable[o.tensor] {
			b.tensors[o.tensor] = value{set: true, absent: true}
		}
	}
	b.mu.Lock()
	b.advanceLocked()
}

// waitLocked waits until a branch ended or the request was cancelled.
func (f *flight) waitLocked() {
	stop := context.AfterFunc(f.ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.room.Broadcast()
	})
	f.room.Wait()
	stop()
}

// finishStream ends a flight of a decoupled ensemble: a branch sends its
// response and tells its parent, the request itself ends the stream. Where the
// last branch is all that the request waits for, its response is the final one.
func (f *flight) finishStream() {
	if f.parent == nil {
		f.out.mu.Lock()
		if last := len(f.out.queue) - 1; last >= 0 && f.err == nil {
			f.out.queue[last].Final = true // nobody has it yet
		} else {
			f.emitLocked(infer.Reply{Err: f.err, Final: true})
		}
		f.out.mu.Unlock()
		f.flush()
		f.response.Release()
		return
	}
	root, parent := f.root(), f.parent
	root.users.Add(1) // until the response is delivered
	split := f.split()
	if f.err == nil && !split {
		f.collect()
	}
	err, answered := f.err, f.err == nil && !split
	root.out.mu.Lock()
	if answered {
		f.emitLocked(infer.Reply{Response: f.response})
	}
	passed := f.passLocked()
	root.out.mu.Unlock()
	if !answered {
		f.response.Release()
	}
	parent.mu.Lock()
	parent.branches -= len(passed)
	parent.room.Broadcast()
	if err != nil && parent.err == nil {
		parent.err = err
	}
	parent.running--
	parent.users.Add(1) // those that passed may be its last
	parent.advanceLocked()
	for _, b := range passed {
		b.drop()
	}
	parent.drop()
	root.flush()
	root.drop()
}

// split tells whether the flight's responses are given by further branches.
func (f *flight) split() bool {
	for i := range f.e.steps {
		if f.e.steps[i].decoupled && f.e.steps[i].source == f.origin {
			return true
		}
	}
	return false
}
