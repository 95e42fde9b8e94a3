// Package iterative is a decoupled model that works on a request step by step:
// a request with the number n is executed n times and answered each time with
// what is left to do. It exists to test iterative sequences.
//
// Input INPUT INT32[1], output OUTPUT INT32[1].
package iterative

import (
	"context"
	"sync/atomic"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// Backend makes iterative models. The zero value is ready.
type Backend struct{}

// Complete implements backend.Backend: there is no file to learn from.
func (Backend) Complete(context.Context, *backend.Model) error { return nil }

// NewInstance implements backend.Backend.
func (Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	if !m.Config.GetModelTransactionPolicy().GetDecoupled() {
		return nil, infer.Errorf(infer.InvalidArgument, "iterative_sequence model '%s' must be decoupled", m.Name)
	}
	return &instance{iterative: m.Config.GetSequenceBatching().GetIterativeSequence(), left: make(map[uint64]int32)}, nil
}

type instance struct {
	iterative bool             // what it reschedules is executed again; else that fails
	left      map[uint64]int32 // by sequence
	open      atomic.Int64     // of them, for tests
}

// Execute implements backend.Instance.
func (i *instance) Execute(_ context.Context, jobs []*backend.Job) {
	for _, j := range jobs {
		in := j.Input("INPUT")
		if in == nil || len(in.Data) < 4 {
			j.Fail(infer.Errorf(infer.InvalidArgument, "iterative_sequence model needs INPUT"))
			continue
		}
		if !i.iterative {
			j.Reschedule()
			continue
		}
		if j.Start {
			i.left[j.Sequence] = tensor.View[int32](in.Data)[0]
		}
		i.left[j.Sequence]--
		i.open.Store(int64(len(i.left)))
		left := i.left[j.Sequence]
		r := j.NewResponse()
		copy(r.Add("OUTPUT", tensor.Int32, in.Shape, 4), tensor.AsBytes([]int32{left}))
		j.Respond(r)
		if left <= 0 || j.Cancelled() {
			j.Finish()
		} else {
			j.Reschedule()
		}
	}
}

// EndSequence implements backend.SequenceKeeper.
func (i *instance) EndSequence(sequence uint64, _ backend.Cause) {
	delete(i.left, sequence)
	i.open.Store(int64(len(i.left)))
}

// Close implements backend.Instance.
func (i *instance) Close() error {
	if n := i.open.Load(); n > 0 {
		return infer.Errorf(infer.Internal, "iterative_sequence model closed with %d sequences open", n)
	}
	return nil
}
