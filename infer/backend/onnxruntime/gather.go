package onnxruntime

import (
	"fmt"
	"math"
	"slices"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// gather makes the session's inputs: over the bytes of a single job as they lie
// in memory, over a buffer where there are several.
func (in *instance) gather(jobs []*backend.Job) (*session, error) {
	absent := uint64(0)
	for i := range in.inputs {
		p := &in.inputs[i]
		var v ort.Value
		var err error
		switch {
		case p.batch != nil:
			v, err = in.batchInput(p, jobs)
		case len(jobs) == 1:
			t := jobs[0].Input(p.name)
			if t == nil && p.optional && i < 64 {
				absent |= 1 << i
				continue
			}
			v, err = in.single(p, t)
		default:
			v, err = in.several(p, jobs)
		}
		if err != nil {
			return nil, err
		}
		in.in = append(in.in, v)
	}
	if absent != 0 || in.sessions[0] == nil {
		if err := in.open(absent); err != nil {
			return nil, infer.Errorf(infer.Internal, "model '%s' without its optional inputs: %v", in.model.Name, err)
		}
	}
	return in.sessions[absent], nil
}

func (in *instance) single(p *input, t *tensor.Tensor) (ort.Value, error) {
	if t == nil {
		return nil, infer.Errorf(infer.InvalidArgument, "input '%s' of model '%s' is missing", p.name, in.model.Name)
	}
	if p.ragged {
		n, err := tensor.ElementCount(t.Shape)
		if err != nil {
			return nil, infer.Errorf(infer.InvalidArgument, "input '%s': %v", p.name, err)
		}
		in.shape = append(in.shape[:0], n)
		return in.value(p, in.shape, t.Data, t.DataType)
	}
	return in.value(p, t.Shape, t.Data, t.DataType)
}

func (in *instance) several(p *input, jobs []*backend.Job) (ort.Value, error) {
	size, rows := 0, int64(0)
	first := jobs[0].Input(p.name)
	for _, j := range jobs {
		t := j.Input(p.name)
		size += len(t.Data)
		if p.ragged {
			n, err := tensor.ElementCount(t.Shape)
			if err != nil {
				return nil, infer.Errorf(infer.InvalidArgument, "input '%s': %v", p.name, err)
			}
			rows += n
		} else {
			rows += t.Shape[0]
		}
	}
	in.shape = append(in.shape[:0], rows)
	if !p.ragged {
		in.shape = append(in.shape, first.Shape[1:]...)
	}
	b := in.pool.Get(size)
	in.bufs = append(in.bufs, b)
	at := 0
	for _, j := range jobs {
		at += copy(b.Bytes[at:], j.Input(p.name).Data)
	}
	return in.value(p, in.shape, b.Bytes, first.DataType)
}

// value wraps bytes, without copying them except for strings.
func (in *instance) value(p *input, shape []int64, data []byte, t tensor.DataType) (ort.Value, error) {
	wrong := func(err error) error {
		return infer.Errorf(infer.InvalidArgument, "input '%s' of model '%s': %v", p.name, in.model.Name, err)
	}
	n, err := tensor.ElementCount(shape)
	if err != nil {
		return nil, wrong(err)
	}
	if n == 0 {
		if err := in.takesEmpty(); err != nil {
			return nil, wrong(fmt.Errorf("a tensor of shape %s has no elements: %w", tensor.FormatShape(shape), err))
		}
	}
	if t == tensor.Bytes {
		words, err := tensor.DecodeStrings(data)
		if err != nil {
			return nil, wrong(err)
		}
		if int64(len(words)) != n {
			return nil, wrong(fmt.Errorf("%d strings in a tensor of shape %s", len(words), tensor.FormatShape(shape)))
		}
		v, err := ort.NewStringTensor(shape)
		if err != nil {
			return nil, wrong(err)
		}
		if err := v.SetContents(words); err != nil {
			_ = v.Destroy() // frees memory, cannot fail
			return nil, wrong(err)
		}
		return v, nil
	}
	if n*int64(t.Size()) != int64(len(data)) {
		return nil, wrong(fmt.Errorf("%d bytes in a tensor of %s%s", len(data), t, tensor.FormatShape(shape)))
	}
	if len(p.dims) == 0 && p.typ != tensor.Invalid && n == 1 {
		return scalar(p.typ, data)
	}
	if n == 0 {
		data = in.nothing[:]
	}
	in.pins.Pin(&data[0])
	v, err := ort.NewCustomDataTensor(shape, data, elementOf(t))
	if err != nil {
		return nil, wrong(err)
	}
	return v, nil
}

// batchInput makes an input of the shapes of another, as the reference server
// defines the kinds.
func (in *instance) batchInput(p *input, jobs []*backend.Job) (ort.Value, error) {
	if len(p.batch.GetSourceInput()) == 0 {
		return nil, infer.Errorf(infer.InvalidArgument, "batch input '%s' has no source input", p.name)
	}
	var values, shape []int64
	sum, most := int64(0), int64(0)
	for _, j := range jobs {
		t := j.Input(p.batch.GetSourceInput()[0])
		if t == nil {
			return nil, infer.Errorf(infer.InvalidArgument, "input '%s' of model '%s' is missing", p.batch.GetSourceInput()[0], in.model.Name)
		}
		n, err := tensor.ElementCount(t.Shape)
		if err != nil {
			return nil, infer.Errorf(infer.InvalidArgument, "input '%s': %v", t.Name, err)
		}
		sum, most = sum+n, max(most, n)
		switch p.batch.GetKind() {
		case inference.BatchInput_BATCH_ELEMENT_COUNT:
			values = append(values, n)
		case inference.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT:
			values = append(values, sum)
		case inference.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO:
			if len(values) == 0 {
				values = append(values, 0)
			}
			values = append(values, sum)
		case inference.BatchInput_BATCH_ITEM_SHAPE, inference.BatchInput_BATCH_ITEM_SHAPE_FLATTEN:
			for range max(1, j.Batch) {
				values = append(values, t.Shape[1:]...)
			}
			shape = append(shape[:0], int64(len(t.Shape)-1))
		case inference.BatchInput_BATCH_MAX_ELEMENT_COUNT_AS_SHAPE:
		}
	}
	switch p.batch.GetKind() {
	case inference.BatchInput_BATCH_MAX_ELEMENT_COUNT_AS_SHAPE:
		values = make([]int64, most)
		shape = []int64{most}
	case inference.BatchInput_BATCH_ITEM_SHAPE:
		shape = []int64{int64(len(values)) / max(1, shape[0]), shape[0]}
	default:
		shape = []int64{int64(len(values))}
	}
	b := in.pool.Get(4 * len(values))
	in.bufs = append(in.bufs, b)
	for i, v := range values {
		bits := uint32(v)
		if p.typ == tensor.FP32 {
			bits = math.Float32bits(float32(v))
		}
		b.Bytes[4*i], b.Bytes[4*i+1], b.Bytes[4*i+2], b.Bytes[4*i+3] = byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24)
	}
	if !slices.Contains([]tensor.DataType{tensor.Int32, tensor.FP32}, p.typ) {
		return nil, infer.Errorf(infer.InvalidArgument, "batch input '%s' is %s in the model, INT32 and FP32 are made", p.name, p.typ)
	}
	return in.value(p, shape, b.Bytes, p.typ)
}
