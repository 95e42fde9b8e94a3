package scene

import (
	"math"
	"math/rand/v2"
)

// street is everything that stands still: the picture behind all actors, and
// the furniture that may stand in front of some.
type street struct {
	pix    []float32
	items  []item
	lamps  []lamp
	shades [][]vec // outlines on the ground that lie in shadow
}

func newStreet(rng *rand.Rand) *street {
	c := newCanvas(Width, Height)
	s := &street{}
	sky(c, rng)
	s.houses(c, rng)
	ground(c, rng)
	s.furnish(rng)
	s.pix = c.pix
	return s
}

// grain is smooth noise of -1 to 1, from a lattice that the seed decides.
func grain(seed uint32, x, y float64) float32 {
	xi, yi := math.Floor(x), math.Floor(y)
	fx, fy := x-xi, y-yi
	fx, fy = fx*fx*(3-2*fx), fy*fy*(3-2*fy)
	at := func(dx, dy int) float64 {
		h := seed + uint32(int32(xi)+int32(dx))*0x9E3779B1 + uint32(int32(yi)+int32(dy))*0x85EBCA77
		h ^= h >> 15
		h *= 0x2C1B3C6D
		h ^= h >> 12
		h *= 0x297A2D39
		h ^= h >> 15
		return float64(h)/(1<<31) - 1
	}
	a := at(0, 0) + (at(1, 0)-at(0, 0))*fx
	b := at(0, 1) + (at(1, 1)-at(0, 1))*fx
	return float32(a + (b-a)*fy)
}

// texture multiplies a rectangle of the canvas by 1 + f.
func texture(c *canvas, x0, y0, x1, y1 int, f func(x, y int) float32) {
	for y := max(y0, 0); y < min(y1, c.h); y++ {
		for x := max(x0, 0); x < min(x1, c.w); x++ {
			k := 1 + f(x, y)
			i := (y*c.w + x) * 3
			c.pix[i], c.pix[i+1], c.pix[i+2] = c.pix[i]*k, c.pix[i+1]*k, c.pix[i+2]*k
		}
	}
}

func sky(c *canvas, rng *rand.Rand) {
	seed := rng.Uint32()
	top, low := rgb{0.42, 0.58, 0.80}, rgb{0.80, 0.86, 0.92}
	grey := float32(rng.Float64() * 0.6)
	top = top.mix(rgb{0.62, 0.65, 0.70}, grey)
	for y := range 140 {
		base := top.mix(low, float32(y)/130)
		for x := range c.w {
			fx, fy := float64(x), float64(y)
			n := grain(seed, fx/90, fy/28) + 0.5*grain(seed+1, fx/40, fy/14) + 0.25*grain(seed+2, fx/17, fy/7)
			cloud := min(max(n*0.8-0.05, 0), 1)
			col := base.mix(rgb{0.97, 0.97, 0.98}, cloud)
			copy(c.pix[(y*c.w+x)*3:], col[:])
		}
	}
}

// muted is a colour that a house may have.
func muted(rng *rand.Rand) rgb {
	return hsv(0.02+0.13*rng.Float64()+0.45*math.Floor(rng.Float64()*1.25), 0.08+0.30*rng.Float64(), 0.42+0.40*rng.Float64())
}

func (s *street) houses(c *canvas, rng *rand.Rand) {
	seed := rng.Uint32()
	hill := make([]vec, 0, 70)
	for x := -10; x <= Width+10; x += 10 {
		hill = append(hill, vec{float64(x), 84 + 12*float64(grain(seed, float64(x)/60, 3))})
	}
	hill = append(hill, vec{Width + 10, 140}, vec{-10, 140})
	c.fill(hill, flat(rgb{0.36, 0.45, 0.36}), 0)

	x := -rng.Float64() * 40
	for x < Width {
		w := 70 + rng.Float64()*75
		if rng.Float64() < 0.14 { // a gap with trees
			s.grove(c, rng, x, w*0.6)
			x += w * 0.6
			continue
		}
		house(c, rng, x, w)
		x += w
	}
}

func (s *street) grove(c *canvas, rng *rand.Rand, x, w float64) {
	c.fill(rect(x, 118, x+w, rowWall), flat(rgb{0.33, 0.40, 0.26}), 0)
	for range 5 {
		crown(c, rng, vec{x + w*rng.Float64(), 92 + 26*rng.Float64()}, 13+8*rng.Float64(), hsv(0.27, 0.4, 0.42))
	}
}

