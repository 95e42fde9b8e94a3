package onnxruntime

import (
	"fmt"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/infer/tensor"
)

// port is one input or output of a graph.
type port struct {
	name string
	typ  tensor.DataType // Invalid: no tensor we can carry
	onnx string          // the graph's own word for the type
	dims []int64         // -1 is free
}

// graph is the signature of a model file.
type graph struct{ inputs, outputs []port }

// batches tells whether the first dimension of everything is free.
func (g graph) batches() bool {
	for _, ports := range [][]port{g.inputs, g.outputs} {
		for _, p := range ports {
			if len(p.dims) == 0 || p.dims[0] != -1 {
				return false
			}
		}
	}
	return true
}

func find(ports []port, name string) *port {
	for i := range ports {
		if ports[i].name == name {
			return &ports[i]
		}
	}
	return nil
}

// readGraph opens the file for its signature only, so without optimising it.
func readGraph(path string) (graph, error) {
	o, err := ort.NewSessionOptions()
	if err != nil {
		return graph{}, fmt.Errorf("session options: %w", err)
	}
	defer func() { _ = o.Destroy() }() // frees memory, cannot fail
	if err := o.SetGraphOptimizationLevel(ort.GraphOptimizationLevelDisableAll); err != nil {
		return graph{}, fmt.Errorf("session options: %w", err)
	}
	if err := o.SetIntraOpNumThreads(1); err != nil {
		return graph{}, fmt.Errorf("session options: %w", err)
	}
	in, out, err := ort.GetInputOutputInfoWithOptions(path, o)
	if err != nil {
		return graph{}, fmt.Errorf("read %s: %w", path, err)
	}
	return graph{inputs: portsOf(in), outputs: portsOf(out)}, nil
}

func portsOf(infos []ort.InputOutputInfo) []port {
	ports := make([]port, len(infos))
	for i, info := range infos {
		ports[i] = port{name: info.Name, onnx: info.OrtValueType.String()}
		if info.OrtValueType != ort.ONNXTypeTensor {
			continue
		}
		ports[i].typ, ports[i].onnx = typeOf(info.DataType), info.DataType.String()
		for _, d := range info.Dimensions {
			ports[i].dims = append(ports[i].dims, max(d, -1))
		}
	}
	return ports
}

// typeOf is the v2 type of an ONNX element type.
func typeOf(t ort.TensorElementDataType) tensor.DataType {
	switch t {
	case ort.TensorElementDataTypeBool:
		return tensor.Bool
	case ort.TensorElementDataTypeUint8:
		return tensor.Uint8
	case ort.TensorElementDataTypeUint16:
		return tensor.Uint16
	case ort.TensorElementDataTypeUint32:
		return tensor.Uint32
	case ort.TensorElementDataTypeUint64:
		return tensor.Uint64
	case ort.TensorElementDataTypeInt8:
		return tensor.Int8
	case ort.TensorElementDataTypeInt16:
		return tensor.Int16
	case ort.TensorElementDataTypeInt32:
		return tensor.Int32
	case ort.TensorElementDataTypeInt64:
		return tensor.Int64
	case ort.TensorElementDataTypeFloat16:
		return tensor.FP16
	case ort.TensorElementDataTypeBFloat16:
		return tensor.BF16
	case ort.TensorElementDataTypeFloat:
		return tensor.FP32
	case ort.TensorElementDataTypeDouble:
		return tensor.FP64
	case ort.TensorElementDataTypeString:
		return tensor.Bytes
	}
	return tensor.Invalid
}

// elementOf is typeOf's inverse.
func elementOf(t tensor.DataType) ort.TensorElementDataType {
	for e := ort.TensorElementDataType(ort.TensorElementDataTypeUndefined); e <= ort.TensorElementDataTypeInt4; e++ {
		if t != tensor.Invalid && typeOf(e) == t {
			return e
		}
	}
	return ort.TensorElementDataTypeUndefined
}
