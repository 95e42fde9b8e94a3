package api

import (
	"context"

	"google.golang.org/grpc/codes"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/store"
)

// create registers a camera, unless it does not fit and the client does not want it all the same. What is wrong with
// the camera itself is told first.
func (s *cameraService) create(ctx context.Context, id string, camera *vedettev1.Camera, validateOnly, overload bool) (*vedettev1.Camera, error) {
	if s.cfg.Capacity != nil && !overload {
		s.admitting.Lock()
		defer s.admitting.Unlock()
		if _, err := s.cfg.Cameras.Create(ctx, id, camera, true); err != nil {
			return nil, err
		}
		if err := s.cfg.Capacity.Admit(nil, camera); err != nil {
			return nil, err
		}
	}
	return s.cfg.Cameras.Create(ctx, id, camera, validateOnly)
}

// update changes a camera under the same rule.
func (s *cameraService) update(ctx context.Context, camera *vedettev1.Camera, paths []string, validateOnly, overload bool) (*vedettev1.Camera, error) {
	if s.cfg.Capacity != nil && !overload {
		s.admitting.Lock()
		defer s.admitting.Unlock()
		was, err := s.cfg.Cameras.Get(camera.GetName())
		if err != nil {
			return nil, err
		}
		changed, err := s.cfg.Cameras.Update(ctx, camera, paths, true)
		if err != nil {
			return nil, err
		}
		if err := s.cfg.Capacity.Admit(was, changed); err != nil {
			return nil, err
		}
	}
	return s.cfg.Cameras.Update(ctx, camera, paths, validateOnly)
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
