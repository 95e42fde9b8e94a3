package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	kills      = flag.Int("kills", 24, "how often TestKilledWhileWriting kills the writer; TestKilledWhileMigrating: an eighth of it")
	crashChild = flag.String("crash-child", "", "internal: write to the store in this folder until killed")
	crashFrom  = flag.Int64("crash-from", 0, "internal: number of the first batch; -1: open the store alone")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *crashChild != "" {
		if err := writeUntilKilled(*crashChild, *crashFrom); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// crashStep is how far the clock moves from batch to batch: a day is 36 batches, so days begin and go all the time.
const crashStep = 40 * time.Minute

func crashTime(i int64) time.Time { return noon.Add(time.Duration(i) * crashStep) }

func crashConfig(dir string, now func() time.Time) Config {
	return Config{
		Dir: dir, Window: 2 * time.Millisecond, Now: now,
		Retention: Retention{MaxAge: 20 * 24 * time.Hour, SinkGrace: time.Hour, MinFree: -1, Interval: 10 * time.Millisecond, Settle: -1},
	}
}

// crashBatch is batch number i of a sequence: a frame, a track that goes on for a while and an event, all saying i.
func crashBatch(sequence, i int64) Batch {
	at := crashTime(i)
	f := frames(sequence, "door", at, 1, 3)[0]
	f.Number = i
	t := Track{ID: TrackID{sequence, i + 1}, Camera: "door", Class: "person", Start: at, End: at, State: TrackActive, Detections: 1}
	return Batch{
		Frames: []Frame{f}, Tracks: []Track{t},
		Events: []Event{{Camera: "door", Type: "tick", Time: at, Track: t.ID, Payload: []byte(strconv.FormatInt(i, 10))}},
	}
}

// writeUntilKilled is the child: it prints what was acknowledged.
func writeUntilKilled(dir string, from int64) error {
	clock := newClock(crashTime(from))
	s := New(crashConfig(dir, clock.now))
	ctx := context.Background()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-ran:
		return err
	}
	if from < 0 {
		fmt.Println("open")
		return <-ran
	}
	sequence, err := s.OpenSequence(ctx, Sequence{Camera: "door", OpenReason: "START"})
	if err != nil {
		return err
	}
	fmt.Println("sequence", sequence)
	go backUpForEver(ctx, s, dir)
	type sent struct {
		i     int64
		batch Batch
		done  <-chan error
	}
	acks, films := make(chan sent, 64), make(chan sent, 8)
	go func() {
		for a := range acks {
			if err := <-a.done; err != nil {
				fail(err)
			}
			fmt.Println("ack", a.i)
			if a.i%4 == 0 {
				select {
				case films <- a:
				default: // the last ones are still being written
				}
			}
		}
	}()
	go func() {
		for a := range films {
			if err := film(ctx, s, a.i, &a.batch.Events[0]); err != nil {
				fail(err)
			}
			fmt.Println("film", a.i)
		}
	}()
	for i := from; ; i++ {
		clock.set(crashTime(i))
		b := crashBatch(sequence, i)
		done, err := s.Append(ctx, b)
		if err != nil {
			return err
		}
		acks <- sent{i, b, done}
		if i%16 == 0 {
			name := fmt.Sprintf("rule%d-%d", sequence, i)
			if _, err := s.Create(ctx, Rules, Resource{Name: name}); err != nil {
				return err
			}
			fmt.Println("rule", name)
		}
	}
}

// filmed is the clip of event number i.
func filmed(i int64) []byte { return bytes.Repeat(strconv.AppendInt(nil, i, 10), 20_000) }

