// Package query is a model that tells where its outputs would be put. It exists
// to test clients: it answers every request with an error of the form
// "OUTPUT0 CPU 0; OUTPUT1 CPU 0; ", the memory and the device of each output.
//
// With the model parameter byte_size it answers OUTPUT0 and OUTPUT1 of so many
// zero bytes (UINT8) instead. Its inputs are ignored.
package query

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// Backend makes query models. The zero value is ready.
type Backend struct{}

// Complete implements backend.Backend: there is no file to learn from.
func (Backend) Complete(context.Context, *backend.Model) error { return nil }

// NewInstance implements backend.Backend.
func (Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	i := instance{size: -1, batching: m.Config.GetMaxBatchSize() > 0}
	if s := m.Parameter("byte_size", ""); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > 1<<30 {
			return nil, fmt.Errorf("query model '%s': parameter 'byte_size' is %q, not a number of bytes up to %d", m.Name, s, 1<<30)
		}
		i.size = n
	}
	return i, nil
}

type instance struct {
	size     int // of the outputs; -1: answer with an error
	batching bool
}

// outputs are what it has.
func outputs() []string { return []string{"OUTPUT0", "OUTPUT1"} }

// Execute implements backend.Instance.
func (i instance) Execute(_ context.Context, jobs []*backend.Job) {
	for _, j := range jobs {
		if i.size < 0 {
			var b strings.Builder
			for _, name := range outputs() {
				b.WriteString(name + " CPU 0; ") // the server keeps all tensors there
			}
			j.Fail(infer.Errorf(infer.Unknown, "%s", b.String()))
			continue
		}
		shape := []int64{int64(i.size)}
		if i.batching {
			shape = []int64{int64(j.Batch), int64(i.size)}
		}
		r := j.NewResponse()
		for _, name := range outputs() {
			if j.Wants(name) {
				clear(r.Add(name, tensor.Uint8, shape, j.Batch*i.size))
			}
		}
		j.Respond(r)
	}
}

// Close implements backend.Instance.
func (instance) Close() error { return nil }
