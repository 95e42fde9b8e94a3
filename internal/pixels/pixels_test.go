package pixels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// channels returns blue, green and red of one source pixel, before rounding.
func channels(src []byte, f Format, w, h, x, y int, m Matrix) [3]float64 {
	cw, ch := (w+1)/2, (h+1)/2
	var lum, u, v float64
	switch f {
	case I420:
		lum = float64(src[y*w+x])
		u = float64(src[w*h+y/2*cw+x/2])
		v = float64(src[w*h+cw*ch+y/2*cw+x/2])
	case NV12:
		lum = float64(src[y*w+x])
		u = float64(src[w*h+y/2*2*cw+x/2*2])
		v = float64(src[w*h+y/2*2*cw+x/2*2+1])
	case BGR, RGB:
		p := src[3*(y*w+x):]
		if f == RGB {
			return [3]float64{float64(p[2]), float64(p[1]), float64(p[0])}
		}
		return [3]float64{float64(p[0]), float64(p[1]), float64(p[2])}
	default:
		g := float64(src[y*w+x])
		return [3]float64{g, g, g}
	}
	// Linear on purpose: the clamp comes after the mean, as in the kernel.
	l := (lum - float64(m.LumaOffset)) * float64(m.LumaGain)
	u, v = u-128, v-128
	return [3]float64{l + float64(m.UtoB)*u, l + float64(m.UtoG)*u + float64(m.VtoG)*v, l + float64(m.VtoR)*v}
}

// slow is the obvious twin of Resample: float64 throughout, one output value at a time.
func slow(src []byte, f Format, w, h int, crop Rect, o *Output) []float64 {
	dst := make([]float64, 3*o.Width*o.Height)
	tap := func(n, i, offset, length int) (int, int, float64) {
		pos := (float64(i)+0.5)*float64(length)/float64(n) - 0.5
		pos = min(max(pos, 0), float64(length-1))
		at := int(pos)
		return offset + at, offset + min(at+1, length-1), pos - float64(at)
	}
	for y := range o.Height {
		for x := range o.Width {
			for c := range 3 {
				at := c*o.Width*o.Height + y*o.Width + x
				if o.Interleaved {
					at = 3*(y*o.Width+x) + c
				}
				px, py := x-o.Picture.X, y-o.Picture.Y
				if px < 0 || py < 0 || px >= o.Picture.W || py >= o.Picture.H {
					dst[at] = float64(o.Pad[c])
					continue
				}
				x0, x1, fx := tap(o.Picture.W, px, crop.X, crop.W)
				y0, y1, fy := tap(o.Picture.H, py, crop.Y, crop.H)
				k := c
				if o.RGB {
					k = 2 - c
				}
				get := func(x, y int) float64 { return channels(src, f, w, h, x, y, o.Matrix)[k] }
				if o.Area && crop.W >= o.Picture.W && crop.H >= o.Picture.H {
					dst[at] = store(o, c, areaMean(get, crop, o, px, py))
					continue
				}
				v := (get(x0, y0)*(1-fx)+get(x1, y0)*fx)*(1-fy) + (get(x0, y1)*(1-fx)+get(x1, y1)*fx)*fy
				dst[at] = store(o, c, v)
			}
		}
	}
	return dst
}

func store(o *Output, c int, v float64) float64 {
	return math.RoundToEven(min(max(v, 0), 255))*float64(o.Scale[c]) + float64(o.Bias[c])
}

// areaMean adds up what an output pixel covers in the finest steps that divide both sides.
func areaMean(get func(x, y int) float64, crop Rect, o *Output, px, py int) float64 {
	sum := 0.0
	for i := range crop.H {
		for k := range crop.W {
			x, y := (px*crop.W+k)/o.Picture.W, (py*crop.H+i)/o.Picture.H
			sum += get(crop.X+x, crop.Y+y)
		}
	}
	return sum / float64(crop.W*crop.H)
}

func values(dst []byte, o *Output) []float64 {
	if o.Bytes {
		out := make([]float64, len(dst))
		for i, b := range dst {
			out[i] = float64(b)
		}
		return out
	}
	out := make([]float64, len(dst)/4)
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(dst[4*i:])))
	}
	return out
}

// aligned returns n bytes that may hold float32 values.
func aligned(n int) []byte {
	words := make([]float32, (n+3)/4)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
}

func randomOutput(rnd *rand.Rand) *Output {
	o := &Output{
		Width: 1 + rnd.IntN(70), Height: 1 + rnd.IntN(50),
		Bytes: rnd.IntN(3) == 0, Interleaved: rnd.IntN(2) == 0, RGB: rnd.IntN(2) == 0,
		Scale: [3]float32{1, 1, 1}, Matrix: BT601(),
	}
	o.Picture = Rect{W: 1 + rnd.IntN(o.Width), H: 1 + rnd.IntN(o.Height)}
	o.Picture.X, o.Picture.Y = rnd.IntN(o.Width-o.Picture.W+1), rnd.IntN(o.Height-o.Picture.H+1)
	for c := range 3 {
		o.Pad[c] = float32(rnd.IntN(256))
		if !o.Bytes {
			o.Scale[c], o.Bias[c] = rnd.Float32()+0.1, rnd.Float32()*10-5
		}
	}
	if rnd.IntN(2) == 0 {
		o.Matrix = NewMatrix(0.2126, 0.0722, rnd.IntN(2) == 0)
	}
	o.Area = rnd.IntN(8) == 0
	return o
}

