package rules_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vedette/vedette/appliance/rules"
)

const trials = 2000

func crossings(events []rules.Event) (forward, backward int) {
	for _, e := range events {
		switch e.Direction {
		case rules.Forward:
			forward++
		case rules.Backward:
			backward++
		}
	}
	return forward, backward
}

// show shows paths of several tracks at once and ends them.
func show(e *rules.Engine, paths map[int64][]rules.Point, times []time.Duration) []rules.Event {
	var events []rules.Event
	for i, d := range times {
		var objects []rules.Object
		for id, path := range paths {
			objects = append(objects, at(id, "person", path[i].X, path[i].Y))
		}
		slices.SortFunc(objects, func(a, b rules.Object) int { return int(a.Local - b.Local) })
		events = append(events, e.Observe(epoch.Add(d), objects)...)
	}
	return append(events, e.EndSequence(1, epoch.Add(times[len(times)-1]+frame))...)
}

// irregular are times of frames that come when they come.
func irregular(r *rand.Rand, n int) []time.Duration {
	times := make([]time.Duration, n)
	for i := 1; i < n; i++ {
		times[i] = times[i-1] + time.Duration(1+r.IntN(400))*time.Millisecond
	}
	return times
}

func TestPathThatEndsOnItsStartSideNetsZero(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	crossed := 0
	for range trials {
		n := 2 + r.IntN(40)
		path := make([]rules.Point, n)
		for i := range path {
			path[i] = rules.Point{X: r.Float64(), Y: 0.2 + 0.6*r.Float64()} // between the ends of the gate
		}
		if (path[0].X > 0.5) != (path[n-1].X > 0.5) {
			path[n-1].X = 1 - path[n-1].X
		}
		inertia := time.Duration(r.IntN(1000)) * time.Millisecond
		e := rules.New(rules.Set{Lines: []rules.Line{gate(inertia)}})
		f, b := crossings(show(e, map[int64][]rules.Point{1: path}, irregular(r, n)))
		if f != b {
			t.Fatalf("inertia %s, path %v: %d forward, %d backward", inertia, path, f, b)
		}
		crossed += f
	}
	if crossed == 0 {
		t.Fatal("no path crossed the line: this test shows nothing")
	}
}

func TestPathThatEndsOnTheOtherSideNetsOne(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range trials {
		n := 3 + r.IntN(30)
		path := make([]rules.Point, n+1)
		for i := range path {
			path[i] = rules.Point{X: r.Float64(), Y: 0.2 + 0.6*r.Float64()}
		}
		path[0].X, path[n-1].X, path[n].X = 0.9, 0.1, 0.1
		times := irregular(r, n)
		times = append(times, times[n-1]+2*time.Second) // long enough to count
		e := rules.New(rules.Set{Lines: []rules.Line{gate(time.Duration(r.IntN(1000)) * time.Millisecond)}})
		if f, b := crossings(show(e, map[int64][]rules.Point{1: path}, times)); f-b != 1 {
			t.Fatalf("path %v: %d forward, %d backward", path, f, b)
		}
	}
}

func TestFlickerNeverCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const inertia = 500 * time.Millisecond
	for range trials {
		// Excursions are shorter than the inertia, whatever lies between them.
		var path []rules.Point
		var times []time.Duration
		now := time.Duration(0)
		add := func(x float64, d time.Duration) {
			path = append(path, rules.Point{X: x, Y: 0.5})
			times = append(times, now)
			now += d
		}
		for range 1 + r.IntN(20) {
			for range 1 + r.IntN(3) {
				add(0.95, time.Duration(1+r.IntN(900))*time.Millisecond)
			}
			left := inertia - time.Millisecond
			for range r.IntN(4) {
				d := time.Duration(r.Int64N(int64(left)/4) + 1)
				add(0.5-0.05*r.Float64(), d)
			}
		}
		add(0.95, 0)
		e := rules.New(rules.Set{Zones: []rules.Zone{square(inertia)}, Lines: []rules.Line{gate(inertia)}})
		if events := show(e, map[int64][]rules.Point{1: path}, times); len(events) != 0 {
			t.Fatalf("path %v at %v made %v", path, times, brief(events))
		}
	}
}

