package appliance

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// stages are the parts of the appliance in the order they were started; they stop in the opposite order, each when
// the ones started after it have ended.
type stages struct {
	ctx  context.Context //nolint:containedctx // ends when the appliance is to stop, or a part failed
	fail context.CancelCauseFunc
	list []*stage
	wg   sync.WaitGroup
}

type stage struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func newStages(ctx context.Context) *stages {
	ctx, fail := context.WithCancelCause(ctx)
	return &stages{ctx: ctx, fail: fail}
}

// start runs a part. A part that ends before it is asked to stops the appliance.
func (s *stages) start(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	st := &stage{cancel: cancel, done: make(chan struct{})}
	s.list = append(s.list, st)
	s.wg.Go(func() {
		defer close(st.done)
		err := run(ctx)
		if err == nil && ctx.Err() == nil {
			err = fmt.Errorf("%s ended unexpectedly", name)
		}
		if err != nil {
			s.fail(err)
		}
	})
}

// await waits for ready, or returns why the appliance must stop first.
func (s *stages) await(ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// wait returns, when the appliance is to stop, why.
func (s *stages) wait() error {
	<-s.ctx.Done()
	return context.Cause(s.ctx)
}

// stop ends all parts, the last started first.
func (s *stages) stop() {
	s.fail(context.Canceled)
	for _, st := range slices.Backward(s.list) {
		st.cancel()
		<-st.done
	}
	s.wg.Wait()
}
