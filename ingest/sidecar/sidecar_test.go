package sidecar_test

import (
	"bytes"
	"context"
	"image"
	"image/jpeg"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/api/frame"
	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/camera"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/mmap"
	"github.com/vedette/vedette/internal/rtsptest"
)

// TestMain is also a sidecar in a process of its own (see isolation_test.go).
func TestMain(m *testing.M) {
	if os.Getenv(processEnv) != "" {
		serveAsProcess(os.Args[1:])
		return
	}
	goleak.VerifyTestMain(m)
}

// rig is a sidecar with one client, whose messages wait in channels.
type rig struct {
	t      *testing.T
	socket string
	client *ingestclient.Client
	status chan *ingestv1.CameraStatus
	frames chan ingestclient.Frame
	units  chan *ingestv1.AccessUnit
	descs  chan *ingestv1.StreamDescription
	counts chan *ingestv1.Counters
	steps  chan *ingestv1.ClockStep

	mu     sync.Mutex
	slots  map[string]*frame.Reader // by stream epoch
	opens  []*ingestv1.SlotsOpened
	memory []*mmap.Memory
}

// quick are deadlines fit for a test.
func quick() camera.Deadlines {
	return camera.Deadlines{
		Dial: time.Second, Answer: time.Second, FirstPacket: time.Second, FirstKeyframe: 3 * time.Second, FirstFrame: 3 * time.Second,
		Packets: 3 * time.Second, AccessUnits: 3 * time.Second, Keyframes: 5 * time.Second, Frames: 3 * time.Second,
	}
}

func start(t *testing.T, cfg sidecar.Config) *rig {
	t.Helper()
	r := &rig{
		t: t, socket: filepath.Join(t.TempDir(), "ingest.sock"), status: make(chan *ingestv1.CameraStatus, 1000),
		frames: make(chan ingestclient.Frame, 1000), units: make(chan *ingestv1.AccessUnit, 10000),
		descs: make(chan *ingestv1.StreamDescription, 100), counts: make(chan *ingestv1.Counters, 1000),
		steps: make(chan *ingestv1.ClockStep, 10), slots: map[string]*frame.Reader{},
	}
	cfg.Socket = r.socket
	if cfg.Deadlines == (camera.Deadlines{}) {
		cfg.Deadlines = quick()
	}
	if cfg.Backoff == (camera.Backoff{}) {
		cfg.Backoff = camera.Backoff{Base: 20 * time.Millisecond, Max: 100 * time.Millisecond, Slow: time.Hour, Busy: 50 * time.Millisecond}
	}
	cfg.CountersEvery = 50 * time.Millisecond
	t.Cleanup(r.unmap) // when nobody reads any more: cleanups run in reverse
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	run(t, sidecar.New(cfg).Run)
	r.client = ingestclient.New(ingestclient.Config{Socket: r.socket, Program: "test", Retry: 10 * time.Millisecond, Handler: ingestclient.Handler{
		Camera:      func(s *ingestv1.CameraStatus) { put(r.status, s) },
		SlotsOpened: r.open,
		Frame:       func(f ingestclient.Frame) { put(r.frames, f) },
		AccessUnit:  func(u *ingestv1.AccessUnit) { put(r.units, u) },
		Description: func(d *ingestv1.StreamDescription) { put(r.descs, d) },
		Counters:    func(c *ingestv1.Counters) { put(r.counts, c) },
		ClockStep:   func(s *ingestv1.ClockStep) { put(r.steps, s) },
	}})
	run(t, r.client.Run)
	if err := r.client.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// put drops what nobody reads.
func put[T any](ch chan T, v T) {
	select {
	case ch <- v:
	default:
	}
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

func (r *rig) open(o *ingestv1.SlotsOpened, f *os.File) {
	m, err := mmap.Open(f)
	if err != nil {
		r.t.Errorf("map slots: %v", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory = append(r.memory, m)
	reader, err := frame.NewReader(m)
	if err != nil {
		r.t.Errorf("read slots: %v", err)
		return
	}
	r.slots[o.GetStreamEpoch()] = reader
	r.opens = append(r.opens, o)
}

func (r *rig) unmap() {
	for _, m := range r.memory {
		_ = m.Close()
	}
}

// view opens the frame of a notice.
func (r *rig) view(f ingestclient.Frame) (frame.View, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slots[f.GetStreamEpoch()].View(int(f.GetSlot()), f.GetGeneration())
}

// next waits for something that fits.
func next[T any](t *testing.T, ch chan T, what string, fits func(T) bool) T {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case v := <-ch:
			if fits == nil || fits(v) {
				return v
			}
		case <-deadline:
			t.Fatalf("no %s came", what)
		}
	}
}

func (r *rig) frame() ingestclient.Frame {
	r.t.Helper()
	return next(r.t, r.frames, "frame", nil)
}

func (r *rig) set(cameras ...*ingestv1.Camera) {
	r.client.SetCameras(&ingestv1.SetCameras{Revision: 1, Cameras: cameras})
}

func (r *rig) state(name string, want ingestv1.CameraState) *ingestv1.CameraStatus {
	r.t.Helper()
	return next(r.t, r.status, want.String(), func(s *ingestv1.CameraStatus) bool { return s.GetCamera() == name && s.GetState() == want })
}

func TestFramesTellHowTheirColoursAreMeant(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, Extra: []string{"-colorspace", "bt709", "-color_range", "pc"}})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{LeaseTime: time.Minute})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	f := r.frame()
	v, err := r.view(f)
	if err != nil {
		t.Fatal(err)
	}
	if want := frame.Keyframe | frame.FullRange | frame.BT709; frame.Flags(f.GetFlags()) != want || v.Flags != want {
		t.Errorf("flags %b and %b in the slot, want %b", f.GetFlags(), v.Flags, want)
	}
	f.Release()
}

