// Package sequence is a model with state: it adds up what the requests of each
// sequence bring. It exists to test schedulers and clients.
//
// Inputs START and READY are the controls of the same name (INT32). A request
// that is ready and starts sets each slot's accumulator to the sum of INPUT's
// elements, one that is only ready adds to it; OUTPUT is the accumulator in
// every element. Model parameter execute_delay_ms makes executions slow.
package sequence

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/pause"
)

// Backend makes accumulators. The zero value is ready.
type Backend struct{}

// Complete implements backend.Backend: there is no file to learn from.
func (Backend) Complete(context.Context, *backend.Model) error { return nil }

// NewInstance implements backend.Backend.
func (Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	ms, err := strconv.Atoi(m.Parameter("execute_delay_ms", "0"))
	if err != nil || ms < 0 {
		return nil, fmt.Errorf("sequence model '%s': parameter 'execute_delay_ms' must be a number of at least 0", m.Name)
	}
	return &instance{delay: time.Duration(ms) * time.Millisecond}, nil
}

type instance struct {
	delay time.Duration
	sums  []int32 // by slot, which is the place in the batch
}

// Execute implements backend.Instance.
func (i *instance) Execute(ctx context.Context, jobs []*backend.Job) {
	pause.For(ctx, i.delay)
	for len(i.sums) < len(jobs) {
		i.sums = append(i.sums, 0)
	}
	for slot, j := range jobs {
		if err := i.one(slot, j); err != nil {
			j.Fail(err)
		}
	}
}

func (i *instance) one(slot int, j *backend.Job) error {
	in, start, ready := j.Input("INPUT"), j.Input("START"), j.Input("READY")
	if in == nil || start == nil || ready == nil {
		return infer.Errorf(infer.InvalidArgument, "sequence model needs the inputs INPUT, START and READY")
	}
	if !isTrue(ready) {
		r := j.NewResponse()
		j.Respond(r)
		return nil
	}
	if in.DataType != tensor.Int32 {
		return infer.Errorf(infer.InvalidArgument, "sequence model adds INT32, not %s", in.DataType)
	}
	if isTrue(start) {
		i.sums[slot] = 0
	}
	for _, v := range tensor.View[int32](in.Data) {
		i.sums[slot] += v
	}
	r := j.NewResponse()
	if j.Wants("OUTPUT") {
		out := r.Add("OUTPUT", tensor.Int32, in.Shape, len(in.Data))
		for k := 0; k+4 <= len(out); k += 4 {
			binary.LittleEndian.PutUint32(out[k:], uint32(i.sums[slot]))
		}
	}
	j.Respond(r)
	return nil
}

func isTrue(t *tensor.Tensor) bool {
	return len(t.Data) >= 4 && binary.LittleEndian.Uint32(t.Data) != 0
}

// Close implements backend.Instance.
func (i *instance) Close() error { return nil }
