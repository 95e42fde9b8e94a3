package sidecar_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

func TestEveryCodecAndTransportGivesTheSameFrames(t *testing.T) {
	h264 := rtsptest.Render(t, rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 25, GOP: 5})
	for _, c := range []struct {
		name      string
		clip      *rtsptest.Clip
		transport ingestv1.Transport
		codec     ingestv1.Codec
	}{
		{"H.264 over UDP", h264, ingestv1.Transport_TRANSPORT_UDP, ingestv1.Codec_CODEC_H264},
		{"H.264 with B-frames", rtsptest.Render(t, rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 24, GOP: 12, BFrames: 2}), 0, ingestv1.Codec_CODEC_H264},
		{"H.265", rtsptest.Render(t, rtsptest.ClipConfig{Codec: "h265", Width: 128, Height: 96, Frames: 25, GOP: 5}), 0, ingestv1.Codec_CODEC_H265},
		{"AV1", rtsptest.Render(t, rtsptest.ClipConfig{Codec: "av1", Width: 128, Height: 96, Frames: 25, GOP: 5}), 0, ingestv1.Codec_CODEC_AV1},
		{"MJPEG", rtsptest.Render(t, rtsptest.ClipConfig{Codec: "mjpeg", Width: 128, Height: 96, Frames: 25}), 0, ingestv1.Codec_CODEC_MJPEG},
	} {
		t.Run(c.name, func(t *testing.T) {
			cam := rtsptest.Start(t, rtsptest.Config{Clip: c.clip, UDP: true})
			r := start(t, sidecar.Config{LeaseTime: time.Minute}) // the test may be slow
			r.client.WatchFrames(&ingestv1.WatchFrames{})
			r.set(&ingestv1.Camera{Name: "door", Address: cam.Address(), Transport: c.transport})
			s := r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)
			if s.GetStream().GetCodec() != c.codec || s.GetStream().GetWidth() != 128 || s.GetStream().GetHeight() != 96 {
				t.Errorf("stream: %v", s.GetStream())
			}
			if want := max(c.transport, ingestv1.Transport_TRANSPORT_TCP); s.GetStream().GetTransport() != want {
				t.Errorf("transport %v, want %v", s.GetStream().GetTransport(), want)
			}
			var last int64
			for n := range 30 {
				f := r.frame()
				v, err := r.view(f)
				if err != nil {
					t.Fatal(err)
				}
				if f.GetTainted() || v.Width != 128 || v.Height != 96 || f.GetCaptureTimeNs() <= last {
					t.Fatalf("frame %d: %v after %d", n, f.FrameNotice, last)
				}
				if last = f.GetCaptureTimeNs(); f.GetCaptureTimeNs() > f.GetReceiveTimeNs() {
					t.Errorf("frame %d was captured after it was received", n)
				}
				f.Release()
			}
		})
	}
}

// data returns the path of a file among the real ones.
func data(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("VEDETTE_TEST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("real clips are not here (%v): set VEDETTE_TEST_DATA", err)
	}
	return path
}

// rendered writes a clip into a file.
func rendered(t *testing.T, frames int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clip.mp4")
	cmd := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=64x64:rate=25",
		"-frames:v", "60", "-c:v", "libx264", "-bf", "2", "-g", "20", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("render: %v: %s", err, out)
	}
	return path
}

func TestAFileGivesEveryFrameOnceInOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		path   func(t *testing.T) string
		frames int
		stepNS int64
	}{
		{"rendered, with B-frames", func(t *testing.T) string { return rendered(t, 60) }, 60, 40_000_000},
		{"vtest.mp4", func(t *testing.T) string { return data(t, "video/vtest.mp4") }, 795, 100_000_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := c.path(t)
			r := start(t, sidecar.Config{LeaseTime: time.Minute}) // the test may be slow
			r.client.WatchFrames(&ingestv1.WatchFrames{MaxLeases: 2})
			r.set(&ingestv1.Camera{Name: "clip", Address: "file:" + path, File: &ingestv1.FilePlayback{FullSpeed: true, StartTimeNs: 1e18}})
			var first int64
			for n := range c.frames {
				f := r.frame()
				if n == 0 {
					first = f.GetCaptureTimeNs()
				}
				if int(f.GetNumber()) != n || f.GetTainted() || f.GetCaptureQuality() != ingestv1.TimeQuality_TIME_QUALITY_FILE {
					t.Fatalf("frame %d: %v", n, f.FrameNotice)
				}
				if off := f.GetCaptureTimeNs() - first - int64(n)*c.stepNS; off > 1e6 || off < -1e6 {
					t.Fatalf("frame %d is captured %d ns off", n, off)
				}
				if _, err := r.view(f); err != nil {
					t.Fatal(err)
				}
				f.Release()
			}
			if first < 1e18 || first > 1e18+1e9 {
				t.Errorf("first frame captured at %d", first)
			}
			r.state("clip", ingestv1.CameraState_CAMERA_STATE_FINISHED)
			select {
			case f := <-r.frames:
				t.Errorf("one more: %v", f.FrameNotice)
			default:
			}
		})
	}
}
