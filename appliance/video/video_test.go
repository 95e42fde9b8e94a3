package video_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/appliance/video"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a camera, a sidecar that reads it, and a hub.
type rig struct {
	camera  *rtsptest.Camera
	control *ingestclient.Client
	hub     *video.Hub
}

func start(t *testing.T, cfg video.Config) *rig {
	t.Helper()
	cfg.Socket, cfg.Retry = filepath.Join(t.TempDir(), "ingest.sock"), 10*time.Millisecond
	r := &rig{}
	r.camera = rtsptest.Start(t, rtsptest.Config{Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 50, GOP: 10})})
	r.hub = video.New(cfg)
	r.control = ingestclient.New(ingestclient.Config{Socket: cfg.Socket, Retry: 10 * time.Millisecond})
	run(t, sidecar.New(sidecar.Config{Socket: cfg.Socket}).Run)
	run(t, r.control.Run)
	run(t, r.hub.Run)
	r.set("door")
	return r
}

func (r *rig) set(names ...string) {
	m := &ingestv1.SetCameras{}
	for _, name := range names {
		m.Cameras = append(m.Cameras, &ingestv1.Camera{Name: name, Address: r.camera.Address()})
	}
	r.control.SetCameras(m)
}

// run runs until the test ends and waits for it.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

var errEnough = errors.New("enough")

// look watches until n units have come and checks that they make an unbroken stream from a keyframe on.
func (r *rig) look(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var last *ingestv1.AccessUnit
	err := r.hub.Watch(ctx, "door", false, func(d *ingestv1.StreamDescription, u *ingestv1.AccessUnit) error {
		switch {
		case last == nil && (d == nil || d.GetCodec() != ingestv1.Codec_CODEC_H264 || !u.GetKeyframe()):
			t.Errorf("begins with %v and a keyframe: %v", d, u.GetKeyframe())
		case last != nil && last.GetStreamEpoch() == u.GetStreamEpoch() && u.GetNumber() != last.GetNumber()+1:
			t.Errorf("unit %d follows %d", u.GetNumber(), last.GetNumber())
		}
		if last, n = u, n-1; n == 0 {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Errorf("%d units did not come: %v", n, err)
	}
}

func TestViewersShareOneSession(t *testing.T) {
	r := start(t, video.Config{Linger: time.Millisecond})
	r.look(t, 5) // the first comes before the camera is connected, perhaps
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { r.look(t, 30) })
	}
	wg.Wait()
	if open, all, most := r.camera.Sessions(); open != 1 || all != 1 || most != 1 {
		t.Errorf("%d sessions open, %d in all, %d at once: want one", open, all, most)
	}
	if n := r.hub.Dropped(); n != 0 {
		t.Errorf("%d units were dropped though everybody was quick", n)
	}
}

func TestASlowViewerSeesWholeGroupsAndHoldsUpNobody(t *testing.T) {
	r := start(t, video.Config{QueueBytes: 2000})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	entered, goOn := make(chan struct{}), make(chan struct{})
	var got []*ingestv1.AccessUnit
	done := make(chan error, 1)
	go func() {
		done <- r.hub.Watch(ctx, "door", false, func(_ *ingestv1.StreamDescription, u *ingestv1.AccessUnit) error {
			got = append(got, u)
			if len(got) == 1 {
				close(entered)
				<-goOn
			}
			if len(got) > 1 && u.GetNumber() > got[0].GetNumber()+30 {
				return errEnough
			}
			return nil
		})
	}()
	<-entered
	r.look(t, 40) // meanwhile
	close(goOn)
	if err := <-done; !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	for i, u := range got[1:] {
		if before := got[i]; u.GetNumber() != before.GetNumber()+1 && (!u.GetKeyframe() || !u.GetDiscontinuity()) {
			t.Errorf("unit %d follows %d, keyframe %v, discontinuity %v", u.GetNumber(), before.GetNumber(), u.GetKeyframe(), u.GetDiscontinuity())
		}
	}
	if r.hub.Dropped() == 0 {
		t.Error("nothing was dropped: the viewer was not slow")
	}
}

func TestARemovedCameraEndsTheWatchAndAnUnknownOneIsAwaited(t *testing.T) {
	r := start(t, video.Config{})
	watched := make(chan struct{})
	var once sync.Once
	done := make(chan error, 1)
	go func() {
		done <- r.hub.Watch(t.Context(), "door", false, func(*ingestv1.StreamDescription, *ingestv1.AccessUnit) error {
			once.Do(func() { close(watched) })
			return nil
		})
	}()
	<-watched
	r.set()
	if err := <-done; !errors.Is(err, video.ErrRemoved) {
		t.Errorf("removed: %v", err)
	}
	// Watched first, registered later.
	go func() {
		done <- r.hub.Watch(t.Context(), "gate", false, func(*ingestv1.StreamDescription, *ingestv1.AccessUnit) error { return errEnough })
	}()
	r.set("gate")
	if err := <-done; !errors.Is(err, errEnough) {
		t.Errorf("registered later: %v", err)
	}
}
