package prepare

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gocv.io/x/gocv"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
)

var budgets = flag.Bool("measure", false, "measure against OpenCV and print one line per measure")

// TestMeasure measures both in turns, so that what else runs on the machine falls on both.
func TestMeasure(t *testing.T) {
	if !*budgets {
		t.Skip("make bench-vision measures; it takes seconds")
	}
	const w, h = 1920, 1080
	src := smooth(rand.New(rand.NewPCG(1, 1)), w, h)
	in, o := mustLoad(t, yolox), &backendtest.Owner{Reuse: true}
	jobs := []*backend.Job{job(o, src, frame.Info{Format: frame.I420, Width: w, Height: h}.Values())}
	yuv, err := gocv.NewMatFromBytes(h*3/2, w, gocv.MatTypeCV8UC1, src)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = yuv.Close() }()
	c := newChain()
	defer c.close(t)
	gocv.SetNumThreads(1)
	var ours, theirs []time.Duration
	for range 200 {
		begin := time.Now()
		in.Execute(t.Context(), jobs)
		ours = append(ours, time.Since(begin))
		o.Response.Release()
		begin = time.Now()
		planes := c.run(t, yuv, 416, 416, 234)
		theirs = append(theirs, time.Since(begin))
		for _, p := range planes {
			_ = p.Close()
		}
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	ratio := float64(theirs[100]) / float64(ours[100])
	verdict := "ok"
	if ratio < 3 {
		verdict = "over"
	}
	fmt.Printf("vision_prepare_1080p_to_416_us %.0f us - ok\n", float64(ours[100].Microseconds()))
	fmt.Printf("vision_prepare_against_opencv %.2f x >=3.00 %s\n", ratio, verdict)
}
