package bytetrack_test

import (
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/boxes"
	"github.com/vedette/vedette/infer/backend/prepare"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
	"github.com/vedette/vedette/tracker/rows"
)

// tiledBoxes detects in the tiles of a frame, one after the other, and joins them.
func (c *chain) tiledBoxes(t testing.TB, prepareTiles, joinTiles *step, pixels []byte, info [frame.InfoLen]int64) []tracker.Detection {
	t.Helper()
	p := prepareTiles.run(t, backend.Job{Inputs: []tensor.Tensor{
		{Name: "FRAME", DataType: tensor.Uint8, Shape: []int64{1, int64(len(pixels))}, Data: pixels},
		{Name: "FRAME_INFO", DataType: tensor.Int64, Shape: []int64{1, frame.InfoLen}, Data: tensor.AsBytes(info[:])},
	}})
	defer p.Release()
	images := p.Output("IMAGE")
	n := int(images.Shape[0])
	var raw tensor.Tensor
	for i := range n {
		size := len(images.Data) / n
		d := c.detector.run(t, backend.Job{Inputs: []tensor.Tensor{{
			Name: c.input, DataType: tensor.FP32, Shape: append([]int64{1}, images.Shape[1:]...), Data: images.Data[i*size:][:size],
		}}})
		raw.Name, raw.DataType, raw.Shape = d.Outputs[0].Name, tensor.FP32, slices.Clone(d.Outputs[0].Shape)
		raw.Data = append(raw.Data, d.Outputs[0].Data...)
		d.Release()
	}
	raw.Shape[0] = int64(n)
	b := joinTiles.run(t, backend.Job{Batch: n, Inputs: []tensor.Tensor{raw, *p.Output("GEOMETRY"), *p.Output("TILE")}})
	defer b.Release()
	found, err := rows.Boxes(nil, b.Output("BOXES").Data)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// matched counts annotated people found at an overlap of a half, and detections that are nobody.
func matched(people []tracker.Box, found []tracker.Detection) (hits, wrong int) {
	taken := make([]bool, len(people))
	for _, d := range found {
		best, at := 0.5, -1
		for i, p := range people {
			if o := iou(d.Box, [4]float64{p.X1, p.Y1, p.X2, p.Y2}); !taken[i] && o >= best {
				best, at = o, i
			}
		}
		if at < 0 {
			wrong++
			continue
		}
		taken[at] = true
		hits++
	}
	return hits, wrong
}

func TestTilesFindSmallPeople(t *testing.T) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("ffmpeg is not installed")
	}
	dir := testData(t)
	gt, err := eval.ReadRowsFile(filepath.Join(dir, "mot", "vtest-480x360", "gt.txt"))
	if err != nil {
		t.Fatal(err)
	}
	// Small for the network: the clip at half its size, in the middle of a larger frame.
	const w, h, every = 960, 720, 40
	const cut = `select=not(mod(n\,40)),scale=240:180,pad=960:720:360:270`
	c := newChain(t, "yolox", "yolox_nano.onnx", parameters("score_threshold", "0.3", "classes", "0"))
	tiled := newStep(t, prepare.New(), "", `max_batch_size: 1
		output { name: "IMAGE" data_type: TYPE_FP32 dims: [3, 416, 416] } output { name: "GEOMETRY" data_type: TYPE_FP32 dims: 6 }
		output { name: "TILE" data_type: TYPE_FP32 dims: 4 }`+parameters("family", "yolox", "tiles", "3x3"))
	heads := &inference.ModelConfig{MaxBatchSize: 10, Input: []*inference.ModelInput{
		{Name: "output", DataType: inference.DataType_TYPE_FP32, Dims: []int64{3549, 85}},
		{Name: "GEOMETRY", DataType: inference.DataType_TYPE_FP32, Dims: []int64{6}},
		{Name: "TILE", DataType: inference.DataType_TYPE_FP32, Dims: []int64{4}},
	}}
	text, err := prototext.Marshal(heads)
	if err != nil {
		t.Fatal(err)
	}
	joined := newStep(t, boxes.New(), "", string(text)+parameters("score_threshold", "0.3", "classes", "0"))
	cmd := exec.CommandContext(t.Context(), ffmpeg, "-v", "error", "-i", filepath.Join(dir, "video", "vtest.mp4"),
		"-vf", cut, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	info := frame.Info{Format: frame.I420, Width: w, Height: h}
	pixels := make([]byte, info.Format.Size(w, h))
	var people, whole, wholeWrong, inTiles, inTilesWrong int
	for n := 0; ; n += every {
		if _, err := io.ReadFull(pipe, pixels); err != nil {
			break
		}
		var truth []tracker.Box
		for _, r := range gt {
			if r.Frame == n+1 {
				b := r.Box
				truth = append(truth, tracker.Box{X1: 360 + b.X1/2, Y1: 270 + b.Y1/2, X2: 360 + b.X2/2, Y2: 270 + b.Y2/2})
			}
		}
		people += len(truth)
		c.detect(t, pixels, info.Values(), func(b tensor.Tensor) {
			found, err := rows.Boxes(nil, b.Data)
			if err != nil {
				t.Fatal(err)
			}
			hits, wrong := matched(truth, found)
			whole, wholeWrong = whole+hits, wholeWrong+wrong
		})
		hits, wrong := matched(truth, c.tiledBoxes(t, tiled, joined, pixels, info.Values()))
		inTiles, inTilesWrong = inTiles+hits, inTilesWrong+wrong
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d people; whole: %d found, %d wrong; in tiles: %d found, %d wrong", people, whole, wholeWrong, inTiles, inTilesWrong)
	if people < 50 || inTiles < people/2 || inTiles < 2*whole || inTilesWrong > inTiles/2 {
		t.Errorf("of %d people tiles found %d (and %d wrong), the whole picture %d", people, inTiles, inTilesWrong, whole)
	}
}
