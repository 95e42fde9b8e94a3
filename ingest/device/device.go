// Package device reads a video device of this box (v4l2:/dev/video0) as if it were a camera on the network: as H.264 or
// JPEG where the device makes them, else as raw pictures (YUYV) that are made JPEG here.
package device

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io/fs"
	"slices"
	"syscall"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/bitstream"
	"github.com/vedette/vedette/internal/address"
	"github.com/vedette/vedette/internal/av"
	"github.com/vedette/vedette/internal/v4l2"
)

// Device is an open video device; *v4l2.Device says what its methods do.
type Device interface {
	Formats() []v4l2.FourCC
	Start(want v4l2.Format, rate float64) (v4l2.Format, error)
	Read() (v4l2.Picture, error)
	Interrupt()
	Close()
}

// Config of a Source.
type Config struct {
	Camera ingest.Camera
	// Open opens a device by its path; nil: the kernel's.
	Open func(path string) (Device, error)
	// Now reads both clocks; nil: the box's.
	Now func() ingest.Instant
}

// Source captures from one device.
type Source struct{ cfg Config }

// New opens nothing; the camera's settings have been checked (ingest.Camera.Check).
func New(cfg Config) *Source {
	if cfg.Open == nil {
		cfg.Open = func(path string) (Device, error) {
			d, err := v4l2.Open(path)
			if err != nil {
				return nil, err
			}
			return d, nil
		}
	}
	if cfg.Now == nil {
		cfg.Now = ingest.Now
	}
	return &Source{cfg: cfg}
}

// usual is asked for when the address names no size: what nearly every device has, and enough for analysis.
const usualWidth, usualHeight = 1280, 720

// Run captures until ctx ends (nil) or the device fails (an *ingest.Error).
func (s *Source) Run(ctx context.Context, sink ingest.Sink) error {
	want, err := address.ParseDevice(s.cfg.Camera.Address)
	if err != nil {
		return &ingest.Error{Reason: ingest.ReasonInvalidConfig, Stage: ingest.StageDial, Err: err}
	}
	d, err := s.cfg.Open(want.Path)
	if err != nil {
		return opening(want.Path, err)
	}
	defer d.Close()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { d.Interrupt(); close(interrupted) })
	defer func() { // before Close
		if !stop() {
			<-interrupted
		}
	}()
	sink.Reached(ingest.StageDial)
	format, err := start(d, want)
	if err != nil {
		return err
	}
	sink.Reached(ingest.StageDescribe)
	sink.Reached(ingest.StageSetup)
	c := capture{sink: sink, now: s.cfg.Now, format: format, assembler: bitstream.NewAssembler(codecOf(format.Pixels))}
	for {
		p, err := d.Read()
		if ctx.Err() != nil {
			return nil // asked to stop
		}
		if err != nil {
			return &ingest.Error{Reason: ingest.ReasonDisconnected, Stage: ingest.StagePackets, Err: fmt.Errorf("read %s, which was unplugged or failed: %w", want.Path, err)}
		}
		if err := c.picture(p); err != nil {
			return &ingest.Error{Reason: ingest.ReasonDecode, Stage: ingest.StagePackets, Err: fmt.Errorf("read %s: %w", want.Path, err)}
		}
	}
}

// preferred formats: what is compressed by the device costs this box least and can be shown live as it is.
func preferred() []v4l2.FourCC { return []v4l2.FourCC{v4l2.H264, v4l2.MJPEG, v4l2.JPEG, v4l2.YUYV} }

// start chooses a format and begins to capture.
func start(d Device, want address.Device) (v4l2.Format, error) {
	offered := d.Formats()
	chosen := v4l2.FourCC(0)
	for _, f := range preferred() {
		if slices.Contains(offered, f) && (want.Format == "" || nameOf(f) == want.Format) {
			chosen = f
			break
		}
	}
	if chosen == 0 {
		wanted := "H.264, MJPEG nor YUYV"
		if want.Format != "" {
			wanted = want.Format
		}
		return v4l2.Format{}, &ingest.Error{
			Reason: ingest.ReasonCodecUnsupported, Stage: ingest.StageDescribe,
			Err: fmt.Errorf("%s offers %v, but not %s", want.Path, offered, wanted),
		}
	}
	size := v4l2.Format{Pixels: chosen, Width: want.Width, Height: want.Height}
	if size.Width == 0 {
		size.Width, size.Height = usualWidth, usualHeight
	}
	got, err := d.Start(size, want.Rate)
	if err != nil {
		return v4l2.Format{}, starting(want.Path, err)
	}
	if got.Pixels != chosen {
		return v4l2.Format{}, &ingest.Error{
			Reason: ingest.ReasonCodecUnsupported, Stage: ingest.StageSetup,
			Err: fmt.Errorf("%s was asked for %v and gives %v: name another size or format in its address (?size=640x480&format=yuyv)", want.Path, chosen, got.Pixels),
		}
	}
	return got, nil
}

func nameOf(f v4l2.FourCC) string {
	return map[v4l2.FourCC]string{v4l2.H264: "h264", v4l2.MJPEG: "mjpeg", v4l2.JPEG: "mjpeg", v4l2.YUYV: "yuyv"}[f]
}

func codecOf(f v4l2.FourCC) ingest.Codec {
	if f == v4l2.H264 {
		return ingest.H264
	}
	return ingest.MJPEG
}

