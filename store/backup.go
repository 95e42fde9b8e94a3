package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// BackupReport says what a backup holds. It is the manifest in the backup's folder, too.
type BackupReport struct {
	Time  time.Time    `json:"time"`
	Files []BackupFile `json:"files"`
}

// BackupFile is one file of a backup.
type BackupFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

const manifestFile = "manifest.json"

// Backup writes a verified copy of every database file into dir, which must be empty or missing, while the store runs.
// Pictures and clips are not in it. The catalogue is copied last, so that it knows every sequence the days speak of.
func (s *Store) Backup(ctx context.Context, dir string) (report BackupReport, err error) {
	if err := s.running(); err != nil {
		return BackupReport{}, err
	}
	if err := emptyDir(dir); err != nil {
		return BackupReport{}, fmt.Errorf("backup: %w", err)
	}
	report.Time = s.cfg.Now().UTC()
	for _, day := range s.days.list(0, 1<<40) {
		if err := s.backupDay(ctx, day, dir); err != nil {
			return BackupReport{}, fmt.Errorf("backup: %s: %w", dayName(day), err)
		}
		if f, ok := describe(filepath.Join(dir, dayName(day))); ok {
			report.Files = append(report.Files, f)
		}
	}
	if err := copyDB(ctx, filepath.Join(s.cfg.Dir, catalogueFile), filepath.Join(dir, catalogueFile)); err != nil {
		return BackupReport{}, fmt.Errorf("backup: %s: %w", catalogueFile, err)
	}
	if f, ok := describe(filepath.Join(dir, catalogueFile)); ok {
		report.Files = append(report.Files, f)
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return BackupReport{}, err
	}
	tmp := filepath.Join(dir, manifestFile+".new")
	if err := os.WriteFile(tmp, append(text, '\n'), 0o640); err != nil {
		return BackupReport{}, fmt.Errorf("backup: %w", explain(err))
	}
	if err := publish(tmp, filepath.Join(dir, manifestFile)); err != nil {
		return BackupReport{}, fmt.Errorf("backup: %w", err)
	}
	return VerifyBackup(ctx, dir)
}

// BackupsDir is where backups lie that are made over the API, beside the copies made before a migration.
func (s *Store) BackupsDir() string { return filepath.Join(s.cfg.Dir, backupsDir) }

// backupDay copies one day; a day that retention takes meanwhile is left out.
func (s *Store) backupDay(ctx context.Context, day int64, dir string) error {
	f, ok := s.days.borrow(day)
	if !ok {
		return nil
	}
	defer f.release()
	ctx, stop := f.bound(ctx)
	defer stop()
	err := copyDB(ctx, s.days.path(day), filepath.Join(dir, dayName(day)))
	if err != nil && f.gone.Err() != nil {
		return removeDB(filepath.Join(dir, dayName(day)))
	}
	return err
}

func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return notWritable(dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return notWritable(dir, err)
	}
	if len(entries) > 0 {
		return &HintError{Err: fmt.Errorf("%s: %w: it is not empty", dir, ErrExists), Hint: "choose another folder"}
	}
	return nil
}

