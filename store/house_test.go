package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRetentionChooses(t *testing.T) {
	const gb = 1 << 30
	today := dayOf(noon.UnixMicro())
	history := []kept{{today - 3, 4 * gb, 30}, {today - 2, 4 * gb, 60}, {today - 1, 4 * gb, 90}, {today, 4 * gb, 120}}
	const all = int64(1 << 62) // every sink has everything
	for name, c := range map[string]struct {
		r           Retention
		free, floor int64
		delivered   int64
		want        []doomed
	}{
		"nothing is deleted without bounds":            {free: gb, delivered: all},
		"days past their age go":                       {r: Retention{MaxAge: 36 * time.Hour}, delivered: all, want: []doomed{{today - 3, "age"}}},
		"a sink that is behind holds a day":            {r: Retention{MaxAge: 36 * time.Hour, SinkGrace: 24 * time.Hour}, delivered: 29},
		"a sink that is behind too long does not":      {r: Retention{MaxAge: 12*time.Hour - 1, SinkGrace: 24 * time.Hour}, delivered: 29, want: []doomed{{today - 3, "age"}, {today - 2, "age"}}},
		"the oldest go until the rest is small":        {r: Retention{MaxBytes: 9 * gb}, delivered: all, want: []doomed{{today - 3, "bytes"}, {today - 2, "bytes"}}},
		"today is never deleted":                       {r: Retention{MaxBytes: 1, MaxAge: 1}, delivered: all, want: []doomed{{today - 3, "age"}, {today - 2, "age"}, {today - 1, "age"}}},
		"free space counts what was deleted":           {free: gb, floor: 6 * gb, delivered: all, want: []doomed{{today - 3, "free space"}, {today - 2, "free space"}}},
		"free space does not wait for sinks":           {free: gb, floor: 4 * gb, delivered: 0, want: []doomed{{today - 3, "free space"}}},
		"a clock behind the newest day deletes none":   {r: Retention{MaxAge: 100 * 24 * time.Hour}, delivered: all},
		"a day within its age stays when sinks are up": {r: Retention{MaxAge: 30 * 24 * time.Hour}, delivered: all},
	} {
		t.Run(name, func(t *testing.T) {
			have := c.r.choose(noon, history, 16*gb, c.free, c.floor, c.delivered)
			if diff := cmp.Diff(c.want, have, cmp.AllowUnexported(doomed{})); diff != "" {
				t.Error("(-want +have)\n", diff)
			}
		})
	}
}

func TestAClockThatIsBehindDoesNotStopRetention(t *testing.T) {
	days := []kept{{20000, 1, 0}, {20001, 1, 0}, {20002, 1, 0}}
	have := Retention{}.choose(time.Unix(0, 0), days, 3, 0, 2, 0)
	if diff := cmp.Diff([]doomed{{20000, "free space"}, {20001, "free space"}}, have, cmp.AllowUnexported(doomed{})); diff != "" {
		t.Error("(-want +have)\n", diff)
	}
}

// A day below a deleted one counts as deleted (a crash may have stopped it half way), so days go in order.
func TestADayWithoutEventsDoesNotGoBeforeOneThatASinkWaitsFor(t *testing.T) {
	today := dayOf(noon.UnixMicro())
	r := Retention{MaxAge: time.Hour, SinkGrace: 30 * 24 * time.Hour}
	if have := r.choose(noon, []kept{{today - 3, 1, 30}, {today - 2, 1, 0}, {today - 1, 1, 90}, {today, 1, 120}}, 4, 1, 0, 29); len(have) > 0 {
		t.Errorf("chose %v", have)
	}
}

// TestAClockThatLeapsAheadDoesNotCostTheHistory steps the clock by ten years, and back, and lets it stay.
func TestAClockThatLeapsAheadDoesNotCostTheHistory(t *testing.T) {
	clock := newClock(noon.Add(48 * time.Hour))
	s := open(t, Config{Dir: t.TempDir(), Now: clock.now, Retention: Retention{MaxAge: 30 * 24 * time.Hour, SinkGrace: 1, MinFree: -1, Interval: time.Hour}})
	for d := range 3 {
		s.appendNow(t, event(noon.Add(time.Duration(d)*24*time.Hour)))
	}
	pass := func(now time.Time, want int) {
		t.Helper()
		clock.set(now)
		s.retain(t.Context())
		if n := s.rows(t, "events"); n != want {
			t.Errorf("%d events at %v, want %d", n, now, want)
		}
	}
	later := noon.Add(10 * 365 * 24 * time.Hour)
	pass(noon.Add(48*time.Hour), 3)
	pass(later, 3)
	pass(noon.Add(48*time.Hour), 3)
	pass(later, 3)
	pass(later.Add(time.Second), 3)
	s.house.Lock()
	s.distrust = time.Time{} // an hour on
	s.house.Unlock()
	pass(later.Add(2*time.Second), 1) // the newest day stays, whatever its age
}

