package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/modelstore"
)

// root is one of the repositories: a place with a directory for each model.
type root interface {
	fmt.Stringer
	// list names what lies in it.
	list(ctx context.Context) (map[string]listing, error)
	// print is a value that changes with the model's files, or errNoModel.
	print(ctx context.Context, name string) (string, error)
	// fetch makes the files available until release.
	fetch(ctx context.Context, name string) (f fetched, err error)
	close() error
}

// listing is what a root says of a name.
type listing struct {
	model bool   // it looks like one
	print string // as print gives it; empty if that was not at hand
	why   string // it is none, if there is more to say than noModel
	twice bool   // another repository has one of the name
}

// duplicate is why a model of two repositories is not loaded.
const duplicate = "model appears in two or more repositories"

// noModel is what the index says of a folder that is none. It has no state.
const noModel = "it has neither a configuration nor a version"

// fetched is a model's directory.
type fetched struct {
	dir     string
	print   string
	content string // as print, without the configuration; empty: unknown
	release func() // nil: the directory is the repository's
}

// errNoModel says that a root has nothing under a name.
var errNoModel = errors.New("no such model")

// directory is a root on this machine.
type directory struct {
	dir    string
	holds  func(dir string) bool
	logger *slog.Logger
}

func (d *directory) String() string { return d.dir }

func (d *directory) list(context.Context) (map[string]listing, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	out := make(map[string]listing)
	for _, e := range entries {
		dir := filepath.Join(d.dir, e.Name())
		info, err := os.Stat(dir)
		switch {
		case err != nil || !info.IsDir() || strings.HasPrefix(e.Name(), "."):
		case !utf8.ValidString(e.Name()):
			out[strings.ToValidUTF8(e.Name(), "\uFFFD")] = listing{why: "the name of its directory is not UTF-8: rename it"}
		default:
			out[e.Name()] = listing{model: d.holds(dir)}
		}
	}
	return out, nil
}

func (d *directory) print(_ context.Context, name string) (string, error) {
	dir := filepath.Join(d.dir, name)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", errNoModel
	}
	return fingerprint(dir, nil)
}

func (d *directory) fetch(ctx context.Context, name string) (fetched, error) {
	state, err := d.print(ctx, name)
	if err != nil {
		return fetched{}, fmt.Errorf("read model '%s': %w", name, err)
	}
	dir := filepath.Join(d.dir, name)
	content, err := fingerprint(dir, func(file string) bool {
		return file == "." || file == "config.pbtxt" || strings.HasPrefix(file, "configs")
	})
	if err != nil {
		return fetched{}, fmt.Errorf("read model '%s': %w", name, err)
	}
	return fetched{dir: dir, print: state, content: content}, nil
}

func (d *directory) close() error { return nil }

// store is a root of which models are copied before they are loaded.
type store struct{ *modelstore.Store }

func (s store) list(ctx context.Context) (map[string]listing, error) {
	models, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]listing, len(models))
	for name, m := range models {
		model := m.Files == nil || slices.ContainsFunc(m.Files, func(f string) bool {
			_, version := versionOf(f)
			return version || f == "config.pbtxt" || f == "configs"
		})
		out[name] = listing{model: model, print: m.Print}
	}
	return out, nil
}

func (s store) print(ctx context.Context, name string) (string, error) {
	state, err := s.Print(ctx, name)
	if errors.Is(err, modelstore.ErrNoModel) {
		return "", errNoModel
	}
	return state, err
}

func (s store) fetch(ctx context.Context, name string) (fetched, error) {
	c, err := s.Fetch(ctx, name)
	if err != nil {
		return fetched{}, err
	}
	return fetched{dir: c.Dir, print: c.Print, release: c.Release}, nil
}

func (s store) close() error { return s.Close() }

// openRoots makes the roots of the configuration; nothing is read yet.
func (r *Repository) openRoots() error {
	for _, at := range r.cfg.Roots {
		if !modelstore.IsURL(at) {
			r.roots = append(r.roots, &directory{at, r.holdsModel, r.logger})
			continue
		}
		s, err := modelstore.New(modelstore.Config{URL: at, Dir: r.cfg.StoreCopies, Logger: r.logger})
		if err != nil {
			return fmt.Errorf("open model repository: %w", err)
		}
		r.roots = append(r.roots, store{s})
	}
	return nil
}

func (r *Repository) closeRoots() {
	for _, root := range r.roots {
		if err := root.close(); err != nil {
			r.logger.Error("repository did not close", slog.String("repository", root.String()), slog.Any("err", err))
		}
	}
}

// list is what lies in any of the repositories. The error says which could not be read; what the others hold is there.
func (r *Repository) list(ctx context.Context) (map[string]listing, error) {
	all := make(map[string]listing)
	var faults []error
	for _, root := range r.roots {
		found, err := root.list(ctx)
		if err != nil {
			faults = append(faults, fmt.Errorf("repository cannot be read: %w", err))
		}
		for name, l := range found {
			id := r.identify(root.String(), name)
			before := all[id]
			l.twice = before.twice || before.model && l.model
			if !before.model || l.twice {
				all[id] = l
			}
		}
	}
	return all, errors.Join(faults...)
}

// candidates names what looks like a model. A directory without configuration
// and without versions is something else that lies in the repository: the index
// names it, and nobody tries to load it unasked.
func (r *Repository) candidates(ctx context.Context) ([]string, map[string]listing, error) {
	all, err := r.list(ctx)
	var names []string
	for name, l := range all {
		if l.model {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, all, err
}

// locate finds the one root of a model, among those that can be read.
func (r *Repository) locate(ctx context.Context, id string) (root, error) {
	var found []root
	var fault error
	name := r.base(id)
	for _, root := range r.roots {
		if r.identify(root.String(), name) != id {
			continue
		}
		switch _, err := root.print(ctx, name); {
		case err == nil:
			found = append(found, root)
		case !errors.Is(err, errNoModel):
			fault = infer.Errorf(infer.Unavailable, "failed to load '%s', failed to poll from model repository: %v", name, err)
		}
	}
	if len(found) > 1 {
		var models []root
		for _, root := range found {
			if all, err := root.list(ctx); err == nil && all[name].model {
				models = append(models, root)
			}
		}
		if len(models) > 0 {
			found = models
		}
	}
	switch len(found) {
	case 0:
		if fault != nil {
			return nil, fault
		}
		return nil, infer.Errorf(infer.Internal, "failed to load '%s', failed to poll from model repository", name)
	case 1:
		return found[0], nil
	}
	var places []string
	for _, root := range found {
		places = append(places, strings.TrimSuffix(root.String(), "/")+"/"+name)
	}
	return nil, infer.Errorf(infer.Internal, "failed to load '%s', %s: %s", name, duplicate, strings.Join(places, ", "))
}
