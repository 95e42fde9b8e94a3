// Package scene draws the street that Vedette shows before the first camera is
// connected: one minute of people, bicycles, cars, buses and trucks that
// cross, hide one another and leave, seen by a camera on a pole.
//
// A scene is decided by its seed alone and repeats every Frames frames without
// a seam. Coordinates are pixels of the picture, x to the right and y down,
// with the origin at the outer corner of the first pixel. Colours of every
// class come from the same lot, so that only shape can tell what a thing is.
package scene

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// The format of every scene.
const (
	Width  = 640
	Height = 360
	Rate   = 15 // frames a second
	Frames = 60 * Rate
)

// Class is what an actor is, by its place in Classes.
type Class int

// The classes, numbered as the demo detector numbers them.
const (
	Person Class = iota
	Bicycle
	Car
	Bus
	Truck
)

// Classes are the names of the classes, as COCO spells them.
func Classes() []string { return []string{"person", "bicycle", "car", "bus", "truck"} }

func (c Class) String() string { return Classes()[c] }

// Box is a rectangle in pixels; the far edge is outside.
type Box struct{ X0, Y0, X1, Y1 float64 }

func (b Box) clip() Box {
	return Box{clamp(b.X0, 0, Width), clamp(b.Y0, 0, Height), clamp(b.X1, 0, Width), clamp(b.Y1, 0, Height)}
}

func (b Box) area() float64 { return max(b.X1-b.X0, 0) * max(b.Y1-b.Y0, 0) }

// Object is the truth about one actor in one frame.
type Object struct {
	// ID tells the actors of one minute apart; it is above 0. Somebody still
	// in the picture when the minute ends goes on at its start with an ID one
	// lower.
	ID    int
	Class Class
	// Full is the whole actor cut at the picture's edge; Visible is the part
	// that nothing hides.
	Full, Visible Box
	// Visibility is the share of the actor's whole outline that is seen.
	Visibility float64
	// Scored is false for what no detector is asked to find: hidden by more
	// than two thirds or smaller than 16 pixels both ways.
	Scored bool
}

// Origin is the actor behind the object, and how many minutes before this one
// it entered.
func (o Object) Origin() (actor, pass int) {
	return (o.ID - 1) / passes, passes - 1 - (o.ID-1)%passes
}

// What is seen of an actor for it to be scored.
const (
	minVisibility = 1.0 / 3
	minSize       = 16
)

// passes is how many minutes one actor's way may touch.
const passes = 3

// Scene draws the frames of one seed. It is not safe for concurrent use: a
// frame is drawn on a canvas that the next one reuses.
type Scene struct {
	actors    []actor
	street    *street
	light     light
	canvas    *canvas
	shadow    []float32
	base      []float32 // the still shadows, 0 lit to 1 dark
	queue     []drawn
	noise     []float32
	truth     []Object
	noiseSeed uint64
}

// New plans the minute of a seed and paints its street.
func New(seed uint64) *Scene {
	rng := rand.New(rand.NewPCG(seed, 0x76656465747465))
	s := &Scene{
		canvas:    newCanvas(Width, Height),
		shadow:    make([]float32, Width*Height),
		base:      make([]float32, Width*Height),
		noise:     make([]float32, 1<<14),
		noiseSeed: seed,
	}
	s.street = newStreet(rng)
	s.light = newLight(rng)
	s.actors = cast(rng)
	for i := range s.noise {
		s.noise[i] = float32(clamp(rng.NormFloat64(), -3.5, 3.5))
	}
	s.street.shade(s.canvas, s.base, &s.light)
	return s
}

// drawn is one thing to draw in this frame, far things first.
type drawn struct {
	z     float64
	actor int // -1: furniture
	item  int
	at    state
}