func house(c *canvas, rng *rand.Rand, x, w float64) {
	const base = rowWall
	wall, trim := muted(rng), muted(rng)
	floors := 2 + rng.IntN(3)
	floorH := 21 + 4*rng.Float64()
	shopH := 27.0
	top := base - shopH - float64(floors)*floorH
	x1 := x + w
	if rng.Float64() < 0.55 { // a pitched roof
		roof := hsv(0.02+0.05*rng.Float64(), 0.2+0.4*rng.Float64(), 0.28+0.25*rng.Float64())
		c.fill([]vec{{x - 2, top}, {x + 9, top - 17}, {x1 - 9, top - 17}, {x1 + 2, top}}, flat(roof), 0)
		texture(c, int(x), int(top-17), int(x1), int(top), func(_, y int) float32 { return -0.07 * float32(y%3) })
		cx := x + w*(0.25+0.5*rng.Float64())
		c.fill(rect(cx, top-26, cx+8, top-12), flat(wall.mul(0.75)), 0)
	} else {
		c.fill(rect(x-1, top-4, x1+1, top), flat(trim.mul(0.85)), 0)
	}
	c.fill(rect(x, top, x1, base), paint{wall, 1.05, 0.9, top, base}, 0)
	seed := rng.Uint32()
	brick := rng.Float64() < 0.4
	texture(c, int(x)+1, int(top), int(x1), base, func(px, py int) float32 {
		f := 0.05 * grain(seed, float64(px)/7, float64(py)/9)
		if brick && (py%4 == 0 || (px+(py/4)%2*4)%8 == 0) {
			f -= 0.07
		}
		return f
	})
	c.fill(rect(x, top, x+1.2, base), flat(wall.mul(0.7)), 0)
	n := max(int(w/22), 2)
	pitch := w / float64(n)
	frame := rgb{0.86, 0.85, 0.82}.mul(float32(0.7 + 0.3*rng.Float64()))
	for fl := range floors {
		y := top + 5 + float64(fl)*floorH
		for i := range n {
			wx := x + (float64(i)+0.5)*pitch - 5
			glass := rgb{0.26, 0.31, 0.37}.mul(float32(0.6 + 0.9*rng.Float64()))
			c.fill(rect(wx-1.3, y-1.3, wx+11.3, y+14.3), flat(frame), 0)
			c.fill(rect(wx, y, wx+10, y+13), paint{glass, 1.35, 0.8, y, y + 13}, 0)
			c.fill(rect(wx+4.6, y, wx+5.4, y+13), flat(frame), 0)
			c.fill(rect(wx-2, y+14.3, wx+12, y+15.8), flat(frame.mul(0.8)), 0)
		}
	}
	// The ground floor: a shop with an awning, or a front door and windows.
	y := base - shopH + 2
	if rng.Float64() < 0.65 {
		sign := anyColour(rng).mix(rgb{0.5, 0.5, 0.5}, 0.35)
		c.fill(rect(x+4, y-1, x1-4, y+5), flat(sign), 0)
		c.fill(rect(x+6, y+7, x1-18, base-3), paint{rgb{0.30, 0.34, 0.36}, 1.3, 0.75, y, base}, 0)
		for k := x + 24; k < x1-20; k += 22 {
			c.fill(rect(k, y+7, k+1.4, base-3), flat(frame), 0)
		}
		c.fill(rect(x1-15, y+7, x1-6, base), flat(trim.mul(0.6)), 0)
		a, b := anyColour(rng).mix(rgb{0.6, 0.6, 0.6}, 0.3), rgb{0.84, 0.82, 0.78}
		for i := 0; ; i++ {
			ax := x + 5 + float64(i)*5
			if ax+5 > x1-16 {
				break
			}
			col := a
			if i%2 == 1 {
				col = b
			}
			c.fill([]vec{{ax, y + 4.5}, {ax + 5, y + 4.5}, {ax + 4, y + 10}, {ax - 1, y + 10}}, flat(col), 0)
		}
	} else {
		for i := range n {
			wx := x + (float64(i)+0.5)*pitch - 5.5
			if i == n/2 {
				c.fill(rect(wx, y+4, wx+11, base), flat(trim.mul(0.55)), 0)
				c.fill(rect(wx+8, y+13, wx+9.4, y+14.4), flat(rgb{0.8, 0.75, 0.5}), 0)
				continue
			}
			c.fill(rect(wx-1.3, y+2, wx+12.3, y+16), flat(frame), 0)
			c.fill(rect(wx, y+3.3, wx+11, y+14.7), paint{rgb{0.28, 0.32, 0.37}, 1.3, 0.8, y, y + 15}, 0)
		}
	}
	c.fill(rect(x, base-2.5, x1, base), flat(wall.mul(0.6)), 0)
}

