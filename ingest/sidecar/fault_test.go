package sidecar_test

import (
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"

	"github.com/vedette/vedette/api/frame"
	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

// silent is a port that accepts and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// refused is a port nobody listens on.
func refused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestEveryFaultHasItsTypeAndTellsHowToMendIt(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25})
	secret := "hunter2 &?%"
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, Username: "admin", Password: secret})
	status := func(code base.StatusCode) string {
		return rtsptest.Start(t, rtsptest.Config{Clip: clip, Request: func(m base.Method, _ <-chan struct{}) *base.Response {
			if m == base.Describe {
				return &base.Response{StatusCode: code}
			}
			return nil
		}}).Address()
	}
	r := start(t, sidecar.Config{})
	for _, c := range []struct {
		name   string
		camera *ingestv1.Camera
		reason ingestv1.ErrorReason
		stage  ingestv1.Stage
		state  ingestv1.CameraState
	}{
		{
			"nobody listens", &ingestv1.Camera{Address: "rtsp://" + refused(t) + "/x"},
			ingestv1.ErrorReason_ERROR_REASON_UNREACHABLE, ingestv1.Stage_STAGE_DIAL, ingestv1.CameraState_CAMERA_STATE_BACKOFF,
		},
		{
			"no such host", &ingestv1.Camera{Address: "rtsp://camera.invalid/x"},
			ingestv1.ErrorReason_ERROR_REASON_UNREACHABLE, ingestv1.Stage_STAGE_DIAL, ingestv1.CameraState_CAMERA_STATE_BACKOFF,
		},
		{
			"the camera says nothing", &ingestv1.Camera{Address: "rtsp://" + silent(t) + "/x"},
			ingestv1.ErrorReason_ERROR_REASON_TIMEOUT, ingestv1.Stage_STAGE_DESCRIBE, ingestv1.CameraState_CAMERA_STATE_BACKOFF,
		},
		{
			"wrong password", &ingestv1.Camera{Address: cam.Address(), Username: "admin", Password: "canary-wrong"},
			ingestv1.ErrorReason_ERROR_REASON_AUTH_FAILED, ingestv1.Stage_STAGE_DESCRIBE, ingestv1.CameraState_CAMERA_STATE_QUARANTINED,
		},
		{
			"no password", &ingestv1.Camera{Address: cam.Address()},
			ingestv1.ErrorReason_ERROR_REASON_AUTH_FAILED, ingestv1.Stage_STAGE_DESCRIBE, ingestv1.CameraState_CAMERA_STATE_QUARANTINED,
		},
		{
			"no such path", &ingestv1.Camera{Address: "rtsp://" + cam.Host() + "/other", Username: "admin", Password: secret},
			ingestv1.ErrorReason_ERROR_REASON_NOT_FOUND, ingestv1.Stage_STAGE_DESCRIBE, ingestv1.CameraState_CAMERA_STATE_BACKOFF,
		},
		{
			"no session left", &ingestv1.Camera{Address: status(base.StatusNotEnoughBandwidth)},
			ingestv1.ErrorReason_ERROR_REASON_CAMERA_BUSY, ingestv1.Stage_STAGE_DESCRIBE, ingestv1.CameraState_CAMERA_STATE_BACKOFF,
		},
		{
			"an answer nobody expects", &ingestv1.Camera{Address: status(base.StatusMethodNotAllowed)},
			ingestv1.ErrorReason_ERROR_REASON_PROTOCOL, ingestv1.Stage_STAGE_DESCRIBE, ingestv1.CameraState_CAMERA_STATE_BACKOFF,
		},
		{
			"a codec nobody decodes", &ingestv1.Camera{Address: rtsptest.StartUnsupported(t)},
			ingestv1.ErrorReason_ERROR_REASON_CODEC_UNSUPPORTED, ingestv1.Stage_STAGE_DESCRIBE, ingestv1.CameraState_CAMERA_STATE_QUARANTINED,
		},
		{
			"TLS where there is none", &ingestv1.Camera{Address: strings.Replace(cam.Address(), "rtsp:", "rtsps:", 1)},
			ingestv1.ErrorReason_ERROR_REASON_TLS_HANDSHAKE, ingestv1.Stage_STAGE_DIAL, ingestv1.CameraState_CAMERA_STATE_BACKOFF,
		},
		{
			"an address of no kind", &ingestv1.Camera{Address: "ftp://x/y"},
			ingestv1.ErrorReason_ERROR_REASON_INVALID_CONFIG, ingestv1.Stage_STAGE_UNSPECIFIED, ingestv1.CameraState_CAMERA_STATE_QUARANTINED,
		},
		{
			"no such file", &ingestv1.Camera{Address: "file:" + filepath.Join(t.TempDir(), "none.mp4")},
			ingestv1.ErrorReason_ERROR_REASON_NOT_FOUND, ingestv1.Stage_STAGE_DIAL, ingestv1.CameraState_CAMERA_STATE_BACKOFF,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.t = t
			c.camera.Name = c.name
			r.set(c.camera)
			s := next(t, r.status, "fault", func(s *ingestv1.CameraStatus) bool {
				return s.GetCamera() == c.name && s.GetState() == c.state && s.GetError() != nil
			})
			if s.GetError().GetReason() != c.reason || s.GetStage() != c.stage {
				t.Errorf("got %v at %v: %s", s.GetError().GetReason(), s.GetStage(), s.GetError().GetMessage())
			}
			if s.GetError().GetHint() == "" && c.reason != ingestv1.ErrorReason_ERROR_REASON_DISCONNECTED {
				t.Error("no hint")
			}
			for _, leak := range []string{secret, "hunter2", "canary-wrong"} {
				if strings.Contains(s.String(), leak) {
					t.Errorf("%q leaks: %v", leak, s)
				}
			}
			if s.GetNextAttemptTimeNs() == 0 {
				t.Error("no next attempt")
			}
		})
	}
}

