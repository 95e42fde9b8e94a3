package repository

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// finishResponse makes what the model answered what the client asked for: only
// wanted outputs, in the shapes of the configuration, in the client's memory
// where it gave some.
func (j *job) finishResponse(r *infer.Response) error {
	v := j.v
	r.ID, r.Model, r.Version = j.Request.ID, v.name, v.number
	if len(v.states) > 0 && j.sched.Sequence != nil {
		v.keepState(j, r)
	}
	kept := r.Outputs[:0]
	for i := range r.Outputs {
		out := r.Outputs[i]
		p := v.sig.output(out.Name)
		if p == nil {
			if !slices.Contains(v.sig.states, out.Name) {
				v.logger.Warn("model answered with an output its configuration does not have")
			}
			continue
		}
		spec := j.spec(out.Name)
		if spec == nil && len(j.Request.Outputs) > 0 {
			continue
		}
		if p.reshape != nil {
			out.Shape = v.sig.reshaped(p.reshape, p.dims, out.Shape)
		}
		if spec != nil && (spec.Classes > 0 || spec.Into != nil) {
			if err := v.place(r, spec, &out); err != nil {
				return err
			}
		}
		kept = append(kept, out)
	}
	clear(r.Outputs[len(kept):])
	r.Outputs = kept
	return nil
}

func (j *job) spec(output string) *infer.OutputSpec {
	for i := range j.Request.Outputs {
		if j.Request.Outputs[i].Name == output {
			return &j.Request.Outputs[i]
		}
	}
	return nil
}

// place classifies an output or copies it to where the client wants it.
func (v *version) place(r *infer.Response, spec *infer.OutputSpec, out *tensor.Tensor) error {
	if spec.Classes > 0 {
		if err := v.classify(r, spec.Classes, out); err != nil {
			return err
		}
	}
	if spec.Into == nil {
		return nil
	}
	if len(spec.Into) < len(out.Data) {
		return infer.Errorf(infer.Internal,
			"shared memory size specified with the request for output '%s' (%d bytes) should be at least %d bytes to hold the results",
			out.Name, len(spec.Into), len(out.Data))
	}
	into := spec.Into[:len(out.Data):len(out.Data)]
	if !tensor.SameMemory(into, out.Data) {
		copy(into, out.Data)
	}
	out.Data = into
	return nil
}

// maxClassified bounds the elements that one classification sorts.
const maxClassified = 1_000_000

// classify replaces an output by its highest values with index and label.
func (v *version) classify(r *infer.Response, classes int, out *tensor.Tensor) error {
	values, err := numbers(out)
	if err != nil {
		return err
	}
	if len(values) > maxClassified {
		return infer.Errorf(infer.InvalidArgument, "classification output tensor too large")
	}
	rows := 1
	if v.sig.maxBatch > 0 && len(out.Shape) > 0 {
		rows = int(out.Shape[0])
	}
	if rows == 0 || len(values)%rows != 0 {
		return infer.Errorf(infer.Internal, "output '%s' of shape %s has no rows to classify", out.Name, tensor.FormatShape(out.Shape))
	}
	width := len(values) / rows
	n := min(classes, width)
	labels := v.labels[out.Name]
	var data []byte
	order := make([]int, width)
	for row := range rows {
		in := values[row*width : (row+1)*width]
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(in[b].f, in[a].f) })
		for _, k := range order[:n] {
			e := in[k].text + ":" + strconv.Itoa(k)
			if k < len(labels) {
				e += ":" + labels[k]
			}
			data = tensor.AppendElement(data, e)
		}
	}
	shape := []int64{int64(n)}
	if v.sig.maxBatch > 0 {
		shape = []int64{int64(rows), int64(n)}
	}
	out.DataType, out.Shape = tensor.Bytes, shape
	out.Data = r.Alloc(len(data))
	copy(out.Data, data)
	return nil
}

// number is an element as it is compared and as it is printed.
type number struct {
	f    float64
	text string
}

func numbers(t *tensor.Tensor) ([]number, error) {
	size := t.DataType.Size()
	float := func(f float64) number { return number{f, strconv.FormatFloat(f, 'f', 6, 64)} }
	signed := func(i int64) number { return number{float64(i), strconv.FormatInt(i, 10)} }
	unsigned := func(u uint64) number { return number{float64(u), strconv.FormatUint(u, 10)} }
	var read func([]byte) number
	le := binary.LittleEndian
	switch t.DataType {
	case tensor.Uint8:
		read = func(b []byte) number { return unsigned(uint64(b[0])) }
	case tensor.Uint16:
		read = func(b []byte) number { return unsigned(uint64(le.Uint16(b))) }
	case tensor.Uint32:
		read = func(b []byte) number { return unsigned(uint64(le.Uint32(b))) }
	case tensor.Uint64:
		read = func(b []byte) number { return unsigned(le.Uint64(b)) }
	case tensor.Int8:
		read = func(b []byte) number { return signed(int64(int8(b[0]))) }
	case tensor.Int16:
		read = func(b []byte) number { return signed(int64(int16(le.Uint16(b)))) }
	case tensor.Int32:
		read = func(b []byte) number { return signed(int64(int32(le.Uint32(b)))) }
	case tensor.Int64:
		read = func(b []byte) number { return signed(int64(le.Uint64(b))) }
	case tensor.FP32:
		read = func(b []byte) number { return float(float64(math.Float32frombits(le.Uint32(b)))) }
	case tensor.FP64:
		read = func(b []byte) number { return float(math.Float64frombits(le.Uint64(b))) }
	default:
		return nil, infer.Errorf(infer.InvalidArgument, "class result not available for output due to unsupported type '%s'", t.DataType)
	}
	out := make([]number, 0, len(t.Data)/size)
	for b := t.Data; len(b) >= size && len(out) <= maxClassified; b = b[size:] {
		out = append(out, read(b))
	}
	return out, nil
}
