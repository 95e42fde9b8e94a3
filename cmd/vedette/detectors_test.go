package main_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/demo"
	"github.com/vedette/vedette/appliance/demo/scene"
)

// figuresOf is what vedette eval detect writes as JSON.
type figuresOf []struct {
	Name   string
	AP50   float64
	Alarms float64 `json:"alarms_per_hour"`
}

func (f figuresOf) of(name string) float64 {
	for _, row := range f {
		if row.Name == name {
			return row.AP50 / 100
		}
	}
	return -1
}

func (f figuresOf) alarms() float64 {
	for _, row := range f {
		if row.Name == "all" {
			return row.Alarms
		}
	}
	return -1
}

var candidate = flag.String("candidate", "", "compare only this ONNX file, whose labels.txt lies beside it")

// TestCompareDetectors compares the detectors that ship, as they do, with others, each imported: average precision at an
// overlap of one half on the demo's clip and, where the test data are there, on real streets; how often an hour a track
// would begin where nothing is; the processor time of one picture, read and fitted; the size of the file.
func TestCompareDetectors(t *testing.T) {
	if !*measure {
		t.Skip("make bench-detectors measures")
	}
	library := onnxruntime(t)
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	data := os.Getenv("VEDETTE_TEST_DATA")
	if data == "" {
		data = filepath.Join(root, "../shared/data")
	}
	models := map[string]string{
		"shipped": filepath.Join(root, "models/detector/1/model.onnx"), "demo": filepath.Join(root, "models/demo-detector/1/model.onnx"),
	}
	for name, file := range map[string]string{
		"yolox_nano": "yolox_nano.onnx", "nanodet": "object_detection_nanodet_2022nov.onnx", "fastestdet": "FastestDet.onnx",
	} {
		if path := filepath.Join(data, "models", file); exists(path) {
			models[name] = absolute(t, path)
		}
	}
	work := t.TempDir()
	vedette := func(args ...string) (busy time.Duration) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "vedette"), args...)
		cmd.Dir = work
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("vedette %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() // with the inference server's, for which it waits
	}
	labels, ships := map[string]string{}, map[string]string{"shipped": "pipeline", "demo": "demo"}
	names := []string{"shipped", "demo", "yolox_nano", "nanodet", "fastestdet"}
	if *candidate != "" {
		models["candidate"], labels["candidate"] = *candidate, filepath.Join(filepath.Dir(*candidate), "labels.txt")
		names = []string{"candidate"}
	}
	shipped, street := absolute(t, filepath.Join(root, "models")), demoPictures(t)
	for _, name := range names {
		file, known := models[name]
		if !known {
			fmt.Println("# no test data:", name)
			continue
		}
		repository, pipeline := shipped, ships[name]
		if pipeline == "" {
			repository, pipeline = filepath.Join(work, "models"), strings.ReplaceAll(name, "_", "-")
			args := []string{"model", "import", absolute(t, file), "--name", pipeline, "--models", shipped, "--onnxruntime", library, "--data-dir", work}
			if l := labels[name]; l != "" {
				args = append(args, "--labels", l)
			}
			vedette(args...)
			// Precision is wanted at every recall, so that doubtful boxes count too, as they do where nothing was imported.
			boxes := filepath.Join(repository, pipeline+"-boxes", "config.pbtxt")
			text, err := os.ReadFile(boxes)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, `parameters { key: "score_threshold" value { string_value: "0.01" } }`...)
			if err := os.WriteFile(boxes, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		score := func(args ...string) (f figuresOf, busy time.Duration) {
			out := filepath.Join(work, "figures.json")
			busy = vedette(append([]string{"eval", "detect", "--models", repository, "--pipeline", pipeline, "--onnxruntime", library, "--json", out}, args...)...)
			b, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, &f); err != nil {
				t.Fatal(err)
			}
			return f, busy
		}
		line := func(what string, value float64, unit string) {
			fmt.Printf("detector_%s_%s %.3f %s - ok\n", name, what, value, unit)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		line("size", float64(info.Size())/1e6, "MB")
		f, _ := score(street)
		line("demo_ap50", f.of("all"), "AP50")
		val := filepath.Join(data, "street", "val.json")
		if !exists(val) {
			continue
		}
		f, busy := score(absolute(t, val), "--pictures", absolute(t, filepath.Join(data, "street", "val")))
		sum := 0.0
		// One bicycle is annotated on the highway: no measure.
		for _, class := range []string{"person", "car", "motorcycle", "bus", "truck"} {
			line("highway_"+class, f.of("highway/"+class), "AP50")
			sum += max(0, f.of("highway/"+class))
		}
		line("highway_map50", sum/5, "AP50")
		line("street_map50", f.of("all"), "AP50")
		line("false_alarms", f.alarms(), "an_hour")
		line("picture_time", float64(busy.Microseconds())/1000/986, "ms")
		f, _ = score(vtestPictures(t, data)...)
		line("vtest_person", f.of("vtest-480x360"), "AP50")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// demoPictures takes pictures of the embedded clip and writes what they show beside them, in COCO's format.
func demoPictures(t *testing.T) (annotations string) {
	t.Helper()
	const every = 45
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", filepath.Join(root, "appliance/demo/clip/street.h264"),
		"-vf", fmt.Sprintf(`select=not(mod(n\,%d))`, every), "-fps_mode", "passthrough", "-q:v", "2", filepath.Join(dir, "%d.jpg")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	truth, err := demo.Truth()
	if err != nil {
		t.Fatal(err)
	}
	type row = map[string]any
	var categories, images, boxes []row
	for i, name := range scene.Classes() {
		categories = append(categories, row{"id": i, "name": name})
	}
	for n := 0; n*every < scene.Frames; n++ {
		images = append(images, row{"id": n, "file_name": fmt.Sprintf("%d.jpg", n+1)})
		for _, o := range truth.Frame(int64(n * every)) {
			crowd := 0
			if !o.Scored { // neither asked for nor wrong
				crowd = 1
			}
			box := o.Full
			boxes = append(boxes, row{"id": len(boxes), "image_id": n, "category_id": o.Class, "iscrowd": crowd, "bbox": []float64{box.X0, box.Y0, box.X1 - box.X0, box.Y1 - box.Y0}})
		}
	}
	b, err := json.Marshal(row{"categories": categories, "images": images, "annotations": boxes})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "street.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// vtestPictures are the arguments that score people in every 15th frame of a real clip.
func vtestPictures(t *testing.T, data string) []string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", filepath.Join(data, "video/vtest.mp4"),
		"-vf", "scale=480:360", "-q:v", "2", filepath.Join(dir, "%06d.jpg")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return []string{absolute(t, filepath.Join(data, "mot/vtest-480x360/gt.txt")), "--pictures", dir, "--every", "15"}
}
