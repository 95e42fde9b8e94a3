package capture_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/capture"
)

var base = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// feed sends n pictures at 25 a second with the given delays and returns the last stamp's distance from the
// true time of its picture, and the largest distance of the second half.
func feed(t *testing.T, c *capture.Clock, from, n int, delay func(i int) time.Duration, ppm float64) (worst time.Duration, last capture.Stamp) {
	t.Helper()
	var before time.Time
	var received time.Duration
	for i := from; i < from+n; i++ {
		at := time.Duration(i) * 40 * time.Millisecond // true time of the picture
		media := ingest.TicksOf(time.Duration(float64(at) * (1 + ppm/1e6)))
		received = max(at+delay(i), received+time.Millisecond) // in order
		last = c.Unit(media, ingest.Instant{Mono: time.Hour + received, Wall: base.Add(received)})
		if last.Jumped {
			t.Fatalf("picture %d: jumped", i)
		}
		if last.Capture.After(base.Add(received)) {
			t.Fatalf("picture %d was captured %v after it was received", i, last.Capture.Sub(base.Add(received)))
		}
		if !last.Capture.After(before) && i > from {
			t.Fatalf("picture %d was captured no later than the one before it", i)
		}
		before = last.Capture
		if i > from+n/2 {
			worst = max(worst, last.Capture.Sub(base.Add(at)).Abs())
		}
	}
	return worst, last
}

func jitter(least, most time.Duration) func(int) time.Duration {
	rng := rand.New(rand.NewPCG(1, 2))
	return func(int) time.Duration { return least + time.Duration(rng.Int64N(int64(most-least)+1)) }
}

func TestTheQuickestPacketsTellTheTime(t *testing.T) {
	var c capture.Clock
	worst, last := feed(t, &c, 0, 2000, jitter(5*time.Millisecond, 45*time.Millisecond), 0)
	if worst > 20*time.Millisecond || last.Quality != ingest.TimeEstimated {
		t.Errorf("off by up to %v, quality %v", worst, last.Quality)
	}
}

func TestADriftingCameraIsFollowedForAnHour(t *testing.T) {
	for _, ppm := range []float64{-400, 400} {
		var c capture.Clock
		worst, _ := feed(t, &c, 0, 25*3600, jitter(5*time.Millisecond, 50*time.Millisecond), ppm)
		if worst > 60*time.Millisecond {
			t.Errorf("%v ppm: off by up to %v", ppm, worst)
		}
	}
}

func reports(c *capture.Clock, n int, shift func(i int) time.Duration, until int) {
	for i := range n {
		at := time.Duration(until)*40*time.Millisecond + time.Duration(i-n)*5*time.Second
		c.Report(ingest.SenderReport{Ticks: ingest.TicksOf(at), NTP: base.Add(at + shift(i)), Received: ingest.Instant{Wall: base.Add(at)}})
	}
}

func TestSenderReportsAreUsedWhenTheyAgreeAndAreSane(t *testing.T) {
	year := func(y int) time.Duration { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC).Sub(base) }
	for _, c := range []struct {
		name    string
		shift   func(i int) time.Duration
		quality ingest.TimeQuality
	}{
		{"a right clock", func(int) time.Duration { return 0 }, ingest.TimeSenderReport},
		{"a clock a little slow", func(int) time.Duration { return -300 * time.Millisecond }, ingest.TimeSenderReport},
		{"a clock a little ahead", func(int) time.Duration { return 100 * time.Millisecond }, ingest.TimeSenderReport},
		{"a clock ahead of arrival", func(int) time.Duration { return 300 * time.Millisecond }, ingest.TimeEstimated},
		{"1970", func(int) time.Duration { return year(1970) }, ingest.TimeEstimated},
		{"three hours ahead", func(int) time.Duration { return 3 * time.Hour }, ingest.TimeEstimated},
		{"a clock that wanders", func(i int) time.Duration { return time.Duration(i%2) * time.Second }, ingest.TimeEstimated},
	} {
		t.Run(c.name, func(t *testing.T) {
			var clock capture.Clock
			feed(t, &clock, 0, 500, jitter(50*time.Millisecond, 60*time.Millisecond), 0)
			reports(&clock, 4, c.shift, 500)
			_, last := feed(t, &clock, 500, 500, jitter(50*time.Millisecond, 60*time.Millisecond), 0)
			if last.Quality != c.quality {
				t.Errorf("quality %v", last.Quality)
			}
			if arrive, _ := clock.Reports(); !arrive {
				t.Error("the reports were not noticed")
			}
		})
	}
}

func TestSenderReportsRemoveTheDelay(t *testing.T) {
	var c capture.Clock
	feed(t, &c, 0, 500, jitter(200*time.Millisecond, 210*time.Millisecond), 0)
	reports(&c, 3, func(int) time.Duration { return 0 }, 500)
	worst, _ := feed(t, &c, 500, 1000, jitter(200*time.Millisecond, 210*time.Millisecond), 0)
	if worst > 5*time.Millisecond {
		t.Errorf("off by up to %v with a camera that tells its time", worst)
	}
}

// A camera's clock is rarely right to the network's delay: pictures keep their rhythm, which trackers measure speed by.
func TestPicturesKeepTheirRhythmWhateverTheClockSays(t *testing.T) {
	for _, shift := range []time.Duration{-time.Second, 0, 10 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond, 1900 * time.Millisecond} {
		var c capture.Clock
		late := jitter(5*time.Millisecond, 150*time.Millisecond)
		feed(t, &c, 0, 500, late, 0)
		reports(&c, 3, func(int) time.Duration { return shift }, 500)
		var before time.Time
		var received time.Duration
		for i := 500; i < 2000; i++ {
			at := time.Duration(i) * 40 * time.Millisecond
			received = max(at+late(i), received+time.Millisecond)
			got := c.Unit(ingest.TicksOf(at), ingest.Instant{Mono: time.Hour + received, Wall: base.Add(received)}).Capture
			if step := got.Sub(before); i > 500 && (step < 25*time.Millisecond || step > 55*time.Millisecond) {
				t.Errorf("a clock %v ahead: picture %d is %v after the one before it, not 40 ms", shift, i, step)
				break
			}
			before = got
		}
	}
}

func TestATornRelationOfMediaTimeIsReported(t *testing.T) {
	for name, ticks := range map[string]ingest.Ticks{"forward": 90000 * 60, "backward": -90000 * 60} {
		var c capture.Clock
		_, _ = feed(t, &c, 0, 100, jitter(0, time.Millisecond), 0)
		if s := c.Unit(90000*4+ticks, ingest.Instant{Mono: time.Hour + 4*time.Second, Wall: base.Add(4 * time.Second)}); !s.Jumped {
			t.Errorf("a jump %s was not noticed", name)
		}
	}
}

func TestAStepOfTheBoxesClockDoesNotTearAnEpoch(t *testing.T) {
	var c capture.Clock
	_, before := feed(t, &c, 0, 100, jitter(0, time.Millisecond), 0)
	at := 4 * time.Second
	s := c.Unit(ingest.TicksOf(at), ingest.Instant{Mono: time.Hour + at, Wall: base.Add(at + 3*time.Hour)})
	if d := s.Capture.Sub(before.Capture); d < 30*time.Millisecond || d > 50*time.Millisecond {
		t.Errorf("the next picture is %v later", d)
	}
}
