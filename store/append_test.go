package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWhatCannotBeStoredIsRefusedByName(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	nan := float32(math.NaN())
	frame := func(change func(*Frame)) Batch {
		f := frames(1, "door", noon, 1, 1)[0]
		change(&f)
		return Batch{Frames: []Frame{f}}
	}
	track := func(change func(*Track)) Batch {
		tr := Track{ID: TrackID{1, 1}, Camera: "door", Class: "person", Start: noon, End: noon, State: TrackActive}
		change(&tr)
		return Batch{Tracks: []Track{tr}}
	}
	for want, b := range map[string]Batch{
		"frames[0].sequence":         frame(func(f *Frame) { f.Sequence = 0 }),
		"frames[0].camera":           frame(func(f *Frame) { f.Camera = "" }),
		"frames[0].capture_time":     frame(func(f *Frame) { f.CaptureTime = time.Time{} }),
		"frames[0].receive_time":     frame(func(f *Frame) { f.ReceiveTime = time.Unix(0, 0) }),
		"frames[0].objects:":         frame(func(f *Frame) { f.Objects = make([]Object, maxObjects+1) }),
		"frames[0].objects[0].class": frame(func(f *Frame) { f.Objects[0].Class = strings.Repeat("x", 129) }),
		"frames[0].objects[0].score": frame(func(f *Frame) { f.Objects[0].Score = nan }),
		"frames[0].objects[0].box":   frame(func(f *Frame) { f.Objects[0].Box.Y1 = nan }),
		"frames[0].objects[0].local": frame(func(f *Frame) { f.Objects[0].Local = -1 }),
		"tracks[0].id.sequence":      track(func(tr *Track) { tr.ID.Sequence = -1 }),
		"tracks[0].id.local":         track(func(tr *Track) { tr.ID.Local = 0 }),
		"tracks[0].camera":           track(func(tr *Track) { tr.Camera = "" }),
		"tracks[0].class":            track(func(tr *Track) { tr.Class = "" }),
		"tracks[0].start":            track(func(tr *Track) { tr.Start = time.Unix(1e10, 0) }),
		"tracks[0].end":              track(func(tr *Track) { tr.End = noon.Add(-1) }),
		"tracks[0].state":            track(func(tr *Track) { tr.State = TrackAny }),
		"tracks[0].score":            track(func(tr *Track) { tr.Score = 1.5 }),
		"tracks[0].box":              track(func(tr *Track) { tr.Box = Box{X1: 1} }),
		"tracks[0].end_reason":       track(func(tr *Track) { tr.EndReason = strings.Repeat("x", 129) }),
		"tracks[0].path[0].time":     track(func(tr *Track) { tr.Path = []Point{{}} }),
		"tracks[0].path[0].box":      track(func(tr *Track) { tr.Path = []Point{{Time: noon, X: nan}} }),
		"events[0].camera":           {Events: []Event{{Camera: strings.Repeat("x", 129), Type: "x", Time: noon}}},
		"tracks[0].picture":          track(func(tr *Track) { tr.Picture = "../vedette.db" }),
		"media[0].event":             {Media: []Media{{Camera: "x", Time: noon, Kind: Clip, File: "x", Start: noon, End: noon}}},
		"media[0].kind":              {Media: []Media{{Event: 1, Camera: "x", Time: noon, File: "x", Start: noon, End: noon}}},
		"media[0].file":              {Media: []Media{{Event: 1, Camera: "x", Time: noon, Kind: Clip, File: "/x", Start: noon, End: noon}}},
		"events[0].type":             {Events: []Event{{Camera: "x", Time: noon}}},
		"events[0].time":             {Events: []Event{{Camera: "x", Type: "x"}}},
		"events[0].payload":          {Events: []Event{{Camera: "x", Type: "x", Time: noon, Payload: make([]byte, maxPayload+1)}}},
	} {
		if _, err := s.Append(t.Context(), b); !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	check(t, s.Flush(t.Context()))
	if st := s.Stats(); st.Windows != 0 {
		t.Errorf("something was written: %+v", st)
	}
}

func TestAFullQueueBlocksItsSenderOnly(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), Queue: 10, Window: time.Hour})
	s.appendNow(t, event(noon)) // so that the window of an hour has begun
	_, err := s.Append(t.Context(), Batch{Events: make10()})
	check(t, err)
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Append(soon, event(noon)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("append to a full queue: %v", err)
	}
	check(t, s.Flush(t.Context()))
	s.appendNow(t, event(noon))
	if n := s.rows(t, "events"); n != 12 {
		t.Errorf("%d events, want 12", n)
	}
}

