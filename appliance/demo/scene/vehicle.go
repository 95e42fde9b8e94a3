package scene

import "math"

// vehicleLength is the length in metres of a vehicle of this class.
func vehicleLength(c Class, w *wardrobe) float64 {
	switch c {
	case Bus:
		return 6.9 + 0.5*w.size
	case Truck:
		return 6.1 + 0.6*w.size
	default:
		return 4.1 + 0.45*w.size
	}
}

func vehicle(c Class, w *wardrobe, turn float64) figure {
	switch c {
	case Bus:
		return bus(w, turn)
	case Truck:
		return truck(w, turn)
	default:
		return car(w, turn)
	}
}

func (f *figure) wheel(w *wardrobe, at vec, r, turn float64) {
	f.disc(w.dark.mul(0.8), at, r)
	f.disc(w.light, at, r*0.62)
	f.disc(w.dark, at, r*0.5)
	for i := range 5 {
		s, c := math.Sincos(turn + float64(i)*2*math.Pi/5)
		f.limb(w.light, at, at.add(vec{c, s}.mul(r*0.52)), r*0.10, r*0.08)
	}
	f.disc(w.light, at, r*0.16)
}

// Windows are seen into: a paler band of sky above, and whoever drives.
func (f *figure) window(w *wardrobe, pts ...vec) {
	f.poly(w.glass, smooth(pts, 0.12)...)
	lo, hi := bounds(pts)
	m := (hi.x - lo.x) * 0.3
	shine := w.glass.mix(rgb{0.9, 0.95, 1}, 0.28)
	f.poly(shine, vec{lo.x + m, lo.y + 0.02}, vec{lo.x + 2*m, lo.y + 0.02}, vec{lo.x + 2.4*m, hi.y - 0.03}, vec{lo.x + 1.5*m, hi.y - 0.03})
}

func car(w *wardrobe, turn float64) figure {
	var f figure
	l := vehicleLength(Car, w) / 2
	tall := 1.44 + 0.08*w.bulk
	r := 0.32 + 0.02*w.bulk
	axleB, axleF := vec{-l + 0.78, r}, vec{l - 0.80, r}
	belt := 0.90
	// Where the cabin stands on the body: a saloon, a hatchback, an estate, a tall one.
	var roofB, roofF, footB, footF float64
	switch w.style {
	case 0:
		footB, roofB, roofF, footF = -l+0.62, -l+1.30, 0.25, 0.95
	case 1:
		footB, roofB, roofF, footF = -l+0.08, -l+0.62, 0.30, 0.98
	case 2:
		footB, roofB, roofF, footF = -l+0.03, -l+0.32, 0.28, 1.00
	default:
		tall += 0.20
		belt += 0.10
		footB, roofB, roofF, footF = -l+0.05, -l+0.36, 0.50, 1.05
	}
	f.poly(w.dark.mul(0.55), smooth(rect(-l+0.15, 0.18, l-0.15, 0.5), 0.2)...)
	f.poly(w.main.mul(0.93), smooth([]vec{
		{footB, belt - 0.03}, {roofB, tall}, {roofF, tall}, {footF, belt - 0.03},
	}, 0.12)...)
	f.poly(w.main, smooth([]vec{
		{-l, 0.34}, {l - 0.02, 0.34}, {l, 0.60}, {l - 0.14, belt - 0.16}, {footF + 0.1, belt}, {footB - 0.02, belt + 0.02}, {-l + 0.02, belt - 0.05}, {-l, 0.6},
	}, 0.14)...)
	mid := (footB + footF) / 2
	in := 0.07
	f.window(w, vec{footB + 0.22, belt}, vec{mid - 0.04, belt}, vec{mid - 0.04, tall - in}, vec{roofB + 0.10, tall - in})
	f.window(w, vec{mid + 0.04, belt}, vec{footF - 0.18, belt}, vec{roofF - 0.06, tall - in}, vec{mid + 0.04, tall - in})
	f.limb(w.main.mul(0.62), vec{mid, 0.42}, vec{mid, belt}, 0.012, 0.012)
	f.limb(w.main.mul(0.62), vec{footF - 0.15, 0.45}, vec{footF - 0.12, belt}, 0.012, 0.012)
	f.limb(w.main.mul(0.78), vec{-l + 0.08, 0.66}, vec{l - 0.1, 0.64}, 0.012, 0.012)
	f.limb(w.light, vec{mid - 0.30, 0.78}, vec{mid - 0.14, 0.78}, 0.02, 0.02)
	if w.extra == 1 {
		f.poly(w.second, rect(-l+0.2, 0.50, l-0.2, 0.60)...)
	}
	f.poly(w.dark, smooth(rect(-l-0.03, 0.30, -l+0.35, 0.42), 0.3)...)
	f.poly(w.dark, smooth(rect(l-0.35, 0.28, l+0.03, 0.42), 0.3)...)
	f.poly(w.light, smooth([]vec{{l - 0.26, 0.60}, {l - 0.03, 0.58}, {l - 0.08, 0.72}, {l - 0.24, 0.74}}, 0.2)...)
	f.poly(w.third, smooth(rect(-l+0.0, 0.62, -l+0.14, 0.82), 0.2)...)
	f.limb(w.main.mul(0.8), vec{footF - 0.12, belt + 0.03}, vec{footF - 0.02, belt + 0.04}, 0.06, 0.05)
	for _, a := range []vec{axleB, axleF} {
		f.disc(w.dark.mul(0.5), a.add(vec{0, 0.02}), r+0.06)
		f.wheel(w, a, r, turn/r)
	}
	return f
}

