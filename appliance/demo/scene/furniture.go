package scene

import (
	"math"
	"math/rand/v2"
)

// lamp is one light of a traffic signal, lit while the signal shows it.
type lamp struct {
	item   int
	at     vec
	r      float64
	colour rgb
	from   float64 // seconds of the lights' cycle
	to     float64
}

// glow lights the lamps of an item that burn at time t.
func (s *street) glow(c *canvas, item int, t float64) {
	for _, l := range s.lamps {
		if sec := math.Mod(t, cycle); l.item == item && sec >= l.from && sec < l.to {
			c.fill(ellipse(l.at, l.r*1.1, l.r*1.1, 12), flat(l.colour), -1)
		}
	}
}

// item is a piece of furniture, drawn once and kept as its pixels.
type item struct {
	z   float64
	pts []itemPixel
}

type itemPixel struct {
	at    int32
	alpha float32
	col   rgb // premultiplied
}

func (it *item) blit(c *canvas) {
	for _, p := range it.pts {
		px := c.pix[p.at*3 : p.at*3+3 : p.at*3+3]
		px[0] += p.col[0] - px[0]*p.alpha
		px[1] += p.col[1] - px[1]*p.alpha
		px[2] += p.col[2] - px[2]*p.alpha
		if p.alpha >= 0.5 {
			c.ids[p.at] = -1
		}
	}
}

// keep turns what was drawn on a canvas into an item.
func keep(c *canvas, z float64) item {
	it := item{z: z}
	for i, a := range c.alpha {
		if a > 0.01 {
			it.pts = append(it.pts, itemPixel{int32(i), a, rgb{c.pix[i*3], c.pix[i*3+1], c.pix[i*3+2]}})
		}
	}
	return it
}

// crown is a heap of leaves.
func crown(c *canvas, rng *rand.Rand, at vec, r float64, green rgb) {
	for i := range 60 {
		a, d := rng.Float64()*2*math.Pi, math.Sqrt(rng.Float64())*r
		p := at.add(vec{math.Cos(a) * d * 1.1, math.Sin(a) * d * 0.85})
		// Leaves on top catch the light.
		k := float32(0.72 + 0.45*clamp((at.y-p.y)/r*0.6+0.4, 0, 1) + 0.25*(rng.Float64()-0.5))
		if i < 12 {
			k *= 0.72
		}
		b := r * (0.16 + 0.16*rng.Float64())
		blob := make([]vec, 9)
		for j := range blob {
			sn, co := math.Sincos(2 * math.Pi * float64(j) / 9)
			q := b * (0.75 + 0.5*rng.Float64())
			blob[j] = vec{p.x + q*co, p.y + q*sn*0.85}
		}
		c.fill(smooth(blob, 0.4), flat(green.mul(k)), -1)
	}
}

