package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
)

// The catalogue is small and cannot be replaced, so copies of it lie in the folder backups: one is made within a round
// of house-keeping of every change that an operator makes, and the one before is kept.
const (
	spareFile         = "catalogue.db"
	previousSpareFile = "catalogue.previous.db"
)

// configure is change for what an operator decides; it has the catalogue copied soon.
func (s *Store) configure(ctx context.Context, fn func(tx *sql.Tx) error) error {
	err := s.change(ctx, fn)
	if err == nil {
		s.unspared.Store(true)
	}
	return err
}

// spareCatalogue copies the catalogue if it was changed since the last copy.
func (s *Store) spareCatalogue(ctx context.Context) {
	if !s.unspared.Swap(false) {
		return
	}
	dir := filepath.Join(s.cfg.Dir, backupsDir)
	next := filepath.Join(dir, "next."+spareFile)
	err := copyDB(ctx, filepath.Join(s.cfg.Dir, catalogueFile), next)
	if err == nil {
		err = os.Rename(filepath.Join(dir, spareFile), filepath.Join(dir, previousSpareFile))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = publish(next, filepath.Join(dir, spareFile))
	}
	if err != nil {
		s.unspared.Store(true)
		s.cfg.Logger.Warn("copy the catalogue", slog.Any("err", err))
	}
}

// hasSpare tells whether there is a copy, good or not.
func (s *Store) hasSpare() bool {
	_, err := os.Stat(filepath.Join(s.cfg.Dir, backupsDir, spareFile))
	return err == nil
}

// recoverCatalogue puts the newest good copy in the place of a damaged catalogue. Without one it gives the cause back.
func (w *writer) recoverCatalogue(ctx context.Context, cause error) error {
	path := filepath.Join(w.s.cfg.Dir, catalogueFile)
	for _, name := range []string{spareFile, previousSpareFile} {
		spare := filepath.Join(w.s.cfg.Dir, backupsDir, name)
		if err := checkSpare(ctx, spare); err != nil {
			continue
		}
		err := copyFile(spare, path+".new")
		if err == nil {
			err = skipAhead(ctx, path+".new")
		}
		if err != nil {
			return fmt.Errorf("recover from %s: %w", name, explain(err))
		}
		damaged, err := setAside(path, w.s.cfg.Now())
		if err != nil {
			return err
		}
		if err := publish(path+".new", path); err != nil {
			return err
		}
		w.s.days.damaged = append(w.s.days.damaged, damaged)
		w.s.cfg.Logger.Error("the catalogue was damaged; it was replaced by its last copy: check cameras, users and tokens",
			slog.String("set_aside", damaged), slog.String("copy", name), slog.Any("err", cause))
		return nil
	}
	return &HintError{Err: cause, Hint: "restore a backup; the days are separate files and are not affected"}
}

func checkSpare(ctx context.Context, path string) (err error) {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db, err := openDB(path, "ro", 1, url.Values{"immutable": {"1"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return checkCatalogue(ctx, db, "integrity_check")
}
