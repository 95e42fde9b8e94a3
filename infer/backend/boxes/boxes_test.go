package boxes

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/rows"
)

// floats makes a float head.
func floats(name string, shape []int64, v []float32) tensor.Tensor {
	return tensor.Tensor{Name: name, DataType: tensor.FP32, Shape: shape, Data: tensor.AsBytes(v)}
}

// geometryOf is that of a 960×540 frame stretched or letterboxed into a network.
func geometryOf(g ...float32) tensor.Tensor { return floats("GEOMETRY", []int64{6}, g) }

// configFor lists the heads as inputs, with parameters "key=value".
func configFor(t testing.TB, heads []tensor.Tensor, parameters ...string) *inference.ModelConfig {
	t.Helper()
	var b strings.Builder
	for _, h := range heads {
		dims := strings.Trim(strings.ReplaceAll(fmt.Sprint(h.Shape), " ", ", "), "[]")
		fmt.Fprintf(&b, "input { name: %q data_type: TYPE_%s dims: [%s] }\n", h.Name, h.DataType, dims)
	}
	for _, p := range parameters {
		k, v, _ := strings.Cut(p, "=")
		fmt.Fprintf(&b, "parameters { key: %q value { string_value: %q } }\n", k, v)
	}
	c := &inference.ModelConfig{}
	if err := prototext.Unmarshal([]byte(b.String()), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func load(t testing.TB, c *inference.ModelConfig) (backend.Instance, error) {
	t.Helper()
	m := &backend.Model{Name: "boxes", Config: c, Logger: slog.New(slog.DiscardHandler)}
	if err := New().Complete(t.Context(), m); err != nil {
		return nil, err
	}
	return New().NewInstance(t.Context(), m, backend.Placement{CPUThreads: 1})
}

func mustLoad(t testing.TB, heads []tensor.Tensor, parameters ...string) backend.Instance {
	t.Helper()
	in, err := load(t, configFor(t, heads, parameters...))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func run(t testing.TB, in backend.Instance, heads []tensor.Tensor) ([]tracker.Detection, error) {
	t.Helper()
	o := &backendtest.Owner{Reuse: true}
	in.Execute(t.Context(), []*backend.Job{{Request: &infer.Request{}, Inputs: heads, Batch: 1, Owner: o, Timing: &backend.Timing{}}})
	if (o.Response == nil) == (o.Err == nil) {
		t.Fatalf("response %v and error %v: want exactly one", o.Response, o.Err)
	}
	if o.Err != nil {
		return nil, o.Err
	}
	out := o.Response.Output("BOXES")
	if want := []int64{int64(len(out.Data) / 24), 6}; fmt.Sprint(out.Shape) != fmt.Sprint(want) {
		t.Errorf("BOXES of %d bytes has shape %v", len(out.Data), out.Shape)
	}
	dets, err := rows.Boxes(nil, out.Data)
	if err != nil {
		t.Fatal(err)
	}
	return dets, nil
}

func iou(a, b tracker.Box) float64 {
	w, h := min(a.X2, b.X2)-max(a.X1, b.X1), min(a.Y2, b.Y2)-max(a.Y1, b.Y1)
	if w <= 0 || h <= 0 {
		return 0
	}
	return w * h / (a.Width()*a.Height() + b.Width()*b.Height() - w*h)
}

func testData(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("VEDETTE_TEST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(filepath.Join(dir, "models")); err != nil {
		t.Skipf("no test data in %s: set VEDETTE_TEST_DATA", dir)
	}
	return dir
}

func unzip(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	return b
}

type golden struct {
	Model, Output string
	Shape         []int64   `json:"decoded_shape"`
	Outputs       [][]int64 `json:"output_shapes"`
	Conf          float64   `json:"conf"`
	NMS           float64   `json:"nms_iou"`
	Detections    []struct {
		Class int        `json:"cls"`
		Score float64    `json:"score"`
		Box   [4]float64 `json:"xyxy"`
	}
}

func goldens(t testing.TB) (string, []golden) {
	t.Helper()
	dir := filepath.Join(testData(t), "models", "golden")
	b, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index []golden
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}
	return dir, index
}

// heads splits a golden output file, and adds the geometry of its picture.
func (g *golden) heads(t testing.TB, dir string) []tensor.Tensor {
	t.Helper()
	raw := unzip(t, filepath.Join(dir, g.Output+".gz"))
	var out []tensor.Tensor
	for i, s := range g.Outputs {
		n := 4 * s[0] * s[1]
		out = append(out, tensor.Tensor{Name: fmt.Sprintf("output%d", i), DataType: tensor.FP32, Shape: append([]int64{1}, s...), Data: raw[:n]})
		raw = raw[n:]
	}
	h, w := float64(g.Shape[0]), float64(g.Shape[1])
	r := float32(min(416/h, 416/w))
	var left, top float32
	if g.Model == "nanodet_m" {
		left, top = float32(int(416-w*float64(r)))/2, float32(int(416-h*float64(r)))/2
	}
	return append(out, geometryOf(r, r, left, top, float32(w), float32(h)))
}

func TestGoldenOutputsGiveTheGoldenDetections(t *testing.T) {
	dir, index := goldens(t)
	seen := 0
	for _, g := range index {
		if _, err := os.Stat(filepath.Join(dir, g.Output+".gz")); err != nil {
			continue
		}
		seen++
		t.Run(g.Output, func(t *testing.T) {
			heads := g.heads(t, dir)
			in := mustLoad(t, heads, fmt.Sprintf("score_threshold=%g", g.Conf), fmt.Sprintf("nms_iou=%g", g.NMS))
			dets, err := run(t, in, heads)
			if err != nil {
				t.Fatal(err)
			}
			if len(dets) != len(g.Detections) {
				t.Fatalf("%d detections, want %d", len(dets), len(g.Detections))
			}
			for _, w := range g.Detections {
				want, best := tracker.Box{X1: w.Box[0], Y1: w.Box[1], X2: w.Box[2], Y2: w.Box[3]}, 0.0
				var score float64
				for _, d := range dets {
					if o := iou(d.Box, want); d.Class == w.Class && o > best {
						best, score = o, d.Score
					}
				}
				if best < 0.99 || math.Abs(score-w.Score) > 0.001 {
					t.Errorf("class %d at %v: overlap %.4f, score %.4f, want %.4f", w.Class, w.Box, best, score, w.Score)
				}
			}
		})
	}
	if seen == 0 {
		t.Fatal("the index names no output that is there")
	}
}

func yoloxHeads(t testing.TB) []tensor.Tensor {
	dir, index := goldens(t)
	for _, g := range index {
		if strings.HasPrefix(g.Output, "yolox_nano__street") {
			return g.heads(t, dir)
		}
	}
	t.Fatal("no golden output of YOLOX-nano")
	return nil
}

func TestASteadyStreamAllocatesNothing(t *testing.T) {
	heads := yoloxHeads(t)
	in, o := mustLoad(t, heads), &backendtest.Owner{Reuse: true}
	jobs := []*backend.Job{{Request: &infer.Request{}, Inputs: heads, Batch: 1, Owner: o}}
	n := testing.AllocsPerRun(50, func() {
		in.Execute(t.Context(), jobs)
		o.Response.Release()
	})
	if n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func BenchmarkYOLOXNano(b *testing.B) {
	heads := yoloxHeads(b)
	in, o := mustLoad(b, heads), &backendtest.Owner{Reuse: true}
	jobs := []*backend.Job{{Request: &infer.Request{}, Inputs: heads, Batch: 1, Owner: o}}
	b.ReportAllocs()
	for b.Loop() {
		in.Execute(b.Context(), jobs)
		o.Response.Release()
	}
}
