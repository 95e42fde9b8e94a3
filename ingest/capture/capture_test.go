package capture_test

import (
	"fmt"
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
		c.Report(ingest.SenderReport{Ticks: ingest.TicksOf(at), NTP: base.Add(at + shift(i)), Received: ingest.Instant{Mono: time.Hour + at, Wall: base.Add(at)}})
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

// camera is one whose timestamps are not what they should be.
type camera struct {
	name  string
	media func(rng *rand.Rand, at time.Duration) time.Duration
	rate  int // pictures a second
	long  time.Duration
	// What is held against the clock: epochs opened, and, of the pictures of the last minute, how far capture is from the
	// truth and how far apart pictures are that are 1/rate apart, as a share of that.
	epochs  int
	off     time.Duration
	rhythm  float64
	arrival bool // there is nothing but arrival to go by
}

func times(f float64) func(*rand.Rand, time.Duration) time.Duration {
	return func(_ *rand.Rand, at time.Duration) time.Duration { return time.Duration(float64(at) * f) }
}

func TestTimestampsOfEveryKindGiveCaptureTimes(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []camera{
		{"true", times(1), 25, 5 * time.Minute, 1, 60 * time.Millisecond, 0.2, false},
		{"500 ppm too fast, for a day", times(1.0005), 2, day, 1, 80 * time.Millisecond, 0.2, false},
		{"500 ppm too slow, for a day", times(0.9995), 2, day, 1, 80 * time.Millisecond, 0.2, false},
		{"30 pictures a second that are 29.97, for a day", times(30 / 29.97), 2, day, 1, 80 * time.Millisecond, 0.2, false},
		{"29.97 pictures a second that are 30, for a day", times(29.97 / 30), 2, day, 1, 80 * time.Millisecond, 0.2, false},
		{"1 % too fast", times(1.01), 25, 20 * time.Minute, 1, 60 * time.Millisecond, 0.2, false},
		{"1 % too slow", times(0.99), 25, 20 * time.Minute, 2, 60 * time.Millisecond, 0.2, false},
		{"25 % too fast", times(1.25), 25, 3 * time.Minute, 1, 60 * time.Millisecond, 0.2, false},
		{"25 % too slow", times(0.8), 25, 3 * time.Minute, 2, 60 * time.Millisecond, 0.2, false},
		{"ticks of 1/8000 s for those of 1/90000 s", times(8. / 90), 25, 3 * time.Minute, 2, 60 * time.Millisecond, 0.2, false},
		{"ticks of 1/1000 s for those of 1/90000 s", times(1. / 90), 25, 3 * time.Minute, 2, 60 * time.Millisecond, 0.2, false},
		{"ticks of 1/90000 s for those of 1/8000 s", times(90. / 8), 25, 3 * time.Minute, 1, 60 * time.Millisecond, 0.2, false},
		{"25 pictures a second that are 12 at night", func(_ *rand.Rand, at time.Duration) time.Duration {
			if at < 2*time.Minute {
				return at
			}
			return 2*time.Minute + (at-2*time.Minute)*12/25
		}, 12, 5 * time.Minute, 2, 60 * time.Millisecond, 0.2, false},
		{"12 pictures a second that are 25 by day", func(_ *rand.Rand, at time.Duration) time.Duration {
			if at < 2*time.Minute {
				return at * 12 / 25
			}
			return 2*time.Minute*12/25 + at - 2*time.Minute
		}, 25, 5 * time.Minute, 2, 60 * time.Millisecond, 0.3, false},
		{"forward by an hour now and then", func(_ *rand.Rand, at time.Duration) time.Duration { return at + at/(70*time.Second)*time.Hour }, 25, 5 * time.Minute, 5, 60 * time.Millisecond, 1, false},
		{"standing still", times(0), 25, 3 * time.Minute, 2, 60 * time.Millisecond, 0, true},
		{"standing still after a minute", func(_ *rand.Rand, at time.Duration) time.Duration { return min(at, time.Minute) }, 25, 3 * time.Minute, 2, 60 * time.Millisecond, 0, true},
		{"running backwards", times(-1), 25, 3 * time.Minute, 4, 60 * time.Millisecond, 0, true},
		{"drawn by lot", func(rng *rand.Rand, _ time.Duration) time.Duration {
			return time.Duration(rng.Int64N(int64(10 * time.Hour)))
		}, 25, 3 * time.Minute, 4, 60 * time.Millisecond, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t) })
	}
}

