package ensemble

import (
	"context"
	"slices"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// pass hands the step to its model.
func (s *stride) pass() { s.hand(s.f.e.submit) }

func (s *stride) hand(submit submit) {
	f := s.f
	ctx := f.ctx
	if s.ticking {
		// A client that goes must not take the sequence's other requests along.
		ctx = context.WithoutCancel(ctx)
	}
	if s.failed {
		if !s.tick() {
			s.done(nil, nil)
			return
		}
	} else {
		s.fill()
	}
	if err := submit(ctx, &s.req, s.reply); err != nil {
		s.done(nil, err)
	}
}

// fill makes the step's request from the tensors of the graph.
func (s *stride) fill() {
	f := s.f
	st := &f.e.steps[s.index]
	s.head()
	for _, b := range st.inputs {
		v := &f.tensors[b.tensor]
		if v.absent {
			continue
		}
		s.req.Inputs = append(s.req.Inputs, tensor.Tensor{Name: b.port, DataType: v.DataType, Shape: shaped(v, st.batched, b.dims), Data: v.Data})
	}
	for _, b := range st.outputs {
		s.req.Outputs = append(s.req.Outputs, infer.OutputSpec{Name: b.port})
	}
}

func (s *stride) head() {
	r, st := s.f.req, &s.f.e.steps[s.index]
	s.req.ID, s.req.Model, s.req.Version = r.ID, st.model, st.version
	s.req.Correlation, s.req.SequenceStart, s.req.SequenceEnd = s.f.place.id, s.f.place.start, s.f.place.end
	s.req.Scope, s.req.Priority, s.req.Timeout, s.req.Parameters = r.Scope, r.Priority, r.Timeout, r.Parameters
}

// shaped is a value's shape as the one who reads it has it, whose dims are
// without a batch dimension. Between those that batch and those that do not, a
// batch of one comes and goes where the dimensions do not fit as they are: they
// fit where the batch dimension is spelled out. What fits in neither way is left
// for the model to refuse.
func shaped(v *value, batched bool, dims []int64) []int64 {
	fits := v.batched == batched || alike(v.Shape, dims)
	switch {
	case batched && !v.batched && fits:
		return append([]int64{1}, v.Shape...)
	case !batched && !fits && len(v.Shape) > 0 && v.Shape[0] == 1:
		return v.Shape[1:]
	}
	return v.Shape
}

// observed is the input by which a model with state is told that a request
// brings nothing to see.
const observed = "OBSERVED"

// tick makes the request that stands for one that failed before it came to
// this step, so that time goes on for the sequence and its first and last
// request are not lost: OBSERVED is false, what came with the request is passed
// on, what steps were to make is empty. Models without such an input are passed
// by.
func (s *stride) tick() bool {
	f := s.f
	st := &f.e.steps[s.index]
	cfg := st.info.Config
	has := false
	for _, in := range cfg.GetInput() {
		has = has || in.GetName() == observed
	}
	if !has {
		return false
	}
	s.head()
	for i := range st.info.Inputs {
		in := &st.info.Inputs[i]
		t := tensor.Tensor{Name: in.Name, DataType: in.DataType}
		k := slices.IndexFunc(st.inputs, func(b binding) bool { return b.port == in.Name })
		if in.Name != observed && k >= 0 && f.e.given(st.inputs[k].tensor) {
			v := &f.tensors[st.inputs[k].tensor]
			if v.absent {
				continue
			}
			t.Shape, t.Data = shaped(v, st.batched, st.inputs[k].dims), v.Data
		} else {
			t.Shape, t.Data = empty(in, st.batched)
		}
		s.req.Inputs = append(s.req.Inputs, t)
	}
	return true
}

// given tells whether a tensor is an input of the ensemble.
func (e *Ensemble) given(t int) bool {
	for _, in := range e.inputs {
		if in == t {
			return true
		}
	}
	return false
}

// empty is a tensor with nothing in it: no rows where rows may vary, else
// zeros.
func empty(in *infer.TensorInfo, batched bool) (shape []int64, data []byte) {
	shape = slices.Clone(in.Shape)
	for i, d := range shape {
		switch {
		case i == 0 && batched:
			shape[i] = 1
		case d == -1:
			shape[i] = 0
		}
	}
	n, err := tensor.ElementCount(shape)
	if err != nil {
		return shape, nil
	}
	return shape, make([]byte, int(n)*max(in.DataType.Size(), 4*b2i(in.DataType == tensor.Bytes)))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// take receives a step's replies.
func (s *stride) take(r infer.Reply) {
	if s.f.e.steps[s.index].decoupled && !s.failed {
		switch {
		case r.Response != nil:
			s.f.branch(s.index, r.Response)
		case r.Err != nil && !r.Final:
			s.f.failed(r.Err)
		}
		if r.Final {
			s.done(nil, r.Err)
		}
		return
	}
	s.done(r.Response, r.Err)
}

// failed notes the error of one of a decoupled step's responses, which is the request's.
func (f *flight) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = f.e.wrap(err)
	}
	f.room.Broadcast()
}

// done ends a step.
func (s *stride) done(r *infer.Response, err error) {
	f := s.f
	f.mu.Lock()
	if f.timed {
		s.ended = time.Now()
	}
	f.running--
	if s.ticking || !f.e.steps[s.index].decoupled {
		f.plain--
	}
	if r != nil {
		f.responses = append(f.responses, r)
	}
	switch {
	case s.failed: // a tick: the request has its error already
	case err != nil:
		if f.err == nil {
			f.err = f.e.wrap(err)
		}
	case r != nil:
		st := &f.e.steps[s.index]
		if err := s.intact(r); err != nil {
			if f.err == nil {
				f.err = err
			}
			break
		}
		for _, b := range st.outputs {
			if out := r.Output(b.port); out != nil {
				f.tensors[b.tensor] = value{Tensor: *out, set: true, batched: st.batched}
			} else if f.e.dispensable[b.tensor] {
				f.tensors[b.tensor] = value{set: true, absent: true}
			}
		}
	}
	f.advanceLocked()
}

// intact asks the request's guard about the inputs that the step has read, and tells it of those that it passes on.
func (s *stride) intact(r *infer.Response) error {
	f := s.f
	if f.req.Guard == nil {
		return nil
	}
	for _, b := range f.e.steps[s.index].inputs {
		k := slices.IndexFunc(f.req.Inputs, func(in tensor.Tensor) bool { return f.e.inputs[in.Name] == b.tensor })
		if k < 0 {
			continue
		}
		if slices.ContainsFunc(r.Outputs, func(out tensor.Tensor) bool { return sameMemory(out.Data, f.req.Inputs[k].Data) }) {
			f.req.Guard.Keep(f.req.Inputs[k].Name)
			continue
		}
		if err := f.req.Guard.Intact(f.req.Inputs[k].Name); err != nil {
			return err
		}
	}
	return nil
}

// sameMemory tells whether two views begin or end at the same byte, as an input that is passed on does.
func sameMemory(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 && (&a[0] == &b[0] || &a[len(a)-1] == &b[len(b)-1])
}
