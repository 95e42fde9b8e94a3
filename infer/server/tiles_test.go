package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
)

// tiledPipeline is the pipeline that ships, looking at a frame in four parts and as a whole.
func tiledPipeline(t *testing.T) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for _, f := range []string{
		"prepare/config.pbtxt", "detector/config.pbtxt", "detector/labels.txt", "detector/1/model.onnx",
		"boxes/config.pbtxt", "tracker/config.pbtxt", "pipeline/config.pbtxt",
	} {
		b, err := os.ReadFile(filepath.Join("..", "..", "models", f))
		if err != nil {
			t.Fatal(err)
		}
		files[f] = string(b)
	}
	for _, m := range []string{"prepare", "boxes", "tracker", "pipeline"} {
		files[m+"/1/keep"] = ""
	}
	edit := func(file, old, now string) {
		if !strings.Contains(files[file], old) {
			t.Fatalf("%s has no %q", file, old)
		}
		files[file] = strings.Replace(files[file], old, now, 1)
	}
	const geometry = `{ name: "GEOMETRY" data_type: TYPE_FP32 dims: [ 6 ] }`
	const tile = geometry + `, { name: "TILE" data_type: TYPE_FP32 dims: [ 4 ] }`
	edit("prepare/config.pbtxt", geometry, tile)
	files["prepare/config.pbtxt"] += `parameters { key: "tiles" value { string_value: "2x2" } }`
	edit("boxes/config.pbtxt", geometry, tile)
	edit("boxes/config.pbtxt", "max_batch_size: 1", "max_batch_size: 5")
	edit("pipeline/config.pbtxt", `output_map { key: "GEOMETRY" value: "GEOMETRY" }`,
		`output_map { key: "GEOMETRY" value: "GEOMETRY" } output_map { key: "TILE" value: "TILE" }`)
	edit("pipeline/config.pbtxt", `input_map { key: "GEOMETRY" value: "GEOMETRY" }`,
		`input_map { key: "GEOMETRY" value: "GEOMETRY" } input_map { key: "TILE" value: "TILE" }`)
	return files
}

func TestTilesOfAFrameAreOneBatchOfTheDetector(t *testing.T) {
	if _, err := os.Stat(library()); err != nil {
		t.Skip("no ONNX Runtime:", err)
	}
	r := start(t, "--model-repository", repository(t, tiledPipeline(t)))
	client := dial(t, r.at("gRPC"))
	info := frame.Info{Format: frame.I420, Width: 1280, Height: 720}
	pixels, values := make([]byte, info.Format.Size(info.Width, info.Height)), info.Values()
	request := func(model string, inputs ...tensor.Tensor) *inference.ModelInferRequest {
		q := &inference.ModelInferRequest{ModelName: model, Parameters: map[string]*inference.InferParameter{
			"sequence_id": {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: 7}},
		}}
		for _, in := range inputs {
			q.Inputs = append(q.Inputs, &inference.ModelInferRequest_InferInputTensor{Name: in.Name, Datatype: in.DataType.String(), Shape: in.Shape})
			q.RawInputContents = append(q.RawInputContents, in.Data)
		}
		return q
	}
	now := tensor.Tensor{Name: "TIME", DataType: tensor.Int64, Shape: []int64{1, 1}, Data: tensor.AsBytes([]int64{0})}
	open := request("tracker", tensor.Tensor{Name: "BOXES", DataType: tensor.FP32, Shape: []int64{1, 0, 6}}, now)
	open.Parameters["sequence_start"] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: true}}
	if _, err := client.ModelInfer(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	resp, err := client.ModelInfer(t.Context(), request("pipeline",
		tensor.Tensor{Name: "FRAME", DataType: tensor.Uint8, Shape: []int64{1, int64(len(pixels))}, Data: pixels},
		tensor.Tensor{Name: "FRAME_INFO", DataType: tensor.Int64, Shape: []int64{1, frame.InfoLen}, Data: tensor.AsBytes(values[:])}, now))
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range resp.GetOutputs() {
		if out.GetName() == "BOXES" && (len(out.GetShape()) != 3 || out.GetShape()[0] != 1) {
			t.Errorf("BOXES has shape %v, want one row", out.GetShape())
		}
	}
	stats, err := client.ModelStatistics(t.Context(), &inference.ModelStatisticsRequest{Name: "detector"})
	if err != nil {
		t.Fatal(err)
	}
	var sizes []string
	for _, b := range stats.GetModelStats()[0].GetBatchStats() {
		sizes = append(sizes, fmt.Sprint(b.GetBatchSize()))
	}
	if got := strings.Join(sizes, " "); got != "5" {
		t.Errorf("the detector ran batches of %s, want 5", got)
	}
}
