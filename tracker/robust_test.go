package tracker_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vedette/vedette/tracker"
)

var modes = []tracker.Mode{tracker.Default, tracker.Conformance}

// crowd makes frames of n objects that move and are missed at times.
func crowd(seed uint64, frames, n int) [][]tracker.Detection {
	rng := rand.New(rand.NewPCG(seed, 9))
	type person struct{ x, y, vx, vy, w, h float64 }
	people := make([]person, n)
	for i := range people {
		h := 60 + 100*rng.Float64()
		people[i] = person{
			1900 * rng.Float64(), 1000 * rng.Float64(), 6 * rng.NormFloat64(), 2 * rng.NormFloat64(), 0.4 * h, h,
		}
	}
	out := make([][]tracker.Detection, frames)
	for f := range out {
		for i := range people {
			p := &people[i]
			p.x, p.y = p.x+p.vx, p.y+p.vy
			if p.x < 0 || p.x > 1900 {
				p.vx = -p.vx
			}
			if p.y < 0 || p.y > 1000 {
				p.vy = -p.vy
			}
			if rng.Float64() < 0.05 {
				continue
			}
			out[f] = append(out[f], tracker.Detection{
				Box:   box(p.x+rng.NormFloat64(), p.y+rng.NormFloat64(), p.w, p.h),
				Score: 1 - 0.7*rng.Float64()*rng.Float64(),
			})
		}
	}
	return out
}

func TestBadDetectionsChangeNothing(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	bad := []tracker.Detection{
		{Box: box(1, 1, 9, 9), Score: nan},
		{Box: box(1, 1, 9, 9), Score: inf},
		{Box: box(1, 1, 9, 9), Score: -inf},
		{Box: box(nan, 1, 9, 9), Score: 0.9},
		{Box: box(1, nan, 9, 9), Score: 0.9},
		{Box: box(1, 1, inf, 9), Score: 0.9},
		{Box: box(-inf, 1, 9, 9), Score: 0.9},
		{Box: box(1, 1, 0, 9), Score: 0.9},
		{Box: box(1, 1, 9, 0), Score: 0.9},
		{Box: box(9, 9, -5, 9), Score: 0.9},
		{Box: box(9, 9, 5, -9), Score: 0.9},
		{Box: box(1e300, 1, 9, 9), Score: 0.9},
		{Box: box(1, 1, 1e300, 1e300), Score: 0.9},
	}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			clean, dirty := newTracker(t, tracker.Config{Mode: mode}), newTracker(t, tracker.Config{Mode: mode})
			for f, dets := range crowd(1, 50, 5) {
				at := time.Duration(f) * 40 * ms
				want := clean.Update(at, dets)
				got := dirty.Update(at, append(append([]tracker.Detection{}, dets...), bad...))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("frame %d (-clean +dirty):\n%s", f, diff)
				}
			}
			if got, want := dirty.Stats().Invalid, int64(50*len(bad)); got != want {
				t.Errorf("%d invalid detections counted, want %d", got, want)
			}
		})
	}
}

func TestHundredThousandBoxes(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			tr := newTracker(t, tracker.Config{Mode: mode})
			rng := rand.New(rand.NewPCG(1, 1))
			dets := make([]tracker.Detection, 100_000)
			for i := range dets {
				dets[i] = tracker.Detection{
					Box:   box(4000*rng.Float64(), 2000*rng.Float64(), 20+30*rng.Float64(), 20+30*rng.Float64()),
					Score: 0.99 * rng.Float64(),
				}
			}
			best := tracker.Detection{Box: box(10, 10, 50, 50), Score: 1}
			dets[77_777] = best
			var tracks []tracker.Track
			for f := range 3 {
				tracks = tr.Update(time.Duration(f)*40*ms, dets)
			}
			if s := tr.Stats(); s.Excess != 3*(100_000-1000) || s.Frames != 3 {
				t.Errorf("%+v, want all but 1000 a frame in excess", s)
			}
			found := false
			for _, track := range tracks {
				found = found || track.Detection == 77_777
			}
			if !found || len(tracks) > 1000 {
				t.Errorf("%d tracks, the best detection among them: %v", len(tracks), found)
			}
		})
	}
}

