package main_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/internal/rtsptest"
)

var overload = flag.Bool("overload", false, "overload a box until cameras are shed, and let it recover; takes minutes")

// slowModels is the shipped repository with a step that takes as long as a parameter says, and how to change that while
// the models are served.
func slowModels(t *testing.T) (models string, take func(d time.Duration)) {
	t.Helper()
	models = t.TempDir()
	if err := os.CopyFS(models, os.DirFS(filepath.Join(root, "models"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(models, "pipeline/config.pbtxt")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), `output_map { key: "IMAGE" value: "IMAGE" }`, `output_map { key: "IMAGE" value: "FITTED" }`, 1)
	text = strings.Replace(text, `    {
      model_name: "detector"`, `    {
      model_name: "slow" model_version: -1
      input_map { key: "INPUT0" value: "FITTED" }
      output_map { key: "OUTPUT0" value: "IMAGE" }
    },
    {
      model_name: "detector"`, 1)
	if strings.Count(text, "FITTED") != 2 {
		t.Fatal("the shipped pipeline is not the one this test knows")
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(models, "slow/1"), 0o700); err != nil {
		t.Fatal(err)
	}
	take = func(d time.Duration) {
		t.Helper()
		config := fmt.Sprintf(`name: "slow" backend: "identity" max_batch_size: 1
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 3, 416, 416 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 3, 416, 416 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
parameters { key: "execute_delay_ms" value { string_value: "%d" } }
`, d.Milliseconds())
		if err := os.WriteFile(filepath.Join(models, "slow/config.pbtxt"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return models, take
}

// TestOverload gives the real processes a model that is too slow for four cameras: down every step of the ladder, and up
// again when the model is fast. The short form, without processes, is TestOverloadLowersTheRateAndGoesBackUp.
func TestOverload(t *testing.T) {
	if !*overload {
		t.Skip("make overload")
	}
	models, take := slowModels(t)
	take(700 * time.Millisecond)
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 320, Height: 240, Rate: 10, Frames: 100, GOP: 10})
	p := launch(t, t.TempDir(), "--onnxruntime", onnxruntime(t), "--models", models)
	p.until("the models", 2*time.Minute, func() bool { return strings.Contains(p.output(), "models are loaded") })
	priorities := map[string]string{"gate": "high", "door": "normal", "late": "normal", "yard": "low"}
	for _, name := range []string{"gate", "door", "yard", "late"} {
		p.cli("camera", "add", name, rtsptest.Start(t, rtsptest.Config{Clip: clip}).Address(), "--fps", "5", "--priority", priorities[name], "--allow-overload")
	}
	type load struct {
		Level      string
		LimitedFps float64
		Shed       []string
	}
	where := func() load {
		var r struct{ Load load }
		if err := p.get("/v1/system", &r); err != nil {
			t.Log(err)
		}
		return r.Load
	}
	began := time.Now()
	var order []string
	var levels []string
	look := func() load {
		l := where()
		if n := len(levels); n == 0 || levels[n-1] != l.Level {
			levels = append(levels, l.Level)
			fmt.Printf("# %5.1f s: %s, at most %.2f frames a second, shed %v\n", time.Since(began).Seconds(), l.Level, l.LimitedFps, l.Shed)
		}
		for _, c := range l.Shed {
			if !strings.Contains(strings.Join(order, " "), c) {
				order = append(order, c)
			}
		}
		return l
	}
	p.until("two cameras are shed", 2*time.Minute, func() bool { return len(look().Shed) >= 2 })
	report("overload_two_shed_after", time.Since(began).Seconds(), "s", 60)
	if got := strings.Join(order, " "); got != "cameras/yard cameras/late" && got != "yard late" {
		t.Errorf("shed were %s; the lowest priority goes first, then of equals the one registered last", got)
	}
	out, err := p.tryCLI("camera", "add", "more", "rtsp://127.0.0.1:1/", "--fps", "5")
	if err == nil || !strings.Contains(out, "overloaded") {
		t.Errorf("another camera: %v %s", err, out)
	}
	for name := range priorities { // shed or not, all stay connected and give pictures
		var c struct {
			Status struct{ State, AnalysisReason string }
		}
		if err := p.get("/v1/cameras/"+name, &c); err != nil || c.Status.State != "CAMERA_STATE_STREAMING" {
			t.Errorf("%s: %+v %v", name, c, err)
		}
		p.cli("camera", "snapshot", name, "--to", filepath.Join(t.TempDir(), name+".jpg"))
	}

	take(0)
	p.cli("call", "ModelService.LoadModel", `{"name": "models/slow"}`)
	began = time.Now()
	p.until("every camera is analysed as it asks", 10*time.Minute, func() bool {
		return look().Level == "LOAD_LEVEL_NORMAL"
	})
	report("overload_normal_again_after", time.Since(began).Seconds(), "s", 300)
	counts := map[string]int{}
	for _, kind := range []string{"camera_shed", "camera_unshed"} {
		var r struct{ Events []struct{ Camera string } }
		if err := p.get(`/v1/events?page_size=1000&filter=type+%3D+%22`+kind+`%22`, &r); err != nil {
			t.Fatal(err)
		}
		counts[kind] = len(r.Events)
	}
	fmt.Printf("# events %v, levels %v\n", counts, levels)
	report("overload_shed_more_often_than_needed", float64(counts["camera_shed"]-len(order)), "times", 0)
	report("overload_never_given_back", float64(counts["camera_shed"]-counts["camera_unshed"]), "cameras", 0)
}
