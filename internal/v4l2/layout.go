//go:build amd64 || arm64 || riscv64

package v4l2

import "unsafe"

// What follows is linux/videodev2.h, as far as it is used.

const (
	capture            = 1 // V4L2_BUF_TYPE_VIDEO_CAPTURE
	mapped             = 1 // V4L2_MEMORY_MMAP
	captures           = 0x00000001
	streams            = 0x04000000
	hasDeviceCaps      = 0x80000000
	bufferError        = 0x00000040
	timestampMask      = 0x0000E000
	timestampMonotonic = 0x00002000
)

type capability struct {
	Driver                            [16]byte
	Card, Bus                         [32]byte
	Version, Capabilities, DeviceCaps uint32
	_                                 [3]uint32
}

type description struct {
	Index, Type, Flags uint32
	Text               [32]byte
	Pixels, Bus        uint32
	_                  [3]uint32
}

type format struct {
	Type                                                uint32
	_                                                   uint32 // what follows holds pointers in other kinds
	Width, Height, Pixels, Field, BytesPerLine, SizeAll uint32
	_                                                   [200 - 24]byte
}

type parameters struct {
	Type, Capability, Mode, Numerator, Denominator uint32
	_                                              [200 - 16]byte
}

type request struct {
	Count, Type, Memory, Capabilities uint32
	_                                 uint32
}

type buffer struct {
	Index, Type, Used, Flags, Field uint32
	_                               uint32
	Seconds, Microseconds           int64
	_                               [16]byte // time code
	Sequence, Memory                uint32
	Offset                          uint64 // the lower half counts
	Length                          uint32
	_                               [3]uint32
}

// Requests: direction, size, 'V' and a number (asm-generic/ioctl.h).
const (
	write, read = 1 << 30, 2 << 30

	querycap       = read | unsafe.Sizeof(capability{})<<16 | 'V'<<8
	enumFormat     = read | write | unsafe.Sizeof(description{})<<16 | 'V'<<8 | 2
	setFormat      = read | write | unsafe.Sizeof(format{})<<16 | 'V'<<8 | 5
	requestBuffers = read | write | unsafe.Sizeof(request{})<<16 | 'V'<<8 | 8
	queryBuffer    = read | write | unsafe.Sizeof(buffer{})<<16 | 'V'<<8 | 9
	enqueue        = read | write | unsafe.Sizeof(buffer{})<<16 | 'V'<<8 | 15
	dequeue        = read | write | unsafe.Sizeof(buffer{})<<16 | 'V'<<8 | 17
	streamOn       = uintptr(write | 4<<16 | 'V'<<8 | 18)
	streamOff      = uintptr(write | 4<<16 | 'V'<<8 | 19)
	setParameters  = read | write | unsafe.Sizeof(parameters{})<<16 | 'V'<<8 | 22
)
