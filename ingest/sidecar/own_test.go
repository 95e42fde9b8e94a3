package sidecar_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
	"github.com/vedette/vedette/internal/unixmsg"
)

// receive reads until a message fits.
func receive(t *testing.T, c *unixmsg.Conn, what string, fits func(*ingestv1.FromIngest) bool) {
	t.Helper()
	for {
		b, files, err := c.Receive()
		for _, f := range files {
			_ = f.Close()
		}
		if err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		m := new(ingestv1.FromIngest)
		if err := proto.Unmarshal(b, m); err != nil {
			t.Fatal(err)
		}
		if fits(m) {
			return
		}
	}
}

func TestACameraOfAConnectionIsItsOwnAndGoesWithIt(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	listed, cam := rtsptest.Start(t, rtsptest.Config{Clip: clip}), rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: listed.Address()})
	r.frame().Release()

	own := dial(t, r.socket)
	open := func(name string) {
		send(t, own, &ingestv1.ToIngest{Message: &ingestv1.ToIngest_OpenCamera{OpenCamera: &ingestv1.OpenCamera{Camera: &ingestv1.Camera{Name: name, Address: cam.Address()}}}})
	}
	send(t, own, hello(ingestv1.Contract()))
	open("door")
	receive(t, own, "a refusal", func(m *ingestv1.FromIngest) bool {
		s := m.GetCameraStatus()
		return s.GetCamera() == "door" && s.GetRemoved() && s.GetError().GetReason() == ingestv1.ErrorReason_ERROR_REASON_INVALID_CONFIG
	})
	open("mine")
	send(t, own, &ingestv1.ToIngest{Message: &ingestv1.ToIngest_WatchFrames{WatchFrames: &ingestv1.WatchFrames{Camera: "mine"}}})
	receive(t, own, "a frame", func(m *ingestv1.FromIngest) bool {
		if n := m.GetFrameNotice(); n != nil && n.GetCamera() != "mine" {
			t.Errorf("a frame of %q, which was not watched", n.GetCamera())
		}
		return m.GetFrameNotice() != nil
	})
	// The list is replaced, and what is nobody's business stays: nobody else hears of it.
	r.set(&ingestv1.Camera{Name: "gate", Address: listed.Address()})
	for range 20 {
		f := r.frame()
		if f.GetCamera() == "mine" {
			t.Error("another connection got a frame")
		}
		f.Release()
	}
	receive(t, own, "another frame", func(m *ingestv1.FromIngest) bool { return m.GetFrameNotice() != nil })
	for len(r.status) > 0 {
		if s := <-r.status; s.GetCamera() == "mine" {
			t.Errorf("another connection heard %v", s)
		}
	}
	if _, err := r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_Camera{Camera: "mine"}}); err == nil {
		t.Error("another connection got a picture")
	}
	if n, _, _ := cam.Sessions(); n != 1 {
		t.Fatalf("%d sessions are open", n)
	}
	_ = own.Close()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for n, _, _ := cam.Sessions(); n > 0; n, _, _ = cam.Sessions() {
		select {
		case <-deadline.C:
			t.Fatal("the camera's session outlives the connection it belonged to")
		case <-time.After(time.Millisecond):
		}
	}
}