func TestTheKernelAgreesWithItsObviousTwin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var r [2]Resampler
	r[1].Portable = true
	for range 400 {
		f := []Format{I420, NV12, BGR, RGB, Gray}[rnd.IntN(5)]
		w, h := 1+rnd.IntN(90), 1+rnd.IntN(60)
		src := make([]byte, f.Size(w, h))
		for i := range src {
			src[i] = byte(rnd.Uint32())
		}
		crop := Rect{W: w, H: h}
		if rnd.IntN(2) == 0 {
			crop = Rect{W: 1 + rnd.IntN(w), H: 1 + rnd.IntN(h)}
			crop.X, crop.Y = rnd.IntN(w-crop.W+1), rnd.IntN(h-crop.H+1)
		}
		o := randomOutput(rnd)
		// Where it grows, the area filter has no obvious twin of its own.
		o.Area = o.Area && crop.W >= o.Picture.W && crop.H >= o.Picture.H
		want := slow(src, f, w, h, crop, o)
		for k := range r {
			dst := aligned(o.Size())
			if err := r[k].Resample(dst, src, f, w, h, crop, o); err != nil {
				t.Fatal(err)
			}
			for i, v := range values(dst, o) {
				c := i / (o.Width * o.Height)
				if o.Interleaved {
					c = i % 3
				}
				if d := math.Abs(v-want[i]) / float64(o.Scale[c]); d > 1.01 {
					t.Fatalf("format %d %dx%d crop %v to %+v, portable %v: value %d is %g, want %g: %.2f grey levels off",
						f, w, h, crop, *o, r[k].Portable, i, v, want[i], d)
				}
			}
		}
	}
}

func TestWideAndPortableRowsAreTheSame(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, f := range []Format{I420, NV12, BGR, RGB} {
		src := make([]byte, f.Size(639, 361))
		for i := range src {
			src[i] = byte(rnd.Uint32())
		}
		o := &Output{Width: 416, Height: 416, Picture: Rect{W: 416, H: 235}, Scale: [3]float32{1, 1, 1}, Matrix: BT601()}
		a, b := aligned(o.Size()), aligned(o.Size())
		var wide, portable Resampler
		portable.Portable = true
		crop := Rect{W: 639, H: 361}
		if err := wide.Resample(a, src, f, 639, 361, crop, o); err != nil {
			t.Fatal(err)
		}
		if err := portable.Resample(b, src, f, 639, 361, crop, o); err != nil {
			t.Fatal(err)
		}
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("format %d: byte %d is %d wide and %d portable", f, i, a[i], b[i])
			}
		}
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	good := Output{Width: 8, Height: 8, Picture: Rect{W: 8, H: 8}}
	for name, c := range map[string]struct {
		src, dst int
		crop     Rect
		out      Output
	}{
		"a source one byte short":          {5, good.Size(), Rect{W: 2, H: 2}, good},
		"a crop beyond the right side":     {6, good.Size(), Rect{X: 1, W: 2, H: 2}, good},
		"an empty crop":                    {6, good.Size(), Rect{}, good},
		"a picture larger than the output": {6, good.Size(), Rect{W: 2, H: 2}, Output{Width: 8, Height: 8, Picture: Rect{W: 9, H: 8}}},
		"an output of the wrong size":      {6, 5, Rect{W: 2, H: 2}, good},
	} {
		t.Run(name, func(t *testing.T) {
			var r Resampler
			if err := r.Resample(make([]byte, c.dst), make([]byte, c.src), I420, 2, 2, c.crop, &c.out); err == nil {
				t.Error("was accepted")
			}
		})
	}
}

func TestASteadyStreamAllocatesNothing(t *testing.T) {
	src := make([]byte, I420.Size(640, 360))
	o := &Output{Width: 416, Height: 416, Picture: Rect{W: 416, H: 234}, Scale: [3]float32{1, 1, 1}, Matrix: BT601()}
	dst := aligned(o.Size())
	var r Resampler
	n := testing.AllocsPerRun(20, func() {
		if err := r.Resample(dst, src, I420, 640, 360, Rect{W: 640, H: 360}, o); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a picture", n)
	}
}

func BenchmarkResample(b *testing.B) {
	o := &Output{Width: 416, Height: 416, Picture: Rect{W: 416, H: 234}, Scale: [3]float32{1, 1, 1}, Matrix: BT601()}
	dst := aligned(o.Size())
	for _, portable := range []bool{false, true} {
		for f, name := range map[Format]string{I420: "I420", NV12: "NV12", BGR: "BGR"} {
			src := make([]byte, f.Size(1920, 1080))
			b.Run(fmt.Sprintf("%s/portable=%v", name, portable), func(b *testing.B) {
				r := Resampler{Portable: portable}
				for b.Loop() {
					if err := r.Resample(dst, src, f, 1920, 1080, Rect{W: 1920, H: 1080}, o); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
