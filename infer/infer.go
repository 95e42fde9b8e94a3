// Package infer is the vocabulary of the inference sidecar: what is asked of a
// model, what it answers, and the one door everything goes through.
//
// Frontends, ensembles, scripts and the appliance's pipeline all hold an
// Inferer and nothing else of the server; a Catalog tells them what there is
// to ask. How models are found, scheduled and run is in the packages below.
package infer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/infer/tensor"
)

// Inferer runs models.
type Inferer interface {
	// Submit admits a request and returns; it never waits for the model.
	// Requests of one correlation id execute in the order of their Submits.
	//
	// An error means refused: reply is not called and the request stays the
	// caller's. After nil, reply is called, never concurrently with itself,
	// until one Reply is Final. It runs on the server's goroutines, so it must
	// not block; it may be called before Submit returns.
	//
	// The request and the memory of its tensors belong to the server until the
	// final reply was delivered and every response was released, since outputs
	// may be views of inputs. Cancelling ctx cancels the request wherever it
	// waits; a model that is running is not interrupted.
	Submit(ctx context.Context, req *Request, reply func(Reply)) error
}

// Doer is an Inferer that can run a request on the caller's own goroutine,
// which saves two hand-offs. Await uses it where it is there.
type Doer interface {
	Do(ctx context.Context, req *Request) (*Response, error)
}

// Brief is an Inferer that knows which models are done sooner than a goroutine is
// woken. SubmitBrief is Submit that may run those on the caller's goroutine; how
// long that takes is no promise.
type Brief interface {
	SubmitBrief(ctx context.Context, req *Request, reply func(Reply)) error
}

// SubmitBrief is Submit for a caller that reply may be called by, once the model
// has run, where the model is brief and idle.
func SubmitBrief(ctx context.Context, inf Inferer, req *Request, reply func(Reply)) error {
	if b, ok := inf.(Brief); ok {
		return b.SubmitBrief(ctx, req, reply)
	}
	return inf.Submit(ctx, req, reply)
}

// Request asks a model for one inference (of a batch, where it batches).
type Request struct {
	ID    string // the client's name for it, echoed; may be empty
	Model string
	// Version to use; <= 0 leaves it to the model's version policy.
	Version int64

	// Correlation names the sequence it belongs to; zero is none.
	Correlation                CorrelationID
	SequenceStart, SequenceEnd bool
	// Scope is the listener it came through. Sequences of one scope cannot be
	// reached from another, even with equal correlation ids.
	Scope string

	// Priority 1 is the highest; 0 takes the model's default.
	Priority uint64
	// Timeout bounds the time in the queue; 0 leaves it to the queue policy.
	Timeout time.Duration
	// Parameters are the client's own: string, int64, uint64, bool, float64.
	Parameters map[string]any

	Inputs []tensor.Tensor
	// Raw is the single input's bytes when the client named no tensor at all
	// (raw binary request): name, type and shape are deduced. Nil is none;
	// Inputs is then ignored.
	Raw []byte
	// Outputs lists what is wanted; empty is everything.
	Outputs []OutputSpec

	// Shared says that inputs lie in memory that somebody may write while they are read.
	Shared bool
	// Guard watches inputs that somebody may write while they are read; nil: nobody does.
	Guard Guard

	// Received is when the first byte of it was there, for statistics; zero is
	// the time of Submit.
	Received time.Time
}

// Guard knows whether inputs in memory of others are still what was sent. An ensemble tells it when a step that read one has ended.
type Guard interface {
	// Intact is asked where nothing that the step made lies in the input's memory. An error says that the input has changed; it
	// fails the request, and what the step made is not used.
	Intact(input string) error
	// Keep says that something the step made lies in the input's memory: it is read until the request has ended. Of inputs that
	// are not kept, those that were intact need not be looked at then.
	Keep(input string)
}

// OutputSpec asks for one output.
type OutputSpec struct {
	Name string
	// Classes > 0 replaces the tensor by its so many highest values with index
	// and label, as BYTES.
	Classes int
	// Into is memory the output is written to, a client's region for example;
	// nil lets the server choose. Too small is an error of the request.
	Into []byte
	// Parameters are what the client set and the server does not know.
	Parameters map[string]any
}

// CorrelationID names a sequence by a number or by a string; "5" and 5 differ.
// The zero value is no sequence.
type CorrelationID struct {
	Num uint64
	Str string
}

// IsZero tells that there is no sequence.
func (c CorrelationID) IsZero() bool { return c == CorrelationID{} }

// Reply is one delivery of a request: a response, an error, or neither when a
// decoupled model says that nothing more will come. An error is final but where
// a decoupled model says that one of its responses failed.
type Reply struct {
	Response *Response
	Err      error
	Final    bool
}

// Do asks for exactly one response. A model that answers with none or several
// is an error. When ctx ends it returns at once; the request and the memory of
// its tensors are the server's for as long as the model works on them, so they
// must not be used again then. Await is for those who do.
func Do(ctx context.Context, inf Inferer, req *Request) (*Response, error) {
	if ctx.Done() == nil {
		return Await(ctx, inf, req)
	}
	w := &waiter{done: make(chan struct{}, 1)}
	if err := inf.Submit(ctx, req, w.take); err != nil {
		return nil, err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if w.over.Swap(true) {
			break // the answer was faster
		}
		return nil, fmt.Errorf("%w: %w", Errorf(Cancelled, "request cancelled"), context.Cause(ctx))
	}
	return w.result()
}

// Await is Do that returns only when the server is through with the request,
// also if ctx ends before.
func Await(ctx context.Context, inf Inferer, req *Request) (*Response, error) {
	if d, ok := inf.(Doer); ok {
		return d.Do(ctx, req)
	}
	return new(Waits).Do(ctx, inf, req)
}

// Waits turns Submit into a call that waits, and keeps what that takes for
// reuse. It is how an Inferer becomes a Doer. The zero value is ready.
type Waits struct{ free sync.Pool }

// Do submits to inf and waits for exactly one response.
func (ws *Waits) Do(ctx context.Context, inf Inferer, req *Request) (*Response, error) {
	w, ok := ws.free.Get().(*waiter)
	if !ok {
		w = &waiter{done: make(chan struct{}, 1)}
		w.reply = w.take
	}
	if err := inf.Submit(ctx, req, w.reply); err != nil {
		ws.free.Put(w)
		return nil, err
	}
	<-w.done
	resp, err := w.result()
	w.resp, w.err, w.count = nil, nil, 0
	w.over.Store(false)
	ws.free.Put(w)
	return resp, err
}

type waiter struct {
	done  chan struct{} // one slot, so that the server never waits for the reader
	reply func(Reply)
	over  atomic.Bool // the final reply came, or nobody waits for it
	resp  *Response
	err   error
	count int
}

// result is what the final reply left.
func (w *waiter) result() (*Response, error) {
	err := w.err
	if err == nil && w.count != 1 {
		err = Errorf(Internal, "expected a single response, got %d", w.count)
	}
	if err != nil {
		w.resp.Release()
		return nil, err
	}
	return w.resp, nil
}

func (w *waiter) take(r Reply) {
	if r.Response != nil {
		if w.count++; w.count == 1 {
			w.resp = r.Response
		} else {
			r.Response.Release()
		}
	}
	if r.Err != nil {
		w.err = r.Err
	}
	if !r.Final {
		return
	}
	if w.over.Swap(true) {
		w.resp.Release() // its reader has gone
		return
	}
	w.done <- struct{}{}
}
