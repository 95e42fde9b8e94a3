// Package pixels turns a decoded picture into the input of a network: crop, scale, colours and number
// format in one pass over the source.
//
// Scaling is bilinear with pixel centres at half positions, as image libraries do it, so that a
// network sees what it was trained on. Colours of I420 and NV12 are converted after scaling, which
// is the same up to rounding and costs a fraction; every chroma sample stands for its block of two
// by two.
package pixels

// #cgo CFLAGS: -O3
// #cgo LDFLAGS: -lm
// #include "kernel.h"
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"
)

// Format is the arrangement of a source's pixels. All are tight: no padding between rows or planes.
type Format int

// The formats a source may have.
const (
	I420 Format = C.VP_I420 // Y (w·h), U, V (⌈w/2⌉·⌈h/2⌉ each)
	NV12 Format = C.VP_NV12 // Y (w·h), then U and V interleaved
	BGR  Format = C.VP_BGR  // three bytes a pixel
	RGB  Format = C.VP_RGB  // three bytes a pixel
	Gray Format = C.VP_GRAY // one byte a pixel
)

// Size returns the bytes of a w×h picture.
func (f Format) Size(w, h int) int {
	switch f {
	case I420, NV12:
		return w*h + 2*((w+1)/2)*((h+1)/2)
	case Gray:
		return w * h
	default:
		return 3 * w * h
	}
}

// Rect is a rectangle in pixels: left, top, width, height.
type Rect struct{ X, Y, W, H int }

// Matrix says how luma and chroma become red, green and blue.
type Matrix struct {
	// LumaOffset and LumaGain stretch the luma; the others weigh the chroma (value − 128).
	LumaOffset, LumaGain, VtoR, UtoG, VtoG, UtoB float32
}

// BT601 is the limited-range matrix image libraries assume for every YUV picture.
func BT601() Matrix {
	return Matrix{LumaOffset: 16, LumaGain: 1.164, VtoR: 1.596, UtoG: -0.391, VtoG: -0.813, UtoB: 2.018}
}

// NewMatrix is the matrix of video whose luma weighs red with kr and blue with kb (0.2126 and 0.0722 of BT.709), of values
// from 0 to 255 (full) or from 16 to 235.
func NewMatrix(kr, kb float32, full bool) Matrix {
	kg := 1 - kr - kb
	m := Matrix{LumaGain: 1, VtoR: 2 * (1 - kr), UtoG: -2 * (1 - kb) * kb / kg, VtoG: -2 * (1 - kr) * kr / kg, UtoB: 2 * (1 - kb)}
	if full {
		return m
	}
	const luma, chroma = 255. / 219, 255. / 224
	return Matrix{LumaOffset: 16, LumaGain: luma, VtoR: m.VtoR * chroma, UtoG: m.UtoG * chroma, VtoG: m.VtoG * chroma, UtoB: m.UtoB * chroma}
}

// Output describes what comes out.
type Output struct {
	Width, Height int
	// Picture is where the picture goes; the rest is padding.
	Picture Rect
	// Bytes: one byte a value instead of a float32.
	Bytes bool
	// Interleaved: the channels of a pixel lie side by side instead of in planes.
	Interleaved bool
	// RGB: channels come out red first instead of blue first.
	RGB bool
	// Scale and Bias: value = grey·Scale + Bias, per channel in the order they come out.
	Scale, Bias [3]float32
	// Pad is the value of the padding as stored, per channel in the order they come out.
	Pad [3]float32
	// Matrix for I420 and NV12.
	Matrix Matrix
	// Area takes the mean over the area a value covers instead of its nearest neighbours, where the
	// picture shrinks in both directions.
	Area bool
}

// Size returns the bytes of the output.
func (o *Output) Size() int {
	if o.Bytes {
		return 3 * o.Width * o.Height
	}
	return 12 * o.Width * o.Height
}

// Resampler converts pictures. It remembers the tables of the last geometry, so a steady stream
// costs no allocation. Not safe for concurrent use.
type Resampler struct {
	// Portable leaves wide instructions unused.
	Portable bool

	key     geometry
	x, y    axis
	cx, cy  cover
	scratch []float32
	out     C.vp_output
}

type geometry struct {
	format        Format
	width, height int
	crop          Rect
	w, h          int
	area          bool
}