// opening gives an error of Open its reason and says what to do.
func opening(path string, err error) error {
	fault := func(reason ingest.Reason, text string) error {
		return &ingest.Error{Reason: reason, Stage: ingest.StageDial, Err: fmt.Errorf("open %s: %s: %w", path, text, err)}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return fault(ingest.ReasonNotFound, "there is no such device now: is it plugged in, and may vedette-ingest see /dev (systemd/examples/video-devices.conf)?")
	case errors.Is(err, fs.ErrPermission):
		return fault(ingest.ReasonInvalidConfig, "vedette-ingest may not open it: its user has to be in the device's group, mostly video (systemd/examples/video-devices.conf)")
	case errors.Is(err, v4l2.ErrNotCapturing):
		return fault(ingest.ReasonInvalidConfig, "name another device")
	default:
		return starting(path, err)
	}
}

func starting(path string, err error) error {
	reason, text := ingest.ReasonProtocol, "the driver refuses"
	switch {
	case errors.Is(err, syscall.EBUSY):
		reason, text = ingest.ReasonCameraBusy, "another program captures from it"
	case errors.Is(err, syscall.ENOSPC):
		reason, text = ingest.ReasonResource, "its USB bus has no bandwidth left: choose a smaller size, a lower rate or another port"
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		reason, text = ingest.ReasonResource, "this box has no memory or descriptors left"
	case errors.Is(err, syscall.ENODEV):
		reason, text = ingest.ReasonDisconnected, "it was unplugged"
	}
	return &ingest.Error{Reason: reason, Stage: ingest.StageSetup, Err: fmt.Errorf("capture from %s: %s: %w", path, text, err)}
}

// capture hands pictures on.
type capture struct {
	sink      ingest.Sink
	now       func() ingest.Instant
	format    v4l2.Format
	assembler bitstream.Assembler
	begun     bool
	announced bool
	sequence  uint32
	lost      bool
}

func (c *capture) picture(p v4l2.Picture) error {
	now := c.now()
	missing := uint64(0)
	if gap := p.Sequence - c.sequence; c.begun && gap > 1 && gap < 1<<16 {
		missing = uint64(gap) - 1
	}
	if !c.begun {
		c.begun = true
		c.sink.Reached(ingest.StageFirstPacket)
	}
	c.sequence = p.Sequence
	// A picture the driver marks is of use only where others refer to it.
	dropped := len(p.Data) == 0 || p.Damaged && c.format.Pixels != v4l2.H264
	c.sink.Packets(1, uint64(len(p.Data)), missing, bit(dropped || p.Damaged))
	c.lost = c.lost || missing > 0 || dropped
	if dropped {
		return nil
	}
	units, err := c.units(p.Data)
	if err != nil || units == nil {
		return err
	}
	data, key, changed := c.assembler.Assemble(units)
	if len(data) == 0 {
		return nil
	}
	if changed || !c.announced {
		c.announced = true
		s := c.assembler.Stream()
		s.Live = true
		c.sink.Stream(s)
	}
	taken := p.Taken
	if taken == 0 || taken > now.Mono {
		taken = now.Mono
	}
	c.sink.AccessUnit(ingest.AccessUnit{
		Data: data, Ticks: ingest.TicksOf(taken), Received: now, Keyframe: key, Recovery: c.assembler.Recovery(),
		Lost: c.lost && c.format.Pixels == v4l2.H264, Damaged: p.Damaged,
	})
	c.lost = false
	return nil
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// units makes of a buffer what the assembler takes; nil when it is none.
func (c *capture) units(data []byte) ([][]byte, error) {
	switch c.format.Pixels {
	case v4l2.H264:
		return bitstream.Units(data), nil
	case v4l2.YUYV:
		jpeg, err := c.encode(data)
		return [][]byte{jpeg}, err
	default:
		if len(data) < 4 || data[0] != 0xFF || data[1] != 0xD8 {
			c.sink.Packets(0, 0, 0, 1)
			return nil, nil
		}
		return [][]byte{data}, nil
	}
}

// encode makes a JPEG of a picture in YUYV.
func (c *capture) encode(data []byte) ([]byte, error) {
	w, h := c.format.Width&^1, c.format.Height&^1
	if w <= 0 || h <= 0 || len(data) < c.format.Stride*(h-1)+2*w || c.format.Stride < 2*w {
		return nil, fmt.Errorf("%d bytes are no picture of %d×%d in YUYV", len(data), c.format.Width, c.format.Height)
	}
	pixels := make([]byte, w*h*3/2, w*h*3/2+64) // with room for wide loads
	toI420(pixels, data, w, h, c.format.Stride)
	jpeg, _, err := av.JPEG(av.Still{Pixels: pixels, Width: w, Height: h}, image.Rectangle{}, 0, 90)
	return jpeg, err
}

// toI420 spreads YUYV (Y0 U Y1 V) over planes, the colours of two rows averaged. Width and height are even.
func toI420(dst, src []byte, w, h, stride int) {
	luma, u, v := dst[:w*h], dst[w*h:w*h*5/4], dst[w*h*5/4:]
	for y := 0; y < h; y += 2 {
		a, b := src[y*stride:][:2*w], src[(y+1)*stride:][:2*w]
		la, lb := luma[y*w:][:w], luma[(y+1)*w:][:w]
		for x := 0; x < w; x += 2 {
			la[x], la[x+1], lb[x], lb[x+1] = a[2*x], a[2*x+2], b[2*x], b[2*x+2]
			at := y/2*(w/2) + x/2
			u[at] = byte((int(a[2*x+1]) + int(b[2*x+1]) + 1) / 2)
			v[at] = byte((int(a[2*x+3]) + int(b[2*x+3]) + 1) / 2)
		}
	}
}
