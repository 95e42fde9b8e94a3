package backend

import (
	"context"
	"time"

	"github.com/vedette/vedette/infer"
)

// ExecuteEach is the Execute of an instance that answers its jobs one after
// another: answer fills the response of one job or refuses what the client sent.
// The padding of idle slots is answered with nothing.
func ExecuteEach(jobs []*Job, answer func(*Job, *infer.Response) error) {
	if len(jobs) > 0 && jobs[0].Timing != nil {
		jobs[0].Timing.InputEnd = time.Now()
	}
	for _, j := range jobs {
		r := j.NewResponse()
		if !j.Null {
			if err := answer(j, r); err != nil {
				r.Release()
				j.Fail(infer.Errorf(infer.InvalidArgument, "%s", err.Error()))
				continue
			}
		}
		j.Respond(r)
	}
}

// Pause waits for as long as d, which the reference backends are told to, or
// until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
