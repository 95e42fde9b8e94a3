package appliance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/pipeline"
)

// Here what an operator registered becomes what the sidecars are told, and what they say becomes what an operator
// reads.

// wanted translates the register of cameras.
func wanted(desired []cameras.Desired) []pipeline.Camera {
	list := make([]pipeline.Camera, len(desired))
	for i, d := range desired {
		a := d.Camera.GetAnalysis()
		c := pipeline.Camera{Ingest: ingestSource(d.ID, d.Camera.GetSource(), d.Password), UID: d.UID, Analysing: pipeline.Analysing{
			Pipeline: a.GetPipeline(), Paused: a.GetPaused(), EveryFrame: a.GetEveryFrame(), Staleness: a.GetStalenessBudget().AsDuration(),
			NoPictures: d.Camera.GetRecording().GetNoPictures(), Clip: d.Camera.GetRecording().GetClip().AsDuration(),
			Priority: priority(a.GetPriority()),
		}, Since: d.Camera.GetCreateTime().AsTime()}
		c.Ingest.MotionGate = motionGate(a.GetMotionGate())
		c.Ingest.AnalysisRate, c.Ingest.Disabled, c.Ingest.Asked, c.Ingest.Version = a.GetFps(), !d.Enabled, d.Asked, d.Camera.GetEtag()
		if around := d.Camera.GetRecording().GetClip().AsDuration(); around > 0 {
			c.Ingest.PreRollBytes = max(standardPreRoll, int64(around.Seconds()*clipRate))
		}
		c.Ingest.PrivacyMasks = areas(d.Camera.GetPrivacyMasks())
		if a.GetEveryFrame() {
			c.Ingest.Slots = everyFrameSlots
		}
		if strings.HasPrefix(c.Ingest.GetAddress(), "file:") {
			c.Ingest.File = &ingestv1.FilePlayback{FullSpeed: a.GetEveryFrame(), Loop: d.Camera.GetSource().GetLoop()}
		}
		list[i] = c
	}
	return list
}

// clipRate, in bytes a second, is what pre-roll is kept for when clips are: 10 Mbit/s. standardPreRoll is what ingest
// keeps without being told.
const (
	clipRate        = 10e6 / 8
	standardPreRoll = 8 << 20
)

// priority orders cameras around the normal ones, at 0.
func priority(p vedettev1.Priority) int {
	switch p {
	case vedettev1.Priority_PRIORITY_LOW:
		return -1
	case vedettev1.Priority_PRIORITY_HIGH:
		return 1
	default:
		return 0
	}
}

func motionGate(g *vedettev1.MotionGate) *ingestv1.MotionGate {
	if g == nil {
		return nil
	}
	return &ingestv1.MotionGate{
		Threshold: g.GetThreshold(), HoldNs: int64(g.GetHold().AsDuration()), RecheckNs: int64(g.GetRecheck().AsDuration()),
		Ignore: areas(g.GetIgnore()),
	}
}

func areas(masks []*vedettev1.PrivacyMask) []*ingestv1.PrivacyMask {
	var list []*ingestv1.PrivacyMask
	for _, m := range masks {
		area := &ingestv1.PrivacyMask{}
		for _, p := range m.GetPoints() {
			area.Points = append(area.Points, &ingestv1.Point{X: p.GetX(), Y: p.GetY()})
		}
		list = append(list, area)
	}
	return list
}

// everyFrameSlots lets four frames be in flight while others wait and one is written.
const everyFrameSlots = 12

func ingestSource(name string, s *vedettev1.Source, password string) *ingestv1.Camera {
	c := &ingestv1.Camera{
		Name: name, Address: s.GetUri(), MainAddress: s.GetMainUri(), KeepMain: s.GetKeepMain(), Username: s.GetUsername(), Password: password,
		PreRollBytes: s.GetPreRollBytes(),
	}
	if t := s.GetTls(); t != nil {
		c.Tls = &ingestv1.Tls{CaPem: t.GetCaPem(), CertificateSha256: t.GetCertificateSha256()}
	}
	switch s.GetTransport() {
	case vedettev1.Transport_TRANSPORT_TCP:
		c.Transport = ingestv1.Transport_TRANSPORT_TCP
	case vedettev1.Transport_TRANSPORT_UDP:
		c.Transport = ingestv1.Transport_TRANSPORT_UDP
	case vedettev1.Transport_TRANSPORT_MULTICAST:
		c.Transport = ingestv1.Transport_TRANSPORT_MULTICAST
	case vedettev1.Transport_TRANSPORT_UNSPECIFIED:
	}
	if s.GetIsolation() == vedettev1.Isolation_ISOLATION_CAMERA {
		c.Isolation = ingestv1.Isolation_ISOLATION_CAMERA
	}
	c.Decoders = s.GetDecoders()
	return c
}

// observer keeps what the pipeline reports in the register.
type observer struct {
	cameras *cameras.Registry
	kids    *sidecars // nil: somebody else runs them
}

func (o *observer) Online() { o.cameras.SetOnline() }

func (o *observer) Upgrading() { o.cameras.SetUpgrading() }

func (o *observer) Silent() { o.cameras.SetSilent() }

