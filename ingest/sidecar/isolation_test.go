package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/camera"
	"github.com/vedette/vedette/ingest/crash"
	"github.com/vedette/vedette/ingest/decode"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/av"
	"github.com/vedette/vedette/internal/child"
	"github.com/vedette/vedette/internal/rtsptest"
	"github.com/vedette/vedette/internal/sdnotify"
)

// processEnv makes the test binary a sidecar: "SOCKET FIRST_LEASE" are its arguments.
const processEnv = "VEDETTE_TEST_PROCESS"

func worker(socket string, firstLease uint64) (string, []string) {
	return "/proc/self/exe", []string{socket, strconv.FormatUint(firstLease, 10)}
}

// serveAsProcess is a sidecar with a decoder that brings its process down.
func serveAsProcess(args []string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel, err := sdnotify.WithSupervisor(ctx)
	if err == nil {
		defer cancel()
		cfg := sidecar.Config{
			Socket: args[0], RememberCrashes: true, CountersEvery: 50 * time.Millisecond, Deadlines: quick(),
			Backoff: camera.Backoff{Base: 20 * time.Millisecond, Max: 100 * time.Millisecond}, Engine: crashing,
			LeaseTime: time.Minute, // the test may be slow
		}
		if cfg.FirstLease, err = strconv.ParseUint(args[1], 10, 64); err == nil {
			if cfg.FirstLease == 0 {
				cfg.Worker = worker
			}
			err = sidecar.New(cfg).Run(ctx)
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fatal is a decoder whose first picture faults.
type fatal struct{ decode.Engine }

func (fatal) Send([]byte, int64) error {
	b, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err == nil {
		b[0] = 1
	}
	return err
}

func crashing(name string, cfg av.DecoderConfig) (decode.Engine, error) {
	d, err := av.NewDecoder(cfg)
	if err != nil {
		return nil, err
	}
	if name == "crashes" {
		return fatal{d}, nil
	}
	return d, nil
}

// isolating prepares the environment for processes of this binary.
func isolating(t *testing.T) {
	t.Helper()
	t.Setenv(processEnv, "1")
	t.Setenv("GODEBUG", crash.Setting)
}

func TestAnIsolatedCameraLivesAndDiesInItsOwnProcess(t *testing.T) {
	isolating(t)
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam, other := rtsptest.Start(t, rtsptest.Config{Clip: clip}), rtsptest.Start(t, rtsptest.Config{Clip: clip})
	before := descriptors(t)
	r := start(t, sidecar.Config{Worker: worker})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.client.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: "alone"})
	alone := &ingestv1.Camera{Name: "alone", Address: cam.Address(), Isolation: ingestv1.Isolation_ISOLATION_CAMERA}
	shared := &ingestv1.Camera{Name: "shared", Address: other.Address()}
	r.set(alone, shared)
	mine := func(f ingestclient.Frame) bool {
		if f.GetCamera() == "alone" {
			return true
		}
		f.Release()
		return false
	}
	f := next(t, r.frames, "frame of the isolated camera", mine)
	s := next(t, r.status, "status of it", func(s *ingestv1.CameraStatus) bool {
		return s.GetCamera() == "alone" && s.GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING
	})
	if !s.GetIsolated() || s.GetIsolationReason() != "" || s.GetStream().GetWidth() != 64 || s.GetRevision() != 1 {
		t.Errorf("status: %v", s)
	}
	v, err := r.view(f)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_LeaseId{LeaseId: f.GetLeaseId()}})
	if err != nil {
		t.Fatal(err)
	}
	compareJPEG(t, picture.GetJpeg(), v)
	f.Release()
	if _, err := r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_Camera{Camera: "alone"}, MaxWidth: 32}); err != nil {
		t.Errorf("newest picture: %v", err)
	}
	if u := next(t, r.units, "access unit", nil); !u.GetKeyframe() || u.GetCamera() != "alone" {
		t.Errorf("first access unit: %v of %q", u.GetKeyframe(), u.GetCamera())
	}
	next(t, r.counts, "counters", func(c *ingestv1.Counters) bool { return c.GetCamera() == "alone" && c.GetFramesAnnounced() > 0 })
	for range 20 { // more than there are slots: leases end here and there
		next(t, r.frames, "frames go on", mine).Release()
	}

	alone.Decoders = []string{"crashes"}
	r.set(alone, shared)
	down := next(t, r.status, "its process to crash", func(s *ingestv1.CameraStatus) bool {
		return s.GetCamera() == "alone" && strings.Contains(s.GetError().GetMessage(), "crashed its own process")
	})
	if down.GetState() != ingestv1.CameraState_CAMERA_STATE_BACKOFF || !down.GetIsolated() || !strings.Contains(down.GetError().GetMessage(), "SIGSEGV") {
		t.Errorf("status: %v", down)
	}
	for range 10 {
		next(t, r.frames, "frames of the other camera", func(f ingestclient.Frame) bool { f.Release(); return f.GetCamera() == "shared" })
	}
	alone.Decoders = nil
	r.set(alone, shared)
	next(t, r.frames, "frame after the crashes", func(g ingestclient.Frame) bool {
		defer g.Release()
		return mine(g) && g.GetStreamEpoch() != f.GetStreamEpoch()
	})

	alone.Isolation = ingestv1.Isolation_ISOLATION_UNSPECIFIED
	r.set(alone, shared)
	next(t, r.status, "the camera to move back", func(s *ingestv1.CameraStatus) bool {
		return s.GetCamera() == "alone" && s.GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING && !s.GetIsolated()
	})
	next(t, r.frames, "frame of it in the shared process", mine).Release()
	if _, all, most := cam.Sessions(); most != 1 {
		t.Errorf("%d of %d sessions at once", most, all)
	}
	r.set()
	next(t, r.status, "removal", func(s *ingestv1.CameraStatus) bool { return s.GetCamera() == "shared" && s.GetRemoved() })
	r.mu.Lock()
	opened := len(r.opens)
	r.mu.Unlock()
	for n := descriptors(t); n > before+opened+4; n = descriptors(t) { // the sidecar's socket and its client's; else the test times out
		time.Sleep(time.Millisecond)
	}
	if left, err := filepath.Glob(r.socket + ".*"); err != nil || len(left) > 0 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}