func bus(w *wardrobe, turn float64) figure {
	var f figure
	l := vehicleLength(Bus, w) / 2
	tall, r := 2.85+0.1*w.bulk, 0.47
	f.poly(w.dark.mul(0.55), rect(-l+0.2, 0.25, l-0.2, 0.6)...)
	f.poly(w.main, smooth([]vec{{-l, 0.36}, {l, 0.36}, {l + 0.02, 1.1}, {l - 0.10, tall - 0.05}, {l - 0.3, tall}, {-l + 0.2, tall}, {-l, tall - 0.15}}, 0.07)...)
	if w.style != 0 {
		f.poly(w.second, rect(-l+0.02, 0.92, l-0.02, 1.16+0.1*float64(w.style))...)
	}
	f.poly(w.main.mul(1.12), rect(-l+0.3, tall-0.10, l-0.35, tall-0.03)...)
	// A row of windows, doors between them, and the wide pane in front.
	n := 5
	if w.extra%2 == 1 {
		n = 6
	}
	door := n - 1 - w.extra%2
	pitch := (2*l - 0.75) / float64(n)
	for i := range n {
		x := -l + 0.18 + float64(i)*pitch
		if i == door || i == 2 && w.style < 2 {
			f.poly(w.third, rect(x+0.03, 0.42, x+pitch-0.03, tall-0.5)...)
			half := x + pitch/2
			f.window(w, vec{x + 0.08, 0.62}, vec{half - 0.03, 0.62}, vec{half - 0.03, tall - 0.58}, vec{x + 0.08, tall - 0.58})
			f.window(w, vec{half + 0.03, 0.62}, vec{x + pitch - 0.08, 0.62}, vec{x + pitch - 0.08, tall - 0.58}, vec{half + 0.03, tall - 0.58})
			continue
		}
		f.window(w, vec{x + 0.05, 1.36}, vec{x + pitch - 0.05, 1.36}, vec{x + pitch - 0.05, tall - 0.42}, vec{x + 0.05, tall - 0.42})
	}
	f.window(w, vec{l - 0.52, 1.15}, vec{l - 0.02, 1.15}, vec{l - 0.12, tall - 0.42}, vec{l - 0.50, tall - 0.42})
	f.poly(w.light, rect(l-1.9, tall-0.34, l-0.25, tall-0.16)...)
	f.poly(w.light, smooth(rect(l-0.22, 0.60, l, 0.80), 0.3)...)
	f.poly(w.third, smooth(rect(-l, 0.7, -l+0.12, 1.05), 0.2)...)
	f.poly(w.dark, rect(-l-0.02, 0.32, l+0.02, 0.42)...)
	for _, x := range []float64{-l + 1.9, l - 1.7} {
		f.disc(w.dark.mul(0.5), vec{x, r}, r+0.08)
		f.wheel(w, vec{x, r}, r, turn/r)
	}
	return f
}

