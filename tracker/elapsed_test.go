package tracker_test

import (
	"testing"
	"time"

	"github.com/vedette/vedette/tracker"
)

const ms = time.Millisecond

func box(x, y, w, h float64) tracker.Box {
	return tracker.Box{X1: x, Y1: y, X2: x + w, Y2: y + h}
}

func seen(boxes ...tracker.Box) []tracker.Detection {
	dets := make([]tracker.Detection, len(boxes))
	for i, b := range boxes {
		dets[i] = tracker.Detection{Box: b, Score: 0.9}
	}
	return dets
}

func newTracker(t testing.TB, cfg tracker.Config) *tracker.Tracker {
	t.Helper()
	tr, err := tracker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// walk is where a person walking right at 200 pixels a second is.
func walk(at time.Duration) tracker.Box { return box(100+200*at.Seconds(), 100, 60, 150) }

// follow updates at every step until a time and returns the last identity.
func follow(t *testing.T, tr *tracker.Tracker, from, to, step time.Duration) int64 {
	t.Helper()
	var id int64
	for at := from; at <= to; at += step {
		for _, track := range tr.Update(at, seen(walk(at))) {
			id = track.ID
		}
	}
	if id == 0 {
		t.Fatalf("nothing is followed until %v", to)
	}
	return id
}

func only(t *testing.T, tracks []tracker.Track) tracker.Track {
	t.Helper()
	if len(tracks) != 1 {
		t.Fatalf("%d tracks, want one: %+v", len(tracks), tracks)
	}
	return tracks[0]
}

func TestOneIdentityAtEveryRate(t *testing.T) {
	for _, step := range []time.Duration{20 * ms, 33 * ms, 100 * ms, 200 * ms} {
		t.Run(step.String(), func(t *testing.T) {
			tr := newTracker(t, tracker.Config{})
			if id := follow(t, tr, 0, 5*time.Second, step); id != 1 {
				t.Errorf("identity %d, want 1", id)
			}
			if n := tr.Stats().Tracks; n != 1 {
				t.Errorf("%d identities were given, want 1", n)
			}
		})
	}
}

// Who leaves his place between two frames overlaps with nothing he was.
func TestWhoIsFasterThanFramesIsFollowed(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		width, height, speed float64 // pixels a second
		step                 time.Duration
	}{
		{"who walks, at 2 frames a second", 35, 90, 75, 500 * ms},
		{"who runs, at 2 frames a second", 35, 90, 200, 500 * ms},
		{"who runs to the left, at 2 frames a second", 35, 90, -200, 500 * ms},
		{"a car, at 5 frames a second", 120, 52, 800, 200 * ms},
		{"a car, at 10 frames a second", 120, 52, 900, 100 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := newTracker(t, tracker.Config{})
			tr.Update(0, nil) // what is there in the first frame is taken as it is
			ids := map[int64]int{}
			frames := 0
			for at := tc.step; frames < 5; at += tc.step {
				for _, track := range tr.Update(at, seen(box(1000+tc.speed*at.Seconds(), 100, tc.width, tc.height))) {
					ids[track.ID]++
				}
				frames++
			}
			if len(ids) != 1 || ids[1] != frames-1 {
				t.Errorf("in %d frames it was seen as %v", frames, ids)
			}
		})
	}
}

// Where it could be either, nobody leaps: two stood there, and one is somewhere near.
func TestNobodyLeapsWhereItCouldBeEither(t *testing.T) {
	tr := newTracker(t, tracker.Config{})
	tr.Update(0, nil)
	tr.Update(500*ms, seen(box(100, 100, 35, 90), box(240, 100, 35, 90)))
	if got := tr.Update(1000*ms, seen(box(170, 100, 35, 90))); len(got) != 0 {
		t.Errorf("one between where two were is %+v", got)
	}
}

func TestOneIdentityAtIrregularTimes(t *testing.T) {
	tr := newTracker(t, tracker.Config{})
	steps := []time.Duration{33 * ms, 40 * ms, 200 * ms, 10 * ms, 33 * ms, 320 * ms, 0, 66 * ms, 33 * ms}
	at := time.Duration(0)
	for i := range 100 {
		at += steps[i%len(steps)]
		tr.Update(at, seen(walk(at)))
	}
	if n := tr.Stats().Tracks; n != 1 {
		t.Errorf("%d identities were given, want 1", n)
	}
}

func TestIdentitySurvivesMissedDetections(t *testing.T) {
	tr := newTracker(t, tracker.Config{})
	id := follow(t, tr, 0, time.Second, 40*ms)
	for at := 1040 * ms; at < 1400*ms; at += 40 * ms {
		if got := tr.Update(at, nil); len(got) != 0 {
			t.Fatalf("at %v a track is reported that nobody sees: %+v", at, got)
		}
	}
	if got := only(t, tr.Update(1400*ms, seen(walk(1400*ms)))); got.ID != id {
		t.Errorf("identity %d after a while unseen, want %d", got.ID, id)
	}
}

