package decode

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vedette/vedette/ingest"
)

func TestTheSamplerKeepsItsRateInSpiteOfJitter(t *testing.T) {
	for _, c := range []struct {
		name         string
		camera, rate float64
		jitter       time.Duration
		least, most  int // of 1000 pictures
	}{
		{"every frame", 25, 0, 5 * time.Millisecond, 1000, 1000},
		{"the camera's own rate", 25, 25, 4 * time.Millisecond, 995, 1000},
		{"more than the camera has", 25, 60, 4 * time.Millisecond, 1000, 1000},
		{"a fifth", 25, 5, 5 * time.Millisecond, 195, 205},
		{"no divisor", 25, 10, 5 * time.Millisecond, 390, 410},
		{"once in two seconds", 25, 0.5, 5 * time.Millisecond, 20, 21},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			s := newSampler(c.rate)
			taken := 0
			start := time.Unix(1000, 0)
			for i := range 1000 {
				at := start.Add(time.Duration(float64(i)/c.camera*float64(time.Second)) + time.Duration(rng.Int64N(int64(2*c.jitter))) - c.jitter)
				if want := s.wants(at); s.take(at) != want {
					t.Fatal("wants and take disagree")
				} else if want {
					taken++
				}
			}
			if taken < c.least || taken > c.most {
				t.Errorf("%d of 1000 taken", taken)
			}
		})
	}
}

func TestTheSamplerGoesOnAfterAJump(t *testing.T) {
	s := newSampler(1)
	at := time.Unix(1000, 0)
	for name, jump := range map[string]time.Duration{"forward": 24 * time.Hour, "backward": -48 * time.Hour} {
		s.take(at)
		at = at.Add(jump)
		if !s.take(at) || s.take(at.Add(100*time.Millisecond)) || !s.take(at.Add(time.Second)) {
			t.Errorf("lost its step after a jump %s", name)
		}
	}
}

func unit(n int, key bool, bytes int) Unit {
	return Unit{AccessUnit: ingest.AccessUnit{Data: make([]byte, bytes), Keyframe: key, Ticks: ingest.Ticks(n)}}
}

func TestTheQueueDropsToTheNextKeyframe(t *testing.T) {
	q := newQueue(100)
	for n := range 5 {
		q.push(unit(n, n == 0, 25)) // the fifth does not fit
	}
	q.push(unit(5, false, 10))
	q.push(unit(6, true, 10))
	q.push(unit(7, false, 10))
	var got []ingest.Ticks
	for range 2 {
		u, err := q.pop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, u.Ticks)
		if u.Lost != (u.Ticks == 6) {
			t.Errorf("unit %d: lost %v", u.Ticks, u.Lost)
		}
	}
	if got[0] != 6 || got[1] != 7 || q.dropped() != 6 {
		t.Errorf("got %v, dropped %d", got, q.dropped())
	}
}

func TestAUnitLargerThanTheQueuePassesAlone(t *testing.T) {
	q := newQueue(10)
	q.push(unit(0, true, 1000))
	if u, err := q.pop(t.Context()); err != nil || len(u.Data) != 1000 {
		t.Errorf("got %d bytes, %v", len(u.Data), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.pop(ctx); err == nil {
		t.Error("an empty queue gave something")
	}
}
