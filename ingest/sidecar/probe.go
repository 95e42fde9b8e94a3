package sidecar

import (
	"context"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/probe"
	"github.com/vedette/vedette/ingest/wire"
)

// probe answers one GetProbe.
func (c *conn) probe(ctx context.Context, m *ingestv1.GetProbe) {
	want := wire.Camera(m.GetCamera())
	want.Loop, want.FullSpeed = false, false
	d := c.s.cfg.Deadlines
	r := probe.Run(ctx, probe.Config{
		Source: c.s.source(want, d, nil), Transport: want.Transport, Watch: time.Duration(m.GetWatchNs()), FirstFrame: d.FirstKeyframe + d.FirstFrame,
		Decoders: want.Decoders, Open: c.s.cfg.Engine, Hung: d.Frames,
	})
	answer := &ingestv1.Probe{RequestId: m.GetRequestId(), Stage: ingestv1.Stage(r.Stage), Jpeg: r.Picture, FirstFrameNs: int64(r.FirstFrame)}
	if r.Err != nil {
		answer.Error = wire.Fault(r.Err)
	} else {
		answer.Stream = details(r.Stream)
		answer.Stream.Decoder, answer.Stream.DecoderFallback = r.Decoder, r.Fallback
		answer.Stream.Rate, answer.Stream.BitRate, answer.Stream.Gop = r.Rate, r.BitRate, wire.Side(r.GOP)
		answer.Stream.SenderReports, answer.Stream.ClockOffsetNs = r.Reports, int64(r.ClockOffset)
	}
	for _, w := range r.Warnings {
		answer.Warnings = append(answer.Warnings, &ingestv1.ProbeWarning{Kind: ingestv1.ProbeWarningKind(w.Kind), Message: w.Message})
	}
	c.out.put(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_Probe{Probe: answer}}, nil)
}
