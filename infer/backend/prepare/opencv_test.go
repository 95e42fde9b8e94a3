package prepare

import (
	"image"
	"image/color"
	"math/rand/v2"
	"testing"

	"gocv.io/x/gocv"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/tensor"
)

// chain is the usual way: cvtColor, resize, pad, blob. It is the slow twin.
type chain struct {
	bgr, small, padded, blob gocv.Mat
}

func newChain() *chain {
	return &chain{gocv.NewMat(), gocv.NewMat(), gocv.NewMat(), gocv.NewMat()}
}

func (c *chain) close(t testing.TB) {
	for _, m := range []*gocv.Mat{&c.bgr, &c.small, &c.padded, &c.blob} {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// run converts and leaves the planes of the input, which the caller closes.
func (c *chain) run(t testing.TB, yuv gocv.Mat, side, w, h int) []gocv.Mat {
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	check(gocv.CvtColor(yuv, &c.bgr, gocv.ColorYUVToBGRIYUV))
	check(gocv.Resize(c.bgr, &c.small, image.Pt(w, h), 0, 0, gocv.InterpolationLinear))
	check(gocv.CopyMakeBorder(c.small, &c.padded, 0, side-h, 0, side-w, gocv.BorderConstant, color.RGBA{R: 114, G: 114, B: 114}))
	check(c.padded.ConvertTo(&c.blob, gocv.MatTypeCV32FC3))
	return gocv.Split(c.blob)
}

// smooth makes an I420 picture of colours that no conversion has to clamp.
func smooth(rnd *rand.Rand, w, h int) []byte {
	b := make([]byte, frame.I420.Size(w, h))
	v := 128
	for i := range b {
		low, high := 70, 180
		if i >= w*h {
			low, high = 108, 148
		}
		v = min(max(v+rnd.IntN(17)-8, low), high)
		b[i] = byte(v)
	}
	return b
}

func TestI420LooksAsItDoesByWayOfOpenCV(t *testing.T) {
	const w, h = 640, 360
	src := smooth(rand.New(rand.NewPCG(1, 1)), w, h)
	yuv, err := gocv.NewMatFromBytes(h*3/2, w, gocv.MatTypeCV8UC1, src)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = yuv.Close() }()
	c := newChain()
	defer c.close(t)
	var want []float32
	for _, plane := range c.run(t, yuv, 416, 416, 234) {
		v, err := plane.DataPtrFloat32()
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, v...)
		_ = plane.Close()
	}
	r, err := run(t, mustLoad(t, yolox), src, frame.Info{Format: frame.I420, Width: w, Height: h}.Values())
	if err != nil {
		t.Fatal(err)
	}
	got := tensor.Float32s(r.Output("IMAGE").Data)
	beyond := 0
	for i := range want {
		if d := got[i] - want[i]; d > 2.5 || d < -2.5 {
			beyond++
		}
	}
	// Rounding at every step of the chain costs it two levels; a few pixels differ where it clamps first.
	if beyond > len(want)/1000 {
		t.Errorf("%d of %d values differ by more than two and a half grey levels", beyond, len(want))
	}
}

func BenchmarkPrepare1080p(b *testing.B) {
	const w, h = 1920, 1080
	src := smooth(rand.New(rand.NewPCG(1, 1)), w, h)
	b.Run("vedette", func(b *testing.B) {
		in, o := mustLoad(b, yolox), &backendtest.Owner{Reuse: true}
		j := job(o, src, frame.Info{Format: frame.I420, Width: w, Height: h}.Values())
		jobs := []*backend.Job{j}
		b.ReportAllocs()
		for b.Loop() {
			in.Execute(b.Context(), jobs)
			o.Response.Release()
		}
	})
	b.Run("opencv", func(b *testing.B) {
		yuv, err := gocv.NewMatFromBytes(h*3/2, w, gocv.MatTypeCV8UC1, src)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = yuv.Close() }()
		c := newChain()
		defer c.close(b)
		for b.Loop() {
			for _, plane := range c.run(b, yuv, 416, 416, 234) {
				_ = plane.Close()
			}
		}
	})
}