// axis is one direction of the resampling; kernel.h says what the numbers are.
type axis struct {
	at, weight, chromaAt, chromaWeight []int32
	wide                               int
}

const one = 2048 // of the weights

// fill computes the tables for n outputs over length sources that begin at offset. area: neighbours as
// the area filter takes them where a picture grows.
func (a *axis) fill(n, offset, length int, area bool) {
	if cap(a.at) < n {
		buf := make([]int32, 4*n)
		a.at, a.weight, a.chromaAt, a.chromaWeight = buf[:n:n], buf[n:2*n:2*n], buf[2*n:3*n:3*n], buf[3*n:]
	}
	a.at, a.weight, a.chromaAt, a.chromaWeight = a.at[:n], a.weight[:n], a.chromaAt[:n], a.chromaWeight[:n]
	scale := float64(length) / float64(n)
	for i := range n {
		pos := float32((float64(i)+0.5)*scale - 0.5)
		at := int(pos)
		if area {
			at = int(float64(i) * scale)
			f := float64(i+1) - float64(at+1)/scale
			pos = float32(at) + float32(max(f-math.Floor(f), 0))
			if f <= 0 {
				pos = float32(at)
			}
		}
		if pos < 0 {
			at, pos = 0, 0
		}
		f := pos - float32(at)
		if at >= length-1 {
			at, f = length-1, 0
		}
		at += offset
		a.at[i], a.weight[i] = int32(at), weights(f)
		a.chromaAt[i], a.chromaWeight[i] = int32(at/2), one
		if (at+1)/2 != at/2 {
			a.chromaWeight[i] = a.weight[i]
		}
	}
}

// weights packs the weights of both neighbours, each rounded on its own.
func weights(f float32) int32 {
	w := func(f float32) int32 { return int32(math.RoundToEven(float64(f * one))) }
	return w(1-f) | w(f)<<16
}

// cover is one direction of the area filter: for every output the first source it covers, how many
// and how much of each.
type cover struct {
	at, n  []int32
	weight []float32
}

func (c *cover) fill(n, offset, length int) {
	c.at, c.n, c.weight = c.at[:0], c.n[:0], c.weight[:0]
	scale := float64(length) / float64(n)
	for i := range n {
		from, to := float64(i)*scale, min(float64(i+1)*scale, float64(length))
		first, last := int(from), min(int(math.Ceil(to-1e-3)), length)
		c.at, c.n = append(c.at, int32(offset+first)), append(c.n, int32(last-first))
		for k := first; k < last; k++ {
			c.weight = append(c.weight, float32((min(to, float64(k+1))-max(from, float64(k)))/(to-from)))
		}
	}
}

// limit sets how many columns may use wide loads: those whose last byte read lies within the row.
func (a *axis) limit(f Format, width int) {
	fits := func(i int) bool {
		at := int(a.at[i])
		switch f {
		case I420:
			return at+4 <= width && int(a.chromaAt[i])+4 <= (width+1)/2
		case NV12:
			return at+4 <= width && 2*int(a.chromaAt[i])+4 <= 2*((width+1)/2)
		case BGR, RGB:
			return 3*at+6 <= 3*width
		default:
			return false
		}
	}
	a.wide = 0
	for i := range a.at {
		if !fits(i) {
			break
		}
		a.wide = i + 1
	}
	a.wide &^= 7
}

// Resample converts the crop of a source picture into dst, which has out.Size() bytes and is
// aligned for its values. src holds exactly f.Size(width, height) bytes.
func (r *Resampler) Resample(dst, src []byte, f Format, width, height int, crop Rect, out *Output) error {
	if width < 1 || height < 1 || f.Size(width, height) != len(src) {
		return fmt.Errorf("source of %d bytes is no picture of %d×%d pixels", len(src), width, height)
	}
	if crop.W < 1 || crop.H < 1 || crop.X < 0 || crop.Y < 0 || crop.X+crop.W > width || crop.Y+crop.H > height {
		return fmt.Errorf("crop %d×%d at %d,%d leaves the picture of %d×%d pixels", crop.W, crop.H, crop.X, crop.Y, width, height)
	}
	p := out.Picture
	if p.W < 1 || p.H < 1 || p.X < 0 || p.Y < 0 || p.X+p.W > out.Width || p.Y+p.H > out.Height {
		return fmt.Errorf("picture %d×%d at %d,%d leaves the output of %d×%d pixels", p.W, p.H, p.X, p.Y, out.Width, out.Height)
	}
	if len(dst) != out.Size() {
		return fmt.Errorf("output of %d bytes, must be %d", len(dst), out.Size())
	}
	if k := (geometry{f, width, height, crop, p.W, p.H, out.Area}); k != r.key {
		r.key = k
		r.prepare(k)
	}
	r.run(dst, src, f, width, height, crop, out)
	return nil
}

