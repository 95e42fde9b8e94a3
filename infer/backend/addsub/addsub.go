// Package addsub is a model that adds and subtracts: OUTPUT0 is INPUT0 plus
// INPUT1, OUTPUT1 their difference, element by element. It exists for examples
// and for measuring the server around it.
//
// The work is distributed over the model's instances: the one that is scheduled
// adds, and a passive one, if the configuration has any, subtracts beside it.
//
// Tensors are INT32 or FP32.
package addsub

import (
	"context"
	"slices"
	"sync"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// Backend makes addsub models. The zero value is ready.
type Backend struct {
	mu      sync.Mutex
	helpers map[*backend.Model][]*instance // the passive instances
}

// Complete implements backend.Backend: there is no file to learn from.
func (*Backend) Complete(context.Context, *backend.Model) error { return nil }

// NewInstance implements backend.Backend.
func (b *Backend) NewInstance(_ context.Context, m *backend.Model, at backend.Placement) (backend.Instance, error) {
	i := &instance{backend: b, model: m, index: at.Index}
	if at.Passive {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.helpers == nil {
			b.helpers = make(map[*backend.Model][]*instance)
		}
		b.helpers[m] = append(b.helpers[m], i)
	}
	return i, nil
}

type instance struct {
	backend *Backend
	model   *backend.Model
	index   int

	busy       sync.Mutex // one of the instances it helps at a time
	subtracted int        // requests, guarded by busy
}

// helper is the passive instance that helps this one; itself if there is none.
func (i *instance) helper() *instance {
	i.backend.mu.Lock()
	defer i.backend.mu.Unlock()
	if all := i.backend.helpers[i.model]; len(all) > 0 {
		return all[i.index%len(all)]
	}
	return i
}

// Execute implements backend.Instance.
func (i *instance) Execute(_ context.Context, jobs []*backend.Job) {
	h := i.helper()
	for _, j := range jobs {
		a, b := j.Input("INPUT0"), j.Input("INPUT1")
		switch {
		case a == nil || b == nil || a.DataType != b.DataType || len(a.Data) != len(b.Data):
			j.Fail(infer.Errorf(infer.InvalidArgument, "addsub model needs INPUT0 and INPUT1 of one type and shape"))
		case a.DataType == tensor.Int32:
			answer(i, h, j, a, tensor.View[int32](a.Data), tensor.View[int32](b.Data))
		case a.DataType == tensor.FP32:
			answer(i, h, j, a, tensor.View[float32](a.Data), tensor.View[float32](b.Data))
		default:
			j.Fail(infer.Errorf(infer.InvalidArgument, "addsub model adds INT32 and FP32, not %s", a.DataType))
		}
	}
}

func answer[T int32 | float32](i, h *instance, j *backend.Job, like *tensor.Tensor, a, b []T) {
	r := j.NewResponse()
	// Response memory is aligned, so the view is the memory itself.
	room := func(name string) []T {
		if !j.Wants(name) {
			return nil
		}
		return tensor.View[T](r.Add(name, like.DataType, like.Shape, len(like.Data)))
	}
	sum, difference := room("OUTPUT0"), room("OUTPUT1")
	subtract := func() {
		h.busy.Lock()
		defer h.busy.Unlock()
		h.subtracted++
		for k := range difference {
			difference[k] = a[k] - b[k]
		}
	}
	var wg sync.WaitGroup
	if h != i {
		wg.Go(subtract)
	} else {
		subtract()
	}
	for k := range sum {
		sum[k] = a[k] + b[k]
	}
	wg.Wait()
	j.Respond(r)
}

// Close implements backend.Instance.
func (i *instance) Close() error {
	b := i.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.helpers == nil {
		return nil
	}
	b.helpers[i.model] = slices.DeleteFunc(b.helpers[i.model], func(h *instance) bool { return h == i })
	if len(b.helpers[i.model]) == 0 {
		delete(b.helpers, i.model)
	}
	return nil
}
