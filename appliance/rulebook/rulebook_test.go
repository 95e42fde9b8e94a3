package rulebook_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/rulebook"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type box struct {
	store   *store.Store
	cameras *cameras.Registry
	book    *rulebook.Book
	stop    func()
}

// open opens a box with the cameras door and yard over dir.
func open(t *testing.T, dir string) *box {
	t.Helper()
	b := &box{store: store.New(store.Config{Dir: dir, Window: time.Millisecond})}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := b.store.Run(ctx); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	<-b.store.Ready()
	b.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(b.stop)
	secrets, err := secret.Open(filepath.Join(dir, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	b.cameras = cameras.New(cameras.Config{Store: b.store, Secrets: secrets})
	if err := b.cameras.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"door", "yard"} {
		_, err := b.cameras.Create(t.Context(), id, &vedettev1.Camera{Source: &vedettev1.Source{Uri: "rtsp://camera.example/" + id}}, false)
		if err != nil && !errors.Is(err, store.ErrExists) {
			t.Fatal(err)
		}
	}
	b.book = rulebook.New(rulebook.Config{Store: b.store, Cameras: b.cameras})
	if err := b.book.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

func porch() *vedettev1.Zone {
	return &vedettev1.Zone{
		DisplayName: "Porch", Classes: []string{"person"}, Inertia: durationpb.New(0),
		Polygon: []*vedettev1.Point{{X: 0.25, Y: 0.25}, {X: 0.75, Y: 0.25}, {X: 0.75, Y: 0.75}, {X: 0.25, Y: 0.75}},
	}
}

func gate() *vedettev1.Line {
	return &vedettev1.Line{Start: &vedettev1.Point{X: 0.5, Y: 0}, End: &vedettev1.Point{X: 0.5, Y: 1}, Inertia: durationpb.New(0)}
}

func (b *box) add(t *testing.T) (*vedettev1.Zone, *vedettev1.Line) {
	t.Helper()
	z, err := b.book.CreateZone(t.Context(), &vedettev1.CreateZoneRequest{Parent: "cameras/door", ZoneId: "porch", Zone: porch()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.book.CreateLine(t.Context(), &vedettev1.CreateLineRequest{Parent: "cameras/door", LineId: "gate", Line: gate()})
	if err != nil {
		t.Fatal(err)
	}
	return z, l
}

func TestRulesAreThereAfterARestart(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	z, l := b.add(t)
	if z.GetName() != "cameras/door/zones/porch" || z.GetUid() == "" || z.GetEtag() == "" || z.GetCreateTime() == nil {
		t.Errorf("created %v", z)
	}
	b.stop()
	b = open(t, dir)
	gotZ, err := b.book.GetZone(t.Context(), &vedettev1.GetZoneRequest{Name: z.GetName()})
	if diff := cmp.Diff(z, gotZ, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("zone after the restart: %v (-before +after):\n%s", err, diff)
	}
	gotL, err := b.book.GetLine(t.Context(), &vedettev1.GetLineRequest{Name: l.GetName()})
	if diff := cmp.Diff(l, gotL, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("line after the restart: %v (-before +after):\n%s", err, diff)
	}
}

func TestUpdateChangesWhatTheMaskNames(t *testing.T) {
	b := open(t, t.TempDir())
	z, _ := b.add(t)
	update := func(z *vedettev1.Zone, paths ...string) (*vedettev1.Zone, error) {
		return b.book.UpdateZone(t.Context(), &vedettev1.UpdateZoneRequest{Zone: z, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	}
	got, err := update(&vedettev1.Zone{Name: z.GetName(), DisplayName: "Step"}, "display_name", "classes")
	if err != nil || got.GetDisplayName() != "Step" || len(got.GetClasses()) != 0 || len(got.GetPolygon()) != 4 || got.GetEtag() == z.GetEtag() {
		t.Errorf("got %v, %v", got, err)
	}
	var conflict *store.ConflictError
	if _, err := update(&vedettev1.Zone{Name: z.GetName(), Etag: z.GetEtag(), DisplayName: "late"}, "display_name"); !errors.As(err, &conflict) {
		t.Errorf("with an old etag: %v", err)
	}
	if _, err := update(&vedettev1.Zone{Name: z.GetName()}, "uid"); err == nil {
		t.Error("the uid could be changed")
	}
	if _, err := update(&vedettev1.Zone{Name: "cameras/door/zones/none", DisplayName: "x"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("unknown zone: %v", err)
	}
	made, err := b.book.UpdateLine(t.Context(), &vedettev1.UpdateLineRequest{AllowMissing: true, Line: func() *vedettev1.Line {
		l := gate()
		l.Name = "cameras/yard/lines/fence"
		return l
	}()})
	if err != nil || made.GetUid() == "" {
		t.Errorf("allow_missing: %v, %v", made, err)
	}
}

func TestEveryFaultIsReported(t *testing.T) {
	b := open(t, t.TempDir())
	for _, tc := range []struct {
		name  string
		spoil func(*vedettev1.Zone)
		field string
	}{
		{"two corners are no zone", func(z *vedettev1.Zone) { z.Polygon = z.Polygon[:2] }, "zone.polygon"},
		{"a corner outside the picture", func(z *vedettev1.Zone) { z.Polygon[1].X = 1.5 }, "zone.polygon[1]"},
		{"sides that cross", func(z *vedettev1.Zone) { z.Polygon[1], z.Polygon[2] = z.Polygon[2], z.Polygon[1] }, "zone.polygon"},
		{"no area", func(z *vedettev1.Zone) { z.Polygon = []*vedettev1.Point{{X: 0.1}, {X: 0.2}, {X: 0.3}} }, "zone.polygon"},
		{"a score above one", func(z *vedettev1.Zone) { z.MinScore = 1.1 }, "zone.min_score"},
		{"a negative inertia", func(z *vedettev1.Zone) { z.Inertia = durationpb.New(-1) }, "zone.inertia"},
		{"a negative occupancy", func(z *vedettev1.Zone) { z.Occupancy = -1 }, "zone.occupancy"},
		{"an empty class", func(z *vedettev1.Zone) { z.Classes = []string{""} }, "zone.classes[0]"},
		{"no such anchor", func(z *vedettev1.Zone) { z.Anchor = 9 }, "zone.anchor"},
		{"a schedule without periods", func(z *vedettev1.Zone) { z.Schedule = &vedettev1.Schedule{} }, "zone.schedule.periods"},
		{"no such time", func(z *vedettev1.Zone) {
			z.Schedule = &vedettev1.Schedule{Periods: []*vedettev1.Period{{Start: "24:00", End: "06:00"}}}
		}, "zone.schedule.periods[0].start"},
		{"no such time zone", func(z *vedettev1.Zone) {
			z.Schedule = &vedettev1.Schedule{TimeZone: "Mars/Olympus", Periods: []*vedettev1.Period{{Start: "23:00", End: "06:00"}}}
		}, "zone.schedule.time_zone"},
		{"a long name", func(z *vedettev1.Zone) { z.DisplayName = strings.Repeat("x", 201) }, "zone.display_name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			z := porch()
			tc.spoil(z)
			_, err := b.book.CreateZone(t.Context(), &vedettev1.CreateZoneRequest{Parent: "cameras/door", ZoneId: "porch", Zone: z})
			var bad *cameras.InvalidError
			if !errors.As(err, &bad) || len(bad.Violations) != 1 || bad.Violations[0].Field != tc.field {
				t.Errorf("got %v, want one fault of %s", err, tc.field)
			}
		})
	}
	if _, err := b.book.CreateZone(t.Context(), &vedettev1.CreateZoneRequest{Parent: "cameras/none", Zone: porch()}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a zone of an unknown camera: %v", err)
	}
	z, err := b.book.CreateZone(t.Context(), &vedettev1.CreateZoneRequest{Parent: "cameras/door", ZoneId: "dry", Zone: porch(), ValidateOnly: true})
	if err != nil || z.GetName() != "cameras/door/zones/dry" {
		t.Errorf("validate_only: %v, %v", z, err)
	}
	if list, err := b.book.ListZones(t.Context(), &vedettev1.ListZonesRequest{Parent: "cameras/door"}); err != nil || len(list.GetZones()) != 0 {
		t.Errorf("there is something after all: %v, %v", list, err)
	}
}

func TestListGoesThroughPages(t *testing.T) {
	b := open(t, t.TempDir())
	for i := range 5 {
		if _, err := b.book.CreateZone(t.Context(), &vedettev1.CreateZoneRequest{Parent: "cameras/door", ZoneId: fmt.Sprintf("z%d", i), Zone: porch()}); err != nil {
			t.Fatal(err)
		}
	}
	b.add(t)
	var names []string
	req := &vedettev1.ListZonesRequest{Parent: "cameras/-", PageSize: 4}
	for {
		resp, err := b.book.ListZones(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, z := range resp.GetZones() {
			names = append(names, strings.TrimPrefix(z.GetName(), "cameras/door/zones/"))
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
		if _, err := b.book.ListLines(t.Context(), &vedettev1.ListLinesRequest{Parent: "cameras/-", PageToken: req.PageToken}); !errors.Is(err, store.ErrPageToken) {
			t.Errorf("another list's token: %v", err)
		}
	}
	if got := strings.Join(names, " "); got != "porch z0 z1 z2 z3 z4" {
		t.Errorf("got %s", got)
	}
}

var noon = time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC)

// seen is a frame with a person at x, and its events' types.
func seen(n int, x float32) store.Frame {
	return store.Frame{
		Sequence: 1, Camera: "door", Number: int64(n), CaptureTime: noon.Add(time.Duration(n) * 100 * time.Millisecond),
		Objects: []store.Object{{Local: 1, Class: "person", Score: 0.9, Box: store.Box{X1: x - 0.05, X2: x + 0.05, Y1: 0.3, Y2: 0.5}}},
	}
}

func types(events []store.Event) string {
	var list []string
	for _, e := range events {
		list = append(list, e.Type)
	}
	return strings.Join(list, " ")
}

func TestFramesGiveEventsByTheRulesInForce(t *testing.T) {
	b := open(t, t.TempDir())
	see := func(n int, x float32) string {
		f := seen(n, x)
		return types(b.book.Seen(&f, nil))
	}
	if got := see(0, 0.4); got != "" {
		t.Errorf("without rules: %s", got)
	}
	z, _ := b.add(t)
	if got := see(1, 0.4); got != "zone_entered" {
		t.Errorf("a new zone: %s", got)
	}
	if got := see(2, 0.6); got != "line_crossed" {
		t.Errorf("over the line: %s", got)
	}
	_, err := b.book.UpdateZone(t.Context(), &vedettev1.UpdateZoneRequest{Zone: &vedettev1.Zone{Name: z.GetName(), Disabled: true}})
	if err != nil {
		t.Fatal(err)
	}
	if got := see(3, 0.6); got != "zone_left" {
		t.Errorf("a zone that is disabled: %s", got)
	}
	f := seen(4, 0.4)
	events := b.book.Seen(&f, nil)
	if types(events) != "line_crossed" || !strings.Contains(string(events[0].Payload), `"line":"cameras/door/lines/gate"`) ||
		events[0].Camera != "door" || events[0].Track != (store.TrackID{Sequence: 1, Local: 1}) || !events[0].Time.Equal(f.CaptureTime) {
		t.Errorf("back over the line: %+v", events)
	}
}

func TestARenamedRuleGoesOn(t *testing.T) {
	b := open(t, t.TempDir())
	z, l := b.add(t)
	f := seen(0, 0.4)
	if got := types(b.book.Seen(&f, nil)); got != "zone_entered" {
		t.Fatalf("the first frame: %s", got)
	}
	if _, err := b.book.UpdateZone(t.Context(), &vedettev1.UpdateZoneRequest{Zone: &vedettev1.Zone{Name: z.GetName(), DisplayName: "Front"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.book.UpdateLine(t.Context(), &vedettev1.UpdateLineRequest{Line: &vedettev1.Line{Name: l.GetName(), DisplayName: "Gate"}}); err != nil {
		t.Fatal(err)
	}
	if f = seen(1, 0.4); len(b.book.Seen(&f, nil)) != 0 {
		t.Error("who stands in a zone that is renamed has entered or left it")
	}
	if f = seen(2, 0.6); types(b.book.Seen(&f, nil)) != "line_crossed" {
		t.Error("a line that is renamed forgot who is on his way over it")
	}
	if _, err := b.book.UpdateZone(t.Context(), &vedettev1.UpdateZoneRequest{Zone: &vedettev1.Zone{Name: z.GetName(), MinScore: 0.1}}); err != nil {
		t.Fatal(err)
	}
	if f = seen(3, 0.6); types(b.book.Seen(&f, nil)) != "zone_left zone_entered" {
		t.Error("a zone that means something else went on")
	}
}

// TestVisitsThatACrashLeftOpenEndWithTheNextStart: a sequence that is open when the store ends is one that a crash left.
func TestVisitsThatACrashLeftOpenEndWithTheNextStart(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	z := porch()
	z.Occupancy = 1
	if _, err := b.book.CreateZone(t.Context(), &vedettev1.CreateZoneRequest{Parent: "cameras/door", ZoneId: "porch", Zone: z}); err != nil {
		t.Fatal(err)
	}
	sequence, err := b.store.OpenSequence(t.Context(), store.Sequence{Camera: "door", StreamEpoch: "1", Model: "demo", ModelVersion: "1", OpenReason: "STREAM_OPENED", OpenedAt: noon})
	if err != nil {
		t.Fatal(err)
	}
	for n, x := range []float32{0.4, 0.9, 0.4, 0.4} { // in, out, in
		f := seen(n, x)
		f.Sequence = sequence
		tr := store.Track{ID: store.TrackID{Sequence: sequence, Local: 1}, Camera: "door", Start: noon, End: f.CaptureTime, Class: "person", State: store.TrackActive}
		if _, err := b.store.Append(t.Context(), store.Batch{Frames: []store.Frame{f}, Tracks: []store.Track{tr}, Events: b.book.Seen(&f, nil)}); err != nil {
			t.Fatal(err)
		}
	}
	b.stop()
	told := func() (list []store.Event) {
		if err := b.store.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, _, err := b.store.ListEvents(t.Context(), store.Query{Cameras: []string{"door"}, PageSize: 100, Ascending: true})
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(list, func(a, b store.Event) int { return int(a.Seq - b.Seq) })
		return list
	}
	const before = "zone_entered zone_occupied zone_left zone_cleared zone_entered zone_occupied"
	b = open(t, dir)
	if got := types(told()); got != before {
		t.Fatalf("before the crash: %s", got)
	}
	if err := b.book.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := told()
	if got := types(list); got != before+" zone_left zone_cleared" {
		t.Fatalf("after the start: %s", got)
	}
	last := seen(3, 0.4).CaptureTime
	spent := last.Sub(seen(2, 0.4).CaptureTime).Seconds()
	if got := string(list[6].Payload); !strings.Contains(got, fmt.Sprintf(`"spent":"%.3f"`, spent)) || !strings.Contains(got, `"reason":"track_ended"`) ||
		!strings.Contains(got, last.Format(`"since":"`+time.RFC3339Nano)) || list[6].Track != (store.TrackID{Sequence: sequence, Local: 1}) {
		t.Errorf("who was in the zone left: %+v %s", list[6].Track, got)
	}
	b.stop()
	b = open(t, dir)
	if err := b.book.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := types(told()); got != before+" zone_left zone_cleared" {
		t.Errorf("after another start: %s", got)
	}
}

func TestRulesOfARemovedCameraGoWithIt(t *testing.T) {
	b := open(t, t.TempDir())
	b.add(t)
	if err := b.cameras.Delete(t.Context(), "cameras/door", "", false); err != nil {
		t.Fatal(err)
	}
	if err := b.book.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := b.book.ListZones(t.Context(), &vedettev1.ListZonesRequest{Parent: "cameras/-"})
	if err != nil || len(list.GetZones()) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if rows, _, err := b.store.List(t.Context(), store.Rules, "", 10, ""); err != nil || len(rows) != 0 {
		t.Errorf("left in the store: %v, %v", rows, err)
	}
}

// TestHistoryIsTestedAndCounted keeps what the live rules said, and compares it with a test over history.
func TestHistoryIsTestedAndCounted(t *testing.T) {
	b := open(t, t.TempDir())
	b.add(t)
	var live []store.Event
	for n, x := range []float32{0.1, 0.4, 0.6, 0.9, 0.6, 0.4, 0.1, 0.4, 0.6} {
		f := seen(n, x)
		events := b.book.Seen(&f, nil)
		live = append(live, events...)
		if _, err := b.store.Append(t.Context(), store.Batch{Frames: []store.Frame{f}, Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	window := func() (from, to *timestamppb.Timestamp) {
		return timestamppb.New(noon), timestamppb.New(noon.Add(time.Minute))
	}
	from, to := window()
	for name, req := range map[string]*vedettev1.TestRulesRequest{
		"the camera's own rules": {Parent: "cameras/door", StartTime: from, EndTime: to},
		"drafts":                 {Parent: "cameras/door", StartTime: from, EndTime: to, Zones: []*vedettev1.Zone{porch()}, Lines: []*vedettev1.Line{gate()}},
	} {
		resp, err := b.book.TestRules(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range resp.GetEvents() {
			got = append(got, e.GetType())
		}
		if strings.Join(got, " ") != types(live) || resp.GetFrames() != 9 || resp.GetStoppedTime() != nil {
			t.Errorf("%s: %d frames made %v, live it was %s", name, resp.GetFrames(), got, types(live))
		}
	}
	counts, err := b.book.QueryCounts(t.Context(), &vedettev1.QueryCountsRequest{Parent: "cameras/door", StartTime: from, EndTime: to})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range counts.GetCounts() {
		got = append(got, strings.TrimSpace(fmt.Sprint(c.GetType(), " ", c.GetClass(), " ", c.GetCount(), " ", c.GetDirection())))
	}
	// y grows downwards, so the gate, drawn from above, has its left where x is large.
	if s := strings.Join(got, ", "); s != "line_crossed person 1 forward, line_crossed person 2 backward, zone_entered person 3" &&
		s != "line_crossed person 2 backward, line_crossed person 1 forward, zone_entered person 3" {
		t.Errorf("counts: %s", s)
	}
	one, err := b.book.QueryCounts(t.Context(), &vedettev1.QueryCountsRequest{Parent: "cameras/door", Rule: "cameras/door/zones/porch", StartTime: from, EndTime: to})
	if err != nil || len(one.GetCounts()) != 1 || one.GetCounts()[0].GetCount() != 3 {
		t.Errorf("one rule: %v, %v", one, err)
	}
	if _, err := b.book.TestRules(t.Context(), &vedettev1.TestRulesRequest{Parent: "cameras/door", Zones: []*vedettev1.Zone{{}}}); err == nil {
		t.Error("a draft without corners was tested")
	}
	for _, id := range []string{"door", "yard"} { // of which the door alone saw something
		if id == "door" {
			if _, err := b.store.OpenSequence(t.Context(), store.Sequence{Camera: id, OpenedAt: noon}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.cameras.Delete(t.Context(), "cameras/"+id, "", false); err != nil {
			t.Fatal(err)
		}
	}
	after, err := b.book.QueryCounts(t.Context(), &vedettev1.QueryCountsRequest{Parent: "cameras/door", StartTime: from, EndTime: to})
	if err != nil || len(after.GetCounts()) != len(counts.GetCounts()) {
		t.Errorf("when the camera is gone: %v, %v", after, err)
	}
	if _, err := b.book.QueryCounts(t.Context(), &vedettev1.QueryCountsRequest{Parent: "cameras/yard", StartTime: from, EndTime: to}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of a camera that never saw anything: %v", err)
	}
}
