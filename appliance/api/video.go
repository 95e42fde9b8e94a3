package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/video"
	"github.com/vedette/vedette/store"
)

// errMasked refuses coded pictures that would show what privacy masks hide.
func errMasked() error {
	return &ReasonError{
		Code: codes.FailedPrecondition, Reason: "MASKED",
		Message: "this camera has privacy masks, which its coded video does not show: there are only masked pictures of it",
		Hint:    "use snapshots or MJPEG; an operator may watch the unmasked video, which is audited",
	}
}

func errDisabled() error {
	return &ReasonError{Code: codes.FailedPrecondition, Reason: "CAMERA_DISABLED", Message: "the camera is disabled", Hint: "enable it first"}
}

// WatchVideo implements vedettev1.CameraServiceServer.
func (s *cameraService) WatchVideo(req *vedettev1.WatchVideoRequest, out vedettev1.CameraService_WatchVideoServer) error {
	return s.watchVideo(out.Context(), req.GetName(), req.GetStream(), false, func(d *vedettev1.VideoDescription, u *vedettev1.VideoUnit) error {
		if d != nil {
			return out.Send(&vedettev1.WatchVideoResponse{Item: &vedettev1.WatchVideoResponse_Description{Description: d}})
		}
		return out.Send(&vedettev1.WatchVideoResponse{Item: &vedettev1.WatchVideoResponse_Unit{Unit: u}})
	})
}

// WatchUnmaskedVideo implements vedettev1.CameraServiceServer.
func (s *cameraService) WatchUnmaskedVideo(req *vedettev1.WatchUnmaskedVideoRequest, out vedettev1.CameraService_WatchUnmaskedVideoServer) error {
	camera, err := s.cfg.Cameras.Get(req.GetName())
	if err != nil {
		return err
	}
	who, err := s.gate.access(out.Context())
	if err != nil {
		return err
	}
	detail, _ := json.Marshal(auditDetail{Peer: peerOf(out.Context())}) // strings alone
	err = s.cfg.Store.Audit(out.Context(), store.AuditEntry{
		Actor: who.Actor, Action: "WatchUnmaskedVideo", Resource: camera.GetName(), Outcome: "OK", Detail: detail,
	})
	if err != nil {
		return fmt.Errorf("look at unmasked video: %w", err) // what cannot be audited does not happen
	}
	return s.watchVideo(out.Context(), req.GetName(), req.GetStream(), true, func(d *vedettev1.VideoDescription, u *vedettev1.VideoUnit) error {
		if d != nil {
			return out.Send(&vedettev1.WatchUnmaskedVideoResponse{Item: &vedettev1.WatchUnmaskedVideoResponse_Description{Description: d}})
		}
		return out.Send(&vedettev1.WatchUnmaskedVideoResponse{Item: &vedettev1.WatchUnmaskedVideoResponse_Unit{Unit: u}})
	})
}

func (s *cameraService) watchVideo(
	ctx context.Context, name string, stream vedettev1.VideoStream, unmasked bool, send func(*vedettev1.VideoDescription, *vedettev1.VideoUnit) error,
) error {
	camera, err := s.cfg.Cameras.Get(name)
	if err != nil {
		return err
	}
	id, err := cameras.ID(name)
	if err != nil {
		return err
	}
	if s.cfg.Video == nil {
		return &ReasonError{Code: codes.Unimplemented, Reason: "NO_VIDEO", Message: "this appliance gives no video"}
	}
	main := camera.GetSource().GetMainUri() != "" && stream != vedettev1.VideoStream_VIDEO_STREAM_ANALYSIS
	switch {
	case vedettev1.VideoStream_name[int32(stream)] == "":
		return invalid("stream", "%d is no such stream", stream)
	case stream == vedettev1.VideoStream_VIDEO_STREAM_MAIN && !main:
		return &ReasonError{Code: codes.FailedPrecondition, Reason: "NO_MAIN_STREAM", Message: "this camera has no main_uri", Hint: "set source.main_uri, or ask for the analysis stream"}
	case camera.GetDesiredState() == vedettev1.DesiredState_DESIRED_STATE_DISABLED:
		return errDisabled()
	case len(camera.GetPrivacyMasks()) > 0 && !unmasked:
		return errMasked()
	}
	ctx, cancel := until(ctx, s.stopping)
	defer cancel()
	err = s.cfg.Video.Watch(ctx, id, main, func(d *ingestv1.StreamDescription, u *ingestv1.AccessUnit) error {
		if d.GetMasked() && !unmasked {
			return errMasked() // since the beginning
		}
		if d != nil {
			if err := send(videoDescription(d), nil); err != nil {
				return err
			}
		}
		return send(nil, &vedettev1.VideoUnit{
			Units: u.GetUnits(), Keyframe: u.GetKeyframe(), RtpTicks: u.GetRtpTicks(), CaptureTime: timestamppb.New(time.Unix(0, u.GetCaptureTimeNs())),
			Discontinuity: u.GetDiscontinuity(), Number: int64(u.GetNumber()),
		})
	})
	if errors.Is(err, video.ErrRemoved) {
		return &ReasonError{Code: codes.NotFound, Reason: "CAMERA_REMOVED", Message: err.Error()}
	}
	return err
}

func videoDescription(d *ingestv1.StreamDescription) *vedettev1.VideoDescription {
	return &vedettev1.VideoDescription{
		StreamEpoch: d.GetStreamEpoch(), Codec: strings.TrimPrefix(d.GetCodec().String(), "CODEC_"), Width: int32(d.GetWidth()), Height: int32(d.GetHeight()),
		ParameterSets: d.GetParameterSets(), Masked: d.GetMasked(),
	}
}