func TestACameraThatDiesComesBackInANewEpoch(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	first := r.frame()
	first.Release()
	cam.Close()
	r.state("door", ingestv1.CameraState_CAMERA_STATE_BACKOFF)
	again := rtsptest.Start(t, rtsptest.Config{Clip: clip, Address: cam.Host()})
	s := r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)
	if s.GetStreamEpoch() == first.GetStreamEpoch() {
		t.Error("the epoch is the old one")
	}
	for {
		f := r.frame()
		f.Release()
		if f.GetStreamEpoch() == first.GetStreamEpoch() {
			continue
		}
		if f.GetNumber() != 0 || !f.GetKeyframe() {
			t.Errorf("the new epoch begins with %v", f.FrameNotice)
		}
		break
	}
	r.mu.Lock()
	if o := r.opens[len(r.opens)-1]; o.GetReason() != ingestv1.EpochReason_EPOCH_REASON_RECONNECTED {
		t.Errorf("reason %v", o.GetReason())
	}
	r.mu.Unlock()
	if _, _, most := again.Sessions(); most != 1 {
		t.Errorf("%d sessions at once", most)
	}
}

func TestACameraThatFallsSilentIsStalledAndReconnected(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	deadlines := quick()
	deadlines.Packets = 500 * time.Millisecond
	r := start(t, sidecar.Config{Deadlines: deadlines})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	r.frame().Release()
	cam.Pause(true)
	s := r.state("door", ingestv1.CameraState_CAMERA_STATE_STALLED)
	if s.GetStage() != ingestv1.Stage_STAGE_PACKETS || s.GetError().GetReason() != ingestv1.ErrorReason_ERROR_REASON_STALLED {
		t.Errorf("stalled at %v: %v", s.GetStage(), s.GetError())
	}
	cam.Pause(false)
	r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)
	if _, _, most := cam.Sessions(); most != 1 {
		t.Errorf("%d sessions at once: the old one was not torn down first", most)
	}
}

// A camera that takes the dialogue and whose datagrams a firewall drops looks well to itself.
func TestDatagramsThatAreDroppedOnTheWayAreNamed(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, UDP: true, Datagrams: func(p net.PacketConn) net.PacketConn { return void{p.(*net.UDPConn)} }})
	deadlines := quick()
	deadlines.FirstKeyframe, deadlines.FirstFrame = time.Second, time.Second
	r := start(t, sidecar.Config{Deadlines: deadlines})
	door := &ingestv1.Camera{Name: "door", Address: cam.Address(), Transport: ingestv1.Transport_TRANSPORT_UDP}
	r.set(door)
	// A starved machine may not get as far in its time at first.
	s := next(t, r.status, "failure", func(s *ingestv1.CameraStatus) bool {
		return s.GetError() != nil && s.GetStage() == ingestv1.Stage_STAGE_FIRST_PACKET
	})
	var p *ingestv1.Probe
	for p.GetStage() != ingestv1.Stage_STAGE_FIRST_PACKET {
		var err error
		if p, err = r.client.Probe(t.Context(), &ingestv1.GetProbe{Camera: door}); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []*ingestv1.Error{s.GetError(), p.GetError()} {
		if e.GetReason() != ingestv1.ErrorReason_ERROR_REASON_STALLED || !strings.Contains(e.GetMessage(), "firewall") || !strings.Contains(e.GetMessage(), "over TCP") {
			t.Errorf("got %v", e)
		}
	}
}