func (o *observer) Offline() { o.cameras.ClearStreams() }

func (o *observer) Analysis(camera string, a pipeline.Analysis) {
	if a.Reason == "INFERENCE_UNAVAILABLE" && o.kids != nil {
		// That there is no connection is the symptom; why the child ended is the fault to mend.
		if ended := o.kids.infer.Status().Reason; ended != "" {
			a.Message += "; vedette-infer ended: " + ended
		}
	}
	o.cameras.SetAnalysis(camera, cameras.Analysis{
		Sequence: a.Sequence, Frames: a.Frames, Drops: a.Drops, FPS: a.Rate, LastFrame: a.LastFrame, Reason: a.Reason, Message: a.Message,
		LimitedFPS: a.Limited,
	})
}

func (o *observer) Stream(camera string, s *ingestv1.CameraStatus, n *ingestv1.Counters) {
	v := &vedettev1.CameraStatus{
		State: cameraState(s.GetState()), StreamEpoch: s.GetStreamEpoch(), SinceTime: nanoseconds(s.GetSinceTimeNs()),
		NextRetryTime: nanoseconds(s.GetNextAttemptTimeNs()),
	}
	if d := s.GetStream(); d != nil {
		v.Media, v.ReceivedFps, v.Ingest = media(d), d.GetRate(), inward(d)
		v.Ingest.Gate = word(s.GetGate(), "GATE_STATE_")
	}
	if e := s.GetError(); e != nil {
		v.Reason, v.Message = reason(e), withHint(e)
	}
	if v.Ingest == nil {
		v.Ingest = &vedettev1.IngestStatus{}
	}
	v.Ingest.Isolated, v.Ingest.IsolationReason, v.Ingest.Attempts = s.GetIsolated(), s.GetIsolationReason(), int32(s.GetAttempts())
	v.Ingest.Applied, v.Ingest.Reconnects, v.Ingest.PacketsLost = word(s.GetApplied(), "APPLIED_"), int64(n.GetReconnects()), int64(n.GetPacketsLost())
	v.Ingest.DecodeErrors, v.Ingest.FramesGated = int64(n.GetDecodeErrors()), int64(n.GetFramesGated())
	v.Ingest.DecoderFallbacks, v.Ingest.DecodersAbandoned = int64(n.GetDecoderFallbacks()), int64(n.GetDecodersAbandoned())
	if s.GetState() == ingestv1.CameraState_CAMERA_STATE_FINISHED {
		v.Reason, v.Message = "FINISHED", "the file has been read to its end"
	}
	if m := s.GetMain(); m != nil {
		v.Main = &vedettev1.MainStream{State: cameraState(m.GetState())}
		if d := m.GetStream(); d != nil {
			v.Main.Media = media(d)
		}
		if e := m.GetError(); e != nil {
			v.Main.Reason, v.Main.Message = reason(e), withHint(e)
		}
	}
	o.cameras.SetStream(camera, v)
}

// inward writes what was measured of a stream.
func inward(d *ingestv1.StreamDetails) *vedettev1.IngestStatus {
	s := &vedettev1.IngestStatus{
		Transport: word(d.GetTransport(), "TRANSPORT_"), Decoder: d.GetDecoder(), DecoderFallback: d.GetDecoderFallback(),
		Gop: int32(d.GetGop()), BitRate: d.GetBitRate(), SenderReports: d.GetSenderReports(),
	}
	if d.GetSenderReports() {
		s.ClockOffset = durationpb.New(time.Duration(d.GetClockOffsetNs()))
	}
	return s
}

// word is an enum value as people read it; empty when unspecified.
func word(v interface {
	fmt.Stringer
	Number() protoreflect.EnumNumber
}, prefix string,
) string {
	if v.Number() == 0 {
		return ""
	}
	return strings.TrimPrefix(v.String(), prefix)
}

func cameraState(s ingestv1.CameraState) vedettev1.CameraState {
	switch s {
	case ingestv1.CameraState_CAMERA_STATE_CONNECTING:
		return vedettev1.CameraState_CAMERA_STATE_CONNECTING
	case ingestv1.CameraState_CAMERA_STATE_STREAMING:
		return vedettev1.CameraState_CAMERA_STATE_STREAMING
	case ingestv1.CameraState_CAMERA_STATE_STALLED:
		return vedettev1.CameraState_CAMERA_STATE_STALLED
	case ingestv1.CameraState_CAMERA_STATE_BACKOFF:
		return vedettev1.CameraState_CAMERA_STATE_BACKOFF
	case ingestv1.CameraState_CAMERA_STATE_QUARANTINED:
		return vedettev1.CameraState_CAMERA_STATE_QUARANTINED
	case ingestv1.CameraState_CAMERA_STATE_DISABLED, ingestv1.CameraState_CAMERA_STATE_FINISHED:
		return vedettev1.CameraState_CAMERA_STATE_DISABLED
	case ingestv1.CameraState_CAMERA_STATE_UNSPECIFIED:
	}
	return vedettev1.CameraState_CAMERA_STATE_UNSPECIFIED
}

