package v2grpc

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vedette/vedette/infer/tensor"
)

// contentField describes a field of InferTensorContents.
type contentField struct {
	name string
	wire protowire.Type
	fits []tensor.DataType
}

// contentFields is indexed by field number.
//
//nolint:gochecknoglobals // a constant table; Go has no constant arrays
var contentFields = [...]contentField{
	1: {"BOOL", protowire.VarintType, []tensor.DataType{tensor.Bool}},
	2: {"INT32", protowire.VarintType, []tensor.DataType{tensor.Int8, tensor.Int16, tensor.Int32}},
	3: {"INT64", protowire.VarintType, []tensor.DataType{tensor.Int64}},
	4: {"UINT32", protowire.VarintType, []tensor.DataType{tensor.Uint8, tensor.Uint16, tensor.Uint32}},
	5: {"UINT64", protowire.VarintType, []tensor.DataType{tensor.Uint64}},
	6: {"FP32", protowire.Fixed32Type, []tensor.DataType{tensor.FP32}},
	7: {"FP64", protowire.Fixed64Type, []tensor.DataType{tensor.FP64}},
	8: {"BYTES", protowire.BytesType, []tensor.DataType{tensor.Bytes}},
}

// elements calls f for each element of a field of the message, packed or not.
func elements(msg []byte, f func(num protowire.Number, n uint64, v []byte)) error {
	return fields(msg, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) (bool, error) {
		if num < 1 || int(num) >= len(contentFields) {
			return false, nil
		}
		wire := contentFields[num].wire
		switch typ {
		case wire:
			f(num, n, v)
		case protowire.BytesType:
			for len(v) > 0 {
				var size int
				switch wire {
				case protowire.VarintType:
					n, size = protowire.ConsumeVarint(v)
				case protowire.Fixed32Type:
					var n32 uint32
					n32, size = protowire.ConsumeFixed32(v)
					n = uint64(n32)
				default:
					n, size = protowire.ConsumeFixed64(v)
				}
				if size < 0 {
					return true, errWire
				}
				f(num, n, nil)
				v = v[size:]
			}
		default: // another type than the field's: unknown, as protobuf has it
		}
		return true, nil
	})
}

// checkContents tells whether a message can be parsed at all.
func checkContents(msg []byte) error {
	return elements(msg, func(protowire.Number, uint64, []byte) {})
}

// wrongField returns the name of a field of the contents that does not fit t, or "".
func wrongField(msg []byte, t tensor.DataType) string {
	wrong := ""
	_ = elements(msg, func(num protowire.Number, _ uint64, _ []byte) {
		if !slices.Contains(contentFields[num].fits, t) {
			wrong = contentFields[num].name
		}
	})
	return wrong
}

// contentSize is the number of bytes the contents take as a tensor of type t.
func contentSize(msg []byte, t tensor.DataType) int {
	size := 0
	_ = elements(msg, func(_ protowire.Number, _ uint64, v []byte) {
		if t == tensor.Bytes {
			size += 4 + len(v)
		} else {
			size += t.Size()
		}
	})
	return size
}

// putContents writes the contents as the data of a tensor of type t into dst, which has their size.
func putContents(dst, msg []byte, t tensor.DataType) {
	le := binary.LittleEndian
	_ = elements(msg, func(_ protowire.Number, n uint64, v []byte) {
		if t == tensor.Bytes {
			le.PutUint32(dst, uint32(len(v)))
			copy(dst[4:], v)
			dst = dst[4+len(v):]
			return
		}
		switch t.Size() {
		case 1:
			if t == tensor.Bool && n != 0 {
				n = 1
			}
			dst[0] = byte(n)
		case 2:
			le.PutUint16(dst, uint16(n))
		case 4:
			le.PutUint32(dst, uint32(n))
		default:
			le.PutUint64(dst, n)
		}
		dst = dst[t.Size():]
	})
}
