package tensor

import "fmt"

// DataType is the element type of a tensor under its v2 protocol name.
type DataType uint8

// The element types of the v2 protocol. The zero value is not a type.
const (
	Invalid DataType = iota
	Bool
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	FP16
	FP32
	FP64
	Bytes
	BF16
)

// dataTypes is indexed by DataType.
//
//nolint:gochecknoglobals // a constant table; Go has no constant arrays
var dataTypes = [...]struct {
	name string
	size int
}{
	Invalid: {"INVALID", 0},
	Bool:    {"BOOL", 1},
	Uint8:   {"UINT8", 1},
	Uint16:  {"UINT16", 2},
	Uint32:  {"UINT32", 4},
	Uint64:  {"UINT64", 8},
	Int8:    {"INT8", 1},
	Int16:   {"INT16", 2},
	Int32:   {"INT32", 4},
	Int64:   {"INT64", 8},
	FP16:    {"FP16", 2},
	FP32:    {"FP32", 4},
	FP64:    {"FP64", 8},
	Bytes:   {"BYTES", 0},
	BF16:    {"BF16", 2},
}

// String gives the v2 name: FP32, BYTES.
func (t DataType) String() string {
	if int(t) >= len(dataTypes) {
		return dataTypes[Invalid].name
	}
	return dataTypes[t].name
}

// Size is the number of bytes of one element, 0 for BYTES and for no type.
func (t DataType) Size() int {
	if int(t) >= len(dataTypes) {
		return 0
	}
	return dataTypes[t].size
}

// Parse reads a v2 name. Names are upper case, as the protocol has them.
func Parse(name string) (DataType, error) {
	for t, d := range dataTypes {
		if d.name == name && DataType(t) != Invalid {
			return DataType(t), nil
		}
	}
	return Invalid, fmt.Errorf("datatype %q is not one of the v2 protocol's", name)
}
