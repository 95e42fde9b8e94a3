package ingest

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// anchor pairs a reading of Go's monotonic clock with the kernel's. The two are the same clock, but Go tells its
// readings only as differences; they cost no system call.
var anchor = sync.OnceValue(func() Instant { //nolint:gochecknoglobals // once per process: a constant of the boot
	var ts unix.Timespec
	// Cannot fail for a clock every Linux has.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return Instant{Mono: time.Duration(ts.Nano()), Wall: time.Now()}
})

// Now reads both clocks of the box.
func Now() Instant {
	a, now := anchor(), time.Now()
	return Instant{Mono: a.Mono + now.Sub(a.Wall), Wall: now.Round(0)}
}
