package file_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink collects what a source delivers.
type sink struct {
	units  []ingest.AccessUnit
	stream ingest.Stream
	bad    uint64
	stop   func() // after the first unit; nil: never
}

func (s *sink) Reached(ingest.Stage)             {}
func (s *sink) Stream(d ingest.Stream)           { s.stream = d }
func (s *sink) SenderReport(ingest.SenderReport) {}
func (s *sink) Packets(_, _, _, bad uint64)      { s.bad += bad }

func (s *sink) AccessUnit(u ingest.AccessUnit) {
	s.units = append(s.units, u)
	if s.stop != nil {
		s.stop()
	}
}

// clip renders 20 pictures at 10 a second.
func clip(t *testing.T, name string, codec ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	args := append([]string{"-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10", "-frames:v", "20", "-pix_fmt", "yuv420p"}, codec...)
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", append(args, path)...).CombinedOutput(); err != nil {
		t.Fatalf("render: %v: %s", err, out)
	}
	return path
}

func TestAFileIsReadWholeWhateverItsContainer(t *testing.T) {
	h264, h265 := []string{"-c:v", "libx264", "-bf", "2", "-g", "10"}, []string{"-c:v", "libx265", "-g", "10", "-x265-params", "log-level=none"}
	for _, c := range []struct {
		name    string
		codec   []string
		want    ingest.Codec
		reorder bool
	}{
		{"a.mp4", h264, ingest.H264, true},
		{"a.mkv", h265, ingest.H265, true},
		{"a.ts", h264, ingest.H264, true},
		{"a.avi", []string{"-c:v", "mjpeg"}, ingest.MJPEG, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sink{}
			err := file.New(file.Config{Path: clip(t, c.name, c.codec...), FullSpeed: true}).Run(t.Context(), s)
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if s.stream.Codec != c.want || s.stream.Width != 64 || s.stream.Height != 48 || s.stream.Live {
				t.Errorf("stream %+v", s.stream)
			}
			if len(s.units) != 20 || !s.units[0].Keyframe {
				t.Fatalf("%d units, the first a keyframe: %v", len(s.units), s.units[0].Keyframe)
			}
			least, most, reordered := s.units[0].Ticks, s.units[0].Ticks, false
			for i, u := range s.units {
				if len(u.Data) == 0 || u.Lost || u.Damaged {
					t.Errorf("unit %d: %d bytes, lost %v, damaged %v", i, len(u.Data), u.Lost, u.Damaged)
				}
				reordered = reordered || (i > 0 && u.Ticks < s.units[i-1].Ticks)
				least, most = min(least, u.Ticks), max(most, u.Ticks)
			}
			if d := (most - least).Duration(); d < 1890*time.Millisecond || d > 1910*time.Millisecond {
				t.Errorf("20 pictures at 10 a second last %v", d)
			}
			if reordered != c.reorder {
				t.Errorf("out of order: %v", reordered)
			}
		})
	}
}

func TestAFileEndsWhenAsked(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &sink{stop: cancel}
	if err := file.New(file.Config{Path: clip(t, "a.mp4", "-c:v", "libx264")}).Run(ctx, s); err != nil || len(s.units) != 1 {
		t.Errorf("%d units, %v", len(s.units), err)
	}
}

