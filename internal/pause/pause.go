// Package pause waits, but for nobody who has gone.
package pause

import (
	"context"
	"time"
)

// For waits for as long as d, not at all where that is not positive; false: ctx ended before.
func For(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
