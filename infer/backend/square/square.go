// Package square is a decoupled model: it answers a request with the number n
// n times. It exists to test streams.
//
// Input IN INT32[1], output OUT INT32[1].
package square

import (
	"context"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// Backend makes square models. The zero value is ready.
type Backend struct{}

// Complete implements backend.Backend: there is no file to learn from.
func (Backend) Complete(context.Context, *backend.Model) error { return nil }

// NewInstance implements backend.Backend.
func (Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	if !m.Config.GetModelTransactionPolicy().GetDecoupled() {
		return nil, infer.Errorf(infer.InvalidArgument, "square model '%s' must be decoupled: set model_transaction_policy { decoupled: true }", m.Name)
	}
	return instance{}, nil
}

type instance struct{}

// Execute implements backend.Instance.
func (instance) Execute(_ context.Context, jobs []*backend.Job) {
	for _, j := range jobs {
		in := j.Input("IN")
		if in == nil || len(in.Data) < 4 {
			j.Fail(infer.Errorf(infer.InvalidArgument, "square model needs IN"))
			continue
		}
		answer(j, in)
	}
}

func answer(j *backend.Job, in *tensor.Tensor) {
	for range tensor.View[int32](in.Data)[0] {
		if j.Cancelled() {
			break
		}
		r := j.NewResponse()
		copy(r.Add("OUT", tensor.Int32, in.Shape, 4), in.Data)
		j.Respond(r)
	}
	j.Finish()
}

// Close implements backend.Instance.
func (instance) Close() error { return nil }
