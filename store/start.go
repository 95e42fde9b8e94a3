package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	lockFile   = "lock"
	backupsDir = "backups"
	// seqShift leaves room for four thousand million events and windows between two starts; the start number above it
	// makes them grow for ever, and never be given twice, without a write for each.
	seqShift = 32
)

// start opens everything and puts right what a crash left behind.
func (s *Store) start(ctx context.Context) (_ *writer, err error) {
	if s.cfg.Dir == "" {
		return nil, fmt.Errorf("data directory: %w: no path is given", ErrInvalid)
	}
	unlock, err := lockDir(s.cfg.Dir)
	if err != nil {
		return nil, err
	}
	s.giveUpReserve()
	s.days = &days{dir: s.cfg.Dir, readers: s.cfg.Readers, files: map[int64]*dayFile{}, media: map[int64]int64{}}
	w := &writer{s: s, unlock: unlock, days: map[int64]*dayWriter{}, active: map[int64]map[int64]int64{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(ctx))
		}
	}()
	if err := w.openCatalogue(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", catalogueFile, err)
	}
	boot, err := w.identify(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", catalogueFile, err)
	}
	w.nextEvent = boot << seqShift
	s.lastEvent.Store(w.nextEvent)
	s.log = newBacklog(s.cfg.Backlog, uint64(boot<<seqShift)+1)
	if err := w.openDays(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(s.days.sweep(), sweepUnfinished(s.cfg.Dir)); err != nil {
		return nil, err
	}
	if err := w.closeCrashed(ctx); err != nil {
		return nil, fmt.Errorf("close what a crash left open: %w", err)
	}
	return w, nil
}

// giveUpReserve makes room to start in on a disk that is full.
func (s *Store) giveUpReserve() {
	free, total, err := s.cfg.FreeSpace(s.cfg.Dir)
	if err != nil || free >= reserveBytes(total) {
		return
	}
	s.counters.full.Store(true)
	s.setPressure(ShedDetections, free)
	if err := os.Remove(filepath.Join(s.cfg.Dir, reserveFile)); err == nil {
		s.cfg.Logger.Warn("the disk is full: gave up the reserve to start", slog.Int64("free_bytes", free))
	}
}

// lockDir makes the data directory and takes it for this process.
func lockDir(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, notWritable(dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, notWritable(dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(&HintError{
			Err:  fmt.Errorf("data directory %s: %w", dir, ErrLocked),
			Hint: "another vedette process has it open: stop that one, or choose another directory",
		}, f.Close())
	}
	return f.Close, nil
}

func notWritable(dir string, err error) error {
	return &HintError{
		Err:  fmt.Errorf("data directory %s: %w", dir, explain(err)),
		Hint: "the user that vedette runs as must be able to write there",
	}
}

// openCatalogue opens vedette.db, making, checking and migrating it as needed.
func (w *writer) openCatalogue(ctx context.Context) error {
	path := filepath.Join(w.s.cfg.Dir, catalogueFile)
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && w.s.hasSpare() {
		// Without it a box would begin as a new one, to which the days that are there do not belong.
		if err := w.recoverCatalogue(ctx, fmt.Errorf("%w: the file is gone", ErrCorrupt)); err != nil {
			return err
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		var uid [16]byte
		_, _ = rand.Read(uid[:]) // never fails
		meta := map[string]any{"uid": hex.EncodeToString(uid[:]), "boot": 0}
		if err := createDB(ctx, path, catalogueKind, 4096, meta); err != nil {
			return err
		}
	}
	if w.db, err = openWriter(path); err != nil {
		return err
	}
	err = checkCatalogue(ctx, w.db, "quick_check")
	if errors.Is(err, ErrCorrupt) {
		err = errors.Join(w.db.Close(), w.recoverCatalogue(ctx, err))
		if err == nil {
			w.db, err = openWriter(path)
		}
	}
	if err != nil {
		return err
	}
	w.s.unspared.Store(!w.s.hasSpare())
	migrated, err := migrate(ctx, w.db, path, catalogueKind, catalogueVersion, w.backupPath(catalogueFile))
	if err != nil {
		return err
	}
	if migrated {
		w.s.cfg.Logger.Info("migrated", slog.String("file", catalogueFile), slog.Int("version", catalogueVersion))
	}
	w.s.reader, err = openReaders(path, w.s.cfg.Readers)
	return err
}

// checkCatalogue tells a whole catalogue from a damaged one, and from a file that was cut to nothing, which SQLite takes for a
// new database.
func checkCatalogue(ctx context.Context, db *sql.DB, pragma string) error {
	if err := checkDB(ctx, db, pragma); err != nil {
		return err
	}
	var tables int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE name = 'meta'").Scan(&tables); err != nil {
		return explain(err)
	}
	var uids int
	if tables > 0 {
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM meta WHERE key = 'uid'").Scan(&uids); err != nil {
			return explain(err)
		}
	}
	if uids == 0 {
		return fmt.Errorf("%w: it is empty", ErrCorrupt)
	}
	return nil
}

