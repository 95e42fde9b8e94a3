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
	"github.com/vedette/vedette/ingest/decode"
	"github.com/vedette/vedette/ingest/probe"
	"github.com/vedette/vedette/internal/av"
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
	http  bool          // there cannot be any
	err   error         // instead of everything
}

func (s script) Run(ctx context.Context, sink ingest.Sink) error {
	if s.err != nil {
		return s.err
	}
	for st := ingest.StageDial; st <= ingest.StageFirstPacket; st++ {
		sink.Reached(st)
	}
	codec := ingest.H264
	if s.clip.Codec == "h265" {
		codec = ingest.H265
	}
	sink.Stream(ingest.Stream{Codec: codec, Live: true, RTCP: !s.http, Width: s.clip.Width, Height: s.clip.Height})
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
		// What waits for longer than this would be dropped as late.
		if i == 10 {
			select {
			case <-sink.(interface{ First() <-chan struct{} }).First():
			case <-ctx.Done():
			}
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
	h265 := rtsptest.Render(t, rtsptest.ClipConfig{Codec: "h265", Width: 64, Height: 48, Frames: 50, GOP: 25})
	large := rtsptest.Render(t, rtsptest.ClipConfig{Width: 2560, Height: 1440, Frames: 20, GOP: 10})
	smart := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, Frames: 75, GOP: 25})
	smart.GOP = 50
	smart.Units = slices.Concat(smart.Units, good.Units[:25], rtsptest.Render(t, smart.ClipConfig).Units)
	for i := range smart.Units {
		smart.Units[i].PTS = int64(i) * 3600
	}
	for _, c := range []struct {
		name   string
		source script
		want   []probe.Kind
	}{
		{"a good camera", script{clip: good}, nil},
		{"a good camera without RTCP", script{clip: good, mute: true, http: true}, nil},
		{"keyframes six seconds apart", script{clip: long}, []probe.Kind{probe.LongGOP}},
		{"no sender reports", script{clip: good, mute: true}, []probe.Kind{probe.NoSenderReports}},
		{"a clock three hours ahead", script{clip: good, clock: 3 * time.Hour}, []probe.Kind{probe.ClockOffset}},
		{"packets lost", script{clip: good, lost: 7}, []probe.Kind{probe.PacketLoss}},
		{"pictures out of order", script{clip: reordered}, []probe.Kind{probe.BFrames}},
		{"smart coding", script{clip: smart}, []probe.Kind{probe.VariableGOP}},
		{"a main stream", script{clip: large}, []probe.Kind{probe.LargeFrame}},
		{"H.265 without an accelerator", script{clip: h265}, []probe.Kind{probe.H265Software}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := probe.Run(t.Context(), probe.Config{Source: c.source, Watch: time.Second})
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if got := kinds(r); !slices.Equal(got, c.want) {
				t.Errorf("warnings %v", r.Warnings)
			}
			if r.Rate < 24.5 || r.Rate > 25.5 || r.GOP != c.source.clip.GOP || r.BitRate <= 0 || r.FirstFrame <= 0 {
				t.Errorf("%+v", r)
			}
			if img, err := jpeg.Decode(bytes.NewReader(r.Picture)); err != nil || img.Bounds().Dx() != min(c.source.clip.Width, 1280) {
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
	r = probe.Run(t.Context(), probe.Config{Source: script{clip: clip, keep: func(i int) bool { return i > 0 }}, FirstFrame: time.Second})
	if r.Err == nil || r.Err.Reason != ingest.ReasonStalled || r.Stage != ingest.StageFirstKeyframe || len(r.Picture) > 0 {
		t.Errorf("no keyframe: %+v", r)
	}
}

// hung is a decoder that hangs until it is let go.
type hung struct {
	decode.Engine
	on chan struct{}
}

func (h hung) Send([]byte, int64) error { <-h.on; return errors.New("the driver was reset") }

func TestAProbeUsesTheDecodersOfTheCamera(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Codec: "h265", Width: 64, Height: 48, Frames: 50, GOP: 25})
	open := func(name string, cfg av.DecoderConfig) (decode.Engine, error) {
		if name == "absent" {
			return nil, errors.New("no such device")
		}
		return av.NewDecoder(cfg)
	}
	for _, c := range []struct {
		decoders          []string
		decoder, fallback string
		want              []probe.Kind
	}{
		{[]string{"accelerator", decode.Software}, "accelerator", "", nil},
		{[]string{"absent", decode.Software}, decode.Software, "absent: no such device", []probe.Kind{probe.H265Software}},
	} {
		r := probe.Run(t.Context(), probe.Config{Source: script{clip: clip}, Watch: 100 * time.Millisecond, Decoders: c.decoders, Open: open})
		if r.Err != nil || r.Decoder != c.decoder || r.Fallback != c.fallback || !slices.Equal(kinds(r), c.want) {
			t.Errorf("%v: %+v", c.decoders, r)
		}
	}
	engine := hung{on: make(chan struct{})}
	t.Cleanup(func() { close(engine.on) })
	r := probe.Run(t.Context(), probe.Config{
		Source: script{clip: clip}, FirstFrame: 2 * time.Second, Hung: time.Millisecond,
		Open: func(_ string, cfg av.DecoderConfig) (decode.Engine, error) {
			var err error
			engine.Engine, err = av.NewDecoder(cfg)
			return engine, err
		},
	})
	if r.Err == nil || r.Err.Reason != ingest.ReasonStalled || r.Stage != ingest.StageFirstFrame {
		t.Errorf("a decoder that hangs: %+v", r)
	}
}
