package adopt_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/infer/adopt"
	"github.com/vedette/vedette/infer/launch/launchtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { launchtest.Remove(); os.Exit(code) }))
}

const shipped = "../../models"

func grey(t *testing.T) []byte {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, 320, 180))
	for i := range img.Pix {
		img.Pix[i] = 128
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func config(t *testing.T, file, name string) adopt.Config {
	t.Helper()
	program, library := launchtest.Program(t)
	return adopt.Config{File: file, Name: name, Repository: t.TempDir(), Shipped: shipped, Program: program, Library: library, Pictures: [][]byte{grey(t)}}
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

const demoDetector = shipped + "/demo-detector/1/model.onnx"

func TestADetectorBecomesAPipelineThatLoads(t *testing.T) {
	cfg := config(t, demoDetector, "street")
	cfg.Labels = []string{"person", "bicycle", "car", "bus", "truck"}
	r, err := adopt.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Family != "yolox" || r.Classes != 5 || r.Width != 416 || r.Height != 416 {
		t.Errorf("report %+v", r)
	}
	want := []string{"street", "street-boxes", "street-detector", "street-prepare"}
	if got := entries(t, cfg.Repository); !slices.Equal(got, want) {
		t.Errorf("the repository holds %v", got)
	}
	text, err := os.ReadFile(filepath.Join(cfg.Repository, "street", "config.pbtxt"))
	if err != nil || !strings.Contains(string(text), "person,bicycle,car,bus,truck") {
		t.Errorf("the pipeline has no labels: %v\n%s", err, text)
	}
	// Once more is refused, and replaces when it may.
	if _, err := adopt.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second time: %v", err)
	}
	cfg.Replace = true
	if _, err := adopt.Run(t.Context(), cfg); err != nil {
		t.Errorf("replacing: %v", err)
	}
	if got := entries(t, cfg.Repository); !slices.Equal(got, want) {
		t.Errorf("after replacing the repository holds %v", got)
	}
}

func TestWhatIsNoDetectorLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	model, err := os.ReadFile(demoDetector)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, file, model, want string }{
		{"no file", filepath.Join(dir, "nothing"), "x", "no such file"},
		{"a page of a web server", file("page", "<!DOCTYPE html><html></html>"), "x", "a text"},
		{"noise", file("noise", strings.Repeat("\x07noise", 99)), "x", "no ONNX file"},
		{"half a file", file("half", string(model[:len(model)/2])), "x", "no ONNX file"},
		{"a name with a path", demoDetector, "../x", "cannot be called"},
		{"a shipped name", demoDetector, "tracker", "cannot be called"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, c.file, c.model)
			_, err := adopt.Run(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if got := entries(t, cfg.Repository); len(got) > 0 {
				t.Errorf("left behind: %v", got)
			}
		})
	}
	t.Run("names for another number of classes", func(t *testing.T) {
		cfg := config(t, demoDetector, "x")
		cfg.Labels = []string{"cat", "dog"}
		if _, err := adopt.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "names for 2") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a picture that is none", func(t *testing.T) {
		cfg := config(t, demoDetector, "x")
		cfg.Pictures = [][]byte{[]byte("no picture")}
		if _, err := adopt.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "neither JPEG nor PNG") {
			t.Errorf("got %v", err)
		}
	})
}

// Real detectors of three families, exported for a batch of one; what they see on a street is compared with their own
// reference answers by the tests of boxes, so here it must be plausible.
func TestPublicDetectorsAreAdopted(t *testing.T) {
	data := os.Getenv("VEDETTE_TEST_DATA")
	if data == "" {
		data = "../../../shared/data"
	}
	if _, err := os.Stat(filepath.Join(data, "models")); err != nil {
		t.Skipf("no test data in %s: set VEDETTE_TEST_DATA", data)
	}
	picture, err := os.ReadFile(filepath.Join(data, "models", "golden", "bus.jpg"))
	if err != nil {
		t.Fatal(err)
	}
	for file, family := range map[string]string{"yolox_nano": "yolox", "object_detection_nanodet_2022nov": "nanodet", "FastestDet": "fastestdet"} {
		if testing.Short() && family != "yolox" {
			continue
		}
		t.Run(family, func(t *testing.T) {
			cfg := config(t, filepath.Join(data, "models", file+".onnx"), "public")
			cfg.Pictures = [][]byte{picture}
			r, err := adopt.Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if r.Family != family || r.Classes != 80 {
				t.Errorf("recognised as %s with %d classes", r.Family, r.Classes)
			}
			seen := map[string]int{}
			for _, b := range r.Boxes {
				if b.Score > 0.5 {
					seen[b.Label]++
				}
			}
			if seen["person"] < 2 || seen["bus"] != 1 {
				t.Errorf("seen on a picture of a bus and people: %v", seen)
			}
			drawn, err := adopt.Draw(picture, r.Boxes, 0.3)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := png.DecodeConfig(bytes.NewReader(drawn)); err != nil {
				t.Error(err)
			}
			if dir := os.Getenv("ADOPT_PICTURES"); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, family+".png"), drawn, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Log(fmt.Sprint(r.Input, r.Outputs, r.Batch, seen))
		})
	}
}
