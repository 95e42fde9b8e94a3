package v2client

import (
	"encoding/json"
	"fmt"

	"github.com/vedette/vedette/infer/tensor"
)

// elements is a tensor as a list of JSON, flat. FP16 and BF16 have no such form.
func elements(t *tensor.Tensor) (list any, err error) {
	switch t.DataType {
	case tensor.Bool:
		truths := make([]bool, len(t.Data))
		for i, b := range t.Data {
			truths[i] = b != 0
		}
		return truths, nil
	case tensor.Uint8:
		return widened(t.Data), nil // []byte would become a string
	case tensor.Uint16:
		return tensor.View[uint16](t.Data), nil
	case tensor.Uint32:
		return tensor.View[uint32](t.Data), nil
	case tensor.Uint64:
		return tensor.View[uint64](t.Data), nil
	case tensor.Int8:
		return tensor.View[int8](t.Data), nil
	case tensor.Int16:
		return tensor.View[int16](t.Data), nil
	case tensor.Int32:
		return tensor.View[int32](t.Data), nil
	case tensor.Int64:
		return tensor.View[int64](t.Data), nil
	case tensor.FP32:
		return tensor.View[float32](t.Data), nil
	case tensor.FP64:
		return tensor.View[float64](t.Data), nil
	case tensor.Bytes:
		list, err := tensor.DecodeStrings(t.Data)
		if list == nil {
			list = []string{}
		}
		return list, err
	default:
		return nil, fmt.Errorf("tensor %q: JSON has no form of %s: send it as bytes", t.Name, t.DataType)
	}
}

func widened(data []byte) []uint16 {
	out := make([]uint16, len(data))
	for i, b := range data {
		out[i] = uint16(b)
	}
	return out
}

// fromElements is the memory of a tensor whose elements are a flat list of JSON.
func fromElements(t tensor.DataType, text json.RawMessage) ([]byte, error) {
	switch t {
	case tensor.Bool:
		truths, err := parsed[bool](text)
		out := make([]byte, len(truths))
		for i, yes := range truths {
			if yes {
				out[i] = 1
			}
		}
		return out, err
	case tensor.Uint8:
		wide, err := parsed[uint16](text)
		out := make([]byte, len(wide))
		for i, v := range wide {
			out[i] = byte(v)
		}
		return out, err
	case tensor.Uint16:
		return numbers[uint16](text)
	case tensor.Uint32:
		return numbers[uint32](text)
	case tensor.Uint64:
		return numbers[uint64](text)
	case tensor.Int8:
		return numbers[int8](text)
	case tensor.Int16:
		return numbers[int16](text)
	case tensor.Int32:
		return numbers[int32](text)
	case tensor.Int64:
		return numbers[int64](text)
	case tensor.FP32:
		return numbers[float32](text)
	case tensor.FP64:
		return numbers[float64](text)
	case tensor.Bytes:
		list, err := parsed[string](text)
		return tensor.EncodeStrings(list...), err
	default:
		return nil, fmt.Errorf("JSON has no form of %s", t)
	}
}

func parsed[T any](text json.RawMessage) ([]T, error) {
	var list []T
	err := json.Unmarshal(text, &list)
	return list, err
}

func numbers[T uint16 | uint32 | uint64 | int8 | int16 | int32 | int64 | float32 | float64](text json.RawMessage) ([]byte, error) {
	list, err := parsed[T](text)
	return tensor.AsBytes(list), err
}
