package api

import (
	"context"

	"google.golang.org/grpc/codes"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/store"
)

// admit refuses a camera that does not fit, unless the client wants it all the same. What is wrong with the camera
// itself is told first.
func (s *cameraService) admit(ctx context.Context, id string, camera *vedettev1.Camera, overload bool) error {
	if s.cfg.Capacity == nil || overload {
		return nil
	}
	if _, err := s.cfg.Cameras.Create(ctx, id, camera, true); err != nil {
		return err
	}
	return s.cfg.Capacity.Admit(camera)
}

func (s *cameraService) GetFrameTiming(_ context.Context, req *vedettev1.GetFrameTimingRequest) (*vedettev1.FrameTiming, error) {
	if _, err := s.cfg.Cameras.Get(req.GetName()); err != nil {
		return nil, err
	}
	id, err := cameras.ID(req.GetName())
	if err != nil {
		return nil, err
	}
	if s.cfg.Timing == nil {
		return nil, store.ErrNotFound
	}
	return s.cfg.Timing(id), nil
}

func (s *systemService) GetCapacity(_ context.Context, req *vedettev1.GetCapacityRequest) (*vedettev1.Capacity, error) {
	if err := checkWish(req); err != nil {
		return nil, err
	}
	if s.cfg.Capacity == nil {
		return nil, errNoCapacity()
	}
	return s.cfg.Capacity.Capacity(req), nil
}

func (s *systemService) MeasureCapacity(ctx context.Context, req *vedettev1.MeasureCapacityRequest) (*vedettev1.Capacity, error) {
	if s.cfg.Capacity == nil {
		return nil, errNoCapacity()
	}
	if err := s.cfg.Capacity.Measure(ctx, req.GetPipeline()); err != nil {
		return nil, err
	}
	return s.cfg.Capacity.Capacity(&vedettev1.GetCapacityRequest{Pipeline: req.GetPipeline()}), nil
}

func errNoCapacity() error {
	return &ReasonError{Code: codes.Unimplemented, Reason: "NOT_MEASURED", Message: "this box does not measure itself"}
}

const (
	maxSide = 16384
	maxRate = 240
)

func checkWish(r *vedettev1.GetCapacityRequest) error {
	for field, v := range map[string]int32{"width": r.GetWidth(), "height": r.GetHeight()} {
		if v < 0 || v > maxSide {
			return invalid(field, "%d is not within 0 and %d", v, maxSide)
		}
	}
	for field, v := range map[string]float64{"fps": r.GetFps(), "analysis_fps": r.GetAnalysisFps()} {
		if !(v >= 0 && v <= maxRate) {
			return invalid(field, "%v is not within 0 and %d", v, maxRate)
		}
	}
	return nil
}
