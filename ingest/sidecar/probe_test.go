package sidecar_test

import (
	"bytes"
	"context"
	"image/jpeg"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/clockstep"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

func TestAProbeTellsWhatTheCameraDeliversAndKeepsNothing(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 50, GOP: 10, BFrames: 1})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, NoReports: true, Username: "u", Password: "p"})
	r := start(t, sidecar.Config{})
	p, err := r.client.Probe(t.Context(), &ingestv1.GetProbe{
		Camera: &ingestv1.Camera{Name: "x", Address: cam.Address(), Username: "u", Password: "p"}, WatchNs: int64(1500 * time.Millisecond),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := p.GetStream()
	if p.GetError() != nil || s.GetCodec() != ingestv1.Codec_CODEC_H264 || s.GetWidth() != 128 || s.GetGop() != 10 || s.GetRate() < 15 || s.GetRate() > 35 || s.GetBitRate() < 1000 {
		t.Errorf("got %v, %v", p.GetError(), s)
	}
	if img, err := jpeg.Decode(bytes.NewReader(p.GetJpeg())); err != nil || img.Bounds().Dx() != 128 {
		t.Errorf("first picture: %v", err)
	}
	kinds := map[ingestv1.ProbeWarningKind]bool{}
	for _, w := range p.GetWarnings() {
		kinds[w.GetKind()] = true
	}
	if !kinds[ingestv1.ProbeWarningKind_PROBE_WARNING_KIND_B_FRAMES] || !kinds[ingestv1.ProbeWarningKind_PROBE_WARNING_KIND_NO_SENDER_REPORTS] ||
		kinds[ingestv1.ProbeWarningKind_PROBE_WARNING_KIND_LONG_GOP] {
		t.Errorf("warnings: %v", p.GetWarnings())
	}
	if _, all, _ := cam.Sessions(); all != 1 {
		t.Errorf("%d sessions", all)
	}
	p, err = r.client.Probe(t.Context(), &ingestv1.GetProbe{Camera: &ingestv1.Camera{Name: "x", Address: cam.Address()}})
	if err != nil || p.GetError().GetReason() != ingestv1.ErrorReason_ERROR_REASON_AUTH_FAILED || p.GetError().GetHint() == "" {
		t.Errorf("without a password: %v, %v", p, err)
	}
}

func TestAStepOfTheClockOpensEpochsAndIsTold(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	set := make(chan time.Duration)
	at := ingest.Instant{Wall: time.Unix(1e9, 0)}
	r := start(t, sidecar.Config{Clock: clockstep.Config{
		Now: func() ingest.Instant { return at },
		Wait: func(ctx context.Context) error {
			select {
			case d := <-set:
				at.Wall = at.Wall.Add(d)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	first := r.frame()
	first.Release()
	set <- -time.Hour
	if s := next(t, r.steps, "clock step", nil); s.GetStepNs() != int64(-time.Hour) {
		t.Errorf("step %v", s)
	}
	for {
		f := r.frame()
		f.Release()
		if f.GetStreamEpoch() != first.GetStreamEpoch() {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.opens[len(r.opens)-1]; o.GetReason() != ingestv1.EpochReason_EPOCH_REASON_CLOCK_ANCHORED {
		t.Errorf("reason %v", o.GetReason())
	}
}
