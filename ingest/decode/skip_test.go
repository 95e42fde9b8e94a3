package decode

import (
	"testing"
	"time"

	"github.com/vedette/vedette/internal/av"
)

// counted counts what is sent to a real decoder.
type counted struct {
	Engine
	sends int
	skips int // sent while pictures no other refers to are skipped
	skip  bool
}

func (c *counted) Send(data []byte, pts int64) error {
	c.sends++
	if c.skip {
		c.skips++
	}
	return c.Engine.Send(data, pts)
}

func (c *counted) SetSkipNonReference(on bool) {
	c.skip = on
	c.Engine.SetSkipNonReference(on)
}

func TestOnlyKeyframesAreDecodedWhereTheyAreEnough(t *testing.T) {
	for _, c := range []struct {
		name   string
		rate   float64
		looked bool
		sends  int
		frames []int64 // by number of unit
	}{
		// The clip's 50 pictures take 2 s and have a keyframe every 0.4 s; the first two distances are learnt.
		{"once a second", 1, false, 22, []int64{0, 30}},
		{"once a second while somebody looks", 1, true, 50, []int64{0, 22, 47}},
		{"more often than keyframes come", 5, false, 50, []int64{0, 5, 10, 15, 20, 25, 30, 35, 40, 45}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, e := &sink{}, &counted{}
			d := New(Config{Rate: c.rate, Open: func(name string, cfg av.DecoderConfig) (Engine, error) {
				var err error
				e.Engine, err = openEngine(name, cfg)
				return e, err
			}}, s)
			if c.looked {
				_, _ = d.LatestFrame()
			}
			if err := d.All(t.Context(), feed(units(t))); err != nil {
				t.Fatal(err)
			}
			if e.sends != c.sends {
				t.Errorf("%d units were decoded, want %d", e.sends, c.sends)
			}
			var got []int64
			for _, f := range s.frames {
				got = append(got, int64(f.Ticks)/3600)
			}
			if len(got) != len(c.frames) {
				t.Fatalf("frames of units %v, want %v", got, c.frames)
			}
			for i := range got {
				if got[i] != c.frames[i] {
					t.Errorf("frames of units %v, want %v", got, c.frames)
					break
				}
			}
			if n := d.Counts(); int(n.Decoded) != c.sends || int(n.Unsampled)+len(got) != 50 {
				t.Errorf("counts: %+v", n)
			}
			if c.rate == 5 && e.skips == 0 {
				t.Error("pictures no other refers to were not skipped")
			}
		})
	}
}

func TestDistancesOfKeyframesAreLearntAndForgotten(t *testing.T) {
	var g groups
	at := time.Unix(1000, 0)
	next := func(d time.Duration) {
		at = at.Add(d)
		g.keyframe(at)
	}
	next(0)
	next(time.Second)
	if g.enough(time.Hour) {
		t.Error("one distance is no rule")
	}
	next(time.Second)
	if !g.enough(time.Second) || g.enough(900*time.Millisecond) {
		t.Error("a keyframe a second is enough for a frame a second, and for no more")
	}
	next(10 * time.Second)
	if g.enough(time.Second) {
		t.Error("a long distance was not noticed")
	}
	for range 4 {
		next(time.Second)
	}
	if !g.enough(time.Second) {
		t.Error("a long distance is never forgotten")
	}
}
