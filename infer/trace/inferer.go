package trace

import (
	"context"
	"iter"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/infer"
)

// Frontend is how requests come in; it names the first and the last stations of a trace.
type Frontend string

// The frontends.
const (
	HTTP Frontend = "HTTP"
	GRPC Frontend = "GRPC"
)

// stations of a frontend: the request is read between the first two, the response sent between the others.
func (f Frontend) stations() (readStart, readEnd, sendStart, sendEnd string) {
	if f == HTTP {
		return "HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START", "HTTP_SEND_END"
	}
	return "GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "GRPC_SEND_START", "GRPC_SEND_END"
}

// Inferer traces requests on their way to next as the settings say.
func (s *Settings) Inferer(next infer.Inferer, from Frontend) infer.Inferer {
	return &inferer{settings: s, next: next, from: from}
}

type inferer struct {
	settings *Settings
	next     infer.Inferer
	from     Frontend
	waits    infer.Waits
}

// Do implements infer.Doer: most requests are not traced and go straight through.
func (i *inferer) Do(ctx context.Context, req *infer.Request) (*infer.Response, error) {
	if !i.settings.on.Load() {
		return infer.Await(ctx, i.next, req)
	}
	return i.waits.Do(ctx, i, req)
}

// SubmitBrief implements infer.Brief.
func (i *inferer) SubmitBrief(ctx context.Context, req *infer.Request, reply func(infer.Reply)) error {
	if !i.settings.on.Load() {
		return infer.SubmitBrief(ctx, i.next, req, reply)
	}
	return i.Submit(ctx, req, reply)
}

// Submit implements infer.Inferer.
func (i *inferer) Submit(ctx context.Context, req *infer.Request, reply func(infer.Reply)) error {
	if !i.settings.on.Load() {
		return i.next.Submit(ctx, req, reply)
	}
	t := i.settings.begin(ctx, req, i.from)
	if t == nil {
		return i.next.Submit(ctx, req, reply)
	}
	err := i.next.Submit(ctx, req, func(r infer.Reply) {
		if !r.Final {
			reply(r)
			return
		}
		t.ended(req, r.Response)
		reply(r)
		t.done()
	})
	if err != nil {
		t.ended(req, nil)
		t.done()
	}
	return err
}

// live is a request that is being traced. It is recognised by the map of its parameters, which whatever works on
// its behalf shares: the steps of an ensemble get it too.
type live struct {
	settings   *Settings
	from       Frontend
	own        map[string]any // the map it is recognised by
	parameters map[string]any // what the client sent
	timestamps bool
	tensors    bool
	file       target
	parent     context.Context //nolint:containedctx // the span it belongs to, and nothing else; nil without spans
	// open counts who may still have something to say: the request, executions of it and the response.
	open atomic.Int32

	mu     sync.Mutex
	record record
	steps  []record
}

// keyOf is what tells a map from all others as long as somebody holds it.
func keyOf(parameters map[string]any) uintptr { return reflect.ValueOf(parameters).Pointer() }

func (s *Settings) begin(ctx context.Context, req *infer.Request, from Frontend) *live {
	timestamps, tensors := s.Sample(req.Model)
	if !timestamps && !tensors {
		return nil
	}
	now := time.Now()
	t := &live{settings: s, from: from, parameters: req.Parameters, timestamps: timestamps, tensors: tensors, file: s.target(req.Model)}
	t.open.Store(1)
	if s.spans != nil {
		t.parent = parent(ctx)
	}
	t.record = record{ID: s.ids.Add(1), Model: req.Model, Version: max(req.Version, 0), Request: req.ID}
	own := make(map[string]any, len(req.Parameters))
	maps.Copy(own, req.Parameters)
	req.Parameters = own
	t.own = own
	readStart, readEnd, _, _ := from.stations()
	if !req.Received.IsZero() {
		t.record.mark(readStart, req.Received)
		t.record.mark(readEnd, now)
	}
	t.record.mark("REQUEST_START", now)
	t.record.mark("QUEUE_START", now)
	if tensors {
		t.record.tensors("TENSOR_QUEUE_INPUT", req.Inputs)
	}
	s.live.Store(keyOf(own), t)
	s.underWay.Add(1)
	return t
}