func make10() (list []Event) {
	for i := range 10 {
		list = append(list, Event{Camera: "door", Type: "tick", Time: noon.Add(time.Duration(i))})
	}
	return list
}

func TestSubscribersSeeWhatIsCommittedInOrder(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, Backlog: 4})
	ctx := t.Context()
	quick, slow := s.Subscribe(0), s.Subscribe(0)
	var last Commit
	for i := range 10 {
		s.appendNow(t, event(noon.Add(time.Duration(i)*time.Second)))
		c := must[Commit](t)(quick.Next(ctx))
		if c.Missed != 0 || len(c.Events) != 1 || !c.Events[0].Time.Equal(noon.Add(time.Duration(i)*time.Second)) || c.Seq <= last.Seq {
			t.Fatalf("window %d: %+v", i, c)
		}
		if have := must[[]Event](t)(s.EventsAfter(ctx, c.Events[0].Seq-1, 10)); len(have) != 1 {
			t.Fatalf("event %d was shown before it could be read", c.Events[0].Seq)
		}
		last = c
	}
	if c := must[Commit](t)(slow.Next(ctx)); c.Missed != 6 || c.Seq != last.Seq-3 {
		t.Errorf("the slow one got window %d after missing %d, want %d after 6", c.Seq, c.Missed, last.Seq-3)
	}
	if c := must[Commit](t)(s.Subscribe(last.Seq - 2).Next(ctx)); c.Seq != last.Seq-1 || c.Missed != 0 {
		t.Errorf("resumed at %d, missing %d; want %d", c.Seq, c.Missed, last.Seq-1)
	}
	if err := func() error { _, err := quick.Next(expired(t)); return err }(); !errors.Is(err, context.Canceled) {
		t.Errorf("next without news: %v", err)
	}
	s.stop()
	if _, err := quick.Next(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("next after the end: %v", err)
	}
	s = open(t, Config{Dir: dir})
	resumed := s.Subscribe(last.Seq)
	s.appendNow(t, event(noon))
	if c := must[Commit](t)(resumed.Next(ctx)); c.Missed == 0 || c.Seq <= last.Seq {
		t.Errorf("a restart went unnoticed: %+v", c)
	}
}

// TestASinkPassesNoEventBy writes a batch whose first event lies in the later day, which is committed last.
func TestASinkPassesNoEventBy(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	tomorrow := noon.Add(24 * time.Hour)
	s.appendNow(t, Batch{Events: []Event{{Camera: "door", Type: "later", Time: tomorrow}, {Camera: "door", Type: "sooner", Time: noon}}})
	list := must[[]Event](t)(s.EventsAfter(t.Context(), 0, 10))
	if len(list) != 2 || list[0].Type != "later" || list[1].Seq != list[0].Seq+1 {
		t.Fatalf("%+v", list)
	}
	s.lastEvent.Store(list[0].Seq - 1) // as it is while only the sooner one is on disk
	if half := must[[]Event](t)(s.EventsAfter(t.Context(), 0, 10)); len(half) != 0 {
		t.Errorf("half a window was shown: %+v", half)
	}
}

