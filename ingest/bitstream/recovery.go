package bitstream

import (
	"github.com/bluenviron/mediacommon/v2/pkg/bits"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
)

// maxNote bounds how much of supplemental information is read: recovery points stand in front of what can be long.
const maxNote = 1024

// recoveryPoint looks for a recovery point in a unit of supplemental information (annex D.2.8 of H.264) and returns after
// how many pictures everything is right.
func recoveryPoint(u []byte) (pictures int, ok bool) {
	b := h264.EmulationPreventionRemove(u[1:min(len(u), maxNote)])
	for len(b) > 2 { // what is less is the trailing bits
		var kind, size int
		if kind, b = number(b); len(b) == 0 {
			return 0, false
		}
		if size, b = number(b); size > len(b) {
			return 0, false
		}
		if kind != 6 {
			b = b[size:]
			continue
		}
		pos := 0
		n, err := bits.ReadGolombUnsigned(b[:size], &pos)
		return int(n), err == nil && n <= 65535
	}
	return 0, false
}

// number reads a number that is written as bytes to be added up.
func number(b []byte) (n int, rest []byte) {
	for len(b) > 0 && b[0] == 0xFF {
		n, b = n+0xFF, b[1:]
	}
	if len(b) == 0 {
		return n, nil
	}
	return n + int(b[0]), b[1:]
}

// intra reports whether a slice of H.264 refers to no other picture (section 7.4.3: slice types I and SI).
func intra(u []byte) bool {
	n := golomb(u, 1, 0, 2) // first_mb_in_slice, slice_type
	return n != nil && (n[1]%5 == 2 || n[1]%5 == 4)
}
