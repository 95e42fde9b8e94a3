package store

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/v000N, a store as this version leaves it; once a release, and never again")

const thisVersion = "v0004"

// released is what is in every testdata/v000N.
func released(id int64) (Batch, Resource) {
	track := Track{
		ID: TrackID{id, 1}, Camera: "door", Class: "person", Start: noon, End: noon.Add(time.Second), State: TrackActive, Score: 0.5,
		Box: Box{0, 0, 1, 1}, Detections: 10, Picture: "1.jpg", Path: []Point{{noon, 0, 0}, {noon.Add(time.Second), 1, 1}},
	}
	return Batch{
		Frames: frames(id, "door", noon, 10, 2), Tracks: []Track{track},
		Events: []Event{{Camera: "door", Type: "zone.entered", Time: noon, Track: track.ID, Payload: []byte("payload")}},
	}, Resource{Name: "door", DisplayName: "Door", Labels: map[string]string{"floor": "1"}, Spec: []byte("spec"), Secret: []byte("sealed"), Enabled: true}
}

// TestEveryReleasedVersionOpens opens a store that each released version wrote (and that a crash ended).
func TestEveryReleasedVersionOpens(t *testing.T) {
	if *update {
		writeReleased(t, filepath.Join("testdata", thisVersion))
	}
	versions := must[[]string](t)(filepath.Glob("testdata/v*"))
	if len(versions) == 0 {
		t.Fatal("no testdata/v*")
	}
	for _, version := range versions {
		t.Run(filepath.Base(version), func(t *testing.T) {
			dir := t.TempDir()
			check(t, os.CopyFS(dir, os.DirFS(version)))
			s := open(t, Config{Dir: dir, Now: func() time.Time { return noon.Add(time.Hour) }})
			want, resource := released(1)
			have := must[Resource](t)(s.Get(t.Context(), Cameras, "door"))
			have.UID, have.Etag, have.CreateTime, have.UpdateTime = "", "", time.Time{}, time.Time{}
			if diff := cmp.Diff(resource, have); diff != "" {
				t.Error("camera (-want +have)\n", diff)
			}
			if diff := cmp.Diff(flatten(want.Frames), listAll(t, s, Query{PageSize: 1000, Ascending: true}), approx); diff != "" {
				t.Error("detections (-want +have)\n", diff)
			}
			track := want.Tracks[0]
			track.State, track.EndReason = TrackEnded, crashReason
			if diff := cmp.Diff(track, must[Track](t)(s.GetTrack(t.Context(), track.ID)), approx); diff != "" {
				t.Error("track (-want +have)\n", diff)
			}
			events, _, err := s.ListEvents(t.Context(), Query{})
			check(t, err)
			if len(events) != 1 || string(events[0].Payload) != "payload" {
				t.Errorf("events %v", events)
			} else if media := events[0].Media; filepath.Base(version) != "v0001" && (len(media) != 1 || media[0].File != "1.mp4") { // which had none
				t.Errorf("media %v", media)
			}
			if q := must[Sequence](t)(s.GetSequence(t.Context(), 1)); q.CloseReason != crashReason {
				t.Errorf("sequence %+v", q)
			}
			if id := must[int64](t)(s.OpenSequence(t.Context(), Sequence{Camera: "door"})); id != 2 {
				t.Errorf("the next sequence is %d", id)
			}
			must[Token](t)(s.TokenByHash(t.Context(), []byte("hash")))
			if seq := must[int64](t)(s.SinkCursor(t.Context(), "mqtt")); seq != 3 {
				t.Errorf("the cursor is %d", seq)
			}
			if r, err := s.GetRequest(t.Context(), []byte("request")); filepath.Base(version) >= "v0003" && (err != nil || r.Name != "cameras/door") {
				t.Errorf("the request made %q: %v", r.Name, err)
			}
			letters, err := s.DeadLetters(t.Context(), "mqtt", 0, false, 10)
			check(t, err)
			if filepath.Base(version) >= "v0004" && (len(letters) != 1 || letters[0].Reason != "too large") {
				t.Errorf("dead letters %v", letters)
			}
			audit, _, err := s.ListAudit(t.Context(), Query{})
			check(t, err)
			if len(audit) != 1 {
				t.Errorf("audit %v", audit)
			}
		})
	}
}

func writeReleased(t *testing.T, dir string) {
	check(t, os.RemoveAll(dir))
	s := open(t, Config{Dir: dir, Now: func() time.Time { return noon }})
	ctx := t.Context()
	id := must[int64](t)(s.OpenSequence(ctx, Sequence{Camera: "door", StreamEpoch: "b1-1", Model: "yolox", ModelVersion: "1", OpenReason: "START"}))
	batch, resource := released(id)
	s.appendNow(t, batch)
	event := batch.Events[0].Seq
	s.appendNow(t, Batch{Media: []Media{{Event: event, Camera: "door", Time: noon, Kind: Clip, File: "1.mp4", Start: noon, End: noon.Add(time.Second)}}})
	must[Resource](t)(s.Create(ctx, Cameras, resource))
	must[Token](t)(s.CreateToken(ctx, Token{Hash: []byte("hash"), User: "ann"}))
	check(t, s.Audit(ctx, AuditEntry{Actor: "ann", Action: "CreateCamera", Resource: "cameras/door", Outcome: "OK"}))
	check(t, s.SetSinkCursor(ctx, "mqtt", 3))
	check(t, s.SetAside(ctx, DeadLetter{Sink: "mqtt", Seq: 3, Event: []byte("event"), Reason: "too large", Attempts: 5}))
	check(t, s.KeepRequest(ctx, Request{ID: []byte("request"), Content: []byte("content"), Name: "cameras/door"}))
	s.stop()
	for _, name := range []string{lockFile, reserveFile, backupsDir} {
		check(t, os.RemoveAll(filepath.Join(dir, name)))
	}
}

// TestAnOlderFileIsCopiedBeforeItIsMigrated takes the schema away from a file, as if it were of version 0.
func TestAnOlderFileIsCopiedBeforeItIsMigrated(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "old.db")
	db, err := openDB(path, "rwc", 1, map[string][]string{})
	check(t, err)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE older (x); INSERT INTO older VALUES (1)")
	check(t, err)
	backup := filepath.Join(dir, "backups", "old.db")
	migrated, err := migrate(t.Context(), db, path, dayKind, dayVersion, backup)
	check(t, err)
	if !migrated {
		t.Fatal("not migrated")
	}
	if again, err := migrate(t.Context(), db, path, dayKind, dayVersion, backup); again || err != nil {
		t.Errorf("migrated again: %v, %v", again, err)
	}
	var n int
	check(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM older, (SELECT count(*) FROM tracks)").Scan(&n))
	check(t, db.Close())
	old, err := openDB(backup, "ro", 1, map[string][]string{})
	check(t, err)
	check(t, old.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema").Scan(&n))
	if n != 1 {
		t.Errorf("the copy has %d tables, want the one from before", n)
	}
	check(t, old.Close())
}
