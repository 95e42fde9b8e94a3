package tracker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/vedette/vedette/tracker"
)

func BenchmarkUpdate(b *testing.B) {
	for _, mode := range modes {
		for _, n := range []int{50, 200} {
			b.Run(fmt.Sprintf("%s/%d", mode, n), func(b *testing.B) {
				tr := newTracker(b, tracker.Config{Mode: mode})
				frames := crowd(4, 400, n)
				for i := range 400 {
					tr.Update(time.Duration(i)*40*ms, frames[i])
				}
				b.ReportAllocs()
				i := 400
				for b.Loop() {
					tr.Update(time.Duration(i)*40*ms, frames[i%400])
					i++
				}
			})
		}
	}
}
