package bytetrack_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/boxes"
	"github.com/vedette/vedette/infer/backend/bytetrack"
	"github.com/vedette/vedette/infer/backend/onnxruntime"
	"github.com/vedette/vedette/infer/backend/prepare"
	"github.com/vedette/vedette/infer/tensor"
)

func shipped(t *testing.T, b backend.Backend, name string) *step {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "models", name)
	text, err := os.ReadFile(filepath.Join(dir, "config.pbtxt"))
	if err != nil {
		t.Fatal(err)
	}
	return newStep(t, b, filepath.Join(dir, "1"), string(text))
}

func TestTheShippedModelsFitEachOther(t *testing.T) {
	prep, detector := shipped(t, prepare.New(), "prepare"), shipped(t, onnxruntime.New(onnxruntime.Config{Library: library(t)}), "detector")
	decode, follow := shipped(t, boxes.New(), "boxes"), shipped(t, bytetrack.New(), "tracker")

	info := frame.Info{Format: frame.I420, Width: 1280, Height: 720}
	pixels, values := make([]byte, info.Format.Size(info.Width, info.Height)), info.Values()
	for i := range pixels {
		pixels[i] = 128
	}
	p := prep.run(t, backend.Job{Inputs: []tensor.Tensor{
		{Name: "FRAME", DataType: tensor.Uint8, Shape: []int64{1, int64(len(pixels))}, Data: pixels},
		{Name: "FRAME_INFO", DataType: tensor.Int64, Shape: []int64{1, frame.InfoLen}, Data: tensor.AsBytes(values[:])},
	}})
	image := *p.Output("IMAGE")
	image.Name = "images"
	d := detector.run(t, backend.Job{Inputs: []tensor.Tensor{image}})
	b := decode.run(t, backend.Job{Inputs: []tensor.Tensor{*p.Output("GEOMETRY"), d.Outputs[0]}})
	seen := tensor.Float32s(b.Output("BOXES").Data)
	for ; len(seen) > 0; seen = seen[6:] {
		if score := seen[4]; score > 0.3 {
			t.Errorf("a box of score %.2f in a grey picture", score)
		}
	}
	batched := func(at time.Duration) tensor.Tensor {
		x := timeTensor(at)
		x.Shape = []int64{1, 1}
		return x
	}
	opened := follow.run(t, backend.Job{Sequence: 7, Start: true, Inputs: []tensor.Tensor{
		{Name: "BOXES", DataType: tensor.FP32, Shape: []int64{1, 0, 6}},
		batched(0),
		{Name: "OBSERVED", DataType: tensor.Bool, Shape: []int64{1, 1}, Data: []byte{0}},
	}})
	if s := opened.Output("TRACKS").Shape; !slices.Equal(s, []int64{1, 0, 8}) {
		t.Errorf("opening a sequence answers TRACKS of shape %v", s)
	}
	f := follow.run(t, backend.Job{Sequence: 7, Inputs: []tensor.Tensor{*b.Output("BOXES"), batched(time.Second)}})
	if s := f.Output("TRACK_ID").Shape; len(s) != 2 || s[0] != 1 {
		t.Errorf("TRACK_ID has shape %v", s)
	}
}
