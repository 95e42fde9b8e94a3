package modelstore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Copy is a model's directory on this machine.
type Copy struct {
	// Dir holds the files; nobody changes them.
	Dir string
	// Print is the state of the store's files that it is a copy of.
	Print string

	store *Store
	model string
	users int // guarded by store.mu
}

// Release gives the copy back. When nobody uses it and a newer one is there it is removed.
func (c *Copy) Release() {
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(s.copies, key(c.model, c.Print))
		if s.newest[c.model] != c.Print {
			s.removeLocked(c.model, c.Print)
		}
	}
}

func key(model, state string) string { return model + "/" + state }

// openDir makes the directory of the copies ready. One that outlives the process belongs to one process.
func (s *Store) openDir() error {
	if s.cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "vedette-models-")
		s.dir = dir
		return err
	}
	sum := sha256.Sum256([]byte(s.cfg.URL))
	dir := filepath.Join(s.cfg.Dir, hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("%s is used by another server: give each one its own", dir), lock.Close())
	}
	parts, err := filepath.Glob(filepath.Join(dir, ".part-*"))
	for _, p := range parts {
		err = errors.Join(err, os.RemoveAll(p)) // of a download that was cut off
	}
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	s.dir, s.lock = dir, lock
	return nil
}

func (s *Store) closeDir() error {
	dir, lock := s.dir, s.lock
	s.dir, s.lock = "", nil
	switch {
	case lock != nil:
		return lock.Close()
	case dir != "":
		return os.RemoveAll(dir)
	}
	return nil
}

// sums are the checksums of a copy's files, written when it is complete.
type sums struct {
	SHA256 map[string]string `json:"sha256"`
}

func (s *Store) sumsFile(model, state string) string {
	return filepath.Join(s.dir, model, state+".json")
}

// place moves a complete download to where lend finds it.
func (s *Store) place(model, state, from string) error {
	found, err := sum(from)
	if err != nil {
		return err
	}
	text, err := json.Marshal(sums{found})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Stat(s.sumsFile(model, state)); err == nil {
		return nil // another download of the same was faster
	}
	to := filepath.Join(s.dir, model, state)
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil { // of a process that died here
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return writeFile(s.sumsFile(model, state), text)
}

// writeFile writes a whole file or none.
func writeFile(name string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".sums-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// lend hands out a copy that is there. One nobody used in this process is compared with its checksums first.
func (s *Store) lend(model, state string) (*Copy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.copies[key(model, state)]
	if c == nil {
		if err := s.checkLocked(model, state); err != nil {
			s.removeLocked(model, state)
			return nil, err
		}
		c = &Copy{Dir: filepath.Join(s.dir, model, state), Print: state, store: s, model: model}
		s.copies[key(model, state)] = c
	}
	c.users++
	if s.newest[model] != state {
		s.newest[model] = state
		s.pruneLocked(model)
	}
	return c, nil
}

func (s *Store) checkLocked(model, state string) error {
	text, err := os.ReadFile(s.sumsFile(model, state))
	if err != nil {
		return err
	}
	var want sums
	if err := json.Unmarshal(text, &want); err != nil {
		return err
	}
	got, err := sum(filepath.Join(s.dir, model, state))
	if err != nil {
		return err
	}
	if len(got) != len(want.SHA256) {
		return errors.New("files are missing")
	}
	for name, sum := range want.SHA256 {
		if got[name] != sum {
			return fmt.Errorf("file %q is damaged", name)
		}
	}
	return nil
}

// pruneLocked removes copies of a model that nobody uses and a newer one replaces.
func (s *Store) pruneLocked(model string) {
	files, _ := filepath.Glob(filepath.Join(s.dir, model, "*.json")) // the pattern is well formed
	for _, f := range files {
		state := strings.TrimSuffix(filepath.Base(f), ".json")
		if state != s.newest[model] && s.copies[key(model, state)] == nil {
			s.removeLocked(model, state)
		}
	}
}

func (s *Store) removeLocked(model, state string) {
	_ = os.Remove(s.sumsFile(model, state)) // first, since it says that the rest is complete
	_ = os.RemoveAll(filepath.Join(s.dir, model, state))
}

// forget removes a copy that turned out to be of no use.
func (s *Store) forget(model, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(model, state)
}

// kept lists the newest copy of each model there is.
func (s *Store) kept() map[string]Model {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]Model)
	if s.dir == "" {
		return out
	}
	written := make(map[string]time.Time)
	files, _ := filepath.Glob(filepath.Join(s.dir, "*", "*.json")) // the pattern is well formed
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			continue
		}
		model := filepath.Base(filepath.Dir(f))
		if t, ok := written[model]; ok && !info.ModTime().After(t) {
			continue
		}
		written[model] = info.ModTime()
		out[model] = Model{Print: strings.TrimSuffix(filepath.Base(f), ".json")}
	}
	return out
}

// sum reads every file below dir.
func sum(dir string) (map[string]string, error) {
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		out[rel] = hex.EncodeToString(h.Sum(nil))
		return err
	})
	return out, err
}