func TestLostTrackEndsByTimeNotFrames(t *testing.T) {
	for _, step := range []time.Duration{20 * ms, 250 * ms} {
		t.Run(step.String(), func(t *testing.T) {
			tr := newTracker(t, tracker.Config{Tuning: map[string]float64{"lost_ms": 2000}})
			id := follow(t, tr, 0, time.Second, 50*ms)
			for at := time.Second + step; ; at += step {
				tr.Update(at, nil)
				if len(tr.Ended()) == 0 {
					if at > 4*time.Second {
						t.Fatal("the track does not end")
					}
					continue
				}
				e := tr.Ended()[0]
				if e.ID != id || e.Reason != tracker.EndLost || e.Last != time.Second || e.At != at {
					t.Errorf("ended %+v, want id %d, last seen at 1s, at %v", e, id, at)
				}
				if late := at - 3*time.Second; late <= 0 || late > step {
					t.Errorf("ended at %v, want the first frame after 3s", at)
				}
				return
			}
		})
	}
}

func TestHeldTimeDoesNotCountAsLost(t *testing.T) {
	still := seen(box(100, 100, 60, 150))
	tr := newTracker(t, tracker.Config{})
	var id int64
	for at := time.Duration(0); at < time.Second; at += 50 * ms {
		for _, track := range tr.Update(at, still) {
			id = track.ID
		}
	}
	tr.Update(time.Second, nil) // lost before the camera is gated
	at := time.Second
	for range 600 {
		at += 500 * ms
		tr.Hold(at)
		if len(tr.Ended()) > 0 {
			t.Fatalf("a track ends at %v while held: %+v", at, tr.Ended())
		}
	}
	got := only(t, tr.Update(at+50*ms, still))
	if got.ID != id {
		t.Errorf("identity %d after five minutes held, want %d", got.ID, id)
	}
	if want := at + 50*ms; got.Age != want || got.Last != want || got.Start != 0 {
		t.Errorf("age %v, start %v, last %v; want age and last %v from 0", got.Age, got.Start, got.Last, want)
	}
	if s := tr.Stats(); s.Holds != 600 {
		t.Errorf("%d holds counted", s.Holds)
	}
}

func TestLongGapEndsEveryTrack(t *testing.T) {
	tr := newTracker(t, tracker.Config{})
	id := follow(t, tr, 0, time.Second, 50*ms)
	at := time.Second + time.Minute
	tr.Update(at, seen(walk(time.Second)))
	if len(tr.Ended()) != 1 || tr.Ended()[0].ID != id || tr.Ended()[0].Reason != tracker.EndGap {
		t.Fatalf("ended %+v, want track %d by gap", tr.Ended(), id)
	}
	if got := only(t, tr.Update(at+50*ms, seen(walk(time.Second)))); got.ID == id {
		t.Error("an identity comes back after a minute without frames")
	}
}

func TestSameInstantTwiceIsOneObject(t *testing.T) {
	tr := newTracker(t, tracker.Config{})
	id := follow(t, tr, 0, time.Second, 50*ms)
	for range 5 {
		if got := only(t, tr.Update(time.Second, seen(walk(time.Second)))); got.ID != id || got.Age != time.Second {
			t.Errorf("a second look gives %+v, want id %d and age 1s", got, id)
		}
	}
}

func TestTimeGoingBackwards(t *testing.T) {
	tr := newTracker(t, tracker.Config{})
	id := follow(t, tr, 10*time.Second, 11*time.Second, 50*ms)
	// The clock steps back by an hour; the person walks on.
	var got tracker.Track
	for i := range 20 {
		at := time.Duration(i)*50*ms - time.Hour
		b := walk(11*time.Second + time.Duration(i)*50*ms)
		got = only(t, tr.Update(at, seen(b)))
		if got.ID != id {
			t.Fatalf("step %d: identity %d, want %d", i, got.ID, id)
		}
		if want := time.Second + time.Duration(i)*50*ms; got.Age != want || got.Last != at || got.Start != at-want {
			t.Fatalf("step %d: age %v last %v start %v, want age %v and last %v", i, got.Age, got.Last, got.Start, want, at)
		}
	}
	if n := tr.Stats().Backwards; n != 1 {
		t.Errorf("%d steps back counted, want 1", n)
	}
}

