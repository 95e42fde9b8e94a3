package sidecar_test

import (
	"testing"
	"time"

	"github.com/pion/rtp"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

// Relays send what they keep since the last keyframe at once, so that a viewer sees something.
func TestPicturesOfABurstAreTakenWhenTheyWere(t *testing.T) {
	const kept = 40
	var held []*rtp.Packet
	pictures := 0
	cam := rtsptest.Start(t, rtsptest.Config{
		Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, Frames: 50, GOP: 50}), NoReports: true,
		Packet: func(p *rtp.Packet) []*rtp.Packet {
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
		},
	})
	r := start(t, sidecar.Config{LeaseTime: time.Minute})
	r.client.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: "door"})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	var last *ingestv1.AccessUnit
	epoch := ""
	for i := range 60 {
		u := next(t, r.units, "access unit", nil)
		if i == 0 {
			epoch = u.GetStreamEpoch()
			// It was kept for 39 pictures of 40 ms.
			if age := time.Duration(u.GetReceiveTimeNs() - u.GetCaptureTimeNs()); age < 1400*time.Millisecond || age > 10*time.Second {
				t.Errorf("the first picture was received %v after it was taken", age)
			}
		} else if step := time.Duration(u.GetCaptureTimeNs() - last.GetCaptureTimeNs()); step < 20*time.Millisecond || step > 60*time.Millisecond {
			t.Errorf("picture %d was taken %v after the one before it", i, step)
		}
		if last = u; u.GetStreamEpoch() != epoch {
			t.Errorf("picture %d is of another epoch", i)
		}
	}
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