// describe measures a file; false when there is none.
func describe(path string) (BackupFile, bool) {
	f, err := os.Open(path)
	if err != nil {
		return BackupFile{}, false
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	err = errors.Join(err, f.Close())
	return BackupFile{Name: filepath.Base(path), Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, err == nil
}

// ReadBackup reads what a finished backup says it holds, and checks none of it.
func ReadBackup(dir string) (r BackupReport, err error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("backup %s: %w: it has no %s, so it was never finished", dir, ErrCorrupt, manifestFile)
	} else if err != nil {
		return r, fmt.Errorf("backup: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("backup %s: %s: %w: %w", dir, manifestFile, ErrCorrupt, err)
	}
	return r, nil
}

// VerifyBackup checks every file of a backup: size, hash, and integrity. Damage is an ErrCorrupt.
func VerifyBackup(ctx context.Context, dir string) (BackupReport, error) {
	r, err := ReadBackup(dir)
	if err != nil {
		return r, err
	}
	catalogue := false
	for _, f := range r.Files {
		_, day := parseDayName(f.Name)
		catalogue = catalogue || f.Name == catalogueFile
		if !day && f.Name != catalogueFile {
			return r, fmt.Errorf("backup %s: %w: it names %q, which is no file of a store", dir, ErrCorrupt, f.Name)
		}
		if err := verifyFile(ctx, filepath.Join(dir, f.Name), f); err != nil {
			return r, fmt.Errorf("backup %s: %s: %w", dir, f.Name, err)
		}
	}
	if !catalogue {
		return r, fmt.Errorf("backup %s: %w: it has no %s", dir, ErrCorrupt, catalogueFile)
	}
	return r, nil
}

func verifyFile(ctx context.Context, path string, want BackupFile) (err error) {
	have, ok := describe(path)
	switch {
	case !ok:
		return fmt.Errorf("%w: it cannot be read", ErrCorrupt)
	case have.Bytes != want.Bytes:
		return fmt.Errorf("%w: it has %d bytes, not %d", ErrCorrupt, have.Bytes, want.Bytes)
	case have.SHA256 != want.SHA256:
		return fmt.Errorf("%w: its SHA-256 is not that of the manifest", ErrCorrupt)
	}
	db, err := openDB(path, "ro", 1, map[string][]string{"immutable": {"1"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return checkDB(ctx, db, "integrity_check")
}

// Restore verifies a backup and puts it into dataDir, which must hold no store. Sequence ids and event numbers go on
// well above those of the backup, so that what was given out after it is not given twice.
func Restore(ctx context.Context, backupDir, dataDir string) (BackupReport, error) {
	r, err := VerifyBackup(ctx, backupDir)
	if err != nil {
		return r, err
	}
	unlock, err := lockDir(dataDir)
	if err != nil {
		return r, err
	}
	err = restore(ctx, r, backupDir, dataDir)
	return r, errors.Join(err, unlock())
}

func restore(ctx context.Context, r BackupReport, backupDir, dataDir string) error {
	entries, err := os.ReadDir(dataDir)
	if err != nil {
		return notWritable(dataDir, err)
	}
	for _, e := range entries {
		if _, day := parseDayName(e.Name()); day || e.Name() == catalogueFile {
			return &HintError{
				Err:  fmt.Errorf("restore into %s: %w: it holds a store (%s)", dataDir, ErrExists, e.Name()),
				Hint: "move that away first, or choose another directory",
			}
		}
	}
	// The catalogue comes last: until it is there, nothing will start from a half restored directory.
	for _, f := range r.Files {
		path := filepath.Join(dataDir, f.Name)
		if err := copyFile(filepath.Join(backupDir, f.Name), path+".new"); err != nil {
			return fmt.Errorf("restore %s: %w", f.Name, explain(err))
		}
		if f.Name == catalogueFile {
			if err := skipAhead(ctx, path+".new"); err != nil {
				return fmt.Errorf("restore %s: %w", f.Name, err)
			}
		}
		if err := publish(path+".new", path); err != nil {
			return fmt.Errorf("restore %s: %w", f.Name, err)
		}
	}
	return nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// skipAhead moves a restored catalogue's counters past anything the store may have given out since the backup.
func skipAhead(ctx context.Context, path string) (err error) {
	db, err := openDB(path, "rw", 1, map[string][]string{"_journal_mode": {"DELETE"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(explain(err), db.Close()) }()
	for _, q := range []string{
		"INSERT INTO sqlite_sequence (name, seq) SELECT 'sequences', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'sequences')",
		"UPDATE sqlite_sequence SET seq = seq + 1000000 WHERE name = 'sequences'",
		"UPDATE meta SET value = value + 1000 WHERE key = 'boot'",
	} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return nil
}