func TestSnapshotGoesOnAsTheOriginal(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			first, second := newTracker(t, tracker.Config{Mode: mode}), newTracker(t, tracker.Config{Mode: mode})
			for f, dets := range crowd(2, 200, 12) {
				at := time.Duration(f) * 40 * ms
				if f%17 == 3 {
					state, err := first.MarshalBinary()
					if err != nil {
						t.Fatal(err)
					}
					second = newTracker(t, tracker.Config{Mode: mode})
					if err := second.UnmarshalBinary(state); err != nil {
						t.Fatal(err)
					}
				}
				want := append([]tracker.Track{}, first.Update(at, dets)...)
				if f < 3 {
					continue
				}
				if diff := cmp.Diff(want, append([]tracker.Track{}, second.Update(at, dets)...)); diff != "" {
					t.Fatalf("frame %d (-original +restored):\n%s", f, diff)
				}
				if diff := cmp.Diff(append([]tracker.Ended{}, first.Ended()...), append([]tracker.Ended{}, second.Ended()...)); diff != "" {
					t.Fatalf("frame %d, ended (-original +restored):\n%s", f, diff)
				}
			}
			if first.Stats() != second.Stats() {
				t.Errorf("counts differ: %+v, %+v", first.Stats(), second.Stats())
			}
		})
	}
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	for _, mode := range modes {
		tr := newTracker(t, tracker.Config{Mode: mode})
		for f, dets := range crowd(3, 10, 4) {
			tr.Update(time.Duration(f)*40*ms, dets)
		}
		state, err := tr.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		for cut := range len(state) {
			if err := newTracker(t, tracker.Config{Mode: mode}).UnmarshalBinary(state[:cut]); err == nil {
				t.Fatalf("%v: the first %d of %d bytes are taken", mode, cut, len(state))
			}
		}
		if err := newTracker(t, tracker.Config{Mode: mode}).UnmarshalBinary(append(state, 0)); err == nil {
			t.Errorf("%v: a byte too many is taken", mode)
		}
		if err := newTracker(t, tracker.Config{Mode: 1 - mode}).UnmarshalBinary(state); err == nil {
			t.Errorf("%v: a snapshot of the other mode is taken", mode)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			tr := newTracker(t, tracker.Config{Mode: mode})
			size := func(from, to int) int {
				for f := from; f < to; f++ {
					// Someone new every ten frames, here for eight.
					var dets []tracker.Detection
					if f%10 < 8 {
						x := float64((f / 10 * 331) % 1800)
						dets = seen(box(x, 100, 50, 120))
					}
					tr.Update(time.Duration(f)*40*ms, dets)
				}
				state, err := tr.MarshalBinary()
				if err != nil {
					t.Fatal(err)
				}
				return len(state)
			}
			early, late := size(0, 1000), size(1000, 51_000)
			if tr.Stats().Tracks < 4000 {
				t.Errorf("only %d identities", tr.Stats().Tracks)
			}
			if late > 2*early {
				t.Errorf("state of %d bytes after 1000 frames, %d after 51000", early, late)
			}
		})
	}
}

func TestNoAllocationInSteadyState(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			tr := newTracker(t, tracker.Config{Mode: mode})
			frames := crowd(4, 400, 50)
			at, next := time.Duration(0), 0
			step := func() {
				at += 40 * ms
				tr.Update(at, frames[next%len(frames)])
				next++
			}
			for range 2 * len(frames) {
				step()
			}
			if n := testing.AllocsPerRun(300, step); n != 0 {
				t.Errorf("%v allocations a frame, want none", n)
			}
		})
	}
}

func TestSettingsAreChecked(t *testing.T) {
	cases := []struct {
		name string
		cfg  tracker.Config
	}{
		{"an unknown mode", tracker.Config{Mode: 7}},
		{"a class in two groups", tracker.Config{ClassGroups: [][]int{{1, 2}, {2, 3}}}},
		{"a negative bound on detections", tracker.Config{MaxDetections: -1}},
		{"a threshold above one", tracker.Config{ByteTrack: tracker.ByteTrack{TrackThresh: 1.5}}},
		{"a threshold that is no number", tracker.Config{ByteTrack: tracker.ByteTrack{MatchThresh: math.NaN()}}},
		{"a negative buffer", tracker.Config{ByteTrack: tracker.ByteTrack{TrackBuffer: -3}}},
		{"an unknown parameter", tracker.Config{Tuning: map[string]float64{"speed": 1}}},
		{"a parameter that is no number", tracker.Config{Tuning: map[string]float64{"high": math.NaN()}}},
		{"a parameter out of range", tracker.Config{Tuning: map[string]float64{"measure": -1}}},
	}
	for _, c := range cases {
		if _, err := tracker.New(c.cfg); err == nil {
			t.Errorf("%s is taken", c.name)
		}
	}
	var cfg tracker.Config
	for name, value := range map[string]string{
		"mode": "slow", "track_thresh": "high", "track_buffer": "1.5", "fuse_score": "perhaps",
		"class_groups": "1,x", "unheard_of": "1", "lost_ms": "NaN", "max_detections": "many",
	} {
		if err := cfg.Set(name, value); err == nil {
			t.Errorf("%s=%s is taken", name, value)
		}
	}
}

