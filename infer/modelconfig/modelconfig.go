// Package modelconfig reads what a model's author wrote in config.pbtxt, fills
// in what was left out and says everything that is wrong with it.
//
// The language is protobuf's text format, in full, over the message
// inference.ModelConfig; a repository written for Triton reads the same here.
package modelconfig

import (
	"bytes"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
)

// maxSize bounds a configuration; real ones have a few kilobytes.
const maxSize = 16 << 20

// Parse reads protobuf text. Unknown fields are errors, as are values of the
// wrong type; the message says line and column.
func Parse(text []byte) (*inference.ModelConfig, error) {
	if len(text) > maxSize {
		return nil, fmt.Errorf("configuration of %d bytes is larger than %d", len(text), maxSize)
	}
	cfg := new(inference.ModelConfig)
	text = bytes.TrimPrefix(text, []byte("\uFEFF")) // some editors begin files with it
	if err := prototext.Unmarshal(text, cfg); err != nil {
		return nil, fmt.Errorf("%s", clean(err))
	}
	return cfg, defined(cfg)
}

// defined refuses numbers that stand for no value of their enum.
func defined(cfg *inference.ModelConfig) error {
	return protorange.Range(cfg.ProtoReflect(), func(at protopath.Values) error {
		step := at.Index(-1)
		n, ok := step.Value.Interface().(protoreflect.EnumNumber)
		if !ok {
			return nil
		}
		if step.Step.Kind() == protopath.ListIndexStep {
			step = at.Index(-2)
		}
		if enum := step.Step.FieldDescriptor().Enum(); enum.Values().ByNumber(n) == nil {
			return fmt.Errorf("%s: %d is no %s", strings.TrimPrefix(at.Path[1:].String(), "."), n, enum.Name())
		}
		return nil
	})
}

// clean removes the decoration that protobuf puts around its messages, and the
// spaces that it varies so that nobody depends on them.
func clean(err error) string {
	s := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	s = strings.TrimPrefix(s, "proto: ")
	return strings.TrimSpace(strings.TrimPrefix(s, "(prototext): "))
}

// DataType translates a configuration's element type to a tensor's.
func DataType(t inference.DataType) tensor.DataType {
	switch t {
	case inference.DataType_TYPE_BOOL:
		return tensor.Bool
	case inference.DataType_TYPE_UINT8:
		return tensor.Uint8
	case inference.DataType_TYPE_UINT16:
		return tensor.Uint16
	case inference.DataType_TYPE_UINT32:
		return tensor.Uint32
	case inference.DataType_TYPE_UINT64:
		return tensor.Uint64
	case inference.DataType_TYPE_INT8:
		return tensor.Int8
	case inference.DataType_TYPE_INT16:
		return tensor.Int16
	case inference.DataType_TYPE_INT32:
		return tensor.Int32
	case inference.DataType_TYPE_INT64:
		return tensor.Int64
	case inference.DataType_TYPE_FP16:
		return tensor.FP16
	case inference.DataType_TYPE_FP32:
		return tensor.FP32
	case inference.DataType_TYPE_FP64:
		return tensor.FP64
	case inference.DataType_TYPE_STRING:
		return tensor.Bytes
	case inference.DataType_TYPE_BF16:
		return tensor.BF16
	default:
		return tensor.Invalid
	}
}

// FromDataType translates a tensor's element type to a configuration's.
func FromDataType(t tensor.DataType) inference.DataType {
	for n := range inference.DataType_name {
		if d := inference.DataType(n); d != inference.DataType_TYPE_INVALID && DataType(d) == t {
			return d
		}
	}
	return inference.DataType_TYPE_INVALID
}

// FillIO completes inputs and outputs of cfg by what a model's file says of
// them: all of them where cfg names none, else the types and dimensions that
// an entry of cfg leaves out.
func FillIO(cfg, found *inference.ModelConfig) {
	if len(cfg.GetInput()) == 0 {
		cfg.Input = found.GetInput()
	}
	for _, in := range cfg.GetInput() {
		for _, f := range found.GetInput() {
			if f.GetName() != in.GetName() {
				continue
			}
			if in.GetDataType() == inference.DataType_TYPE_INVALID {
				in.DataType = f.GetDataType()
			}
			if len(in.GetDims()) == 0 {
				in.Dims, in.Reshape = f.GetDims(), f.GetReshape()
			}
		}
	}
	if len(cfg.GetOutput()) == 0 {
		cfg.Output = found.GetOutput()
	}
	for _, out := range cfg.GetOutput() {
		for _, f := range found.GetOutput() {
			if f.GetName() != out.GetName() {
				continue
			}
			if out.GetDataType() == inference.DataType_TYPE_INVALID {
				out.DataType = f.GetDataType()
			}
			if len(out.GetDims()) == 0 {
				out.Dims, out.Reshape = f.GetDims(), f.GetReshape()
			}
		}
	}
}
