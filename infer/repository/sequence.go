package repository

import (
	"encoding/binary"
	"math"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/schedule"
	"github.com/vedette/vedette/infer/tensor"
)

// control is an input by which a sequence's requests tell the model where they
// stand.
type control struct {
	tensor  tensor.Tensor // without data
	kind    inference.ModelSequenceBatching_Control_Kind
	no, yes []byte
}

func controlsOf(cfg *inference.ModelConfig) []control {
	shape := []int64{1}
	if cfg.GetMaxBatchSize() > 0 {
		shape = []int64{1, 1}
	}
	var out []control
	for _, in := range cfg.GetSequenceBatching().GetControlInput() {
		for _, c := range in.GetControl() {
			k := control{kind: c.GetKind(), tensor: tensor.Tensor{Name: in.GetName(), Shape: shape}}
			switch {
			case c.GetKind() == inference.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID:
				k.tensor.DataType = modelconfig.DataType(c.GetDataType())
			case len(c.GetInt32FalseTrue()) == 2:
				k.tensor.DataType = tensor.Int32
				k.no, k.yes = word(uint32(c.GetInt32FalseTrue()[0])), word(uint32(c.GetInt32FalseTrue()[1]))
			case len(c.GetFp32FalseTrue()) == 2:
				k.tensor.DataType = tensor.FP32
				k.no, k.yes = word(math.Float32bits(c.GetFp32FalseTrue()[0])), word(math.Float32bits(c.GetFp32FalseTrue()[1]))
			case len(c.GetBoolFalseTrue()) == 2:
				k.tensor.DataType = tensor.Bool
				k.no, k.yes = boolean(c.GetBoolFalseTrue()[0]), boolean(c.GetBoolFalseTrue()[1])
			}
			out = append(out, k)
		}
	}
	return out
}

func word(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

func boolean(b bool) []byte {
	if b {
		return []byte{1}
	}
	return []byte{0}
}

// attach gives a sequence's request its control inputs and its state.
func (v *version) attach(j *job) {
	j.Sequence, j.Start, j.End = j.sched.Sequence.ID, j.sched.Start, j.sched.End
	for i := range v.controls {
		c := &v.controls[i]
		t := c.tensor
		switch c.kind {
		case inference.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START:
			t.Data = c.value(j.Start)
		case inference.ModelSequenceBatching_Control_CONTROL_SEQUENCE_END:
			t.Data = c.value(j.End)
		case inference.ModelSequenceBatching_Control_CONTROL_SEQUENCE_READY:
			t.Data = c.yes
		case inference.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID:
			t.Data = correlation(&j.corrid, t.DataType, j.Request.Correlation)
		}
		j.Inputs = append(j.Inputs, t)
	}
	if len(v.states) > 0 {
		v.attachState(j)
	}
}

func (c *control) value(yes bool) []byte {
	if yes {
		return c.yes
	}
	return c.no
}

// correlation lays out an id as the type the model wants: the low bytes of a
// number, or a string.
func correlation(buf *[8]byte, t tensor.DataType, id infer.CorrelationID) []byte {
	if t == tensor.Bytes {
		return tensor.AppendElement(nil, id.Str)
	}
	binary.LittleEndian.PutUint64(buf[:], id.Num)
	return buf[:t.Size()]
}

// null is the padding of an idle slot.
type null struct {
	backend.Job
	v      *version
	corrid [8]byte
	req    infer.Request
}

// padding is a job that has the shapes of like and means nothing: READY is
// false and the contents are zero.
func (v *version) padding(in *instance, slot int, like *schedule.Job) *backend.Job {
	for len(in.nulls) <= slot {
		n := &null{v: v}
		n.Owner, n.Request, n.Null, n.Batch = n, &n.req, true, 1
		in.nulls = append(in.nulls, n)
	}
	n := in.nulls[slot]
	n.Timing = &in.timing
	first, ok := like.Payload.(*job)
	if !ok {
		return &n.Job
	}
	n.Inputs = n.Inputs[:0]
	for _, t := range first.Inputs[:len(first.Request.Inputs)] {
		t.Data = zeros(t, in)
		n.Inputs = append(n.Inputs, t)
	}
	for i := range v.controls {
		c := &v.controls[i]
		t := c.tensor
		t.Data = c.no
		if c.kind == inference.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID {
			t.Data = correlation(&n.corrid, t.DataType, infer.CorrelationID{})
		}
		n.Inputs = append(n.Inputs, t)
	}
	if len(v.states) > 0 {
		v.padState(n)
	}
	return &n.Job
}

// zeros is data for a padded input: zero numbers, or empty strings, which are
// zero lengths.
func zeros(t tensor.Tensor, in *instance) []byte {
	size := len(t.Data)
	if t.DataType == tensor.Bytes {
		n, err := tensor.ElementCount(t.Shape)
		if err != nil {
			return nil
		}
		size = int(n) * 4
	}
	if len(in.zeros) < size {
		in.zeros = make([]byte, size)
	}
	return in.zeros[:size:size]
}

// NewResponse implements backend.Owner.
func (n *null) NewResponse(*backend.Job) *infer.Response { return n.v.repo.newResponse() }

// Respond implements backend.Owner: nobody waits for it.
func (n *null) Respond(_ *backend.Job, r *infer.Response) { r.Release() }

// RespondError implements backend.Owner.
func (n *null) RespondError(*backend.Job, error) {}

// Fail implements backend.Owner.
func (n *null) Fail(*backend.Job, error) {}

// Finish implements backend.Owner.
func (n *null) Finish(*backend.Job) {}

// Reschedule implements backend.Owner.
func (n *null) Reschedule(*backend.Job) {}

// Cancelled implements backend.Owner.
func (n *null) Cancelled(*backend.Job) bool { return false }

// Wants implements backend.Owner: nothing is asked for.
func (n *null) Wants(*backend.Job, string) bool { return false }