func TestASubscriptionToAStoreThatNeverBeganEnds(t *testing.T) {
	s := New(Config{})
	if err := s.Run(t.Context()); err == nil {
		t.Fatal("it began")
	}
	if _, err := s.Subscribe(0).Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestTracks(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	ctx := t.Context()
	id := must[int64](t)(s.OpenSequence(ctx, Sequence{Camera: "door", OpenedAt: noon}))
	base := Track{ID: TrackID{id, 1}, Camera: "door", Class: "person", Start: noon, End: noon.Add(time.Second), State: TrackActive, Score: 0.5, Detections: 1}
	path := make([]Point, 1000)
	for i := range path {
		path[i] = Point{noon.Add(time.Duration(i) * time.Second), float32(i) / 1000, 0.5}
	}
	base.Path = path
	later := base
	later.End, later.Score, later.Path = noon.Add(time.Hour), 0.75, nil
	s.appendNow(t, Batch{Tracks: []Track{base, later}})
	have := must[Track](t)(s.GetTrack(ctx, base.ID))
	if len(have.Path) != maxPath || !have.Path[0].Time.Equal(noon) || !have.Path[maxPath-1].Time.Equal(path[999].Time) {
		t.Errorf("the path has %d points from %v to %v", len(have.Path), have.Path[0], have.Path[len(have.Path)-1])
	}
	have.Path = nil
	if diff := cmp.Diff(later, have, approx); diff != "" {
		t.Error("(-want +have)\n", diff)
	}

	if list, _, err := s.ListTracks(ctx, Query{State: TrackActive, Cameras: []string{"door"}}); err != nil || len(list) != 1 {
		t.Errorf("active: %v, %v", list, err)
	}
	check(t, s.CloseSequence(ctx, id, "CAMERA_REMOVED", noon.Add(2*time.Hour)))
	check(t, s.CloseSequence(ctx, id, "AGAIN", noon.Add(3*time.Hour)))
	if q := must[Sequence](t)(s.GetSequence(ctx, id)); q.CloseReason != "CAMERA_REMOVED" || !q.ClosedAt.Equal(noon.Add(2*time.Hour)) {
		t.Errorf("%+v", q)
	}
	s.appendNow(t, Batch{Tracks: []Track{base}}) // late: a track that has ended stays ended
	if have := must[Track](t)(s.GetTrack(ctx, base.ID)); have.State != TrackEnded || have.EndReason != "CAMERA_REMOVED" || have.Score != 0.75 {
		t.Errorf("%+v", have)
	}
	for _, id := range []TrackID{{id, 2}, {id + 1, 1}} {
		if _, err := s.GetTrack(ctx, id); !errors.Is(err, ErrNotFound) {
			t.Errorf("track %v: %v", id, err)
		}
	}
	if err := s.CloseSequence(ctx, 999, "X", noon); !errors.Is(err, ErrNotFound) {
		t.Errorf("close a sequence that never was: %v", err)
	}
}

func TestListTracksAndEventsPageThroughDays(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	ctx := t.Context()
	var want []string
	for i := range 60 {
		at := noon.Add(time.Duration(i) * time.Hour)
		camera := []string{"door", "yard", "hall"}[i%3]
		class := []string{"person", "car"}[i%2]
		id := TrackID{int64(i%3 + 1), int64(i + 1)}
		s.appendNow(t, Batch{
			Tracks: []Track{{ID: id, Camera: camera, Class: class, Start: at, End: at.Add(time.Duration(i) * time.Second), State: TrackEnded, Score: float32(i) / 60}},
			Events: []Event{{Camera: camera, Type: "seen." + class, Time: at, Track: id}},
		})
		if camera != "hall" && class == "car" {
			want = append(want, id.String())
		}
	}
	q := Query{Cameras: []string{"yard", "door", "nowhere"}, Classes: []string{"car"}, Types: []string{"seen.car"}, PageSize: 3, Ascending: true}
	var tracks, events []string
	for {
		list, next, err := s.ListTracks(ctx, q)
		check(t, err)
		for _, tr := range list {
			tracks = append(tracks, tr.ID.String())
		}
		if _, _, err := s.ListEvents(ctx, Query{PageToken: next + "x"}); !errors.Is(err, ErrPageToken) {
			t.Fatal(err)
		}
		if q.PageToken = next; next == "" {
			break
		}
	}
	for {
		list, next, err := s.ListEvents(ctx, q)
		check(t, err)
		for _, e := range list {
			events = append(events, e.Track.String())
		}
		if q.PageToken = next; next == "" {
			break
		}
	}
	if diff := cmp.Diff(want, tracks); diff != "" {
		t.Error("tracks (-want +have)\n", diff)
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error("events (-want +have)\n", diff)
	}
	for name, c := range map[string]struct {
		q    Query
		want int
	}{
		"half open range":    {Query{Start: noon, End: noon.Add(10 * time.Hour), PageSize: 100}, 10},
		"score":              {Query{MinScore: 0.5, PageSize: 100}, 30},
		"duration":           {Query{MinDuration: 50 * time.Second, PageSize: 100}, 10},
		"active":             {Query{State: TrackActive, PageSize: 100}, 0},
		"ended":              {Query{State: TrackEnded, PageSize: 100}, 60},
		"sequence":           {Query{Sequence: 2, PageSize: 100}, 20},
		"class nobody knows": {Query{Classes: []string{"' OR 1=1 --"}, PageSize: 100}, 0},
		"default page":       {Query{}, 50},
	} {
		list, _, err := s.ListTracks(ctx, c.q)
		check(t, err)
		if len(list) != c.want {
			t.Errorf("%s: %d tracks, want %d", name, len(list), c.want)
		}
	}
	if _, _, err := s.ListTracks(ctx, Query{PageSize: -1}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if _, _, err := s.ListTracks(ctx, Query{Start: noon, End: noon.Add(-1 * time.Hour)}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if list, _, err := s.ListEvents(ctx, Query{Track: TrackID{2, 2}}); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
}

func TestTrackIDs(t *testing.T) {
	if id, err := ParseTrackID("12-7"); err != nil || id != (TrackID{12, 7}) || id.String() != "12-7" {
		t.Error(id, err)
	}
	for _, bad := range []string{"", "12", "12-", "-7", "0-1", "1-0", "1--7", "01-2", "+1-2", "1-2-3", "a-b"} {
		if _, err := ParseTrackID(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestTokensAuditAndCursors(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), Now: func() time.Time { return noon }})
	ctx := t.Context()
	made := must[Token](t)(s.CreateToken(ctx, Token{Hash: []byte{1, 2}, User: "ann", Spec: []byte("viewer"), ExpireTime: noon.Add(time.Hour)}))
	if _, err := s.CreateToken(ctx, Token{Hash: []byte{1, 2}, User: "bob"}); !errors.Is(err, ErrExists) {
		t.Errorf("the same hash again: %v", err)
	}
	must[Token](t)(s.CreateToken(ctx, Token{Hash: []byte{3}, User: "bob"}))
	if diff := cmp.Diff(made, must[Token](t)(s.TokenByHash(ctx, []byte{1, 2}))); diff != "" {
		t.Error(diff)
	}
	check(t, s.TouchToken(ctx, made.ID))
	if list := must[[]Token](t)(s.ListTokens(ctx, "ann")); len(list) != 1 || !list[0].UsedTime.Equal(noon) {
		t.Error(list)
	}
	check(t, s.DeleteToken(ctx, made.ID))
	if _, err := s.TokenByHash(ctx, []byte{1, 2}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := s.TouchToken(ctx, made.ID); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}

	for i := range 5 {
		check(t, s.Audit(ctx, AuditEntry{Actor: "ann", Action: "UpdateCamera", Resource: fmt.Sprint("cameras/", i), Outcome: "OK"}))
	}
	var seen []string
	for q := (Query{PageSize: 2}); ; {
		list, next, err := s.ListAudit(ctx, q)
		check(t, err)
		for _, e := range list {
			seen = append(seen, e.Resource)
		}
		if q.PageToken = next; next == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{"cameras/4", "cameras/3", "cameras/2", "cameras/1", "cameras/0"}, seen); diff != "" {
		t.Error(diff)
	}

	check(t, s.SetSinkCursor(ctx, "mqtt", 7))
	check(t, s.SetSinkCursor(ctx, "mqtt", 5))
	if seq := must[int64](t)(s.SinkCursor(ctx, "mqtt")); seq != 7 {
		t.Errorf("the cursor went back to %d", seq)
	}
	check(t, s.DeleteSinkCursor(ctx, "mqtt"))
	if seq := must[int64](t)(s.SinkCursor(ctx, "mqtt")); seq != 0 {
		t.Errorf("a forgotten cursor is %d", seq)
	}
}

func TestARefusedBatchTakesNoOtherWithIt(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), Window: time.Hour})
	ctx := t.Context()
	s.appendNow(t, event(noon))
	check(t, s.do(ctx, func(_ context.Context, w *writer) error { w.nextEvent--; return nil })) // the next number is taken
	bad := must[<-chan error](t)(s.Append(ctx, event(noon)))
	good := must[<-chan error](t)(s.Append(ctx, event(noon.Add(time.Second))))
	later := must[<-chan error](t)(s.Append(ctx, event(noon.Add(24*time.Hour))))
	check(t, s.Flush(ctx))
	if err := <-bad; !refused(err) {
		t.Errorf("an event with the number of another: %v", err)
	}
	check(t, <-good)
	check(t, <-later)
	if n, errs := s.rows(t, "events"), s.Stats().CommitErrors; n != 3 || errs != 1 {
		t.Errorf("%d events and %d errors, want 3 and 1", n, errs)
	}
}

// TestAFailedCommitIsTriedAgain takes the file away from under the writer, and brings it back.
func TestAFailedCommitIsTriedAgain(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	ctx := t.Context()
	s.appendNow(t, event(noon))
	check(t, s.do(ctx, func(_ context.Context, w *writer) error {
		return w.days[dayOf(noon.UnixMicro())].conn.Close() // as good as any error that is not the batch's fault
	}))
	done := must[<-chan error](t)(s.Append(ctx, event(noon.Add(time.Second))))
	check(t, <-done)
	if n, errs := s.rows(t, "events"), s.Stats().CommitErrors; n != 2 || errs == 0 {
		t.Errorf("%d events and %d errors, want 2 and at least 1", n, errs)
	}
}
