package sidecar_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/packetdump"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

var errEnough = errors.New("enough")

func TestADumpHoldsTheDialogueAndTheMediaButNoSecret(t *testing.T) {
	isolating(t)
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	const user, password = "canary-user", "canary:p@ss"
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, Username: user, Password: password})
	r := start(t, sidecar.Config{Worker: worker})
	for _, isolation := range []ingestv1.Isolation{ingestv1.Isolation_ISOLATION_UNSPECIFIED, ingestv1.Isolation_ISOLATION_CAMERA} {
		c := &ingestv1.Camera{Name: "door", Address: cam.Address(), Username: user, Password: password, Isolation: isolation}
		r.set(c)
		next(t, r.status, "stream", func(s *ingestv1.CameraStatus) bool {
			return s.GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING && s.GetIsolated() == (isolation != 0)
		})
		var file bytes.Buffer
		kicked := false
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err := r.client.DumpPackets(ctx, &ingestv1.DumpPackets{Camera: "door", DurationNs: int64(time.Minute)}, func(b []byte) error {
			file.Write(b)
			if !kicked && file.Len() > 2000 { // media came: now for the dialogue of the next session
				kicked = true
				cam.Kick()
			}
			if kicked && bytes.Contains(file.Bytes(), []byte("PLAY rtsp://")) {
				return errEnough
			}
			return nil
		})
		cancel()
		if !errors.Is(err, errEnough) {
			t.Fatalf("isolation %v: %v after %d bytes", isolation, err, file.Len())
		}
		for _, want := range []string{string(packetdump.Header()), "DESCRIBE rtsp://", "Authorization: ***", "RTSP/1.0 200 OK", "m=video"} {
			if !bytes.Contains(file.Bytes(), []byte(want)) {
				t.Errorf("isolation %v: %q is missing", isolation, want)
			}
		}
		for _, secret := range []string{user, password, "canary", "response="} {
			if bytes.Contains(file.Bytes(), []byte(secret)) {
				t.Errorf("isolation %v: %q is in the dump", isolation, secret)
			}
		}
	}
	_, err := r.client.DumpPackets(t.Context(), &ingestv1.DumpPackets{Camera: "door", MaxBytes: 3000, DurationNs: int64(time.Minute)}, func(b []byte) error { return nil })
	if err != nil {
		t.Errorf("a full dump: %v", err)
	}
	_, err = r.client.DumpPackets(t.Context(), &ingestv1.DumpPackets{Camera: "nobody"}, func(b []byte) error { return nil })
	if e := ingest.AsError(err); err == nil || e.Reason != ingest.ReasonNotFound {
		t.Errorf("a dump of nobody: %v", err)
	}
}
