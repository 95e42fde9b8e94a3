// Package clockstep notices when somebody sets the box's clock: NTP after a boot without it, an
// administrator, a virtual machine that was asleep.
package clockstep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/ingest"
)

// Config of a Watch.
type Config struct {
	// OnStep is told how far the clock was set, new time minus expected time. Required.
	OnStep func(step time.Duration, now ingest.Instant)
	// Least is the smallest step worth telling; 0: 100 ms. Slewing is no step.
	Least time.Duration
	// Now reads both clocks; nil: the box's.
	Now func() ingest.Instant
	// Wait returns after the clock has been set, with an error when ctx ends; nil: asks the kernel.
	Wait func(ctx context.Context) error
}

// Watch watches the clock.
type Watch struct{ cfg Config }

// New watches nothing until Run.
func New(cfg Config) *Watch {
	if cfg.Least <= 0 {
		cfg.Least = 100 * time.Millisecond
	}
	if cfg.Now == nil {
		cfg.Now = ingest.Now
	}
	return &Watch{cfg: cfg}
}

// Run watches until ctx ends (nil) or the kernel refuses.
func (w *Watch) Run(ctx context.Context) error {
	wait := w.cfg.Wait
	if wait == nil {
		t, err := newTimer()
		if err != nil {
			return fmt.Errorf("watch the clock: %w", err)
		}
		defer t.Close() //nolint:errcheck // nothing is lost with it
		wait = func(ctx context.Context) error { return untilSet(ctx, t) }
	}
	before := distance(w.cfg.Now())
	for {
		if err := wait(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch the clock: %w", err)
		}
		now := w.cfg.Now()
		after := distance(now)
		if step := after - before; step.Abs() >= w.cfg.Least {
			w.cfg.OnStep(step, now)
		}
		before = after
	}
}

// distance between the two clocks; only a step or slewing changes it.
func distance(at ingest.Instant) time.Duration { return time.Duration(at.Wall.UnixNano()) - at.Mono }

// newTimer makes a timer that never fires but is cancelled when the clock is set.
func newTimer() (*os.File, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "timerfd"), nil
}

// arm sets the timer for the end of time.
func arm(t *os.File) error {
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		never := unix.ItimerSpec{Value: unix.Timespec{Sec: 1 << 40}}
		serr = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil)
	})
	return errors.Join(err, serr)
}

// untilSet blocks until the kernel cancels the timer.
func untilSet(ctx context.Context, t *os.File) error {
	if err := arm(t); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = t.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := t.Read(make([]byte, 8))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, unix.ECANCELED) {
		return nil
	}
	return err
}
