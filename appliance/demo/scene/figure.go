package scene

import "math"

// figure is what an actor looks like at one moment: shapes in its own upright
// plane, in metres, x along the way it faces and y up from the ground.
type figure struct {
	shapes []shape
}

type shape struct {
	poly []vec
	col  rgb
}

func (f *figure) poly(c rgb, pts ...vec)               { f.shapes = append(f.shapes, shape{pts, c}) }
func (f *figure) limb(c rgb, a, b vec, ra, rb float64) { f.poly(c, limb(a, b, ra, rb)...) }
func (f *figure) disc(c rgb, at vec, r float64)        { f.poly(c, ellipse(at, r, r, 16)...) }

// knee finds the joint between hip and foot for two bones of length a and b,
// bent towards sign.
func knee(hip, foot vec, a, b, sign float64) vec {
	d := foot.sub(hip)
	l := min(d.norm(), (a+b)*0.999)
	along := (a*a - b*b + l*l) / (2 * l)
	off := math.Sqrt(max(a*a-along*along, 0)) * sign
	u := d.mul(1 / max(d.norm(), 1e-9))
	return vec{hip.x + u.x*along - u.y*off, hip.y + u.y*along + u.x*off}
}

// wardrobe is everything drawn by lot about one actor, of whatever class.
// Colours come from one distribution for every class: a colour never tells
// what a thing is.
type wardrobe struct {
	main, second, third rgb
	dark                rgb // hair and shoes, tyres and bumpers
	light               rgb // skin, lamps and trim
	glass               rgb
	size, bulk          float64 // -1 to 1
	style               int
	extra               int
}

// child is the lot that makes a walker one.
const child = 5

// person draws somebody walking. phase is the gait in radians; heading is 0
// seen from the side, 1 walking away, -1 walking towards the camera.
func person(w *wardrobe, phase float64, heading int, moving bool) figure {
	if heading != 0 {
		return personFacing(w, phase, heading, moving)
	}
	var f figure
	h := 1.72 + 0.16*w.size
	if w.extra == child {
		h *= 0.74
	}
	u := h / 1.75
	wide := (1 + 0.22*w.bulk) * u
	swing, lift := 0.30*u, 0.10*u
	if !moving {
		swing, lift, phase = 0.05*u, 0, 0.7
	}
	hip := vec{0, (0.925 + 0.02*math.Cos(2*phase)) * u}
	shoulder := vec{0.04 * u, 1.44 * u}
	far, near := w.second.mul(0.78), w.second
	leg := func(p float64, c rgb) {
		s, co := math.Sincos(p)
		foot := vec{swing * s, 0.07*u + lift*max(co, 0)}
		k := knee(hip, foot, 0.45*u, 0.44*u, 1)
		f.limb(c, hip, k, 0.10*wide, 0.075*wide)
		f.limb(c, k, foot, 0.075*wide, 0.05*wide)
		f.limb(w.dark, foot.add(vec{-0.04 * u, -0.02 * u}), foot.add(vec{0.13 * u, -0.03 * u}), 0.05*u, 0.04*u)
	}
	arm := func(p float64, c rgb) {
		a := -0.45 * math.Sin(p)
		if !moving {
			a = 0.1
		}
		elbow := shoulder.add(vec{0.30 * u * math.Sin(a), -0.30 * u * math.Cos(a)})
		hand := elbow.add(vec{0.26 * u * math.Sin(a+0.35), -0.26 * u * math.Cos(a+0.35)})
		f.limb(c, shoulder, elbow, 0.065*wide, 0.055*wide)
		f.limb(c, elbow, hand, 0.055*wide, 0.04*wide)
		f.disc(w.light, hand, 0.05*u)
	}
	arm(phase+math.Pi, w.main.mul(0.72))
	leg(phase+math.Pi, far)
	leg(phase, near)
	if w.style == 2 { // a bag on the back
		f.poly(w.third, smooth([]vec{{-0.34 * u, 1.05 * u}, {-0.10 * u, 1.02 * u}, {-0.08 * u, 1.46 * u}, {-0.28 * u, 1.44 * u}}, 0.3)...)
	}
	skirt := 0.86
	if w.style == 1 { // a coat
		skirt = 0.55
	}
	f.poly(w.main, smooth([]vec{
		{-0.14 * wide, skirt * u},
		{0.15 * wide, skirt * u},
		{0.17 * wide, 1.18 * u},
		{0.12 * wide, 1.50 * u},
		{-0.10 * wide, 1.50 * u},
		{-0.16 * wide, 1.2 * u},
	}, 0.25)...)
	arm(phase, w.main.mul(0.9))
	f.limb(w.light, vec{0.03 * u, 1.46 * u}, vec{0.05 * u, 1.58 * u}, 0.055*u, 0.055*u)
	head := vec{0.06 * u, 1.63 * u}
	f.poly(w.light, ellipse(head, 0.098*u, 0.122*u, 16)...)
	f.poly(w.dark, ellipse(head.add(vec{-0.035 * u, 0.045 * u}), 0.088*u, 0.088*u, 14)...)
	if w.style == 3 { // a cap
		f.poly(w.third, smooth([]vec{{-0.06 * u, 1.68 * u}, {0.24 * u, 1.68 * u}, {0.13 * u, 1.73 * u}, {0.06 * u, 1.78 * u}, {-0.05 * u, 1.75 * u}}, 0.3)...)
	}
	return f
}

