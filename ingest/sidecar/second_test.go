package sidecar_test

import (
	"bytes"
	"image/jpeg"
	"strings"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

func TestTheMainStreamIsConnectedWhileItIsWanted(t *testing.T) {
	sub := rtsptest.Start(t, rtsptest.Config{Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 50, GOP: 10})})
	main := rtsptest.Start(t, rtsptest.Config{Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 320, Height: 240, Frames: 50, GOP: 10}), Username: "u", Password: "p"})
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	door := &ingestv1.Camera{Name: "door", Address: sub.Address(), MainAddress: main.Address(), Username: "u", Password: "p"}
	r.set(door)
	f := r.frame()
	if f.GetWidth() != 64 {
		t.Errorf("frames are %d wide: not of the sub stream", f.GetWidth())
	}
	f.Release()
	if _, all, _ := main.Sessions(); all != 0 {
		t.Errorf("nobody looks, and the main stream has %d sessions", all)
	}

	// A picture of it, and its coded pictures, come from one session.
	p, err := r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_Camera{Camera: "door"}, Main: true})
	if err != nil {
		t.Fatal(err)
	}
	if img, err := jpeg.Decode(bytes.NewReader(p.GetJpeg())); err != nil || img.Bounds().Dx() != 320 || p.GetWidth() != 320 {
		t.Errorf("a picture of the main stream: %v wide, %v", p.GetWidth(), err)
	}
	r.client.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: "door", Main: true})
	d := next(t, r.descs, "description", nil)
	u := next(t, r.units, "access unit", nil)
	if !d.GetMain() || d.GetWidth() != 320 || !u.GetMain() || !u.GetKeyframe() || u.GetStreamEpoch() != d.GetStreamEpoch() {
		t.Errorf("description %v, unit of %q, main %v, keyframe %v", d, u.GetStreamEpoch(), u.GetMain(), u.GetKeyframe())
	}
	s := next(t, r.status, "status with the main stream", func(s *ingestv1.CameraStatus) bool {
		return s.GetMain().GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING
	})
	if s.GetStream().GetWidth() != 64 || s.GetMain().GetStream().GetWidth() != 320 {
		t.Errorf("status: %v", s)
	}
	if _, all, most := main.Sessions(); all != 1 || most != 1 {
		t.Errorf("the main stream had %d sessions, %d at once, want one", all, most)
	}
	r.client.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: "door", Main: true, Stop: true})
	next(t, r.status, "status without the main stream", func(s *ingestv1.CameraStatus) bool { return s.GetMain() == nil })

	// Kept, it has what was before an event.
	door.KeepMain = true
	r.set(door)
	next(t, r.status, "the main stream again", func(s *ingestv1.CameraStatus) bool {
		return s.GetMain().GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING
	})
	now := time.Now()
	var got *ingestv1.StreamDescription
	err = r.client.AccessUnits(t.Context(), &ingestv1.GetAccessUnits{Camera: "door", Main: true, FromTimeNs: now.UnixNano(), ToTimeNs: now.Add(300 * time.Millisecond).UnixNano()},
		func(d *ingestv1.StreamDescription, _ *ingestv1.AccessUnit) error {
			if d != nil {
				got = d
			}
			return nil
		})
	if err != nil || got.GetWidth() != 320 {
		t.Errorf("a span: %v, %v", got, err)
	}

	// The sub stream, written in another way, is no second session.
	door.MainAddress = "RTSP" + strings.TrimPrefix(sub.Address(), "rtsp")
	r.set(door)
	next(t, r.status, "the main stream to go", func(s *ingestv1.CameraStatus) bool { return s.GetMain() == nil })
	p, err = r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_Camera{Camera: "door"}, Main: true})
	if _, _, most := sub.Sessions(); err != nil || p.GetWidth() != 64 || most != 1 {
		t.Errorf("a picture %d wide, %v; %d sessions at once", p.GetWidth(), err, most)
	}
}

func TestPrivacyMasksBlankPicturesOfTheMainStream(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5, Source: "color=white"})
	sub, main := rtsptest.Start(t, rtsptest.Config{Clip: clip}), rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{})
	r.set(&ingestv1.Camera{Name: "door", Address: sub.Address(), MainAddress: main.Address(), PrivacyMasks: []*ingestv1.PrivacyMask{
		{Points: []*ingestv1.Point{{X: 0, Y: 0}, {X: 0.5, Y: 0}, {X: 0.5, Y: 1}, {X: 0, Y: 1}}},
	}})
	r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)
	p, err := r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_Camera{Camera: "door"}, Main: true})
	if err != nil {
		t.Fatal(err)
	}
	img, err := jpeg.Decode(bytes.NewReader(p.GetJpeg()))
	if err != nil {
		t.Fatal(err)
	}
	left, _, _, _ := img.At(8, 32).RGBA()
	right, _, _, _ := img.At(56, 32).RGBA()
	if left > 0x3000 || right < 0xC000 {
		t.Errorf("left %x, right %x: want black and white", left, right)
	}
	// Its coded pictures say that they are not masked.
	r.client.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: "door", Main: true})
	if d := next(t, r.descs, "description", nil); !d.GetMasked() {
		t.Errorf("description: %v", d)
	}
}
