package device_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/device"
	"github.com/vedette/vedette/internal/rtsptest"
	"github.com/vedette/vedette/internal/v4l2"
)

// fake is a device that is none.
type fake struct {
	offers   []v4l2.FourCC
	pictures chan v4l2.Picture
	startErr error
	gives    v4l2.Format // instead of what it is asked for

	once    sync.Once
	ended   chan struct{}
	asked   v4l2.Format
	started bool
	closed  bool
}

func newFake(offers ...v4l2.FourCC) *fake {
	return &fake{offers: offers, pictures: make(chan v4l2.Picture, 100), ended: make(chan struct{})}
}

// Formats is part of device.Device.
func (f *fake) Formats() []v4l2.FourCC { return f.offers }

// Start is part of device.Device.
func (f *fake) Start(want v4l2.Format, _ float64) (v4l2.Format, error) {
	f.asked, f.started = want, true
	if want.Pixels == v4l2.YUYV {
		want.Stride = 2 * want.Width
	}
	if f.gives != (v4l2.Format{}) {
		want = f.gives
	}
	return want, f.startErr
}

// Read is part of device.Device. A closed channel is an unplugged device.
func (f *fake) Read() (v4l2.Picture, error) {
	select {
	case p, ok := <-f.pictures:
		if !ok {
			return v4l2.Picture{}, syscall.ENODEV
		}
		return p, nil
	case <-f.ended:
		return v4l2.Picture{}, v4l2.ErrInterrupted
	}
}

// Interrupt is part of device.Device.
func (f *fake) Interrupt() { f.once.Do(func() { close(f.ended) }) }

// Close is part of device.Device.
func (f *fake) Close() { f.closed = true }

// recorder is a sink.
type recorder struct {
	stages  []ingest.Stage
	streams []ingest.Stream
	units   chan ingest.AccessUnit
	lost    uint64
	bad     uint64
}

func (r *recorder) Reached(s ingest.Stage)         { r.stages = append(r.stages, s) }
func (r *recorder) Stream(s ingest.Stream)         { r.streams = append(r.streams, s) }
func (r *recorder) AccessUnit(u ingest.AccessUnit) { r.units <- u }
func (*recorder) SenderReport(ingest.SenderReport) {}
func (r *recorder) Packets(_, _, lost, bad uint64) { r.lost += lost; r.bad += bad }

func run(ctx context.Context, d device.Device, uri string) (*recorder, <-chan error) {
	r, done := &recorder{units: make(chan ingest.AccessUnit, 1000)}, make(chan error, 1)
	s := device.New(device.Config{Camera: ingest.Camera{Name: "desk", Address: uri}, Open: func(string) (device.Device, error) { return d, nil }})
	go func() { done <- s.Run(ctx, r) }()
	return r, done
}

func wait[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// conform is what holds for every device: the fake, and whatever this box has.
func conform(t *testing.T, open func() (device.Device, error), uri string) {
	t.Helper()
	for range 2 { // it can be opened again
		d, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Formats()) == 0 {
			t.Error("it offers nothing")
		}
		ctx, cancel := context.WithCancel(t.Context())
		r, done := run(ctx, d, uri)
		last := ingest.Ticks(-1)
		for range 5 {
			u := wait(t, r.units)
			if len(u.Data) == 0 || u.Ticks < last || u.Received.Mono < u.Ticks.Duration()-time.Millisecond {
				t.Errorf("a unit of %d bytes at %d after %d, received at %v", len(u.Data), u.Ticks, last, u.Received.Mono)
			}
			last = u.Ticks
		}
		cancel()
		if err := wait(t, done); err != nil {
			t.Errorf("asked to stop it says %v", err)
		}
		if len(r.streams) != 1 || !r.streams[0].Live {
			t.Errorf("streams %+v", r.streams)
		}
	}
}

func TestTheFakeConforms(t *testing.T) {
	conform(t, func() (device.Device, error) {
		f := newFake(v4l2.YUYV)
		for n := range uint32(5) {
			f.pictures <- v4l2.Picture{Data: make([]byte, 64*48*2), Sequence: n}
		}
		return f, nil
	}, "v4l2:/dev/video0?size=64x48")
}