// film keeps a snapshot and a clip of an event, files before rows.
func film(ctx context.Context, s *Store, i int64, e *Event) error {
	var b Batch
	for kind, name := range map[MediaKind]string{Snapshot: "jpg", Clip: "mp4"} {
		file := fmt.Sprintf("door/%d.%s", i, name)
		if err := s.WriteMedia(e.Time, file, filmed(i)); errors.Is(err, ErrNotFound) {
			return nil // retention took the day
		} else if err != nil {
			return err
		}
		b.Media = append(b.Media, Media{Event: e.Seq, Camera: e.Camera, Time: e.Time, Kind: kind, File: file, Start: e.Time, End: e.Time})
	}
	done, err := s.Append(ctx, b)
	if err == nil {
		err = <-done
	}
	return err
}

func fail(err error) {
	fmt.Println("error", err)
	os.Exit(1)
}

// backUpForEver makes backup after backup beside the store, so that the kill also meets those.
func backUpForEver(ctx context.Context, s *Store, dir string) {
	for i := 0; ; i++ {
		to := filepath.Join(dir, "backup")
		if err := os.RemoveAll(to); err != nil {
			fail(err)
		}
		if _, err := s.Backup(ctx, to); err != nil {
			fail(err)
		}
	}
}

// TestKilledWhileWriting kills a writing process at random moments: everything acknowledged is there, once; everything
// there is whole; ids are not used again.
func TestKilledWhileWriting(t *testing.T) {
	if *kills == 0 {
		t.Skip("-kills 0")
	}
	dir := t.TempDir()
	rig := &crashRig{dir: dir, acked: map[int64]bool{}, films: map[int64]bool{}, sequences: map[int64]bool{}, rules: map[string]bool{}}
	for n := range *kills {
		rig.round(t, n)
		if t.Failed() {
			break
		}
	}
	t.Logf("kills_tried %d count - ok", *kills)
	t.Logf("rows_acknowledged %d count - ok", rig.total)
	t.Logf("rows_unacknowledged_but_kept %d count - ok", rig.extra)
	t.Logf("clips_acknowledged %d count - ok", rig.filmed)
	t.Logf("rows_lost %d count 0 %s", rig.lost, map[bool]string{true: "over", false: "ok"}[t.Failed()])
}

type crashRig struct {
	dir          string
	next         int64 // number of the next batch
	acked        map[int64]bool
	films        map[int64]bool
	sequences    map[int64]bool
	rules        map[string]bool
	total, extra int
	filmed       int
	lost         int
	lastEvent    int64
}

// round starts the child, kills it, and looks at what it left.
func (r *crashRig) round(t *testing.T, n int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-crash-child", r.dir, "-crash-from", strconv.FormatInt(r.next, 10))
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	kill := time.AfterFunc(time.Duration(20+rand.IntN(180))*time.Millisecond, func() { _ = cmd.Process.Kill() })
	r.read(t, out)
	kill.Stop()
	_ = cmd.Wait() // it was killed
	r.verify(t, n)
}

// read collects what the child says until it is dead.
func (r *crashRig) read(t *testing.T, out io.Reader) {
	t.Helper()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		what, value, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "ack":
			i, err := strconv.ParseInt(value, 10, 64)
			check(t, err)
			r.acked[i] = true
			r.total++
		case "sequence":
			id, err := strconv.ParseInt(value, 10, 64)
			check(t, err)
			if r.sequences[id] {
				t.Errorf("sequence %d was given twice", id)
			}
			r.sequences[id] = true
		case "film":
			i, err := strconv.ParseInt(value, 10, 64)
			check(t, err)
			r.films[i] = true
			r.filmed++
		case "rule":
			r.rules[value] = true
		case "error":
			t.Fatal("child: ", value)
		}
	}
}

