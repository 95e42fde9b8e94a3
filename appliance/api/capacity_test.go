package api_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
)

// scales find a camera called "one too many" too heavy.
type scales struct{}

func (scales) Admit(was, c *vedettev1.Camera) error {
	heavy := func(c *vedettev1.Camera) bool {
		return c.GetDisplayName() == "one too many" && c.GetDesiredState() != vedettev1.DesiredState_DESIRED_STATE_DISABLED
	}
	if !heavy(c) || was != nil && heavy(was) {
		return nil
	}
	return &api.ReasonError{Code: codes.ResourceExhausted, Reason: "CAPACITY_EXCEEDED", Message: "the box is full", Metadata: map[string]string{"used": "88%"}}
}

func (scales) Capacity(r *vedettev1.GetCapacityRequest) *vedettev1.Capacity {
	return &vedettev1.Capacity{Measured: true, Cores: 2, CamerasLeft: r.GetWidth()}
}

func (scales) Measure(context.Context, string) error { return nil }

func timing(camera string) *vedettev1.FrameTiming {
	return &vedettev1.FrameTiming{Stages: []*vedettev1.StageTiming{{Stage: "decode of " + camera, P99: durationpb.New(time.Millisecond)}}}
}

func TestACameraThatDoesNotFitIsRefusedWithTheBudgetUnlessItIsWantedAllTheSame(t *testing.T) {
	b := start(t, false, album{})
	service := vedettev1.NewCameraServiceClient(b.local)
	heavy := &vedettev1.Camera{DisplayName: "one too many", Source: &vedettev1.Source{Uri: "rtsp://camera/"}}
	for _, req := range []*vedettev1.CreateCameraRequest{
		{CameraId: "heavy", Camera: heavy}, {CameraId: "heavy", Camera: heavy, ValidateOnly: true},
	} {
		_, err := service.CreateCamera(t.Context(), req)
		s := status.Convert(err)
		if s.Code() != codes.ResourceExhausted || len(s.Details()) != 1 {
			t.Fatalf("%v %v", err, s.Details())
		}
		if info, ok := s.Details()[0].(*errdetails.ErrorInfo); !ok || info.GetReason() != "CAPACITY_EXCEEDED" || info.GetMetadata()["used"] != "88%" {
			t.Errorf("details %v", s.Details())
		}
	}
	_, err := service.UpdateCamera(t.Context(), &vedettev1.UpdateCameraRequest{
		AllowMissing: true, Camera: &vedettev1.Camera{Name: "cameras/heavy", DisplayName: heavy.GetDisplayName(), Source: heavy.GetSource()},
	})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("made by an update: %v", err)
	}
	if _, err := b.cameras.Get("cameras/heavy"); err == nil {
		t.Error("it was registered")
	}
	if _, err := service.CreateCamera(t.Context(), &vedettev1.CreateCameraRequest{CameraId: "No", Camera: heavy}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("what is wrong with a camera is told before that it does not fit: %v", err)
	}
	if _, err := service.CreateCamera(t.Context(), &vedettev1.CreateCameraRequest{CameraId: "heavy", Camera: heavy, AllowOverload: true}); err != nil {
		t.Errorf("wanted all the same: %v", err)
	}
}

func TestAChangeThatMakesACameraTooHeavyIsRefusedUnlessItIsWantedAllTheSame(t *testing.T) {
	b := start(t, false, album{})
	service := vedettev1.NewCameraServiceClient(b.local)
	if _, err := service.CreateCamera(t.Context(), &vedettev1.CreateCameraRequest{CameraId: "door", Camera: &vedettev1.Camera{Source: &vedettev1.Source{Uri: "rtsp://camera/"}}}); err != nil {
		t.Fatal(err)
	}
	change := &vedettev1.UpdateCameraRequest{Camera: &vedettev1.Camera{Name: "cameras/door", DisplayName: "one too many"}}
	if _, err := service.UpdateCamera(t.Context(), change); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("changed: %v", err)
	}
	if c, err := b.cameras.Get("cameras/door"); err != nil || c.GetDisplayName() != "" {
		t.Errorf("%v %v", c, err)
	}
	stale := &vedettev1.UpdateCameraRequest{Camera: &vedettev1.Camera{Name: "cameras/door", DisplayName: "one too many", Etag: "of yesterday"}}
	if _, err := service.UpdateCamera(t.Context(), stale); status.Code(err) != codes.Aborted {
		t.Errorf("what is wrong with the change itself is told first: %v", err)
	}
	change.AllowOverload = true
	if _, err := service.UpdateCamera(t.Context(), change); err != nil {
		t.Errorf("changed all the same: %v", err)
	}
	if _, err := service.UpdateCamera(t.Context(), &vedettev1.UpdateCameraRequest{Camera: &vedettev1.Camera{Name: "cameras/door", Labels: map[string]string{"floor": "1"}}}); err != nil {
		t.Errorf("what makes it no heavier: %v", err)
	}
	if _, err := service.DisableCamera(t.Context(), &vedettev1.DisableCameraRequest{Name: "cameras/door"}); err != nil {
		t.Error(err)
	}
	if _, err := service.EnableCamera(t.Context(), &vedettev1.EnableCameraRequest{Name: "cameras/door"}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("enabled: %v", err)
	}
	if _, err := service.EnableCamera(t.Context(), &vedettev1.EnableCameraRequest{Name: "cameras/door", AllowOverload: true}); err != nil {
		t.Errorf("enabled all the same: %v", err)
	}
}

func TestCapacityAndTimingAreServed(t *testing.T) {
	b := start(t, false, album{})
	system, service := vedettev1.NewSystemServiceClient(b.tcp), vedettev1.NewCameraServiceClient(b.tcp)
	c, err := system.GetCapacity(b.as(api.Viewer), &vedettev1.GetCapacityRequest{Width: 7})
	if err != nil || c.GetCores() != 2 || c.GetCamerasLeft() != 7 {
		t.Errorf("%v %v", c, err)
	}
	for _, bad := range []*vedettev1.GetCapacityRequest{{Width: -1}, {Height: 1 << 20}, {Fps: -1}, {AnalysisFps: 1e9}} {
		if _, err := system.GetCapacity(b.as(api.Viewer), bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := system.MeasureCapacity(b.as(api.Viewer), &vedettev1.MeasureCapacityRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a viewer measured: %v", err)
	}
	if _, err := system.MeasureCapacity(b.as(api.Operator), &vedettev1.MeasureCapacityRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := service.GetFrameTiming(b.as(api.Viewer), &vedettev1.GetFrameTimingRequest{Name: "cameras/nope"}); status.Code(err) != codes.NotFound {
		t.Errorf("timing of no camera: %v", err)
	}
	if _, err := b.cameras.Create(t.Context(), "door", &vedettev1.Camera{Source: &vedettev1.Source{Uri: "rtsp://camera/"}}, false); err != nil {
		t.Fatal(err)
	}
	ft, err := service.GetFrameTiming(b.as(api.Viewer), &vedettev1.GetFrameTimingRequest{Name: "cameras/door"})
	if err != nil || ft.GetStages()[0].GetStage() != "decode of door" {
		t.Errorf("%v %v", ft, err)
	}
}
