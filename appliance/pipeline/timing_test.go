package pipeline

import (
	"testing"
	"time"
)

func FuzzReadSteps(f *testing.F) {
	for _, s := range []string{"", "prepare=1,detector=22,boxes=3", "a=", "=1", "a=b", "a=1,,b=2", "x=-9223372036854775809"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range readSteps(text) {
			if s.model == "" {
				t.Errorf("%q: a step without a name", text)
			}
		}
	})
}

func TestRemediesComeOneAfterTheOtherUntilAnAnswer(t *testing.T) {
	const limit = 4 * time.Second
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	var r recovery
	for _, step := range []struct {
		after float64
		want  remedy
	}{
		{0, terminate},
		{0.1, nothing}, // another camera notices the same
		{4, replace},
		{4.5, nothing},
		{8, restart},
		{12, restart}, // it did not help, or nobody could
	} {
		if got := r.noAnswer(at(step.after), limit); got != step.want {
			t.Errorf("after %.1f s: %d, want %d", step.after, got, step.want)
		}
	}
	r.answered()
	if got := r.noAnswer(at(13), limit); got != terminate {
		t.Errorf("after an answer it begins with %d", got)
	}
}

func TestTheAnalysedRateIsRightWhateverTheClockShows(t *testing.T) {
	for _, start := range []time.Time{time.Unix(1_900_000_000, 0), time.Unix(-3600, 0), time.Date(1999, 12, 31, 23, 59, 55, 0, time.UTC)} {
		var r rate
		now := start
		for _, step := range []time.Duration{0, time.Hour, -time.Hour, 72 * time.Hour, -200 * time.Hour} {
			now = now.Add(step)
			for range 15 * 10 {
				now = now.Add(time.Second / 15)
				r.add(now)
				if got := r.perSecond(now); got > 18 {
					t.Fatalf("%s from %s on: %.1f frames a second, there are 15", step, start, got)
				}
			}
			if got := r.perSecond(now); got < 14 || got > 16 {
				t.Errorf("ten seconds after the clock went by %s from %s on: %.1f frames a second, there are 15", step, start, got)
			}
		}
	}
}

func TestTimingsForgetWhatIsNeverCommitted(t *testing.T) {
	ts := newTimings()
	for n := range int64(3 * maxPending) {
		ts.await(Timed{Camera: "door", Sequence: 1, Number: n})
	}
	if len(ts.pending) > maxPending {
		t.Errorf("%d frames wait for a commit", len(ts.pending))
	}
	for n := range int64(2 * kept) {
		ts.await(Timed{Camera: "door", Sequence: 2, Number: n, Capture: time.Unix(0, 0)})
		if _, ok := ts.committed(2, n, time.Unix(0, n)); !ok {
			t.Fatalf("frame %d is not known", n)
		}
	}
	if list := ts.done["door"]; len(list) != kept || list[kept-1].Number != 2*kept-1 {
		t.Errorf("%d frames are kept", len(list))
	}
	if _, ok := ts.committed(9, 9, time.Unix(0, 0)); ok {
		t.Error("a frame nobody announced is known")
	}
}

func TestOnlyWhatWouldHaveBeenAnalysedIsMissed(t *testing.T) {
	for _, c := range []struct{ wanted, analysed, lost, late, want float64 }{
		{5, 5, 0, 0, 0},
		{5, 3, 2, 0, 2},
		{5, 2.5, 0, 12, 2.5}, // of 12 coded pictures
		{5, 5, 0, 3, 0},      // the pictures between
		{5, 6, 0, 10, 0},
		{5, 2, 2, 10, 3},
		{0, 10, 1, 15, 16}, // every picture
		{0.1, 0, 0, 25, 0.1},
	} {
		if got := missed(c.wanted, c.analysed, c.lost, c.late); got != c.want {
			t.Errorf("missed(%v, %v, %v, %v) = %v, not %v", c.wanted, c.analysed, c.lost, c.late, got, c.want)
		}
	}
}