func (r *crashRig) verify(t *testing.T, n int) {
	t.Helper()
	now := crashTime(r.next)
	for i := range r.acked {
		r.next = max(r.next, i+1)
	}
	s := open(t, Config{Dir: r.dir, Now: func() time.Time { return now }})
	defer s.stop()
	ctx := t.Context()
	if st := s.Stats(); len(st.Damaged) > 0 {
		t.Fatalf("kill %d: damaged: %v", n, st.Damaged)
	}
	if open := must[[]Sequence](t)(s.OpenSequences(ctx)); len(open) > 0 {
		t.Errorf("kill %d: sequences left open: %v", n, open)
	}
	for name := range r.rules {
		must[Resource](t)(s.Get(ctx, Rules, name))
	}
	floor := dayTime(s.days.floor)
	events := r.events(t, s)
	for i := range r.acked {
		if crashTime(i).Before(floor) {
			delete(r.acked, i) // retention took it, as it should
			delete(r.films, i)
		} else if !events[i] {
			r.lost++
			t.Errorf("kill %d: batch %d was acknowledged, its event is lost", n, i)
		}
	}
	r.wholeness(t, s, events)
	for _, day := range s.days.list(0, 1<<40) {
		f, _ := s.days.borrow(day)
		if err := checkDB(ctx, f.db, "integrity_check"); err != nil {
			t.Errorf("kill %d: %s: %v", n, dayName(day), err)
		}
		f.release()
	}
	if err := checkDB(ctx, s.reader, "integrity_check"); err != nil {
		t.Errorf("kill %d: catalogue: %v", n, err)
	}
	if left := must[[]string](t)(filepath.Glob(filepath.Join(r.dir, "media-*", "door", unfinished+"*"))); len(left) > 0 {
		t.Errorf("kill %d: left behind: %v", n, left)
	}
	if _, err := VerifyBackup(ctx, filepath.Join(r.dir, "backup")); err != nil && !errors.Is(err, ErrCorrupt) {
		t.Errorf("kill %d: half a backup: %v", n, err)
	}
}

// events reads the numbers of all events; each must be there once, and event numbers must grow.
func (r *crashRig) events(t *testing.T, s running) map[int64]bool {
	t.Helper()
	have := map[int64]bool{}
	after := int64(0)
	for {
		list := must[[]Event](t)(s.EventsAfter(t.Context(), after, 1000))
		if len(list) == 0 {
			break
		}
		for _, e := range list {
			if e.Seq <= after {
				t.Errorf("event %d comes after %d", e.Seq, after)
			}
			after = e.Seq
			i, err := strconv.ParseInt(string(e.Payload), 10, 64)
			check(t, err)
			if have[i] {
				t.Errorf("event of batch %d is there twice", i)
			}
			r.watch(t, s, i, &e)
			have[i] = true
			if i >= r.next {
				r.next = i + 1
			}
			if !r.acked[i] {
				r.extra++
				r.acked[i] = true // it was seen: it must stay
			}
		}
	}
	if after < r.lastEvent {
		t.Errorf("the newest event is %d, it was %d", after, r.lastEvent)
	}
	r.lastEvent = after
	return have
}

// watch checks that what is kept of an event is there as a whole.
func (r *crashRig) watch(t *testing.T, s running, i int64, e *Event) {
	t.Helper()
	full := must[Event](t)(s.GetEvent(t.Context(), e.Seq))
	for _, m := range full.Media {
		if data, err := s.ReadMedia(m.Time, m.File); err != nil || !bytes.Equal(data, filmed(i)) {
			t.Errorf("%s of event %d: %d bytes, %v", m.File, i, len(data), err)
		}
	}
	if n := len(full.Media); n != 0 && n != 2 || n == 0 && r.films[i] {
		t.Errorf("event %d has %d of its snapshot and clip, acknowledged: %v", i, n, r.films[i])
	}
}

