package script

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// value is a tensor as a script sees it. Its bytes belong to the request, to the
// response they came in, or to the script.
type value struct {
	t tensor.Tensor
}

var _ starlark.HasAttrs = (*value)(nil)

func (v *value) String() string {
	return fmt.Sprintf("<tensor %s%s>", v.t.DataType, tensor.FormatShape(v.t.Shape))
}
func (*value) Type() string          { return "tensor" }
func (*value) Freeze()               {} // never changes
func (*value) Truth() starlark.Bool  { return true }
func (*value) Hash() (uint32, error) { return 0, errors.New("tensors cannot be keys") }

func (*value) AttrNames() []string {
	return []string{"argmax", "datatype", "reshape", "rows", "shape", "size", "values"}
}

func (v *value) Attr(name string) (starlark.Value, error) {
	switch name {
	case "datatype":
		return starlark.String(v.t.DataType.String()), nil
	case "shape":
		dims := make([]starlark.Value, len(v.t.Shape))
		for i, d := range v.t.Shape {
			dims[i] = starlark.MakeInt64(d)
		}
		return starlark.NewList(dims), nil
	case "size":
		n, err := tensor.ElementCount(v.t.Shape)
		return starlark.MakeInt64(n), err
	case "values":
		return starlark.NewBuiltin(name, v.values), nil
	case "rows":
		return starlark.NewBuiltin(name, v.rows), nil
	case "reshape":
		return starlark.NewBuiltin(name, v.reshape), nil
	case "argmax":
		return starlark.NewBuiltin(name, v.argmax), nil
	}
	return nil, nil //nolint:nilnil // how an attribute that is not there is told
}

// maxValues bounds what is unfolded into a script's own numbers.
const maxValues = 1 << 20

// values unfolds the tensor into a flat list.
func (v *value) values(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs(b.Name(), args, kwargs); err != nil {
		return nil, err
	}
	n, err := tensor.ElementCount(v.t.Shape)
	if err != nil || n > maxValues {
		return nil, fmt.Errorf("values: %d elements are too many for a script, at most %d", n, maxValues)
	}
	list := make([]starlark.Value, 0, n)
	if v.t.DataType == tensor.Bytes {
		for e, err := range tensor.Elements(v.t.Data) {
			if err != nil {
				return nil, err
			}
			list = append(list, starlark.String(e))
		}
		return starlark.NewList(list), nil
	}
	for i := range int(n) {
		x, err := element(&v.t, i)
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return starlark.NewList(list), nil
}

// element reads one element of any type of fixed size.
func element(t *tensor.Tensor, i int) (starlark.Value, error) {
	size := t.DataType.Size()
	if size == 0 || (i+1)*size > len(t.Data) {
		return nil, fmt.Errorf("element %d of %s%s is not there", i, t.DataType, tensor.FormatShape(t.Shape))
	}
	d := t.Data[i*size:][:size]
	switch t.DataType {
	case tensor.Bool:
		return starlark.Bool(d[0] != 0), nil
	case tensor.Uint8:
		return starlark.MakeInt(int(d[0])), nil
	case tensor.Uint16:
		return starlark.MakeInt(int(tensor.View[uint16](d)[0])), nil
	case tensor.Uint32:
		return starlark.MakeUint64(uint64(tensor.View[uint32](d)[0])), nil
	case tensor.Uint64:
		return starlark.MakeUint64(tensor.View[uint64](d)[0]), nil
	case tensor.Int8:
		return starlark.MakeInt(int(int8(d[0]))), nil
	case tensor.Int16:
		return starlark.MakeInt(int(tensor.View[int16](d)[0])), nil
	case tensor.Int32:
		return starlark.MakeInt(int(tensor.View[int32](d)[0])), nil
	case tensor.Int64:
		return starlark.MakeInt64(tensor.View[int64](d)[0]), nil
	case tensor.FP16:
		return starlark.Float(tensor.FP16ToFloat32(tensor.View[uint16](d)[0])), nil
	case tensor.BF16:
		return starlark.Float(tensor.BF16ToFloat32(tensor.View[uint16](d)[0])), nil
	case tensor.FP32:
		return starlark.Float(tensor.View[float32](d)[0]), nil
	case tensor.FP64:
		return starlark.Float(tensor.View[float64](d)[0]), nil
	default:
		return nil, fmt.Errorf("%s has no elements a script can read", t.DataType)
	}
}

// rows is a view of some of the first dimension.
func (v *value) rows(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var from, to int
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "from", &from, "to", &to); err != nil {
		return nil, err
	}
	if len(v.t.Shape) == 0 || v.t.DataType.Size() == 0 || from < 0 || from > to || int64(to) > v.t.Shape[0] {
		return nil, fmt.Errorf("rows: %d to %d of %s", from, to, v)
	}
	row := len(v.t.Data) / max(1, int(v.t.Shape[0]))
	t := v.t
	t.Shape = slices.Clone(t.Shape)
	t.Shape[0] = int64(to - from)
	t.Data = t.Data[from*row : to*row : to*row]
	return &value{t}, nil
}

// reshape is a view with other dimensions.
func (v *value) reshape(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var dims *starlark.List
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "shape", &dims); err != nil {
		return nil, err
	}
	shape, err := shapeOf(dims)
	if err != nil {
		return nil, err
	}
	before, errB := tensor.ElementCount(v.t.Shape)
	after, errA := tensor.ElementCount(shape)
	if errB != nil || errA != nil || before != after {
		return nil, fmt.Errorf("reshape: %s does not become %s", v, tensor.FormatShape(shape))
	}
	t := v.t
	t.Shape = shape
	return &value{t}, nil
}

