package sidecar

import (
	"context"
	"errors"
	"image"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/framebus"
	"github.com/vedette/vedette/ingest/wire"
)

// picture answers one GetPicture.
func (c *conn) picture(ctx context.Context, m *ingestv1.GetPicture) {
	answer := &ingestv1.Picture{RequestId: m.GetRequestId(), Camera: m.GetCamera()}
	p, err := c.still(ctx, m, answer)
	if err == nil {
		err = p.err
	}
	if err != nil {
		answer.Error = wire.Fault(err)
	} else {
		answer.Jpeg, answer.Width, answer.Height = p.jpeg, wire.Side(p.size.X), wire.Side(p.size.Y)
		answer.StreamEpoch, answer.Number, answer.CaptureTimeNs = p.of.Epoch.ID, p.of.Number, p.of.Capture.UnixNano()
		answer.Sharpness = p.sharpness
	}
	c.out.put(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_Picture{Picture: answer}}, nil)
}

func gone(err error) error { return &ingest.Error{Reason: ingest.ReasonGone, Err: err} }

// still finds or makes the JPEG asked for.
func (c *conn) still(ctx context.Context, m *ingestv1.GetPicture, answer *ingestv1.Picture) (*still, error) {
	r := m.GetCrop()
	key := stillKey{width: int(m.GetMaxWidth()), quality: int(m.GetQuality())}
	key.crop = image.Rect(int(r.GetX()), int(r.GetY()), int(r.GetX())+int(r.GetWidth()), int(r.GetY())+int(r.GetHeight()))
	if name := m.GetCamera(); name != "" {
		if m.GetMain() {
			return c.latestMain(ctx, name, key)
		}
		return c.latest(name, key)
	}
	c.mu.Lock()
	bus := c.leases[m.GetLeaseId()]
	c.mu.Unlock()
	if bus == nil {
		return nil, gone(framebus.ErrNoLease)
	}
	answer.Camera = bus.Camera()
	var p *still
	err := bus.Read(c, m.GetLeaseId(), func(f ingest.Frame, pixels []byte) error {
		key.epoch, key.number = f.Epoch, f.Number
		fill := func(p *still) {
			defer c.s.encoding()()
			_ = p.encode(f, pixels)
		}
		e := c.s.entry(bus.Camera())
		if e == nil || e.bus != bus { // the camera is gone, the frame is still held
			p = &still{key: key}
			fill(p)
			return nil
		}
		p = e.stills.get(key, fill)
		return nil
	})
	if errors.Is(err, framebus.ErrNoLease) {
		err = gone(err)
	}
	return p, err
}

// latest makes a JPEG of a camera's newest picture.
func (c *conn) latest(name string, key stillKey) (*still, error) {
	e := c.s.entry(name)
	if e == nil || !c.mayHear(e) {
		return nil, &ingest.Error{Reason: ingest.ReasonNotFound, Err: errors.New("no camera of this name")}
	}
	f, settings, err := e.camera.LatestFrame()
	if err != nil {
		return nil, gone(err)
	}
	key.epoch, key.number, key.settings = f.Epoch, f.Number, settings
	return e.stills.get(key, func(p *still) {
		defer c.s.encoding()()
		// A newer picture may have come; it is as good an answer.
		f, pixels, err := e.camera.Latest()
		if err != nil {
			p.err = gone(err)
			return
		}
		_ = p.encode(f, pixels)
	}), nil
}

// latestMain makes a JPEG of the newest keyframe of a camera's main stream; without one, of its newest picture.
func (c *conn) latestMain(ctx context.Context, name string, key stillKey) (*still, error) {
	e := c.s.entry(name)
	if e == nil || !c.mayHear(e) || !there(e.settings()) {
		return c.latest(name, key)
	}
	coded, pixels, f, err := e.keyframe(ctx)
	if err != nil {
		return nil, err
	}
	key.epoch, key.number, key.settings = coded.Epoch, coded.Number, e.camera.Settings()
	return e.stills.get(key, func(p *still) {
		defer c.s.encoding()()
		_ = p.encode(f, pixels)
	}), nil
}

// encoding bounds the pictures encoded at once; the function returned ends one.
func (s *Sidecar) encoding() (end func()) {
	s.stills <- struct{}{}
	return func() { <-s.stills }
}
