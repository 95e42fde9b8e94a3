// Package repeat is a decoupled model: it answers a request once for each
// element of its input, with a pause before each. It exists to test streams.
// A configuration that is not decoupled may send it one element at a time.
//
// Inputs IN INT32[n], DELAY UINT32[n] (milliseconds before the answer of the
// same place) and WAIT UINT32[1] (milliseconds the instance stays busy).
// Outputs OUT INT32[1] and IDX UINT32[1].
package repeat

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/pause"
)

// Backend makes repeat models. The zero value is ready.
type Backend struct{}

// Complete implements backend.Backend: there is no file to learn from.
func (Backend) Complete(context.Context, *backend.Model) error { return nil }

// NewInstance implements backend.Backend.
func (Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	return &instance{decoupled: m.Config.GetModelTransactionPolicy().GetDecoupled()}, nil
}

type instance struct {
	decoupled bool
	answering sync.WaitGroup
}

// Execute implements backend.Instance. Answers are given in the background; it
// returns when the longest WAIT is over.
func (i *instance) Execute(ctx context.Context, jobs []*backend.Job) {
	var wait uint32
	for _, j := range jobs {
		in, delay, w := j.Input("IN"), j.Input("DELAY"), j.Input("WAIT")
		if err := i.check(in, delay, w); err != nil {
			j.Fail(err)
			continue
		}
		wait = max(wait, tensor.View[uint32](w.Data)[0])
		// The request's memory may be gone once it was cancelled; these are few.
		values, delays := slices.Clone(tensor.View[int32](in.Data)), slices.Clone(tensor.View[uint32](delay.Data))
		i.answering.Go(func() { i.answer(ctx, j, values, delays) })
	}
	pause.For(ctx, milliseconds(wait))
	if !i.decoupled {
		i.answering.Wait()
	}
}

func (i *instance) check(in, delay, wait *tensor.Tensor) error {
	switch {
	case in == nil || delay == nil || wait == nil || len(wait.Data) < 4:
		return infer.Errorf(infer.InvalidArgument, "repeat model needs the inputs IN, DELAY and WAIT")
	case !slices.Equal(in.Shape, delay.Shape) || len(in.Data) != len(delay.Data):
		return infer.Errorf(infer.InvalidArgument, "expected IN and DELAY shape to match, got %s and %s",
			tensor.FormatShape(in.Shape), tensor.FormatShape(delay.Shape))
	case !i.decoupled && len(in.Data) != 4:
		return infer.Errorf(infer.Internal, "expected a single response, got %d", len(in.Data)/4)
	}
	return nil
}

func (i *instance) answer(ctx context.Context, j *backend.Job, values []int32, delays []uint32) {
	for k, v := range values {
		pause.For(ctx, milliseconds(delays[k]))
		if j.Cancelled() {
			e := infer.Errorf(infer.Cancelled, "request cancelled after %d of %d responses", k, len(values))
			e.Reason = infer.ReasonCanceled
			j.Fail(e)
			return
		}
		r := j.NewResponse()
		if j.Wants("OUT") {
			copy(r.Add("OUT", tensor.Int32, []int64{1}, 4), tensor.AsBytes([]int32{v}))
		}
		if j.Wants("IDX") {
			copy(r.Add("IDX", tensor.Uint32, []int64{1}, 4), tensor.AsBytes([]uint32{uint32(k)}))
		}
		j.Respond(r)
	}
	if i.decoupled {
		j.Finish()
	}
}

func milliseconds(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }

// Close implements backend.Instance.
func (i *instance) Close() error {
	i.answering.Wait()
	return nil
}
