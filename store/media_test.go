package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMediaComesWithItsEvent(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	ctx := t.Context()
	b := Batch{Events: []Event{{Camera: "door", Type: "zone_entered", Time: noon}, {Camera: "door", Type: "zone_left", Time: noon}}}
	s.appendNow(t, b)
	seq := b.Events[0].Seq
	want := []Media{
		{Event: seq, Camera: "door", Time: noon, Kind: Snapshot, File: "door/1.jpg", Start: noon, End: noon},
		{Event: seq, Camera: "door", Time: noon, Kind: Clip, File: "door/1.mp4", Start: noon.Add(-time.Second), End: noon.Add(time.Second)},
	}
	s.appendNow(t, Batch{Media: want})
	have := must[Event](t)(s.GetEvent(ctx, seq))
	if diff := cmp.Diff(want, have.Media); diff != "" {
		t.Error("media (-want +have)\n", diff)
	}
	list, _, err := s.ListEvents(ctx, Query{Ascending: true})
	check(t, err)
	if len(list) != 2 || len(list[0].Media) != 2 || len(list[1].Media) != 0 {
		t.Errorf("listed %+v", list)
	}
	if _, err := s.GetEvent(ctx, 1<<40); !errors.Is(err, ErrNotFound) {
		t.Errorf("an event that never was: %v", err)
	}
}

func TestAFileIsDurableUnderItsNameOrNotThere(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, Now: func() time.Time { return noon }})
	for _, data := range []string{"first", "the second, longer"} {
		check(t, s.WriteMedia(noon, "door/a.jpg", []byte(data)))
		if have := must[[]byte](t)(s.ReadMedia(noon, "door/a.jpg")); !bytes.Equal(have, []byte(data)) {
			t.Errorf("read %q, want %q", have, data)
		}
	}
	left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Join(s.MediaDir(noon), "door")))
	if len(left) != 1 {
		t.Errorf("%d files are left, want the one", len(left))
	}
	s.appendNow(t, Batch{Events: []Event{{Camera: "door", Type: "x", Time: noon}}})
	if n := s.Stats().Files[1].MediaBytes; n != int64(len("the second, longer")) {
		t.Errorf("%d bytes are counted", n)
	}
	for _, bad := range []string{"", "../vedette.db", "/etc/passwd", "door/../../x", "a\x00b", "./x"} {
		if err := s.WriteMedia(noon, bad, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("write %q: %v", bad, err)
		}
		if _, err := s.ReadMedia(noon, bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("read %q: %v", bad, err)
		}
	}
	if _, err := s.ReadMedia(noon.AddDate(0, 0, 3), "door/a.jpg"); !errors.Is(err, ErrNotFound) {
		t.Errorf("of another day: %v", err)
	}
	// A link that leads out of the folder is not followed.
	check(t, os.Symlink(filepath.Join(dir, catalogueFile), filepath.Join(s.MediaDir(noon), "link")))
	if _, err := s.ReadMedia(noon, "link"); err == nil {
		t.Error("a link out of the folder was followed")
	}
}

func TestNoMediaIsWrittenWhenSpaceIsShort(t *testing.T) {
	s := open(t, Config{
		Dir: t.TempDir(), Retention: Retention{MinFree: 1000}, FreeSpace: func(string) (int64, int64, error) { return 700, 1 << 40, nil },
	})
	s.retain(context.WithoutCancel(t.Context()))
	if err := s.WriteMedia(noon, "a.jpg", []byte("x")); !errors.Is(err, ErrDiskFull) {
		t.Error(err)
	}
}

func TestAuditIsSearched(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	for _, actor := range []string{"ann", "bob", "ann"} {
		check(t, s.Audit(t.Context(), AuditEntry{Actor: actor, Action: "DeleteSink", Resource: "sinks/hall", Outcome: "OK"}))
	}
	list, next, err := s.ListAudit(t.Context(), Query{Actor: "ann", PageSize: 1})
	check(t, err)
	if len(list) != 1 || next == "" {
		t.Fatalf("%d entries, next %q", len(list), next)
	}
	if _, _, err := s.ListAudit(t.Context(), Query{Actor: "bob", PageSize: 1, PageToken: next}); !errors.Is(err, ErrPageToken) {
		t.Errorf("a token of another query: %v", err)
	}
	if list, next, err = s.ListAudit(t.Context(), Query{Actor: "ann", PageSize: 1, PageToken: next}); err != nil || len(list) != 1 || next != "" {
		t.Errorf("%v, next %q, %v", list, next, err)
	}
}

func TestPicturesGoBeforeTheirDay(t *testing.T) {
	now := noon
	s := open(t, Config{
		Dir: t.TempDir(), Retention: Retention{MediaAge: 24 * time.Hour, Settle: -1}, Now: func() time.Time { return now },
		FreeSpace: func(string) (int64, int64, error) { return 1 << 40, 1 << 41, nil },
	})
	check(t, s.WriteMedia(noon, "a.jpg", []byte("x")))
	for i := range 2 {
		s.appendNow(t, Batch{Events: []Event{{Camera: "door", Type: "x", Time: noon.AddDate(0, 0, i)}}})
	}
	now = noon.AddDate(0, 0, 1)
	s.retain(t.Context())
	must[[]byte](t)(s.ReadMedia(noon, "a.jpg"))
	now = noon.AddDate(0, 0, 3)
	s.retain(t.Context())
	if _, err := s.ReadMedia(noon, "a.jpg"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the picture: %v", err)
	}
	if list, _, err := s.ListEvents(t.Context(), Query{}); err != nil || len(list) != 2 {
		t.Errorf("%d events are left, %v", len(list), err)
	}
}

func TestNoMediaIsWrittenAboveTheBound(t *testing.T) {
	s := open(t, Config{
		Dir: t.TempDir(), Retention: Retention{MaxBytes: 1}, Now: func() time.Time { return noon },
		FreeSpace: func(string) (int64, int64, error) { return 1 << 40, 1 << 41, nil },
	})
	s.appendNow(t, Batch{Events: []Event{{Camera: "door", Type: "x", Time: noon}}})
	s.retain(t.Context())
	if p := s.Pressure(); p != ShedSnapshots {
		t.Errorf("pressure %s", p)
	}
}
