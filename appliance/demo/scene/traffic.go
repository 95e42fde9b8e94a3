package scene

import (
	"math"
	"math/rand/v2"
)

// The camera: its height above the ground, the row of the horizon, and its
// focal length in pixels. Ground distances are metres: x across, z away.
const (
	cameraHeight = 3.2
	horizon      = 100
	focal        = 350
)

// scaleAt is pixels a metre at distance z.
func scaleAt(z float64) float64 { return focal / z }

// depthAt is the distance of the ground seen at a row.
func depthAt(row float64) float64 { return cameraHeight * focal / (row - horizon) }

// project is where a point of the ground is seen.
func project(x, z float64) vec {
	return vec{Width/2 + x*focal/z, horizon + cameraHeight*focal/z}
}

// state is where an actor is in one frame and how it holds itself.
type state struct {
	x, z    float64
	flip    float64 // 1 faces right, -1 left
	gait    float64 // metres walked or rolled
	heading int     // 0 seen from the side, 1 from behind, -1 from in front
	moving  bool
}

// actor is one person or machine with its whole minute. Its states begin at
// frame start and may run beyond the minute's end, into the next one's start.
type actor struct {
	class  Class
	rides  bool // a person on a bicycle
	look   wardrobe
	start  int
	states []state
}

// at is the actor's state in frame n, counted from the start of the minute in
// which it entered.
func (a *actor) at(n int) (state, bool) {
	if n < a.start || n-a.start >= len(a.states) {
		return state{}, false
	}
	return a.states[n-a.start], true
}

func (a *actor) figure(st state) figure {
	switch {
	case a.class == Bicycle:
		return bicycle(&a.look, -st.gait/wheelRadius)
	case a.rides:
		return rider(&a.look, -st.gait/wheelRadius)
	case a.class == Person:
		return person(&a.look, st.gait*2*math.Pi/1.45, st.heading, st.moving)
	default:
		return vehicle(a.class, &a.look, -st.gait)
	}
}

// anyColour is the one lot that all colours come from.
func anyColour(rng *rand.Rand) rgb {
	v := 0.12 + 0.80*rng.Float64()
	if rng.Float64() < 0.4 {
		w := 0.05 * (rng.Float64() - 0.5)
		return rgb{float32(v + w), float32(v), float32(v - w)}
	}
	return hsv(rng.Float64(), 0.15+0.5*rng.Float64(), v)
}

func hsv(h, s, v float64) rgb {
	f := func(n float64) float32 {
		k := math.Mod(n+h*6, 6)
		return float32(v - v*s*max(0, min(k, 4-k, 1)))
	}
	return rgb{f(5), f(3), f(1)}
}

func dress(rng *rand.Rand) wardrobe {
	tone := 0.30 + 0.60*rng.Float64()
	g := 0.12 + 0.62*rng.Float64()
	d := 0.07 + 0.22*rng.Float64()
	return wardrobe{
		main: anyColour(rng), second: anyColour(rng), third: anyColour(rng),
		dark:  rgb{float32(d * 1.15), float32(d), float32(d * 0.9)},
		light: rgb{float32(tone), float32(tone * 0.82), float32(tone * 0.70)},
		glass: rgb{float32(g * 0.92), float32(g), float32(g * 1.05)},
		size:  2*rng.Float64() - 1, bulk: 2*rng.Float64() - 1,
		style: rng.IntN(4), extra: rng.IntN(8),
	}
}

// The street from far to near, by row of the picture.
const (
	rowWall    = 130
	rowFarKerb = 147
	rowKerb    = 234
	crossLeft  = 1.4 // the crossing, metres to the right of the middle
	crossRight = 4.4
	cycle      = 30.0 // seconds of one round of the lights
	redFor     = 14.0
)

// lane is one file of traffic.
type lane struct {
	row     float64
	dir     float64
	classes []Class
	count   int
	lo, hi  float64 // speed, metres a second
}

