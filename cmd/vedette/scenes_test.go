package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/demo"
)

// TestMeasureOtherScenes renders streets that neither the detector nor the settings of the tracker were made with, and
// compares what the whole appliance makes of each, every frame analysed, with the truth.
func TestMeasureOtherScenes(t *testing.T) {
	if !*measure {
		t.Skip("make bench measures")
	}
	lib := onnxruntime(t)
	for _, seed := range []int{4242, 9001} {
		clip, truth := renderScene(t, seed)
		c, err := demo.New(demo.Config{Clip: clip})
		if err != nil {
			t.Fatal(err)
		}
		runCamera(t, c)
		p := launch(t, t.TempDir(), "--onnxruntime", lib)
		p.cli("camera", "add", "scene", c.URL(), "--every-frame", "--pipeline", "demo")
		p.until("detections", 60*time.Second, func() bool { return len(p.tracks(`camera = "scene"`)) > 0 })
		from := time.Now()
		p.until("a minute of detections", 90*time.Second, func() bool { return len(p.detections("scene", from.Add(59*time.Second))) > 0 })
		f := score(t, fmt.Sprintf("seed %d", seed), c, truth, p.detections("scene", from))
		fmt.Printf("# seed %d: %+v\n", seed, f)
		verdict := "ok"
		if f.MOTA < 80 {
			verdict = "over"
		}
		fmt.Printf("scene_%d_mota %.1f percent >=80.0 %s\n", seed, f.MOTA, verdict)
		p.kill()
	}
}

// renderScene draws the street of a seed.
func renderScene(t *testing.T, seed int) ([]byte, *demo.GroundTruth) {
	t.Helper()
	dir := t.TempDir()
	render := exec.CommandContext(t.Context(), "go", "run", "github.com/vedette/vedette/appliance/demo/render", "-clip", dir, "-seed", fmt.Sprint(seed))
	if out, err := render.CombinedOutput(); err != nil {
		t.Fatalf("render seed %d: %v\n%s", seed, err, out)
	}
	clip, err := os.ReadFile(filepath.Join(dir, "street.h264"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "truth.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	truth, err := demo.ReadTruth(f)
	if err != nil {
		t.Fatal(err)
	}
	return clip, truth
}
