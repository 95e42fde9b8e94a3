package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"reflect"
	"time"

	"github.com/vedette/vedette/appliance"
	"github.com/vedette/vedette/appliance/support"
	"github.com/vedette/vedette/internal/repeats"
	"github.com/vedette/vedette/internal/sdnotify"
)

// keepServing runs an appliance until ctx ends. At every reload the settings are read again: faulty ones are told and the
// old ones stay; the level of the log acts at once, and so do certificate files by themselves; for anything else the
// appliance is stopped and started again inside this process, on the old settings if it does not come up on the new.
func keepServing(ctx context.Context, env *Env, g *grammar, config func(*grammar) (appliance.Config, error)) error {
	level := new(slog.LevelVar)
	level.Set(g.LogLevel)
	// What repeats is counted: a camera that is refused must not fill the journal.
	var log support.Log
	logger := slog.New(repeats.New(slog.NewTextHandler(io.MultiWriter(env.Stderr, &log), &slog.HandlerOptions{Level: level}), 10*time.Second))
	cfg, err := config(g)
	if err != nil {
		return err
	}
	var reload <-chan os.Signal
	if env.Reload != nil {
		reload = env.Reload()
	}
	var last *appliance.Config // what ran before a change
	for {
		run := cfg
		run.Logger, run.Log = logger, log.Bytes
		if cfg.Sidecars != nil {
			kids := *cfg.Sidecars
			kids.Output = io.MultiWriter(env.Stderr, &log)
			run.Sidecars = &kids
		}
		inner, stop := context.WithCancel(ctx)
		started, ended := time.Now(), make(chan error, 1)
		go func() { ended <- appliance.New(run).Run(inner) }()
		next, err := awaitChange(ctx, env, reload, logger, level, cfg, config, ended)
		stop()
		switch {
		case next != nil:
			if err := <-ended; err != nil {
				logger.Error("the appliance did not stop well for its new settings", slog.Any("err", err))
			}
			before := cfg
			last, cfg = &before, *next
		case err != nil && last != nil && time.Since(started) < time.Minute && ctx.Err() == nil:
			logger.Error("the appliance does not run with its new settings; the ones before are used", slog.Any("err", err))
			cfg, last = *last, nil
		default:
			if stopping := sdnotify.Stopping(); stopping != nil {
				logger.Warn("systemd was not told", slog.Any("err", stopping))
			}
			return err
		}
	}
}

// awaitChange waits until the appliance ends, whose error it returns, or until settings change that it has to be started
// again for.
func awaitChange(ctx context.Context, env *Env, reload <-chan os.Signal, logger *slog.Logger, level *slog.LevelVar, cfg appliance.Config,
	config func(*grammar) (appliance.Config, error), ended chan error,
) (*appliance.Config, error) {
	for {
		select {
		case err := <-ended:
			return nil, err
		case <-reload:
		}
		var g grammar
		_, err := env.parse(ctx, &g)
		var next appliance.Config
		if err == nil {
			next, err = config(&g)
		}
		if err != nil {
			logger.Error("settings cannot be used; the ones before stay", slog.Any("err", err))
			continue
		}
		if level.Level() != g.LogLevel {
			level.Set(g.LogLevel)
		}
		if same(cfg, next) {
			logger.Info("settings were read again; nothing has to be started again for them")
			continue
		}
		if next.DataDir != cfg.DataDir {
			logger.Error("settings cannot be used; the ones before stay", slog.Any("err", errors.New("data-dir is another: that needs a restart")))
			continue
		}
		logger.Info("settings were read again; the appliance starts again with them")
		return &next, nil
	}
}

// same tells whether an appliance needs not be started again for its settings.
func same(a, b appliance.Config) bool {
	for _, c := range []*appliance.Config{&a, &b} {
		c.Logger, c.Out = nil, nil
		if c.Sidecars != nil {
			s := *c.Sidecars
			s.Output = nil
			c.Sidecars = &s
		}
	}
	return reflect.DeepEqual(a, b)
}