func truck(w *wardrobe, turn float64) figure {
	var f figure
	l := vehicleLength(Truck, w) / 2
	tall, r := 2.95+0.18*w.bulk, 0.46
	cab := 1.75
	x := l - cab
	f.poly(w.dark.mul(0.7), rect(-l+0.05, 0.48, l-0.2, 0.78)...)
	// The load: a box, a tarpaulin, a tipper or a tank.
	switch w.style {
	case 0:
		f.poly(w.second, smooth(rect(-l, 0.80, x-0.22, tall), 0.02)...)
		f.poly(w.third, rect(-l+0.5, 1.35, x-0.7, 2.2)...)
		f.poly(w.second.mul(0.75), rect(-l, 0.80, x-0.22, 0.90)...)
	case 1:
		f.poly(w.second, smooth([]vec{{-l, 0.82}, {x - 0.22, 0.82}, {x - 0.22, tall - 0.12}, {x - 0.4, tall}, {-l + 0.15, tall}, {-l, tall - 0.12}}, 0.08)...)
		for k := 1; k < 7; k++ {
			at := -l + float64(k)*(x-0.22+l)/7
			f.limb(w.second.mul(0.8), vec{at, 0.9}, vec{at, tall - 0.08}, 0.025, 0.025)
		}
	case 2:
		f.poly(w.second, vec{-l - 0.05, 2.05}, vec{-l + 0.25, 0.85}, vec{x - 0.25, 0.85}, vec{x - 0.18, 2.05})
		for k := range 5 {
			at := -l + 0.35 + float64(k)*(x-0.5+l)/5
			f.limb(w.second.mul(0.75), vec{at, 0.9}, vec{at - 0.04, 2.0}, 0.04, 0.04)
		}
		f.poly(w.third, smooth([]vec{{-l + 0.1, 2.03}, {-l + 1, 2.4}, {0, 2.55}, {x - 0.9, 2.3}, {x - 0.3, 2.03}}, 0.3)...)
	default:
		f.poly(w.second, smooth([]vec{{-l, 1.0}, {-l + 0.3, 0.85}, {x - 0.5, 0.85}, {x - 0.22, 1.0}, {x - 0.22, 2.2}, {x - 0.5, 2.4}, {-l + 0.3, 2.4}, {-l, 2.2}}, 0.4)...)
		f.poly(w.third, rect(-l+0.08, 1.5, x-0.3, 1.72)...)
	}
	high := 2.25 + 0.15*w.bulk
	f.poly(w.main, smooth([]vec{{x, 0.45}, {l, 0.45}, {l, 1.15}, {l - 0.12, 1.35}, {l - 0.28, high}, {x + 0.05, high + 0.06}, {x, high}}, 0.08)...)
	f.window(w, vec{x + 0.42, 1.38}, vec{l - 0.17, 1.38}, vec{l - 0.36, high - 0.18}, vec{x + 0.42, high - 0.18})
	f.limb(w.main.mul(0.65), vec{x + 0.35, 0.62}, vec{x + 0.35, high - 0.1}, 0.014, 0.014)
	f.limb(w.light, vec{x + 0.45, 1.2}, vec{x + 0.65, 1.2}, 0.025, 0.025)
	f.poly(w.dark, smooth(rect(l-0.5, 0.36, l+0.04, 0.58), 0.2)...)
	f.poly(w.light, smooth(rect(l-0.2, 0.68, l, 0.88), 0.2)...)
	f.limb(w.dark, vec{l - 0.05, 1.45}, vec{l + 0.02, 1.8}, 0.05, 0.05)
	axles := []float64{-l + 0.95, l - 0.95}
	if l > 3.1 {
		axles = append(axles, -l+2.0)
	}
	for _, a := range axles {
		f.disc(w.dark.mul(0.5), vec{a, r}, r+0.07)
		f.wheel(w, vec{a, r}, r, turn/r)
	}
	return f
}
