package prepare

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/tensor"
)

// load makes an instance of a model with this configuration.
func load(t testing.TB, config string) (backend.Instance, error) {
	t.Helper()
	c := &inference.ModelConfig{}
	if err := prototext.Unmarshal([]byte(config), c); err != nil {
		t.Fatal(err)
	}
	m := &backend.Model{Name: "prepare", Config: c, Logger: slog.New(slog.DiscardHandler)}
	if err := New().Complete(t.Context(), m); err != nil {
		return nil, err
	}
	return New().NewInstance(t.Context(), m, backend.Placement{CPUThreads: 1})
}

func mustLoad(t testing.TB, config string) backend.Instance {
	t.Helper()
	in, err := load(t, config)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func job(o *backendtest.Owner, pix []byte, info [frame.InfoLen]int64, more ...tensor.Tensor) *backend.Job {
	return &backend.Job{
		Request: &infer.Request{}, Batch: 1, Owner: o, Timing: &backend.Timing{},
		Inputs: append([]tensor.Tensor{
			{Name: "FRAME", DataType: tensor.Uint8, Shape: []int64{int64(len(pix))}, Data: pix},
			{Name: "FRAME_INFO", DataType: tensor.Int64, Shape: []int64{frame.InfoLen}, Data: tensor.AsBytes(info[:])},
		}, more...),
	}
}

func run(t testing.TB, in backend.Instance, pix []byte, info [frame.InfoLen]int64, more ...tensor.Tensor) (*infer.Response, error) {
	t.Helper()
	o := &backendtest.Owner{}
	in.Execute(t.Context(), []*backend.Job{job(o, pix, info, more...)})
	if (o.Response == nil) == (o.Err == nil) {
		t.Fatalf("response %v and error %v: want exactly one", o.Response, o.Err)
	}
	return o.Response, o.Err
}

// testData finds the folder of real data, or skips.
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

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(path, ".gz") {
		return b
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

// yolox and nanodet are configurations of two real models.
const (
	yolox   = `parameters { key: "family" value { string_value: "yolox" } } parameters { key: "size" value { string_value: "416" } }`
	nanodet = `parameters { key: "family" value { string_value: "nanodet" } } parameters { key: "size" value { string_value: "416" } }`
)

func TestGoldenPicturesBecomeTheGoldenInputs(t *testing.T) {
	dir := filepath.Join(testData(t), "models", "golden")
	var index []struct {
		Model, Input string
		Decoded      string  `json:"decoded_bgr"`
		Shape        []int64 `json:"decoded_shape"`
	}
	if err := json.Unmarshal(read(t, filepath.Join(dir, "index.json")), &index); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, g := range index {
		if _, err := os.Stat(filepath.Join(dir, g.Input+".gz")); err != nil {
			continue
		}
		seen++
		t.Run(g.Input, func(t *testing.T) {
			config, step := yolox, 1.0
			if g.Model == "nanodet_m" {
				config, step = nanodet, 1/57.12
			}
			r, err := run(t, mustLoad(t, config), read(t, filepath.Join(dir, g.Decoded)),
				[frame.InfoLen]int64{FormatBGR, g.Shape[1], g.Shape[0]})
			if err != nil {
				t.Fatal(err)
			}
			got, want := tensor.Float32s(r.Output("IMAGE").Data), tensor.Float32s(read(t, filepath.Join(dir, g.Input+".gz")))
			var worst float64
			beyond := 0
			for i := range want {
				d := math.Abs(float64(got[i]-want[i])) / step
				worst = max(worst, d)
				if d > 0.01 && (g.Model != "nanodet_m" || d > 1.01) {
					beyond++
				}
			}
			if beyond > 0 {
				t.Errorf("%d of %d values are off (any at all counts, with the mean over areas more than one grey level), the worst by %.2f", beyond, len(want), worst)
			}
		})
	}
	if seen == 0 {
		t.Fatal("the index names no input that is there")
	}
}