// void loses what is sent.
type void struct{ *net.UDPConn }

func (void) WriteTo(b []byte, _ net.Addr) (int, error) { return len(b), nil }

func TestOneCamerasFailureTouchesNoOther(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	good := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	bad := rtsptest.Start(t, rtsptest.Config{Clip: clip, Request: func(m base.Method, done <-chan struct{}) *base.Response {
		<-done // hangs for ever
		return nil
	}})
	r := start(t, sidecar.Config{Dials: 2})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "bad", Address: bad.Address()}, &ingestv1.Camera{Name: "good", Address: good.Address()})
	epoch, last, hung := "", int64(-1), 0
	for n := 0; n < 50 || hung < 2; n++ {
		f := r.frame()
		// A test that was slow to release slots misses frames, but the stream is one.
		if f.GetCamera() != "good" || int64(f.GetNumber()) <= last || epoch != "" && f.GetStreamEpoch() != epoch || f.GetTainted() {
			t.Fatalf("after frame %d of %s came %v", last, epoch, f.FrameNotice)
		}
		epoch, last = f.GetStreamEpoch(), int64(f.GetNumber())
		f.Release()
		for drained := false; !drained; {
			select {
			case s := <-r.status:
				if s.GetCamera() == "bad" && s.GetState() == ingestv1.CameraState_CAMERA_STATE_BACKOFF {
					hung++
				}
				if s.GetCamera() == "good" && s.GetError() != nil {
					t.Fatalf("the good camera: %v", s)
				}
			default:
				drained = true
			}
		}
	}
}

// What only a person can mend waits an hour here, and not once a person has mended it.
func TestACameraThatWaitsIsTriedAtOnceWhenItIsMendedOrAskedFor(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	var refuses atomic.Bool
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, Username: "admin", Password: "new", Request: func(base.Method, <-chan struct{}) *base.Response {
		if refuses.Load() {
			return &base.Response{StatusCode: base.StatusForbidden}
		}
		return nil
	}})
	r := start(t, sidecar.Config{})
	door := &ingestv1.Camera{Name: "door", Address: cam.Address(), Username: "admin", Password: "old"}
	quarantined := func() *ingestv1.CameraStatus {
		t.Helper()
		s := r.state("door", ingestv1.CameraState_CAMERA_STATE_QUARANTINED)
		if wait := time.Until(time.Unix(0, s.GetNextAttemptTimeNs())); wait < 30*time.Minute || s.GetError().GetReason() != ingestv1.ErrorReason_ERROR_REASON_AUTH_FAILED {
			t.Errorf("the next attempt is in %v: %v", wait, s.GetError())
		}
		return s
	}
	r.set(door)
	before := quarantined()

	door.AnalysisRate = 5 // no reason to try a password again
	r.set(door)
	after := next(t, r.status, "the change", func(s *ingestv1.CameraStatus) bool { return s.GetApplied() == ingestv1.Applied_APPLIED_HOT })
	if after.GetState() != before.GetState() || after.GetNextAttemptTimeNs() != before.GetNextAttemptTimeNs() {
		t.Errorf("after a change of the rate: %v", after)
	}
	door.Password = "new"
	r.set(door)
	r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)

	refuses.Store(true)
	cam.Kick()
	quarantined()
	refuses.Store(false)
	door.Asked++
	r.set(door)
	r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)
	// One that runs is left alone.
	_, sessions, _ := cam.Sessions()
	door.Asked++
	r.set(door)
	next(t, r.status, "the change", func(s *ingestv1.CameraStatus) bool { return s.GetApplied() == ingestv1.Applied_APPLIED_HOT })
	if _, now, most := cam.Sessions(); now != sessions || most != 1 {
		t.Errorf("%d sessions have become %d, %d at once", sessions, now, most)
	}
}