// event makes a batch of one event.
func event(at time.Time) Batch {
	return Batch{Events: []Event{{Camera: "door", Type: "tick", Time: at}}}
}

func TestADeletedDayIsGoneForGood(t *testing.T) {
	dir := t.TempDir()
	clock := newClock(noon.Add(48 * time.Hour))
	cfg := Config{Dir: dir, Now: clock.now}
	s := open(t, cfg)
	for d := range 3 {
		s.appendNow(t, event(noon.Add(time.Duration(d)*24*time.Hour)))
	}
	check(t, os.MkdirAll(filepath.Join(s.MediaDir(noon), "clips"), 0o750))
	check(t, os.WriteFile(filepath.Join(s.MediaDir(noon), "clips", "a.mp4"), make([]byte, 1000), 0o600))
	if f := s.Stats().Files[1]; f.MediaBytes != 1000 || f.Bytes == 0 {
		t.Errorf("first day: %+v", f)
	}
	s.stop()

	cfg.Retention = Retention{MaxAge: 30 * time.Hour, SinkGrace: 1, MinFree: -1, Settle: -1}
	s = open(t, cfg)
	s.retain(t.Context())
	if st := s.Stats(); !slices.Equal(st.LastDeleted, []string{"day-20310506.db"}) || len(st.Files) != 3 {
		t.Errorf("deleted %v, left %+v", st.LastDeleted, st.Files)
	}
	left := must[[]os.DirEntry](t)(os.ReadDir(dir))
	for _, e := range left {
		if ok, _ := filepath.Match("*20310506*", e.Name()); ok {
			t.Errorf("%s is left", e.Name())
		}
	}
	s.appendNow(t, event(noon))
	if st := s.Stats(); st.Expired != 1 || len(st.Files) != 3 {
		t.Errorf("a late event: expired %d, files %+v", st.Expired, st.Files)
	}
	s.stop()
	s = open(t, cfg)
	s.appendNow(t, event(noon))
	if st := s.Stats(); st.Expired != 1 || len(st.Files) != 3 {
		t.Errorf("a late event after a restart: expired %d, files %+v", st.Expired, st.Files)
	}
}

func TestADamagedDayIsSetAsideAndTheRestStays(t *testing.T) {
	damage := map[string]func(t *testing.T, path string){
		"its header is overwritten": func(t *testing.T, path string) {
			f := must[*os.File](t)(os.OpenFile(path, os.O_WRONLY, 0))
			must[int](t)(f.WriteAt(make([]byte, 100), 0))
			check(t, f.Close())
		},
		"its middle is overwritten": func(t *testing.T, path string) {
			f := must[*os.File](t)(os.OpenFile(path, os.O_WRONLY, 0))
			noise := make([]byte, 40_000)
			for i := range noise {
				noise[i] = byte(i * 7)
			}
			must[int](t)(f.WriteAt(noise, 3*8192))
			check(t, f.Close())
		},
		"it is cut short": func(t *testing.T, path string) { check(t, os.Truncate(path, 9000)) },
		"it is empty":     func(t *testing.T, path string) { check(t, os.Truncate(path, 0)) },
		"it has no tables": func(t *testing.T, path string) {
			db, err := openWriter(path)
			check(t, err)
			_, err = db.ExecContext(t.Context(), "DROP TABLE events")
			check(t, errors.Join(err, db.Close()))
		},
		"it is another file": func(t *testing.T, path string) { check(t, os.WriteFile(path, []byte("hello"), 0o600)) },
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Config{Dir: dir})
			next := noon.Add(24 * time.Hour)
			s.appendNow(t, Batch{Frames: frames(1, "door", noon, 500, 5), Events: event(noon).Events})
			s.appendNow(t, event(next))
			s.stop()
			do(t, filepath.Join(dir, "day-20310506.db"))

			s = open(t, Config{Dir: dir})
			s.examine(t.Context(), dayOf(noon.UnixMicro())) // house-keeping does so too, in its own time
			if st := s.Stats(); len(st.Damaged) != 1 {
				t.Fatalf("damaged: %v", st.Damaged)
			}
			events, _, err := s.ListEvents(t.Context(), Query{})
			check(t, err)
			if len(events) != 1 || !events[0].Time.Equal(next) {
				t.Errorf("left: %v", events)
			}
			s.appendNow(t, event(noon)) // the day begins afresh
			events, _, err = s.ListEvents(t.Context(), Query{})
			check(t, err)
			if len(events) != 2 {
				t.Errorf("after another event: %v", events)
			}
			kept := must[[]os.DirEntry](t)(os.ReadDir(filepath.Join(dir, "damaged")))
			if len(kept) == 0 {
				t.Error("nothing was set aside")
			}
		})
	}
}

