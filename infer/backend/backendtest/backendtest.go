// Package backendtest is the conformance kit for backends: what the server
// relies on, checked against an implementation and a small model of it.
package backendtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// Case is a backend and a model it can run.
type Case struct {
	Backend backend.Backend
	// Model as the server would hand it over; Config is copied before use by
	// the caller if it matters.
	Model *backend.Model
	// Inputs of the i-th request, with controls where the model has any. They
	// have a batch dimension of 1 where the model batches.
	Inputs func(i int) []tensor.Tensor
	// Check looks at the responses to the i-th request; nil: only their form
	// is checked.
	Check func(t *testing.T, i int, responses []*infer.Response)
	// Outputs every response has; empty: those of the configuration.
	Outputs []string
	// Patience for decoupled models to answer; 0: 10 s.
	Patience time.Duration
}

// Run checks the backend.
func Run(t *testing.T, c Case) {
	t.Helper()
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	ctx := context.WithoutCancel(t.Context())
	if err := c.Backend.Complete(ctx, c.Model); err != nil {
		t.Fatalf("Complete: %v", err)
	}
	if len(c.Outputs) == 0 {
		for _, o := range c.Model.Config.GetOutput() {
			c.Outputs = append(c.Outputs, o.GetName())
		}
	}
	open := func(t *testing.T, index int) backend.Instance {
		t.Helper()
		in, err := c.Backend.NewInstance(ctx, c.Model, backend.Placement{
			Name: "kit_" + string(rune('0'+index)), Group: "kit", Index: index,
			Kind: inference.ModelInstanceGroup_KIND_CPU, GPU: -1, CPUThreads: 1,
		})
		if err != nil {
			t.Fatalf("NewInstance: %v", err)
		}
		return in
	}
	shut := func(t *testing.T, in backend.Instance) {
		t.Helper()
		if err := in.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	single := func(f func(t *testing.T, k *kit, in backend.Instance)) func(*testing.T) {
		return func(t *testing.T) {
			in := open(t, 0)
			k := &kit{c: c, t: t}
			f(t, k, in)
			shut(t, in)
			k.leaks()
		}
	}
	t.Run("a request is answered once", single(func(t *testing.T, k *kit, in backend.Instance) {
		k.execute(in, k.job(0))
		k.check(t)
	}))
	t.Run("an instance opens and closes without work", single(func(*testing.T, *kit, backend.Instance) {}))
	t.Run("an empty list does nothing", single(func(t *testing.T, k *kit, in backend.Instance) { k.execute(in) }))
	t.Run("requests of a list are answered each", single(func(t *testing.T, k *kit, in backend.Instance) {
		n := int(max(1, min(4, c.Model.Config.GetMaxBatchSize())))
		var jobs []*seat
		for i := range n {
			jobs = append(jobs, k.job(i))
		}
		k.execute(in, jobs...)
		k.check(t)
	}))
	t.Run("an instance is used again", single(func(t *testing.T, k *kit, in backend.Instance) {
		for i := range 3 {
			k.execute(in, k.job(i))
		}
		k.check(t)
	}))
	t.Run("a cancelled request is answered all the same", single(func(_ *testing.T, k *kit, in backend.Instance) {
		j := k.job(0)
		j.cancelled = true
		k.execute(in, j)
	}))
	t.Run("only wanted outputs are needed", single(func(_ *testing.T, k *kit, in backend.Instance) {
		j := k.job(0)
		j.Request.Outputs = []infer.OutputSpec{{Name: c.Outputs[0]}}
		k.execute(in, j)
	}))
	t.Run("a request without inputs harms no other", single(func(t *testing.T, k *kit, in backend.Instance) {
		j := k.job(0)
		j.Inputs = nil
		j.mayFail = true
		k.execute(in, j)
		k.execute(in, k.job(0))
		k.check(t)
	}))
	t.Run("two instances run side by side", func(t *testing.T) {
		a, b := open(t, 0), open(t, 1)
		var wg sync.WaitGroup
		kits := []*kit{{c: c, t: t}, {c: c, t: t}}
		for n, in := range []backend.Instance{a, b} {
			wg.Go(func() {
				for i := range 3 {
					kits[n].execute(in, kits[n].job(i))
				}
			})
		}
		wg.Wait()
		for _, k := range kits {
			k.check(t)
			k.leaks()
		}
		shut(t, a)
		shut(t, b)
	})
}

// kit is one test's supply of jobs.
type kit struct {
	c     Case
	t     *testing.T
	pool  tensor.Pool
	seats []*seat
	// sequence numbers the requests of models with sequences.
	sequence uint64
}

// seat is a job and what became of it. It is the job's owner.
type seat struct {
	backend.Job
	k         *kit
	index     int
	cancelled bool
	mayFail   bool

	mu        sync.Mutex
	responses []*infer.Response
	ends      int
	err       error
	end       chan struct{} // one slot for each end there could be: too many must not block
}

func (k *kit) job(i int) *seat {
	s := &seat{k: k, index: i, end: make(chan struct{}, 16)}
	inputs := k.c.Inputs(i)
	k.sequence++
	s.Job = backend.Job{
		Request: &infer.Request{ID: "kit", Model: k.c.Model.Name, Inputs: inputs, Correlation: infer.CorrelationID{Num: k.sequence}},
		Inputs:  slices.Clone(inputs), Batch: 1, Sequence: k.sequence, Start: true, End: true,
		Timing: new(backend.Timing), Owner: s,
	}
	k.seats = append(k.seats, s)
	return s
}

func (k *kit) decoupled() bool { return k.c.Model.Config.GetModelTransactionPolicy().GetDecoupled() }

// execute runs jobs and waits for their ends.
func (k *kit) execute(in backend.Instance, seats ...*seat) {
	k.t.Helper()
	var jobs []*backend.Job
	for _, s := range seats {
		jobs = append(jobs, &s.Job)
	}
	in.Execute(context.WithoutCancel(k.t.Context()), jobs)
	for _, s := range seats {
		if k.decoupled() {
			select {
			case <-s.end:
			case <-time.After(k.c.Patience):
				k.t.Errorf("request %d has not ended after %v", s.index, k.c.Patience)
			}
		}
		s.mu.Lock()
		if s.ends != 1 {
			k.t.Errorf("request %d has %d final answers when Execute returns, want 1", s.index, s.ends)
		}
		if s.err != nil && !s.mayFail && !s.cancelled {
			k.t.Errorf("request %d failed: %v", s.index, s.err)
		}
		s.mu.Unlock()
	}
	if keeper, ok := in.(backend.SequenceKeeper); ok {
		for _, s := range seats {
			keeper.EndSequence(s.Sequence, backend.CauseEnd)
		}
	}
}

// check looks at all answers.
func (k *kit) check(t *testing.T) {
	t.Helper()
	for _, s := range k.seats {
		s.mu.Lock()
		if s.err == nil && !s.mayFail {
			for _, r := range s.responses {
				s.form(t, r)
			}
			if k.c.Check != nil {
				k.c.Check(t, s.index, s.responses)
			}
		}
		s.mu.Unlock()
	}
}

// form checks that the tensors of a response hold together.
func (s *seat) form(t *testing.T, r *infer.Response) {
	t.Helper()
	for _, name := range s.k.c.Outputs {
		out := r.Output(name)
		if out == nil {
			t.Errorf("request %d: the response has no output %q", s.index, name)
			continue
		}
		if out.DataType == tensor.Bytes {
			n, err := tensor.CountElements(out.Data)
			want, err2 := tensor.ElementCount(out.Shape)
			if err := errors.Join(err, err2); err != nil || n != want {
				t.Errorf("request %d: output %q of shape %v holds %d strings (%v)", s.index, name, out.Shape, n, err)
			}
			continue
		}
		if size, err := tensor.ByteSize(out.DataType, out.Shape); err != nil || size != int64(len(out.Data)) {
			t.Errorf("request %d: output %q of %s%v has %d bytes, want %d (%v)", s.index, name, out.DataType, out.Shape, len(out.Data), size, err)
		}
	}
}

// leaks releases the responses and counts buffers that stay lent.
func (k *kit) leaks() {
	for _, s := range k.seats {
		for _, r := range s.responses {
			r.Release()
		}
	}
	if n := k.pool.Lent(); n != 0 {
		k.t.Errorf("%d buffers were never released", n)
	}
}

// NewResponse implements backend.Owner.
func (s *seat) NewResponse(*backend.Job) *infer.Response { return infer.NewResponse(&s.k.pool, nil) }

// Respond implements backend.Owner.
func (s *seat) Respond(_ *backend.Job, r *infer.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends > 0 {
		s.k.t.Errorf("request %d was answered after its end", s.index)
	}
	switch {
	case r != nil:
		s.responses = append(s.responses, r)
	case !s.k.decoupled():
		s.k.t.Errorf("request %d was answered with nothing by a model that is not decoupled", s.index)
	}
	if !s.k.decoupled() {
		s.endLocked()
	}
}

// RespondError implements backend.Owner.
func (s *seat) RespondError(j *backend.Job, err error) {
	if !s.k.decoupled() {
		s.Fail(j, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.k.t.Errorf("request %d has a failed response without an error", s.index)
	}
	s.err = err
}

// Fail implements backend.Owner.
func (s *seat) Fail(_ *backend.Job, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.k.t.Errorf("request %d failed without an error", s.index)
	}
	s.err = err
	s.endLocked()
}

// Finish implements backend.Owner.
func (s *seat) Finish(*backend.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.k.decoupled() {
		s.k.t.Errorf("request %d was finished without an answer by a model that is not decoupled", s.index)
	}
	s.endLocked()
}

// Reschedule implements backend.Owner.
func (s *seat) Reschedule(*backend.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.k.c.Model.Config.GetSequenceBatching().GetIterativeSequence() {
		s.k.t.Errorf("request %d was rescheduled by a model without iterative sequences", s.index)
	}
	s.endLocked()
}

func (s *seat) endLocked() {
	s.ends++
	select {
	case s.end <- struct{}{}:
	default:
	}
}

// Cancelled implements backend.Owner.
func (s *seat) Cancelled(*backend.Job) bool { return s.cancelled }

// Wants implements backend.Owner.
func (s *seat) Wants(_ *backend.Job, output string) bool {
	if len(s.Request.Outputs) == 0 {
		return true
	}
	return slices.ContainsFunc(s.Request.Outputs, func(o infer.OutputSpec) bool { return o.Name == output })
}
