// Package modelstore copies models out of object stores and registries into directories, where back ends can open
// them.
//
// A store holds one directory for each model, as a local repository does. A copy of a model is complete and checked,
// or it is not there: files are downloaded beside it, compared with the store's checksums and moved into place by one
// rename. It never changes afterwards; when the model changes in the store, the next copy lies beside it.
package modelstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Config says which store and where its copies go.
type Config struct {
	// URL of the store, see New.
	URL string
	// Dir keeps copies over restarts, so that a store that cannot be reached at start serves what it held last; empty:
	// a temporary directory that goes with Close.
	Dir string
	// Timeout bounds each listing of the store, and how long a download goes on of which nothing comes; 0: 30 s.
	Timeout time.Duration
	// Retry is how long a store that could not be listed is not asked again, so that a start without it waits once and
	// not for every model; 0: 5 s.
	Retry  time.Duration
	Logger *slog.Logger // nil: silent
}

// Store is a remote place of models.
type Store struct {
	cfg    Config
	open   func(ctx context.Context) (source, error)
	logger *slog.Logger

	opening sync.Mutex // held while the store is connected
	remote  source
	dir     string
	lock    *os.File // of a directory that outlives the process

	mu     sync.Mutex
	failed error // of the last listing, nil if it went well
	asked  time.Time
	copies map[string]*Copy // by model and state
	newest map[string]string
	making int // copies under way
}

// Error is a store that does not do what it is asked.
type Error struct {
	URL string // without what may be secret
	Op  string
	Err error
}

// Error says what was attempted, where and why it failed.
func (e *Error) Error() string { return fmt.Sprintf("%s of %s: %v", e.Op, e.URL, e.Err) }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// source is what a kind of store can do. Paths begin with the model's name.
type source interface {
	// list names the files below a model, or below every model when it is empty.
	list(ctx context.Context, model string) ([]object, error)
	// fetch writes a file to the same path below dir and checks what it wrote. What it reads goes through watch.
	fetch(ctx context.Context, f object, dir string, watch func(io.Reader) io.Reader) error
	close() error
}

// object is one file of a bucket or layer of an artifact.
type object struct {
	path  string
	size  int64
	stamp string // changes with the content
	tree  bool   // a directory in one piece
	key   any    // the store's own
}

// model is the first part of the path.
func (f object) model() string {
	name, _, _ := strings.Cut(f.path, "/")
	return name
}

// IsURL tells a store from a local directory.
func IsURL(root string) bool { return strings.Contains(root, "://") }

// New checks a store's URL; nothing is opened before List or Fetch. It is one of
//
//	s3://BUCKET/PREFIX                    Amazon S3; credentials as the AWS tools find them
//	s3://https://HOST:PORT/BUCKET/PREFIX  another S3 server (http:// or no scheme: without TLS)
//	gs://BUCKET/PREFIX                    Google Cloud Storage; application default credentials
//	azblob://CONTAINER/PREFIX             Azure Blob Storage; AZURE_STORAGE_ACCOUNT and _KEY or _SAS_TOKEN
//	as://ACCOUNT/CONTAINER/PREFIX         the same with the account
//	oci://HOST[:PORT]/REPOSITORY[:TAG]    an artifact of an OCI registry; credentials as docker login keeps them
//
// A query gives the driver's own settings (?region=, ?anonymous=true; ?plain-http=true for registries).
func New(cfg Config) (*Store, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Retry <= 0 {
		cfg.Retry = 5 * time.Second
	}
	s := &Store{cfg: cfg, logger: cfg.Logger, copies: make(map[string]*Copy), newest: make(map[string]string)}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	scheme, rest, _ := strings.Cut(cfg.URL, "://")
	var err error
	switch scheme {
	case "s3", "gs", "azblob", "as":
		s.open, err = bucketOf(scheme, rest)
	case "oci":
		s.open, err = artifactOf(rest)
	default:
		err = errors.New("the scheme must be s3, gs, azblob, as or oci; a local directory is given without one")
	}
	if err != nil {
		return nil, &Error{s.String(), "open", err}
	}
	return s, nil
}

// String is the URL without its query, which may hold secrets.
func (s *Store) String() string {
	name, _, _ := strings.Cut(s.cfg.URL, "?")
	if u, err := url.Parse(name); err == nil {
		return u.Redacted()
	}
	return name
}

// connect opens the store and the directory of its copies.
func (s *Store) connect(ctx context.Context) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.dir == "" {
		if err := s.openDir(); err != nil {
			return &Error{s.String(), "local copies", err}
		}
	}
	if s.remote == nil {
		r, err := s.open(ctx)
		if err != nil {
			return &Error{s.String(), "open", err}
		}
		s.remote = r
	}
	return nil
}

