// Package wire translates between what the ingest packages say and what travels on their socket.
package wire

import (
	"math"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
)

// Camera reads a desired camera. Its faults are for ingest.Camera.Check.
func Camera(m *ingestv1.Camera) ingest.Camera {
	c := ingest.Camera{
		MainAddress: m.GetMainAddress(), KeepMain: m.GetKeepMain(),
		Name: m.GetName(), Address: m.GetAddress(), Username: m.GetUsername(), Password: m.GetPassword(),
		Transport: ingest.Transport(m.GetTransport()), AnalysisRate: m.GetAnalysisRate(), Disabled: m.GetDisabled(),
		Slots: int(m.GetSlots()), CA: m.GetTls().GetCaPem(), CertificateSHA256: m.GetTls().GetCertificateSha256(),
		Masks: masks(m.GetPrivacyMasks()), FullSpeed: m.GetFile().GetFullSpeed(), Loop: m.GetFile().GetLoop(),
		Isolated: m.GetIsolation() == ingestv1.Isolation_ISOLATION_CAMERA, PreRollBytes: m.GetPreRollBytes(), Decoders: m.GetDecoders(), Asked: m.GetAsked(), Version: m.GetVersion(),
	}
	if ns := m.GetFile().GetStartTimeNs(); ns != 0 {
		c.StartTime = time.Unix(0, ns)
	}
	if g := m.GetMotionGate(); g != nil {
		c.Gate = &ingest.Gate{
			Threshold: g.GetThreshold(), Hold: time.Duration(g.GetHoldNs()), Recheck: time.Duration(g.GetRecheckNs()), Ignore: masks(g.GetIgnore()),
		}
	}
	return c
}

func masks(ms []*ingestv1.PrivacyMask) []ingest.Mask {
	var out []ingest.Mask
	for _, m := range ms {
		var mask ingest.Mask
		for _, p := range m.GetPoints() {
			mask = append(mask, ingest.Point{X: p.GetX(), Y: p.GetY()})
		}
		out = append(out, mask)
	}
	return out
}

// Fault writes a typed fault; nil stays nil.
func Fault(err error) *ingestv1.Error {
	e := ingest.AsError(err)
	if e == nil {
		return nil
	}
	return &ingestv1.Error{Reason: ingestv1.ErrorReason(e.Reason), Message: e.Err.Error(), Hint: e.Reason.Hint()}
}

// Frame fills a notice with what is known of a frame.
func Frame(n *ingestv1.FrameNotice, f ingest.Frame) {
	n.StreamEpoch = f.Epoch.ID
	n.Number = f.Number
	n.CaptureTimeNs = f.Capture.UnixNano()
	n.CaptureQuality = ingestv1.TimeQuality(f.Quality)
	n.ReceiveTimeNs = f.Received.Wall.UnixNano()
	n.ReceiveMonotonicNs = int64(f.Received.Mono)
	n.DecodedMonotonicNs = int64(f.Decoded)
	n.RtpTicks = int64(f.Ticks)
	n.Format = ingestv1.PixelFormat_PIXEL_FORMAT_I420
	n.Width, n.Height = Side(f.Size.X), Side(f.Size.Y)
	n.Keyframe, n.Tainted, n.GateRecheck, n.Held = f.Keyframe, f.Tainted, f.Recheck, f.Held
	n.Flags = uint32(f.Flags())
}

// Side writes a width or height.
func Side(v int) uint32 { return uint32(max(0, min(v, math.MaxInt32))) }

// Time writes a time; the zero time is 0.
func Time(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
