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

// openDir makes the directory of the copies ready. It belongs to one process.
func (s *Store) openDir() error {
	if s.cfg.Dir == "" {
		removeLeft(os.TempDir())
		dir, err := os.MkdirTemp("", temporary)
		if err != nil {
			return err
		}
		lock, err := lockDir(dir)
		if err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		s.dir, s.lock = dir, lock
		return nil
	}
	sum := sha256.Sum256([]byte(s.cfg.URL))
	dir := filepath.Join(s.cfg.Dir, hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	for _, name := range namesIn(dir) {
		if strings.HasPrefix(name, part) { // of a download that was cut off
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
		}
	}
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	s.dir, s.lock = dir, lock
	return nil
}

// Names of what a process that is killed may leave.
const (
	temporary = "vedette-models-"
	part      = ".part-"
)

// lockDir keeps other processes out of a directory until the file is closed.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is used by another server: give each one its own", dir), lock.Close())
	}
	return lock, nil
}

// removeLeft removes the temporary copies of processes that were killed.
func removeLeft(dir string) {
	for _, name := range namesIn(dir) {
		left := filepath.Join(dir, name)
		info, err := os.Lstat(filepath.Join(left, ".lock"))
		if !strings.HasPrefix(name, temporary) || err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) < time.Minute {
			continue // another's, or being made
		}
		if lock, err := lockDir(left); err == nil {
			_ = os.RemoveAll(left) // maybe another user's
			_ = lock.Close()
		}
	}
}

func (s *Store) closeDir() error {
	dir, lock := s.dir, s.lock
	s.dir, s.lock = "", nil
	var err error
	if dir != "" && s.cfg.Dir == "" {
		err = os.RemoveAll(dir)
	}
	if lock != nil {
		err = errors.Join(err, lock.Close())
	}
	return err
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
	if err := writeFile(s.sumsFile(model, state), text); err != nil {
		return errors.Join(err, os.RemoveAll(to))
	}
	return nil
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
	for _, state := range statesIn(filepath.Join(s.dir, model)) {
		if state != s.newest[model] && s.copies[key(model, state)] == nil {
			s.removeLocked(model, state)
		}
	}
}

// statesIn names the copies in a model's directory, by the files that say that they are complete.
func statesIn(dir string) []string {
	var out []string
	for _, name := range namesIn(dir) {
		if state, ok := strings.CutSuffix(name, ".json"); ok && validName(name) {
			out = append(out, state)
		}
	}
	return out
}

func namesIn(dir string) []string {
	entries, _ := os.ReadDir(dir) // one that cannot be read has none that can be used
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// count notes that a copy begins to be made (1) or is made (-1).
func (s *Store) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making += n
}

// keepOnly removes the copies of models that the store no longer has. Those in use go when they are released.
func (s *Store) keepOnly(models map[string][]object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.making > 0 {
		return // of something newer than this listing, maybe
	}
	for _, model := range namesIn(s.dir) {
		if validName(model) && len(models[model]) == 0 {
			delete(s.newest, model)
			s.pruneLocked(model)
		}
	}
}

func (s *Store) removeLocked(model, state string) {
	_ = os.Remove(s.sumsFile(model, state)) // first, since it says that the rest is complete
	_ = os.RemoveAll(filepath.Join(s.dir, model, state))
	_ = os.Remove(filepath.Join(s.dir, model)) // if it was the last
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
	for _, model := range namesIn(s.dir) {
		var newest time.Time
		for _, state := range statesIn(filepath.Join(s.dir, model)) {
			info, err := os.Stat(s.sumsFile(model, state))
			if err == nil && (newest.IsZero() || info.ModTime().After(newest)) {
				newest = info.ModTime()
				out[model] = Model{Print: state}
			}
		}
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
