package backend

import (
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
