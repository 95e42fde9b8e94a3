package sdnotify

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watch ends the context it returns when the pipe's other end is closed.
func watch(ctx context.Context, fd int) (context.Context, context.CancelFunc, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, nil, fmt.Errorf("%s=%d: %w", LifelineEnv, fd, err)
	}
	unix.CloseOnExec(fd)
	pipe := os.NewFile(uintptr(fd), "lifeline")
	ctx, cancel := context.WithCancelCause(ctx)
	var reader sync.WaitGroup
	reader.Go(func() {
		var b [1]byte
		for {
			if n, err := pipe.Read(b[:]); n == 0 || err != nil {
				cancel(ErrSupervisorGone)
				return
			}
		}
	})
	var once sync.Once
	return ctx, func() {
		cancel(context.Canceled)
		once.Do(func() { _ = pipe.Close() })
		reader.Wait()
	}, nil
}