func cast(rng *rand.Rand) []actor {
	lanes := []lane{
		{row: 151, dir: -1, classes: []Class{Bicycle}, count: 3, lo: 3, hi: 4.2},
		{row: 166, dir: -1, classes: []Class{Car, Car, Bus, Truck, Car, Bus, Truck, Car}, count: 8, lo: 5.5, hi: 8.5},
		{row: 198, dir: 1, classes: []Class{Car, Truck, Bus, Car, Car, Truck, Car, Bus}, count: 8, lo: 5.5, hi: 8.5},
		{row: 222, dir: 1, classes: []Class{Bicycle}, count: 4, lo: 3, hi: 4.5},
	}
	var out []actor
	for _, l := range lanes {
		out = append(out, l.drive(rng)...)
	}
	for range 8 {
		out = append(out, stroll(rng, depthAt(385), depthAt(256), 1.0, 1.6))
	}
	for range 4 {
		out = append(out, stroll(rng, depthAt(146), depthAt(139.5), 1.2, 1.7))
	}
	for range 7 {
		out = append(out, crosser(rng))
	}
	return out
}

// vehicleRun is one vehicle while its lane is played through.
type vehicleRun struct {
	class  Class
	look   wardrobe
	length float64
	top    float64 // desired speed
	enter  float64 // second of the minute
}

// drive plays a lane for three minutes with the same arrivals in each, so that
// the third follows from the second exactly as the first of any repetition
// follows from its last.
func (l lane) drive(rng *rand.Rand) []actor {
	runs := make([]vehicleRun, l.count)
	order := rng.Perm(len(l.classes))
	for i := range runs {
		c := l.classes[order[i%len(order)]]
		r := vehicleRun{class: c, look: dress(rng), top: l.lo + (l.hi-l.lo)*rng.Float64()}
		r.length = 1.8
		if c != Bicycle {
			r.length = vehicleLength(c, &r.look)
		}
		r.enter = (float64(i) + 0.8*rng.Float64()) * 60 / float64(l.count)
		runs[i] = r
	}
	rider := make([]wardrobe, len(runs))
	for i := range rider {
		rider[i] = dress(rng)
	}
	z := depthAt(l.row)
	half := Width/2/scaleAt(z) + 0.3

	const minutes, steps = 3, 4 // steps of the simulation a frame
	type live struct {
		run, minute int
		x, v        float64 // of the front, along the lane
		states      []state
		first       int
	}
	var queue []*live
	var done []*live
	next := 0
	for f := range minutes * Frames {
		for next < minutes*len(runs) {
			r := &runs[next%len(runs)]
			at := r.enter + float64(next/len(runs))*60
			if at > float64(f)/Rate {
				break
			}
			v := &live{run: next % len(runs), minute: next / len(runs), x: -half, v: r.top, first: f}
			if n := len(queue); n > 0 {
				ahead := queue[n-1]
				v.x = min(v.x, ahead.x-runs[ahead.run].length-2)
				v.v = min(v.v, ahead.v+1)
			}
			queue = append(queue, v)
			next++
		}
		for range steps {
			const dt = 1.0 / Rate / steps
			sec := math.Mod(float64(f)/Rate, cycle)
			for i, v := range queue {
				r := &runs[v.run]
				gap := math.Inf(1)
				if i > 0 {
					gap = queue[i-1].x - runs[queue[i-1].run].length - 1.6 - v.x
				}
				stop := crossLeft - 1.2
				if l.dir < 0 {
					stop = -(crossRight + 1.2)
				}
				d := stop - v.x
				if sec < redFor && d > -0.3 && d > v.v*v.v/(2*4.5)-0.5 {
					gap = min(gap, d)
				}
				safe := math.Sqrt(max(2*2.6*gap, 0))
				target := min(r.top, safe, v.v+1.6*dt)
				v.v = max(target, v.v-6*dt, 0)
				if gap <= 0.02 {
					v.v = 0
				}
				v.x += v.v * dt
			}
		}
		for _, v := range queue {
			r := &runs[v.run]
			v.states = append(v.states, state{
				x: l.dir * (v.x - r.length/2), z: z, flip: l.dir, gait: v.x, moving: v.v > 0.05,
			})
		}
		for len(queue) > 0 && queue[0].x-runs[queue[0].run].length > half {
			done = append(done, queue[0])
			queue = queue[1:]
		}
	}
	var out []actor
	for _, v := range done {
		if v.minute != 1 {
			continue // the settled minute, whole: it ends during the third
		}
		r := &runs[v.run]
		a := actor{class: r.class, look: r.look, start: v.first - Frames, states: v.states}
		out = append(out, a)
		if r.class == Bicycle {
			on := actor{class: Person, rides: true, look: rider[v.run], start: a.start, states: v.states}
			out = append(out, on)
		}
	}
	return out
}

