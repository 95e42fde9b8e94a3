package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/vedette/vedette/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC)

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// run runs a store in a new folder until the test ends.
func run(t *testing.T) *store.Store {
	t.Helper()
	s := store.New(store.Config{Dir: t.TempDir(), Window: time.Millisecond, Retention: store.Retention{MinFree: -1}})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); check(t, <-done) })
	<-s.Ready()
	return s
}

// filled fills a store with two cameras' worth of objects over midnight.
func filled(t *testing.T) *store.Store {
	t.Helper()
	s := run(t)
	ctx := t.Context()
	r := rand.New(rand.NewPCG(1, 2))
	for _, camera := range []string{"door", `the "yard", north`} {
		id, err := s.OpenSequence(ctx, store.Sequence{Camera: camera, OpenReason: "START", OpenedAt: noon})
		check(t, err)
		var b store.Batch
		begin := noon.Add(12*time.Hour - 2*time.Second)
		for i := range 100 {
			f := store.Frame{Sequence: id, Camera: camera, CaptureTime: begin.Add(time.Duration(i) * 40 * time.Millisecond), Number: int64(i)}
			f.ReceiveTime = f.CaptureTime.Add(time.Millisecond)
			for j := range 3 {
				x, y := r.Float32()/2, r.Float32()/2
				f.Objects = append(f.Objects, store.Object{Local: int64(j), Class: "person", Score: 0.25 * float32(1+j), Box: store.Box{X1: x, Y1: y, X2: x + 0.25, Y2: y + 0.5}})
			}
			b.Frames = append(b.Frames, f)
		}
		for j := range 2 {
			b.Tracks = append(b.Tracks, store.Track{
				ID: store.TrackID{Sequence: id, Local: int64(j + 1)}, Camera: camera, Class: "person", Start: begin, End: begin.Add(4 * time.Second),
				State: store.TrackEnded, EndReason: "lost", Score: 0.5, Box: store.Box{X2: 1, Y2: 1}, Detections: 100, Picture: "a.jpg",
				Path: []store.Point{{Time: begin, X: 0.5, Y: 0.25}, {Time: begin.Add(time.Second), X: 1, Y: 0}},
			})
		}
		done, err := s.Append(ctx, b)
		check(t, err)
		check(t, <-done)
	}
	return s
}

func TestWhatIsExportedCanBeImported(t *testing.T) {
	from := filled(t)
	for _, f := range []Format{CSV, JSONLines, Parquet} {
		t.Run(string(f), func(t *testing.T) {
			ctx := t.Context()
			var detections, tracks bytes.Buffer
			n, err := ExportDetections(ctx, from, store.Query{}, f, MOTConfig{}, &detections)
			check(t, err)
			if n != 600 {
				t.Errorf("exported %d detections, want 600", n)
			}
			n, err = ExportTracks(ctx, from, store.Query{}, f, &tracks)
			check(t, err)
			if n != 4 {
				t.Errorf("exported %d tracks, want 4", n)
			}
			to := run(t)
			m := NewImporter(to)
			n, err = m.Tracks(ctx, f, bytes.NewReader(tracks.Bytes()))
			check(t, err)
			if n != 4 {
				t.Errorf("imported %d tracks, want 4", n)
			}
			n, err = m.Detections(ctx, f, MOTConfig{}, bytes.NewReader(detections.Bytes()))
			check(t, err)
			if n != 600 {
				t.Errorf("imported %d detections, want 600", n)
			}
			check(t, m.Close(ctx))
			same(t, from, to, f)
		})
	}
}

// same compares two stores, but for sequence ids; CSV has no paths.
func same(t *testing.T, from, to *store.Store, f Format) {
	t.Helper()
	q := store.Query{PageSize: 10_000, Ascending: true}
	want, _, err := from.ListDetections(t.Context(), q)
	check(t, err)
	have, _, err := to.ListDetections(t.Context(), q)
	check(t, err)
	if diff := cmp.Diff(want, have, cmpopts.EquateApprox(0, 1e-4)); diff != "" {
		t.Errorf("detections (-want +have)\n%.2000s", diff)
	}
	wantTracks, _, err := from.ListTracks(t.Context(), store.Query{Ascending: true})
	check(t, err)
	haveTracks, _, err := to.ListTracks(t.Context(), store.Query{Ascending: true})
	check(t, err)
	if diff := cmp.Diff(wantTracks, haveTracks); diff != "" {
		t.Errorf("tracks (-want +have)\n%s", diff)
	}
	for _, tr := range haveTracks {
		whole, err := to.GetTrack(t.Context(), tr.ID)
		check(t, err)
		if f != CSV && len(whole.Path) != 2 {
			t.Errorf("track %v has a path of %d points, want 2", tr.ID, len(whole.Path))
		}
	}
}

func TestMOTGoesOutAndComesBack(t *testing.T) {
	from := filled(t)
	ctx := t.Context()
	cfg := MOTConfig{Camera: "door", Width: 1920, Height: 1080, Start: noon.Add(12*time.Hour - 2*time.Second), Interval: 40 * time.Millisecond}
	var out bytes.Buffer
	n, err := ExportDetections(ctx, from, store.Query{Cameras: []string{"door"}}, MOT, cfg, &out)
	check(t, err)
	if lines := strings.Count(out.String(), "\n"); n != 300 || lines != 300 {
		t.Fatalf("exported %d detections in %d lines, want 300", n, lines)
	}
	to := run(t)
	m := NewImporter(to)
	_, err = m.Detections(ctx, MOT, cfg, &out)
	check(t, err)
	check(t, m.Close(ctx))
	q := store.Query{Cameras: []string{"door"}, PageSize: 1000, Ascending: true}
	want, _, err := from.ListDetections(ctx, q)
	check(t, err)
	have, _, err := to.ListDetections(ctx, q)
	check(t, err)
	ignore := cmpopts.IgnoreFields(store.Detection{}, "ReceiveTime", "Frame", "Object.Local")
	if diff := cmp.Diff(want, have, ignore, cmpopts.EquateApprox(0, 0.001)); diff != "" {
		t.Errorf("(-want +have)\n%.2000s", diff)
	}
	tracks, _, err := to.ListTracks(ctx, store.Query{})
	check(t, err)
	if len(tracks) != 2 || tracks[0].Detections != 100 || !tracks[0].Start.Equal(cfg.Start) {
		t.Errorf("tracks %+v", tracks)
	}
}