// wholeness checks that a batch is there as a whole or not at all, and that no track is left active.
func (r *crashRig) wholeness(t *testing.T, s running, events map[int64]bool) {
	t.Helper()
	detections := map[int64]int{}
	for _, d := range listAll(t, s, Query{PageSize: 5000, Ascending: true}) {
		detections[d.Frame]++
	}
	tracks := map[int64]int{}
	for q := (Query{PageSize: 1000, Ascending: true}); ; {
		list, next, err := s.ListTracks(t.Context(), q)
		check(t, err)
		for _, tr := range list {
			tracks[tr.ID.Local-1]++
			if tr.State != TrackEnded || tr.EndReason != crashReason {
				t.Errorf("track %v is %d, ended by %q", tr.ID, tr.State, tr.EndReason)
			}
		}
		if q.PageToken = next; next == "" {
			break
		}
	}
	for i := range events {
		if detections[i] != 3 || tracks[i] != 1 {
			t.Errorf("batch %d has %d detections of 3 and %d tracks of 1", i, detections[i], tracks[i])
		}
	}
	if len(detections) != len(events) || len(tracks) != len(events) {
		t.Errorf("%d events, %d frames, %d tracks", len(events), len(detections), len(tracks))
	}
}

// TestKilledWhileMigrating kills a process while it brings the files of an older version to the present schema: the next
// start goes on, nothing is lost, and no copies are left.
func TestKilledWhileMigrating(t *testing.T) {
	const version, first, days = "testdata/v0001", "day-20310506.db", 12
	rounds, interrupted := (*kills+7)/8, 0
	for n := range rounds {
		dir := t.TempDir()
		check(t, os.CopyFS(dir, os.DirFS(version)))
		data := must[[]byte](t)(os.ReadFile(filepath.Join(dir, first)))
		for day := range days {
			check(t, os.WriteFile(filepath.Join(dir, dayName(dayOf(noon.UnixMicro())+int64(day))), data, 0o600))
		}
		cmd := exec.Command(os.Args[0], "-crash-child", dir, "-crash-from", "-1")
		out := must[io.ReadCloser](t)(cmd.StdoutPipe())
		check(t, cmd.Start())
		// The kill comes some time after the first copy that is made before a migration.
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(time.Millisecond) {
			if len(must[[]string](t)(filepath.Glob(filepath.Join(dir, backupsDir, "*")))) > 0 {
				break
			}
		}
		kill := time.AfterFunc(time.Duration(rand.IntN(100))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		said := must[[]byte](t)(io.ReadAll(out))
		kill.Stop()
		_ = cmd.Wait() // it was killed
		if len(said) == 0 {
			interrupted++
		} else if string(said) != "open\n" {
			t.Errorf("kill %d: the child says %s", n, said)
		}
		s := open(t, Config{Dir: dir, Now: func() time.Time { return noon.Add(time.Hour) }})
		if st := s.Stats(); len(st.Damaged) > 0 || len(st.Files) != 1+days {
			t.Errorf("kill %d: %d files, damaged %v", n, len(st.Files), st.Damaged)
		}
		want, _ := released(1)
		for _, day := range s.days.list(0, 1<<40) {
			f, _ := s.days.borrow(day)
			var objects, tracks, events, media int
			check(t, f.db.QueryRowContext(t.Context(), `SELECT (SELECT sum(objects) FROM detections), (SELECT count(*) FROM tracks),
				(SELECT count(*) FROM events), (SELECT count(*) FROM media)`).Scan(&objects, &tracks, &events, &media))
			if objects != len(flatten(want.Frames)) || tracks != 1 || events != 1 || media != 0 {
				t.Errorf("kill %d: %s has %d detections, %d tracks, %d events", n, dayName(day), objects, tracks, events)
			}
			check(t, checkDB(t.Context(), f.db, "integrity_check"))
			f.release()
		}
		left := must[[]string](t)(filepath.Glob(filepath.Join(dir, backupsDir, "before-migration-*-day-*")))
		left = append(left, must[[]string](t)(filepath.Glob(filepath.Join(dir, "*.new*")))...)
		if len(left) > 0 {
			t.Errorf("kill %d: left behind: %v", n, left)
		}
		s.stop()
		if t.Failed() {
			break
		}
	}
	t.Logf("migrations_tried %d count - ok", rounds)
	t.Logf("migrations_interrupted %d count 1 %s", interrupted, map[bool]string{true: "ok", false: "over"}[interrupted > 0 || rounds == 0])
}
