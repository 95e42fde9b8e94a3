package api

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/onvif"
	"github.com/vedette/vedette/store"
)

// PictureRequest asks for the newest picture of a camera.
type PictureRequest struct {
	Camera   string // id
	MaxWidth int    // 0: as it is
	Quality  int    // 1 to 100; 0: the default
	Main     bool   // of the main stream, where there is one
}

type cameraService struct {
	vedettev1.UnimplementedCameraServiceServer
	cfg      *Config
	gate     *gate
	stopping context.Context //nolint:containedctx // ends the streams, whose life is that of the server

	admitting sync.Mutex // two cameras that are weighed at once would both fit where one does
}

func (s *cameraService) CreateCamera(ctx context.Context, req *vedettev1.CreateCameraRequest) (*vedettev1.Camera, error) {
	if req.GetCamera() == nil {
		return nil, invalid("camera", "missing")
	}
	return s.create(ctx, req.GetCameraId(), req.GetCamera(), req.GetValidateOnly(), req.GetAllowOverload())
}

func (s *cameraService) GetCamera(_ context.Context, req *vedettev1.GetCameraRequest) (*vedettev1.Camera, error) {
	return s.cfg.Cameras.Get(req.GetName())
}

func (s *cameraService) ListCameras(ctx context.Context, req *vedettev1.ListCamerasRequest) (*vedettev1.ListCamerasResponse, error) {
	size, err := pageSize(req.GetPageSize(), 50, 1000)
	if err != nil {
		return nil, err
	}
	after := ""
	if t := req.GetPageToken(); t != "" {
		b, err := base64.RawURLEncoding.DecodeString(t)
		id, ok := strings.CutPrefix(string(b), "after:")
		if err != nil || !ok {
			return nil, store.ErrPageToken
		}
		after = id
	}
	list, more := s.cfg.Cameras.List(after, size, cameras.Scope(ctx)...)
	resp := &vedettev1.ListCamerasResponse{Cameras: list}
	if more {
		last, err := cameras.ID(list[len(list)-1].GetName())
		if err != nil {
			return nil, err
		}
		resp.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte("after:" + last))
	}
	return resp, nil
}

func (s *cameraService) UpdateCamera(ctx context.Context, req *vedettev1.UpdateCameraRequest) (*vedettev1.Camera, error) {
	if req.GetCamera() == nil {
		return nil, invalid("camera", "missing")
	}
	c, err := s.update(ctx, req.GetCamera(), req.GetUpdateMask().GetPaths(), req.GetValidateOnly(), req.GetAllowOverload())
	if req.GetAllowMissing() && errors.Is(err, store.ErrNotFound) {
		id, err := cameras.ID(req.GetCamera().GetName())
		if err != nil {
			return nil, err
		}
		return s.create(ctx, id, req.GetCamera(), req.GetValidateOnly(), req.GetAllowOverload())
	}
	return c, err
}

func (s *cameraService) DeleteCamera(ctx context.Context, req *vedettev1.DeleteCameraRequest) (*vedettev1.DeleteCameraResponse, error) {
	if err := s.cfg.Cameras.Delete(ctx, req.GetName(), req.GetEtag(), req.GetValidateOnly()); err != nil {
		return nil, err
	}
	return &vedettev1.DeleteCameraResponse{}, nil
}

func (s *cameraService) EnableCamera(ctx context.Context, req *vedettev1.EnableCameraRequest) (*vedettev1.Camera, error) {
	c, err := s.setState(ctx, req.GetName(), vedettev1.DesiredState_DESIRED_STATE_ENABLED, req.GetAllowOverload())
	if err != nil {
		return nil, err
	}
	return c, s.cfg.Cameras.Ask(req.GetName())
}

func (s *cameraService) DisableCamera(ctx context.Context, req *vedettev1.DisableCameraRequest) (*vedettev1.Camera, error) {
	return s.setState(ctx, req.GetName(), vedettev1.DesiredState_DESIRED_STATE_DISABLED, true)
}

func (s *cameraService) setState(ctx context.Context, name string, state vedettev1.DesiredState, overload bool) (*vedettev1.Camera, error) {
	return s.update(ctx, &vedettev1.Camera{Name: name, DesiredState: state}, []string{"desired_state"}, false, overload)
}

func (s *cameraService) ProbeCamera(ctx context.Context, req *vedettev1.ProbeCameraRequest) (*vedettev1.ProbeCameraResponse, error) {
	if err := cameras.ValidateSource("source", req.GetSource()); err != nil {
		return nil, err
	}
	return s.cfg.Pictures.Probe(ctx, req.GetSource())
}

// Limits of a capture.
const (
	maxDump      = 10 * time.Minute
	maxDumpBytes = 1 << 30
	dumpPart     = 1 << 20 // fits a message
)