// processRig is a rig whose sidecar is a process.
func processRig(t *testing.T) (*rig, *child.Child) {
	t.Helper()
	r := &rig{t: t, socket: filepath.Join(t.TempDir(), "s"), status: make(chan *ingestv1.CameraStatus, 1000), frames: make(chan ingestclient.Frame, 1000)}
	process := child.New(child.Config{Path: "/proc/self/exe", Args: []string{r.socket, "0"}, MinBackoff: 10 * time.Millisecond})
	run(t, process.Run)
	r.client = ingestclient.New(ingestclient.Config{Socket: r.socket, Retry: 10 * time.Millisecond, Handler: ingestclient.Handler{
		Camera:      func(s *ingestv1.CameraStatus) { put(r.status, s) },
		Frame:       func(f ingestclient.Frame) { put(r.frames, f) },
		SlotsOpened: func(_ *ingestv1.SlotsOpened, f *os.File) { _ = f.Close() },
	}})
	run(t, r.client.Run)
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	return r, process
}

func TestAStreamThatCrashesTheSharedProcessTwiceIsGivenItsOwn(t *testing.T) {
	isolating(t)
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	good, bad := rtsptest.Start(t, rtsptest.Config{Clip: clip}), rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r, process := processRig(t)
	r.set(&ingestv1.Camera{Name: "good", Address: good.Address()}, &ingestv1.Camera{Name: "bad", Address: bad.Address(), Decoders: []string{"crashes"}})
	s := next(t, r.status, "the camera to be isolated", func(s *ingestv1.CameraStatus) bool { return s.GetCamera() == "bad" && s.GetIsolated() })
	if !strings.Contains(s.GetIsolationReason(), "crashed the shared process 2 times") || !strings.Contains(s.GetIsolationReason(), "SIGSEGV") {
		t.Errorf("reason: %q", s.GetIsolationReason())
	}
	if n := process.Status().Restarts; n != 2 {
		t.Errorf("%d restarts of the shared process", n)
	}
	for range 30 { // it crashes on and on in its own process
		next(t, r.frames, "frame of the good camera", func(f ingestclient.Frame) bool { f.Release(); return f.GetCamera() == "good" })
	}
	next(t, r.status, "its own process to crash", func(s *ingestv1.CameraStatus) bool {
		return s.GetCamera() == "bad" && strings.Contains(s.GetError().GetMessage(), "its own process")
	})
	if n := process.Status().Restarts; n != 2 {
		t.Errorf("%d restarts of the shared process after the camera was moved", n)
	}
}
