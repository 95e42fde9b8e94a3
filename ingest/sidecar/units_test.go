package sidecar_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/fmp4"
	"github.com/vedette/vedette/internal/rtsptest"
)

// span collects the access units from one time to another.
func (r *rig) span(ctx context.Context, camera string, from, to time.Time) (units []*ingestv1.AccessUnit, descs []*ingestv1.StreamDescription, err error) {
	err = r.client.AccessUnits(ctx, &ingestv1.GetAccessUnits{Camera: camera, FromTimeNs: from.UnixNano(), ToTimeNs: to.UnixNano()},
		func(d *ingestv1.StreamDescription, u *ingestv1.AccessUnit) error {
			if d != nil {
				descs = append(descs, d)
			}
			units = append(units, u)
			return nil
		})
	return units, descs, err
}

func TestASpanOfAccessUnitsIsWholeAndMakesAClip(t *testing.T) {
	cam := rtsptest.Start(t, rtsptest.Config{Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 50, GOP: 10})})
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	var first time.Time
	for range 15 { // something is in the ring
		f := r.frame()
		if first.IsZero() {
			first = time.Unix(0, f.GetCaptureTimeNs())
		}
		f.Release()
	}
	// It begins in the past and ends in the future.
	from, to := first.Add(420*time.Millisecond), first.Add(1500*time.Millisecond)
	units, descs, err := r.span(t.Context(), "door", from, to)
	if err != nil {
		t.Fatal(err)
	}
	if len(descs) != 1 || descs[0].GetCodec() != ingestv1.Codec_CODEC_H264 || descs[0].GetWidth() != 128 || len(descs[0].GetParameterSets()) != 2 || descs[0].GetMasked() {
		t.Errorf("descriptions %v", descs)
	}
	if !units[0].GetKeyframe() || units[0].GetCaptureTimeNs() > from.UnixNano() {
		t.Errorf("begins with %v, wanted from %v", units[0].GetCaptureTimeNs(), from.UnixNano())
	}
	if from.UnixNano()-units[0].GetCaptureTimeNs() > 400e6 {
		t.Errorf("begins %v too early: more than a group of pictures", time.Duration(from.UnixNano()-units[0].GetCaptureTimeNs()))
	}
	if last := units[len(units)-1]; last.GetCaptureTimeNs() < to.UnixNano()-40e6 {
		t.Errorf("ends %v too early", time.Duration(to.UnixNano()-last.GetCaptureTimeNs()))
	}
	var file bytes.Buffer
	w := fmp4.NewWriter(&file)
	for i, u := range units {
		if i > 0 && u.GetNumber() != units[i-1].GetNumber()+1 {
			t.Fatalf("unit %d follows unit %d", u.GetNumber(), units[i-1].GetNumber())
		}
		if err := w.Add(fmp4.H264, fmp4.Unit{Units: u.GetUnits(), Key: u.GetKeyframe(), Ticks: u.GetRtpTicks(), Capture: time.Unix(0, u.GetCaptureTimeNs())}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil || file.Len() < 1000 {
		t.Errorf("%d bytes of clip: %v", file.Len(), err)
	}
}

func TestEverySessionsCodedPicturesBeginWithAKeyframe(t *testing.T) {
	cam := rtsptest.Start(t, rtsptest.Config{Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 24, GOP: 12})})
	r := start(t, sidecar.Config{})
	r.client.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: "door"})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	epoch := ""
	for range 4 {
		u := next(t, r.units, "access unit of a new session", func(u *ingestv1.AccessUnit) bool { return u.GetStreamEpoch() != epoch })
		if !u.GetKeyframe() {
			t.Errorf("epoch %s begins with picture %d, which is no keyframe", u.GetStreamEpoch(), u.GetNumber())
		}
		epoch = u.GetStreamEpoch()
		cam.Kick()
	}
}

func TestASpanThatCannotBeSaysWhy(t *testing.T) {
	cam := rtsptest.Start(t, rtsptest.Config{Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})})
	r := start(t, sidecar.Config{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()}, &ingestv1.Camera{Name: "bare", Address: cam.Address(), PreRollBytes: -1})
	r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)
	now := time.Now()
	for _, c := range []struct {
		name, camera string
		from, to     time.Time
		want         ingest.Reason
	}{
		{"no such camera", "window", now, now, ingest.ReasonNotFound},
		{"long gone", "door", now.Add(-2 * time.Hour), now.Add(-time.Hour - 59*time.Minute), ingest.ReasonGone},
		{"too long", "door", now, now.Add(time.Hour), ingest.ReasonInvalidConfig},
		{"backwards", "door", now, now.Add(-time.Second), ingest.ReasonInvalidConfig},
		{"no pre-roll", "bare", now, now, ingest.ReasonInvalidConfig},
	} {
		_, _, err := r.span(t.Context(), c.camera, c.from, c.to)
		if e, ok := errors.AsType[*ingest.Error](err); !ok || e.Reason != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.span(ctx, "door", now, now.Add(time.Minute)); !errors.Is(err, context.Canceled) {
		t.Errorf("a span nobody waits for: %v", err)
	}
	// One that is left in the middle neither blocks the sidecar nor the connection.
	stop := errors.New("enough")
	err := r.client.AccessUnits(t.Context(), &ingestv1.GetAccessUnits{Camera: "door", FromTimeNs: now.UnixNano(), ToTimeNs: now.Add(time.Minute).UnixNano()},
		func(*ingestv1.StreamDescription, *ingestv1.AccessUnit) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("left in the middle: %v", err)
	}
	if _, _, err := r.span(t.Context(), "door", now, now.Add(100*time.Millisecond)); err != nil {
		t.Errorf("the next one: %v", err)
	}
}