func (c camera) run(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	late := jitter(5*time.Millisecond, 50*time.Millisecond)
	var clock capture.Clock
	var before time.Time
	var played ingest.Ticks
	var received, worst time.Duration
	epochs, uneven, n := 1, 0.0, 0
	step := time.Second / time.Duration(c.rate)
	for at := time.Duration(0); at < c.long; at += step {
		n++
		received = max(at+late(n), received+time.Millisecond)
		ticks, now := ingest.TicksOf(c.media(rng, at)), ingest.Instant{Mono: time.Hour + received, Wall: base.Add(received)}
		s := clock.Unit(ticks, now)
		if s.Jumped {
			clock = clock.Next()
			before = time.Time{}
			epochs++
			s = clock.Unit(ticks, now)
		}
		if s.Jumped || s.Capture.After(now.Wall) || !c.arrival && !s.Capture.After(before) {
			t.Fatalf("picture at %v: %+v, received %v, the one before %v", at, s, now.Wall, before)
		}
		if at > c.long-time.Minute {
			worst = max(worst, s.Capture.Sub(base.Add(at)).Abs())
			if !before.IsZero() {
				uneven = max(uneven, float64((s.Capture.Sub(before)-step).Abs())/float64(step), float64(((s.Ticks-played).Duration()-step).Abs())/float64(step))
			}
		}
		before, played = s.Capture, s.Ticks
	}
	t.Logf("%d epochs, off by up to %v, steps by up to %.0f %%", epochs, worst, uneven*100)
	if epochs > c.epochs || worst > c.off || !c.arrival && uneven > c.rhythm {
		t.Errorf("more than %d epochs, %v or %.0f %%", c.epochs, c.off, c.rhythm*100)
	}
}

// What a network does to a camera's pictures says nothing of how its timestamps count.
func TestANetworkThatChokesChangesNoPace(t *testing.T) {
	for name, choke := range map[string]struct {
		late   func(at time.Duration) time.Duration
		epochs int
	}{
		"slower and slower, then all at once": {func(at time.Duration) time.Duration { return max(at%(60*time.Second)-40*time.Second, 0) / 5 }, 1},
		"nothing for eight seconds": {func(at time.Duration) time.Duration {
			if in := at % (60 * time.Second); in < 8*time.Second {
				return 8*time.Second - in
			}
			return 0
		}, 10},
		"half a second late for half an hour": {func(at time.Duration) time.Duration {
			if at > 2*time.Minute {
				return 500 * time.Millisecond
			}
			return 0
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var c capture.Clock
			var received time.Duration
			epochs := 1
			for i := range 25 * 300 {
				at := time.Duration(i) * 40 * time.Millisecond
				received = max(at+choke.late(at)+5*time.Millisecond, received+100*time.Microsecond)
				now := ingest.Instant{Mono: time.Hour + received, Wall: base.Add(received)}
				s := c.Unit(ingest.TicksOf(at), now)
				if s.Jumped {
					epochs, c = epochs+1, c.Next()
					s = c.Unit(ingest.TicksOf(at), now)
				}
				if off := s.Capture.Sub(base.Add(at)); at%(60*time.Second) > 20*time.Second && off.Abs() > 400*time.Millisecond {
					t.Fatalf("picture at %v is off by %v", at, off)
				}
			}
			if epochs > choke.epochs {
				t.Errorf("%d epochs", epochs)
			}
		})
	}
}

// Servers send what they keep since the last keyframe at once.
func TestPicturesOfABurstAreAsOldAsTheyAre(t *testing.T) {
	for _, kept := range []int{2, 50, 300} {
		t.Run(fmt.Sprintf("%d pictures", kept), func(t *testing.T) { burst(t, time.Duration(kept)) })
	}
}

func burst(t *testing.T, kept time.Duration) {
	var c capture.Clock
	at := func(i int) (ingest.Ticks, ingest.Instant) {
		taken := time.Duration(i) * 40 * time.Millisecond
		received := max(taken, kept*40*time.Millisecond+time.Duration(i)*time.Millisecond)
		return ingest.TicksOf(taken), ingest.Instant{Mono: time.Hour + received, Wall: base.Add(received)}
	}
	for i := range int(kept)*40/39 + 4 { // to the end of the burst
		c.Witness(at(i))
	}
	for i := range 500 {
		s := c.Unit(at(i))
		if s.Jumped {
			t.Fatalf("picture %d jumped", i)
		}
		if off := s.Capture.Sub(base.Add(time.Duration(i) * 40 * time.Millisecond)); off.Abs() > 5*time.Millisecond {
			t.Fatalf("picture %d is off by %v", i, off)
		}
	}
}

