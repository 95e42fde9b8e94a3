package repository

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

// plan is what the files of a model, or an override, ask to be loaded.
type plan struct {
	id       string
	name     string // in id
	dir      string
	cfg      *inference.ModelConfig // as written, with name and backend
	versions []int64                // by the version policy
	print    string
	content  string       // as print, without the configuration; empty: unknown
	release  func()       // of the files when nobody needs them; may be nil
	users    atomic.Int32 // whoever works on it, and the versions that live from it
	applied  bool         // guarded by model.op: it was loaded
}

func (r *Repository) holdsModel(dir string) bool {
	if _, err := os.Stat(r.configFile(dir)); err == nil {
		return true
	}
	versions, err := versionsIn(dir)
	return err == nil && len(versions) > 0
}

// validName refuses what could lead out of the repository.
func validName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") || !utf8.ValidString(name) {
		return infer.Errorf(infer.InvalidArgument, "model name '%s' is not the name of a directory in the repository", name)
	}
	return nil
}

// read makes the plan of a model from its repository.
func (r *Repository) read(ctx context.Context, id string) (*plan, error) {
	p, err := r.fetch(ctx, id)
	if err != nil {
		return nil, err
	}
	file := r.configFile(p.dir)
	text, err := readText(file)
	switch {
	case err == nil:
		if p.cfg, err = modelconfig.Parse(text); err != nil {
			err = fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
	case errors.Is(err, fs.ErrNotExist) && !r.cfg.NoAutoComplete:
		p.cfg, err = new(inference.ModelConfig), nil
	}
	if err == nil {
		err = p.complete()
	}
	if err != nil {
		p.drop()
		return nil, err
	}
	return p, nil
}

// fetch begins the plan of a model with its files.
func (r *Repository) fetch(ctx context.Context, id string) (*plan, error) {
	root, err := r.locate(ctx, id)
	if err != nil {
		return nil, err
	}
	name := r.base(id)
	f, err := root.fetch(ctx, name)
	if err != nil {
		return nil, infer.Errorf(infer.Unavailable, "failed to load '%s', failed to poll from model repository: %v", name, err)
	}
	p := &plan{id: id, name: name, dir: f.dir, print: f.print, content: f.content, release: f.release}
	p.users.Store(1)
	return p, nil
}

func (r *Repository) configFile(dir string) string {
	if r.cfg.ConfigName != "" && filepath.IsLocal(r.cfg.ConfigName) {
		file := filepath.Join(dir, "configs", r.cfg.ConfigName+".pbtxt")
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return filepath.Join(dir, "config.pbtxt")
}

// override makes the plan of a model from the parameters of a load request.
func (r *Repository) override(ctx context.Context, id string, opts infer.LoadOptions) (p *plan, err error) {
	cfg, err := modelconfig.ParseJSON([]byte(opts.Config))
	if err != nil {
		return nil, infer.Errorf(infer.InvalidArgument, "Invalid config override: %v", err)
	}
	if len(opts.Files) > 0 {
		p, err = write(id, r.base(id), opts.Files)
	} else if p, err = r.fetch(ctx, id); err == nil {
		p.print = "" // the files do not tell what is loaded
	}
	if err != nil {
		return nil, err
	}
	p.cfg = cfg
	if err := p.complete(); err != nil {
		p.drop()
		return nil, err
	}
	return p, nil
}

// write begins the plan of a model with files that came with a request.
func write(id, name string, files map[string][]byte) (*plan, error) {
	dir, err := os.MkdirTemp("", "vedette-model-")
	if err != nil {
		return nil, fmt.Errorf("failed to poll from model repository: %w", err)
	}
	p := &plan{id: id, name: name, dir: dir, release: func() { _ = os.RemoveAll(dir) }} // a leftover there harms nobody
	p.users.Store(1)
	for file, data := range files {
		if !filepath.IsLocal(file) {
			p.drop()
			return nil, infer.Errorf(infer.InvalidArgument, "failed to load '%s', model file '%s' leads out of the model's directory", name, file)
		}
		to := filepath.Join(p.dir, file)
		if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
			err = os.WriteFile(to, data, 0o600)
		}
		if err != nil {
			p.drop()
			if e, ok := errors.AsType[*fs.PathError](err); ok {
				err = e.Err // without the path of the copy
			}
			return nil, infer.Errorf(infer.Internal, "failed to load '%s', failed to poll from model repository: model file '%s': %v", name, file, err)
		}
	}
	return p, nil
}

// hold keeps the files for one user more; false means that they are gone.
func (p *plan) hold() bool {
	for {
		n := p.users.Load()
		if n == 0 {
			return false
		}
		if p.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// drop ends what hold, or making the plan, began.
func (p *plan) drop() {
	if p.users.Add(-1) == 0 && p.release != nil {
		p.release()
	}
}

// complete finds the versions and what the model is.
func (p *plan) complete() error {
	all, err := versionsIn(p.dir)
	if err != nil {
		return err
	}
	var files []string
	if len(all) > 0 {
		entries, err := os.ReadDir(filepath.Join(p.dir, strconv.FormatInt(all[len(all)-1], 10)))
		if err != nil {
			return err
		}
		for _, e := range entries {
			files = append(files, e.Name())
		}
	}
	if err := modelconfig.Identify(p.cfg, p.name, files); err != nil {
		return err
	}
	p.versions = selected(p.cfg.GetVersionPolicy(), all)
	if len(p.versions) == 0 {
		return fmt.Errorf("at least one version must be available under the version policy of model '%s'", p.name)
	}
	return nil
}

// versionsIn lists the version directories: whole numbers above zero, without
// a leading zero. Everything else in a model's directory is something else.
func versionsIn(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, e := range entries {
		n, ok := versionOf(e.Name())
		if !ok {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.IsDir() {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// versionOf reads the name of a version's directory.
func versionOf(name string) (number int64, ok bool) {
	n, err := strconv.ParseInt(name, 10, 64)
	return n, err == nil && n >= 1 && strconv.FormatInt(n, 10) == name
}

// selected applies a version policy; absent means the latest one.
func selected(p *inference.ModelVersionPolicy, all []int64) []int64 {
	switch c := p.GetPolicyChoice().(type) {
	case *inference.ModelVersionPolicy_All_:
		return all
	case *inference.ModelVersionPolicy_Specific_:
		return slices.DeleteFunc(slices.Clone(all), func(v int64) bool { return !slices.Contains(c.Specific.GetVersions(), v) })
	}
	n := max(1, int(p.GetLatest().GetNumVersions()))
	return all[max(0, len(all)-n):]
}

// maxFiles bounds how many files a model may have; a link that leads to the whole machine ends there.
const maxFiles = 1 << 17

// maxText bounds what is read into memory of a file that holds text.
const maxText = 64 << 20

// readAtMost reads a file of the model up to a size.
func readAtMost(path string, size int) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // callers stay below the model's directory
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, int64(size)))
}

// readText reads a file that has at most maxText bytes.
func readText(path string) ([]byte, error) {
	data, err := readAtMost(path, maxText+1)
	if err == nil && len(data) > maxText {
		return nil, fmt.Errorf("%s has more than %d bytes, which is the most that is read", filepath.Base(path), maxText)
	}
	return data, err
}

// readTensor reads the first size bytes of a file, or, of strings, all.
func readTensor(path string, as tensor.DataType, size int) ([]byte, error) {
	if as == tensor.Bytes {
		return readText(path)
	}
	return readAtMost(path, size)
}

// fingerprint changes whenever a file of the model does, also one that a link
// leads to, but for those that skip names by their path below dir; nil: none.
// What could hold up or fill the memory of whoever reads it, such as a pipe or
// a device, is no file of a model, and an error.
func fingerprint(dir string, skip func(name string) bool) (string, error) {
	h := sha256.New()
	seen, files := make(map[inode]bool), 0
	var walk func(path, name string) error
	walk = func(path, name string) error {
		info, err := os.Stat(path) // what a link points to counts
		switch {
		case err != nil && name != ".":
			return nil // a dangling link is no part of the model
		case err != nil:
			return err
		}
		if files++; files > maxFiles {
			return fmt.Errorf("%s has more than %d files and directories, which is the most a model may have", dir, maxFiles)
		}
		counts := skip == nil || !skip(name)
		switch {
		case info.Mode().IsRegular():
			if counts {
				_, _ = fmt.Fprintf(h, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano()) // a hash takes everything
			}
			return nil
		case !info.IsDir():
			return fmt.Errorf("%s is neither a file nor a directory (%s): remove it from the model", path, info.Mode().Type())
		}
		id := inodeOf(info)
		if seen[id] {
			return nil // a link led back
		}
		seen[id] = true
		if counts {
			_, _ = fmt.Fprintf(h, "%s\n", path)
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := walk(filepath.Join(path, e.Name()), filepath.Join(name, e.Name())); err != nil {
				return err
			}
		}
		return nil
	}
	err := walk(dir, ".")
	return hex.EncodeToString(h.Sum(nil)), err
}

// inode names a directory however many paths lead to it.
type inode struct{ device, number uint64 }

func inodeOf(info fs.FileInfo) inode {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}
	}
	return inode{st.Dev, st.Ino}
}

func clone(cfg *inference.ModelConfig) *inference.ModelConfig {
	c, _ := proto.Clone(cfg).(*inference.ModelConfig)
	return c
}
