package onnxruntime

import (
	"sync/atomic"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// lent is memory several responses have views of; the last one returns it.
type lent struct {
	buffer *tensor.Buffer
	users  atomic.Int32
}

func (l *lent) release() {
	if l.users.Add(-1) == 0 {
		l.buffer.Release()
	}
}

// room makes the memory of outputs whose size is known beforehand: in the
// response itself for one job, shared by the responses of several. The others
// stay nil and come out of the session.
func (in *instance) room(jobs []*backend.Job, responses []*infer.Response, rows int) error {
	for i := range in.outputs {
		o := &in.outputs[i]
		if o.scalar {
			v, err := scalar(o.carried(), make([]byte, 8))
			if err != nil {
				return infer.Errorf(infer.Internal, "output '%s': %v", o.name, err)
			}
			in.out = append(in.out, v)
			continue
		}
		if !o.known {
			in.out = append(in.out, nil)
			continue
		}
		in.shape = append(in.shape[:0], o.dims...)
		if in.batching {
			in.shape[0] = int64(rows)
		}
		n, err := tensor.ByteSize(o.typ, in.shape)
		if err != nil {
			return infer.Errorf(infer.Internal, "output '%s': %v", o.name, err)
		}
		var data []byte
		if len(jobs) == 1 {
			if data = jobs[0].Into(o.name, int(n)); data == nil {
				data = responses[0].Alloc(int(n))
			}
		} else {
			l := &lent{buffer: in.pool.Get(int(n))}
			l.users.Store(int32(len(jobs)))
			for _, r := range responses {
				r.OnRelease(l.release)
			}
			data = l.buffer.Bytes
		}
		in.pins.Pin(&data[0])
		v, err := ort.NewCustomDataTensor(in.shape, data, elementOf(o.typ))
		if err != nil {
			return infer.Errorf(infer.Internal, "output '%s': %v", o.name, err)
		}
		in.out = append(in.out, v)
	}
	return nil
}

// deal hands every job its part of the outputs.
func (in *instance) deal(jobs []*backend.Job, responses []*infer.Response, rows int) error {
	for i := range in.outputs {
		o := &in.outputs[i]
		data, shape, err := bytesOf(in.out[i], o.typ)
		if err != nil {
			return infer.Errorf(infer.Internal, "output '%s' of model '%s': %v", o.name, in.model.Name, err)
		}
		if len(shape) == 0 {
			shape = []int64{1}
		}
		switch {
		case o.scatter != "":
			err = scatter(o, jobs, responses, data)
		case len(jobs) == 1:
			if jobs[0].Wants(o.name) {
				responses[0].AddView(o.name, o.typ, shape, data)
			}
		default:
			err = in.split(o, jobs, responses, data, shape, rows)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// split cuts an output along its first dimension.
func (in *instance) split(o *output, jobs []*backend.Job, responses []*infer.Response, data []byte, shape []int64, rows int) error {
	if shape[0] != int64(rows) {
		return infer.Errorf(infer.Internal, "output '%s' of model '%s' has shape %s for a batch of %d", o.name, in.model.Name,
			tensor.FormatShape(shape), rows)
	}
	own := append([]int64(nil), shape...)
	rest := data
	for k, j := range jobs {
		own[0] = int64(max(1, j.Batch))
		n := len(data) / rows * int(own[0])
		if o.typ == tensor.Bytes {
			per, err := tensor.ElementCount(own)
			if err != nil {
				return infer.Errorf(infer.Internal, "output '%s': %v", o.name, err)
			}
			n = elementsSize(rest, per)
		}
		part := rest[:n:n]
		rest = rest[n:]
		if !j.Wants(o.name) {
			continue
		}
		if into := j.Into(o.name, n); into != nil {
			copy(into, part)
			part = into
		}
		responses[k].AddView(o.name, o.typ, own, part)
	}
	return nil
}

// elementsSize is how many bytes the first n strings take.
func elementsSize(data []byte, n int64) int {
	size := 0
	for e, err := range tensor.Elements(data) {
		if err != nil || n == 0 {
			break
		}
		n--
		size += 4 + len(e)
	}
	return size
}

// scatter cuts a flat output by the shapes of an input.
func scatter(o *output, jobs []*backend.Job, responses []*infer.Response, data []byte) error {
	for k, j := range jobs {
		src := j.Input(o.scatter)
		if src == nil {
			return infer.Errorf(infer.Internal, "output '%s' follows the shape of input '%s', which is missing", o.name, o.scatter)
		}
		n, err := tensor.ByteSize(o.typ, src.Shape)
		if err != nil || n > int64(len(data)) {
			return infer.Errorf(infer.Internal, "output '%s' is too short for the shapes of input '%s'", o.name, o.scatter)
		}
		if j.Wants(o.name) {
			responses[k].AddView(o.name, o.typ, src.Shape, data[:n:n])
		}
		data = data[n:]
	}
	return nil
}

// bytesOf reads a result. Its memory is the garbage collector's or the response's.
func bytesOf(v ort.Value, t tensor.DataType) ([]byte, []int64, error) {
	switch x := v.(type) {
	case *ort.CustomDataTensor:
		return x.GetData(), x.GetShape(), nil
	case *ort.Tensor[float32]:
		if t != tensor.FP32 {
			data, err := narrow(x.GetData(), t)
			return data, x.GetShape(), err
		}
		return tensor.AsBytes(x.GetData()), x.GetShape(), nil
	case *ort.Scalar[float32]:
		if t != tensor.FP32 {
			data, err := narrow([]float32{x.GetData()}, t)
			return data, nil, err
		}
		return scalarData(v), nil, nil
	case *ort.Tensor[float64]:
		return tensor.AsBytes(x.GetData()), x.GetShape(), nil
	case *ort.Tensor[int8]:
		return tensor.AsBytes(x.GetData()), x.GetShape(), nil
	case *ort.Tensor[int16]:
		return tensor.AsBytes(x.GetData()), x.GetShape(), nil
	case *ort.Tensor[int32]:
		return tensor.AsBytes(x.GetData()), x.GetShape(), nil
	case *ort.Tensor[int64]:
		return tensor.AsBytes(x.GetData()), x.GetShape(), nil
	case *ort.Tensor[uint8]:
		return tensor.AsBytes(x.GetData()), x.GetShape(), nil
	case *ort.Tensor[uint16]:
		return tensor.AsBytes(x.GetData()), x.GetShape(), nil
	case *ort.Tensor[uint32]:
		return tensor.AsBytes(x.GetData()), x.GetShape(), nil
	case *ort.Tensor[uint64]:
		return tensor.AsBytes(x.GetData()), x.GetShape(), nil
	case *ort.Tensor[bool]:
		return bools(x.GetData()), x.GetShape(), nil
	case *ort.StringTensor:
		words, err := x.GetContents()
		return tensor.EncodeStrings(words...), x.GetShape(), err
	}
	if data := scalarData(v); data != nil {
		return data, nil, nil
	}
	return nil, nil, infer.Errorf(infer.Unsupported, "a value of type %T is no %s tensor", v, t)
}

func bools(v []bool) []byte {
	b := make([]byte, len(v))
	for i, x := range v {
		if x {
			b[i] = 1
		}
	}
	return b
}