func TestWhatCannotBeReadHasItsReason(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.mp4")
	if err := os.WriteFile(text, []byte("no video at all, just words"), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo.mp4")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	sound := filepath.Join(dir, "sound.mp4")
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", "sine=duration=1", sound).CombinedOutput(); err != nil {
		t.Fatalf("render: %v: %s", err, out)
	}
	for _, c := range []struct {
		name, path string
		want       ingest.Reason
	}{
		{"no such file", filepath.Join(dir, "none.mp4"), ingest.ReasonNotFound},
		{"no video", text, ingest.ReasonDecode},
		{"a FIFO nobody writes into", fifo, ingest.ReasonInvalidConfig},
		{"sound alone", sound, ingest.ReasonCodecUnsupported},
		{"a codec nobody here decodes", clip(t, "a.avi", "-c:v", "mpeg4"), ingest.ReasonCodecUnsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := file.New(file.Config{Path: c.path}).Run(t.Context(), &sink{})
			if e := ingest.AsError(err); err == nil || e.Reason != c.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestARawStreamPlaysByItsRate(t *testing.T) {
	path := clip(t, "raw.h264", "-c:v", "libx264", "-bf", "0", "-g", "10")
	var now ingest.Instant
	s := &sink{}
	// The clock moves only when it is read: by a minute, so that nothing is waited for.
	err := file.New(file.Config{Path: path, Now: func() ingest.Instant { now.Mono += time.Minute; return now }}).Run(t.Context(), s)
	if !errors.Is(err, io.EOF) || len(s.units) != 20 {
		t.Fatalf("%d pictures, %v", len(s.units), err)
	}
	for i, u := range s.units {
		if want := ingest.TicksOf(time.Duration(i) * 100 * time.Millisecond); u.Ticks < want-1 || u.Ticks > want+1 {
			t.Errorf("picture %d at %d ticks, want %d: the stream has 10 a second", i, u.Ticks, want)
		}
	}
}

func TestTheFilesOfAFolderAreReadByName(t *testing.T) {
	dir := t.TempDir()
	for name, from := range map[string]string{
		"b.mp4": clip(t, "x.mp4", "-c:v", "libx264", "-bf", "2", "-g", "10"), "a.h264": clip(t, "x.h264", "-c:v", "libx264", "-bf", "0", "-g", "10"),
	} {
		if err := os.Rename(from, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("no video"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &sink{}
	if err := file.New(file.Config{Path: dir, FullSpeed: true}).Run(t.Context(), s); !errors.Is(err, io.EOF) || len(s.units) != 40 {
		t.Fatalf("%d pictures, %v", len(s.units), err)
	}
	if first, second := s.units[0].Ticks, s.units[20].Ticks; first != 0 || second < ingest.TicksOf(2*time.Second)-1 || !s.units[20].Keyframe {
		t.Errorf("the second file begins at %v after the first, keyframe %v", (second - first).Duration(), s.units[20].Keyframe)
	}
	// One that is no video, one that was cut short and one that went away leave the others as they were.
	if err := os.WriteFile(filepath.Join(dir, "aa.mp4"), []byte("no video at all, just words"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "c.mp4"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "gone.mp4"), filepath.Join(dir, "d.mp4")); err != nil {
		t.Fatal(err)
	}
	s = &sink{}
	if err := file.New(file.Config{Path: dir, FullSpeed: true}).Run(t.Context(), s); !errors.Is(err, io.EOF) || len(s.units) != 40 || s.bad != 3 {
		t.Errorf("%d pictures, %d files passed over, %v", len(s.units), s.bad, err)
	}
	for _, name := range []string{"a.h264", "b.mp4"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	err := file.New(file.Config{Path: dir}).Run(t.Context(), &sink{})
	if e, ok := errors.AsType[*ingest.Error](err); !ok || e.Reason != ingest.ReasonDecode {
		t.Errorf("a folder of files that are none: %v", err)
	}
	empty := t.TempDir()
	err = file.New(file.Config{Path: empty}).Run(t.Context(), &sink{})
	if e, ok := errors.AsType[*ingest.Error](err); !ok || e.Reason != ingest.ReasonNotFound {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestAFileThatIsToBeTurnedIsNamed(t *testing.T) {
	path := clip(t, "phone.mp4", "-c:v", "libx264")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The matrix of the track header (ISO/IEC 14496-12, section 8.3.2) of a picture taken upright: a quarter turn.
	at := bytes.Index(b, []byte("tkhd"))
	if at < 0 {
		t.Fatal("no track header")
	}
	one, none := []byte{0, 1, 0, 0}, []byte{0, 0, 0, 0}
	matrix := slices.Concat(none, one, none, []byte{0xFF, 0xFF, 0, 0}, none, none, none, none, []byte{0x40, 0, 0, 0})
	for _, c := range []struct {
		turned bool
		want   string
	}{{false, ""}, {true, "degrees_clockwise=90"}} {
		if c.turned {
			copy(b[at+4+40:], matrix)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		s := &sink{}
		err = file.New(file.Config{Path: path, FullSpeed: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}).Run(t.Context(), s)
		if !errors.Is(err, io.EOF) || len(s.units) != 20 || !strings.Contains(log.String(), c.want) || c.turned != (log.Len() > 0) {
			t.Errorf("turned %v: %v, %d units, %s", c.turned, err, len(s.units), &log)
		}
	}
}
