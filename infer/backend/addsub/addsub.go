// Package addsub is a model that adds and subtracts: OUTPUT0 is INPUT0 plus
// INPUT1, OUTPUT1 their difference, element by element. It exists for examples
// and for measuring the server around it.
//
// Tensors are INT32 or FP32.
package addsub

import (
	"context"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// Backend makes addsub models. The zero value is ready.
type Backend struct{}

// Complete implements backend.Backend: there is no file to learn from.
func (Backend) Complete(context.Context, *backend.Model) error { return nil }

// NewInstance implements backend.Backend.
func (Backend) NewInstance(context.Context, *backend.Model, backend.Placement) (backend.Instance, error) {
	return instance{}, nil
}

type instance struct{}

// Execute implements backend.Instance.
func (instance) Execute(_ context.Context, jobs []*backend.Job) {
	for _, j := range jobs {
		a, b := j.Input("INPUT0"), j.Input("INPUT1")
		switch {
		case a == nil || b == nil || a.DataType != b.DataType || len(a.Data) != len(b.Data):
			j.Fail(infer.Errorf(infer.InvalidArgument, "addsub model needs INPUT0 and INPUT1 of one type and shape"))
		case a.DataType == tensor.Int32:
			answer(j, a, tensor.View[int32](a.Data), tensor.View[int32](b.Data))
		case a.DataType == tensor.FP32:
			answer(j, a, tensor.View[float32](a.Data), tensor.View[float32](b.Data))
		default:
			j.Fail(infer.Errorf(infer.InvalidArgument, "addsub model adds INT32 and FP32, not %s", a.DataType))
		}
	}
}

func answer[T int32 | float32](j *backend.Job, like *tensor.Tensor, a, b []T) {
	r := j.NewResponse()
	each := func(name string, f func(x, y T) T) {
		if !j.Wants(name) {
			return
		}
		// Response memory is aligned, so the view is the memory itself.
		out := tensor.View[T](r.Add(name, like.DataType, like.Shape, len(like.Data)))
		for i := range a {
			out[i] = f(a[i], b[i])
		}
	}
	each("OUTPUT0", func(x, y T) T { return x + y })
	each("OUTPUT1", func(x, y T) T { return x - y })
	j.Respond(r)
}

// Close implements backend.Instance.
func (instance) Close() error { return nil }
