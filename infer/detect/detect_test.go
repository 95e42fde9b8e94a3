package detect_test

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vedette/vedette/infer/detect"
	"github.com/vedette/vedette/infer/launch/launchtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	launchtest.Remove()
	os.Exit(code)
}

func config(t *testing.T, repository string) detect.Config {
	t.Helper()
	program, library := launchtest.Program(t)
	return detect.Config{Program: program, Library: library, Repository: repository}
}

// shipped copies the models that ship, with one file changed.
func shipped(t *testing.T, file, old, now string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range []string{
		"prepare/config.pbtxt", "detector/config.pbtxt", "detector/labels.txt", "detector/1/model.onnx",
		"boxes/config.pbtxt", "tracker/config.pbtxt", "pipeline/config.pbtxt",
	} {
		b, err := os.ReadFile(filepath.Join("..", "..", "models", f))
		if err != nil {
			t.Fatal(err)
		}
		if f == file {
			if !bytes.Contains(b, []byte(old)) {
				t.Fatalf("%s has no %q", f, old)
			}
			b = bytes.Replace(b, []byte(old), []byte(now), 1)
		}
		path := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Join(filepath.Dir(path), "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func grey(t *testing.T) []byte {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, 320, 240))
	for i := range m.Pix {
		m.Pix[i] = color.Gray{Y: uint8(i % 251)}.Y
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAPictureGoesTheWayOfAFrame(t *testing.T) {
	d, err := detect.Open(t.Context(), config(t, shipped(t, "", "", "")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	if want := []string{"person", "bicycle", "car", "bus", "truck", "motorcycle"}; !slices.Equal(d.Labels, want) {
		t.Errorf("labels %q, want %q", d.Labels, want)
	}
	if d.Begins != 0.8 {
		t.Errorf("a track begins from a score of %g", d.Begins)
	}
	if _, err := d.Detect(t.Context(), grey(t)); err != nil {
		t.Error(err)
	}
	if _, err := d.Detect(t.Context(), []byte("no picture")); err == nil || !strings.Contains(err.Error(), "neither JPEG nor PNG") {
		t.Errorf("no picture: %v", err)
	}
}

func TestARepositoryThatCannotBeServedSaysWhy(t *testing.T) {
	for _, c := range []struct{ name, file, old, now, want string }{
		{"a detector that does not fit its file", "detector/config.pbtxt", "3549, 11", "3549, 10", "the model configuration specifies"},
		{"an ensemble that cannot be read", "pipeline/config.pbtxt", "name:", "nome:", "unknown field"},
		{"labels that are not there", "detector/config.pbtxt", "labels.txt", "none.txt", "none.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := detect.Open(t.Context(), config(t, shipped(t, c.file, c.old, c.now)))
			if err == nil {
				t.Fatal("served", d.Close())
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	if _, err := detect.Open(t.Context(), detect.Config{Program: "/none", Repository: shipped(t, "", "", "")}); err == nil || !strings.Contains(err.Error(), "/none") {
		t.Errorf("a program that is not there: %v", err)
	}
}
