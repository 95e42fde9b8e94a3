package onnxruntime

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

var budgets = flag.Bool("measure", false, "measure against a bare session and print one line per measure")

// again is an owner whose response is used again.
type again struct {
	owner
	pool  tensor.Pool
	spare *infer.Response
	last  *infer.Response
}

func (o *again) NewResponse(*backend.Job) *infer.Response {
	if r := o.spare; r != nil {
		o.spare = nil
		return r
	}
	return infer.NewResponse(&o.pool, func(r *infer.Response) { o.spare = r })
}
func (o *again) Respond(_ *backend.Job, r *infer.Response) { o.last = r }

// TestMeasure compares an instance with the bare session it runs, in turns.
func TestMeasure(t *testing.T) {
	if !*budgets {
		t.Skip("make bench-vision measures; it takes seconds")
	}
	m := realModel(t, "yolox_nano", "")
	b := New(Config{Library: library(t)})
	if err := b.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	inst, err := b.NewInstance(t.Context(), m, backend.Placement{CPUThreads: 1, GPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inst.Close() }()
	in, ok := inst.(*instance)
	if !ok {
		t.Fatal("not our instance")
	}
	shape := []int64{1, 3, 416, 416}
	o := &again{owner: *newOwner(nil)}
	jobs := []*backend.Job{{
		Request: &infer.Request{}, Batch: 1, Owner: o, Timing: &backend.Timing{},
		Inputs: []tensor.Tensor{floats("images", shape, make([]float32, 3*416*416)...)},
	}}
	x, err := ort.NewEmptyTensor[float32](shape)
	if err != nil {
		t.Fatal(err)
	}
	y, err := ort.NewEmptyTensor[float32]([]int64{1, 3549, 85})
	if err != nil {
		t.Fatal(err)
	}
	var ours, bare []time.Duration
	for range 150 {
		begin := time.Now()
		inst.Execute(t.Context(), jobs)
		ours = append(ours, time.Since(begin))
		o.last.Release()
		begin = time.Now()
		if err := in.sessions[0].run.RunWithOptions([]ort.Value{x}, []ort.Value{y}, nil); err != nil {
			t.Fatal(err)
		}
		bare = append(bare, time.Since(begin))
	}
	slices.Sort(ours)
	slices.Sort(bare)
	ratio := float64(bare[75]) / float64(ours[75])
	verdict := "ok"
	if ratio < 0.95 {
		verdict = "over"
	}
	fmt.Printf("vision_onnxruntime_instance_against_bare %.3f ratio >=0.95 %s\n", ratio, verdict)
	fmt.Printf("vision_onnxruntime_yolox_nano_ms %.2f ms - ok\n", float64(ours[75].Microseconds())/1000)
}
