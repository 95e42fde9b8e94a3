package sidecar_test

import (
	"io/fs"
	"sync"
	"syscall"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/device"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
	"github.com/vedette/vedette/internal/v4l2"
)

// usb is a socket with a camera of moving JPEGs that can be pulled out, and that can hang.
type usb struct {
	clip *rtsptest.Clip

	mu     sync.Mutex // guards everything below
	gone   chan struct{}
	out    bool
	hangs  bool
	opened int
}

func (u *usb) open(string) (device.Device, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.out {
		return nil, fs.ErrNotExist
	}
	u.opened++
	return &webcam{usb: u, gone: u.gone, ended: make(chan struct{})}, nil
}

// plug puts it in or pulls it out.
func (u *usb) plug(in bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.out = !in; in {
		u.gone = make(chan struct{})
	} else {
		close(u.gone)
	}
}

func (u *usb) hang(on bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hangs = on
}

type webcam struct {
	usb   *usb
	gone  chan struct{}
	ended chan struct{}
	n     uint32
}

func (*webcam) Formats() []v4l2.FourCC { return []v4l2.FourCC{v4l2.YUYV, v4l2.MJPEG} }

func (*webcam) Start(want v4l2.Format, _ float64) (v4l2.Format, error) { return want, nil }

func (w *webcam) Read() (v4l2.Picture, error) {
	w.usb.mu.Lock()
	hangs := w.usb.hangs
	w.usb.mu.Unlock()
	next := time.After(20 * time.Millisecond)
	if hangs {
		next = nil
	}
	select {
	case <-next:
		w.n++
		return v4l2.Picture{Data: w.usb.clip.Units[int(w.n)%len(w.usb.clip.Units)].NALUs[0], Sequence: w.n}, nil
	case <-w.gone:
		return v4l2.Picture{}, syscall.ENODEV
	case <-w.ended:
		return v4l2.Picture{}, v4l2.ErrInterrupted
	}
}

func (w *webcam) Interrupt() { close(w.ended) }

func (*webcam) Close() {}

func TestAVideoDeviceIsACameraThatCanBePulledOut(t *testing.T) {
	socket := &usb{gone: make(chan struct{}), clip: rtsptest.Render(t, rtsptest.ClipConfig{Codec: "mjpeg", Width: 64, Height: 64, Frames: 25})}
	r := start(t, sidecar.Config{Device: socket.open})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "desk", Address: "v4l2:/dev/video0"})
	s := r.state("desk", ingestv1.CameraState_CAMERA_STATE_STREAMING)
	if d := s.GetStream(); d.GetCodec() != ingestv1.Codec_CODEC_MJPEG || d.GetWidth() != 64 {
		t.Errorf("stream: %v", d)
	}
	epoch := ""
	another := func(what string) {
		t.Helper()
		next(t, r.frames, what, func(f ingestclient.Frame) bool {
			f.Release()
			fresh := f.GetStreamEpoch() != epoch
			epoch = f.GetStreamEpoch()
			return fresh
		})
	}
	another("first frame")
	socket.plug(false)
	failed := next(t, r.status, "failure", func(s *ingestv1.CameraStatus) bool {
		return s.GetError().GetReason() == ingestv1.ErrorReason_ERROR_REASON_NOT_FOUND
	})
	if failed.GetState() != ingestv1.CameraState_CAMERA_STATE_BACKOFF || failed.GetError().GetHint() == "" {
		t.Errorf("pulled out: %v", failed)
	}
	socket.plug(true)
	another("frame of the camera that is back")
	socket.hang(true)
	next(t, r.status, "stall", func(s *ingestv1.CameraStatus) bool {
		return s.GetError().GetReason() == ingestv1.ErrorReason_ERROR_REASON_STALLED
	})
	socket.hang(false)
	another("frame after the stall")
	r.set()
	next(t, r.status, "removal", func(s *ingestv1.CameraStatus) bool { return s.GetRemoved() })
}