func personFacing(w *wardrobe, phase float64, heading int, moving bool) figure {
	var f figure
	h := 1.72 + 0.16*w.size
	if w.extra == child {
		h *= 0.74
	}
	u := h / 1.75
	wide := (1 + 0.18*w.bulk) * u
	step := 0.10
	if !moving {
		step = 0
	}
	for i, side := range []float64{-1, 1} {
		s := math.Sin(phase + float64(i)*math.Pi)
		lift := step * max(s, 0) * u
		hip := vec{side * 0.10 * wide, 0.90 * u}
		foot := vec{side * 0.11 * wide, 0.06*u + lift}
		k := vec{side * 0.125 * wide, 0.48*u + lift*0.7}
		c := w.second.mul(float32(0.9 + 0.1*s))
		f.limb(c, hip, k, 0.11*wide, 0.085*wide)
		f.limb(c, k, foot, 0.08*wide, 0.055*wide)
		f.limb(w.dark, foot.add(vec{0, -0.02 * u}), foot.add(vec{side * 0.03 * u, -0.03 * u}), 0.06*u, 0.055*u)
		shoulder := vec{side * 0.23 * wide, 1.43 * u}
		hand := vec{side * 0.31 * wide, 0.86*u - 0.06*s*u*step*10}
		elbow := vec{side * 0.30 * wide, 1.14 * u}
		f.limb(w.main.mul(0.85), shoulder, elbow, 0.07*wide, 0.06*wide)
		f.limb(w.main.mul(0.85), elbow, hand, 0.06*wide, 0.045*wide)
		f.disc(w.light, hand, 0.05*u)
	}
	skirt := 0.85
	if w.style == 1 {
		skirt = 0.55
	}
	f.poly(w.main, smooth([]vec{
		{-0.20 * wide, skirt * u},
		{0.20 * wide, skirt * u},
		{0.18 * wide, 1.15 * u},
		{0.25 * wide, 1.46 * u},
		{0.08 * wide, 1.52 * u},
		{-0.08 * wide, 1.52 * u},
		{-0.25 * wide, 1.46 * u},
		{-0.18 * wide, 1.15 * u},
	}, 0.2)...)
	if w.style == 2 && heading > 0 {
		f.poly(w.third, smooth(rect(-0.17*u, 1.0*u, 0.17*u, 1.46*u), 0.25)...)
	}
	head := vec{0, 1.63 * u}
	f.limb(w.light, vec{0, 1.47 * u}, vec{0, 1.57 * u}, 0.06*u, 0.06*u)
	f.poly(w.light, ellipse(head, 0.095*u, 0.122*u, 16)...)
	hair := head.add(vec{0, 0.05 * u})
	if heading > 0 {
		hair.y = head.y + 0.01*u
	}
	f.poly(w.dark, ellipse(hair, 0.098*u, 0.085*u, 14)...)
	if w.style == 3 {
		f.poly(w.third, smooth([]vec{{-0.10 * u, 1.68 * u}, {0.10 * u, 1.68 * u}, {0.09 * u, 1.77 * u}, {-0.09 * u, 1.77 * u}}, 0.3)...)
	}
	return f
}

const (
	wheelRadius = 0.34
	wheelBase   = 1.04
)

