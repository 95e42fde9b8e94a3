package framebus

import (
	"image"
	"math"
	"slices"

	"github.com/vedette/vedette/ingest"
)

// Blanker paints privacy masks into pictures of one size.
type Blanker struct {
	size image.Point
	runs []run
}

type run struct{ y, x0, x1 int }

// NewBlanker works out which pixels the polygons touch.
func NewBlanker(masks []ingest.Mask, size image.Point) *Blanker {
	b := &Blanker{size: size}
	for _, m := range masks {
		spans(m, size, func(y, x0, x1 int) { b.runs = append(b.runs, run{y, x0, x1}) })
	}
	return b
}

// Blank paints the masks black in a tight I420 picture of the blanker's size: every pixel whose area
// a polygon touches, and every chroma sample that belongs to one.
func (b *Blanker) Blank(pixels []byte) {
	w, h := b.size.X, b.size.Y
	cw := (w + 1) / 2
	u := pixels[w*h:]
	v := u[cw*((h+1)/2):]
	for _, r := range b.runs {
		fill(pixels[r.y*w+r.x0:r.y*w+r.x1], 16)
		row, c0, c1 := r.y/2*cw, r.x0/2, (r.x1+1)/2
		fill(u[row+c0:row+c1], 128)
		fill(v[row+c0:row+c1], 128)
	}
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// spans calls use with every row's runs of pixels [x0, x1) that the polygon touches (even-odd rule).
func spans(m ingest.Mask, size image.Point, use func(y, x0, x1 int)) {
	w, h := float64(size.X), float64(size.Y)
	for y := range size.Y {
		top, bottom := float64(y)/h, float64(y+1)/h
		// Between two neighbouring heights no corner lies, so the edges run straight.
		heights := []float64{top, bottom}
		for _, p := range m {
			if p.Y > top && p.Y < bottom {
				heights = append(heights, p.Y)
			}
		}
		slices.Sort(heights)
		for i := 0; i+1 < len(heights); i++ {
			hair := (heights[i+1] - heights[i]) * 1e-6
			upper, lower := crossings(m, heights[i]+hair), crossings(m, heights[i+1]-hair)
			for j := 0; j+1 < min(len(upper), len(lower)); j += 2 {
				x0 := int(math.Floor(min(upper[j], lower[j])*w + 1e-4))
				x1 := int(math.Ceil(max(upper[j+1], lower[j+1])*w - 1e-4))
				if x0, x1 = max(x0, 0), min(x1, size.X); x0 < x1 {
					use(y, x0, x1)
				}
			}
		}
	}
}

// crossings returns where the polygon's edges cross the height y, in order.
func crossings(m ingest.Mask, y float64) []float64 {
	var xs []float64
	for i, p := range m {
		q := m[(i+1)%len(m)]
		if (p.Y <= y) != (q.Y <= y) {
			xs = append(xs, p.X+(y-p.Y)/(q.Y-p.Y)*(q.X-p.X))
		}
	}
	slices.Sort(xs)
	return xs
}
