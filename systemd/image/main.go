// Command image makes an OCI image of the programs without Docker: each program with the shared libraries it needs, found
// as the loader finds them, the files that are named, and nothing else. The same files give the same image.
//
//	image -to bin/vedette-image bin/vedette bin/vedette-ingest bin/vedette-infer models=/usr/share/vedette/models
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	to := flag.String("to", "bin/vedette-image", "folder of the image, in the OCI layout")
	flag.Parse()
	if err := run(*to, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// Who the programs run as, and the folder that is theirs: a volume that is put there begins with its owner.
const (
	userID  = 65532
	dataDir = "/var/lib/vedette"
)

// run makes an image of programs and of FROM=TO, files and folders.
func run(to string, args []string) error {
	ours, libraries := map[string]string{}, map[string]string{} // path in the image: path here
	var programs []string
	for _, arg := range args {
		if from, into, ok := strings.Cut(arg, "="); ok {
			if err := addTree(ours, from, into); err != nil {
				return err
			}
			continue
		}
		programs = append(programs, arg)
		ours["/usr/bin/"+filepath.Base(arg)] = arg
	}
	if len(programs) == 0 {
		return errors.New("no program is named")
	}
	for _, path := range slices.Collect(maps.Values(ours)) {
		if err := addLibraries(libraries, path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, path := range []string{"/etc/ssl/certs/ca-certificates.crt", "/usr/share/zoneinfo"} {
		if err := addTree(libraries, path, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// What changes seldom goes below what changes often.
	base, err := layer(libraries, map[string]string{
		"/etc/passwd": fmt.Sprintf("vedette:x:%d:%[1]d::%s:/sbin/nologin\n", userID, dataDir), "/etc/group": fmt.Sprintf("vedette:x:%d:\n", userID),
		"/etc/nsswitch.conf": "hosts: files dns\n",
	}, folder{"/tmp", 0o1777, 0}, folder{dataDir, 0o750, userID})
	if err != nil {
		return err
	}
	top, err := layer(ours, nil)
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), base, top)
	if err == nil {
		image, err = mutate.ConfigFile(image, &v1.ConfigFile{
			Architecture: runtime.GOARCH, OS: "linux", RootFS: must(image.ConfigFile()).RootFS, History: must(image.ConfigFile()).History,
			Config: v1.Config{
				Entrypoint: []string{"/usr/bin/" + filepath.Base(programs[0])}, User: fmt.Sprintf("%d:%[1]d", userID), WorkingDir: "/",
				Env:     []string{"PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "VEDETTE_DATA_DIR=" + dataDir},
				Volumes: map[string]struct{}{dataDir: {}},
				Labels:  map[string]string{"org.opencontainers.image.title": "vedette"},
			},
		})
	}
	if err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	path, err := layout.Write(to, empty.Index)
	if err == nil {
		err = path.AppendImage(image, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "latest"}))
	}
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	fmt.Printf("%s: %s, %d files of the system and %d of our own\n", to, digest, len(libraries), len(ours))
	return err
}

// must is for what an image in memory always has.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// addTree adds a file, or a folder with what is below it.
func addTree(files map[string]string, from, into string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err == nil && regular(path) { // a link to a folder is left out
			files[filepath.Join(into, rel)] = path
		}
		return err
	})
}

// addLibraries adds the loader and the shared libraries that an ELF file needs, and those that they need.
func addLibraries(files map[string]string, path string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := io.ReadFull(from, magic); err != nil || string(magic) != elf.ELFMAG {
		return nil // a script, a model, something shorter
	}
	f, err := elf.NewFile(from)
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(p.Open())
		if err != nil {
			return err
		}
		loader := string(bytes.TrimRight(name, "\x00"))
		files[loader] = loader
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	own, _ := f.DynString(elf.DT_RUNPATH)
	for _, name := range needed {
		at, ok := find(name, own)
		if !ok {
			return fmt.Errorf("it needs %s, which is in none of %v", name, searched(own))
		}
		if files[at] != "" {
			continue
		}
		files[at] = at
		if err := addLibraries(files, at); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// searched are the folders of libraries, as Debian's loader looks through them.
func searched(own []string) []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	dirs := slices.DeleteFunc(own, func(d string) bool { return !filepath.IsAbs(d) })
	for _, dir := range []string{"/usr/lib/" + triplet, "/lib/" + triplet, "/usr/lib", "/lib64", "/lib"} {
		dirs = append(dirs, dir)
		dirs = append(dirs, dir+"/blas", dir+"/lapack", dir+"/pulseaudio")
	}
	return dirs
}

func find(name string, own []string) (string, bool) {
	for _, dir := range searched(own) {
		if path := filepath.Join(dir, name); regular(path) {
			return path, true
		}
	}
	return "", false
}

func regular(path string) bool {
	info, err := os.Stat(path) // through links
	return err == nil && info.Mode().IsRegular()
}

// folder is one that is not as the others are, with nothing in it.
type folder struct {
	path  string
	mode  int64
	owner int
}

// layer packs folders, files and texts, in order and without times.
func layer(files, texts map[string]string, own ...folder) (v1.Layer, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	t := tar.NewWriter(z)
	folders := map[string]bool{"/": true}
	enter := func(f folder) error {
		if folders[f.path] {
			return nil
		}
		folders[f.path] = true
		return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(f.path, "/") + "/", Mode: f.mode, Uid: f.owner, Gid: f.owner, ModTime: time.Unix(0, 0)})
	}
	add := func(name string, mode, size int64, from io.Reader) error {
		for _, dir := range parents(name) {
			if err := enter(folder{dir, 0o755, 0}); err != nil {
				return err
			}
		}
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Mode: mode, Size: size, ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		_, err := io.Copy(t, from)
		return err
	}
	for _, f := range own {
		for _, dir := range parents(f.path) {
			if err := enter(folder{dir, 0o755, 0}); err != nil {
				return nil, err
			}
		}
		if err := enter(f); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(files), cmp.Compare[string]) {
		if err := addFile(add, name, files[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", files[name], err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if err := add(name, 0o644, int64(len(texts[name])), strings.NewReader(texts[name])); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
}

func addFile(add func(name string, mode, size int64, from io.Reader) error, name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	return add(name, mode, info.Size(), f)
}

// parents are the folders above a path, from the top.
func parents(name string) (dirs []string) {
	for dir := filepath.Dir(name); dir != "/"; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	return dirs
}
