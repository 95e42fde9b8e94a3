package boxes

import (
	"slices"
	"strings"
	"testing"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/rows"
)

// parts are what a detector of 100×100 pixels says of two halves of a 200×110
// frame that overlap, and of the whole at half the size.
func parts(rows ...[][6]float32) []tensor.Tensor {
	const n = 4
	v := make([]float32, len(rows)*n*6)
	for i, part := range rows {
		for k, r := range part {
			copy(v[(i*n+k)*6:], r[:])
		}
	}
	return []tensor.Tensor{
		floats("output0", []int64{3, n, 6}, v),
		floats("GEOMETRY", []int64{3, 6}, []float32{
			100. / 110, 100. / 110, 0, 0, 200, 110,
			100. / 110, 100. / 110, -90 * 100. / 110, 0, 200, 110,
			0.5, 0.5, 0, 0, 200, 110,
		}),
		floats("TILE", []int64{3, 4}, []float32{0, 0, 110, 110, 90, 0, 200, 110, 0, 0, 200, 110}),
	}
}

func loadTiled(t *testing.T, parameters ...string) backend.Instance {
	t.Helper()
	heads := []tensor.Tensor{
		{Name: "output0", DataType: tensor.FP32, Shape: []int64{4, 6}},
		{Name: "GEOMETRY", DataType: tensor.FP32, Shape: []int64{6}},
		{Name: "TILE", DataType: tensor.FP32, Shape: []int64{4}},
	}
	c := configFor(t, heads, append(parameters, "family=yolo_end2end", "score_threshold=0.3")...)
	c.MaxBatchSize = 3
	in, err := load(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func runTiled(t *testing.T, in backend.Instance, inputs []tensor.Tensor) ([]tracker.Detection, error) {
	t.Helper()
	o := &backendtest.Owner{Reuse: true}
	in.Execute(t.Context(), []*backend.Job{{Request: &infer.Request{}, Inputs: inputs, Batch: 3, Owner: o, Timing: &backend.Timing{}}})
	if o.Err != nil {
		return nil, o.Err
	}
	out := o.Response.Output("BOXES")
	if want := []int64{1, int64(len(out.Data) / 24), 6}; !slices.Equal(out.Shape, want) {
		t.Errorf("BOXES has shape %v, want %v", out.Shape, want)
	}
	return rows.Boxes(nil, out.Data)
}

func TestPartsOfAFrameAreJoined(t *testing.T) {
	const s = 100. / 110
	at := func(x1, y1, x2, y2, score, class float32) [6]float32 {
		return [6]float32{x1 * s, y1 * s, x2 * s, y2 * s, score, class}
	}
	inputs := parts(
		// Alone in the left part; in both parts; cut by the rim; cut and nowhere whole.
		[][6]float32{at(10, 10, 30, 30, 0.9, 0), at(92, 10, 106, 30, 0.8, 0), at(60, 60, 110, 90, 0.95, 1), at(80, 95, 110, 109, 0.7, 2)},
		[][6]float32{at(2, 10, 16, 30, 0.85, 0), at(0, 60, 60, 90, 0.9, 1)},
		// The whole: the object that both parts see cut, and the first again, coarsely.
		[][6]float32{{30, 30, 75, 45, 0.6, 1}, {5, 5.5, 15, 15, 0.5, 0}},
	)
	got, err := runTiled(t, loadTiled(t), inputs)
	if err != nil {
		t.Fatal(err)
	}
	want := []tracker.Detection{
		{Box: tracker.Box{X1: 10, Y1: 10, X2: 30, Y2: 30}, Score: 0.9},
		{Box: tracker.Box{X1: 92, Y1: 10, X2: 106, Y2: 30}, Score: 0.8},
		{Box: tracker.Box{X1: 80, Y1: 95, X2: 110, Y2: 109}, Score: 0.7, Class: 2},
		{Box: tracker.Box{X1: 60, Y1: 60, X2: 150, Y2: 90}, Score: 0.6, Class: 1},
	}
	if len(got) != len(want) {
		t.Fatalf("got %v\nwant %v", got, want)
	}
	for i, w := range want {
		if g := got[i]; g.Class != w.Class || g.Score < w.Score-1e-4 || g.Score > w.Score+1e-4 || iou(g.Box, w.Box) < 0.99 {
			t.Errorf("got %v, want %v", g, w)
		}
	}
}

func TestPartsThatDoNotFitAreRefused(t *testing.T) {
	in, full := loadTiled(t), parts(nil, nil, nil)
	for _, c := range []struct {
		name, want string
		inputs     []tensor.Tensor
	}{
		{"no TILE", "input TILE is missing", full[:2]},
		{"too few TILEs", "TILE has 8 values, not 12", []tensor.Tensor{full[0], full[1], floats("TILE", []int64{2, 4}, make([]float32, 8))}},
		{"one GEOMETRY", "GEOMETRY has 6 values, not 18", []tensor.Tensor{full[0], geometryOf(1, 1, 0, 0, 200, 110), full[2]}},
	} {
		if _, err := runTiled(t, in, c.inputs); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	heads := []tensor.Tensor{zeros(300, 6).head("output0"), floats("TILE", []int64{4}, make([]float32, 4))}
	if _, err := load(t, configFor(t, heads)); err == nil || !strings.Contains(err.Error(), "set max_batch_size") {
		t.Errorf("a model without batches: %v", err)
	}
}
