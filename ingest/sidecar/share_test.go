package sidecar_test

import (
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

// sees waits until a camera has been streaming and announced a frame.
func (r *rig) sees(name string) {
	r.t.Helper()
	next(r.t, r.frames, "frame of "+name, func(f ingestclient.Frame) bool {
		f.Release()
		return f.GetCamera() == name
	})
}

func TestCamerasOfOneAddressShareItsSession(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, Username: "u", Password: "p"})
	main := rtsptest.Start(t, rtsptest.Config{Clip: clip, Username: "u", Password: "p"})
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	one := &ingestv1.Camera{Name: "one", Address: cam.Address(), MainAddress: main.Address(), KeepMain: true, Username: "u", Password: "p"}
	two := &ingestv1.Camera{Name: "two", Address: "RTSP" + strings.TrimPrefix(cam.Address(), "rtsp"), Username: "u", Password: "p", AnalysisRate: 5}
	three := &ingestv1.Camera{Name: "three", Address: main.Address(), Username: "u", Password: "p"}
	r.set(one, two, three)
	for _, c := range []*ingestv1.Camera{one, two, three} {
		r.state(c.GetName(), ingestv1.CameraState_CAMERA_STATE_STREAMING)
		r.sees(c.GetName())
	}
	// Who looks shares it too.
	p, err := r.client.Probe(t.Context(), &ingestv1.GetProbe{
		Camera: &ingestv1.Camera{Name: "x", Address: cam.Address(), Username: "u", Password: "p"}, WatchNs: int64(time.Second),
	})
	if s := p.GetStream(); err != nil || p.GetError() != nil || s.GetGop() != 5 || s.GetWidth() != 64 || len(p.GetJpeg()) == 0 {
		t.Errorf("a probe beside the cameras: %v, %v, %v", err, p.GetError(), s)
	}
	single := func(when string) {
		t.Helper()
		for _, c := range []*rtsptest.Camera{cam, main} {
			if open, all, most := c.Sessions(); open != 1 || all != 1 || most != 1 {
				t.Errorf("%s: %d sessions, %d in all, %d at once; want one", when, open, all, most)
			}
		}
	}
	// again waits until a camera streams in another epoch than now, which change brings about.
	again := func(name string, change func()) {
		t.Helper()
		epoch := r.state(name, ingestv1.CameraState_CAMERA_STATE_STREAMING).GetStreamEpoch()
		change()
		next(t, r.status, "a new stream epoch of "+name, func(s *ingestv1.CameraStatus) bool {
			return s.GetCamera() == name && s.GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING && s.GetStreamEpoch() != epoch
		})
	}
	again("two", func() {
		two.Transport = ingestv1.Transport_TRANSPORT_TCP // which it is
		r.set(one, two, three)
	})
	single("three cameras, one by another word, and a probe")

	// A password that is not theirs is not let in by their session.
	p, err = r.client.Probe(t.Context(), &ingestv1.GetProbe{Camera: &ingestv1.Camera{Name: "x", Address: cam.Address(), Username: "u", Password: "guess"}})
	if err != nil || p.GetError().GetReason() != ingestv1.ErrorReason_ERROR_REASON_AUTH_FAILED {
		t.Errorf("a probe with another password: %v, %v", p, err)
	}

	// Who opened the session may go; it stays with the others.
	r.set(two, three)
	next(t, r.status, "removal of the first", func(s *ingestv1.CameraStatus) bool { return s.GetRemoved() })
	r.sees("two")
	r.sees("three")
	single("without the first")

	// It ends for all when the camera ends it, and there is one again.
	again("two", cam.Kick)
	if _, all, most := cam.Sessions(); all != 2 || most != 1 {
		t.Errorf("after the connection broke: %d sessions, %d at once; want two, one after the other", all, most)
	}

	// One that takes another's place under a new name waits for its session to end.
	four := &ingestv1.Camera{Name: "four", Address: cam.Address(), Username: "u", Password: "p"}
	r.set(four)
	r.sees("four")
	if _, _, most := cam.Sessions(); most != 1 {
		t.Errorf("while one camera took another's place: %d sessions at once", most)
	}
	r.set()
	next(t, r.status, "removal of the last", func(s *ingestv1.CameraStatus) bool { return s.GetRemoved() && s.GetCamera() == "four" })
	deadline := time.After(20 * time.Second)
	for _, c := range []*rtsptest.Camera{cam, main} {
		for open, _, _ := c.Sessions(); open > 0; open, _, _ = c.Sessions() {
			select {
			case <-time.After(time.Millisecond):
			case <-deadline:
				t.Fatal("nobody reads, and a session is open")
			}
		}
	}
	if n := cam.Requests(base.Teardown); n == 0 {
		t.Error("no TEARDOWN")
	}
}

func TestAProbeOfAnIsolatedCameraIsItsProcessesToMake(t *testing.T) {
	isolating(t)
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{Worker: worker})
	r.set(&ingestv1.Camera{Name: "alone", Address: cam.Address(), Isolation: ingestv1.Isolation_ISOLATION_CAMERA})
	r.state("alone", ingestv1.CameraState_CAMERA_STATE_STREAMING)
	p, err := r.client.Probe(t.Context(), &ingestv1.GetProbe{Camera: &ingestv1.Camera{Name: "x", Address: cam.Address()}, WatchNs: int64(time.Second)})
	if err != nil || p.GetError() != nil || p.GetStream().GetWidth() != 64 {
		t.Errorf("a probe: %v, %v", p, err)
	}
	if _, all, _ := cam.Sessions(); all != 1 {
		t.Errorf("%d sessions, want one", all)
	}
	// Another process is another session.
	for i, isolation := range []ingestv1.Isolation{ingestv1.Isolation_ISOLATION_UNSPECIFIED, ingestv1.Isolation_ISOLATION_CAMERA} {
		r.set(&ingestv1.Camera{Name: "alone", Address: cam.Address(), Isolation: isolation})
		next(t, r.status, "the camera in another process", func(s *ingestv1.CameraStatus) bool {
			return s.GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING && s.GetIsolated() == (i == 1) && s.GetApplied() == ingestv1.Applied_APPLIED_RECONNECTED
		})
		if _, all, most := cam.Sessions(); all != i+2 || most != 1 {
			t.Errorf("%d sessions, %d at once", all, most)
		}
	}
}
