package repository

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/modelconfig"
)

// plan is what the files of a model, or an override, ask to be loaded.
type plan struct {
	name     string
	dir      string
	cfg      *inference.ModelConfig // as written, with name and backend
	versions []int64                // by the version policy
	print    string
	scratch  bool         // dir is ours and goes with the model
	users    atomic.Int32 // versions that live from it
}

// list names every directory of the repositories.
func (r *Repository) list() []string {
	var names []string
	for _, root := range r.cfg.Roots {
		entries, err := os.ReadDir(root)
		if err != nil {
			r.logger.Error("repository cannot be read", slog.Any("err", err))
			continue
		}
		for _, e := range entries {
			if info, err := os.Stat(filepath.Join(root, e.Name())); err == nil && info.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// candidates names the directories that hold a model. One without configuration
// and without versions is something else that lies in the repository: the index
// names it, and nobody tries to load it unasked.
func (r *Repository) candidates() []string {
	return slices.DeleteFunc(r.list(), func(name string) bool {
		for _, root := range r.cfg.Roots {
			if r.holdsModel(filepath.Join(root, name)) {
				return false
			}
		}
		return true
	})
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
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
		return infer.Errorf(infer.InvalidArgument, "model name '%s' is not the name of a directory in the repository", name)
	}
	return nil
}

// locate finds the one directory of a model.
func (r *Repository) locate(name string) (string, error) {
	var found []string
	for _, root := range r.cfg.Roots {
		dir := filepath.Join(root, name)
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			found = append(found, dir)
		}
	}
	if len(found) > 1 && slices.ContainsFunc(found, r.holdsModel) {
		found = slices.DeleteFunc(found, func(dir string) bool { return !r.holdsModel(dir) })
	}
	switch len(found) {
	case 0:
		return "", infer.Errorf(infer.Internal, "failed to load '%s', failed to poll from model repository", name)
	case 1:
		return found[0], nil
	}
	return "", infer.Errorf(infer.Internal, "failed to load '%s', model is in more than one repository: %s", name, strings.Join(found, ", "))
}

// read makes the plan of a model from its directory.
func (r *Repository) read(name string) (*plan, error) {
	dir, err := r.locate(name)
	if err != nil {
		return nil, err
	}
	p := &plan{name: name, dir: dir}
	if p.print, err = fingerprint(dir); err != nil {
		return nil, fmt.Errorf("read model '%s': %w", name, err)
	}
	text, err := os.ReadFile(r.configFile(dir))
	switch {
	case err == nil:
		if p.cfg, err = modelconfig.Parse(text); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(r.configFile(dir)), err)
		}
	case errors.Is(err, fs.ErrNotExist) && !r.cfg.NoAutoComplete:
		p.cfg = new(inference.ModelConfig)
	default:
		return nil, err
	}
	return p, p.complete()
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
func (r *Repository) override(name string, opts infer.LoadOptions) (*plan, error) {
	cfg, err := modelconfig.ParseJSON([]byte(opts.Config))
	if err != nil {
		return nil, infer.Errorf(infer.InvalidArgument, "Invalid config override: %v", err)
	}
	p := &plan{name: name, cfg: cfg}
	if len(opts.Files) == 0 {
		if p.dir, err = r.locate(name); err != nil {
			return nil, err
		}
		return p, p.complete()
	}
	if p.dir, err = os.MkdirTemp("", "vedette-model-"); err != nil {
		return nil, fmt.Errorf("failed to poll from model repository: %w", err)
	}
	p.scratch = true
	for file, data := range opts.Files {
		if !filepath.IsLocal(file) {
			p.discard()
			return nil, infer.Errorf(infer.InvalidArgument, "model file '%s' leads out of the model's directory", file)
		}
		to := filepath.Join(p.dir, file)
		if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
			err = os.WriteFile(to, data, 0o600)
		}
		if err != nil {
			p.discard()
			return nil, infer.Errorf(infer.Internal, "failed to load '%s', failed to poll from model repository", name)
		}
	}
	if err := p.complete(); err != nil {
		p.discard()
		return nil, err
	}
	return p, nil
}

// discard removes files that came with a request.
func (p *plan) discard() {
	if p.scratch {
		_ = os.RemoveAll(p.dir) // a leftover in the temporary directory harms nobody
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
		n, err := strconv.ParseInt(e.Name(), 10, 64)
		if err != nil || n < 1 || strconv.FormatInt(n, 10) != e.Name() {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.IsDir() {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
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

// fingerprint changes whenever a file of the model does.
func fingerprint(dir string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path) // what a link points to counts
		if err != nil {
			return nil //nolint:nilerr // a dangling link is no part of the model
		}
		if d.IsDir() {
			_, _ = fmt.Fprintf(h, "%s\n", path) // a hash takes everything
			return nil
		}
		_, _ = fmt.Fprintf(h, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

func clone(cfg *inference.ModelConfig) *inference.ModelConfig {
	c, _ := proto.Clone(cfg).(*inference.ModelConfig)
	return c
}
