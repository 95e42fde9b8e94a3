package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// TestAProgramRunsFromItsImage makes an image of a program of this machine, unpacks it, and runs the program with the
// image's own loader and libraries.
func TestAProgramRunsFromItsImage(t *testing.T) {
	program, err := exec.LookPath("sha256sum")
	if err != nil {
		t.Skip("there is no sha256sum to make an image of")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "hello.txt")
	if err := os.WriteFile(file, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var digests []string
	for _, to := range []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")} {
		if err := run(to, []string{program, file + "=/usr/share/hello.txt"}); err != nil {
			t.Fatal(err)
		}
		index, err := layout.ImageIndexFromPath(to)
		if err != nil {
			t.Fatal(err)
		}
		m, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, m.Manifests[0].Digest.String())
		if to != filepath.Join(dir, "a") {
			continue
		}
		image, err := index.Image(m.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		c, err := image.ConfigFile()
		if err != nil || c.Config.User != "65532:65532" || c.Config.Entrypoint[0] != "/usr/bin/sha256sum" {
			t.Errorf("configuration %+v, %v", c, err)
		}
		if manifest, err := image.Manifest(); err != nil || manifest.MediaType != types.OCIManifestSchema1 || manifest.Config.MediaType != types.OCIConfigJSON {
			t.Errorf("manifest %+v, %v", manifest, err)
		}
		if owner := foldersOf(t, mutate.Extract(image))["var/lib/vedette"]; owner != 65532 {
			t.Errorf("the data directory belongs to %d", owner)
		}
		unpack(t, mutate.Extract(image), filepath.Join(dir, "root"))
	}
	if digests[0] != digests[1] {
		t.Errorf("the same files gave %s and %s", digests[0], digests[1])
	}
	root := filepath.Join(dir, "root")
	loaders, _ := filepath.Glob(filepath.Join(root, "lib*", "ld-linux-*"))
	if len(loaders) == 0 {
		t.Fatal("there is no loader in the image")
	}
	var libraries []string
	for _, dir := range searched(nil) {
		libraries = append(libraries, filepath.Join(root, dir))
	}
	cmd := exec.CommandContext(t.Context(), loaders[0], "--inhibit-cache", "--library-path", strings.Join(libraries, ":"), filepath.Join(root, "usr/bin/sha256sum"), filepath.Join(root, "usr/share/hello.txt"))
	cmd.Env = []string{}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestAnImageOfNothingIsRefused(t *testing.T) {
	for _, args := range [][]string{{}, {"/etc/hostname=/x"}, {"/does/not/exist"}} {
		if err := run(filepath.Join(t.TempDir(), "image"), args); err == nil {
			t.Errorf("%v made an image", args)
		}
	}
}

// foldersOf gives the owners of an image's folders.
func foldersOf(t *testing.T, from io.ReadCloser) map[string]int {
	t.Helper()
	defer func() { _ = from.Close() }()
	owners := map[string]int{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return owners
		} else if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			owners[filepath.Clean(h.Name)] = h.Uid
		}
	}
}

func unpack(t *testing.T, from io.ReadCloser, root string) {
	t.Helper()
	defer func() { _ = from.Close() }()
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, os.FileMode(h.Mode))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