func media(d *ingestv1.StreamDetails) *vedettev1.Media {
	return &vedettev1.Media{
		Codec: strings.TrimPrefix(d.GetCodec().String(), "CODEC_"), Width: int32(d.GetWidth()), Height: int32(d.GetHeight()), Fps: d.GetRate(),
	}
}

func reason(e *ingestv1.Error) string {
	return strings.TrimPrefix(e.GetReason().String(), "ERROR_REASON_")
}

func withHint(e *ingestv1.Error) string {
	if e.GetHint() == "" {
		return e.GetMessage()
	}
	return e.GetMessage() + " (" + e.GetHint() + ")"
}

func nanoseconds(ns int64) *timestamppb.Timestamp {
	if ns == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, ns))
}

// pictures answers the API from the ingest sidecar.
type pictures struct{ pipe *pipeline.Pipeline }

const (
	pictureTimeout = 5 * time.Second
	probeTimeout   = 45 * time.Second // longer than ingest waits, so that its reason arrives
)

func (p *pictures) Picture(ctx context.Context, req api.PictureRequest) (*vedettev1.GetSnapshotResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, pictureTimeout)
	defer cancel()
	pic, err := p.pipe.Picture(ctx, &ingestv1.GetPicture{
		Source: &ingestv1.GetPicture_Camera{Camera: req.Camera}, Main: req.Main, MaxWidth: uint32(req.MaxWidth), Quality: uint32(req.Quality),
	})
	if err != nil {
		return nil, ingestFault("get a picture of camera "+req.Camera, err)
	}
	return &vedettev1.GetSnapshotResponse{
		Jpeg: pic.GetJpeg(), CaptureTime: nanoseconds(pic.GetCaptureTimeNs()), Width: int32(pic.GetWidth()), Height: int32(pic.GetHeight()),
		StreamEpoch: pic.GetStreamEpoch(), Frame: int64(pic.GetNumber()),
	}, nil
}

func (p *pictures) Probe(ctx context.Context, s *vedettev1.Source) (*vedettev1.ProbeCameraResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	probe, err := p.pipe.Probe(ctx, ingestSource("probe", s, s.GetPassword()))
	if err != nil {
		return nil, ingestFault("probe the camera", err)
	}
	if e := probe.GetError(); e != nil {
		return nil, &api.ReasonError{Code: probeCode(e.GetReason()), Reason: reason(e), Message: e.GetMessage(), Hint: e.GetHint()}
	}
	r := &vedettev1.ProbeCameraResponse{
		Media: media(probe.GetStream()), Duration: durationpb.New(time.Duration(probe.GetFirstFrameNs())), Ingest: inward(probe.GetStream()), Jpeg: probe.GetJpeg(),
	}
	for _, w := range probe.GetWarnings() {
		r.Warnings = append(r.Warnings, &vedettev1.ProbeWarning{Kind: word(w.GetKind(), "PROBE_WARNING_KIND_"), Message: w.GetMessage()})
	}
	return r, nil
}

// DumpPackets is part of api.Pictures.
func (p *pictures) DumpPackets(ctx context.Context, camera string, d time.Duration, maxBytes int64, take func([]byte) error) error {
	err := p.pipe.DumpPackets(ctx, &ingestv1.DumpPackets{Camera: camera, DurationNs: int64(d), MaxBytes: maxBytes}, take)
	if err != nil {
		return ingestFault("dump packets of camera "+camera, err)
	}
	return nil
}

// probeCode tells faults of the request, which another try repeats, from faults that may pass.
func probeCode(r ingestv1.ErrorReason) codes.Code {
	switch r {
	case ingestv1.ErrorReason_ERROR_REASON_INVALID_CONFIG:
		return codes.InvalidArgument
	case ingestv1.ErrorReason_ERROR_REASON_AUTH_FAILED, ingestv1.ErrorReason_ERROR_REASON_NOT_FOUND, ingestv1.ErrorReason_ERROR_REASON_TLS_CERT,
		ingestv1.ErrorReason_ERROR_REASON_CODEC_UNSUPPORTED, ingestv1.ErrorReason_ERROR_REASON_PROTOCOL, ingestv1.ErrorReason_ERROR_REASON_TRANSPORT_REFUSED:
		return codes.FailedPrecondition
	default:
		return codes.Unavailable
	}
}

func ingestFault(what string, err error) error {
	switch {
	case errors.Is(err, pipeline.ErrUpgrading):
		return &api.ReasonError{Code: codes.Unavailable, Reason: "UPGRADING", Message: what + ": " + err.Error()}
	case errors.Is(err, pipeline.ErrIngestGone):
		return &api.ReasonError{Code: codes.Unavailable, Reason: "INGEST_UNAVAILABLE", Message: what + ": the ingest sidecar is not connected", Hint: "it is started again by itself; if this lasts, its log says why"}
	}
	// What the sidecar could not do comes as "REASON: text".
	if word, text, ok := strings.Cut(err.Error(), ": "); ok && word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "" {
		return &api.ReasonError{Code: codes.Unavailable, Reason: word, Message: what + ": " + text}
	}
	return fmt.Errorf("%s: %w", what, err)
}
