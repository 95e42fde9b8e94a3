package sidecar_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/rtp"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

func TestFramesAreTaintedFromALossToTheNextKeyframe(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 320, Height: 240, Frames: 50, GOP: 25})
	var lose atomic.Bool
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, Packet: func(p *rtp.Packet) []*rtp.Packet {
		if p.Marker && lose.CompareAndSwap(true, false) {
			return nil // the end of a picture
		}
		return []*rtp.Packet{p}
	}})
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	next(t, r.frames, "keyframe", func(f ingestclient.Frame) bool { f.Release(); return f.GetKeyframe() })
	for range 3 {
		r.frame().Release()
	}
	lose.Store(true)
	next(t, r.frames, "tainted frame", func(f ingestclient.Frame) bool { f.Release(); return f.GetTainted() })
	for {
		f := r.frame()
		f.Release()
		if f.GetKeyframe() {
			if f.GetTainted() {
				t.Error("the keyframe is tainted by what came before it")
			}
			break
		}
		if !f.GetTainted() {
			t.Fatalf("frame %d is whole between a loss and a keyframe", f.GetNumber())
		}
	}
	next(t, r.counts, "counted loss", func(c *ingestv1.Counters) bool { return c.GetPacketsLost() > 0 && c.GetFramesTainted() > 0 })
}

func TestAJumpOfRTPTimeOpensAnEpochAndAWrapDoesNot(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	var shift atomic.Uint32
	shift.Store(^uint32(0) - 1000 - 90000) // wraps within the first second
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, NoReports: true, Packet: func(p *rtp.Packet) []*rtp.Packet {
		p.Timestamp += shift.Load()
		return []*rtp.Packet{p}
	}})
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	first := r.frame()
	first.Release()
	for range 50 {
		f := r.frame()
		f.Release()
		if f.GetStreamEpoch() != first.GetStreamEpoch() {
			t.Fatal("a wrap of RTP time opened an epoch")
		}
	}
	shift.Add(90000 * 3600)
	next(t, r.frames, "frame of a new epoch", func(f ingestclient.Frame) bool {
		f.Release()
		return f.GetStreamEpoch() != first.GetStreamEpoch()
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.opens[len(r.opens)-1]; o.GetReason() != ingestv1.EpochReason_EPOCH_REASON_CLOCK_ANCHORED {
		t.Errorf("reason %v", o.GetReason())
	}
	if _, all, _ := cam.Sessions(); all != 1 {
		t.Errorf("%d sessions", all)
	}
}

func TestAStreamWithoutItsParameterSetsSaysSo(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	clip.Sets = [][]byte{nil, nil} // of the SDP
	for i, u := range clip.Units {
		clip.Units[i].NALUs = slices.DeleteFunc(u.NALUs, func(n []byte) bool { return n[0]&0x1F == 7 || n[0]&0x1F == 8 })
	}
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	deadlines := quick()
	deadlines.FirstFrame = 300 * time.Millisecond
	r := start(t, sidecar.Config{Deadlines: deadlines})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	s := next(t, r.status, "the failure", func(s *ingestv1.CameraStatus) bool {
		return s.GetError().GetReason() == ingestv1.ErrorReason_ERROR_REASON_DECODE
	})
	if !strings.Contains(s.GetError().GetMessage(), "SPS") {
		t.Errorf("got %v", s.GetError())
	}
}
