package tracker

import "math"

// mostGrowth bounds how much a box grows on a side, in parts of its length.
const mostGrowth = 0.5

// looker compares one track with detections.
type looker struct {
	o            *object
	p            *tuning
	s            stage
	growX, growY float64
	reachX       float64
	box          Box // predicted, grown
	obs          Box // last observed, grown
	area         float64
	obsArea      float64
}

func (e *elapsed) looker(o *object, s stage) looker {
	p := &e.p
	l := looker{o: o, p: p, s: s}
	w, h := o.box.Width(), o.box.Height()
	part := 0.0
	if s == third {
		part = p.wide
	}
	l.growX = min(part*w+p.doubt*math.Sqrt(o.x.pp), mostGrowth*w)
	l.growY = min(part*h+p.doubt*math.Sqrt(o.y.pp), mostGrowth*h)
	l.reachX = 2 * l.growX
	if p.observed > 0 {
		// The last observation may lie outside the prediction's reach.
		l.reachX += max(0, o.box.X1-o.obs.X1, o.obs.X2-o.box.X2)
		l.obs = o.obs.grow(l.growX, l.growY)
		l.obsArea = l.obs.Width() * l.obs.Height()
	}
	l.box = o.box.grow(l.growX, l.growY)
	l.area = l.box.Width() * l.box.Height()
	return l
}

func (b Box) grow(x, y float64) Box {
	return Box{b.X1 - x, b.Y1 - y, b.X2 + x, b.Y2 + y}
}

func (l *looker) similarity(d *observation, weight float64) float64 {
	p := l.p
	det := d.grow(l.growX, l.growY)
	area := det.Width() * det.Height()
	sim := overlap(&l.box, &det, l.area, area, p.height)
	if p.observed > 0 {
		sim += p.observed * (overlap(&l.obs, &det, l.obsArea, area, p.height) - sim)
	}
	if l.s == second {
		return sim
	}
	return sim * weight
}

// overlap is the share of the area two boxes have in common, times a power of
// the share of the height: boxes of standing objects that overlap by chance
// rarely begin and end at the same heights.
func overlap(a, b *Box, areaA, areaB, power float64) float64 {
	w := min(a.X2, b.X2) - max(a.X1, b.X1)
	h := min(a.Y2, b.Y2) - max(a.Y1, b.Y1)
	if w <= 0 || h <= 0 {
		return 0
	}
	both := w * h
	iou := both / (areaA + areaB - both)
	switch power {
	case 0:
		return iou
	}
	share := h / (max(a.Y2, b.Y2) - min(a.Y1, b.Y1))
	switch power {
	case 1:
		return iou * share
	case 2:
		return iou * share * share
	case 3:
		return iou * share * share * share
	}
	return iou * math.Pow(share, power)
}
