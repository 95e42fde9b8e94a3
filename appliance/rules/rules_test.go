package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vedette/vedette/appliance/rules"
)

var epoch = time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC)

const frame = 100 * time.Millisecond

// at is an object of track 1-local whose anchor is there.
func at(local int64, class string, x, y float64) rules.Object {
	return rules.Object{Sequence: 1, Local: local, Class: class, Score: 0.9, X1: x - 0.01, X2: x + 0.01, Y1: y - 0.1, Y2: y}
}

// walk shows an engine one object a frame and ends its track; it returns short forms of the events.
func walk(e *rules.Engine, xs ...float64) []string {
	var events []rules.Event
	now := epoch
	for _, x := range xs {
		events = append(events, e.Observe(now, []rules.Object{at(1, "person", x, 0.5)})...)
		now = now.Add(frame)
	}
	return brief(append(events, e.End(1, 1, now)...))
}

func brief(events []rules.Event) []string {
	list := []string{}
	for _, e := range events {
		s := fmt.Sprintf("%s at %s", e.Type, e.Time.Sub(epoch))
		if e.Direction != "" {
			s += " " + e.Direction
		}
		if e.Spent != 0 {
			s += fmt.Sprintf(" spent %s", e.Spent)
		}
		if strings.HasPrefix(e.Type, "zone") {
			s += fmt.Sprintf(" inside %d", e.Inside)
		}
		if e.Reason != "" {
			s += " " + e.Reason
		}
		list = append(list, s)
	}
	return list
}

func square(inertia time.Duration) rules.Zone {
	return rules.Zone{
		Subject: rules.Subject{ID: "porch", Inertia: inertia},
		Polygon: []rules.Point{{X: 0.4, Y: 0.4}, {X: 0.6, Y: 0.4}, {X: 0.6, Y: 0.6}, {X: 0.4, Y: 0.6}},
	}
}

// gate runs down the middle of the picture: its left is where x is large.
func gate(inertia time.Duration) rules.Line {
	return rules.Line{Subject: rules.Subject{ID: "gate", Inertia: inertia}, From: rules.Point{X: 0.5, Y: 0.1}, To: rules.Point{X: 0.5, Y: 0.9}}
}