func TestAnOldReportSaysNothing(t *testing.T) {
	var c capture.Clock
	late := jitter(5*time.Millisecond, 50*time.Millisecond)
	feed(t, &c, 0, 500, late, 0)
	reports(&c, 3, func(int) time.Duration { return -300 * time.Millisecond }, 500)
	if _, last := feed(t, &c, 500, 500, late, 0); last.Quality != ingest.TimeSenderReport {
		t.Error("the reports are not used")
	}
	if _, last := feed(t, &c, 1000, 25*360, late, 0); last.Quality != ingest.TimeEstimated {
		t.Error("the reports are used after six minutes without any")
	}
}

// Reports that count RTP time by another clock than the packets, or whose clock wanders, tell no offset; a clock that was
// set tells its new one.
func TestReportsThatDoNotFitEachOtherTellNoOffset(t *testing.T) {
	for _, c := range []struct {
		name  string
		shift func(i int) time.Duration
		want  time.Duration
	}{
		{"another clock", func(i int) time.Duration { return time.Duration(i) * time.Hour }, 0},
		{"three hours ahead", func(int) time.Duration { return 3 * time.Hour }, 3 * time.Hour},
		{"set once", func(i int) time.Duration { return time.Duration(i/3) * time.Hour }, time.Hour},
	} {
		var clock capture.Clock
		feed(t, &clock, 0, 500, jitter(50*time.Millisecond, 60*time.Millisecond), 0)
		reports(&clock, 5, c.shift, 500)
		if _, off := clock.Reports(); (off - c.want).Abs() > time.Second {
			t.Errorf("%s: %v", c.name, off)
		}
	}
}

// A clock that counts another unit than it declares makes pictures follow each other hundreds of times a second.
func TestAClockOfAnotherUnitIsFollowedAfterASecond(t *testing.T) {
	for _, rate := range []float64{1000, 8000, 10000} {
		var c capture.Clock
		late := jitter(5*time.Millisecond, 50*time.Millisecond)
		epochs := 1
		var received time.Duration
		for i := range 25 * 120 {
			at := time.Duration(i) * 40 * time.Millisecond
			received = max(at+late(i), received+time.Millisecond)
			ticks, now := ingest.Ticks(at.Seconds()*rate), ingest.Instant{Mono: time.Hour + received, Wall: base.Add(received)}
			s := c.Unit(ticks, now)
			if s.Jumped {
				epochs, c = epochs+1, c.Next()
				s = c.Unit(ticks, now)
			}
			if off := s.Capture.Sub(base.Add(at)).Abs(); at > 1200*time.Millisecond && off > 400*time.Millisecond || at > time.Minute && off > 60*time.Millisecond {
				t.Fatalf("%v Hz: picture at %v is off by %v", rate, at, off)
			}
		}
		if epochs != 2 {
			t.Errorf("%v Hz: %d epochs", rate, epochs)
		}
	}
}

// Pictures that are shown before those they refer to come after them; a clock that was set back has pictures come again.
func TestAClockSetBackIsToldFromPicturesOutOfOrder(t *testing.T) {
	orders := map[string][]int{ // the places of a group's pictures, in decoding order
		"in order": {0}, "one between": {1, 0}, "three between": {3, 0, 1, 2}, "a pyramid": {3, 1, 0, 2}, "a high pyramid": {15, 7, 3, 1, 0, 2, 5, 4, 6, 11, 9, 8, 10, 13, 12, 14},
	}
	for name, places := range orders {
		for _, back := range []time.Duration{0, 300 * time.Millisecond, time.Second, 1900 * time.Millisecond} {
			for _, rate := range []int{5, 25} {
				if rate == 5 && (back == 300*time.Millisecond || len(places) > 1 && back > 0 || len(places) > 4) {
					continue // a picture or two
				}
				var c capture.Clock
				step := time.Second / time.Duration(rate)
				jumps, at := []int{}, 60*rate/len(places)*len(places)
				for i := range 120 * rate / len(places) * len(places) {
					now := time.Duration(i) * step
					media := time.Duration(i/len(places)*len(places)+places[i%len(places)]) * step
					if i >= at {
						media -= back
					}
					instant := ingest.Instant{Mono: time.Hour + now, Wall: base.Add(now)}
					s := c.Unit(ingest.TicksOf(time.Minute+media), instant)
					if s.Jumped {
						jumps, c = append(jumps, i), c.Next()
						s = c.Unit(ingest.TicksOf(time.Minute+media), instant)
					}
					if off := s.Capture.Sub(base.Add(now)).Abs(); off > time.Duration(2*len(places))*step && (i < at || i > at+10) {
						t.Fatalf("%s, back by %v at %d/s: picture %d is off by %v", name, back, rate, i, off)
					}
				}
				if want := min(int(back), 1); len(jumps) != want || want == 1 && (jumps[0] < at || jumps[0] > at+9) {
					t.Errorf("%s, back by %v at picture %d, %d/s: jumps at %v", name, back, at, rate, jumps)
				}
			}
		}
	}
}