// argmax is the index of the largest element; NaN never is.
func (v *value) argmax(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs(b.Name(), args, kwargs); err != nil {
		return nil, err
	}
	n, err := tensor.ElementCount(v.t.Shape)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("argmax: %s has no elements", v)
	}
	best, at := math.Inf(-1), 0
	for i := range int(n) {
		x, err := element(&v.t, i)
		if err != nil {
			return nil, err
		}
		if f, ok := starlark.AsFloat(x); ok && f > best {
			best, at = f, i
		}
	}
	return starlark.MakeInt(at), nil
}

func shapeOf(dims *starlark.List) ([]int64, error) {
	shape := make([]int64, dims.Len())
	for i := range shape {
		n, ok := dims.Index(i).(starlark.Int)
		d, fits := n.Int64()
		if !ok || !fits || d < 0 {
			return nil, fmt.Errorf("shape: %s is no dimension", dims.Index(i))
		}
		shape[i] = d
	}
	return shape, nil
}

// makeTensor is tensor(datatype, shape, values).
func makeTensor(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var name string
	var dims *starlark.List
	var values starlark.Indexable
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "datatype", &name, "shape", &dims, "values", &values); err != nil {
		return nil, err
	}
	typ, err := tensor.Parse(name)
	if err != nil {
		return nil, err
	}
	shape, err := shapeOf(dims)
	if err != nil {
		return nil, err
	}
	if n, err := tensor.ElementCount(shape); err != nil || n != int64(values.Len()) || n > maxValues {
		return nil, fmt.Errorf("tensor: %d values for the shape %s", values.Len(), tensor.FormatShape(shape))
	}
	t := tensor.Tensor{DataType: typ, Shape: shape, Data: make([]byte, 0, values.Len()*max(typ.Size(), 8))}
	for i := range values.Len() {
		if t.Data, err = appendElement(t.Data, typ, values.Index(i)); err != nil {
			return nil, fmt.Errorf("tensor: value %d: %w", i, err)
		}
	}
	return &value{t}, nil
}

func appendElement(data []byte, typ tensor.DataType, x starlark.Value) ([]byte, error) {
	wrong := fmt.Errorf("%s is no %s", x, typ)
	switch typ {
	case tensor.Bytes:
		s, ok := starlark.AsString(x)
		if !ok {
			return nil, wrong
		}
		return tensor.AppendElement(data, s), nil
	case tensor.Bool:
		if x.Truth() {
			return append(data, 1), nil
		}
		return append(data, 0), nil
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		f, ok := starlark.AsFloat(x)
		if !ok {
			return nil, wrong
		}
		switch typ {
		case tensor.FP16:
			return append(data, tensor.AsBytes([]uint16{tensor.Float32ToFP16(float32(f))})...), nil
		case tensor.BF16:
			return append(data, tensor.AsBytes([]uint16{tensor.Float32ToBF16(float32(f))})...), nil
		case tensor.FP32:
			return append(data, tensor.AsBytes([]float32{float32(f)})...), nil
		default:
			return append(data, tensor.AsBytes([]float64{f})...), nil
		}
	default:
		n, ok := x.(starlark.Int)
		if !ok {
			return nil, wrong
		}
		return appendInt(data, typ, n)
	}
}

// appendInt writes a whole number and refuses what the type cannot hold.
func appendInt(data []byte, typ tensor.DataType, n starlark.Int) ([]byte, error) {
	size := typ.Size()
	bits, signed := uint64(0), typ == tensor.Int8 || typ == tensor.Int16 || typ == tensor.Int32 || typ == tensor.Int64
	fits := false
	if signed {
		var i int64
		if i, fits = n.Int64(); fits {
			low := int64(-1) << (8*size - 1)
			fits = i >= low && i <= -(low+1)
			bits = uint64(i)
		}
	} else {
		if bits, fits = n.Uint64(); fits && size < 8 {
			fits = bits < 1<<(8*size)
		}
	}
	if !fits {
		return nil, fmt.Errorf("%s does not fit %s", n, typ)
	}
	for range size {
		data = append(data, byte(bits))
		bits >>= 8
	}
	return data, nil
}

// requestValue is what execute is given.
func requestValue(j *backend.Job) starlark.Value {
	inputs := starlark.NewDict(len(j.Inputs))
	for _, t := range j.Inputs {
		_ = inputs.SetKey(starlark.String(t.Name), &value{t}) // strings are hashable
	}
	parameters := starlark.NewDict(len(j.Request.Parameters))
	for k, p := range j.Request.Parameters {
		var x starlark.Value = starlark.None
		switch p := p.(type) {
		case string:
			x = starlark.String(p)
		case bool:
			x = starlark.Bool(p)
		case int64:
			x = starlark.MakeInt64(p)
		case uint64:
			x = starlark.MakeUint64(p)
		case float64:
			x = starlark.Float(p)
		}
		_ = parameters.SetKey(starlark.String(k), x) // strings are hashable
	}
	var id starlark.Value = starlark.MakeUint64(j.Request.Correlation.Num)
	if s := j.Request.Correlation.Str; s != "" {
		id = starlark.String(s)
	}
	return starlarkstruct.FromStringDict(starlark.String("request"), starlark.StringDict{
		"inputs": inputs, "parameters": parameters, "id": starlark.String(j.Request.ID), "correlation_id": id,
		"sequence_start": starlark.Bool(j.Start), "sequence_end": starlark.Bool(j.End),
	})
}
