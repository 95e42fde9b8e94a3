package sidecar_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"golang.org/x/sys/unix"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

// A process without descriptors left says so, keeps the cameras it has, and connects the others when there are some again.
func TestABoxOutOfDescriptorsSaysSoAndGoesOn(t *testing.T) {
	isolating(t)
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	first, second := rtsptest.Start(t, rtsptest.Config{Clip: clip}), rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r, process := processRig(t)
	r.set(&ingestv1.Camera{Name: "first", Address: first.Address()})
	r.frame().Release()
	pid := process.Status().PID
	limit := func(soft uint64) {
		t.Helper()
		var is unix.Rlimit
		err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &is)
		if err == nil {
			is.Cur = min(soft, is.Max)
			err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &is, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	limit(3) // fewer than are open already
	r.set(&ingestv1.Camera{Name: "first", Address: first.Address()}, &ingestv1.Camera{Name: "second", Address: second.Address()})
	s := next(t, r.status, "refusal", func(s *ingestv1.CameraStatus) bool { return s.GetCamera() == "second" && s.GetError() != nil })
	if s.GetError().GetReason() != ingestv1.ErrorReason_ERROR_REASON_RESOURCE || s.GetError().GetHint() == "" {
		t.Errorf("got %v", s.GetError())
	}
	for range 10 {
		next(t, r.frames, "frame of the first camera", func(f ingestclient.Frame) bool { f.Release(); return f.GetCamera() == "first" })
	}
	limit(1024)
	next(t, r.frames, "frame of the second camera", func(f ingestclient.Frame) bool { f.Release(); return f.GetCamera() == "second" })
	if n := process.Status().Restarts; n != 0 {
		t.Errorf("%d restarts: %s", n, process.Status().Reason)
	}
}

// After a power cut all cameras are dialled at once, but no more of them than are allowed.
func TestNoMoreCamerasAreDialledAtOnceThanAllowed(t *testing.T) {
	const cameras, dials = 12, 3
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	var mu sync.Mutex
	under, most := 0, 0
	count := func(d int) {
		mu.Lock()
		defer mu.Unlock()
		under += d
		most = max(most, under)
	}
	r := start(t, sidecar.Config{Dials: dials})
	var list []*ingestv1.Camera
	for i := range cameras {
		cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, Request: func(m base.Method, done <-chan struct{}) *base.Response {
			if m != base.Describe {
				return nil
			}
			count(1)
			defer count(-1)
			select { // a camera that takes its time
			case <-time.After(20 * time.Millisecond):
			case <-done:
			}
			return nil
		}})
		list = append(list, &ingestv1.Camera{Name: fmt.Sprint(i), Address: cam.Address()})
	}
	r.set(list...)
	streaming := map[string]bool{}
	next(t, r.status, "every camera streaming", func(s *ingestv1.CameraStatus) bool {
		if s.GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING {
			streaming[s.GetCamera()] = true
		}
		return len(streaming) == cameras
	})
	mu.Lock()
	defer mu.Unlock()
	if most > dials || most == 0 {
		t.Errorf("%d dialled at once, %d are allowed", most, dials)
	}
}
