package bytetrack_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/backend/boxes"
	"github.com/vedette/vedette/infer/backend/bytetrack"
	"github.com/vedette/vedette/infer/backend/onnxruntime"
	"github.com/vedette/vedette/infer/backend/prepare"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
	"github.com/vedette/vedette/tracker/rows"
)

// The four models of a frame's way, joined by hand: what an ensemble does, without it.

// step is one model of the chain.
type step struct {
	instance backend.Instance
	owner    backendtest.Owner
	timing   backend.Timing
}

func newStep(t testing.TB, b backend.Backend, dir, config string) *step {
	t.Helper()
	c := &inference.ModelConfig{}
	if err := prototext.Unmarshal([]byte(config), c); err != nil {
		t.Fatal(err)
	}
	m := &backend.Model{Name: "step", Version: 1, VersionDir: dir, Config: c, Logger: slog.New(slog.DiscardHandler)}
	if err := b.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	in, err := b.NewInstance(t.Context(), m, backend.Placement{CPUThreads: 1, GPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	return &step{instance: in, owner: backendtest.Owner{Reuse: true}}
}

// run executes one request. The response is the caller's to release.
func (s *step) run(t testing.TB, j backend.Job) *infer.Response {
	t.Helper()
	j.Request, j.Owner, j.Timing, j.Batch = &infer.Request{}, &s.owner, &s.timing, max(1, j.Batch)
	s.owner.Response, s.owner.Err = nil, nil
	s.instance.Execute(t.Context(), []*backend.Job{&j})
	if s.owner.Err != nil {
		t.Fatal(s.owner.Err)
	}
	return s.owner.Response
}

func parameters(kv ...string) string {
	out := ""
	for i := 0; i < len(kv); i += 2 {
		out += fmt.Sprintf("parameters { key: %q value { string_value: %q } }\n", kv[i], kv[i+1])
	}
	return out
}

// library is ONNX Runtime where make puts it.
func library(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "third_party", "onnxruntime", "libonnxruntime.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there: make deps fetches it", path)
	}
	return path
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

// chain is prepare, detector and boxes.
type chain struct {
	prepare, detector, boxes *step
	input                    string
}

func newChain(t testing.TB, family, file, boxParameters string) *chain {
	t.Helper()
	ort := onnxruntime.New(onnxruntime.Config{Library: library(t)})
	side := "416"
	if family == "fastestdet" {
		side = "352"
	}
	c := &chain{prepare: newStep(t, prepare.New(), "", parameters("family", family, "size", side))}
	dir := filepath.Join(testData(t), "models")
	detector := &inference.ModelConfig{DefaultModelFilename: file}
	m := &backend.Model{Name: family, VersionDir: dir, Config: detector, Logger: slog.New(slog.DiscardHandler)}
	if err := ort.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	c.input = detector.GetInput()[0].GetName()
	text, err := prototext.Marshal(detector)
	if err != nil {
		t.Fatal(err)
	}
	c.detector = newStep(t, ort, dir, string(text))
	heads := &inference.ModelConfig{Input: []*inference.ModelInput{
		{Name: "GEOMETRY", DataType: inference.DataType_TYPE_FP32, Dims: []int64{6}},
	}}
	for _, o := range detector.GetOutput() {
		heads.Input = append(heads.Input, &inference.ModelInput{Name: o.GetName(), DataType: o.GetDataType(), Dims: o.GetDims()})
	}
	if text, err = prototext.Marshal(heads); err != nil {
		t.Fatal(err)
	}
	c.boxes = newStep(t, boxes.New(), "", string(text)+boxParameters)
	return c
}

// detect runs a frame through the three models and gives the BOXES tensor to use.
func (c *chain) detect(t testing.TB, pixels []byte, info [frame.InfoLen]int64, use func(boxes tensor.Tensor)) {
	t.Helper()
	p := c.prepare.run(t, backend.Job{Inputs: []tensor.Tensor{
		{Name: "FRAME", DataType: tensor.Uint8, Shape: []int64{int64(len(pixels))}, Data: pixels},
		{Name: "FRAME_INFO", DataType: tensor.Int64, Shape: []int64{frame.InfoLen}, Data: tensor.AsBytes(info[:])},
	}})
	image := *p.Output("IMAGE")
	image.Name, image.Shape = c.input, append([]int64{1}, image.Shape...)
	d := c.detector.run(t, backend.Job{Inputs: []tensor.Tensor{image}})
	b := c.boxes.run(t, backend.Job{Inputs: append([]tensor.Tensor{*p.Output("GEOMETRY")}, d.Outputs...)})
	use(*b.Output("BOXES"))
	b.Release()
	d.Release()
	p.Release()
}

func iou(a tracker.Box, b [4]float64) float64 {
	w, h := min(a.X2, b[2])-max(a.X1, b[0]), min(a.Y2, b[3])-max(a.Y1, b[1])
	if w <= 0 || h <= 0 {
		return 0
	}
	return w * h / (a.Width()*a.Height() + (b[2]-b[0])*(b[3]-b[1]) - w*h)
}

func TestGoldenPicturesGiveTheGoldenDetections(t *testing.T) {
	dir := filepath.Join(testData(t), "models", "golden")
	text, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index []struct {
		Model, Image string
		Decoded      string  `json:"decoded_bgr"`
		Shape        []int64 `json:"decoded_shape"`
		Conf         float64 `json:"conf"`
		NMS          float64 `json:"nms_iou"`
		Detections   []struct {
			Class int        `json:"cls"`
			Score float64    `json:"score"`
			Box   [4]float64 `json:"xyxy"`
		}
	}
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	for _, g := range index {
		t.Run(g.Model+" "+g.Image, func(t *testing.T) {
			family, file := "yolox", "yolox_nano.onnx"
			if g.Model == "nanodet_m" {
				family, file = "nanodet", "object_detection_nanodet_2022nov.onnx"
			}
			c := newChain(t, family, file, parameters("score_threshold", fmt.Sprint(g.Conf), "nms_iou", fmt.Sprint(g.NMS)))
			pixels, err := os.ReadFile(filepath.Join(dir, g.Decoded))
			if err != nil {
				t.Fatal(err)
			}
			var dets []tracker.Detection
			c.detect(t, pixels, [frame.InfoLen]int64{prepare.FormatBGR, g.Shape[1], g.Shape[0]}, func(b tensor.Tensor) {
				if dets, err = rows.Boxes(nil, b.Data); err != nil {
					t.Fatal(err)
				}
			})
			if len(dets) != len(g.Detections) {
				t.Errorf("%d detections, want %d", len(dets), len(g.Detections))
			}
			for _, w := range g.Detections {
				best, score := 0.0, 0.0
				for _, d := range dets {
					if o := iou(d.Box, w.Box); d.Class == w.Class && o > best {
						best, score = o, d.Score
					}
				}
				if best < 0.99 || math.Abs(score-w.Score) > 0.01 {
					t.Errorf("class %d at %v: overlap %.4f, score %.4f, want %.4f", w.Class, w.Box, best, score, w.Score)
				}
			}
		})
	}
}

func TestARealClipIsFollowedAsWellAsByTheReference(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes and detects in 795 frames")
	}
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("ffmpeg is not installed")
	}
	dir := testData(t)
	gt, err := eval.ReadRowsFile(filepath.Join(dir, "mot", "vtest-480x360", "gt.txt"))
	if err != nil {
		t.Fatal(err)
	}
	c := newChain(t, "yolox", "yolox_nano.onnx", parameters("score_threshold", "0.01", "classes", "0", "nms_iou", "0.45"))
	follow := newStep(t, bytetrack.New(), "", parameters("mode", "conformance", "track_thresh", "0.5", "match_thresh", "0.8", "min_box_area", "10"))
	cmd := exec.CommandContext(t.Context(), ffmpeg, "-v", "error", "-i", filepath.Join(dir, "video", "vtest.mp4"),
		"-f", "rawvideo", "-pix_fmt", "yuv420p", "-")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	info := frame.Info{Format: frame.I420, Width: 480, Height: 360}
	pixels := make([]byte, info.Format.Size(info.Width, info.Height))
	open := backend.Job{Sequence: 1, Start: true, Inputs: []tensor.Tensor{
		{Name: "BOXES", DataType: tensor.FP32, Shape: []int64{0, 6}}, timeTensor(0),
	}}
	follow.run(t, open).Release()
	var result []eval.Row
	n := 0
	for ; ; n++ {
		if _, err := io.ReadFull(pipe, pixels); err != nil {
			break
		}
		c.detect(t, pixels, info.Values(), func(b tensor.Tensor) {
			r := follow.run(t, backend.Job{Sequence: 1, Inputs: []tensor.Tensor{b, timeTensor(time.Duration(n) * 100 * time.Millisecond)}})
			defer r.Release()
			tracks, err := rows.Tracks(nil, r.Output("TRACKS").Data, r.Output("TRACK_ID").Data)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range tracks {
				result = append(result, eval.Row{Frame: n + 1, ID: k.ID, Box: k.Box, Score: 1, Class: -1, Visibility: 1})
			}
		})
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if n != 795 {
		t.Fatalf("%d frames, want 795", n)
	}
	scored, err := eval.Score("vtest", gt, result)
	if err != nil {
		t.Fatal(err)
	}
	score := scored.Figures()
	t.Logf("MOTA %.2f IDF1 %.2f HOTA %.2f", score.MOTA, score.IDF1, score.HOTA)
	if score.MOTA < 81 || score.IDF1 < 64 {
		t.Errorf("MOTA %.2f, IDF1 %.2f: below 81 and 64", score.MOTA, score.IDF1)
	}
}

func timeTensor(at time.Duration) tensor.Tensor {
	return tensor.Tensor{Name: "TIME", DataType: tensor.Int64, Shape: []int64{1}, Data: tensor.AsBytes([]int64{int64(at)})}
}
