package onnxruntime

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vedette/vedette/infer/tensor"
)

// The binding hands out tensors that ONNX Runtime made in every type but FP16 and BF16. Where the size of such an output
// is not known beforehand, the graph is given one more node, which casts it to FP32, and the values are narrowed
// again when they come: every half has its FP32, so nothing changes.

// wideSuffix names the FP32 twin of an output.
const wideSuffix = ":vedette-fp32"

const (
	nodeName      = 3
	attributeName = 1
	attributeInt  = 3
	attributeType = 20
	attributeOfI  = 2 // AttributeProto.INT
	elementType   = 1
	elementFloat  = 1 // TensorProto.FLOAT
)

// widen gives FP32 twins to outputs of a model.
func widen(model []byte, wide []string) ([]byte, error) {
	return editPath(model, func(graph []byte) ([]byte, error) {
		out, err := edit(graph, func(n protowire.Number, content []byte) ([]byte, bool, error) {
			if n != graphOutput || !slices.Contains(wide, text(content, valueName)) {
				return content, false, nil
			}
			to, err := widenOutput(content)
			return to, false, err
		})
		if err != nil {
			return nil, err
		}
		for _, name := range wide {
			out = protowire.AppendBytes(protowire.AppendTag(out, graphNode, protowire.BytesType), castNode(name))
		}
		return out, nil
	}, modelGraph)
}

// widenOutput is the declaration of an output's twin.
func widenOutput(value []byte) ([]byte, error) {
	value, err := edit(value, func(n protowire.Number, content []byte) ([]byte, bool, error) {
		if n == valueName {
			return append(slices.Clone(content), wideSuffix...), false, nil
		}
		return content, false, nil
	})
	if err != nil {
		return nil, err
	}
	return editPath(value, func(t []byte) ([]byte, error) {
		// The last of several values of a field counts.
		return protowire.AppendVarint(protowire.AppendTag(slices.Clone(t), elementType, protowire.VarintType), elementFloat), nil
	}, valueType, typeTensor)
}

// castNode is the node that makes an output's twin.
func castNode(name string) []byte {
	str := func(b []byte, n protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
	}
	num := func(b []byte, n protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
	}
	to := num(num(str(nil, attributeName, "to"), attributeInt, elementFloat), attributeType, attributeOfI)
	node := str(str(nil, nodeInput, name), nodeOutput, name+wideSuffix)
	node = str(str(node, nodeName, name+wideSuffix), nodeOp, "Cast")
	return protowire.AppendBytes(protowire.AppendTag(node, nodeAttribute, protowire.BytesType), to)
}

// narrow is the way back from an output's twin to the output's own type.
func narrow(wide []float32, t tensor.DataType) ([]byte, error) {
	half := tensor.Float32ToFP16
	switch t {
	case tensor.FP16:
	case tensor.BF16:
		half = tensor.Float32ToBF16
	default:
		return nil, fmt.Errorf("%s is no narrow FP32", t)
	}
	out := make([]uint16, len(wide))
	for i, v := range wide {
		out[i] = half(v)
	}
	return tensor.AsBytes(out), nil
}
