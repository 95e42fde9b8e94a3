package ensemble

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// stepTimes is the parameter (bool) by which a client asks when the steps of its request ended, and the parameter
// (string) of the response that tells it: "model=nanoseconds", separated by commas, in the order of the steps. The clock
// is the machine's CLOCK_MONOTONIC, which its processes share.
const stepTimes = "step_times"

// times writes the parameter's value.
func (f *flight) times() string {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return ""
	}
	now := time.Now()
	var b []byte
	for i := range f.steps {
		if f.steps[i].ended.IsZero() {
			continue
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = append(b, f.e.steps[i].model...)
		b = append(b, '=')
		b = strconv.AppendInt(b, t.Nano()-int64(now.Sub(f.steps[i].ended)), 10)
	}
	return string(b)
}
