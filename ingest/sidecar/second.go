package sidecar

import (
	"context"
	"errors"
	"image"
	"log/slog"
	"sync"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/camera"
	"github.com/vedette/vedette/ingest/framebus"
	"github.com/vedette/vedette/ingest/wire"
	"github.com/vedette/vedette/internal/address"
	"github.com/vedette/vedette/internal/av"
)

// second is a camera's main stream: connected while somebody wants it, never decoded but for single pictures.
type second struct {
	camera *camera.Camera
	bus    *framebus.Bus // stays empty

	mu    sync.Mutex // guards everything below
	want  ingest.Camera
	users int
	idle  *time.Timer // lets the stream go; nil: nobody has left lately
}

// linger is how long the stream stays connected after the last one who wanted it: pages are reloaded.
const linger = 5 * time.Second

func (s *Sidecar) newSecond(e *entry, c ingest.Camera) *second {
	m := &second{want: c, bus: framebus.New(framebus.Config{Camera: c.Name, Leases: &s.leases})}
	m.camera = camera.New(camera.Config{
		Camera: m.settings(), Deadlines: s.cfg.Deadlines, Backoff: s.cfg.Backoff, Bus: m.bus, Mint: s.mint, Dials: s.dials,
		Source: func(c ingest.Camera, d camera.Deadlines) ingest.Source { return s.source(c, d, nil) }, Coded: true, Logger: s.cfg.Logger.With(slog.String("stream", "main")), OnStatus: func(camera.Status) { s.status(e, e.camera.Status()) },
	})
	return m
}

func (m *second) run(ctx context.Context) {
	_ = m.camera.Run(ctx) // nothing but nil
	m.bus.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle != nil {
		m.idle.Stop()
	}
}

// there reports whether the camera has a main stream of its own: two sessions on the same one are more than many have.
func there(c ingest.Camera) bool {
	return c.MainAddress != "" && !address.Same(c.MainAddress, c.Address)
}

// settings are those the stream is read by; the caller holds mu, or is the only one.
func (m *second) settings() ingest.Camera {
	c := m.want
	c.Disabled = c.Disabled || !there(c) || m.users == 0 && m.idle == nil && !c.KeepMain
	return ingest.Camera{
		Name: c.Name, Address: c.MainAddress, Username: c.Username, Password: c.Password, Transport: c.Transport, CA: c.CA,
		CertificateSHA256: c.CertificateSHA256, Masks: c.Masks, PreRollBytes: c.PreRollBytes, Disabled: c.Disabled, Asked: c.Asked,
	}
}

func (m *second) update(c ingest.Camera) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.want = c
	m.camera.Update(m.settings())
}

// hold keeps the stream connected until release.
func (m *second) hold() (release func()) {
	m.change(1)
	return sync.OnceFunc(func() { m.change(-1) })
}

func (m *second) change(by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users += by
	if m.idle != nil {
		m.idle.Stop()
		m.idle = nil
	}
	if m.users == 0 {
		m.idle = time.AfterFunc(linger, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.users == 0 && m.idle != nil {
				m.idle = nil
				m.camera.Update(m.settings())
			}
		})
	}
	m.camera.Update(m.settings())
}

// stream returns the camera's coded stream, the main one if asked and there, held until release.
func (e *entry) stream(main bool) (*camera.Camera, func()) {
	if !main || !there(e.settings()) {
		return e.camera, func() {}
	}
	release := e.second.hold()
	return e.second.camera, release
}

// settings are what is wanted of the camera now.
func (e *entry) settings() ingest.Camera {
	e.second.mu.Lock()
	defer e.second.mu.Unlock()
	return e.second.want
}

// keyframePatience is how long a picture of the main stream waits for its keyframe.
const keyframePatience = 5 * time.Second

// keyframe decodes the newest keyframe of the main stream, masked.
func (e *entry) keyframe(ctx context.Context) (camera.Coded, []byte, ingest.Frame, error) {
	stream, release := e.stream(true)
	defer release()
	ctx, cancel := context.WithTimeout(ctx, keyframePatience)
	defer cancel()
	place, kept := stream.UnitsFrom(time.Now())
	if !kept {
		return camera.Coded{}, nil, ingest.Frame{}, &ingest.Error{Reason: ingest.ReasonInvalidConfig, Err: errors.New("pictures of the main stream need a pre-roll, which is off")}
	}
	for {
		unit, behind, more := stream.NextUnit(place)
		place = behind
		switch {
		case unit != nil && unit.Unit.Keyframe && unit.Unit.Recovery == 0:
			pixels, f, err := decodeOne(*unit)
			if masks := e.settings().Masks; err == nil && len(masks) > 0 {
				framebus.NewBlanker(masks, f.Size).Blank(pixels)
			}
			return *unit, pixels, f, err
		case unit != nil:
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return camera.Coded{}, nil, ingest.Frame{}, gone(errors.New("the main stream sends no keyframe now"))
		}
	}
}

// decodeOne makes a picture of a keyframe, as tight I420.
func decodeOne(c camera.Coded) ([]byte, ingest.Frame, error) {
	fault := func(err error) ([]byte, ingest.Frame, error) {
		return nil, ingest.Frame{}, &ingest.Error{Reason: ingest.ReasonDecode, Err: err}
	}
	codec := map[ingest.Codec]av.Codec{ingest.H264: av.H264, ingest.H265: av.H265, ingest.MJPEG: av.MJPEG, ingest.AV1: av.AV1}[c.Stream.Codec]
	d, err := av.NewDecoder(av.DecoderConfig{Codec: codec, Threads: 1})
	if err != nil {
		return fault(err)
	}
	defer d.Close()
	if err := d.Send(c.Unit.Data, 0); err != nil {
		return fault(err)
	}
	d.Drain()
	var p av.Picture
	defer p.Close()
	if ok, err := d.Receive(&p); err != nil || !ok {
		return fault(errors.Join(errors.New("the keyframe gives no picture"), err))
	}
	f := ingest.Frame{Epoch: c.Epoch, Number: c.Number, Capture: c.Capture, Size: image.Pt(p.Width, p.Height), Keyframe: true, FullRange: p.FullRange, Matrix: ingest.Matrix(p.Matrix)}
	pixels := make([]byte, p.Width*p.Height+2*((p.Width+1)/2)*((p.Height+1)/2))
	if err := p.I420(pixels); err != nil {
		return fault(err)
	}
	return pixels, f, nil
}

// status of the main stream; nil while it is not connected.
func (m *second) status() *ingestv1.CameraStatus {
	st := m.camera.Status()
	if st.State == 0 || st.State == camera.Disabled {
		return nil
	}
	s := &ingestv1.CameraStatus{State: ingestv1.CameraState(st.State), SinceTimeNs: wire.Time(st.Since), Error: wire.Fault(asError(st.Err))}
	if st.Epoch != nil {
		s.StreamEpoch = st.Epoch.ID
	}
	if st.Stream.Codec != 0 {
		s.Stream = details(st.Stream)
		measured(s.Stream, m.camera.Measured())
	}
	return s
}

// asError keeps a nil fault a nil error.
func asError(e *ingest.Error) error {
	if e == nil {
		return nil
	}
	return e
}