func (s *street) furnish(rng *rand.Rand) {
	piece := func(row float64, draw func(c *canvas, at func(x, h float64) vec, k float64)) {
		c := newCanvas(Width, Height)
		z := depthAt(row)
		draw(c, func(x, h float64) vec { p := project(x, z); return vec{p.x, p.y - h*scaleAt(z)} }, scaleAt(z))
		s.items = append(s.items, keep(c, z))
	}
	ground := func(x, z float64) vec { return project(x, z) }

	// Trees along the far kerb.
	for i := range 4 {
		x := -15 + 8.6*float64(i) + 2.5*rng.Float64()
		if x > crossLeft-1.5 && x < crossRight+1.5 {
			x = crossRight + 2.5
		}
		green := hsv(0.24+0.08*rng.Float64(), 0.35+0.25*rng.Float64(), 0.36+0.16*rng.Float64())
		r := 1.5 + 0.6*rng.Float64()
		piece(145.5, func(c *canvas, at func(x, h float64) vec, k float64) {
			c.fill(limb(at(x, 0), at(x+0.1, 3), 0.16*k, 0.10*k), flat(rgb{0.30, 0.25, 0.20}), -1)
			crown(c, rng, at(x, 3.2+r*0.7), r*k, green)
		})
		z := depthAt(145.5)
		s.shades = append(s.shades, ellipse(ground(x+2.6, z-1.6), r*1.2*scaleAt(z), r*0.30*scaleAt(z), 20))
	}
	// Lamp posts on both sides.
	for _, l := range []struct{ row, x float64 }{{146, -9.5}, {146, 9}, {237, -5.6}} {
		piece(l.row, func(c *canvas, at func(x, h float64) vec, k float64) {
			iron := rgb{0.24, 0.27, 0.28}
			c.fill(limb(at(l.x, 0), at(l.x, 0.9), 0.10*k, 0.08*k), flat(iron), -1)
			c.fill(limb(at(l.x, 0), at(l.x, 6), 0.06*k, 0.04*k), flat(iron), -1)
			c.fill(limb(at(l.x, 6), at(l.x+1.4, 6.25), 0.04*k, 0.03*k), flat(iron), -1)
			c.fill(limb(at(l.x+1.2, 6.2), at(l.x+1.8, 6.2), 0.08*k, 0.06*k), flat(rgb{0.75, 0.75, 0.7}), -1)
		})
	}
	s.signals(piece)
	// A column with bills on it, and a planter, on the near side.
	cx := -4.4 + 1.2*rng.Float64()
	bill := anyColour(rng).mix(rgb{0.6, 0.6, 0.6}, 0.25)
	second := anyColour(rng).mix(rgb{0.6, 0.6, 0.6}, 0.25)
	piece(241, func(c *canvas, at func(x, h float64) vec, k float64) {
		quad := func(x0, h0, x1, h1 float64, col rgb) {
			c.fill([]vec{at(x0, h0), at(x1, h0), at(x1, h1), at(x0, h1)}, flat(col), -1)
		}
		c.fill(ellipse(at(cx, 0), 0.46*k, 0.10*k, 24), flat(rgb{0.3, 0.32, 0.3}), -1)
		quad(cx-0.42, 0, cx+0.42, 2.1, rgb{0.52, 0.54, 0.50})
		quad(cx-0.42, 0, cx+0.42, 0.28, rgb{0.34, 0.36, 0.34})
		quad(cx-0.36, 0.5, cx+0.05, 1.3, bill)
		quad(cx+0.08, 0.6, cx+0.36, 1.7, second)
		quad(cx-0.36, 1.36, cx+0.02, 1.9, second.mul(0.8))
		quad(cx-0.42, 0.28, cx-0.30, 2.1, rgb{0.42, 0.44, 0.41})
		c.fill(smooth([]vec{at(cx-0.52, 2.1), at(cx+0.52, 2.1), at(cx+0.2, 2.42), at(cx, 2.62), at(cx-0.2, 2.42)}, 0.2), flat(rgb{0.26, 0.36, 0.32}), -1)
	})
	px := 5.2 + 0.6*rng.Float64()
	piece(239, func(c *canvas, at func(x, h float64) vec, k float64) {
		for i := range 26 {
			x := px + 2.4*float64(i)/25
			crown(c, rng, at(x, 0.55+0.1*rng.Float64()), 0.20*k, hsv(0.27, 0.45, 0.40+0.1*rng.Float64()))
		}
		c.fill([]vec{at(px-0.2, 0), at(px+2.6, 0), at(px+2.65, 0.48), at(px-0.25, 0.48)}, flat(rgb{0.50, 0.45, 0.40}), -1)
		c.fill([]vec{at(px-0.27, 0.44), at(px+2.67, 0.44), at(px+2.67, 0.52), at(px-0.27, 0.52)}, flat(rgb{0.60, 0.55, 0.49}), -1)
	})
	s.shades = append(s.shades, ellipse(ground(cx+0.8, depthAt(245)), 50, 5, 20))
	// The house across the way throws its shadow over every lane.
	sx := -2.5 - 3*rng.Float64()
	zNear, zFar := depthAt(Height+30), depthAt(rowWall)
	s.shades = append(s.shades, []vec{ground(sx-11, zFar), ground(sx-5, zFar), ground(sx+1.5, zNear), ground(sx-0.6, zNear)})
}

// signals are the lights at the crossing.
func (s *street) signals(piece func(float64, func(*canvas, func(x, h float64) vec, float64))) {
	for _, l := range []struct{ row, x float64 }{{236, crossLeft - 0.7}, {146.5, crossRight + 0.7}} {
		piece(l.row, func(c *canvas, at func(x, h float64) vec, k float64) {
			c.fill(limb(at(l.x, 0), at(l.x, 2.3), 0.05*k, 0.05*k), flat(rgb{0.30, 0.31, 0.30}), -1)
			c.fill(smooth([]vec{at(l.x-0.15, 2.2), at(l.x+0.15, 2.2), at(l.x+0.15, 3.0), at(l.x-0.15, 3.0)}, 0.15), flat(rgb{0.16, 0.17, 0.17}), -1)
			for i, v := range []struct {
				col      rgb
				from, to float64
			}{{rgb{0.30, 0.95, 0.50}, redFor, cycle - 2}, {rgb{1, 0.80, 0.25}, cycle - 2, cycle}, {rgb{1, 0.25, 0.20}, 0, redFor}} {
				p := at(l.x, 2.34+0.25*float64(i))
				c.fill(ellipse(p, 0.085*k, 0.085*k, 12), flat(v.col.mul(0.3)), -1)
				s.lamps = append(s.lamps, lamp{len(s.items), p, 0.085 * k, v.col, v.from, v.to})
			}
		})
	}
}
