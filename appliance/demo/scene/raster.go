package scene

import "math"

// vec is a point: pixels on a canvas, metres in a figure's own plane.
type vec struct{ x, y float64 }

func (a vec) add(b vec) vec             { return vec{a.x + b.x, a.y + b.y} }
func (a vec) sub(b vec) vec             { return vec{a.x - b.x, a.y - b.y} }
func (a vec) mul(k float64) vec         { return vec{a.x * k, a.y * k} }
func (a vec) lerp(b vec, t float64) vec { return vec{a.x + (b.x-a.x)*t, a.y + (b.y-a.y)*t} }
func (a vec) norm() float64             { return math.Hypot(a.x, a.y) }

// rgb is a reflectance, 0 to 1 a channel, in display space.
type rgb [3]float32

func (c rgb) mul(k float32) rgb { return rgb{c[0] * k, c[1] * k, c[2] * k} }

func (c rgb) mix(d rgb, t float32) rgb {
	return rgb{c[0] + (d[0]-c[0])*t, c[1] + (d[1]-c[1])*t, c[2] + (d[2]-c[2])*t}
}

// paint is how a shape is filled: a colour that changes linearly from the
// factor top at row y0 to the factor bottom at row y1.
type paint struct {
	col         rgb
	top, bottom float32
	y0, y1      float64
}

func flat(c rgb) paint { return paint{col: c, top: 1, bottom: 1, y1: 1} }

// canvas is a picture under construction: premultiplied colour, coverage, and
// the number of the actor seen at each pixel.
type canvas struct {
	w, h  int
	pix   []float32 // 3 a pixel
	alpha []float32
	ids   []int32 // what is seen here: 0 the backdrop, -1 street furniture, else an actor
	own   []int32 // the last actor that covered this pixel, seen or not
	acc   []float32
}

func newCanvas(w, h int) *canvas {
	return &canvas{
		w: w, h: h,
		pix:   make([]float32, w*h*3),
		alpha: make([]float32, w*h),
		ids:   make([]int32, w*h),
		own:   make([]int32, w*h),
	}
}

// span is the part of a row or column, in whole pixels, that a shape touches.
func span(lo, hi float64, limit int) (from, to int) {
	from, to = int(math.Floor(lo)), int(math.Ceil(hi))
	return max(from, 0), min(to, limit)
}

func bounds(poly []vec) (lo, hi vec) {
	lo, hi = vec{math.Inf(1), math.Inf(1)}, vec{math.Inf(-1), math.Inf(-1)}
	for _, p := range poly {
		lo = vec{min(lo.x, p.x), min(lo.y, p.y)}
		hi = vec{max(hi.x, p.x), max(hi.y, p.y)}
	}
	return lo, hi
}

// cover calls visit for every pixel that poly touches, with the share of the
// pixel inside it. Edges are accumulated as signed areas, so a hole is a
// contour that runs the other way round.
func (c *canvas) cover(poly []vec, visit func(x, y int, a float32)) {
	lo, hi := bounds(poly)
	x0, x1 := span(lo.x, hi.x, c.w)
	y0, y1 := span(lo.y, hi.y, c.h)
	if x0 >= x1 || y0 >= y1 {
		return
	}
	bw, bh := x1-x0, y1-y0
	stride := bw + 2
	if n := stride * bh; len(c.acc) < n {
		c.acc = make([]float32, n)
	}
	acc := c.acc[:stride*bh]
	clear(acc)
	for i, p := range poly {
		q := poly[(i+1)%len(poly)]
		edge(acc, stride, bw, bh, vec{p.x - float64(x0), p.y - float64(y0)}, vec{q.x - float64(x0), q.y - float64(y0)})
	}
	for y := range bh {
		var sum float32
		row := acc[y*stride : (y+1)*stride]
		for x := range bw {
			sum += row[x]
			a := sum
			if a < 0 {
				a = -a
			}
			if a < 1.0/512 {
				continue
			}
			visit(x0+x, y0+y, min(a, 1))
		}
	}
}

