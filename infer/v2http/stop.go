package v2http

import (
	"context"
	"sync/atomic"
)

// underWay counts the inferences under way, for a server that stops: as long as there are any it goes on listening, so
// that whoever comes is told that it stops.
type underWay struct {
	n    atomic.Int64
	none chan struct{} // one slot: perhaps none is left
}

func newUnderWay() underWay { return underWay{none: make(chan struct{}, 1)} }

// end counts one that has ended; stopping tells whether anybody waits for the last one.
func (u *underWay) end(stopping bool) {
	if u.n.Add(-1) == 0 && stopping {
		select {
		case u.none <- struct{}{}:
		default:
		}
	}
}

// wait returns when none is left, or when ctx ends. Those who end must know that the server stops before it is called.
func (u *underWay) wait(ctx context.Context) {
	for u.n.Load() > 0 {
		select {
		case <-u.none:
		case <-ctx.Done():
			return
		}
	}
}
