package repository

import (
	"sync"

	"github.com/vedette/vedette/infer"
)

// order delivers answers in the order in which their requests were admitted,
// over all instances of a model.
type order struct {
	mu     sync.Mutex
	next   uint64 // the request whose turn it is
	busy   bool   // somebody delivers
	parked map[uint64]*parked
}

// parked are answers that wait for those before them.
type parked struct {
	to      func(infer.Reply)
	replies []infer.Reply
}

func newOrder() *order { return &order{next: 1, parked: make(map[uint64]*parked)} }

func (o *order) deliver(ordinal uint64, to func(infer.Reply), r infer.Reply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.parked[ordinal]
	if p == nil {
		p = &parked{to: to}
		o.parked[ordinal] = p
	}
	p.replies = append(p.replies, r)
	if o.busy {
		return // who delivers will come to it
	}
	o.busy = true
	for p := o.parked[o.next]; p != nil && len(p.replies) > 0; p = o.parked[o.next] {
		r := p.replies[0]
		p.replies = p.replies[1:]
		if r.Final {
			delete(o.parked, o.next)
			o.next++
		}
		o.mu.Unlock()
		p.to(r)
		o.mu.Lock()
	}
	o.busy = false
}