// prepare computes the tables of a geometry.
func (r *Resampler) prepare(k geometry) {
	r.cx.at = r.cx.at[:0]
	need := 3 * k.w
	if k.area && k.crop.W >= k.w && k.crop.H >= k.h {
		r.cx.fill(k.w, k.crop.X, k.crop.W)
		r.cy.fill(k.h, k.crop.Y, k.crop.H)
		need += 3 * (k.crop.W + 1)
	} else {
		r.x.fill(k.w, k.crop.X, k.crop.W, k.area)
		r.x.limit(k.format, k.width)
		r.y.fill(k.h, k.crop.Y, k.crop.H, k.area)
	}
	if cap(r.scratch) < need {
		r.scratch = make([]float32, need)
	}
}

func (r *Resampler) run(dst, src []byte, f Format, width, height int, crop Rect, out *Output) {
	p0 := unsafe.Pointer(&src[0])
	p1, p2, stride0, stride1 := p0, p0, 3*width, 0
	cw, ch := (width+1)/2, (height+1)/2
	switch f {
	case I420:
		p1 = unsafe.Pointer(&src[width*height])
		p2 = unsafe.Pointer(&src[width*height+cw*ch])
		stride0, stride1 = width, cw
	case NV12:
		p1 = unsafe.Pointer(&src[width*height])
		p2, stride0, stride1 = p1, width, 2*cw
	case Gray:
		stride0 = width
	default:
	}
	r.out = C.vp_output{
		width: C.int32_t(out.Width), height: C.int32_t(out.Height),
		left: C.int32_t(out.Picture.X), top: C.int32_t(out.Picture.Y),
	}
	o := &r.out
	if out.Bytes {
		o.depth = C.VP_UINT8
	}
	if out.Interleaved {
		o.order = C.VP_INTERLEAVED
	}
	if out.RGB {
		o.rgb = 1
	}
	for c := range 3 {
		o.scale[c], o.bias[c], o.pad[c] = C.float(out.Scale[c]), C.float(out.Bias[c]), C.float(out.Pad[c])
	}
	m := &out.Matrix
	o.coef = [6]C.float{
		C.float(m.LumaOffset), C.float(m.LumaGain), C.float(m.VtoR), C.float(m.UtoG), C.float(m.VtoG), C.float(m.UtoB),
	}
	ints := func(s []int32) *C.int32_t { return (*C.int32_t)(unsafe.Pointer(&s[0])) }
	scratch := (*C.float)(unsafe.Pointer(unsafe.SliceData(r.scratch)))
	if len(r.cx.at) > 0 {
		C.vp_area(C.int(f), (*C.uint8_t)(p0), (*C.uint8_t)(p1), (*C.uint8_t)(p2), C.int(stride0), C.int(stride1),
			ints(r.cx.at), ints(r.cx.n), (*C.float)(unsafe.Pointer(&r.cx.weight[0])), C.int(len(r.cx.at)), C.int(crop.X), C.int(crop.W),
			ints(r.cy.at), ints(r.cy.n), (*C.float)(unsafe.Pointer(&r.cy.weight[0])), C.int(len(r.cy.at)), &r.out,
			unsafe.Pointer(&dst[0]), scratch)
		runtime.KeepAlive(src)
		return
	}
	portable := C.int(0)
	if r.Portable {
		portable = 1
	}
	C.vp_resample(C.int(f), (*C.uint8_t)(p0), (*C.uint8_t)(p1), (*C.uint8_t)(p2), C.int(stride0), C.int(stride1),
		ints(r.x.at), ints(r.x.weight), ints(r.x.chromaAt), ints(r.x.chromaWeight), C.int(len(r.x.at)), C.int(r.x.wide),
		ints(r.y.at), ints(r.y.weight), C.int(len(r.y.at)), C.int(crop.Y+crop.H-1), &r.out, unsafe.Pointer(&dst[0]),
		scratch, portable)
	runtime.KeepAlive(src)
}
