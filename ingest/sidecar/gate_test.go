package sidecar_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

// still is a noisy picture of nothing in which a box moves from 4 s to 6 s.
func still(t testing.TB, width, height, frames int) *rtsptest.Clip {
	t.Helper()
	return rtsptest.Render(t, rtsptest.ClipConfig{
		Width: width, Height: height, Rate: 10, Frames: frames, GOP: 20, Source: "color=c=0x707070",
		Extra: []string{"-vf", "geq=lum='if(between(T,4,6)*between(X,W/8+W/4*(T-4),W/4+W/4*(T-4))*between(Y,H/3,H*2/3),210,lum(X,Y)+X/8)':cb=128:cr=128,noise=alls=6:allf=t"},
	})
}

func TestTheGateHoldsBackStillScenesAndSaysSo(t *testing.T) {
	cam := rtsptest.Start(t, rtsptest.Config{Clip: still(t, 160, 96, 90)})
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	door := &ingestv1.Camera{Name: "door", Address: cam.Address(), MotionGate: &ingestv1.MotionGate{HoldNs: 5e8, RecheckNs: 1e9}}
	r.set(door)
	next(t, r.status, "gate that learns or is open", func(s *ingestv1.CameraStatus) bool {
		return s.GetGate() == ingestv1.GateState_GATE_STATE_LEARNING || s.GetGate() == ingestv1.GateState_GATE_STATE_OPEN
	})
	next(t, r.status, "closed gate", func(s *ingestv1.CameraStatus) bool { return s.GetGate() == ingestv1.GateState_GATE_STATE_CLOSED })
	next(t, r.frames, "frame that passes a closed gate", func(f ingestclient.Frame) bool { f.Release(); return f.GetGateRecheck() })
	if n := next(t, r.counts, "count of what was held back", func(c *ingestv1.Counters) bool { return c.GetFramesGated() > 3 }); n.GetFramesGated() >= n.GetFramesDecoded() {
		t.Errorf("counters: %v", n)
	}
	// The clip goes on: when the box comes, everything passes.
	last, run := uint64(0), 0
	next(t, r.frames, "run of frames of something moving", func(f ingestclient.Frame) bool {
		f.Release()
		if f.GetNumber() != last+1 || f.GetGateRecheck() {
			run = 0
		}
		run, last = run+1, f.GetNumber()
		return run >= 10
	})
	// Without a gate everything passes, and the connection stays.
	door.MotionGate = nil
	r.set(door)
	next(t, r.status, "no gate", func(s *ingestv1.CameraStatus) bool {
		return s.GetGate() == ingestv1.GateState_GATE_STATE_UNSPECIFIED && s.GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING
	})
	if _, all, _ := cam.Sessions(); all != 1 {
		t.Errorf("%d sessions", all)
	}
}

// What moves may change the sizes of coded pictures by less than the noise: then a keyframe shows it, and the pictures before
// that, in which it came, must not be missing.
func TestTheFirstPicturesOfWhatMovesPassAClosedGate(t *testing.T) {
	for _, between := range []int{0, 2} { // B-frames
		path := filepath.Join(t.TempDir(), "clip.mp4")
		out, err := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", "color=c=0x707070:size=320x180:rate=10",
			"-f", "lavfi", "-i", "color=c=0x989898:size=16x36:rate=10", "-frames:v", "100",
			"-filter_complex", "[0]noise=alls=10:allf=t[a];[a][1]overlay=x='if(between(t,6.45,9),30*(t-6.4),-100)':y=80:eval=frame", "-pix_fmt", "yuv420p",
			"-c:v", "libx264", "-preset", "veryfast", "-qp", "26", "-x264-params", fmt.Sprintf("keyint=20:min-keyint=20:scenecut=0:bframes=%d", between), path).CombinedOutput()
		if err != nil {
			t.Fatalf("render: %v: %s", err, out)
		}
		r := start(t, sidecar.Config{})
		r.client.WatchFrames(&ingestv1.WatchFrames{})
		r.set(&ingestv1.Camera{Name: "door", Address: "file:" + path, File: &ingestv1.FilePlayback{FullSpeed: true}, MotionGate: &ingestv1.MotionGate{}})
		came, last := map[int64]bool{}, int64(-1)
		next(t, r.frames, "frame of the time after", func(f ingestclient.Frame) bool {
			f.Release()
			n := f.GetRtpTicks() / 9000
			if n <= last {
				t.Errorf("picture %d comes after picture %d", n, last)
			}
			came[n], last = true, n
			return n >= 85
		})
		for n := int64(66); n < 85; n++ {
			if !came[n] {
				t.Errorf("%d B-frames: picture %d, in which something moves, is missing", between, n)
			}
		}
		held := 0
		for n := int64(45); n < 62; n++ {
			if !came[n] {
				held++
			}
		}
		if held < 15 {
			t.Errorf("%d B-frames: %d of 17 pictures of nothing were held back", between, held)
		}
	}
}