func TestOneCameraAllTheWay(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 320, Height: 240})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, Username: "admin", Password: "p@ss:/w#rd %"})
	r := start(t, sidecar.Config{LeaseTime: time.Minute}) // the test may be slow
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.client.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: "door"})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address(), Username: "admin", Password: "p@ss:/w#rd %"})

	s := r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)
	if d := s.GetStream(); d.GetWidth() != 320 || d.GetHeight() != 240 || d.GetCodec() != ingestv1.Codec_CODEC_H264 || d.GetTransport() != ingestv1.Transport_TRANSPORT_TCP {
		t.Errorf("stream: %v", d)
	}
	f := r.frame()
	if !f.GetKeyframe() || f.GetNumber() != 0 || f.GetWidth() != 320 || f.GetHeight() != 240 || f.GetTainted() || f.GetStreamEpoch() != s.GetStreamEpoch() {
		t.Errorf("first notice: %v", f.FrameNotice)
	}
	v, err := r.view(f)
	if err != nil {
		t.Fatal(err)
	}
	if v.Width != 320 || v.Height != 240 || len(v.Pixels) != 320*240*3/2 || v.CaptureNS != f.GetCaptureTimeNs() {
		t.Errorf("view: %+v, %d bytes", v.Header, len(v.Pixels))
	}
	picture, err := r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_LeaseId{LeaseId: f.GetLeaseId()}})
	if err != nil {
		t.Fatal(err)
	}
	compareJPEG(t, picture.GetJpeg(), v)
	if err := v.Check(); err != nil {
		t.Errorf("the leased frame was overwritten: %v", err)
	}
	f.Release()
	last := f.FrameNotice
	for range 40 {
		f := r.frame()
		// A test that was slow to release slots misses frames.
		if f.GetNumber() <= last.GetNumber() || f.GetCaptureTimeNs() <= last.GetCaptureTimeNs() || f.GetCaptureTimeNs() > f.GetReceiveTimeNs() {
			t.Fatalf("after %v came %v", last, f.FrameNotice)
		}
		if d, n := f.GetRtpTicks()-last.GetRtpTicks(), f.GetNumber()-last.GetNumber(); d != 3600*int64(n) {
			t.Errorf("%d ticks from one frame to the %dth after it", d, n)
		}
		last = f.FrameNotice
		f.Release()
	}
	u := next(t, r.units, "access unit", nil)
	if !u.GetKeyframe() || len(u.GetUnits()) < 3 {
		t.Errorf("first access unit: key %v, %d units", u.GetKeyframe(), len(u.GetUnits()))
	}
	if d := next(t, r.descs, "description", nil); d.GetStreamEpoch() != u.GetStreamEpoch() || len(d.GetParameterSets()) != 2 {
		t.Errorf("description: %v", d)
	}
	latest, err := r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_Camera{Camera: "door"}, MaxWidth: 160, Crop: &ingestv1.Rectangle{X: 10, Y: 20, Width: 200, Height: 100}})
	if err != nil {
		t.Fatal(err)
	}
	if latest.GetWidth() != 160 || latest.GetHeight() != 80 {
		t.Errorf("cropped picture is %d×%d", latest.GetWidth(), latest.GetHeight())
	}
	n := next(t, r.counts, "counters", func(c *ingestv1.Counters) bool { return c.GetFramesAnnounced() >= 40 })
	if n.GetPacketsLost() != 0 || n.GetDecodeErrors() != 0 || n.GetFramesTainted() != 0 {
		t.Errorf("counters: %v", n)
	}
	r.set()
	next(t, r.status, "removal", func(s *ingestv1.CameraStatus) bool { return s.GetRemoved() })
}

// compareJPEG checks the luma of a JPEG against the frame it was made of.
func compareJPEG(t *testing.T, b []byte, v frame.View) {
	t.Helper()
	img, err := jpeg.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if img.Bounds().Dx() != v.Width || img.Bounds().Dy() != v.Height {
		t.Fatalf("JPEG is %v", img.Bounds())
	}
	planes := img.(*image.YCbCr)
	var off int
	for y := 0; y < v.Height; y += 4 {
		for x := 0; x < v.Width; x += 4 {
			got := int(planes.Y[planes.YOffset(x, y)])
			want := (int(v.Pixels[y*v.Width+x]) - 16) * 255 / 219
			off += max(got-want, want-got)
		}
	}
	if mean := float64(off) / float64(v.Width*v.Height/16); mean > 4 {
		t.Errorf("JPEG differs from its frame by %.1f grey levels on average", mean)
	}
}
