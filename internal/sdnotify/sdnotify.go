// Package sdnotify is how a process and whoever supervises it keep each other informed: it tells
// systemd that a service is ready, alive or stopping, and it notices when the supervisor that
// started the process ("vedette run") is gone.
package sdnotify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// LifelineEnv names the environment variable in which a supervisor tells its child the number of an inherited
// descriptor: the reading end of a pipe whose other end only the supervisor holds.
const LifelineEnv = "VEDETTE_LIFELINE_FD"

// ErrSupervisorGone is the cause of a context that ended because the supervisor did.
var ErrSupervisorGone = errors.New("the supervisor that started this process is gone")

// Ready says that the service answers. Without systemd it does nothing.
func Ready() error { return notify(daemon.SdNotifyReady) }

// Stopping says that the service is on its way down.
func Stopping() error { return notify(daemon.SdNotifyStopping) }

// Status says in one line what the service does ("systemctl status" shows it).
func Status(line string) error { return notify("STATUS=" + line) }

func notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify systemd of %q: %w", state, err)
	}
	return nil
}

// Watchdog tells systemd that the service is alive, twice per WatchdogSec, for as long as alive returns true
// (nil: always). It returns when ctx ends, and at once when systemd expects nothing.
func Watchdog(ctx context.Context, alive func() bool) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("read systemd's watchdog setting: %w", err)
	}
	if interval <= 0 {
		return nil
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if alive != nil && !alive() {
				continue
			}
			if err := notify(daemon.SdNotifyWatchdog); err != nil {
				return err
			}
		}
	}
}

// WithSupervisor returns a context that also ends, with the cause ErrSupervisorGone, when the supervisor that
// started this process is gone. Without a supervisor it is ctx with a cancel function. Call it once, early: it
// takes the descriptor for itself and removes its number from the environment. The function returned
// releases both.
func WithSupervisor(ctx context.Context) (context.Context, context.CancelFunc, error) {
	text := os.Getenv(LifelineEnv)
	if text == "" {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	}
	if err := os.Unsetenv(LifelineEnv); err != nil {
		return nil, nil, fmt.Errorf("clear %s: %w", LifelineEnv, err)
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil, nil, fmt.Errorf("%s=%q is no descriptor number above 2", LifelineEnv, text)
	}
	return watch(ctx, fd)
}