// What this box has is read for real.
func TestTheDevicesOfThisBoxConform(t *testing.T) {
	paths, err := filepath.Glob("/dev/video[0-9]")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, path := range paths {
		d, err := v4l2.Open(path)
		if err != nil {
			t.Logf("%v", err)
			continue
		}
		d.Close()
		tried++
		t.Run(path, func(t *testing.T) {
			conform(t, func() (device.Device, error) { return v4l2.Open(path) }, "v4l2:"+path+"?size=640x360")
		})
	}
	if tried == 0 {
		t.Skip("no video device here captures")
	}
}

func TestTheBestFormatIsChosen(t *testing.T) {
	for _, c := range []struct {
		offers []v4l2.FourCC
		uri    string
		want   v4l2.Format
		codec  ingest.Codec
	}{
		{[]v4l2.FourCC{v4l2.YUYV, v4l2.MJPEG, v4l2.H264}, "v4l2:/dev/video0", v4l2.Format{Pixels: v4l2.H264, Width: 1280, Height: 720}, ingest.H264},
		{[]v4l2.FourCC{v4l2.YUYV, v4l2.MJPEG, v4l2.H264}, "v4l2:/dev/video0?format=mjpeg&size=640x480", v4l2.Format{Pixels: v4l2.MJPEG, Width: 640, Height: 480}, ingest.MJPEG},
		{[]v4l2.FourCC{v4l2.YUYV, 'X'}, "v4l2:/dev/video0", v4l2.Format{Pixels: v4l2.YUYV, Width: 1280, Height: 720}, ingest.MJPEG},
	} {
		f := newFake(c.offers...)
		close(f.pictures)
		_, done := run(t.Context(), f, c.uri)
		if e := ingest.AsError(wait(t, done)); e.Reason != ingest.ReasonDisconnected || !f.closed {
			t.Errorf("unplugged it says %v, closed %v", e, f.closed)
		}
		if f.asked != c.want {
			t.Errorf("%s of %v: asked for %+v", c.uri, c.offers, f.asked)
		}
	}
}

