// Package dynasequence is a model with state for the oldest strategy: it adds
// up what the requests of each correlation id bring, and adds the id itself to
// the last answer. It exists to test schedulers and clients.
//
// Inputs INPUT INT32 and the controls START, END, READY (INT32) and CORRID
// (UINT64, or STRING with a number in it); output OUTPUT is the sum in every
// element. Model parameter execute_delay_ms makes executions slow.
package dynasequence

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

// Backend makes accumulators by id. The zero value is ready.
type Backend struct{}

// Complete implements backend.Backend: there is no file to learn from.
func (Backend) Complete(context.Context, *backend.Model) error { return nil }

// NewInstance implements backend.Backend.
func (Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	ms, err := strconv.Atoi(m.Parameter("execute_delay_ms", "0"))
	if err != nil || ms < 0 {
		return nil, fmt.Errorf("dyna_sequence model '%s': parameter 'execute_delay_ms' must be a number of at least 0", m.Name)
	}
	return &instance{delay: time.Duration(ms) * time.Millisecond, sums: make(map[uint64]int32)}, nil
}

type instance struct {
	delay time.Duration
	sums  map[uint64]int32 // by the server's number of the sequence
}

// Execute implements backend.Instance.
func (i *instance) Execute(ctx context.Context, jobs []*backend.Job) {
	pause.For(ctx, i.delay)
	for _, j := range jobs {
		if err := i.one(j); err != nil {
			j.Fail(err)
		}
	}
}

func (i *instance) one(j *backend.Job) error {
	in, start, end, ready, id := j.Input("INPUT"), j.Input("START"), j.Input("END"), j.Input("READY"), j.Input("CORRID")
	if in == nil || start == nil || end == nil || ready == nil || id == nil || in.DataType != tensor.Int32 {
		return infer.Errorf(infer.InvalidArgument, "dyna_sequence model needs INPUT (INT32), START, END, READY and CORRID")
	}
	var sum int32
	if isTrue(ready) {
		if !isTrue(start) {
			sum = i.sums[j.Sequence]
		}
		for _, v := range tensor.View[int32](in.Data) {
			sum += v
		}
		i.sums[j.Sequence] = sum
		if isTrue(end) {
			n, err := number(id)
			if err != nil {
				return err
			}
			sum += n
		}
	}
	r := j.NewResponse()
	if j.Wants("OUTPUT") {
		out := r.Add("OUTPUT", tensor.Int32, in.Shape, len(in.Data))
		for k := 0; k+4 <= len(out); k += 4 {
			binary.LittleEndian.PutUint32(out[k:], uint32(sum))
		}
	}
	j.Respond(r)
	return nil
}

func number(id *tensor.Tensor) (int32, error) {
	switch {
	case id.DataType == tensor.Bytes:
		for e, err := range tensor.Elements(id.Data) {
			n, err2 := strconv.ParseInt(string(e), 10, 64)
			if err != nil || err2 != nil {
				return 0, infer.Errorf(infer.InvalidArgument, "dyna_sequence model adds the correlation id, and %q is no number", e)
			}
			return int32(n), nil
		}
	case len(id.Data) >= 4:
		return int32(binary.LittleEndian.Uint32(id.Data)), nil
	}
	return 0, nil
}

func isTrue(t *tensor.Tensor) bool {
	return len(t.Data) >= 4 && binary.LittleEndian.Uint32(t.Data) != 0
}

// EndSequence implements backend.SequenceKeeper.
func (i *instance) EndSequence(sequence uint64, _ backend.Cause) { delete(i.sums, sequence) }

// SnapshotSequence implements backend.SequenceSnapshotter.
func (i *instance) SnapshotSequence(sequence uint64) ([]byte, error) {
	sum, ok := i.sums[sequence]
	if !ok {
		return nil, nil
	}
	return binary.LittleEndian.AppendUint32(nil, uint32(sum)), nil
}

// RestoreSequence implements backend.SequenceSnapshotter.
func (i *instance) RestoreSequence(sequence uint64, state []byte) error {
	if len(state) != 4 {
		return fmt.Errorf("restore sequence %d: a sum has 4 bytes, not %d", sequence, len(state))
	}
	i.sums[sequence] = int32(binary.LittleEndian.Uint32(state))
	return nil
}

// Close implements backend.Instance.
func (i *instance) Close() error { return nil }