// TestTracksDoNotDisturbEachOther: what a track gives rise to is the same whoever else is there.
func TestTracksDoNotDisturbEachOther(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range trials / 10 {
		n := 2 + r.IntN(40)
		times := irregular(r, n)
		paths := map[int64][]rules.Point{}
		for id := int64(1); id <= 5; id++ {
			for range n {
				paths[id] = append(paths[id], rules.Point{X: r.Float64(), Y: r.Float64()})
			}
		}
		z := square(200 * time.Millisecond)
		z.Dwell, z.Loitering = 400*time.Millisecond, time.Second
		set := rules.Set{Zones: []rules.Zone{z}, Lines: []rules.Line{gate(100 * time.Millisecond)}}
		together := map[int64][]rules.Event{}
		for _, e := range show(rules.New(set), paths, times) {
			e.Inside = 0 // tells of the others, as it should
			together[e.Local] = append(together[e.Local], e)
		}
		for id, path := range paths {
			alone := show(rules.New(set), map[int64][]rules.Point{id: path}, times)
			for i := range alone {
				alone[i].Inside = 0
			}
			if diff := cmp.Diff(alone, together[id]); diff != "" {
				t.Fatalf("track %d alone and among others (-alone +together):\n%s", id, diff)
			}
		}
	}
}

// model counts the crossings of a path the obvious way: without inertia, each step between the ends counts.
func model(path []rules.Point) (forward, backward int) {
	for i := 1; i < len(path); i++ {
		a, b := path[i-1], path[i]
		if (a.X > 0.5) == (b.X > 0.5) {
			continue
		}
		if y := a.Y + (b.Y-a.Y)*(0.5-a.X)/(b.X-a.X); y < 0.1 || y > 0.9 {
			continue
		}
		if a.X > 0.5 {
			forward++
		} else {
			backward++
		}
	}
	return forward, backward
}

// FuzzEngine: events of a zone take turns, occupancy never falls below zero, crossings without inertia are those of the
// model, and the same frames give the same events.
func FuzzEngine(f *testing.F) {
	f.Add([]byte("\x80\x80\x20\x80\xe0\x80"), uint16(0))
	f.Add([]byte("\x10\xf0\xf0\xf0\x80\x80\x80\x81\x7f\x80\x10\x10"), uint16(300))
	f.Fuzz(func(t *testing.T, data []byte, ms uint16) {
		var path []rules.Point
		for ; len(data) >= 2 && len(path) < 500; data = data[2:] {
			path = append(path, rules.Point{X: (float64(data[0]) + 0.5) / 256, Y: (float64(data[1]) + 0.5) / 256})
		}
		if len(path) == 0 {
			return
		}
		times := make([]time.Duration, len(path))
		for i := range times {
			times[i] = time.Duration(i) * frame
		}
		inertia := time.Duration(ms) * time.Millisecond
		z := square(inertia)
		z.Occupancy = 1
		set := rules.Set{Zones: []rules.Zone{z}, Lines: []rules.Line{gate(inertia)}}
		events := show(rules.New(set), map[int64][]rules.Point{1: path}, times)
		if diff := cmp.Diff(events, show(rules.New(set), map[int64][]rules.Point{1: path}, times)); diff != "" {
			t.Fatalf("the same frames gave other events:\n%s", diff)
		}
		inside, full := false, false
		for _, e := range events {
			switch e.Type {
			case rules.ZoneEntered, rules.ZoneLeft:
				if (e.Type == rules.ZoneEntered) == inside {
					t.Fatalf("out of turn: %v", brief(events))
				}
				inside = !inside
			case rules.ZoneOccupied, rules.ZoneCleared:
				if (e.Type == rules.ZoneOccupied) == full {
					t.Fatalf("out of turn: %v", brief(events))
				}
				full = !full
			}
			if e.Inside < 0 || e.Since.After(e.Time) || e.Spent < 0 {
				t.Fatalf("impossible: %+v", e)
			}
		}
		if inside || full {
			t.Fatalf("all tracks ended, but something is inside: %v", brief(events))
		}
		if inertia != 0 {
			return
		}
		gotF, gotB := crossings(events)
		if wantF, wantB := model(path); gotF != wantF || gotB != wantB {
			t.Fatalf("%d forward and %d backward, the model says %d and %d", gotF, gotB, wantF, wantB)
		}
	})
}