func TestZone(t *testing.T) {
	in, out := 0.5, 0.1
	for _, tc := range []struct {
		name string
		zone func(*rules.Zone)
		path []float64
		want []string
	}{
		{
			"inside and outside count after the inertia, and the visit is measured from when it began", nil,
			[]float64{out, in, in, in, in, out, out, out, out},
			[]string{"zone_entered at 400ms inside 1", "zone_left at 800ms spent 400ms inside 0"},
		},
		{"a visit shorter than the inertia is none", nil, []float64{out, in, in, in, out, out}, []string{}},
		{
			"an absence shorter than the inertia does not break a visit", nil,
			[]float64{in, in, in, in, out, out, in, in},
			[]string{"zone_entered at 300ms inside 1", "zone_left at 800ms spent 800ms inside 0 track_ended"},
		},
		{
			"an object last seen outside left when it was seen there", nil,
			[]float64{in, in, in, in, in, out, out},
			[]string{"zone_entered at 300ms inside 1", "zone_left at 700ms spent 500ms inside 0 track_ended"},
		},
		{
			"dwell is told once a visit", func(z *rules.Zone) { z.Inertia, z.Dwell = 0, 200*time.Millisecond },
			[]float64{in, in, in, in, out, in, in, in},
			[]string{
				"zone_entered at 0s inside 1", "zone_dwell at 200ms spent 200ms inside 1", "zone_left at 400ms spent 400ms inside 0",
				"zone_entered at 500ms inside 1", "zone_dwell at 700ms spent 200ms inside 1", "zone_left at 800ms spent 300ms inside 0 track_ended",
			},
		},
		{
			"loitering adds visits up and is told once", func(z *rules.Zone) { z.Inertia, z.Loitering = 0, 400*time.Millisecond },
			[]float64{in, in, in, out, in, in, in, in, in},
			[]string{
				"zone_entered at 0s inside 1", "zone_left at 300ms spent 300ms inside 0", "zone_entered at 400ms inside 1",
				"zone_loitering at 500ms spent 400ms inside 1", "zone_left at 900ms spent 500ms inside 0 track_ended",
			},
		},
		{"other classes are not seen", func(z *rules.Zone) { z.Classes = []string{"car"} }, []float64{in, in, in, in, in}, []string{}},
		{"low scores are not seen", func(z *rules.Zone) { z.MinScore = 0.95 }, []float64{in, in, in, in, in}, []string{}},
		{"the centre of the box may stand for the object", func(z *rules.Zone) {
			z.Center, z.Inertia = true, 0
			z.Polygon = []rules.Point{{X: 0.4, Y: 0.44}, {X: 0.6, Y: 0.44}, {X: 0.5, Y: 0.46}}
		}, []float64{in, out}, []string{"zone_entered at 0s inside 1", "zone_left at 100ms spent 100ms inside 0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			z := square(300 * time.Millisecond)
			if tc.zone != nil {
				tc.zone(&z)
			}
			if diff := cmp.Diff(tc.want, walk(rules.New(rules.Set{Zones: []rules.Zone{z}}), tc.path...)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestLine(t *testing.T) {
	l, r := 0.7, 0.3 // left and right of the gate
	for _, tc := range []struct {
		name string
		path []float64
		want []string
	}{
		{"left to right is forward", []float64{l, r, r, r}, []string{"line_crossed at 300ms forward"}},
		{"right to left is backward", []float64{r, l, l, l}, []string{"line_crossed at 300ms backward"}},
		{"flicker is nothing", []float64{l, r, l, r, r, l, r, l, l, l}, []string{}},
		{"a stop on the line is nothing", []float64{l, 0.5, 0.5, 0.5, 0.5, l, l}, []string{}},
		{"a stop on the line does not hide a crossing", []float64{l, 0.5, 0.5, r, r, r}, []string{"line_crossed at 500ms forward"}},
		{"there and back is both", []float64{l, r, r, r, l, l, l}, []string{"line_crossed at 300ms forward", "line_crossed at 600ms backward"}},
		{"a track that ends on its way back has come back", []float64{l, r, r, r, l}, []string{"line_crossed at 300ms forward", "line_crossed at 500ms backward track_ended"}},
		{"a track that ends at once just over the line has not crossed", []float64{l, l, 0.497}, []string{}},
		{"a track that ends at once clear of the line has crossed", []float64{l, l, r}, []string{"line_crossed at 300ms forward track_ended"}},
		{"whoever is clear of it for a moment and back has not crossed", []float64{l, l, r, l}, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := walk(rules.New(rules.Set{Lines: []rules.Line{gate(200 * time.Millisecond)}}), tc.path...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWhoGoesRoundTheEndOfALineDoesNotCrossIt(t *testing.T) {
	e := rules.New(rules.Set{Lines: []rules.Line{gate(0)}})
	var events []rules.Event
	for i, p := range []rules.Point{{X: 0.7, Y: 0.95}, {X: 0.3, Y: 0.95}, {X: 0.3, Y: 0.5}, {X: 0.7, Y: 0.5}} {
		events = append(events, e.Observe(epoch.Add(time.Duration(i)*frame), []rules.Object{at(1, "person", p.X, p.Y)})...)
	}
	if diff := cmp.Diff([]string{"line_crossed at 300ms backward"}, brief(events)); diff != "" {
		t.Errorf("round the end and back over the line (-want +got):\n%s", diff)
	}
}

func TestTracksAndClassesDoNotPool(t *testing.T) {
	for _, tc := range []struct {
		name   string
		second rules.Object
	}{
		{"another track", at(2, "person", 0.3, 0.5)},
		{"the same number in another sequence", rules.Object{Sequence: 2, Local: 1, Class: "person", Score: 0.9, X1: 0.29, X2: 0.31, Y1: 0.4, Y2: 0.5}},
		{"the same track as another class", at(1, "car", 0.3, 0.5)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := rules.New(rules.Set{Lines: []rules.Line{gate(0)}})
			events := e.Observe(epoch, []rules.Object{at(1, "person", 0.7, 0.5)})
			events = append(events, e.Observe(epoch.Add(frame), []rules.Object{tc.second})...)
			if len(events) != 0 {
				t.Errorf("one seen on the left and another on the right made %v", brief(events))
			}
		})
	}
}

func TestOccupancyCountsTracks(t *testing.T) {
	z := square(0)
	z.Occupancy = 2
	e := rules.New(rules.Set{Zones: []rules.Zone{z}})
	var events []rules.Event
	show := func(n int, objects ...rules.Object) {
		events = append(events, e.Observe(epoch.Add(time.Duration(n)*frame), objects)...)
	}
	show(0, at(1, "person", 0.5, 0.5))
	show(1, at(1, "car", 0.5, 0.5)) // one object under two classes is one
	show(2, at(1, "person", 0.5, 0.5), at(2, "person", 0.45, 0.5))
	show(3, at(1, "person", 0.5, 0.5))
	events = append(events, e.End(1, 2, epoch.Add(4*frame))...)
	events = append(events, e.EndSequence(1, epoch.Add(5*frame))...)
	var got []string
	for _, s := range brief(events) {
		if strings.HasPrefix(s, "zone_occupied") || strings.HasPrefix(s, "zone_cleared") {
			got = append(got, s)
		}
	}
	if diff := cmp.Diff([]string{"zone_occupied at 200ms inside 2", "zone_cleared at 400ms inside 1"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A frame a moment early must not cost a crossing of which just so many are seen.
func TestFramesMayComeAMomentEarly(t *testing.T) {
	const step = 199 * time.Millisecond
	e := rules.New(rules.Set{Zones: []rules.Zone{square(200 * time.Millisecond)}, Lines: []rules.Line{gate(200 * time.Millisecond)}})
	var events []rules.Event
	for i, x := range []float64{0.52, 0.52, 0.49, 0.49} {
		events = append(events, e.Observe(epoch.Add(time.Duration(i)*step), []rules.Object{at(1, "person", x, 0.5)})...)
	}
	if diff := cmp.Diff([]string{"zone_entered at 199ms inside 1", "line_crossed at 597ms forward"}, brief(events)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Boxes of whoever stands on a line or an edge move by some of their size.
func TestWhoStandsOnALineDoesNotCrossItNorOnAnEdgeComeAndGo(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	edge := square(300 * time.Millisecond)
	e := rules.New(rules.Set{Zones: []rules.Zone{edge}, Lines: []rules.Line{gate(200 * time.Millisecond)}})
	var events []rules.Event
	now := epoch
	see := func(x, y float64) {
		o := rules.Object{Sequence: 1, Local: 1, Class: "person", Score: 0.9, X1: x - 0.05, X2: x + 0.05, Y1: y - 0.3, Y2: y}
		events = append(events, e.Observe(now, []rules.Object{o})...)
		now = now.Add(200 * time.Millisecond)
	}
	for range 200 { // on the line, outside the zone
		see(0.5+0.018*(r.Float64()-0.5), 0.7)
	}
	for range 200 { // right of the line, on the lower edge of the zone
		see(0.45, 0.6+0.05*(r.Float64()-0.5))
	}
	see(0.45, 0.8)
	see(0.45, 0.8)
	see(0.45, 0.8)
	got := map[string]int{}
	for _, ev := range events {
		got[ev.Type]++
	}
	if got[rules.LineCrossed] > 1 || got[rules.ZoneEntered] != 1 || got[rules.ZoneLeft] != 1 {
		t.Errorf("made %v", brief(events))
	}
}

// While nothing moves frames are held back, and who stands still stays where it is.
func TestWhoStandsStillStaysHoweverRareFramesAre(t *testing.T) {
	z := square(0)
	z.Dwell = 30 * time.Second
	var frames []rules.Frame
	for i := range 5 {
		frames = append(frames, rules.Frame{Time: epoch.Add(time.Duration(i) * 10100 * time.Millisecond), Objects: []rules.Object{at(1, "person", 0.5, 0.5)}})
	}
	// Until the gate opens.
	for _, s := range []int{50, 51, 52} {
		frames = append(frames, rules.Frame{Time: epoch.Add(time.Duration(s) * time.Second), Objects: []rules.Object{at(2, "person", 0.1, 0.5)}})
	}
	e := rules.New(rules.Set{Zones: []rules.Zone{z}})
	var events []rules.Event
	for _, f := range frames {
		events = append(events, e.Observe(f.Time, f.Objects)...)
	}
	events = append(events, e.End(1, 1, epoch.Add(52*time.Second))...)
	want := []string{
		"zone_entered at 0s inside 1", "zone_dwell at 30.3s spent 30.3s inside 1", "zone_left at 52s spent 50s inside 0 track_ended",
	}
	if diff := cmp.Diff(want, brief(events)); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
	want[2] = "zone_left at 40.4s spent 40.4s inside 0 track_ended" // history has no frames that show nothing
	events = slices.Collect(rules.Replay(rules.Set{Zones: []rules.Zone{z}}, slices.Values(frames)))
	if diff := cmp.Diff(want, brief(events)); diff != "" {
		t.Errorf("over history (-want +got):\n%s", diff)
	}
}

// Another track's end says nothing of who is there, and who is missed later left then.
func TestWhoIsNoLongerSeenLeftWhenHeWasMissed(t *testing.T) {
	e := rules.New(rules.Set{Zones: []rules.Zone{square(0)}})
	here, away := at(1, "person", 0.5, 0.5), at(2, "person", 0.1, 0.5)
	e.Observe(epoch, []rules.Object{here, away})
	e.Observe(epoch.Add(time.Second), []rules.Object{here})
	e.End(1, 2, epoch.Add(time.Second))
	for s := 12; s < 16; s++ {
		e.Observe(epoch.Add(time.Duration(s)*time.Second), nil)
	}
	got := brief(e.End(1, 1, epoch.Add(15*time.Second)))
	if diff := cmp.Diff([]string{"zone_left at 15s spent 12s inside 0 track_ended"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestChangedRulesLetGoAndOthersGoOn(t *testing.T) {
	kept, changed := square(0), square(0)
	kept.ID, changed.ID = "kept", "changed"
	e := rules.New(rules.Set{Zones: []rules.Zone{kept, changed}})
	e.Observe(epoch, []rules.Object{at(1, "person", 0.5, 0.5)})
	changed.Revision = "2"
	got := e.Change(rules.Set{Zones: []rules.Zone{changed, kept}})
	if len(got) != 1 || got[0].Rule != "changed" || got[0].Type != rules.ZoneLeft || got[0].Reason != rules.RuleChanged {
		t.Errorf("the change made %v", brief(got))
	}
	got = e.Observe(epoch.Add(frame), []rules.Object{at(1, "person", 0.5, 0.5)})
	if len(got) != 1 || got[0].Rule != "changed" || got[0].Type != rules.ZoneEntered {
		t.Errorf("the next frame made %v", brief(got))
	}
}

func TestScheduleOpensAndClosesAZone(t *testing.T) {
	z := square(0)
	z.Schedule = &rules.Schedule{Periods: []rules.Period{{Start: 12*60 + 1, End: 12*60 + 2}}}
	e := rules.New(rules.Set{Zones: []rules.Zone{z}})
	var events []rules.Event
	for s := 0; s <= 150; s += 5 {
		events = append(events, e.Observe(epoch.Add(time.Duration(s)*time.Second), []rules.Object{at(1, "person", 0.5, 0.5)})...)
	}
	want := []string{"zone_entered at 1m0s inside 1", "zone_left at 2m0s spent 1m0s inside 0 off_schedule"}
	if diff := cmp.Diff(want, brief(events)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSchedule(t *testing.T) {
	oslo, err := time.LoadLocation("Europe/Oslo")
	if err != nil {
		t.Skipf("no time zones here: %v", err)
	}
	night := rules.Schedule{Location: oslo, Periods: []rules.Period{{Start: 22 * 60, End: 6 * 60}}}
	night.Periods[0].Days[time.Friday] = true
	for _, tc := range []struct {
		local string
		want  bool
	}{
		{"2031-05-09 21:59", false}, // a Friday
		{"2031-05-09 22:00", true},
		{"2031-05-10 05:59", true},
		{"2031-05-10 06:00", false},
		{"2031-05-10 23:00", false},
		{"2031-05-09 03:00", false}, // Thursday's night
		{"2031-03-29 23:30", false}, // a Saturday
	} {
		at, err := time.ParseInLocation("2006-01-02 15:04", tc.local, oslo)
		if err != nil {
			t.Fatal(err)
		}
		if got := night.Active(at.UTC()); got != tc.want {
			t.Errorf("%s: active %v", tc.local, got)
		}
	}
	day := rules.Schedule{Periods: []rules.Period{{Start: 0, End: 0}}}
	if !day.Active(epoch) || !day.Active(epoch.Add(12*time.Hour)) {
		t.Error("a period that ends when it starts is not the whole day")
	}
}

func TestCountsAreByBucketRuleClassAndDirection(t *testing.T) {
	c := rules.Counts{Length: time.Hour}
	for _, m := range []int{0, 59, 60} {
		c.Add(rules.Event{Type: rules.LineCrossed, Rule: "gate", Class: "person", Direction: rules.Forward, Time: epoch.Add(time.Duration(m) * time.Minute)})
	}
	c.Add(rules.Event{Type: rules.LineCrossed, Rule: "gate", Class: "person", Direction: rules.Backward, Time: epoch})
	c.Add(rules.Event{Type: rules.LineCrossed, Rule: "gate", Class: "car", Direction: rules.Forward, Time: epoch})
	c.Add(rules.Event{Type: rules.ZoneLeft, Rule: "porch", Class: "car", Time: epoch})
	var got []string
	for b, n := range c.All() {
		got = append(got, fmt.Sprint(b.Start.Format("15:04"), " ", b.Rule, " ", b.Class, " ", b.Direction, " ", n))
	}
	want := []string{"12:00 gate car forward 1", "12:00 gate person backward 1", "12:00 gate person forward 2", "13:00 gate person forward 1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Counts of a day are in one bucket, and every day has its own, whatever clocks do in it.
func TestADayIsOneBucketWhateverClocksDo(t *testing.T) {
	for _, zone := range []string{
		"UTC", "Europe/Oslo", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana", "America/Santiago", "Atlantic/Azores", "Asia/Gaza", "Asia/Kathmandu",
	} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Skipf("no time zones here: %v", err)
		}
		day := rules.Counts{Length: 24 * time.Hour, Location: loc}
		hour := rules.Counts{Length: time.Hour, Location: loc}
		n := map[string]int64{}
		for at := time.Date(2016, 1, 1, 0, 15, 0, 0, loc); at.Year() < 2017; at = at.Add(30 * time.Minute) {
			n[at.Format(time.DateOnly)]++
			day.Add(rules.Event{Type: rules.LineCrossed, Time: at})
			hour.Add(rules.Event{Type: rules.LineCrossed, Time: at})
		}
		got := map[string]int64{}
		for b, count := range day.All() {
			got[b.Start.In(loc).Format(time.DateOnly)] += count
			if before := b.Start.Add(-1).In(loc); before.Day() == b.Start.In(loc).Day() {
				t.Errorf("%s: the bucket of %s does not begin with the day", zone, b.Start.In(loc))
			}
		}
		if diff := cmp.Diff(n, got); diff != "" || len(slices.Collect(keysOf(&day))) != len(n) {
			t.Errorf("%s: %d buckets for %d days (-want +got):\n%s", zone, len(slices.Collect(keysOf(&day))), len(n), diff)
		}
		for b, count := range hour.All() {
			if count > 2 {
				t.Errorf("%s: the hour of %s has %d half hours", zone, b.Start.In(loc), count)
			}
		}
	}
}

func keysOf(c *rules.Counts) func(func(rules.Bucket) bool) {
	return func(yield func(rules.Bucket) bool) {
		for b := range c.All() {
			if !yield(b) {
				return
			}
		}
	}
}