func (w *writer) backupPath(name string) string {
	return filepath.Join(w.s.cfg.Dir, backupsDir, "before-migration-"+w.s.cfg.Now().UTC().Format("20060102T150405")+"-"+name)
}

// identify counts this start and reads who the store is.
func (w *writer) identify(ctx context.Context) (boot int64, err error) {
	err = w.change(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "UPDATE meta SET value = value + 1 WHERE key = 'boot' RETURNING value").Scan(&boot)
		if err != nil {
			return err
		}
		var floor sql.NullInt64
		err = tx.QueryRowContext(ctx, "SELECT (SELECT value FROM meta WHERE key = 'uid'), (SELECT value FROM meta WHERE key = 'floor')").
			Scan(&w.uid, &floor)
		w.s.days.floor = floor.Int64
		return err
	})
	return boot, err
}

// openDays lists the day files; one that cannot be read is set aside.
func (w *writer) openDays(ctx context.Context) error {
	entries, err := os.ReadDir(w.s.cfg.Dir)
	if err != nil {
		return notWritable(w.s.cfg.Dir, err)
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, ".db.new") {
			if err := removeDB(filepath.Join(w.s.cfg.Dir, name)); err != nil {
				return err
			}
		}
		day, ok := parseDayName(name)
		if !ok {
			continue
		}
		if w.s.days.expired(day) { // a crash came while it was being deleted
			if err := w.s.days.delete(day); err != nil {
				return err
			}
			continue
		}
		err := w.openDay(ctx, day)
		switch {
		case errors.Is(err, ErrCorrupt), senseless(err):
			if err := w.setAside(ctx, day, err); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// sweepUnfinished deletes what a crash left half written: pictures and clips without a name yet, and copies of days that
// are migrated by now.
func sweepUnfinished(dir string) error {
	copies := filepath.Join(dir, backupsDir)
	for _, pattern := range []string{"before-migration-*-day-*", "before-migration-*.new*"} {
		list, err := filepath.Glob(filepath.Join(copies, pattern))
		if err != nil {
			return err
		}
		for _, path := range list {
			if err := os.Remove(path); err != nil {
				return explain(err)
			}
		}
	}
	days, err := filepath.Glob(filepath.Join(dir, "media-*"))
	for _, day := range days {
		err = errors.Join(err, filepath.WalkDir(day, func(path string, e fs.DirEntry, err error) error {
			if err == nil && strings.HasPrefix(e.Name(), unfinished) {
				err = os.Remove(path)
			}
			return err
		}))
	}
	return explain(err)
}

// openDay migrates one day's file, ends the tracks that a crash left active, and lists it.
func (w *writer) openDay(ctx context.Context, day int64) (err error) {
	path := w.s.days.path(day)
	db, err := openWriter(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	backup := w.backupPath(dayName(day))
	migrated, err := migrate(ctx, db, path, dayKind, dayVersion, backup)
	if err != nil {
		return err
	}
	if migrated {
		w.s.cfg.Logger.Info("migrated", slog.String("file", dayName(day)), slog.Int("version", dayVersion))
		if err := removeDB(backup); err != nil {
			return err
		}
	}
	var uid string
	if err := db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'store'").Scan(&uid); err != nil {
		return fmt.Errorf("%w: it does not say whose it is: %w", ErrCorrupt, err)
	}
	if uid != w.uid {
		return fmt.Errorf("%w: it belongs to another store", ErrCorrupt)
	}
	if err := endCrashedTracks(ctx, db); err != nil {
		return explain(err)
	}
	var last sql.NullInt64
	if err := db.QueryRowContext(ctx, "SELECT max(seq) FROM events").Scan(&last); err != nil {
		return explain(err)
	}
	skew, err := readSkew(ctx, db)
	if err != nil {
		return explain(err)
	}
	return w.s.days.add(day, last.Int64, skew)
}

// crashReason is what sequences and tracks end with that nobody could end.
const crashReason = "CRASH"

// endCrashedTracks ends every active track of a file. Detections tell when each was seen last: they are written more
// often than the track itself.
func endCrashedTracks(ctx context.Context, db *sql.DB) (err error) {
	var n int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM tracks WHERE state = 1").Scan(&n); err != nil || n == 0 {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	ends, err := lastSeen(ctx, tx)
	if err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, "INSERT INTO names (name) VALUES (?) ON CONFLICT DO NOTHING", crashReason); err != nil {
		return err
	}
	for id, o := range ends {
		if _, err = tx.ExecContext(ctx, `UPDATE tracks SET end_us = ?, box = ?, detections = detections + ?, score = max(score, ?)
			WHERE sequence = ? AND local = ?`, o.end, boxInt(o.box), o.more, o.score, id.Sequence, id.Local); err != nil {
			return err
		}
	}
	if _, err = tx.ExecContext(ctx, "UPDATE tracks SET state = 2, end_reason = (SELECT id FROM names WHERE name = ?) WHERE state = 1",
		crashReason); err != nil {
		return err
	}
	return tx.Commit()
}

// seen is what detections tell about an active track after the time its row ends.
type seen struct {
	end, more int64
	score     int32
	box       [4]uint16
}

func lastSeen(ctx context.Context, tx *sql.Tx) (_ map[TrackID]*seen, err error) {
	ends := map[TrackID]*seen{}
	rows, err := tx.QueryContext(ctx, `
		SELECT d.sequence, d.start_us, d.data, t.local, t.end_us
		FROM tracks t JOIN detections d ON d.camera = t.camera AND d.sequence = t.sequence AND d.start_us > t.end_us - ?
		WHERE t.state = 1 AND d.end_us > t.end_us ORDER BY d.start_us`, minuteMicros)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var sequence, start, local, end int64
		var data []byte
		if err := rows.Scan(&sequence, &start, &data, &local, &end); err != nil {
			return nil, err
		}
		id := TrackID{Sequence: sequence, Local: local}
		err := decodeBlock(data, start, func(f *frameRec) bool {
			for _, o := range f.objects {
				if o.local != local || f.capture <= end {
					continue
				}
				if ends[id] == nil {
					ends[id] = &seen{}
				}
				e := ends[id]
				e.more++
				e.score = max(e.score, o.score)
				if f.capture > e.end {
					e.end, e.box = f.capture, o.box
				}
			}
			return true
		})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	return ends, rows.Err()
}

// closeCrashed closes the sequences that are still open.
func (w *writer) closeCrashed(ctx context.Context) error {
	return w.change(ctx, func(tx *sql.Tx) (err error) {
		now := w.s.cfg.Now()
		rows, err := tx.QueryContext(ctx, `UPDATE sequences SET close_reason = ?, closed_us = ? WHERE closed_us IS NULL
			RETURNING id, camera, opened_us`, crashReason, now.UnixMicro())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			q := Sequence{CloseReason: crashReason, ClosedAt: now}
			var opened int64
			if err := rows.Scan(&q.ID, &q.Camera, &opened); err != nil {
				return err
			}
			q.OpenedAt = fromMicro(opened)
			w.s.crashed = append(w.s.crashed, q)
		}
		if n := len(w.s.crashed); n > 0 {
			w.s.cfg.Logger.Warn("closed sequences that the last run left open", slog.Int("sequences", n))
		}
		return rows.Err()
	})
}