func (s *cameraService) DumpPackets(req *vedettev1.DumpPacketsRequest, out vedettev1.CameraService_DumpPacketsServer) error {
	c, err := s.cfg.Cameras.Get(req.GetName())
	if err != nil {
		return err
	}
	if d := req.GetDuration().AsDuration(); d < 0 || d > maxDump {
		return invalid("duration", "%s is not within 0 (10s) and %s", d, maxDump)
	}
	if n := req.GetMaxBytes(); n < 0 || n > maxDumpBytes {
		return invalid("max_bytes", "%d is not within 0 (64 MiB) and %d", n, maxDumpBytes)
	}
	switch uri := c.GetSource().GetUri(); {
	case !strings.HasPrefix(uri, "rtsp"):
		scheme, _, _ := strings.Cut(uri, ":")
		return &ReasonError{
			Code: codes.FailedPrecondition, Reason: "NO_PACKETS", Message: "packets are captured of rtsp: and rtsps: cameras alone; the address of this one begins with " + scheme + ":",
			Hint: "of a camera by HTTP the network's own tools capture (tcpdump port 80); a file or device has no packets",
		}
	case c.GetDesiredState() == vedettev1.DesiredState_DESIRED_STATE_DISABLED:
		return errDisabled()
	}
	id, err := cameras.ID(c.GetName())
	if err != nil {
		return err
	}
	return s.cfg.Pictures.DumpPackets(out.Context(), id, req.GetDuration().AsDuration(), req.GetMaxBytes(), func(b []byte) error {
		for part := range slices.Chunk(b, dumpPart) {
			if err := out.Send(&vedettev1.DumpPacketsResponse{Data: part}); err != nil {
				return err
			}
		}
		return nil
	})
}

// DiscoverCameras implements vedettev1.CameraServiceServer.
func (s *cameraService) DiscoverCameras(ctx context.Context, req *vedettev1.DiscoverCamerasRequest) (*vedettev1.DiscoverCamerasResponse, error) {
	timeout := req.GetTimeout().AsDuration()
	if timeout < 0 || timeout > 30*time.Second {
		return nil, invalid("timeout", "not within 0 (3 s) and 30s")
	}
	found, err := onvif.Discover(ctx, onvif.Config{Address: req.GetAddress(), Username: req.GetUsername(), Password: req.GetPassword(), Timeout: timeout})
	if err != nil {
		return nil, err
	}
	return &vedettev1.DiscoverCamerasResponse{Cameras: found}, nil
}

func (s *cameraService) GetSnapshot(ctx context.Context, req *vedettev1.GetSnapshotRequest) (*vedettev1.GetSnapshotResponse, error) {
	if _, err := s.cfg.Cameras.Get(req.GetName()); err != nil {
		return nil, err
	}
	id, err := cameras.ID(req.GetName())
	if err != nil {
		return nil, err
	}
	if w := req.GetMaxWidth(); w < 0 {
		return nil, invalid("max_width", "%d is negative", w)
	}
	if q := req.GetQuality(); q < 0 || q > 100 {
		return nil, invalid("quality", "%d is not within 0 (the standard one) and 100", q)
	}
	return s.cfg.Pictures.Picture(ctx, PictureRequest{Camera: id, MaxWidth: int(req.GetMaxWidth()), Quality: int(req.GetQuality()), Main: req.GetMain()})
}

func (s *cameraService) WatchCameras(req *vedettev1.WatchCamerasRequest, out vedettev1.CameraService_WatchCamerasServer) error {
	beat, err := heartbeatInterval(req.GetHeartbeatInterval())
	if err != nil {
		return err
	}
	w := s.cfg.Cameras.Watch()
	defer w.Close()
	ctx, cancel := until(out.Context(), s.stopping)
	defer cancel()
	for first := true; ; first = false {
		changes, err := nextWithin(ctx, beat, w.Next)
		switch {
		case errors.Is(err, errBeat):
			err = out.Send(&vedettev1.WatchCamerasResponse{Item: &vedettev1.WatchCamerasResponse_Heartbeat{
				Heartbeat: &vedettev1.Heartbeat{ServerTime: timestamppb.New(s.cfg.Now())},
			}})
			if err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		for _, c := range changes {
			if err := out.Send(&vedettev1.WatchCamerasResponse{Item: &vedettev1.WatchCamerasResponse_Change{Change: c}}); err != nil {
				return err
			}
		}
		if first {
			if err := out.Send(&vedettev1.WatchCamerasResponse{Item: &vedettev1.WatchCamerasResponse_Synced{Synced: &vedettev1.Synced{}}}); err != nil {
				return err
			}
		}
	}
}

func pageSize(asked int32, standard, most int) (int, error) {
	switch {
	case asked < 0:
		return 0, invalid("page_size", "%d is negative", asked)
	case asked == 0:
		return standard, nil
	}
	return min(int(asked), most), nil
}

// heartbeatInterval is 15 s unless asked otherwise.
func heartbeatInterval(d *durationpb.Duration) (*pulse, error) {
	every := 15 * time.Second
	if d != nil && d.AsDuration() != 0 {
		every = d.AsDuration()
	}
	if every < time.Second || every > time.Hour || (d != nil && !d.IsValid()) {
		return nil, invalid("heartbeat_interval", "not within 1s and 1h")
	}
	return &pulse{every: every, due: time.Now().Add(every)}, nil
}