// waypoint is a place to walk to; there, dwell seconds pass, then, if light is
// set, those until the lights let walkers go.
type waypoint struct {
	x, z  float64
	dwell float64
	light bool
}

// walk turns a way into states, one a frame, from second enter on.
func walk(rng *rand.Rand, way []waypoint, speed, enter float64) actor {
	a := actor{class: Person, look: dress(rng), start: int(enter * Rate)}
	// Children keep to the near pavement: across the street they would be
	// smaller than what is scored.
	if a.look.extra == child && max(way[0].z, way[len(way)-1].z) > depthAt(rowKerb) {
		a.look.extra = 0
	}
	t, gait := float64(a.start)/Rate, 0.0
	flip := 1.0
	for i := 0; i+1 < len(way); i++ {
		p, q := way[i], way[i+1]
		wait := p.dwell
		if p.light {
			green := math.Ceil((t-1.0)/cycle)*cycle + 1.0 + 1.2*rng.Float64()
			if since := math.Mod(t, cycle); since > 1 && since < 3 {
				green = t
			}
			wait += max(green-t, 0)
		}
		dx, dz := q.x-p.x, q.z-p.z
		heading := 0
		if math.Abs(dz) > math.Abs(dx)*1.4 {
			heading = 1
			if dz < 0 {
				heading = -1
			}
		}
		if dx != 0 {
			flip = math.Copysign(1, dx)
		}
		for range int(wait * Rate) {
			a.states = append(a.states, state{x: p.x, z: p.z, flip: flip, gait: gait, heading: heading})
			t += 1.0 / Rate
		}
		length := math.Hypot(dx, dz)
		n := max(int(length/speed*Rate), 1)
		for k := range n {
			u := float64(k) / float64(n)
			a.states = append(a.states, state{
				x: p.x + dx*u, z: p.z + dz*u, flip: flip, gait: gait + length*u, heading: heading, moving: true,
			})
		}
		gait += length
		t += float64(n) / Rate
	}
	return a
}

func edgeX(z float64) float64 { return Width/2/scaleAt(z) + 0.6 }

// stroll crosses the picture along a pavement, perhaps stopping on the way.
func stroll(rng *rand.Rand, near, far, lo, hi float64) actor {
	z := near + (far-near)*rng.Float64()
	dir := 1.0
	if rng.Float64() < 0.5 {
		dir = -1
	}
	e := edgeX(z)
	way := []waypoint{{x: -dir * e, z: z}, {x: dir * e, z: z + 0.3*(rng.Float64()-0.5)}}
	if rng.Float64() < 0.25 && z < 10 {
		stop := waypoint{x: (rng.Float64() - 0.5) * e, z: z, dwell: 3 + 8*rng.Float64()}
		way = []waypoint{way[0], stop, way[1]}
	}
	return walk(rng, way, lo+(hi-lo)*rng.Float64(), 60*rng.Float64())
}

// crosser comes along one pavement, waits for the lights, crosses, and leaves
// along the other.
func crosser(rng *rand.Rand) actor {
	x := crossLeft + 0.3 + (crossRight-crossLeft-0.6)*rng.Float64()
	zFar, zNear := depthAt(144+2*rng.Float64()), depthAt(240+10*rng.Float64())
	from, to := zFar, zNear
	if rng.Float64() < 0.5 {
		from, to = zNear, zFar
	}
	side := func() float64 {
		if rng.Float64() < 0.5 {
			return -1
		}
		return 1
	}
	speed := 1.35 + 0.45*rng.Float64()
	way := []waypoint{
		{x: side() * edgeX(from), z: from},
		{x: x, z: from, light: true},
		{x: x + 0.4*(rng.Float64()-0.5), z: to},
		{x: side() * edgeX(to), z: to},
	}
	return walk(rng, way, speed, 60*rng.Float64())
}
