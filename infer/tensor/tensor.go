// Package tensor is the unit of data every model eats and returns: a name, an
// element type, a shape and the bytes.
//
// Bytes are little-endian and row-major. Elements of type BYTES are each a
// 32-bit little-endian length followed by that many bytes. Views of the bytes
// as numbers cost nothing where memory is aligned and are copied where not.
package tensor

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Tensor is one named array. Data may be a view of memory that somebody else
// owns (a message, a shared region, a pooled buffer); the interface that hands
// a tensor over says until when it may be read and who may write it.
type Tensor struct {
	Name     string
	DataType DataType
	Shape    []int64
	Data     []byte
}

// ElementCount multiplies the dimensions of shape. A shape without dimensions
// holds one element. A negative dimension or a product that does not fit 63
// bits is an error.
func ElementCount(shape []int64) (int64, error) {
	n := uint64(1)
	zero := false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %s has a negative dimension", FormatShape(shape))
		}
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("shape %s holds more elements than 63 bits count", FormatShape(shape))
		}
		n = lo
	}
	if zero {
		return 0, nil
	}
	return int64(n), nil
}

// ByteSize is the number of bytes a tensor of this type and shape takes. It is
// an error for BYTES, whose size depends on its elements, and for shapes that
// ElementCount refuses or whose bytes do not fit 63 bits.
func ByteSize(t DataType, shape []int64) (int64, error) {
	size := int64(t.Size())
	if size == 0 {
		return 0, fmt.Errorf("%s elements have no fixed size", t)
	}
	n, err := ElementCount(shape)
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt64/size {
		return 0, fmt.Errorf("shape %s of %s holds more bytes than 63 bits count", FormatShape(shape), t)
	}
	return n * size, nil
}

// FormatShape prints a shape the way the protocol's messages do: [-1,3,416].
func FormatShape(shape []int64) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range shape {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(d, 10))
	}
	b.WriteByte(']')
	return b.String()
}
