package probe_test

import (
	"bytes"
	"context"
	"errors"
	"image/jpeg"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/probe"
	"github.com/vedette/vedette/internal/rtsptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a source that delivers a clip as if time passed, at once.
type script struct {
	clip  *rtsptest.Clip
	keep  func(i int) bool // units delivered; nil: all
	lost  uint64
	clock time.Duration // the camera's clock minus the box's
	mute  bool          // no sender reports
	err   error         // instead of everything
}

func (s script) Run(ctx context.Context, sink ingest.Sink) error {
	if s.err != nil {
		return s.err
	}
	for st := ingest.StageDial; st <= ingest.StageFirstPacket; st++ {
		sink.Reached(st)
	}
	sink.Stream(ingest.Stream{Codec: ingest.H264, Live: true, Width: s.clip.Width, Height: s.clip.Height})
	start := ingest.Now()
	for i, u := range s.clip.Units {
		if s.keep != nil && !s.keep(i) {
			continue
		}
		var data []byte
		for _, n := range u.NALUs {
			data = append(append(data, 0, 0, 0, 1), n...)
		}
		d := time.Duration(i) * 40 * time.Millisecond
		at := ingest.Instant{Mono: start.Mono + d, Wall: start.Wall.Add(d)}
		sink.Packets(1, uint64(len(data)), 0, 0)
		sink.AccessUnit(ingest.AccessUnit{Data: data, Ticks: ingest.Ticks(u.PTS), Received: at, Keyframe: u.Key})
		if !s.mute && i%10 == 0 {
			sink.SenderReport(ingest.SenderReport{Ticks: ingest.TicksOf(d), NTP: at.Wall.Add(s.clock), Received: at})
		}
	}
	sink.Packets(0, 0, s.lost, 0)
	<-ctx.Done()
	return nil
}

func kinds(r probe.Result) []probe.Kind {
	var ks []probe.Kind
	for _, w := range r.Warnings {
		ks = append(ks, w.Kind)
	}
	return ks
}

func TestAProbeTellsWhatACameraDeliversAndWarns(t *testing.T) {
	good := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, Frames: 200, GOP: 25})
	long := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, Frames: 200, GOP: 150})
	reordered := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, Frames: 100, GOP: 25, BFrames: 2})
	for _, c := range []struct {
		name   string
		source script
		want   []probe.Kind
	}{
		{"a good camera", script{clip: good}, nil},
		{"keyframes six seconds apart", script{clip: long}, []probe.Kind{probe.LongGOP}},
		{"no sender reports", script{clip: good, mute: true}, []probe.Kind{probe.NoSenderReports}},
		{"a clock three hours ahead", script{clip: good, clock: 3 * time.Hour}, []probe.Kind{probe.ClockOffset}},
		{"packets lost", script{clip: good, lost: 7}, []probe.Kind{probe.PacketLoss}},
		{"pictures out of order", script{clip: reordered}, []probe.Kind{probe.BFrames}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := probe.Run(t.Context(), probe.Config{Source: c.source, Watch: 300 * time.Millisecond})
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if got := kinds(r); !slices.Equal(got, c.want) {
				t.Errorf("warnings %v", r.Warnings)
			}
			if r.Rate < 24.5 || r.Rate > 25.5 || r.GOP != c.source.clip.GOP || r.BitRate <= 0 || r.FirstFrame <= 0 {
				t.Errorf("%+v", r)
			}
			if img, err := jpeg.Decode(bytes.NewReader(r.Picture)); err != nil || img.Bounds().Dx() != 64 {
				t.Errorf("picture: %v", err)
			}
		})
	}
}

func TestAProbeOfNothingSaysWhereItEnded(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, Frames: 20, GOP: 20})
	fault := &ingest.Error{Reason: ingest.ReasonAuthFailed, Stage: ingest.StageDescribe, Err: errors.New("refused")}
	r := probe.Run(t.Context(), probe.Config{Source: script{err: fault}})
	if r.Err == nil || r.Err.Reason != ingest.ReasonAuthFailed || r.Stage != ingest.StageDescribe {
		t.Errorf("refused: %+v", r)
	}
	r = probe.Run(t.Context(), probe.Config{Source: script{clip: clip, keep: func(i int) bool { return i > 0 }}, FirstFrame: 300 * time.Millisecond})
	if r.Err == nil || r.Err.Reason != ingest.ReasonTimeout || r.Stage != ingest.StageFirstKeyframe || len(r.Picture) > 0 {
		t.Errorf("no keyframe: %+v", r)
	}
}