func TestBadFilesAreRefusedByLine(t *testing.T) {
	to := run(t)
	head := strings.Join(detectionRow{}.columns(), ",") + "\n"
	good := "door,1,1,2031-05-06T12:00:00Z,2031-05-06T12:00:00Z,1,person,0.5,0,0,1,1\n"
	cfg := MOTConfig{Camera: "door", Width: 100, Height: 100, Start: noon}
	for name, c := range map[string]struct {
		f    Format
		text string
		want string
	}{
		"an empty CSV":            {CSV, "", "the first line is"},
		"a CSV of something else": {CSV, "a,b\n1,2\n", "the first line is"},
		"a short line":            {CSV, head + good + "door,1\n", "record on line 3"},
		"a bad time":              {CSV, head + strings.Replace(good, "2031-05-06T12:00:00Z", "noon", 1), `line 2: capture_time: invalid: "noon"`},
		"a bad number":            {CSV, head + good + strings.Replace(good, "0.5", "half", 1), `line 3: score: invalid: "half"`},
		"a score of 2":            {CSV, head + strings.Replace(good, "0.5", "2", 1), "score"},
		"a bad JSON":              {JSONLines, `{"camera": "door"` + "\n", "row 1"},
		"an unknown JSON field":   {JSONLines, `{"colour": "red"}` + "\n", "colour"},
		"no Parquet":              {Parquet, "this is no Parquet file", "parquet"},
		"an empty Parquet":        {Parquet, "", "parquet"},
		"MOT without a box":       {MOT, "1,1,10\n", "line 1: invalid: 3 places"},
		"MOT with words":          {MOT, "1,1,10,10,5,5,1\n2,x,10,10,5,5,1\n", "line 2: invalid: place 2"},
		"MOT from frame 0":        {MOT, "0,1,10,10,5,5,1\n", "line 1: invalid: frames count from 1"},
		"a format of no kind":     {"xml", "", "xml"},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewImporter(to)
			_, err := m.Detections(t.Context(), c.f, cfg, strings.NewReader(c.text))
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			check(t, m.Close(t.Context()))
		})
	}
	m := NewImporter(to)
	if _, err := m.Detections(t.Context(), MOT, MOTConfig{}, strings.NewReader("")); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	if _, err := m.Tracks(t.Context(), Parquet, io.LimitReader(strings.NewReader(""), 0)); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	if _, err := ExportTracks(t.Context(), to, store.Query{}, MOT, io.Discard); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	if _, err := ExportDetections(t.Context(), to, store.Query{}, MOT, cfg, io.Discard); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	if _, err := ParseFormat("xml"); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
}

func TestParquetIsReadFromAFile(t *testing.T) {
	from := filled(t)
	path := filepath.Join(t.TempDir(), "d.parquet")
	f, err := os.Create(path)
	check(t, err)
	_, err = ExportDetections(t.Context(), from, store.Query{Cameras: []string{"door"}}, Parquet, MOTConfig{}, f)
	check(t, errors.Join(err, f.Close()))
	f, err = os.Open(path)
	check(t, err)
	m := NewImporter(run(t))
	n, err := m.Detections(t.Context(), Parquet, MOTConfig{}, f)
	check(t, errors.Join(err, f.Close(), m.Close(t.Context())))
	if n != 300 {
		t.Errorf("%d rows, want 300", n)
	}
}

func FuzzMOTLines(f *testing.F) {
	f.Add("1,1,10,10,5,5,0.5,-1,-1,-1\n2,-1,10,10,5,5,1,1,0.8\n")
	f.Add(" 1 , 2,3,4,5,6\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := newMOTReader(strings.NewReader(text), MOTConfig{Camera: "door", Width: 100, Height: 100, Start: noon})
		check(t, err)
		for {
			row, err := r.read(t.Context())
			if errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				if !errors.Is(err, store.ErrInvalid) {
					t.Fatalf("%v is no ErrInvalid", err)
				}
				return
			}
			if row.Score < 0 || row.Score > 1 || row.X2 < row.X1 || row.Y2 < row.Y1 || row.Track < 0 || row.Frame < 1 {
				t.Fatalf("%+v from %q", row, text)
			}
		}
	})
}

func FuzzCSVDetections(f *testing.F) {
	f.Add("door,1,1,2031-05-06T12:00:00Z,2031-05-06T12:00:00Z,1,person,0.5,0,0,1,1\n")
	f.Fuzz(func(t *testing.T, line string) {
		head := strings.Join(detectionRow{}.columns(), ",") + "\n"
		r, err := newCSVReader[detectionRow, *detectionRow](strings.NewReader(head + line))
		check(t, err)
		row, err := r.read(t.Context())
		if err != nil {
			return
		}
		again, err := detectionRow{}.parsed(row.fields())
		if err != nil {
			t.Fatalf("%q was read, but what was written of it was not: %v", line, err)
		}
		if diff := cmp.Diff(row, again, cmpopts.EquateNaNs()); diff != "" {
			t.Fatal(diff)
		}
	})
}