// ended marks the end of the request; the response is sent until it is released.
func (t *live) ended(req *infer.Request, resp *infer.Response) {
	req.Parameters = t.parameters
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.record.mark("INFER_RESPONSE_COMPLETE", now)
	t.record.mark("REQUEST_END", now)
	if resp == nil {
		return
	}
	t.record.Version = resp.Version
	if t.tensors {
		t.record.tensors("TENSOR_BACKEND_OUTPUT", resp.Outputs)
	}
	_, _, sendStart, sendEnd := t.from.stations()
	t.record.mark(sendStart, now)
	t.open.Add(1)
	resp.OnRelease(func() {
		t.mu.Lock()
		t.record.mark(sendEnd, time.Now())
		t.mu.Unlock()
		t.done()
	})
}

// done writes the trace when nobody has anything to add.
func (t *live) done() {
	if t.open.Add(-1) > 0 {
		return
	}
	t.settings.live.Delete(keyOf(t.own))
	t.settings.underWay.Add(-1)
	t.mu.Lock()
	defer t.mu.Unlock()
	records := append([]record{t.record}, t.steps...)
	for i := range records {
		if !t.timestamps {
			records[i].Stamps = nil
		}
	}
	if t.settings.spans != nil {
		t.settings.spans.send(t.parent, records)
		return
	}
	t.settings.write(t.file, records)
}

// Execution is what a model's instance tells of the traced requests of one batch. The zero value is of none.
type Execution struct {
	parts []part
}

type part struct {
	trace    *live
	model    string
	version  int64
	request  string
	enqueued time.Time
}

// Executing is called before a batch runs, with its requests and when they came to their scheduler; Done of what it
// returns is called afterwards.
func (s *Settings) Executing(each iter.Seq2[*infer.Request, time.Time], version int64) Execution {
	var e Execution
	if s.underWay.Load() == 0 {
		return e
	}
	for req, enqueued := range each {
		if req == nil || req.Parameters == nil {
			continue
		}
		v, ok := s.live.Load(keyOf(req.Parameters))
		if !ok {
			continue
		}
		if t, ok := v.(*live); ok {
			t.open.Add(1)
			e.parts = append(e.parts, part{t, req.Model, version, req.ID, enqueued})
		}
	}
	return e
}

// Done tells when the batch began and ended; inputEnd and outputStart may be zero.
func (e Execution) Done(start, inputEnd, outputStart, end time.Time) {
	for _, p := range e.parts {
		p.trace.executed(p, start, inputEnd, outputStart, end)
		p.trace.done()
	}
}

func (t *live) executed(p part, start, inputEnd, outputStart, end time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.record
	if p.model != r.Model {
		t.steps = append(t.steps, record{ID: t.settings.ids.Add(1), Parent: t.record.ID, Model: p.model, Version: p.version, Request: p.request})
		r = &t.steps[len(t.steps)-1]
		if !p.enqueued.IsZero() {
			r.mark("REQUEST_START", p.enqueued)
			r.mark("QUEUE_START", p.enqueued)
		}
		defer func() {
			r.mark("INFER_RESPONSE_COMPLETE", end)
			r.mark("REQUEST_END", end)
		}()
	}
	if inputEnd.IsZero() {
		inputEnd = start
	}
	if outputStart.IsZero() {
		outputStart = end
	}
	r.mark("COMPUTE_START", start)
	r.mark("COMPUTE_INPUT_END", inputEnd)
	r.mark("COMPUTE_OUTPUT_START", outputStart)
	r.mark("COMPUTE_END", end)
}

// Empty tells that nothing of the batch is traced.
func (e Execution) Empty() bool { return len(e.parts) == 0 }
