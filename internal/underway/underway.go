// Package underway counts the calls under way, for a server that stops: as long as there are any it goes on listening, so that
// whoever comes is told that it stops.
package underway

import (
	"context"
	"sync/atomic"
	"time"
)

// Calls counts calls; New makes it.
type Calls struct {
	n    atomic.Int64
	last atomic.Int64  // when one ended, in nanoseconds since 1970; 0: none did
	none chan struct{} // one slot: perhaps none is left
}

// New returns a count of none.
func New() *Calls { return &Calls{none: make(chan struct{}, 1)} }

// Begin counts one more.
func (c *Calls) Begin() { c.n.Add(1) }

// End counts one that has ended; stopping tells whether anybody waits for the last one.
func (c *Calls) End(stopping bool) {
	c.last.Store(time.Now().UnixNano())
	if c.n.Add(-1) == 0 && stopping {
		select {
		case c.none <- struct{}{}:
		default:
		}
	}
}

// Quiet is how long ago the last one ended.
func (c *Calls) Quiet() time.Duration { return time.Since(time.Unix(0, c.last.Load())) }

// Wait returns when none is left, or when ctx ends. Those who end must know that the server stops before it is called.
func (c *Calls) Wait(ctx context.Context) {
	for c.n.Load() > 0 {
		select {
		case <-c.none:
		case <-ctx.Done():
			return
		}
	}
}