func TestEveryFaultOfADeviceHasItsReason(t *testing.T) {
	type fault struct {
		name   string
		open   error
		device *fake
		uri    string
		want   ingest.Reason
	}
	starts := func(err error) *fake { f := newFake(v4l2.MJPEG); f.startErr = err; return f }
	other := newFake(v4l2.MJPEG)
	other.gives = v4l2.Format{Pixels: v4l2.YUYV, Width: 1, Height: 1}
	short := newFake(v4l2.YUYV)
	short.pictures <- v4l2.Picture{Data: make([]byte, 100)}
	for _, c := range []fault{
		{"no device", fmt.Errorf("open: %w", fs.ErrNotExist), nil, "", ingest.ReasonNotFound},
		{"its node without it", syscall.ENODEV, nil, "", ingest.ReasonNotFound},
		{"no permission", fmt.Errorf("open: %w", fs.ErrPermission), nil, "", ingest.ReasonInvalidConfig},
		{"no source of pictures", v4l2.ErrNotCapturing, nil, "", ingest.ReasonInvalidConfig},
		{"no descriptors", syscall.EMFILE, nil, "", ingest.ReasonResource},
		{"in use", nil, starts(syscall.EBUSY), "", ingest.ReasonCameraBusy},
		{"no bandwidth", nil, starts(syscall.ENOSPC), "", ingest.ReasonResource},
		{"a driver's no", nil, starts(syscall.EINVAL), "", ingest.ReasonProtocol},
		{"no format of use", nil, newFake('X'), "", ingest.ReasonCodecUnsupported},
		{"not the format asked for", nil, newFake(v4l2.MJPEG), "?format=h264", ingest.ReasonCodecUnsupported},
		{"another format than agreed", nil, other, "", ingest.ReasonCodecUnsupported},
		{"half a picture", nil, short, "", ingest.ReasonDecode},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := device.New(device.Config{Camera: ingest.Camera{Address: "v4l2:/dev/video7" + c.uri}, Open: func(path string) (device.Device, error) {
				if path != "/dev/video7" {
					t.Errorf("opened %s", path)
				}
				return c.device, c.open
			}})
			err := s.Run(t.Context(), &recorder{units: make(chan ingest.AccessUnit, 10)})
			if e := ingest.AsError(err); e == nil || e.Reason != c.want || !bytes.Contains([]byte(e.Error()), []byte("/dev/video7")) {
				t.Errorf("got %v", err)
			}
			if c.device != nil && !c.device.closed {
				t.Error("it stays open")
			}
		})
	}
	// The kernel's own answers.
	for path, want := range map[string]error{filepath.Join(t.TempDir(), "video0"): fs.ErrNotExist, "/dev/null": v4l2.ErrNotCapturing, os.Args[0]: nil} {
		d, err := v4l2.Open(path)
		if err == nil {
			d.Close()
			t.Errorf("%s was opened", path)
		} else if want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestRawPicturesKeepTheirColours(t *testing.T) {
	f := newFake(v4l2.YUYV)
	f.gives = v4l2.Format{Pixels: v4l2.YUYV, Width: 32, Height: 16, Stride: 80} // rows are padded
	data := bytes.Repeat([]byte{7}, 80*16)
	for y := range 16 {
		for x := 0; x < 32; x += 2 {
			luma, u, v := byte(60), byte(110), byte(160)
			if x >= 16 {
				luma, u, v = 180, 150, 90
			}
			copy(data[y*80+2*x:], []byte{luma, u, luma, v})
		}
	}
	f.pictures <- v4l2.Picture{Data: data, Taken: time.Second}
	r, _ := run(t.Context(), f, "v4l2:/dev/video0")
	unit := wait(t, r.units)
	img, err := jpeg.Decode(bytes.NewReader(unit.Data))
	if err != nil {
		t.Fatal(err)
	}
	got := img.(*image.YCbCr)
	if got.Bounds().Dx() != 32 || got.Bounds().Dy() != 16 || unit.Ticks != ingest.TicksOf(time.Second) {
		t.Fatalf("%v at %d", got.Bounds(), unit.Ticks)
	}
	for _, c := range []struct{ x, y, u, v int }{{4, (60 - 16) * 255 / 219, 110, 160}, {28, (180 - 16) * 255 / 219, 150, 90}} {
		y, i := int(got.Y[got.YOffset(c.x, 8)]), got.COffset(c.x, 8)
		// Colours are stretched to the full range as well.
		u, v := 128+(c.u-128)*255/224, 128+(c.v-128)*255/224
		if off := max(abs(y-c.y), abs(int(got.Cb[i])-u), abs(int(got.Cr[i])-v)); off > 4 {
			t.Errorf("at %d: %d %d %d, want %d %d %d", c.x, y, got.Cb[i], got.Cr[i], c.y, u, v)
		}
	}
}

func abs(n int) int { return max(n, -n) }

func TestLostAndDamagedPicturesAreTold(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 6, GOP: 6})
	f := newFake(v4l2.H264)
	for n, u := range clip.Units {
		if n == 2 {
			continue // nobody took it
		}
		var b []byte
		for _, nal := range u.NALUs {
			b = append(append(b, 0, 0, 0, 1), nal...)
		}
		f.pictures <- v4l2.Picture{Data: b, Sequence: uint32(n), Damaged: n == 4}
	}
	r, _ := run(t.Context(), f, "v4l2:/dev/video0")
	for n := range 5 {
		u := wait(t, r.units)
		if u.Keyframe != (n == 0) || u.Lost != (n == 2) || u.Damaged != (n == 3) {
			t.Errorf("unit %d: key %v, lost %v, damaged %v", n, u.Keyframe, u.Lost, u.Damaged)
		}
	}
	if r.lost != 1 || r.bad != 1 || r.streams[0].Codec != ingest.H264 || r.streams[0].Width != 64 {
		t.Errorf("%d lost, %d bad, %+v", r.lost, r.bad, r.streams)
	}
	g := newFake(v4l2.MJPEG)
	g.pictures <- v4l2.Picture{Data: []byte("no picture")}
	g.pictures <- v4l2.Picture{}
	g.pictures <- v4l2.Picture{Data: []byte{0xFF, 0xD8, 0xFF, 0xD9}, Damaged: true}
	g.pictures <- v4l2.Picture{Data: []byte{0xFF, 0xD8, 0xFF, 0xD9}}
	q, _ := run(t.Context(), g, "v4l2:/dev/video0")
	if u := wait(t, q.units); len(u.Data) != 4 || q.bad != 3 {
		t.Errorf("%d bytes, %d bad", len(u.Data), q.bad)
	}
}
