package tensor

import (
	"encoding/binary"
	"unsafe"
)

// number is what a view can be made of: element types whose memory layout on a
// little-endian machine is their wire layout.
type number interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int8 | ~int16 | ~int32 | ~int64 | ~float32 | ~float64
}

// View reads bytes as numbers. The result shares memory with data where data
// is aligned for T on a little-endian machine, and is a copy otherwise; so read
// from it, and write only to views made by a slice of T (see AsBytes). Bytes
// left over behind the last whole element are ignored.
func View[T number](data []byte) []T {
	var zero T
	size := int(unsafe.Sizeof(zero))
	n := len(data) / size
	if n == 0 {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(data))
	if uintptr(p)%unsafe.Alignof(zero) == 0 && littleEndian() {
		return unsafe.Slice((*T)(p), n)
	}
	out := make([]T, n)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(out))), n*size)
	copy(raw, data)
	if !littleEndian() {
		swap(raw, size)
	}
	return out
}

// Float32s is View[float32], the most common one.
func Float32s(data []byte) []float32 { return View[float32](data) }

// AsBytes is the wire form of numbers: their own memory on a little-endian
// machine, a swapped copy on another.
func AsBytes[T number](values []T) []byte {
	if len(values) == 0 {
		return nil
	}
	size := int(unsafe.Sizeof(values[0]))
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*size)
	if littleEndian() {
		return raw
	}
	out := append([]byte(nil), raw...)
	swap(out, size)
	return out
}

// SameMemory tells whether two slices begin at one address, so that a copy
// from one to the other would be idle work.
func SameMemory(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// Within tells whether part begins inside of whole.
func Within(part, whole []byte) bool {
	if len(part) == 0 || len(whole) == 0 {
		return false
	}
	at, begin := uintptr(unsafe.Pointer(unsafe.SliceData(part))), uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	return at >= begin && at-begin < uintptr(len(whole))
}

func littleEndian() bool {
	return binary.NativeEndian.Uint16([]byte{1, 0}) == 1
}

func swap(raw []byte, size int) {
	for i := 0; i+size <= len(raw); i += size {
		for a, b := i, i+size-1; a < b; a, b = a+1, b-1 {
			raw[a], raw[b] = raw[b], raw[a]
		}
	}
}
