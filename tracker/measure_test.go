package tracker_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

var measuring = flag.Bool("measure", false, "print what following costs, with its budgets")

// TestMeasure prints what following costs, one line a measure: name,
// value, unit, budget, ok or over. Times are the best of many rounds: the machine may be busy.
func TestMeasure(t *testing.T) {
	if !*measuring {
		t.Skip("make bench-vision measures")
	}
	for _, mode := range modes {
		for _, c := range []struct {
			objects int
			budget  float64 // microseconds a frame
		}{{50, 30}, {200, 250}} {
			us, allocs := frameCost(t, mode, c.objects)
			measure(fmt.Sprintf("tracker_%s_%d_objects", mode, c.objects), us, "us/frame", c.budget)
			measure(fmt.Sprintf("tracker_%s_%d_allocations", mode, c.objects), allocs, "allocs/frame", 0)
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(sharedData(t), "mot", "*", "det.txt"))
	begin := time.Now()
	for _, path := range dirs {
		dir := filepath.Dir(path)
		out, err := eval.Follow(tracker.Config{}, 30, readRows(t, path))
		if err != nil {
			t.Fatal(err)
		}
		gt := readRows(t, filepath.Join(dir, "gt.txt"))
		if _, err := eval.Score(filepath.Base(dir), gt, out); err != nil {
			t.Fatal(err)
		}
	}
	measure(fmt.Sprintf("eval_track_and_score_%d_sequences", len(dirs)), time.Since(begin).Seconds(), "s", 5)
}

func frameCost(t *testing.T, mode tracker.Mode, objects int) (us, allocs float64) {
	tr := newTracker(t, tracker.Config{Mode: mode})
	frames := crowd(4, 400, objects)
	at, next := time.Duration(0), 0
	step := func() {
		at += 40 * ms
		tr.Update(at, frames[next%len(frames)])
		next++
	}
	for range 2 * len(frames) {
		step()
	}
	allocs = testing.AllocsPerRun(len(frames), step)
	var rounds []float64
	for range 40 {
		begin := time.Now()
		for range len(frames) {
			step()
		}
		rounds = append(rounds, float64(time.Since(begin).Microseconds())/float64(len(frames)))
	}
	return slices.Min(rounds), allocs
}

func measure(name string, value float64, unit string, budget float64) {
	verdict := "ok"
	if value > budget {
		verdict = "over"
	}
	fmt.Printf("%s %.3g %s %g %s\n", name, value, unit, budget, verdict)
}
