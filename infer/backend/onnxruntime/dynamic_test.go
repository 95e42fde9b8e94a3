package onnxruntime

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

func realModel(t *testing.T, file, config string) *backend.Model {
	t.Helper()
	dir := os.Getenv("VEDETTE_TEST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "data")
	}
	m := model(t, file, config)
	m.VersionDir = filepath.Join(dir, "models")
	if _, err := os.Stat(filepath.Join(m.VersionDir, file+".onnx")); err != nil {
		t.Skipf("no test data: %v: set VEDETTE_TEST_DATA", err)
	}
	return m
}

const free = `parameters { key: "dynamic_batch" value { string_value: "true" } }`

func TestR8AModelForOnePictureBatchesAfterImport(t *testing.T) {
	m := realModel(t, "yolox_nano", free)
	b := New(Config{Library: library(t)})
	if err := b.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if c := m.Config; c.GetMaxBatchSize() != defaultMaxBatch || len(c.GetOutput()[0].GetDims()) != 2 || c.GetOutput()[0].GetDims()[0] != 3549 {
		t.Errorf("completed to %v", c)
	}
	in, err := b.NewInstance(t.Context(), m, backend.Placement{CPUThreads: 1, GPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{instance: in, model: m, pool: &tensor.Pool{}}
	defer func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}()
	o := newOwner(nil)
	shape := []int64{1, 3, 416, 416}
	picture := func(k int) tensor.Tensor {
		v := make([]float32, 3*416*416)
		for i := range v {
			v[i] = float32((i*(k+3) + i/416) % 256)
		}
		return floats("images", shape, v...)
	}
	jobs := []*backend.Job{job(o, 1, picture(0)), job(o, 1, picture(1))}
	together := r.run(t, o, jobs...)
	for i := range jobs {
		alone := tensor.Float32s(r.run(t, o, job(o, 1, picture(i)))[0].Output("output").Data)
		got := tensor.Float32s(together[i].Output("output").Data)
		for k := range alone {
			if math.Abs(float64(got[k]-alone[k])) > 1e-3+1e-3*math.Abs(float64(alone[k])) {
				t.Fatalf("picture %d, value %d: %g in a batch, %g alone", i, k, got[k], alone[k])
			}
		}
	}
}

func TestAModelThatDependsOnItsBatchIsRefused(t *testing.T) {
	for _, file := range []string{"object_detection_nanodet_2022nov", "FastestDet"} {
		err := New(Config{Library: library(t)}).Complete(t.Context(), realModel(t, file, free))
		if err == nil || !strings.Contains(err.Error(), "dynamic_batch") {
			t.Errorf("%s: got %v", file, err)
		}
	}
}

func FuzzFreeBatch(f *testing.F) {
	for _, name := range []string{"conv", "echo", "ones"} {
		b, err := os.ReadFile(filepath.Join("testdata", name+".onnx"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := freeBatch(data)
		if err != nil {
			return
		}
		// What was freed stays as it is, and nothing grows beyond a name for each shape.
		again, err := freeBatch(out)
		if err != nil || len(again) > len(out)+64 && len(again) > 2*len(out) {
			t.Errorf("%d bytes became %d and then %d: %v", len(data), len(out), len(again), err)
		}
	})
}

func FuzzWiden(f *testing.F) {
	for _, name := range []string{"open", "echo", "ones"} {
		b, err := os.ReadFile(filepath.Join("testdata", name+".onnx"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	casts := func(t *testing.T, model []byte) (graphs, nodes int) {
		t.Helper()
		err := each(model, func(n protowire.Number, w protowire.Type, _, graph []byte) error {
			if n != modelGraph || w != protowire.BytesType {
				return nil
			}
			graphs++
			return each(graph, func(n protowire.Number, w protowire.Type, _, node []byte) error {
				if n == graphNode && w == protowire.BytesType && text(node, nodeOutput) == "OUT_H"+wideSuffix {
					nodes++
				}
				return nil
			})
		})
		if err != nil {
			t.Errorf("what was widened cannot be read: %v", err)
		}
		return graphs, nodes
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = takesEmpty(data) // says so, or why not
		out, err := widen(data, []string{"OUT_H"})
		if err != nil {
			return
		}
		// Every graph has one more node, and what is there twice is there twice as often.
		graphs, once := casts(t, out)
		again, err := widen(out, []string{"OUT_H"})
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := casts(t, again); once < graphs || twice != once+graphs {
			t.Errorf("%d graphs have %d nodes, and then %d", graphs, once, twice)
		}
	})
}
