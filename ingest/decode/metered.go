package decode

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/internal/av"
)

// metered is an engine whose processor time is added up. What a decoder does on threads of its own escapes it.
type metered struct {
	Engine

	cpu *atomic.Int64
}

// Send implements Engine.
func (m metered) Send(data []byte, pts int64) error {
	defer m.meter()()
	return m.Engine.Send(data, pts)
}

// Receive implements Engine.
func (m metered) Receive(p *av.Picture) (bool, error) {
	defer m.meter()()
	return m.Engine.Receive(p)
}

// meter begins to count; what it returns ends it. The thread's clock is only good while the goroutine stays on it.
func (m metered) meter() func() {
	runtime.LockOSThread()
	begin := threadTime()
	return func() {
		m.cpu.Add(threadTime() - begin)
		runtime.UnlockOSThread()
	}
}

func threadTime() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return t.Nano()
}
