package appliance

import (
	"os"

	"github.com/vedette/vedette/appliance/rulebook"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/appliance/sinks"
)

// startRules loads the zones and lines, and the sinks, which deliver from then on.
func (a *Appliance) startRules(s *stages, secrets *secret.Box) error {
	a.rules = rulebook.New(rulebook.Config{Store: a.store, Cameras: a.cameras, Logger: a.cfg.Logger})
	if err := a.rules.Load(s.ctx); err != nil {
		return err
	}
	box := a.cfg.Follow.Box
	if box == "" {
		box, _ = os.Hostname() // without one, the box goes by the program's name
	}
	a.sinks = sinks.New(sinks.Config{Store: a.store, Secrets: secrets, Box: box, Logger: a.cfg.Logger})
	if err := a.sinks.Load(s.ctx); err != nil {
		return err
	}
	s.start("the sinks", a.sinks.Run)
	return nil
}
