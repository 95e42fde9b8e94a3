package decode

import (
	"context"
	"testing"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/internal/av"
)

func TestAStillScenesPicturesWaitAndNoneIsMissingWhenItMoves(t *testing.T) {
	// Two passes over the clip: 100 pictures, a keyframe every 10, all of like size.
	var us []Unit
	for pass := range 2 {
		for i, u := range units(t) {
			n := pass*50 + i
			u.Ticks, u.Stamp.Capture = ingest.Ticks(n*3600), time.Unix(1000, int64(n)*4e7)
			us = append(us, u)
		}
	}
	for _, c := range []struct {
		name   string
		adjust func(us []Unit)
		still  func(n int) bool // while unit n is decoded
		sends  int
		held   uint64
		whole  func(n int) bool // units whose frames must be there
	}{
		// The sizes of 16 pictures are learnt from the 12th on; the 29th is the first that waits.
		{"nothing moves", nil, func(n int) bool { return n >= 10 }, 28 + 7, 65, func(n int) bool { return n%10 == 0 }},
		{"the gate opens in the middle of a group", nil, func(n int) bool { return n >= 10 && n < 65 }, 28 + 4 + 39, 29, func(n int) bool { return n >= 60 }},
		{"a picture is larger than usual", func(us []Unit) {
			us[65].Data = append(us[65].Data, make([]byte, 20000)...) // zeros after a NAL unit belong to nothing
		}, func(n int) bool { return n >= 10 }, 28 + 4 + 5 + 3, 60, func(n int) bool { return n >= 60 && n <= 65 }},
		{"something was lost", func(us []Unit) { us[65].Lost = true }, func(n int) bool { return n >= 10 }, 28 + 4 + 5 + 3, 60, func(n int) bool { return n >= 60 && n < 65 }},
		{"everything moves", nil, func(int) bool { return false }, 100, 0, func(int) bool { return true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := append([]Unit(nil), us...)
			if c.adjust != nil {
				c.adjust(list)
			}
			s, e, n := &sink{}, &counted{}, -1
			d := New(Config{
				Open: func(name string, cfg av.DecoderConfig) (Engine, error) {
					var err error
					e.Engine, err = openEngine(name, cfg)
					return e, err
				},
				Still: func() (time.Duration, bool) { return time.Minute, c.still(n) },
			}, s)
			next := feed(list)
			if err := d.All(context.Background(), func() (Unit, error) { n++; return next() }); err != nil {
				t.Fatal(err)
			}
			if got := d.Counts(); e.sends != c.sends || got.Still != c.held || len(s.frames) != c.sends {
				t.Errorf("%d decoded, %d held back, %d frames; want %d, %d", e.sends, got.Still, len(s.frames), c.sends, c.held)
			}
			came := map[int]bool{}
			for _, f := range s.frames {
				came[int(f.Ticks)/3600] = !f.Tainted
			}
			for i := range 100 {
				if c.whole(i) && !came[i] {
					t.Errorf("the frame of unit %d is missing or tainted", i)
				}
			}
		})
	}
}
