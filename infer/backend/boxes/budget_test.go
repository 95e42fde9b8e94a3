package boxes

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
)

var budgets = flag.Bool("measure", false, "measure and print one line per measure")

func TestMeasure(t *testing.T) {
	if !*budgets {
		t.Skip("make bench-vision measures; it takes a second")
	}
	heads := yoloxHeads(t)
	in, o := mustLoad(t, heads), &backendtest.Owner{Reuse: true}
	jobs := []*backend.Job{{Request: &infer.Request{}, Inputs: heads, Batch: 1, Owner: o}}
	var took []time.Duration
	for range 1000 {
		begin := time.Now()
		in.Execute(t.Context(), jobs)
		took = append(took, time.Since(begin))
		o.Response.Release()
	}
	slices.Sort(took)
	median := float64(took[500].Nanoseconds()) / 1000
	verdict := "ok"
	if median > 150 {
		verdict = "over"
	}
	fmt.Printf("vision_boxes_yolox_nano %.1f us <=150 %s\n", median, verdict)
}
