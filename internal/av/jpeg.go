package av

/*
#include "av.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"image"
	"unsafe"
)

// Still is an I420 picture in tight planes.
type Still struct {
	Pixels        []byte
	Width, Height int
	// FullRange: values from 0 to 255 instead of 16 to 235.
	FullRange bool
	Matrix    Matrix
}

// Matrix is how colours became YUV.
type Matrix int

// The matrices.
const (
	BT601  Matrix = 0 // also where nothing is said
	BT709  Matrix = C.AVCOL_SPC_BT709
	BT2020 Matrix = C.AVCOL_SPC_BT2020_NCL
)

// JPEG encodes the crop of s (its edges moved to even pixels; empty: all of it), scaled down to at
// most maxWidth (0: as it is), with a quality of 1 to 100. It returns the JPEG and its size and takes
// some milliseconds a megapixel.
func JPEG(s Still, crop image.Rectangle, maxWidth, quality int) ([]byte, image.Point, error) {
	quiet()
	all := image.Rect(0, 0, s.Width, s.Height)
	if s.Width < 1 || s.Height < 1 || len(s.Pixels) < s.Width*s.Height+2*((s.Width+1)/2)*((s.Height+1)/2) {
		return nil, image.Point{}, fmt.Errorf("encode JPEG: %d bytes are no I420 picture of %d×%d pixels", len(s.Pixels), s.Width, s.Height)
	}
	if crop.Empty() {
		crop = all
	}
	crop.Min.X, crop.Min.Y = crop.Min.X&^1, crop.Min.Y&^1
	crop = crop.Intersect(all)
	if crop.Empty() {
		return nil, image.Point{}, errors.New("encode JPEG: the crop lies outside the picture")
	}
	size := crop.Size()
	if maxWidth > 0 && maxWidth < size.X {
		size = image.Pt(maxWidth, max(1, (size.Y*maxWidth+size.X/2)/size.X))
	}
	packet := C.av_packet_alloc()
	if packet == nil {
		return nil, image.Point{}, errors.New("encode JPEG: out of memory")
	}
	defer C.av_packet_free(&packet)
	cw, ch := (s.Width+1)/2, (s.Height+1)/2
	y := s.Pixels[crop.Min.Y*s.Width+crop.Min.X:]
	chroma := crop.Min.Y/2*cw + crop.Min.X/2
	u := s.Pixels[s.Width*s.Height+chroma:]
	v := s.Pixels[s.Width*s.Height+cw*ch+chroma:]
	err := status(C.vd_jpeg(first(y), first(u), first(v), C.int(s.Width), C.int(cw), C.int(crop.Dx()), C.int(crop.Dy()),
		flag(s.FullRange), C.int(s.Matrix), C.int(size.X), C.int(size.Y), C.int(quantiser(quality)), packet))
	if err != nil {
		return nil, image.Point{}, fmt.Errorf("encode JPEG of %d×%d pixels: %w", size.X, size.Y, err)
	}
	return C.GoBytes(unsafe.Pointer(packet.data), packet.size), size, nil
}

func first(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(b))) }

// quantiser maps the customary 1 … 100 to libavcodec's 31 … 1 (0 and nonsense: 85).
func quantiser(quality int) int {
	if quality < 1 || quality > 100 {
		quality = 85
	}
	return max(1, min(31, (100-quality)*31/100+1))
}
