package appliance

import (
	"log/slog"

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
	if err := a.rules.Settle(s.ctx); err != nil { // the cameras can be watched all the same
		a.cfg.Logger.Error("what was in zones when the last run ended is not known", slog.Any("err", err))
	}
	a.sinks = sinks.New(sinks.Config{Store: a.store, Secrets: secrets, Box: a.boxName(), Logger: a.cfg.Logger})
	if err := a.sinks.Load(s.ctx); err != nil {
		return err
	}
	s.start("the sinks", a.sinks.Run)
	return nil
}
