// Package launchtest builds the inference server for tests that start it.
package launchtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is the folder of what build made, once for all tests of a package.
//
//nolint:gochecknoglobals // tests share it
var (
	built string
	build = sync.OnceValues(compile)
)

func compile() (string, error) {
	dir, err := os.MkdirTemp("", "vedette-infer-")
	if err != nil {
		return "", err
	}
	built = dir
	path := filepath.Join(dir, "vedette-infer")
	out, err := exec.CommandContext(context.Background(), "go", "build", "-o", path, "github.com/vedette/vedette/cmd/vedette-infer").CombinedOutput()
	if err != nil {
		return path, fmt.Errorf("build vedette-infer: %w: %s", err, out)
	}
	return path, nil
}

// Program returns vedette-infer, built once for all tests of a package, and the ONNX Runtime library it is to use;
// without the library the test is skipped.
func Program(t testing.TB) (program, library string) {
	t.Helper()
	library, err := filepath.Abs("../../third_party/onnxruntime/libonnxruntime.so.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(library); err != nil {
		t.Skipf("%s is not there: make deps fetches it", library)
	}
	program, err = build()
	if err != nil {
		t.Fatal(err)
	}
	return program, library
}

// Remove removes what Program built; it is for TestMain.
func Remove() {
	if built != "" {
		_ = os.RemoveAll(built)
	}
}
