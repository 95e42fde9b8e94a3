package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	dayMicros    = int64(24 * time.Hour / time.Microsecond)
	minuteMicros = int64(time.Minute / time.Microsecond)
)

// dayOf numbers the UTC day of a time in microseconds since 1970.
func dayOf(us int64) int64 {
	day := us / dayMicros
	if us%dayMicros < 0 {
		day--
	}
	return day
}

func dayTime(day int64) time.Time { return time.UnixMicro(day * dayMicros).UTC() }

func dayName(day int64) string { return "day-" + dayTime(day).Format("20060102") + ".db" }

func mediaName(day int64) string { return "media-" + dayTime(day).Format("20060102") }

func parseDayName(name string) (day int64, ok bool) {
	t, err := time.Parse("day-20060102.db", name)
	return dayOf(t.UnixMicro()), err == nil && dayName(dayOf(t.UnixMicro())) == name
}

// days knows the day files and lends them to readers.
type days struct {
	dir     string
	readers int

	mu      sync.Mutex
	files   map[int64]*dayFile
	media   map[int64]int64 // bytes of a day's pictures and clips, once they were counted
	floor   int64           // days before this one were deleted; nothing is written there any more
	damaged []string        // names of files set aside
	deleted []string        // by the last pass of retention that deleted any
}

// dayFile is one day's file as readers see it.
type dayFile struct {
	day    int64
	db     *sql.DB
	users  sync.WaitGroup  // Add only under days.mu while the file is listed
	gone   context.Context // ends when the file is being taken away
	cancel context.CancelFunc

	mu        sync.Mutex
	names     map[int64]string
	lastEvent int64 // largest event number in the file
	skew      int64 // no receive time in the file is further from its capture time, in microseconds
}

func (d *days) path(day int64) string { return filepath.Join(d.dir, dayName(day)) }

// add lists a file that exists.
func (d *days) add(day, lastEvent, skew int64) error {
	db, err := openReaders(d.path(day), d.readers)
	if err != nil {
		return err
	}
	f := &dayFile{day: day, db: db, names: map[int64]string{}, lastEvent: lastEvent, skew: skew}
	f.gone, f.cancel = context.WithCancel(context.Background())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[day] = f
	return nil
}

// borrow lends a day's file until release; false when there is none.
func (d *days) borrow(day int64) (*dayFile, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.files[day]
	if ok {
		f.users.Add(1)
	}
	return f, ok
}

func (f *dayFile) release() { f.users.Done() }

// bound gives a context that also ends when the file is being taken away.
func (f *dayFile) bound(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	unbind := context.AfterFunc(f.gone, cancel)
	return ctx, func() { unbind(); cancel() }
}

// unlist takes a file from readers, waits for those inside and closes it.
func (d *days) unlist(day int64) error {
	d.mu.Lock()
	f, ok := d.files[day]
	delete(d.files, day)
	d.mu.Unlock()
	if !ok {
		return nil
	}
	f.cancel()
	f.users.Wait()
	return f.db.Close()
}

func (d *days) closeAll() error {
	var errs []error
	for _, day := range d.list(0, 1<<40) {
		errs = append(errs, d.unlist(day))
	}
	return errors.Join(errs...)
}

// list gives the days from first to last, both included, in order.
func (d *days) list(first, last int64) []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []int64
	for _, day := range slices.Sorted(maps.Keys(d.files)) {
		if day >= first && day <= last {
			list = append(list, day)
		}
	}
	return list
}

// setAside moves a damaged file out of the way; the caller has closed its own connections.
func (d *days) setAside(day int64, now time.Time) (string, error) {
	if err := d.unlist(day); err != nil {
		return "", err
	}
	name, err := setAside(d.path(day), now)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	d.damaged = append(d.damaged, name)
	d.mu.Unlock()
	return name, nil
}

// setAside moves a database with its companions into the folder damaged beside it.
func setAside(path string, now time.Time) (name string, err error) {
	dir := filepath.Join(filepath.Dir(path), "damaged")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", explain(err)
	}
	name = filepath.Base(path) + "." + now.UTC().Format("20060102T150405.000000")
	for _, suffix := range []string{"-wal", ""} {
		err := os.Rename(path+suffix, filepath.Join(dir, name+suffix))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", explain(err)
		}
	}
	if err := os.Remove(path + "-shm"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", explain(err)
	}
	return name, errors.Join(syncPath(dir), syncPath(filepath.Dir(path)))
}

// delete removes a day's file and media for good.
func (d *days) delete(day int64) error {
	d.mu.Lock()
	d.floor = max(d.floor, day+1)
	delete(d.media, day)
	d.mu.Unlock()
	if err := d.unlist(day); err != nil {
		return err
	}
	if err := removeDB(d.path(day)); err != nil {
		return fmt.Errorf("delete %s: %w", dayName(day), err)
	}
	if err := os.RemoveAll(filepath.Join(d.dir, mediaName(day))); err != nil {
		return fmt.Errorf("delete %s: %w", mediaName(day), err)
	}
	return syncPath(d.dir)
}

// name translates an id of the file's dictionary.
func (f *dayFile) name(ctx context.Context, id int64) (string, error) {
	f.mu.Lock()
	s, ok := f.names[id]
	f.mu.Unlock()
	if ok {
		return s, nil
	}
	if err := f.loadNames(ctx); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, ok = f.names[id]; !ok {
		return "", fmt.Errorf("%w: %s has no name %d", ErrCorrupt, dayName(f.day), id)
	}
	return s, nil
}

// ids translates names into ids of the file's dictionary; those that it does not have are left out.
func (f *dayFile) ids(ctx context.Context, names []string) ([]int64, error) {
	if len(names) == 0 {
		return nil, nil
	}
	args := make([]any, len(names))
	for i, n := range names {
		args[i] = n
	}
	rows, err := f.db.QueryContext(ctx, "SELECT id, name FROM names WHERE name IN (?"+strings.Repeat(", ?", len(names)-1)+")", args...)
	if err != nil {
		return nil, err
	}
	return f.scanNames(rows)
}

func (f *dayFile) loadNames(ctx context.Context) error {
	rows, err := f.db.QueryContext(ctx, "SELECT id, name FROM names")
	if err != nil {
		return err
	}
	_, err = f.scanNames(rows)
	return err
}

func (f *dayFile) scanNames(rows *sql.Rows) (ids []int64, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id int64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			return nil, err
		}
		f.mu.Lock()
		f.names[id] = name
		f.mu.Unlock()
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func (f *dayFile) sawEvent(seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastEvent = max(f.lastEvent, seq)
}

func (f *dayFile) newestEvent() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastEvent
}

func (f *dayFile) sawSkew(skew int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skew = max(f.skew, skew)
}

func (f *dayFile) largestSkew() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.skew
}

// sawEvent notes the newest event of a day.
func (d *days) sawEvent(day, seq int64) {
	if f, ok := d.borrow(day); ok {
		f.sawEvent(seq)
		f.release()
	}
}

// expired tells whether retention has passed a day.
func (d *days) expired(day int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return day < d.floor
}

// sawSkew notes how far the times of a detection of a day are apart.
func (d *days) sawSkew(day, skew int64) {
	if f, ok := d.borrow(day); ok {
		f.sawSkew(skew)
		f.release()
	}
}
