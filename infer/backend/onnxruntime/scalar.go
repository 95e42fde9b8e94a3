package onnxruntime

import (
	"errors"
	"reflect"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// scalar makes a tensor without dimensions.
func scalar(t tensor.DataType, data []byte) (ort.Value, error) {
	switch t {
	case tensor.FP32:
		return ort.NewScalar(tensor.View[float32](data)[0])
	case tensor.FP64:
		return ort.NewScalar(tensor.View[float64](data)[0])
	case tensor.Int8:
		return ort.NewScalar(tensor.View[int8](data)[0])
	case tensor.Int16:
		return ort.NewScalar(tensor.View[int16](data)[0])
	case tensor.Int32:
		return ort.NewScalar(tensor.View[int32](data)[0])
	case tensor.Int64:
		return ort.NewScalar(tensor.View[int64](data)[0])
	case tensor.Uint8:
		return ort.NewScalar(data[0])
	case tensor.Uint16:
		return ort.NewScalar(tensor.View[uint16](data)[0])
	case tensor.Uint32:
		return ort.NewScalar(tensor.View[uint32](data)[0])
	case tensor.Uint64:
		return ort.NewScalar(tensor.View[uint64](data)[0])
	case tensor.Bool:
		return ort.NewScalar(data[0] != 0)
	default:
		return nil, infer.Errorf(infer.Unsupported, "a %s without dimensions cannot be given to ONNX Runtime", t)
	}
}

// scalarData is the value of a tensor without dimensions; nil for what is none.
func scalarData(v ort.Value) []byte {
	switch x := v.(type) {
	case *ort.Scalar[float32]:
		return tensor.AsBytes([]float32{x.GetData()})
	case *ort.Scalar[float64]:
		return tensor.AsBytes([]float64{x.GetData()})
	case *ort.Scalar[int8]:
		return tensor.AsBytes([]int8{x.GetData()})
	case *ort.Scalar[int16]:
		return tensor.AsBytes([]int16{x.GetData()})
	case *ort.Scalar[int32]:
		return tensor.AsBytes([]int32{x.GetData()})
	case *ort.Scalar[int64]:
		return tensor.AsBytes([]int64{x.GetData()})
	case *ort.Scalar[uint8]:
		return []byte{x.GetData()}
	case *ort.Scalar[uint16]:
		return tensor.AsBytes([]uint16{x.GetData()})
	case *ort.Scalar[uint32]:
		return tensor.AsBytes([]uint32{x.GetData()})
	case *ort.Scalar[uint64]:
		return tensor.AsBytes([]uint64{x.GetData()})
	case *ort.Scalar[bool]:
		return bools([]bool{x.GetData()})
	}
	return nil
}

// failed clears the outputs after a run that failed: those that it made are freed, and the nil pointers that the binding
// leaves behind are taken away. It reports whether the run is worth another: an output without dimensions, which
// the binding cannot take from ONNX Runtime, waits for it now.
func (in *instance) failed(err error) (again bool) {
	for i, v := range in.out {
		o := &in.outputs[i]
		switch {
		case v == nil || o.known || o.scalar:
			continue
		case !reflect.ValueOf(v).IsNil():
			_ = v.Destroy() // frees memory, cannot fail
		case errors.Is(err, ort.ZeroShapeLengthError):
			if s, made := scalar(o.carried(), make([]byte, 8)); made == nil {
				in.out[i], o.scalar, again = s, true, true
				continue
			}
		}
		in.out[i] = nil
	}
	return again
}