// FuzzUpdate reads calls from bytes: whatever comes, tracks are finite, known,
// of positive size, and identities neither repeat in a frame nor return once
// ended.
func FuzzUpdate(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, false)
	f.Add(make([]byte, 400), true)
	var script []byte
	for i := range 40 {
		script = append(script, 2, 40, 0)
		for k := range 2 {
			for _, v := range []float32{float32(10*i + 300*k), 20, float32(10*i + 300*k + 50), 140, 0.9} {
				script = binary.LittleEndian.AppendUint32(script, math.Float32bits(v))
			}
		}
	}
	f.Add(script, false)
	f.Add(script, true)
	f.Fuzz(func(t *testing.T, data []byte, conformance bool) {
		cfg := tracker.Config{MaxDetections: 20}
		if conformance {
			cfg.Mode = tracker.Conformance
		}
		tr := newTracker(t, cfg)
		ended := map[int64]bool{}
		at := time.Duration(0)
		for len(data) >= 3 {
			at += time.Duration(int16(binary.LittleEndian.Uint16(data[1:]))) * ms
			n := int(data[0] % 8)
			data = data[3:]
			var tracks []tracker.Track
			var dets []tracker.Detection
			if n == 7 {
				tr.Hold(at)
			} else {
				for ; n > 0 && len(data) >= 20; n-- {
					var v [5]float64
					for i := range v {
						v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
					}
					data = data[20:]
					dets = append(dets, tracker.Detection{Box: tracker.Box{X1: v[0], Y1: v[1], X2: v[2], Y2: v[3]}, Score: v[4]})
				}
				tracks = tr.Update(at, dets)
			}
			checkTracks(t, tracks, dets, ended, at)
			for _, e := range tr.Ended() {
				if ended[e.ID] {
					t.Fatalf("track %d ends twice", e.ID)
				}
				ended[e.ID] = true
			}
		}
		state, err := tr.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := newTracker(t, cfg).UnmarshalBinary(state); err != nil {
			t.Fatalf("a snapshot is refused: %v", err)
		}
	})
}

func checkTracks(t *testing.T, tracks []tracker.Track, dets []tracker.Detection, ended map[int64]bool, at time.Duration) {
	t.Helper()
	here := map[int64]bool{}
	for _, tr := range tracks {
		sum := tr.X1 + tr.Y1 + tr.X2 + tr.Y2 + tr.Score
		switch {
		case math.IsNaN(sum) || math.IsInf(sum, 0):
			t.Fatalf("not finite: %+v", tr)
		case tr.ID < 1 || here[tr.ID] || ended[tr.ID]:
			t.Fatalf("identity %d repeats or returns", tr.ID)
		case tr.Age < 0 || tr.Start > tr.Last || tr.Last != at:
			t.Fatalf("times of %+v at %v", tr, at)
		case tr.Detection < 0 || tr.Detection >= len(dets):
			t.Fatalf("detection %d of %d", tr.Detection, len(dets))
		}
		here[tr.ID] = true
	}
}

// FuzzSnapshot feeds a tracker any bytes as its state: it refuses them or goes
// on with them without harm.
func FuzzSnapshot(f *testing.F) {
	for _, mode := range modes {
		tr := newTracker(f, tracker.Config{Mode: mode})
		for i, dets := range crowd(5, 6, 3) {
			tr.Update(time.Duration(i)*40*ms, dets)
		}
		state, err := tr.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(state, mode == tracker.Conformance)
	}
	f.Fuzz(func(t *testing.T, state []byte, conformance bool) {
		cfg := tracker.Config{}
		if conformance {
			cfg.Mode = tracker.Conformance
		}
		tr := newTracker(t, cfg)
		if tr.UnmarshalBinary(state) != nil {
			return
		}
		for i, dets := range crowd(6, 4, 3) {
			tr.Update(time.Duration(i)*40*ms, dets)
		}
	})
}
