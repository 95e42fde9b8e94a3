package tensor

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
)

// AppendElement adds one BYTES element to dst: its length, then its bytes.
// Elements longer than 32 bits count are cut by the caller's own limits long
// before; here they panic.
func AppendElement[T string | []byte](dst []byte, element T) []byte {
	if uint64(len(element)) > math.MaxUint32 {
		panic("tensor: BYTES element of more than 4 GiB")
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(element)))
	return append(dst, element...)
}

// EncodeStrings lays out strings as the data of a BYTES tensor.
func EncodeStrings(elements ...string) []byte {
	n := 0
	for _, e := range elements {
		n += 4 + len(e)
	}
	out := make([]byte, 0, n)
	for _, e := range elements {
		out = AppendElement(out, e)
	}
	return out
}

// Elements walks the elements of a BYTES tensor's data without copying. Bytes
// that do not form a whole element end the walk with an error as last pair.
func Elements(data []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for i := 0; len(data) > 0; i++ {
			if len(data) < 4 {
				yield(nil, fmt.Errorf("element %d: %d bytes are left, a length takes 4", i, len(data)))
				return
			}
			n := binary.LittleEndian.Uint32(data)
			data = data[4:]
			if uint64(n) > uint64(len(data)) {
				yield(nil, fmt.Errorf("element %d: its length says %d bytes, %d are left", i, n, len(data)))
				return
			}
			if !yield(data[:n:n], nil) {
				return
			}
			data = data[n:]
		}
	}
}

// CountElements counts the elements of a BYTES tensor's data.
func CountElements(data []byte) (int64, error) {
	var n int64
	for _, err := range Elements(data) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// DecodeStrings copies the elements of a BYTES tensor's data.
func DecodeStrings(data []byte) ([]string, error) {
	var out []string
	for e, err := range Elements(data) {
		if err != nil {
			return nil, err
		}
		out = append(out, string(e))
	}
	return out, nil
}
