package file_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink collects what a source delivers.
type sink struct {
	units  []ingest.AccessUnit
	stream ingest.Stream
	stop   func() // after the first unit; nil: never
}

func (s *sink) Reached(ingest.Stage)             {}
func (s *sink) Stream(d ingest.Stream)           { s.stream = d }
func (s *sink) SenderReport(ingest.SenderReport) {}
func (s *sink) Packets(_, _, _, _ uint64)        {}

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
	for _, c := range []struct {
		name, path string
		want       ingest.Reason
	}{
		{"no such file", filepath.Join(dir, "none.mp4"), ingest.ReasonNotFound},
		{"no video", text, ingest.ReasonDecode},
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
