package onnxruntime

import (
	"encoding/json"
	"math"
	"path/filepath"
	"testing"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/infer/tensor"
)

// golden is what the training's network said to a pattern, as the file that it was exported to has it.
type golden struct {
	Rows   []int       `json:"rows"`
	Values [][]float32 `json:"values"`
}

// The files that ship give the answers that their networks gave where they were trained (models/train/onnxfile.py).
func TestTheShippedDetectorsAnswerAsInTraining(t *testing.T) {
	for _, name := range []string{"detector", "demo-detector"} {
		t.Run(name, func(t *testing.T) { answersAsInTraining(t, filepath.Join("..", "..", "..", "models", name, "1")) })
	}
}

func answersAsInTraining(t *testing.T, dir string) {
	t.Helper()
	const side = 416
	m := model(t, "model", `name: "detector" max_batch_size: 8`)
	m.VersionDir = dir
	r, err := loadModel(t, m)
	if err != nil {
		t.Fatal(err)
	}
	want := readGolden(t, filepath.Join(dir, "model.onnx"))
	pattern := make([]float32, 0, 3*side*side)
	for c := range 3 {
		for y := range side {
			for x := range side {
				pattern = append(pattern, float32((y/16*31+x/16*17+c*59+x*y%29)%256))
			}
		}
	}
	o := newOwner(r.pool)
	out := r.run(t, o, job(o, 1, floats("images", []int64{1, 3, side, side}, pattern...)))[0].Output("output")
	wide := int(out.Shape[2])
	got := tensor.Float32s(out.Data)
	for i, row := range want.Rows {
		for k := range wide {
			g, v := float64(got[row*wide+k]), float64(want.Values[i][k])
			if k > 4 { // a class counts by its product with objectness
				g, v = g*float64(got[row*wide+4]), v*float64(want.Values[i][4])
			}
			if math.Abs(g-v) > 1e-3*(1+math.Abs(v)) {
				t.Fatalf("row %d, column %d is %v, want %v", row, k, g, v)
			}
		}
	}
}

func readGolden(t *testing.T, file string) (g golden) {
	t.Helper()
	s, err := ort.NewDynamicAdvancedSession(file, []string{"images"}, []string{"output"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Destroy() }()
	meta, err := s.GetModelMetadata()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = meta.Destroy() }()
	text, known, err := meta.LookupCustomMetadataMap("golden")
	if err != nil {
		t.Fatal(err)
	}
	if !known {
		t.Fatal("the file was exported without golden rows")
	}
	if err := json.Unmarshal([]byte(text), &g); err != nil || len(g.Rows) == 0 || len(g.Rows) != len(g.Values) {
		t.Fatalf("golden rows: %v, %d of %d", err, len(g.Rows), len(g.Values))
	}
	return g
}
