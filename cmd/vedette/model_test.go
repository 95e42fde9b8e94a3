package main_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A detector is pulled from a server, becomes a pipeline, and a camera that is sent to it yields tracks.
func TestAPulledDetectorFollowsWhatACameraSees(t *testing.T) {
	library := onnxruntime(t)
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	model, err := os.ReadFile(filepath.Join(root, "models/demo-detector/1/model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(root, "models/demo-detector/1"))))
	defer server.Close()
	data := t.TempDir()
	catalogue := filepath.Join(t.TempDir(), "catalogue.yaml")
	text := fmt.Sprintf(`models:
- {name: other, title: a test, licence: Apache-2.0, url: "%s/model.onnx", sha256: %x, bytes: %d, input: 416x416, classes: "5", accuracy: none}
`, server.URL, sha256.Sum256(model), len(model))
	if err := os.WriteFile(catalogue, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	vedette := func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(dir, "vedette"), append(args, "--data-dir", data)...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	models, err := filepath.Abs(filepath.Join(root, "models"))
	if err != nil {
		t.Fatal(err)
	}
	picture := filepath.Join(t.TempDir(), "seen.png")
	out, err := vedette("model", "pull", "other", "--catalogue", catalogue, "--models", models, "--onnxruntime", library, "--out", picture)
	if err != nil || !strings.Contains(out, "yolox") || !strings.Contains(out, "[==============================]") {
		t.Fatalf("vedette model pull: %v\n%s", err, out)
	}
	if b, err := os.ReadFile(picture); err != nil || !strings.HasPrefix(string(b), "\x89PNG") {
		t.Errorf("the picture: %v", err)
	}
	if out, err := vedette("model", "list", "--catalogue", catalogue); err != nil || !strings.Contains(out, "yes") {
		t.Errorf("vedette model list: %v\n%s", err, out)
	}
	if out, err := vedette("model", "pull", "nobody"); err == nil || !strings.Contains(out, "the catalogue has no") {
		t.Errorf("an unknown model: %v\n%s", err, out)
	}

	p := launch(t, data, "--demo", "--onnxruntime", library)
	p.cli("camera", "update", "street", "--pipeline", "other")
	p.until("tracks by the pulled detector", 60*time.Second, func() bool {
		// The filter knows nothing of models; the answer tells.
		var r struct{ Tracks []struct{ Model string } }
		if p.get("/v1/tracks?page_size=1000", &r) != nil {
			return false
		}
		for _, tr := range r.Tracks {
			if strings.HasPrefix(tr.Model, "other") {
				return true
			}
		}
		return false
	})
	// A second one comes and goes while the appliance runs.
	loaded := func(name string) bool {
		var r struct {
			Models []struct{ Name, State string }
		}
		if err := p.get("/v1/models", &r); err != nil {
			t.Fatal(err)
		}
		for _, m := range r.Models {
			if m.Name == "models/"+name && m.State == "READY" {
				return true
			}
		}
		return false
	}
	out, err = vedette("model", "import", filepath.Join(models, "detector/1/model.onnx"), "--name", "late", "--models", models, "--onnxruntime", library)
	if err != nil || !loaded("late") || !loaded("late-detector") {
		t.Errorf("vedette model import, live: %v\n%s", err, out)
	}
	p.cli("camera", "update", "street", "--pipeline", "late")
	p.until("frames analysed by the pipeline that came late", 60*time.Second, func() bool {
		var c struct{ Status struct{ AnalysedFps float64 } }
		return p.get("/v1/cameras/street", &c) == nil && c.Status.AnalysedFps > 0 && strings.Contains(p.output(), "reason=MODEL_CHANGED")
	})
	p.cli("camera", "update", "street", "--pipeline", "pipeline")
	for _, name := range []string{"late", "other"} {
		if out, err := vedette("model", "remove", name); err != nil || strings.Contains(out, "until vedette-infer starts again") {
			t.Errorf("vedette model remove: %v\n%s", err, out)
		}
	}
	if loaded("late") || loaded("late-detector") || loaded("other") {
		t.Error("what was removed is still loaded")
	}
}