func TestADamagedCatalogueIsReplacedByItsCopy(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"garbage": func(t *testing.T, path string) { check(t, os.WriteFile(path, []byte("hello"), 0o600)) },
		"empty":   func(t *testing.T, path string) { check(t, os.Truncate(path, 0)) },
		"gone":    func(t *testing.T, path string) { check(t, os.Remove(path)) },
	} {
		t.Run(name, func(t *testing.T) { damagedCatalogue(t, damage) })
	}
}

func damagedCatalogue(t *testing.T, damage func(t *testing.T, path string)) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	ctx := t.Context()
	must[Resource](t)(s.Create(ctx, Cameras, Resource{Name: "door"}))
	id := must[int64](t)(s.OpenSequence(ctx, Sequence{Camera: "door"}))
	s.appendNow(t, Batch{Frames: frames(id, "door", noon, 1, 1), Events: event(noon).Events})
	last := must[[]Event](t)(s.EventsAfter(ctx, 0, 10))[0].Seq
	s.spareCatalogue(ctx)
	must[Resource](t)(s.Create(ctx, Cameras, Resource{Name: "yard"}))
	s.stop()
	damage(t, filepath.Join(dir, catalogueFile))
	check(t, os.Truncate(filepath.Join(dir, backupsDir, spareFile), 5000)) // so that the one before has to do

	s = open(t, Config{Dir: dir})
	must[Resource](t)(s.Get(ctx, Cameras, "door"))
	if st := s.Stats(); len(st.Damaged) != 1 {
		t.Errorf("damaged: %v", st.Damaged)
	}
	if again := must[int64](t)(s.OpenSequence(ctx, Sequence{Camera: "door"})); again <= id {
		t.Errorf("sequence %d was given before", again)
	}
	s.appendNow(t, event(noon))
	if list := must[[]Event](t)(s.EventsAfter(ctx, last, 10)); len(list) != 1 {
		t.Errorf("%d events after %d, want 1", len(list), last)
	}
	if n := len(listAll(t, s, Query{PageSize: 10})); n != 1 {
		t.Errorf("%d detections, want 1", n)
	}
}

func TestADamagedCatalogueWithoutACopyIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	open(t, Config{Dir: dir}).stop()
	check(t, os.RemoveAll(filepath.Join(dir, backupsDir)))
	check(t, os.WriteFile(filepath.Join(dir, catalogueFile), []byte("hello"), 0o600))
	var hint *HintError
	if err := New(Config{Dir: dir}).Run(t.Context()); !errors.Is(err, ErrCorrupt) || !errors.As(err, &hint) {
		t.Error(err)
	}
}

func TestAFileOfANewerVersionIsLeftAlone(t *testing.T) {
	for _, file := range []string{catalogueFile, "day-20310506.db"} {
		dir := t.TempDir()
		s := open(t, Config{Dir: dir})
		s.appendNow(t, event(noon))
		s.stop()
		path := filepath.Join(dir, file)
		db, err := openWriter(path)
		check(t, err)
		_, err = db.ExecContext(t.Context(), "PRAGMA user_version = 99")
		check(t, err)
		check(t, db.Close())
		before := must[[]byte](t)(os.ReadFile(path))
		var hint *HintError
		if err := New(Config{Dir: dir}).Run(t.Context()); !errors.Is(err, ErrNewer) || !errors.As(err, &hint) {
			t.Errorf("%s: %v", file, err)
		}
		if !slices.Equal(before, must[[]byte](t)(os.ReadFile(path))) {
			t.Errorf("%s was changed", file)
		}
	}
}

