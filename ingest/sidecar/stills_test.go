package sidecar_test

import (
	"bytes"
	"sync"
	"testing"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

func TestAPictureIsEncodedOnceHoweverManyAskAndNeverUnasked(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 320, Height: 240, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	f := r.frame()
	if n := next(t, r.counts, "counters", func(c *ingestv1.Counters) bool { return c.GetFramesDecoded() > 0 }); n.GetPictures() != 0 {
		t.Errorf("%d pictures encoded before anybody asked", n.GetPictures())
	}
	var wg sync.WaitGroup
	answers := make([]*ingestv1.Picture, 20)
	for i := range answers {
		wg.Go(func() {
			p, err := r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_LeaseId{LeaseId: f.GetLeaseId()}, MaxWidth: 160})
			if err != nil {
				t.Errorf("picture: %v", err)
			}
			answers[i] = p
		})
	}
	wg.Wait()
	for _, p := range answers {
		if !bytes.Equal(p.GetJpeg(), answers[0].GetJpeg()) || p.GetNumber() != f.GetNumber() || p.GetWidth() != 160 {
			t.Errorf("picture of frame %d is %d wide, %d bytes", p.GetNumber(), p.GetWidth(), len(p.GetJpeg()))
		}
	}
	if n := next(t, r.counts, "count of pictures", func(c *ingestv1.Counters) bool { return c.GetPictures() > 0 }); n.GetPictures() != 1 {
		t.Errorf("%d pictures encoded for one frame, width and quality", n.GetPictures())
	}
	other, err := r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_LeaseId{LeaseId: f.GetLeaseId()}, MaxWidth: 80})
	if err != nil || other.GetWidth() != 80 {
		t.Errorf("another width: %v, %v", other.GetWidth(), err)
	}
}

func TestAStreamsRateAndKeyframesAreMeasured(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	s := next(t, r.status, "measured stream", func(s *ingestv1.CameraStatus) bool {
		d := s.GetStream()
		return d.GetRate() > 0 && d.GetGop() > 0 && d.GetBitRate() > 0
	})
	if d := s.GetStream(); d.GetRate() < 15 || d.GetRate() > 40 || d.GetGop() != 5 {
		t.Errorf("25 pictures a second, keyframes every 5: %v", d)
	}
}
