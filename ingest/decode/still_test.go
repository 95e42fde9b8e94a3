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
	e := &ingest.Epoch{ID: "test"}
	for pass := range 2 {
		for i, u := range units(t) {
			n := pass*50 + i
			u.Epoch, u.Ticks, u.Stamp.Capture = e, ingest.Ticks(n*3600), time.Unix(1000, int64(n)*4e7)
			us = append(us, u)
		}
	}
	const never = 1000
	for _, c := range []struct {
		name   string
		adjust func(us []Unit)
		still  func(n int) bool // while unit n is decoded
		moves  int              // the first keyframe in which something moves
		due    int              // the keyframe that is due
		sends  int
		looks  int // at keyframes
		held   uint64
		whole  func(n int) bool // units whose frames must be there
		late   int              // the unit behind those that waited and were decoded after all, from the 60th on; 0: there are none
	}{
		// The sizes of 16 pictures are learnt from the 12th on; the 29th is the first that waits.
		{"nothing moves", nil, func(n int) bool { return n >= 10 }, never, never, 28, 7, 72, func(n int) bool { return n < 28 }, 0},
		{"the gate opens in the middle of a group", nil, func(n int) bool { return n >= 10 && n < 65 }, never, never, 28 + 40, 4, 32, func(n int) bool { return n >= 60 }, 65},
		{"a picture is larger than usual", func(us []Unit) {
			us[65].Data = append(us[65].Data, make([]byte, 20000)...) // zeros after a NAL unit belong to nothing
		}, func(n int) bool { return n >= 10 }, never, never, 28 + 6, 7, 66, func(n int) bool { return n >= 60 && n <= 65 }, 65},
		{"something was lost", func(us []Unit) { us[65].Lost = true }, func(n int) bool { return n >= 10 }, never, never, 28 + 6, 7, 66, func(n int) bool { return n >= 60 && n < 65 }, 65},
		{"something moves in a keyframe", nil, func(n int) bool { return n >= 10 && n < 71 }, 70, never, 28 + 40, 5, 32, func(n int) bool { return n >= 60 }, 70},
		{"a keyframe is due", nil, func(n int) bool { return n >= 10 }, never, 50, 28 + 1, 7, 71, func(n int) bool { return n == 50 }, 0},
		{"everything moves", nil, func(int) bool { return false }, never, never, 100, 0, 0, func(int) bool { return true }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := append([]Unit(nil), us...)
			if c.adjust != nil {
				c.adjust(list)
			}
			s, n := &sink{}, -1
			var opened []*counted
			d := New(Config{
				Open: func(name string, cfg av.DecoderConfig) (Engine, error) {
					e, err := openEngine(name, cfg)
					opened = append(opened, &counted{Engine: e})
					return opened[len(opened)-1], err
				},
				Still: func() (time.Duration, bool) { return time.Minute, c.still(n) },
				Ahead: func(_ *ingest.Epoch, at time.Time, p *av.Picture) (calm, due bool) {
					n := int(at.Sub(time.Unix(1000, 0)) / 4e7)
					return !p.Empty() && n < c.moves, n == c.due
				},
			}, s)
			next := feed(list)
			if err := d.All(context.Background(), func() (Unit, error) { n++; return next() }); err != nil {
				t.Fatal(err)
			}
			if got := d.Counts(); opened[0].sends != c.sends || len(opened)-1 != c.looks || got.Still != c.held || len(s.frames) != c.sends {
				t.Errorf("%d decoded, %d looked at, %d held back, %d frames; want %d, %d, %d", opened[0].sends, len(opened)-1, got.Still, len(s.frames), c.sends, c.looks, c.held)
			}
			for _, f := range s.frames {
				if n := int(f.Ticks) / 3600; f.Held != (n >= 60 && n < c.late) {
					t.Errorf("the frame of unit %d: held back %v", n, f.Held)
				}
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
