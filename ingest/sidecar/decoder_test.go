package sidecar_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/decode"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/av"
	"github.com/vedette/vedette/internal/rtsptest"
)

// hanging is a decoder that does not return from its first picture until it is let go.
type hanging struct {
	decode.Engine
	release <-chan struct{}
	wg      *sync.WaitGroup
}

func (h hanging) Send(data []byte, pts int64) error {
	<-h.release
	return h.Engine.Send(data, pts)
}

func (h hanging) Close() {
	h.Engine.Close()
	h.wg.Done()
}

func TestAHungDecoderIsAbandonedAndAMissingOneReplaced(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam, other := rtsptest.Start(t, rtsptest.Config{Clip: clip}), rtsptest.Start(t, rtsptest.Config{Clip: clip})
	release := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(release)
	var opened atomic.Int32
	deadlines := quick()
	deadlines.FirstFrame, deadlines.Frames = 500*time.Millisecond, 500*time.Millisecond
	r := start(t, sidecar.Config{Deadlines: deadlines, Decodes: 1, Engine: func(name string, cfg av.DecoderConfig) (decode.Engine, error) {
		if name != decode.Software && name != "hangs once" {
			return nil, errors.New("no such device")
		}
		d, err := av.NewDecoder(cfg)
		if err != nil {
			return nil, err
		}
		if name == "hangs once" && opened.Add(1) == 1 {
			wg.Add(1)
			return hanging{d, release, &wg}, nil
		}
		return d, nil
	}})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "hung", Address: cam.Address(), Decoders: []string{"hangs once"}},
		&ingestv1.Camera{Name: "replaced", Address: other.Address(), Decoders: []string{"vaapi", "software"}})
	next(t, r.frames, "frame beside the hung decoder", func(f ingestclient.Frame) bool { f.Release(); return f.GetCamera() == "replaced" })
	s := next(t, r.status, "fallback", func(s *ingestv1.CameraStatus) bool {
		return s.GetCamera() == "replaced" && s.GetStream().GetDecoderFallback() != ""
	})
	if d := s.GetStream(); d.GetDecoder() != decode.Software || d.GetDecoderFallback() != "vaapi: no such device" {
		t.Errorf("stream: %v", d)
	}
	next(t, r.frames, "frame of the camera whose decoder hung", func(f ingestclient.Frame) bool { f.Release(); return f.GetCamera() == "hung" })
	next(t, r.counts, "count of it", func(c *ingestv1.Counters) bool { return c.GetCamera() == "hung" && c.GetDecodersAbandoned() == 1 })
}
