package doctor

import (
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/store"
)

// disk looks at where the data is, or the nearest folder above it that exists.
func (d *doctor) disk() {
	if d.cfg.DataDir == "" {
		return
	}
	dir := d.cfg.DataDir
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		d.bad(Error, "disk", "make the folder, or choose another with --data-dir", "%s: %v", dir, err)
		return
	}
	free, total := int64(fs.Bavail)*fs.Bsize, int64(fs.Blocks)*fs.Bsize
	pressure := store.Retention{}.PressureOf(free, total)
	if d.cfg.Pressure != nil {
		pressure = d.cfg.Pressure()
	}
	const advice = "make room, or move the data directory"
	switch pressure {
	case store.ShedDetections:
		d.bad(Error, "disk", advice, "%s free at %s: no pictures, clips and detections are kept", gigabytes(free), dir)
	case store.ShedSnapshots:
		d.bad(Error, "disk", advice, "%s free at %s: no pictures and clips are kept", gigabytes(free), dir)
	case store.Warn:
		d.bad(Warning, "disk", advice, "%s free at %s, and no old days are left that could be deleted", gigabytes(free), dir)
	case store.Normal:
		d.ok("disk", "%s of %s are free at %s", gigabytes(free), gigabytes(total), dir)
	}
	if fs.Ffree < 10_000 && fs.Files > 0 {
		d.bad(Warning, "inodes", "remove small files from the file system", "%d files can still be made at %s", fs.Ffree, dir)
	}
	key := filepath.Join(d.cfg.DataDir, "secret.key")
	if info, err := os.Stat(key); err == nil && info.Mode().Perm()&0o077 != 0 {
		d.bad(Error, "secret-key", "chmod 600 it, and change the cameras' passwords if others had access", "%s can be read by others (mode %04o)", key, info.Mode().Perm())
	}
}

// gigabytes is a size as the dashboard shows it.
func gigabytes(n int64) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }

func (d *doctor) programs() {
	if d.cfg.Programs == "" {
		return
	}
	for _, name := range []string{"vedette-ingest", "vedette-infer"} {
		path := filepath.Join(d.cfg.Programs, name)
		f, err := elf.Open(path)
		if err != nil {
			d.bad(Error, "program", "install the three programs in one folder", "%s: %v", path, err)
			continue
		}
		missing := d.missing(f)
		_ = f.Close()
		if len(missing) > 0 {
			d.bad(Error, "program", "install the package's dependencies: apt-get install -f", "%s needs libraries that are not there: %s", name, strings.Join(missing, ", "))
			continue
		}
		d.ok("program", "%s has its libraries", name)
	}
}

// missing are the shared libraries that a program names itself and the usual folders do not hold.
func (d *doctor) missing(f *elf.File) []string {
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil
	}
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	dirs := []string{"/lib/" + triplet, "/usr/lib/" + triplet, "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"}
	var missing []string
	for _, name := range names {
		found := false
		for _, dir := range dirs {
			if _, err := os.Stat(d.path(filepath.Join(dir, name))); err == nil {
				found = true
				break
			}
		}
		if !found {
			missing = append(missing, name)
		}
	}
	return missing
}

func (d *doctor) library() {
	if d.cfg.Library == "" {
		return
	}
	const advice = "install the package again, or name the library with --onnxruntime"
	f, err := elf.Open(d.cfg.Library)
	if err != nil {
		d.bad(Error, "onnxruntime", advice, "%s: %v", d.cfg.Library, err)
		return
	}
	defer func() { _ = f.Close() }()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	if f.Machine != machine {
		d.bad(Error, "onnxruntime", advice, "%s is for %s, this machine is %s", d.cfg.Library, f.Machine, runtime.GOARCH)
		return
	}
	d.ok("onnxruntime", "%s", d.cfg.Library)
}

func (d *doctor) models() {
	if d.cfg.Models == "" {
		return
	}
	const advice = "install the package again, or name the model repository with --models"
	list, err := filepath.Glob(filepath.Join(d.cfg.Models, "*", "config.pbtxt"))
	if err != nil || len(list) == 0 {
		d.bad(Error, "models", advice, "there are no models in %s", d.cfg.Models)
		return
	}
	for _, need := range []string{"pipeline", "tracker"} {
		if _, err := os.Stat(filepath.Join(d.cfg.Models, need, "config.pbtxt")); err != nil {
			d.bad(Error, "models", advice, "the model %s, which every camera needs, is not in %s", need, d.cfg.Models)
			return
		}
	}
	for _, config := range list {
		dir := filepath.Dir(config)
		for _, f := range weights(dir) {
			if info, err := os.Stat(f); err != nil || info.Size() == 0 {
				d.bad(Error, "models", advice, "%s is empty or cannot be read", f)
				return
			}
		}
	}
	d.ok("models", "%d models in %s", len(list), d.cfg.Models)
	d.detectors()
}

// detectors tells what the shipped pipeline is, which others are here, and how to get a stronger one.
func (d *doctor) detectors() {
	here, _ := filepath.Glob(filepath.Join(d.cfg.DataDir, "models", "*", "config.pbtxt")) // the pattern is good
	runs := []string{"cameras that name no pipeline run " + cmp.Or(description(filepath.Join(d.cfg.Models, "pipeline", "config.pbtxt")), "the one in "+d.cfg.Models)}
	for _, config := range here {
		if what := description(config); what != "" {
			runs = append(runs, filepath.Base(filepath.Dir(config))+" is "+what)
		}
	}
	d.findings = append(d.findings, Finding{
		Check: "detector", Severity: OK, Message: strings.Join(runs, "; "),
		Advice: "for stronger ones: vedette model list; vedette model pull NAME; vedette camera update CAMERA --pipeline NAME",
	})
}

// description is what a model's configuration says that it is; empty where it says nothing or cannot be read: what is
// wrong with it then is told by the inference sidecar.
func description(config string) string {
	b, err := os.ReadFile(config)
	c := &inference.ModelConfig{}
	if err != nil || prototext.Unmarshal(b, c) != nil {
		return ""
	}
	return c.GetParameters()["description"].GetStringValue()
}

func weights(dir string) []string {
	list, err := filepath.Glob(filepath.Join(dir, "*", "model.onnx"))
	if err != nil {
		return nil
	}
	return list
}