// list asks the store within the time it has.
func (s *Store) list(ctx context.Context, model string) (map[string][]object, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	failed, asked := s.failed, s.asked
	s.mu.Unlock()
	if failed != nil && time.Since(asked) < s.cfg.Retry {
		return nil, failed
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	all, err := s.remote.list(bounded, model)
	if err != nil {
		err = &Error{s.String(), "listing", err}
	}
	if ctx.Err() == nil {
		s.mu.Lock()
		s.failed, s.asked = err, time.Now()
		s.mu.Unlock()
	}
	if err != nil {
		return nil, err
	}
	models := make(map[string][]object)
	for _, f := range all {
		name := f.model()
		if !validName(name) || !f.tree && !strings.Contains(f.path, "/") {
			continue // hidden, or beside the models
		}
		models[name] = append(models[name], f)
	}
	return models, nil
}

// Model is what a store holds under a name.
type Model struct {
	// Print changes with the model's files.
	Print string
	// Files are the names in its directory; nil where only a download would tell.
	Files []string
}

// List names the models, and removes the copies of others. A store that cannot be reached gives those of which there is
// a copy.
func (s *Store) List(ctx context.Context) (map[string]Model, error) {
	models, err := s.list(ctx, "")
	if err != nil {
		kept := s.kept()
		if len(kept) == 0 || ctx.Err() != nil {
			return nil, err
		}
		s.logger.WarnContext(ctx, "model store cannot be listed; the copies at hand are used", slog.Any("err", err))
		return kept, nil
	}
	s.keepOnly(models)
	out := make(map[string]Model, len(models))
	for name, files := range models {
		out[name] = Model{Print: printOf(files), Files: below(name, files)}
	}
	return out, nil
}

// Print is a model's as List gives it.
func (s *Store) Print(ctx context.Context, model string) (string, error) {
	models, err := s.list(ctx, model)
	if err != nil {
		if m, ok := s.kept()[model]; ok && ctx.Err() == nil {
			return m.Print, nil
		}
		return "", err
	}
	if len(models[model]) == 0 {
		return "", ErrNoModel
	}
	return printOf(models[model]), nil
}

// below names what lies directly in a model's directory.
func below(model string, files []object) []string {
	names := make(map[string]bool)
	for _, f := range files {
		if f.path == model {
			return nil
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(f.path, model+"/"), "/")
		if name != "" {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// printOf is one value for the state of some files.
func printOf(files []object) string {
	h := sha256.New()
	slices.SortFunc(files, func(a, b object) int { return strings.Compare(a.path, b.path) })
	for _, f := range files {
		_, _ = fmt.Fprintf(h, "%q %d %s\n", f.path, f.size, f.stamp) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// ErrNoModel says that the store holds nothing of that name.
var ErrNoModel = errors.New("no such model")

// Fetch returns a copy of a model as the store holds it now, or, if the store cannot be reached, as it was copied
// last. Whoever gets the copy releases it.
func (s *Store) Fetch(ctx context.Context, model string) (*Copy, error) {
	if !validName(model) {
		return nil, &Error{s.String(), fmt.Sprintf("copy of %q", model), ErrNoModel}
	}
	s.count(1)
	defer s.count(-1)
	models, err := s.list(ctx, model)
	if err != nil {
		if last := s.kept()[model].Print; last != "" && ctx.Err() == nil {
			if c, kept := s.lend(model, last); kept == nil {
				s.logger.WarnContext(ctx, "model store cannot be reached; the copy at hand is used", slog.String("model", model), slog.Any("err", err))
				return c, nil
			}
		}
		return nil, err
	}
	for range 3 {
		files := models[model]
		if len(files) == 0 {
			return nil, &Error{s.String(), fmt.Sprintf("copy of %q", model), ErrNoModel}
		}
		state := printOf(files)
		if c, err := s.lend(model, state); err == nil {
			return c, nil
		}
		if err := s.download(ctx, model, state, files); err != nil {
			return nil, &Error{s.String(), fmt.Sprintf("copy of %q", model), err}
		}
		// What was being uploaded while it was copied is no model yet.
		if models, err = s.list(ctx, model); err != nil {
			return nil, err
		}
		if printOf(models[model]) == state {
			return s.lend(model, state)
		}
		s.forget(model, state)
	}
	return nil, &Error{s.String(), fmt.Sprintf("copy of %q", model), errors.New("its files change faster than they can be copied")}
}

// download makes a copy of the files and moves it into place.
func (s *Store) download(ctx context.Context, model, state string, files []object) error {
	dir, err := os.MkdirTemp(s.dir, part)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // of what failed; else it is empty
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, f := range files {
		// A name like this would lie elsewhere, or be two files in one place.
		if !filepath.IsLocal(f.path) || path.Clean(f.path) != strings.TrimSuffix(f.path, "/") {
			return fmt.Errorf("file %q does not lie in the model's directory", f.path)
		}
		g.Go(func() error {
			if err := s.fetch(ctx, f, dir); err != nil {
				return fmt.Errorf("file %q: %w", f.path, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return s.place(model, state, filepath.Join(dir, model))
}

// fetch writes a file below dir, as long as something of it comes.
func (s *Store) fetch(ctx context.Context, f object, dir string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(s.cfg.Timeout, func() { cancel(fmt.Errorf("nothing of it came for %s", s.cfg.Timeout)) })
	defer stalled.Stop()
	err := s.remote.fetch(ctx, f, dir, func(r io.Reader) io.Reader {
		return readerFunc(func(p []byte) (int, error) {
			n, err := r.Read(p)
			stalled.Reset(s.cfg.Timeout)
			return n, err
		})
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func validName(model string) bool {
	return model != "" && !strings.HasPrefix(model, ".") && !strings.ContainsAny(model, "/\\\x00")
}

// Close lets go of the store. Copies of a temporary directory are removed with it.
func (s *Store) Close() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	var err error
	if s.remote != nil {
		err = s.remote.close()
		s.remote = nil
	}
	return errors.Join(err, s.closeDir())
}