func TestClassesDoNotMixUnlessGrouped(t *testing.T) {
	change := func(cfg tracker.Config) (before, after tracker.Track) {
		tr := newTracker(t, cfg)
		for i := range 10 {
			d := seen(box(100, 100, 80, 50))
			d[0].Class = 2
			for _, track := range tr.Update(time.Duration(i)*50*ms, d) {
				before = track
			}
		}
		for i := 10; i < 13; i++ {
			d := seen(box(100, 100, 80, 50))
			d[0].Class = 7
			for _, track := range tr.Update(time.Duration(i)*50*ms, d) {
				after = track
			}
		}
		return before, after
	}
	for _, mode := range []tracker.Mode{tracker.Default, tracker.Conformance} {
		t.Run(mode.String(), func(t *testing.T) {
			before, after := change(tracker.Config{Mode: mode})
			if before.ID == after.ID {
				t.Errorf("a car becomes a truck: %+v, %+v", before, after)
			}
			before, after = change(tracker.Config{Mode: mode, ClassGroups: [][]int{{2, 7}}})
			if before.ID != after.ID {
				t.Errorf("two identities for one object of grouped classes: %+v, %+v", before, after)
			}
			if mode == tracker.Default && after.Class != 2 {
				t.Errorf("class %d after ten looks at a 2 and three at a 7", after.Class)
			}
		})
	}
}

func TestLostTracksAreReportedOnRequest(t *testing.T) {
	tr := newTracker(t, tracker.Config{ReportLost: true})
	id := follow(t, tr, 0, time.Second, 50*ms)
	got := only(t, tr.Update(1050*ms, nil))
	if got.ID != id || got.State != tracker.Lost || got.Detection != -1 || got.Last != time.Second {
		t.Errorf("%+v, want track %d lost, last seen at 1s", got, id)
	}
	if want := walk(1050 * ms); distance(got.Box, want) > 5 {
		t.Errorf("believed at %v, is at %v", got.Box, want)
	}
}

func TestDetectionIndexIsTheCallers(t *testing.T) {
	for _, mode := range []tracker.Mode{tracker.Default, tracker.Conformance} {
		tr := newTracker(t, tracker.Config{Mode: mode})
		dets := seen(box(0, 0, 0, 9), box(500, 100, 40, 90), box(100, 100, 40, 90))
		var tracks []tracker.Track
		for i := range 3 {
			tracks = tr.Update(time.Duration(i)*40*ms, dets)
		}
		if len(tracks) != 2 {
			t.Fatalf("%v: %d tracks, want 2", mode, len(tracks))
		}
		for _, track := range tracks {
			if dets[track.Detection].Box != track.Box && distance(dets[track.Detection].Box, track.Box) > 1 {
				t.Errorf("%v: track at %v says detection %d", mode, track.Box, track.Detection)
			}
		}
	}
}

func TestCloseEndsEveryTrack(t *testing.T) {
	for _, mode := range []tracker.Mode{tracker.Default, tracker.Conformance} {
		tr := newTracker(t, tracker.Config{Mode: mode})
		id := follow(t, tr, 0, time.Second, 50*ms)
		tr.Close(1100 * ms)
		if e := tr.Ended(); len(e) != 1 || e[0].ID != id || e[0].Reason != tracker.EndClosed || e[0].At != 1100*ms {
			t.Errorf("%v: ended %+v, want track %d closed", mode, e, id)
		}
		tr.Close(1200 * ms)
		if len(tr.Ended()) != 0 {
			t.Errorf("%v: a track ends twice", mode)
		}
	}
}

// A camera that turns moves everything: no identity is lost over it.
func TestCameraMotionKeepsIdentities(t *testing.T) {
	tr := newTracker(t, tracker.Config{})
	for i := range 60 {
		shift := 0.0
		if i >= 30 {
			shift = 45 * float64(i-29) // more than half a person a frame
		}
		var boxes []tracker.Box
		for p := range 6 {
			boxes = append(boxes, box(200*float64(p)+shift, 100+30*float64(p%3), 70, 170))
		}
		tr.Update(time.Duration(i)*100*ms, seen(boxes...))
	}
	if n := tr.Stats().Tracks; n != 6 {
		t.Errorf("%d identities for six persons", n)
	}
}

// Frames that were held up on their way and stamped on arrival lie closer than they were taken.
func TestFramesStampedInBurstsKeepIdentities(t *testing.T) {
	tr := newTracker(t, tracker.Config{})
	for i := range 100 {
		at := time.Duration(i) * 100 * ms
		if held := i % 20; held < 5 {
			at += time.Duration(4-held)*100*ms + time.Duration(held)*time.Millisecond
		}
		var boxes []tracker.Box
		for p := range 6 {
			boxes = append(boxes, box(200*float64(p)+5*float64(i), 100+30*float64(p%3), 70, 170))
		}
		if got := tr.Update(at, seen(boxes...)); i > 0 && len(got) != 6 {
			t.Errorf("frame %d: %d persons of six", i, len(got))
		}
	}
	if n := tr.Stats().Tracks; n != 6 {
		t.Errorf("%d identities for six persons", n)
	}
}
