package bytetrack_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/infer/backend/prepare"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/rows"
)

// toI420 is the textbook conversion with the mean chroma of each block.
func toI420(bgr []byte, w, h int) []byte {
	out := make([]byte, frame.I420.Size(w, h))
	clamp := func(v float64) byte { return byte(math.Round(min(max(v, 0), 255))) }
	cw, ch := (w+1)/2, (h+1)/2
	for y := range ch {
		for x := range cw {
			var u, v, n float64
			for k := range 4 {
				px, py := 2*x+k%2, 2*y+k/2
				if px >= w || py >= h {
					continue
				}
				p := bgr[3*(py*w+px):]
				b, g, r := float64(p[0]), float64(p[1]), float64(p[2])
				out[py*w+px] = clamp(16 + 0.257*r + 0.504*g + 0.098*b)
				u += 128 - 0.148*r - 0.291*g + 0.439*b
				v += 128 + 0.439*r - 0.368*g - 0.071*b
				n++
			}
			out[w*h+y*cw+x], out[w*h+cw*ch+y*cw+x] = clamp(u/n), clamp(v/n)
		}
	}
	return out
}

// toBGR is what an image library makes of I420: every pixel has its block's chroma.
func toBGR(yuv []byte, w, h int) []byte {
	out := make([]byte, 3*w*h)
	clamp := func(v float64) byte { return byte(math.Round(min(max(v, 0), 255))) }
	cw, ch := (w+1)/2, (h+1)/2
	for y := range h {
		for x := range w {
			l := 1.164 * (float64(yuv[y*w+x]) - 16)
			u := float64(yuv[w*h+y/2*cw+x/2]) - 128
			v := float64(yuv[w*h+cw*ch+y/2*cw+x/2]) - 128
			p := out[3*(y*w+x):]
			p[0], p[1], p[2] = clamp(l+2.018*u), clamp(l-0.391*u-0.813*v), clamp(l+1.596*v)
		}
	}
	return out
}

func (c *chain) all(t *testing.T, pixels []byte, info [frame.InfoLen]int64) (dets []tracker.Detection) {
	t.Helper()
	c.detect(t, pixels, info, func(b tensor.Tensor) {
		var err error
		if dets, err = rows.Boxes(nil, b.Data); err != nil {
			t.Fatal(err)
		}
	})
	return dets
}

func pictures() map[string][2]int {
	return map[string][2]int{"bus.bgr": {810, 1080}, "street.bgr": {1441, 731}, "vtest_frame401.bgr": {480, 360}}
}

func readPicture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testData(t), "models", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// overlap is the best overlap of a detection among others of its class.
func overlap(d tracker.Detection, others []tracker.Detection) (best float64) {
	for _, o := range others {
		if o.Class == d.Class {
			best = max(best, iou(o.Box, [4]float64{d.X1, d.Y1, d.X2, d.Y2}))
		}
	}
	return best
}

func TestADecodersFramesGiveTheDetectionsOfConvertedOnes(t *testing.T) {
	c := newChain(t, "yolox", "yolox_nano.onnx", parameters("score_threshold", "0.3"))
	for name, size := range pictures() {
		w, h := size[0], size[1]
		yuv := toI420(readPicture(t, name), w, h)
		want := c.all(t, toBGR(yuv, w, h), [frame.InfoLen]int64{prepare.FormatBGR, int64(w), int64(h)})
		got := c.all(t, yuv, frame.Info{Format: frame.I420, Width: w, Height: h}.Values())
		n := len(yuv) - w*h
		nv12 := append([]byte(nil), yuv[:w*h]...)
		for i := range n / 2 {
			nv12 = append(nv12, yuv[w*h+i], yuv[w*h+n/2+i])
		}
		interleaved := c.all(t, nv12, frame.Info{Format: frame.NV12, Width: w, Height: h}.Values())
		if len(want) < 3 {
			t.Fatalf("%s: only %d detections to compare", name, len(want))
		}
		for _, d := range want {
			if d.Score < 0.35 {
				continue // may fall to either side of the threshold
			}
			if a, b := overlap(d, got), overlap(d, interleaved); a < 0.97 || b < 0.97 {
				t.Errorf("%s: class %d at %v, score %.2f: overlap %.3f from I420, %.3f from NV12", name, d.Class, d.Box, d.Score, a, b)
			}
		}
	}
}

func TestAnotherFamilySeesTheSameThings(t *testing.T) {
	sure := newChain(t, "yolox", "yolox_nano.onnx", parameters("score_threshold", "0.6"))
	small := newChain(t, "fastestdet", "FastestDet.onnx", parameters("score_threshold", "0.3"))
	seen, total := 0, 0
	for name, size := range pictures() {
		info := [frame.InfoLen]int64{prepare.FormatBGR, int64(size[0]), int64(size[1])}
		pixels := readPicture(t, name)
		others := small.all(t, pixels, info)
		for _, d := range sure.all(t, pixels, info) {
			total++
			if overlap(d, others) > 0.5 {
				seen++
			}
		}
	}
	if total < 8 || 4*seen < 3*total {
		t.Errorf("FastestDet sees %d of the %d things YOLOX is sure of", seen, total)
	}
}