// bicycle draws the machine alone; rider draws who sits on it.
func bicycle(w *wardrobe, turn float64) figure {
	var f figure
	back, front := vec{-wheelBase / 2, wheelRadius}, vec{wheelBase / 2, wheelRadius}
	for _, c := range []vec{back, front} {
		f.poly(w.dark, ring(c, wheelRadius, wheelRadius-0.05, 24)...)
		for i := range 4 {
			s, co := math.Sincos(turn + float64(i)*math.Pi/4)
			d := vec{co, s}.mul(wheelRadius - 0.04)
			f.limb(w.light, c.sub(d), c.add(d), 0.009, 0.009)
		}
		f.disc(w.second, c, 0.05)
	}
	crank, seat, head := vec{-0.06, 0.29}, vec{-0.20, 0.80}, vec{0.36, 0.86}
	for _, e := range [][2]vec{{back, crank}, {back, seat.add(vec{0.03, -0.12})}, {crank, seat}, {crank, head}, {seat.add(vec{0.02, -0.1}), head}, {head, front}} {
		f.limb(w.main, e[0], e[1], 0.032, 0.032)
	}
	f.limb(w.dark, seat.add(vec{-0.12, 0.02}), seat.add(vec{0.10, 0.02}), 0.04, 0.025)
	f.limb(w.second, head, head.add(vec{0.03, 0.14}), 0.024, 0.024)
	f.limb(w.dark, head.add(vec{0.03, 0.14}), head.add(vec{0.12, 0.12}), 0.03, 0.03)
	s, co := math.Sincos(turn * 0.45)
	f.limb(w.light, crank.sub(vec{co, s}.mul(0.16)), crank.add(vec{co, s}.mul(0.16)), 0.018, 0.018)
	if w.style == 1 { // a basket
		f.poly(w.third, smooth([]vec{{0.42, 0.72}, {0.70, 0.72}, {0.74, 0.96}, {0.40, 0.96}}, 0.15)...)
	}
	if w.style == 2 { // mudguards and a rack
		f.limb(w.second, vec{-0.66, 0.74}, vec{-0.30, 0.74}, 0.02, 0.02)
		f.poly(w.third, smooth(rect(-0.70, 0.42, -0.44, 0.72), 0.2)...)
	}
	return f
}

func rider(w *wardrobe, turn float64) figure {
	var f figure
	crank, hip, shoulder := vec{-0.06, 0.29}, vec{-0.18, 0.90}, vec{0.13, 1.40}
	leg := func(a float64, c rgb) {
		s, co := math.Sincos(a)
		pedal := crank.add(vec{co, s}.mul(0.17))
		foot := pedal.add(vec{-0.02, 0.06})
		k := knee(hip, foot, 0.45, 0.43, 1)
		f.limb(c, hip, k, 0.10, 0.075)
		f.limb(c, k, foot, 0.072, 0.05)
		f.limb(w.dark, pedal.add(vec{-0.05, 0.03}), pedal.add(vec{0.12, 0.02}), 0.045, 0.04)
	}
	hand := vec{0.45, 1.01}
	arm := func(c rgb) {
		e := knee(shoulder, hand, 0.29, 0.28, -1)
		f.limb(c, shoulder, e, 0.06, 0.05)
		f.limb(c, e, hand, 0.05, 0.04)
		f.disc(w.light, hand, 0.045)
	}
	leg(turn*0.45+math.Pi, w.second.mul(0.78))
	arm(w.main.mul(0.72))
	wide := 1 + 0.2*w.bulk
	f.poly(w.main, smooth([]vec{{-0.32, 0.86}, {-0.06 + 0.03*w.bulk, 0.84}, {0.13 * wide, 1.18}, {0.22, 1.42}, {0.10, 1.49}, {-0.16 * wide, 1.22}}, 0.25)...)
	leg(turn*0.45, w.second)
	arm(w.main.mul(0.9))
	f.limb(w.light, vec{0.15, 1.44}, vec{0.20, 1.55}, 0.05, 0.05)
	head := vec{0.22, 1.60}
	f.poly(w.light, ellipse(head, 0.10, 0.12, 16)...)
	f.poly(w.dark, ellipse(head.add(vec{-0.03, 0.05}), 0.095, 0.085, 14)...)
	if w.style%2 == 0 { // a helmet
		f.poly(w.third, smooth([]vec{{0.10, 1.63}, {0.34, 1.65}, {0.30, 1.74}, {0.18, 1.77}, {0.09, 1.72}}, 0.3)...)
	}
	return f
}