func ground(c *canvas, rng *rand.Rand) {
	seed := rng.Uint32()
	slab := rgb{0.56, 0.545, 0.52}.mul(float32(0.9 + 0.2*rng.Float64()))
	tar := rgb{0.40, 0.405, 0.42}.mul(float32(0.9 + 0.25*rng.Float64()))
	line := rgb{0.80, 0.80, 0.77}
	c.fill(rect(0, rowWall, Width, rowFarKerb), flat(slab), 0)
	c.fill(rect(0, rowKerb, Width, Height), flat(slab.mul(0.97)), 0)
	c.fill(rect(0, rowFarKerb, Width, rowKerb), flat(tar), 0)

	band := func(z0, z1, x0, x1 float64, col rgb) {
		c.fill([]vec{project(x0, z0), project(x1, z0), project(x1, z1), project(x0, z1)}, flat(col), 0)
	}
	// Slabs of a metre, their joints in perspective.
	joint := slab.mul(0.84)
	for _, side := range [][2]float64{{rowWall, rowFarKerb}, {rowKerb + 3, Height + 4}} {
		near, far := depthAt(side[1]), depthAt(side[0])
		size := 1.0
		if far > 20 {
			size = 2.5
		}
		for x := -40.0; x < 40; x += size {
			band(near, far, x-0.012*size, x+0.012*size, joint)
		}
		for z := math.Ceil(near/size) * size; z < far; z += size {
			band(z-0.012*size, z+0.012*size, -60, 60, joint)
		}
	}
	// Kerbs, the cycle lane, the middle line, the crossing and its stop lines.
	c.fill(rect(0, rowFarKerb-1.6, Width, rowFarKerb), flat(rgb{0.70, 0.69, 0.66}), 0)
	c.fill(rect(0, rowFarKerb, Width, rowFarKerb+1), flat(tar.mul(0.7)), 0)
	c.fill(rect(0, rowKerb, Width, rowKerb+4), flat(rgb{0.70, 0.69, 0.66}), 0)
	c.fill(rect(0, rowKerb-1.5, Width, rowKerb), flat(tar.mul(0.7)), 0)
	c.fill(rect(0, 206.4, Width, 208.2), flat(line.mul(0.93)), 0)
	c.fill(rect(0, 155.2, Width, 155.9), flat(line.mul(0.9)), 0)
	for x := -24.0; x < 24; x += 4 {
		if x > crossLeft-4 && x < crossRight+1 {
			continue
		}
		band(depthAt(179.6), depthAt(178.2), x, x+2, line)
	}
	zNear, zFar := depthAt(rowKerb-2), depthAt(rowFarKerb+2)
	for x := crossLeft; x < crossRight; x += 0.75 {
		band(zNear, zFar, x, x+0.4, line)
	}
	band(depthAt(205), depthAt(180), crossLeft-0.8, crossLeft-0.5, line)
	band(depthAt(178), depthAt(157), crossRight+0.5, crossRight+0.8, line)
	// Manholes and mended places.
	for range 3 {
		p := vec{rng.Float64() * Width, 160 + 65*rng.Float64()}
		k := (p.y - horizon) / cameraHeight
		c.fill(ellipse(p, 0.38*k, 0.12*k, 20), flat(tar.mul(0.72)), 0)
		q := vec{rng.Float64() * Width, 165 + 55*rng.Float64()}
		c.fill([]vec{q, q.add(vec{60, 0}), q.add(vec{66, 9}), q.add(vec{2, 9})}, flat(tar.mul(0.88)), 0)
	}
	texture(c, 0, rowWall, Width, Height, func(x, y int) float32 {
		p := (float64(y) - horizon) / 60
		fx, fy := float64(x)/p, float64(y)
		f := 0.045*grain(seed, fx/30, fy/8) + 0.05*grain(seed+1, fx/2.5, fy/1.3)
		if y > rowFarKerb && y < rowKerb {
			f += 0.05 * grain(seed+2, float64(x)/1.3, fy/1.1)
			f -= 0.05 * float32(math.Exp(-sq((fy-166)/5))+math.Exp(-sq((fy-198)/7))) // where tyres run
		}
		return f
	})
}

func sq(v float64) float64 { return v * v }

// shade fills the plane of still shadows.
func (s *street) shade(c *canvas, plane []float32, _ *light) {
	for _, poly := range s.shades {
		c.cover(poly, func(x, y int, a float32) {
			if y < rowWall {
				return
			}
			i := y*Width + x
			plane[i] = max(plane[i], a*0.9)
		})
	}
	// Shadows of far edges are soft.
	blur(plane, 2)
}

// blur is a box blur of radius r, rows then columns.
func blur(p []float32, r int) {
	line := make([]float32, max(Width, Height))
	pass := func(n, step, at int) {
		for i := range n {
			var sum float32
			for k := -r; k <= r; k++ {
				sum += p[at+min(max(i+k, 0), n-1)*step]
			}
			line[i] = sum / float32(2*r+1)
		}
		for i := range n {
			p[at+i*step] = line[i]
		}
	}
	for y := range Height {
		pass(Width, 1, y*Width)
	}
	for x := range Width {
		pass(Height, Width, x)
	}
}
