// Package square is a decoupled model: it answers a request with the number n
// n times. It exists to test streams. A configuration that is not decoupled may
// send it the number 1.
//
// Input IN INT32[1], output OUT INT32[1].
//
// Model parameters, all 0 where they are not set: CUSTOM_INFER_DELAY_NS and
// CUSTOM_OUTPUT_DELAY_NS are how long each answer is computed and put out. Of
// the n answers the last CUSTOM_EMPTY_COUNT are empty, and the
// CUSTOM_FAIL_COUNT before them fail.
package square

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/pause"
)

// Backend makes square models. The zero value is ready.
type Backend struct{}

// Complete implements backend.Backend: there is no file to learn from.
func (Backend) Complete(context.Context, *backend.Model) error { return nil }

// NewInstance implements backend.Backend.
func (Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	i := &instance{decoupled: m.Config.GetModelTransactionPolicy().GetDecoupled()}
	for key, to := range map[string]*int{
		"CUSTOM_INFER_DELAY_NS": &i.inferNS, "CUSTOM_OUTPUT_DELAY_NS": &i.outputNS,
		"CUSTOM_FAIL_COUNT": &i.failing, "CUSTOM_EMPTY_COUNT": &i.empty,
	} {
		n, err := strconv.Atoi(m.Parameter(key, "0"))
		if err != nil || n < 0 {
			return nil, infer.Errorf(infer.InvalidArgument, "square model '%s': parameter '%s' must be a number of at least 0", m.Name, key)
		}
		*to = n
	}
	return i, nil
}

type instance struct {
	decoupled         bool
	inferNS, outputNS int
	failing, empty    int // of each request's answers
	answering         sync.WaitGroup
}

// Execute implements backend.Instance. Decoupled answers are given in the background.
func (i *instance) Execute(ctx context.Context, jobs []*backend.Job) {
	for _, j := range jobs {
		in := j.Input("IN")
		switch {
		case in == nil || len(in.Data) < 4:
			j.Fail(infer.Errorf(infer.InvalidArgument, "square model needs IN"))
		case len(in.Data) > 4:
			j.Fail(infer.Errorf(infer.InvalidArgument, "unexpected shape for IN input"))
		case !i.decoupled && tensor.View[int32](in.Data)[0] != 1:
			j.Fail(infer.Errorf(infer.Internal, "expected a single response, got %d", tensor.View[int32](in.Data)[0]))
		default:
			n, dims := tensor.View[int32](in.Data)[0], len(in.Shape)
			i.answering.Go(func() { i.answer(ctx, j, n, dims) })
		}
	}
	if !i.decoupled {
		i.answering.Wait()
	}
}

func (i *instance) answer(ctx context.Context, j *backend.Job, n int32, dims int) {
	shape := []int64{1, 1}[:min(dims, 2)]
	for k := range int(n) {
		if j.Cancelled() {
			break
		}
		pause.For(ctx, time.Duration(i.inferNS))
		if k >= int(n)-i.empty {
			j.Respond(nil)
			continue
		}
		r := j.NewResponse()
		pause.For(ctx, time.Duration(i.outputNS))
		if k >= int(n)-i.empty-i.failing {
			r.Release()
			j.RespondError(infer.Errorf(infer.Unknown, "simulated failure"))
			continue
		}
		copy(r.Add("OUT", tensor.Int32, shape, 4), tensor.AsBytes([]int32{n}))
		j.Respond(r)
	}
	if i.decoupled {
		j.Finish()
	}
}

// Close implements backend.Instance.
func (i *instance) Close() error {
	i.answering.Wait()
	return nil
}
