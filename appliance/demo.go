package appliance

import (
	"errors"
	"fmt"
	"log/slog"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/demo"
	"github.com/vedette/vedette/store"
)

const (
	// demoCamera is the id of the camera that a demonstration registers.
	demoCamera = "street"
	// demoPipeline is the ensemble whose detector was made for that street.
	demoPipeline = "demo"
)

// startDemo serves the rendered street and registers it as a camera, or corrects its address from an earlier run.
func (a *Appliance) startDemo(s *stages) error {
	street, err := demo.New(demo.Config{Log: a.cfg.Logger.With(slog.String("part", "demo"))})
	if err != nil {
		return err
	}
	s.start("the demonstration's camera", street.Run)
	if err := s.await(street.Ready()); err != nil {
		return err
	}
	// With the start and a capture time, anyone can tell which frame of the clip a picture is.
	a.cfg.Logger.Info("demonstration begins", slog.Time("first_frame", street.Started()), slog.String("address", street.URL()))
	source := &vedettev1.Source{Uri: street.URL()}
	_, err = a.cameras.Update(s.ctx, &vedettev1.Camera{Name: cameras.Name(demoCamera), Source: source}, []string{"source.uri"}, false)
	if errors.Is(err, store.ErrNotFound) {
		_, err = a.cameras.Create(s.ctx, demoCamera, &vedettev1.Camera{
			DisplayName: "Demo street", Labels: map[string]string{"vedette.demo": "true"}, Source: source,
			Analysis: &vedettev1.Analysis{Pipeline: demoPipeline},
		}, false)
	}
	if err != nil {
		return fmt.Errorf("register the demonstration's camera: %w", err)
	}
	return nil
}
