package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// MediaKind tells what is kept of an event.
type MediaKind int8

// The kinds of media.
const (
	Snapshot MediaKind = 1 // the picture the event was found in, JPEG
	Clip     MediaKind = 2 // video around the event, fragmented MP4
)

// Media is a file that is kept of an event. It is appended when the file is durable (WriteMedia), so a row never names
// a file that a power cut took.
type Media struct {
	Event      int64 // Seq of the event
	Camera     string
	Time       time.Time // of the event: chooses the day
	Kind       MediaKind
	File       string    // within MediaDir(Time)
	Start, End time.Time // capture times of what it shows
}

func (m *Media) check() error {
	err := first(checkID("event", m.Event), checkName("camera", m.Camera), checkTime("time", m.Time), checkTime("start", m.Start),
		checkTime("end", m.End), checkFile("file", m.File))
	if err == nil && m.Kind != Snapshot && m.Kind != Clip {
		err = fmt.Errorf("kind: %w: want Snapshot or Clip", ErrInvalid)
	}
	return err
}

// checkFile wants the path of a file within a folder.
func checkFile(what, v string) error {
	if v == "" || len(v) > 2*maxName || !filepath.IsLocal(v) || filepath.Clean(v) != v || strings.ContainsRune(v, 0) {
		return fmt.Errorf("%s: %w: %q is no path of a file within the folder", what, ErrInvalid, v)
	}
	return nil
}

// MediaDir is the folder for the pictures and clips of t's day; retention deletes it with the day.
func (s *Store) MediaDir(t time.Time) string {
	return filepath.Join(s.cfg.Dir, mediaName(dayOf(t.UnixMicro())))
}

// WriteMedia writes a file into MediaDir(t) and returns when it is durable, whole, under its name. A file of that name
// is replaced. It returns ErrDiskFull when so little space is left that no pictures are kept (ShedSnapshots), and
// ErrNotFound when t's day was deleted by retention.
func (s *Store) WriteMedia(t time.Time, file string, data []byte) error {
	if err := first(s.running(), checkTime("time", t), checkFile("file", file)); err != nil {
		return err
	}
	f, err := s.CreateMedia(t, file)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		f.Abort()
		return err
	}
	return f.Commit()
}

// unfinished begins the name of a file while it is being written.
const unfinished = ".new-"

// MediaFile is a file that is being written; it has its name when Commit has returned.
type MediaFile struct {
	s    *Store
	day  int64
	path string
	file *os.File
	made []string // folders whose own entries are to be synced
	size int64
}

// CreateMedia is WriteMedia for what comes in pieces. Commit or Abort must be called once.
func (s *Store) CreateMedia(t time.Time, file string) (*MediaFile, error) {
	if err := first(s.running(), checkTime("time", t), checkFile("file", file)); err != nil {
		return nil, err
	}
	f := &MediaFile{s: s, day: dayOf(t.UnixMicro()), path: filepath.Join(s.MediaDir(t), file)}
	if err := f.allowed(); err != nil {
		return nil, err
	}
	for dir := filepath.Dir(f.path); dir != s.cfg.Dir; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		f.made = append(f.made, filepath.Dir(dir))
	}
	err := os.MkdirAll(filepath.Dir(f.path), 0o750)
	if err == nil {
		f.file, err = os.CreateTemp(filepath.Dir(f.path), unfinished+"*")
	}
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", file, explain(err))
	}
	return f, nil
}

func (f *MediaFile) allowed() error {
	switch {
	case f.s.Pressure() >= ShedSnapshots:
		return fmt.Errorf("%w: no pictures and clips are kept while so little is free", ErrDiskFull)
	case f.s.days.expired(f.day):
		return fmt.Errorf("%s: %w: retention has deleted it", mediaName(f.day), ErrNotFound)
	}
	return nil
}

// Write implements io.Writer. It fails when space has become short.
func (f *MediaFile) Write(b []byte) (int, error) {
	if err := f.allowed(); err != nil {
		return 0, err
	}
	n, err := f.file.Write(b)
	f.size += int64(n)
	return n, explain(err)
}

// Abort leaves nothing behind.
func (f *MediaFile) Abort() {
	_ = f.file.Close()
	_ = os.Remove(f.file.Name())
}

// Commit returns when the file is durable under its name.
func (f *MediaFile) Commit() error {
	was := fileBytes(f.path)
	err := errors.Join(f.file.Sync(), f.file.Close())
	if err == nil {
		err = os.Rename(f.file.Name(), f.path)
	}
	if err != nil {
		_ = os.Remove(f.file.Name())
		return fmt.Errorf("write %s: %w", filepath.Base(f.path), explain(err))
	}
	for _, dir := range append(f.made, filepath.Dir(f.path)) {
		if err := syncPath(dir); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Base(f.path), explain(err))
		}
	}
	f.s.days.addMedia(f.s.cfg.Dir, f.day, f.size-was)
	return nil
}

// ReadMedia reads a file of MediaDir(t); ErrNotFound when it is gone.
func (s *Store) ReadMedia(t time.Time, file string) ([]byte, error) {
	if err := first(s.running(), checkFile("file", file)); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(s.MediaDir(t))
	if err == nil {
		defer func() { _ = root.Close() }()
		var b []byte
		if b, err = root.ReadFile(file); err == nil {
			return b, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	return nil, fmt.Errorf("%s: %w", file, err)
}

// addMedia counts what a day's pictures and clips take; what was there before is looked up once.
func (d *days) addMedia(dir string, day, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := d.media[day]; ok {
		d.media[day] = n + bytes
		return
	}
	d.media[day] = folderBytes(filepath.Join(dir, mediaName(day)))
}

// mediaBytes tells what a day's pictures and clips take.
func (d *days) mediaBytes(dir string, day int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := d.media[day]
	if !ok {
		n = folderBytes(filepath.Join(dir, mediaName(day)))
		d.media[day] = n
	}
	return n
}

// deleteMedia removes a day's pictures and clips; their rows stay.
func (d *days) deleteMedia(day int64) error {
	d.mu.Lock()
	delete(d.media, day)
	d.mu.Unlock()
	return os.RemoveAll(filepath.Join(d.dir, mediaName(day)))
}

// addMediaOf fills in what is kept of events of the file.
func (f *dayFile) addMediaOf(ctx context.Context, events []keyed[Event]) (err error) {
	for part := range slices.Chunk(events, 500) {
		ids := make([]int64, len(part))
		at := make(map[int64]*Event, len(part))
		for i := range part {
			ids[i], at[part[i].row.Seq] = part[i].row.Seq, &part[i].row
		}
		var c conditions
		c.in("event", ids)
		if err := f.scanMedia(ctx, c, at); err != nil {
			return err
		}
	}
	return nil
}

func (f *dayFile) scanMedia(ctx context.Context, c conditions, at map[int64]*Event) (err error) {
	rows, err := f.db.QueryContext(ctx, "SELECT event, kind, file, start_us, end_us FROM media"+c.where(), c.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var m Media
		var start, end int64
		if err := rows.Scan(&m.Event, &m.Kind, &m.File, &start, &end); err != nil {
			return err
		}
		e := at[m.Event]
		m.Camera, m.Time, m.Start, m.End = e.Camera, e.Time, fromMicro(start), fromMicro(end)
		e.Media = append(e.Media, m)
	}
	return rows.Err()
}
