package onnxruntime

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

const nodeDomain = 7

// emptyTakers are operators that take tensors without elements. Others of ONNX Runtime divide by the number of elements
// and end the process, so a graph is given such tensors only if it has none of them.
//
//nolint:gochecknoglobals // a constant table; Go has no constant slices
var emptyTakers = []string{
	"Abs", "Add", "And", "Cast", "Ceil", "Clip", "Concat", "Constant", "ConstantOfShape", "Cos", "Div", "Equal", "Erf", "Exp", "Expand",
	"Flatten", "Floor", "Gather", "Greater", "Identity", "LeakyRelu", "Less", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow",
	"Reciprocal", "ReduceSum", "Relu", "Reshape", "Round", "Shape", "Sigmoid", "Sign", "Sin", "Slice", "Sqrt", "Squeeze", "Sub", "Sum",
	"Tanh", "Transpose", "Unsqueeze", "Where",
}

// takesEmpty tells, by an error, why a model is not given tensors without elements.
func takesEmpty(model []byte) error {
	return each(model, func(n protowire.Number, _ protowire.Type, _, graph []byte) error {
		if n != modelGraph {
			return nil
		}
		return each(graph, func(n protowire.Number, _ protowire.Type, _, node []byte) error {
			if n != graphNode {
				return nil
			}
			if op := text(node, nodeOp); text(node, nodeDomain) != "" || !slices.Contains(emptyTakers, op) {
				return fmt.Errorf("the model's operator %s is not known to take one", op)
			}
			return nil
		})
	})
}

// takesEmpty is asked of the file once, when the first such tensor comes.
func (in *instance) takesEmpty() error {
	if !in.askedEmpty {
		model, err := os.ReadFile(in.path)
		if err == nil {
			err = takesEmpty(model)
		}
		in.askedEmpty, in.noEmpty = true, err
	}
	return in.noEmpty
}

// whole fails the jobs that have strings which ONNX Runtime would cut, and returns the others.
func (in *instance) whole(jobs []*backend.Job) []*backend.Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *backend.Job) bool {
		for i := range in.inputs {
			t := j.Input(in.inputs[i].name)
			if t == nil || t.DataType != tensor.Bytes {
				continue
			}
			k := 0
			for e, err := range tensor.Elements(t.Data) {
				if err == nil && bytes.IndexByte(e, 0) >= 0 {
					j.Fail(infer.Errorf(infer.InvalidArgument, "input '%s' of model '%s': element %d has a zero byte, which ends a string in ONNX Runtime",
						t.Name, in.model.Name, k))
					return true
				}
				k++
			}
		}
		return false
	})
}
