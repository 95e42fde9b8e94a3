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

// TestTheQueueDropsWhatIsLate has a decoder take fewer units than come: what it takes stays fresh, and begins at keyframes.
func TestTheQueueDropsWhatIsLate(t *testing.T) {
	const period, group, seconds = 40 * time.Millisecond, 50, 60
	for _, c := range []struct {
		name  string
		taken float64 // of what comes
		late  bool
	}{{"half as many", 0.5, true}, {"nine in ten", 0.9, true}, {"as many", 1, false}} {
		t.Run(c.name, func(t *testing.T) {
			q := newQueue(1 << 20)
			budget, got, last, oldest := 0.0, 0, -1, time.Duration(0)
			for n := range seconds * 25 {
				now := time.Duration(n+1) * period
				u := unit(n, n%group == 0, 100)
				u.Received.Mono = now
				q.push(u)
				for budget += c.taken; budget >= 1 && len(q.units) > 0; budget-- {
					u, err := q.pop(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if int(u.Ticks) != last+1 && !u.Keyframe {
						t.Fatalf("unit %d after unit %d", u.Ticks, last)
					}
					last, oldest, got = int(u.Ticks), max(oldest, now-u.Received.Mono), got+1
				}
				budget = min(budget, 1)
			}
			if late := q.dropped() > 0; late != c.late || int(q.dropped())+got+len(q.units) != seconds*25 {
				t.Errorf("%d dropped, %d taken, %d wait", q.dropped(), got, len(q.units))
			}
			if oldest > tardy+patience {
				t.Errorf("taken after %s", oldest)
			}
			if float64(got) < 0.6*c.taken*seconds*25 {
				t.Errorf("%d of %d taken", got, seconds*25)
			}
		})
	}
}

// TestAPauseIsCaughtUpWith stops a decoder for some seconds: nothing is lost when it is fast enough afterwards.
func TestAPauseIsCaughtUpWith(t *testing.T) {
	q := newQueue(1 << 20)
	for n := range 75 { // three seconds came while the process stood still
		u := unit(n, n == 0, 100)
		if u.Received.Mono = time.Second; n > 0 {
			u.Received.Mono = 4 * time.Second
		}
		q.push(u)
	}
	for range 75 {
		if _, err := q.pop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if q.dropped() != 0 {
		t.Errorf("%d dropped", q.dropped())
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
