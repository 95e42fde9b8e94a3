package sidecar_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/pion/rtp"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

// Relays send what they keep since the last keyframe at once, so that a viewer sees something.
func TestPicturesOfABurstAreTakenWhenTheyWere(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, Frames: 50, GOP: 5})
	why := ""
	for range 5 { // a machine that stands still for moments tears a burst apart
		if why = burst(t, clip); why == "" {
			return
		}
		t.Log(why)
	}
	t.Error("no burst was placed")
}

// burst plays a camera that sends its first 15 pictures at once, and returns what is wrong with their times.
func burst(t *testing.T, clip *rtsptest.Clip) string {
	t.Helper()
	const kept = 15
	var held []*rtp.Packet
	pictures := 0
	var playing atomic.Bool
	play := func(m base.Method, _ <-chan struct{}) *base.Response {
		playing.Store(playing.Load() || m == base.Play)
		return nil
	}
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, NoReports: true, Request: play, Packet: func(p *rtp.Packet) []*rtp.Packet {
		if !playing.Load() {
			return nil
		}
		held = append(held, p)
		if p.Marker {
			pictures++
		}
		if pictures < kept {
			return nil
		}
		now := held
		held = nil
		return now
	}})
	defer cam.Close()
	r := start(t, sidecar.Config{LeaseTime: time.Minute})
	r.client.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: "door"})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	last := next(t, r.units, "access unit", nil)
	// It was kept for 10 pictures of 40 ms or more.
	if age := time.Duration(last.GetReceiveTimeNs() - last.GetCaptureTimeNs()); age < 300*time.Millisecond {
		return fmt.Sprintf("the first picture was received %v after it was taken", age)
	}
	for i := range 60 {
		u := next(t, r.units, "access unit", nil)
		if step := time.Duration(u.GetCaptureTimeNs() - last.GetCaptureTimeNs()); step < 20*time.Millisecond || step > 60*time.Millisecond || u.GetStreamEpoch() != last.GetStreamEpoch() {
			return fmt.Sprintf("picture %d of epoch %s was taken %v after the one before it", i, u.GetStreamEpoch(), step)
		}
		last = u
	}
	return ""
}

func TestPicturesWhoseTimeStandsStillAreTakenWhenTheyCome(t *testing.T) {
	cam := rtsptest.Start(t, rtsptest.Config{
		Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, Frames: 50, GOP: 10}), NoReports: true,
		Packet: func(p *rtp.Packet) []*rtp.Packet { p.Timestamp = 12345; return []*rtp.Packet{p} },
	})
	r := start(t, sidecar.Config{LeaseTime: time.Minute})
	r.client.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: "door"})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	first := next(t, r.units, "access unit", nil)
	last := next(t, r.units, "access unit of the epoch in which arrival counts", func(u *ingestv1.AccessUnit) bool { return u.GetStreamEpoch() != first.GetStreamEpoch() })
	for range 25 {
		u := next(t, r.units, "access unit", nil)
		if u.GetStreamEpoch() != last.GetStreamEpoch() || u.GetCaptureTimeNs() > u.GetReceiveTimeNs() || u.GetReceiveTimeNs()-u.GetCaptureTimeNs() > 1e6 || u.GetCaptureTimeNs() <= last.GetCaptureTimeNs() || u.GetRtpTicks() <= last.GetRtpTicks() {
			t.Fatalf("after %v came %v", last, u)
		}
		last = u
	}
}
