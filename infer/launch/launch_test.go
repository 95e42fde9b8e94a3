package launch_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vedette/vedette/infer/launch"
	"github.com/vedette/vedette/infer/launch/launchtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	launchtest.Remove()
	os.Exit(code)
}

// repository holds one model, of this configuration.
func repository(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "m", "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "m", "config.pbtxt"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

const model = `backend: "identity" input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] }`

func TestAServerIsThereUntilItIsClosed(t *testing.T) {
	program, library := launchtest.Program(t)
	s, err := launch.Start(t.Context(), launch.Config{Program: program, Library: library, Repositories: []string{repository(t, model)}, Load: []string{"m"}})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Memory(t.Context()); err != nil || n < 1<<20 {
		t.Errorf("it has %d bytes, %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-s.Ended()
	if _, err := os.Stat(strings.TrimPrefix(s.Target, "unix://")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its socket: %v", err)
	}
}

func TestAServerThatCannotLoadSaysWhy(t *testing.T) {
	program, library := launchtest.Program(t)
	for _, c := range []struct{ name, program, config, want string }{
		{"no program", "/none", model, "/none"},
		{"a model that does not load", program, `backend: "none"`, "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := launch.Start(t.Context(), launch.Config{Program: c.program, Library: library, Repositories: []string{repository(t, c.config)}, Load: []string{"m"}})
			if err == nil {
				t.Fatal("started", s.Close())
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %s", err, c.want)
			}
		})
	}
}