// edge adds one edge's signed area to the accumulation buffer.
func edge(acc []float32, stride, bw, bh int, p, q vec) {
	dir := 1.0
	if p.y > q.y {
		p, q, dir = q, p, -1
	}
	if p.y == q.y || q.y <= 0 || p.y >= float64(bh) {
		return
	}
	slope := (q.x - p.x) / (q.y - p.y)
	from, to := max(int(p.y), 0), min(int(math.Ceil(q.y)), bh)
	for y := from; y < to; y++ {
		ya, yb := max(float64(y), p.y), min(float64(y+1), q.y)
		if yb <= ya {
			continue
		}
		d := (yb - ya) * dir
		xa := clamp(p.x+slope*(ya-p.y), 0, float64(bw))
		xb := clamp(p.x+slope*(yb-p.y), 0, float64(bw))
		row := acc[y*stride : (y+1)*stride]
		if xa > xb {
			xa, xb = xb, xa
		}
		i, j := int(xa), int(math.Ceil(xb))
		if j <= i+1 {
			m := (xa+xb)/2 - float64(i)
			row[i] += float32(d - d*m)
			row[i+1] += float32(d * m)
			continue
		}
		// The edge crosses several pixels of this row: a trapezoid's share each.
		s := 1 / (xb - xa)
		prev := 0.0
		for k := i; k < j; k++ {
			l, r := max(float64(k), xa), min(float64(k+1), xb)
			// area to the right of the edge inside pixel k
			part := d * s * (r - l) * (float64(k+1) - (l+r)/2)
			before := d * s * (l - xa)
			total := part + before
			row[k] += float32(total - prev)
			prev = total
		}
		row[j] += float32(d - prev)
	}
}

func clamp(v, lo, hi float64) float64 { return min(max(v, lo), hi) }

// fill paints poly over the canvas. id is the actor it belongs to; silhouette
// counts the pixels the actor covers for the first time.
func (c *canvas) fill(poly []vec, p paint, id int32) (silhouette int) {
	k := float32(0)
	if p.y1 > p.y0 {
		k = float32(1 / (p.y1 - p.y0))
	}
	c.cover(poly, func(x, y int, a float32) {
		t := min(max((float32(y)-float32(p.y0))*k, 0), 1)
		f := (p.top + (p.bottom-p.top)*t) * a
		i := y*c.w + x
		px := c.pix[i*3 : i*3+3 : i*3+3]
		px[0] += p.col[0]*f - px[0]*a
		px[1] += p.col[1]*f - px[1]*a
		px[2] += p.col[2]*f - px[2]*a
		c.alpha[i] += a - c.alpha[i]*a
		if a >= 0.5 {
			c.ids[i] = id
			if c.own[i] != id {
				c.own[i] = id
				silhouette++
			}
		}
	})
	return silhouette
}

// The shapes below return closed contours.

func rect(x0, y0, x1, y1 float64) []vec {
	return []vec{{x0, y0}, {x1, y0}, {x1, y1}, {x0, y1}}
}

func ellipse(c vec, rx, ry float64, n int) []vec {
	out := make([]vec, n)
	for i := range out {
		s, co := math.Sincos(2 * math.Pi * float64(i) / float64(n))
		out[i] = vec{c.x + rx*co, c.y + ry*s}
	}
	return out
}

// ring is a circle with a round hole.
func ring(c vec, outer, inner float64, n int) []vec {
	out := ellipse(c, outer, outer, n)
	out = append(out, out[0])
	hole := ellipse(c, inner, inner, n)
	out = append(out, hole[0])
	for i := n - 1; i >= 0; i-- {
		out = append(out, hole[i])
	}
	return out
}

// limb is a line with round ends, of radius ra at a and rb at b.
func limb(a, b vec, ra, rb float64) []vec {
	const n = 5
	d := b.sub(a)
	ang := math.Atan2(d.y, d.x)
	out := make([]vec, 0, 2*n+2)
	for i := range n + 1 {
		s, co := math.Sincos(ang + math.Pi/2 + math.Pi*float64(i)/n)
		out = append(out, vec{a.x + ra*co, a.y + ra*s})
	}
	for i := range n + 1 {
		s, co := math.Sincos(ang - math.Pi/2 + math.Pi*float64(i)/n)
		out = append(out, vec{b.x + rb*co, b.y + rb*s})
	}
	return out
}

// smooth rounds a contour's corners: each is replaced by a short curve that
// begins the share t of the edge before it.
func smooth(poly []vec, t float64) []vec {
	out := make([]vec, 0, len(poly)*4)
	for i, p := range poly {
		prev, next := poly[(i+len(poly)-1)%len(poly)], poly[(i+1)%len(poly)]
		a, b := p.lerp(prev, t), p.lerp(next, t)
		for k := range 4 {
			u := float64(k) / 3
			out = append(out, a.lerp(p, u).lerp(p.lerp(b, u), u))
		}
	}
	return out
}
