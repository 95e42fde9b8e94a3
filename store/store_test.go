package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// noon is when the tests' history begins.
var noon = time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC)

// running is a store under test.
type running struct {
	*Store
	stop func()
}

// open runs a store in dir until the test ends or stop is called.
func open(tb testing.TB, cfg Config) running {
	tb.Helper()
	if cfg.Window == 0 {
		cfg.Window = 5 * time.Millisecond
	}
	if cfg.Retention.MinFree == 0 {
		cfg.Retention.MinFree = -1
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(testWriter{tb}, nil))
	}
	s := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		cancel()
		tb.Fatal(err)
	}
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			tb.Error("run: ", err)
		}
	}
	tb.Cleanup(stop)
	return running{s, stop}
}

type testWriter struct{ tb testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.tb.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}

func must[T any](tb testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// appendNow appends and waits until it is durable.
func (r running) appendNow(tb testing.TB, b Batch) {
	tb.Helper()
	done, err := r.Append(tb.Context(), b)
	check(tb, err)
	check(tb, r.Flush(tb.Context()))
	check(tb, <-done)
}

// frames makes n frames of a walk of some objects, every 100 ms.
func frames(sequence int64, camera string, start time.Time, n, objects int) []Frame {
	list := make([]Frame, n)
	for i := range list {
		f := Frame{Sequence: sequence, Camera: camera, CaptureTime: start.Add(time.Duration(i) * 100 * time.Millisecond), Number: int64(i)}
		f.ReceiveTime = f.CaptureTime.Add(30 * time.Millisecond)
		for j := range objects {
			x := float32(j)/float32(objects+1) + float32(i%50)/2000
			f.Objects = append(f.Objects, Object{
				Local: int64(j + 1), Class: []string{"person", "car"}[j%2], Score: 0.5 + float32(j%5)/10,
				Box: Box{x, 0.25, x + 0.1, 0.5},
			})
		}
		list[i] = f
	}
	return list
}

func TestWhatIsWrittenIsReadBackAfterReopening(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	id := must[int64](t)(s.OpenSequence(t.Context(), Sequence{Camera: "door", StreamEpoch: "b1-1", Model: "yolox", ModelVersion: "1", OpenReason: "START", OpenedAt: noon}))
	path := []Point{{noon, 0.1, 0.2}, {noon.Add(time.Second), 0.5, 0.6}}
	track := Track{ID: TrackID{id, 1}, Camera: "door", Class: "person", Start: noon, End: noon.Add(3 * time.Second), State: TrackActive, Score: 0.9, Box: Box{0, 0, 1, 1}, Detections: 30, Path: path}
	event := Event{Camera: "door", Type: "zone.entered", Time: noon.Add(time.Second), Track: track.ID, Payload: []byte("zone 1")}
	s.appendNow(t, Batch{Frames: frames(id, "door", noon, 30, 2), Tracks: []Track{track}, Events: []Event{event}})
	check(t, s.CloseSequence(t.Context(), id, "STOP", noon.Add(4*time.Second)))
	s.stop()

	s = open(t, Config{Dir: dir})
	track.State, track.EndReason = TrackEnded, "STOP"
	if diff := cmp.Diff(track, must[Track](t)(s.GetTrack(t.Context(), track.ID)), approx); diff != "" {
		t.Error("track (-want +have)\n", diff)
	}
	events, next, err := s.ListEvents(t.Context(), Query{})
	check(t, err)
	if len(events) != 1 || next != "" || events[0].Seq == 0 {
		t.Fatalf("events %v, next %q", events, next)
	}
	event.Seq = events[0].Seq
	if diff := cmp.Diff(event, events[0]); diff != "" {
		t.Error("event (-want +have)\n", diff)
	}
	have := listAll(t, s, Query{PageSize: 7, Ascending: true})
	if diff := cmp.Diff(flatten(frames(id, "door", noon, 30, 2)), have, approx); diff != "" {
		t.Error("detections (-want +have)\n", diff)
	}
	q := must[Sequence](t)(s.GetSequence(t.Context(), id))
	if q.CloseReason != "STOP" || !q.OpenedAt.Equal(noon) || q.StreamEpoch != "b1-1" {
		t.Errorf("sequence %+v", q)
	}
}

var approx = cmp.Comparer(func(a, b float32) bool { return max(a-b, b-a) < 0.0006 })

func flatten(list []Frame) (all []Detection) {
	for _, f := range list {
		for _, o := range f.Objects {
			all = append(all, Detection{Sequence: f.Sequence, Camera: f.Camera, CaptureTime: f.CaptureTime, ReceiveTime: f.ReceiveTime, Frame: f.Number, Object: o})
		}
	}
	return all
}

// listAll reads every page.
func listAll(tb testing.TB, s running, q Query) (all []Detection) {
	tb.Helper()
	for {
		list, next, err := s.ListDetections(tb.Context(), q)
		check(tb, err)
		all = append(all, list...)
		if next == "" {
			return all
		}
		if len(list) != q.PageSize {
			tb.Fatalf("a page of %d before the last, want %d", len(list), q.PageSize)
		}
		q.PageToken = next
	}
}

// TestPagesAgreeWithAnObviousImplementation compares every kind of query with a sort and a filter in memory, across a
// day's border, before and after packing.
func TestPagesAgreeWithAnObviousImplementation(t *testing.T) {
	midnight := time.Date(2031, 5, 7, 0, 0, 0, 0, time.UTC)
	clock := newClock(midnight.Add(-2 * time.Minute)) // nothing is old enough to be packed
	s := open(t, Config{Dir: t.TempDir(), Now: clock.now})
	r := rand.New(rand.NewPCG(1, 2))
	var all []Detection
	for c := range 3 {
		camera := fmt.Sprint("camera", c)
		list := frames(int64(c+1), camera, midnight.Add(-70*time.Second), 1400, 1+c)
		for i := range list { // some come late, or from a camera whose clock is wrong
			if i%50 == 7 {
				list[i].ReceiveTime = list[i].CaptureTime.Add(time.Duration(r.IntN(6)-2) * time.Hour)
			}
		}
		all = append(all, flatten(list)...)
		for chunk := range slices.Chunk(list, 3) {
			_, err := s.Append(t.Context(), Batch{Frames: chunk})
			check(t, err)
			if rand.IntN(4) == 0 {
				check(t, s.Flush(t.Context()))
			}
		}
	}
	check(t, s.Flush(t.Context()))
	compare := func(t *testing.T) {
		for range 40 {
			q := Query{PageSize: 1 + r.IntN(3000), Ascending: r.IntN(2) == 0}
			if r.IntN(2) == 0 {
				q.Cameras = []string{"camera1", "camera2", "nowhere"}[r.IntN(2):]
			}
			if r.IntN(2) == 0 {
				q.Classes = []string{"car", "dragon"}
			}
			if r.IntN(2) == 0 {
				q.MinScore = 0.6
			}
			if r.IntN(3) == 0 {
				q.Track = TrackID{3, 2}
			}
			if r.IntN(3) > 0 {
				q.Start = midnight.Add(time.Duration(r.IntN(120)-70) * time.Second)
				q.End = q.Start.Add(time.Duration(r.IntN(60_000)) * time.Millisecond)
				if q.Received = r.IntN(2) == 0; q.Received && r.IntN(2) == 0 {
					q.Start = q.Start.Add(time.Duration(r.IntN(6)-2) * time.Hour)
					q.End = q.Start.Add(time.Duration(r.IntN(600)) * time.Second)
				}
			}
			want := slow(all, q)
			have := listAll(t, s, q)
			if diff := cmp.Diff(want, have, approx); diff != "" {
				t.Fatalf("%+v: %d detections, want %d (-want +have)\n%.2000s", q, len(have), len(want), diff)
			}
		}
	}
	t.Run("as written", compare)
	before := s.rows(t, "detections")
	clock.set(midnight.Add(5 * time.Minute))
	for range 100 {
		check(t, s.do(t.Context(), func(ctx context.Context, w *writer) error { w.pack(ctx); return nil }))
	}
	if after := s.rows(t, "detections"); after > 20 || after >= before {
		t.Errorf("packing left %d rows of %d", after, before)
	}
	t.Run("packed", compare)
}

// clock is set by hand.
type clock struct{ us atomic.Int64 }

func newClock(t time.Time) *clock {
	c := &clock{}
	c.set(t)
	return c
}

func (c *clock) set(t time.Time) { c.us.Store(t.UnixMicro()) }

func (c *clock) now() time.Time { return time.UnixMicro(c.us.Load()).UTC() }

// rows counts a table's rows in all days.
func (r running) rows(tb testing.TB, table string) (n int) {
	tb.Helper()
	for _, day := range r.days.list(0, 1<<40) {
		f, _ := r.days.borrow(day)
		var m int
		check(tb, f.db.QueryRowContext(tb.Context(), "SELECT count(*) FROM "+table).Scan(&m))
		f.release()
		n += m
	}
	return n
}

// slow is the obvious implementation of ListDetections, all pages at once.
func slow(all []Detection, q Query) (list []Detection) {
	at := map[[3]int64]int{}
	type ranked struct {
		k key
		d Detection
	}
	var found []ranked
	for _, d := range all {
		basis := d.CaptureTime
		if q.Received {
			basis = d.ReceiveTime
		}
		id := [3]int64{d.Sequence, d.Frame, d.CaptureTime.UnixMicro()}
		k := key{d.CaptureTime.UnixMicro(), d.Sequence, d.Frame, int64(at[id])}
		at[id]++
		switch {
		case len(q.Cameras) > 0 && !slices.Contains(q.Cameras, d.Camera),
			len(q.Classes) > 0 && !slices.Contains(q.Classes, d.Class),
			d.Score < q.MinScore-0.0001,
			q.Track != TrackID{} && q.Track != TrackID{d.Sequence, d.Local},
			!q.Start.IsZero() && basis.Before(q.Start),
			!q.End.IsZero() && !basis.Before(q.End):
			continue
		}
		found = append(found, ranked{k, d})
	}
	slices.SortFunc(found, func(a, b ranked) int {
		if q.Ascending {
			return a.k.compare(b.k)
		}
		return b.k.compare(a.k)
	})
	for _, f := range found {
		list = append(list, f.d)
	}
	return list
}

func TestResources(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	ctx := t.Context()
	made := must[Resource](t)(s.Create(ctx, Cameras, Resource{Name: "door", DisplayName: "Front door", Labels: map[string]string{"floor": "1"}, Spec: []byte{1}, Secret: []byte{2}, Enabled: true}))
	if _, err := s.Create(ctx, Cameras, Resource{Name: "door"}); !errors.Is(err, ErrExists) {
		t.Errorf("second door: %v", err)
	}
	if _, err := s.Get(ctx, Rules, "door"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a rule called door: %v", err)
	}
	if diff := cmp.Diff(made, must[Resource](t)(s.Get(ctx, Cameras, "door"))); diff != "" {
		t.Error(diff)
	}
	change := made
	change.DisplayName, change.Secret = "Back door", nil
	changed := must[Resource](t)(s.Update(ctx, Cameras, change))
	if changed.DisplayName != "Back door" || !bytes.Equal(changed.Secret, []byte{2}) || changed.Etag == made.Etag || changed.UID != made.UID {
		t.Errorf("after the update: %+v", changed)
	}
	var conflict *ConflictError
	if _, err := s.Update(ctx, Cameras, change); !errors.As(err, &conflict) || conflict.Etag != changed.Etag {
		t.Errorf("update with an old etag: %v", err)
	}
	if err := s.Delete(ctx, Cameras, "door", made.Etag); !errors.As(err, &conflict) {
		t.Errorf("delete with an old etag: %v", err)
	}
	check(t, s.Delete(ctx, Cameras, "door", changed.Etag))
	if err := s.Delete(ctx, Cameras, "door", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("delete twice: %v", err)
	}
	if again := must[Resource](t)(s.Create(ctx, Cameras, Resource{Name: "door"})); again.UID == made.UID {
		t.Error("a new camera got the uid of an old one")
	}
	for i := range 12 {
		must[Resource](t)(s.Create(ctx, Rules, Resource{Name: fmt.Sprintf("rule%02d", i), Parent: []string{"door", "yard"}[i%2]}))
	}
	var names []string
	for token := ""; ; {
		list, next, err := s.List(ctx, Rules, "yard", 4, token)
		check(t, err)
		for _, r := range list {
			names = append(names, r.Name)
		}
		if token = next; token == "" {
			break
		}
		if _, _, err := s.List(ctx, Rules, "door", 4, token); !errors.Is(err, ErrPageToken) {
			t.Errorf("a token of another list: %v", err)
		}
	}
	if !slices.Equal(names, []string{"rule01", "rule03", "rule05", "rule07", "rule09", "rule11"}) {
		t.Error(names)
	}
}

func TestStartAndStopAtOnceTenTimes(t *testing.T) {
	dir := t.TempDir()
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		s := New(Config{Dir: dir, Retention: Retention{MinFree: -1}})
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		cancel()
		check(t, <-done)
		if _, err := s.Append(t.Context(), Batch{}); !errors.Is(err, ErrClosed) {
			t.Fatalf("append after the end: %v", err)
		}
		if _, err := s.Create(t.Context(), Cameras, Resource{Name: "x"}); !errors.Is(err, ErrClosed) {
			t.Fatalf("create after the end: %v", err)
		}
	}
}

func TestOpeningErrorsSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	open(t, Config{Dir: dir})
	var hint *HintError
	if err := New(Config{Dir: dir}).Run(t.Context()); !errors.Is(err, ErrLocked) || !errors.As(err, &hint) {
		t.Errorf("second store in one directory: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o600))
	if err := New(Config{Dir: file}).Run(t.Context()); !errors.As(err, &hint) {
		t.Errorf("a file as data directory: %v", err)
	}
	if err := New(Config{}).Run(t.Context()); !errors.Is(err, ErrInvalid) {
		t.Errorf("no directory: %v", err)
	}
}
