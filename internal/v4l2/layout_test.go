package v4l2

import (
	"testing"
	"unsafe"
)

// The numbers are what a C compiler makes of linux/videodev2.h on amd64 and arm64.
func TestTheLayoutsAreTheKernels(t *testing.T) {
	for name, c := range map[string][2]uintptr{
		"VIDIOC_QUERYCAP": {querycap, 0x80685600}, "VIDIOC_ENUM_FMT": {enumFormat, 0xC0405602}, "VIDIOC_S_FMT": {setFormat, 0xC0D05605},
		"VIDIOC_REQBUFS": {requestBuffers, 0xC0145608}, "VIDIOC_QUERYBUF": {queryBuffer, 0xC0585609}, "VIDIOC_QBUF": {enqueue, 0xC058560F},
		"VIDIOC_DQBUF": {dequeue, 0xC0585611}, "VIDIOC_STREAMON": {streamOn, 0x40045612}, "VIDIOC_STREAMOFF": {streamOff, 0x40045613},
		"VIDIOC_S_PARM":         {setParameters, 0xC0CC5616},
		"v4l2_buffer.timestamp": {unsafe.Offsetof(buffer{}.Seconds), 0x18}, "v4l2_buffer.sequence": {unsafe.Offsetof(buffer{}.Sequence), 0x38},
		"v4l2_buffer.m": {unsafe.Offsetof(buffer{}.Offset), 0x40}, "v4l2_buffer.length": {unsafe.Offsetof(buffer{}.Length), 0x48},
		"v4l2_format.fmt": {unsafe.Offsetof(format{}.Width), 8}, "v4l2_streamparm.timeperframe": {unsafe.Offsetof(parameters{}.Numerator), 12},
		"v4l2_fmtdesc.pixelformat": {unsafe.Offsetof(description{}.Pixels), 44}, "v4l2_capability.device_caps": {unsafe.Offsetof(capability{}.DeviceCaps), 88},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %#x, want %#x", name, c[0], c[1])
		}
	}
}
