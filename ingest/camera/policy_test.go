package camera

import (
	"testing"
	"time"

	"github.com/vedette/vedette/ingest"
)

func TestWaitsGrowAndAreJittered(t *testing.T) {
	b := Backoff{}.withDefaults()
	one := func() float64 { return 0.999 }
	zero := func() float64 { return 0 }
	last := time.Duration(0)
	for n := 1; n < b.Budget; n++ {
		least, q1 := b.next(n, ingest.ReasonTimeout, zero)
		most, q2 := b.next(n, ingest.ReasonTimeout, one)
		if q1 || q2 || least != b.Base/10 || most < last || most > b.Max+b.Base/10 {
			t.Errorf("attempt %d waits %v to %v, quarantine %v", n, least, most, q1)
		}
		last = most
	}
	if last < b.Max*9/10 {
		t.Errorf("waits grow to %v only", last)
	}
}

func TestWhatOnlyAPersonCanMendIsTriedSlowly(t *testing.T) {
	b := Backoff{}.withDefaults()
	for _, c := range []struct {
		name     string
		attempts int
		reason   ingest.Reason
		slow     bool
	}{
		{"refused credentials at once", 1, ingest.ReasonAuthFailed, true},
		{"a codec nobody decodes", 1, ingest.ReasonCodecUnsupported, true},
		{"a wrong certificate", 1, ingest.ReasonTLSCert, true},
		{"a timeout", 1, ingest.ReasonTimeout, false},
		{"too many timeouts", 20, ingest.ReasonTimeout, true},
		{"a path that may appear", 3, ingest.ReasonNotFound, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			wait, quarantine := b.next(c.attempts, c.reason, func() float64 { return 0 })
			if quarantine != c.slow || (wait > 3*time.Minute) != c.slow {
				t.Errorf("waits %v, quarantine %v", wait, quarantine)
			}
		})
	}
	if wait, _ := b.next(1, ingest.ReasonCameraBusy, func() float64 { return 0 }); wait < b.Busy {
		t.Errorf("a busy camera is asked again after %v", wait)
	}
}

func TestEveryStageHasItsDeadline(t *testing.T) {
	d := Deadlines{}.withDefaults()
	p := progress{deadlines: d, start: 1000 * time.Second}
	now := p.start
	for stage := ingest.StageDial; stage <= ingest.StageFirstFrame; stage++ {
		got, at := p.waiting()
		if got != stage || at <= now || at > now+time.Minute {
			t.Errorf("waiting for %v until %v, want %v", got, at-now, stage)
		}
		now += time.Second
		p.reach(stage, now)
		for s := ingest.StagePackets; s <= ingest.StageFrames; s++ {
			p.reach(s, now)
		}
	}
	if !p.streaming() {
		t.Error("not streaming after the first frame")
	}
	for stage := ingest.StagePackets; stage <= ingest.StageFrames; stage++ {
		q := p
		for s := ingest.StagePackets; s <= ingest.StageFrames; s++ {
			q.reach(s, now+time.Hour)
		}
		q.reached[stage] = now
		if got, at := q.waiting(); got != stage || at < now || at > now+3*time.Minute {
			t.Errorf("waiting for %v until %v, want %v", got, at-now, stage)
		}
	}
}

// taker takes n units, then none.
type taker struct {
	room int
	got  []Coded
}

func (w *taker) Coded(c Coded) bool {
	if w.room == 0 {
		return false
	}
	w.room--
	w.got = append(w.got, c)
	return true
}

func coded(n, bytes int) Coded {
	return Coded{
		Number: uint64(n), Capture: time.Unix(int64(n), 0),
		Unit: ingest.AccessUnit{Data: make([]byte, bytes), Keyframe: n%5 == 0},
	}
}

func TestThePreRollBeginsWithAKeyframeAndFitsItsBytes(t *testing.T) {
	u := units{limit: 120}
	for n := range 40 {
		u.add(coded(n, 10))
		if u.bytes > 120 || (len(u.ring) > 0 && n > 12 && !u.ring[0].Unit.Keyframe) {
			t.Fatalf("after %d: %d bytes, first %d", n, u.bytes, u.ring[0].Number)
		}
	}
	w := &taker{room: 100}
	u.watch(w, 6*time.Second)
	if w.got[0].Number != 30 || w.got[len(w.got)-1].Number != 39 {
		t.Errorf("pre-roll from %d to %d", w.got[0].Number, w.got[len(w.got)-1].Number)
	}
	late := &taker{room: 100}
	u.watch(late, 0)
	if late.got[0].Number != 35 {
		t.Errorf("without pre-roll from %d, not from the newest keyframe", late.got[0].Number)
	}
	u.add(coded(40, 10))
	if last := w.got[len(w.got)-1].Number; last != 40 {
		t.Errorf("live goes on with %d", last)
	}
	u.setLimit(-1)
	if len(u.ring) != 0 {
		t.Error("no limit, but a ring")
	}
}

func TestASlowWatcherLosesWholeGroups(t *testing.T) {
	u := units{}
	w := &taker{room: 3}
	u.watch(w, 0)
	for n := range 30 {
		if n == 12 {
			w.room = 100
		}
		u.add(coded(n, 10))
	}
	var got []uint64
	for _, c := range w.got {
		got = append(got, c.Number)
		if c.Unit.Lost != (c.Number == 15) {
			t.Errorf("unit %d: lost %v", c.Number, c.Unit.Lost)
		}
	}
	if len(got) != 18 || got[2] != 2 || got[3] != 15 || u.droppedCount() != 12 {
		t.Errorf("got %v, dropped %d", got, u.dropped)
	}
}