// Draw draws frame n (of 0 to Frames-1) into dst, a tight I420 picture of
// Width*Height*3/2 bytes, and returns the truth about it, which is valid until
// the next call.
func (s *Scene) Draw(n int, dst []byte) []Object {
	c := s.canvas
	copy(c.pix, s.street.pix)
	clear(c.ids)
	clear(c.own)
	copy(s.shadow, s.base)
	t := float64(n) / Rate

	s.queue = s.queue[:0]
	for i := range s.street.items {
		s.queue = append(s.queue, drawn{z: s.street.items[i].z, actor: -1, item: i})
	}
	for i := range s.actors {
		for pass := range passes {
			if st, ok := s.actors[i].at(n + pass*Frames); ok {
				s.queue = append(s.queue, drawn{z: st.z, actor: i, item: pass, at: st})
			}
		}
	}
	slices.SortStableFunc(s.queue, func(a, b drawn) int { return cmp.Compare(b.z, a.z) })

	// Shadows lie on the ground, so all of them come before the first actor.
	figures := make([]figure, len(s.queue))
	for k, d := range s.queue {
		if d.actor < 0 {
			continue
		}
		figures[k] = s.actors[d.actor].figure(d.at)
		s.cast(&figures[k], d.at)
	}
	l := s.light.at(t)
	for i, sh := range s.shadow {
		f := 1 - l.depth*sh
		c.pix[i*3] *= f
		c.pix[i*3+1] *= f
		c.pix[i*3+2] *= f
	}

	s.truth = s.truth[:0]
	for k, d := range s.queue {
		if d.actor < 0 {
			s.street.items[d.item].blit(c)
			s.street.glow(c, d.item, t)
			continue
		}
		a := &s.actors[d.actor]
		id := int32(d.actor*passes + passes - d.item)
		o := Object{ID: int(id), Class: a.class}
		o.measure(s.place(&figures[k], d.at, id, l.depth))
		if o.Full.area() > 0 {
			s.truth = append(s.truth, o)
		}
	}
	s.see()
	s.light.develop(c, l, s.noise, s.noiseSeed+uint64(n)*0x9e3779b97f4a7c15, dst)
	return s.truth
}

// cast lays a figure's shadow on the ground.
func (s *Scene) cast(f *figure, at state) {
	poly := make([]vec, 0, 64)
	for _, sh := range f.shapes {
		poly = poly[:0]
		for _, p := range sh.poly {
			x := p.x * at.flip
			z := at.z + p.y*s.light.sunZ
			if z < 0.5 {
				z = 0.5
			}
			poly = append(poly, project(at.x+x+p.y*s.light.sunX, z))
		}
		s.canvas.cover(poly, func(x, y int, a float32) {
			i := y*Width + x
			s.shadow[i] = max(s.shadow[i], a)
		})
	}
}

// place draws a figure and returns the extent of its whole outline and the
// number of pixels it covers, seen or not.
func (s *Scene) place(f *figure, at state, id int32, depth float32) (Box, int) {
	k := scaleAt(at.z)
	foot := project(at.x, at.z)
	dim := float32(1)
	if i := int(foot.y); i >= 0 && i < Height {
		x := int(clamp(foot.x, 0, Width-1))
		dim = 1 - 0.85*depth*s.base[i*Width+x]
	}
	var lo, hi vec
	first, silhouette := true, 0
	poly := make([]vec, 0, 64)
	for _, sh := range f.shapes {
		poly = poly[:0]
		for _, p := range sh.poly {
			poly = append(poly, vec{foot.x + p.x*at.flip*k, foot.y - p.y*k})
		}
		a, b := bounds(poly)
		if first {
			lo, hi, first = a, b, false
		}
		lo, hi = vec{min(lo.x, a.x), min(lo.y, a.y)}, vec{max(hi.x, b.x), max(hi.y, b.y)}
		p := paint{col: sh.col, top: 1.10 * dim, bottom: 0.86 * dim, y0: a.y, y1: b.y}
		silhouette += s.canvas.fill(poly, p, id)
	}
	return Box{lo.x, lo.y, hi.x, hi.y}, silhouette
}

// measure notes an outline; see completes it once everything is drawn.
func (o *Object) measure(full Box, silhouette int) {
	o.Full = full.clip()
	inside := 0.0
	if a := full.area(); a > 0 {
		inside = o.Full.area() / a
	}
	if silhouette > 0 {
		o.Visibility = inside / float64(silhouette)
	}
	o.Visible = Box{math.Inf(1), math.Inf(1), 0, 0}
}

// see counts what is left to be seen of everybody.
func (s *Scene) see() {
	index := make(map[int32]int, len(s.truth))
	for i := range s.truth {
		index[int32(s.truth[i].ID)] = i
	}
	count := make([]int, len(s.truth))
	last, at := int32(0), -1
	for i, id := range s.canvas.ids {
		if id <= 0 {
			continue
		}
		if id != last {
			k, ok := index[id]
			if !ok {
				k = -1
			}
			last, at = id, k
		}
		if at < 0 {
			continue
		}
		count[at]++
		v := &s.truth[at].Visible
		x, y := float64(i%Width), float64(i/Width)
		v.X0, v.Y0, v.X1, v.Y1 = min(v.X0, x), min(v.Y0, y), max(v.X1, x+1), max(v.Y1, y+1)
	}
	for i := range s.truth {
		o := &s.truth[i]
		o.Visibility = min(o.Visibility*float64(count[i]), 1)
		if count[i] == 0 {
			o.Visible = Box{}
		}
		w, h := o.Full.X1-o.Full.X0, o.Full.Y1-o.Full.Y0
		o.Scored = o.Visibility >= minVisibility && max(w, h) >= minSize
	}
}