func TestABackupMadeWhileWritingIsRestored(t *testing.T) {
	dir, backup := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	s := open(t, Config{Dir: dir})
	ctx := t.Context()
	must[Resource](t)(s.Create(ctx, Cameras, Resource{Name: "door", Secret: []byte("sealed")}))
	id := must[int64](t)(s.OpenSequence(ctx, Sequence{Camera: "door"}))
	s.appendNow(t, Batch{Frames: frames(id, "door", noon, 100, 3), Events: event(noon).Events})
	s.appendNow(t, event(noon.Add(24*time.Hour)))
	writing, stop := context.WithCancel(ctx)
	wrote := make(chan error)
	go func() {
		var err error
		for i := 0; err == nil && writing.Err() == nil; i++ {
			_, err = s.Append(ctx, event(noon.Add(time.Duration(i)*time.Millisecond)))
		}
		wrote <- err
	}()
	report, err := s.Backup(ctx, backup)
	stop()
	check(t, errors.Join(err, <-wrote))
	if len(report.Files) != 3 {
		t.Errorf("%+v", report)
	}
	last := must[[]Event](t)(s.EventsAfter(ctx, 0, 1000))
	if _, err := s.Backup(ctx, backup); !errors.Is(err, ErrExists) {
		t.Errorf("a second backup in the same folder: %v", err)
	}
	if _, err := Restore(ctx, backup, dir); !errors.Is(err, ErrLocked) {
		t.Errorf("restore over a running store: %v", err)
	}
	s.stop()
	if _, err := Restore(ctx, backup, dir); !errors.Is(err, ErrExists) {
		t.Errorf("restore over a store: %v", err)
	}

	fresh := filepath.Join(t.TempDir(), "fresh")
	must[BackupReport](t)(Restore(ctx, backup, fresh))
	s = open(t, Config{Dir: fresh})
	if r := must[Resource](t)(s.Get(ctx, Cameras, "door")); string(r.Secret) != "sealed" {
		t.Errorf("%+v", r)
	}
	if n := len(listAll(t, s, Query{PageSize: 1000})); n != 300 {
		t.Errorf("%d detections, want 300", n)
	}
	if again := must[int64](t)(s.OpenSequence(ctx, Sequence{Camera: "door"})); again < id+1000 {
		t.Errorf("sequence %d after a restore may have been given before", again)
	}
	s.appendNow(t, event(noon.Add(25*time.Hour)))
	list, _, err := s.ListEvents(ctx, Query{PageSize: 1})
	check(t, err)
	if list[0].Seq <= last[len(last)-1].Seq {
		t.Errorf("event %d after a restore may have been given before", list[0].Seq)
	}
}

func TestADamagedBackupIsRefused(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	s.appendNow(t, event(noon))
	for name, harm := range map[string]func(dir string) error{
		"a file is missing":     func(dir string) error { return os.Remove(filepath.Join(dir, "day-20310506.db")) },
		"a file is cut short":   func(dir string) error { return os.Truncate(filepath.Join(dir, catalogueFile), 4096) },
		"the manifest is gone":  func(dir string) error { return os.Remove(filepath.Join(dir, manifestFile)) },
		"the manifest is empty": func(dir string) error { return os.Truncate(filepath.Join(dir, manifestFile), 0) },
		"the manifest names a file elsewhere": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, manifestFile), []byte(`{"files": [{"name": "../x.db"}]}`), 0o600)
		},
		"a byte is turned": func(dir string) error {
			path := filepath.Join(dir, "day-20310506.db")
			b, err := os.ReadFile(path)
			b[len(b)/2] ^= 1
			return errors.Join(err, os.WriteFile(path, b, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "backup")
			must[BackupReport](t)(s.Backup(t.Context(), dir))
			check(t, harm(dir))
			if _, err := VerifyBackup(t.Context(), dir); !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			if _, err := Restore(t.Context(), dir, filepath.Join(t.TempDir(), "new")); !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
		})
	}
}