func TestALeaseEndsByItsTimeByItsHolderAndByReleaseAlone(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{LeaseTime: 300 * time.Millisecond})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	// Five slots, never released: frames are dropped until the leases run out, then they come again.
	var held []uint64
	for range 5 {
		held = append(held, r.frame().GetLeaseId())
	}
	next(t, r.counts, "expired leases, and frames dropped while every slot was held", func(c *ingestv1.Counters) bool {
		return c.GetLeasesExpired() >= 5 && c.GetDroppedNoLease()+c.GetDroppedNoSlot() > 0
	})
	_, err := r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_LeaseId{LeaseId: held[0]}})
	if err == nil || !strings.HasPrefix(err.Error(), "GONE") {
		t.Errorf("picture of an ended lease: %v", err)
	}
	var v frame.View
	next(t, r.frames, "frame that is not over yet", func(f ingestclient.Frame) bool {
		v, err = r.view(f)
		return err == nil
	})
	// It is not released either: after its time the slot is written again and the reader is told.
	for v.Check() == nil {
		r.frame()
	}
}

func TestChangesCostNoMoreThanTheyMust(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	door := &ingestv1.Camera{Name: "door", Address: cam.Address()}
	r.set(door)
	r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)
	for _, c := range []struct {
		name   string
		change func()
		want   ingestv1.Applied
	}{
		{"another rate is hot", func() { door.AnalysisRate = 12.5 }, ingestv1.Applied_APPLIED_HOT},
		{"a mask opens an epoch", func() {
			door.PrivacyMasks = []*ingestv1.PrivacyMask{{Points: []*ingestv1.Point{{X: 0, Y: 0}, {X: 0.5, Y: 0}, {X: 0.5, Y: 0.5}, {X: 0, Y: 0.5}}}}
		}, ingestv1.Applied_APPLIED_RESEQUENCED},
		{"what does not concern ingest is hot", func() { door.Version = "2" }, ingestv1.Applied_APPLIED_HOT},
		{"other credentials reconnect", func() { door.Username = "x" }, ingestv1.Applied_APPLIED_RECONNECTED},
		{"other slots take its place", func() { door.Slots = 4 }, ingestv1.Applied_APPLIED_RECONNECTED},
	} {
		_, before, _ := cam.Sessions()
		c.change()
		r.set(door)
		next(t, r.status, c.name, func(s *ingestv1.CameraStatus) bool {
			if c.want == ingestv1.Applied_APPLIED_RECONNECTED { // told before the old session ends
				if _, after, _ := cam.Sessions(); after == before {
					return false
				}
			}
			return s.GetApplied() == c.want && s.GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING
		})
		if _, after, most := cam.Sessions(); (after != before) != (c.want == ingestv1.Applied_APPLIED_RECONNECTED) || most != 1 {
			t.Errorf("%s: sessions went from %d to %d, %d at once", c.name, before, after, most)
		}
		// What another camera's change costs is told of that one.
		r.client.SetCameras(&ingestv1.SetCameras{Revision: 2, Cameras: []*ingestv1.Camera{door, {Name: "other", Address: cam.Address(), Disabled: true}}})
		told := 0
		next(t, r.status, "the next list", func(s *ingestv1.CameraStatus) bool {
			if s.GetCamera() != "door" || s.GetRevision() != 2 {
				return false
			}
			if told++; s.GetApplied() != c.want {
				t.Errorf("%s: %v after a list that changes nothing", c.name, s.GetApplied())
			}
			return told == 3
		})
	}
	// Masked pixels are black in the newest frames.
	f := next(t, r.frames, "masked frame", func(f ingestclient.Frame) bool {
		v, err := r.view(f)
		defer f.Release()
		return err == nil && v.Pixels[0] == 16 && v.Pixels[31*64+31] == 16 && v.Check() == nil
	})
	_ = f
	door.Disabled = true
	r.set(door)
	r.state("door", ingestv1.CameraState_CAMERA_STATE_DISABLED)
	next(t, r.counts, "session to end", func(*ingestv1.Counters) bool { open, _, _ := cam.Sessions(); return open == 0 })
	door.Disabled = false
	r.set(door)
	r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)
}
