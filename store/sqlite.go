package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mattn/go-sqlite3" // also registers the driver
	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// The kinds of file, and the versions of their schemas: the number of files in migrations/<kind>.
const (
	catalogueKind    = "catalogue"
	catalogueVersion = 3
	catalogueFile    = "vedette.db"
	dayKind          = "day"
	dayVersion       = 2
)

// openWriter opens the one writing connection of a file. synchronous=FULL makes every commit survive a power cut.
func openWriter(path string) (*sql.DB, error) {
	return openDB(path, "rw", 1, url.Values{
		"_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_txlock": {"immediate"}, "_foreign_keys": {"on"}, "_cache_size": {"-4000"},
	})
}

// openReaders opens a pool of reading connections.
func openReaders(path string, n int) (*sql.DB, error) {
	db, err := openDB(path, "ro", n, url.Values{"_query_only": {"on"}, "_cache_size": {"-1000"}, "_stmt_cache_size": {"16"}})
	if err == nil {
		db.SetMaxIdleConns(n)
		db.SetConnMaxIdleTime(time.Minute)
	}
	return db, err
}

func openDB(path, mode string, conns int, params url.Values) (*sql.DB, error) {
	params.Set("mode", mode)
	params.Set("_busy_timeout", "10000")
	db, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+params.Encode())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", filepath.Base(path), err)
	}
	db.SetMaxOpenConns(conns)
	return db, nil
}

// createDB makes a file with its newest schema under a temporary name, so that a file is there whole or not at all.
func createDB(ctx context.Context, path, kind string, pageSize int, meta map[string]any) error {
	tmp := path + ".new"
	if err := removeDB(tmp); err != nil {
		return err
	}
	db, err := openDB(tmp, "rwc", 1, url.Values{"_synchronous": {"OFF"}})
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf("PRAGMA page_size = %d; PRAGMA journal_mode = MEMORY", pageSize))
	if err == nil {
		err = applyMigrations(ctx, db, kind)
	}
	for k, v := range meta {
		if err == nil {
			_, err = db.ExecContext(ctx, "INSERT INTO meta (key, value) VALUES (?, ?)", k, v)
		}
	}
	if err == nil {
		_, err = db.ExecContext(ctx, "PRAGMA journal_mode = WAL")
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return errors.Join(fmt.Errorf("create %s: %w", filepath.Base(path), explain(err)), removeDB(tmp))
	}
	return publish(tmp, path)
}

// publish syncs a finished file and gives it its name.
func publish(tmp, path string) error {
	if err := syncPath(tmp); err != nil {
		return explain(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return explain(err)
	}
	return explain(syncPath(filepath.Dir(path)))
}

func applyMigrations(ctx context.Context, db *sql.DB, kind string) error {
	sub, err := fs.Sub(migrations, "migrations/"+kind)
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, sub)
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// migrate brings a file to the newest schema. Before it changes anything it copies the file to backup.
func migrate(ctx context.Context, db *sql.DB, path, kind string, newest int, backup string) (migrated bool, err error) {
	var version int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return false, explain(err)
	}
	switch {
	case version == newest:
		return false, nil
	case version > newest:
		return false, &HintError{
			Err:  fmt.Errorf("%w: schema version %d, this program knows %d", ErrNewer, version, newest),
			Hint: "install the newer version again, or restore the backup made before the upgrade",
		}
	}
	if err := copyDB(ctx, path, backup); err != nil {
		return false, fmt.Errorf("backup before migration: %w", err)
	}
	if err := applyMigrations(ctx, db, kind); err != nil {
		return false, fmt.Errorf("migrate from version %d to %d (copy kept at %s): %w", version, newest, backup, explain(err))
	}
	return true, nil
}

// copyDB writes a consistent copy of a database, however busy it is, and syncs it.
func copyDB(ctx context.Context, from, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return explain(err)
	}
	tmp := to + ".new"
	if err := removeDB(tmp); err != nil {
		return err
	}
	db, err := openDB(from, "ro", 1, url.Values{})
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", tmp)
	if err = errors.Join(explain(err), db.Close()); err != nil {
		return errors.Join(err, removeDB(tmp))
	}
	return publish(tmp, to)
}

// checkDB runs PRAGMA quick_check or integrity_check; damage is an ErrCorrupt.
func checkDB(ctx context.Context, db *sql.DB, pragma string) error {
	var text string
	if err := db.QueryRowContext(ctx, "PRAGMA "+pragma+"(1)").Scan(&text); err != nil {
		return explain(err)
	}
	if text != "ok" {
		return fmt.Errorf("%w: %s", ErrCorrupt, text)
	}
	return nil
}

// removeDB deletes a database with its companions.
func removeDB(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// explain turns SQLite's and the kernel's errors into ours.
func explain(err error) error {
	var e sqlite3.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	case !errors.As(err, &e):
		return err
	case e.Code == sqlite3.ErrFull, e.SystemErrno == syscall.ENOSPC, e.SystemErrno == syscall.EDQUOT:
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	case e.Code == sqlite3.ErrCorrupt, e.Code == sqlite3.ErrNotADB:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case e.Code == sqlite3.ErrInterrupt:
		return fmt.Errorf("%w: %w", context.Canceled, err)
	}
	return err
}

// refused tells a row that SQLite will never take from a file that cannot be written just now.
func refused(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) &&
		(e.Code == sqlite3.ErrConstraint || e.Code == sqlite3.ErrTooBig || e.Code == sqlite3.ErrMismatch)
}

// senseless tells that SQLite does not know a statement's tables or columns: the schema is not what it was.
func senseless(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && e.Code == sqlite3.ErrError
}

// micro gives the stored form of a time; zero stays zero.
func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicro(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
