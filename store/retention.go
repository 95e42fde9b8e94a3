package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Retention bounds what is kept. A day is deleted as a whole, oldest first, never the current one nor the newest.
type Retention struct {
	MaxAge    time.Duration // delete days that ended longer ago than this; 0: keep
	MediaAge  time.Duration // delete the pictures and clips of days that ended longer ago than this; 0: they stay as long as their day
	MaxBytes  int64         // delete days while the whole store is larger, then write no pictures and clips; 0: no bound
	MinFree   int64         // delete days while the file system has less free; 0: 5 % of it, at most 5 GiB; negative: no floor
	SinkGrace time.Duration // how much longer than MaxAge a day waits for a sink that has not read its events; 0: 7 days
	Interval  time.Duration // how often to look; 0: 1 minute
	Settle    time.Duration // how long age deletes nothing after the clock leapt ahead; 0: 1 hour; negative: no wait
}

// Pressure is how the disk is doing. The store itself sheds detections; whoever writes pictures asks before it does.
type Pressure int32

// The rungs of the disk ladder. Deleting days comes first; each next rung is for when that was not enough.
const (
	Normal         Pressure = iota
	Warn                    // less than twice the floor, with all that deleting days would free
	ShedSnapshots           // less free than the floor: write no pictures and clips
	ShedDetections          // less free than half the floor, or the disk is full: detections are dropped and counted; tracks and events are kept
)

// String names the rung.
func (p Pressure) String() string {
	switch p {
	case Normal:
		return "normal"
	case Warn:
		return "warn"
	case ShedSnapshots:
		return "shed-snapshots"
	case ShedDetections:
		return "shed-detections"
	}
	return fmt.Sprintf("pressure %d", int32(p))
}

// Pressure tells the rung of the disk ladder, cheaply.
func (s *Store) Pressure() Pressure { return Pressure(s.counters.pressure.Load()) }

// diskFull is called when a write met a full disk: it sheds detections at once, gives up the reserve so that tracks
// and events still have room for a while, and has house-keeping look for more.
func (s *Store) diskFull() {
	s.counters.full.Store(true)
	s.setPressure(ShedDetections, 0)
	if err := os.Remove(filepath.Join(s.cfg.Dir, reserveFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.cfg.Logger.Warn("give up the reserve", slog.Any("err", err))
	}
	s.suspect(houseNow)
}

// reserveFile keeps some blocks for when the disk is full.
const reserveFile = "reserve"

func reserveBytes(total int64) int64 { return min(total/64, 8<<20) }

// keepReserve makes the reserve when there is room for it.
func (s *Store) keepReserve(free, total int64) error {
	size := reserveBytes(total)
	path := filepath.Join(s.cfg.Dir, reserveFile)
	if free < 4*size || fileBytes(path) == size {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	// A file system that cannot reserve blocks (EOPNOTSUPP) has no reserve; everything else works.
	err = syscall.Fallocate(int(f.Fd()), 0, 0, max(size, 1))
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

func (s *Store) setPressure(p Pressure, free int64) {
	if was := Pressure(s.counters.pressure.Swap(int32(p))); was != p {
		s.cfg.Logger.Warn("disk pressure changed", slog.String("from", was.String()), slog.String("to", p.String()), slog.Int64("free_bytes", free))
	}
}

func freeSpace(dir string) (free, total int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}

// shortOfSpace is how often retention looks while something is shed, so that it ends soon after there is room again.
const shortOfSpace = 2 * time.Second

// houseNow, in place of a day, asks for a round of retention.
const houseNow = int64(-1)

// keepHouse checks files that were not checked since they may have been torn, applies retention and watches the disk,
// until ctx ends. What fails is logged and tried again in the next round.
func (s *Store) keepHouse(ctx context.Context) {
	s.retain(ctx)
	s.spareCatalogue(ctx)
	s.checkNewest(ctx)
	tick := time.NewTicker(s.cfg.Retention.Interval)
	defer tick.Stop()
	short := time.NewTicker(min(s.cfg.Retention.Interval, shortOfSpace))
	defer short.Stop()
	for {
		select {
		case <-ctx.Done():
			s.spareCatalogue(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			s.retain(ctx)
			s.spareCatalogue(ctx)
		case <-short.C:
			if s.Pressure() >= ShedSnapshots {
				s.retain(ctx)
			}
		case day := <-s.look:
			if day == houseNow {
				s.retain(ctx)
			} else {
				s.examine(ctx, day)
			}
		}
	}
}

// checkNewest checks the two days that were being written when the power went. It is not waited for: a large file
// takes seconds, and a damaged one is set aside whenever it is found.
func (s *Store) checkNewest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	list := s.days.list(0, 1<<40)
	for _, day := range list[max(0, len(list)-2):] {
		s.examine(ctx, day)
	}
}

// checkLimit bounds the check at the start.
const checkLimit = 5 * time.Minute

// examine checks a day's file and sets it aside if it is damaged.
func (s *Store) examine(ctx context.Context, day int64) {
	f, ok := s.days.borrow(day)
	if !ok {
		return
	}
	err := checkDB(ctx, f.db, "quick_check")
	f.release()
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, ErrCorrupt):
		err = s.do(ctx, func(work context.Context, w *writer) error { return w.setAside(work, day, err) })
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.Error("set damaged file aside", slog.String("file", dayName(day)), slog.Any("err", err))
		}
	default:
		s.cfg.Logger.Warn("check file", slog.String("file", dayName(day)), slog.Any("err", err))
	}
}

// kept is one day as retention sees it.
type kept struct {
	day   int64
	bytes int64
	last  int64 // newest event
}

// doomed is a day to delete, and why.
type doomed struct {
	day    int64
	reason string
}

// floor gives the free bytes that are to be kept.
func (r Retention) floor(total int64) int64 {
	switch {
	case r.MinFree < 0:
		return 0
	case r.MinFree > 0:
		return r.MinFree
	}
	return min(total/20, 5<<30)
}

// choose decides what to delete. Days come oldest first and go oldest first, so that all before a deleted one are gone;
// delivered is the newest event that every sink has. Age waits for sinks, up to the grace; bytes and free space cannot.
func (r Retention) choose(now time.Time, days []kept, total, free, floor, delivered int64) (list []doomed) {
	today := dayOf(now.UnixMicro())
	for i, d := range days {
		age := now.Sub(dayTime(d.day + 1))
		var reason string
		switch {
		case d.day == today, i == len(days)-1:
			continue
		case r.MaxAge > 0 && age > r.MaxAge+r.SinkGrace, r.MaxAge > 0 && age > r.MaxAge && d.last <= delivered:
			reason = "age"
		case r.MaxBytes > 0 && total > r.MaxBytes:
			reason = "bytes"
		case free < floor:
			reason = "free space"
		default:
			return list
		}
		list = append(list, doomed{d.day, reason})
		total -= d.bytes
		free += d.bytes
	}
	return list
}

// retain deletes days that are too old or too many, and sets the rung of the disk ladder.
func (s *Store) retain(ctx context.Context) {
	s.house.Lock()
	defer s.house.Unlock()
	r := s.cfg.Retention
	if !s.settled(s.cfg.Now()) {
		r.MaxAge, r.MediaAge = 0, 0
	}
	free, total, err := s.cfg.FreeSpace(s.cfg.Dir)
	if err != nil {
		s.cfg.Logger.Warn("ask for free space", slog.Any("err", err))
		return
	}
	floor := r.floor(total)
	delivered, err := s.delivered(ctx)
	if err != nil {
		s.cfg.Logger.Warn("read sink cursors", slog.Any("err", err))
		return
	}
	st := s.Stats()
	var days []kept
	for _, f := range st.Files[1:] {
		k := kept{day: dayOf(f.Day.UnixMicro()), bytes: f.Bytes + f.WALBytes + f.MediaBytes}
		if d, ok := s.days.borrow(k.day); ok {
			k.last = d.newestEvent()
			d.release()
		}
		days = append(days, k)
	}
	var names []string
	left := st.Bytes
	for _, d := range r.choose(s.cfg.Now(), days, st.Bytes, free, floor, delivered) {
		if err := s.forget(ctx, d.day); err != nil {
			s.cfg.Logger.Error("delete day", slog.String("file", dayName(d.day)), slog.Any("err", err))
			break
		}
		names = append(names, dayName(d.day))
		for _, k := range days {
			if k.day != d.day {
				continue
			}
			left -= k.bytes
			if k.last > delivered {
				s.cfg.Logger.Warn("a sink had not taken all events of the day that is deleted now", slog.String("file", dayName(d.day)))
			}
		}
		s.cfg.Logger.Info("deleted day", slog.String("file", dayName(d.day)), slog.String("reason", d.reason))
	}
	names = append(names, s.forgetMedia(r, st.Files[1:])...)
	if len(names) > 0 {
		s.days.mu.Lock()
		s.days.deleted = names
		s.days.mu.Unlock()
		if free, _, err = s.cfg.FreeSpace(s.cfg.Dir); err != nil {
			return
		}
	}
	s.counters.free.Store(free)
	s.lookAhead(slices.DeleteFunc(st.Files[1:], func(f FileStats) bool { return slices.Contains(names, f.Name) }), left, free-floor)
	level := rung(free, deletable(s.cfg.Now(), days, names), floor)
	if r.MaxBytes > 0 && left > r.MaxBytes {
		level = max(level, ShedSnapshots) // the days that are left cannot go
	}
	if s.counters.full.Load() {
		// Free bytes mislead while failing writes give back what they took.
		if free < 4*reserveBytes(total) {
			level = ShedDetections
		} else {
			s.counters.full.Store(false)
		}
	}
	s.setPressure(level, free)
	if level < ShedDetections {
		if err := s.keepReserve(free, total); err != nil {
			s.cfg.Logger.Warn("keep a reserve", slog.Any("err", err))
		}
	}
}

// lookAhead notes how long the disk lasts, with days that are kept, bytes in all, and room above the floor. House is locked.
func (s *Store) lookAhead(days []FileStats, bytes, room int64) {
	r, now := s.cfg.Retention, s.cfg.Now()
	if r.MaxBytes > 0 {
		room = min(room, r.MaxBytes-bytes)
	}
	var o Outlook
	if len(days) > 0 {
		begun, ok := s.current.growth(now, days[len(days)-1])
		p, known := r.paceOf(now, days)
		if !known && ok {
			p = begun
		}
		o = r.outlook(now, days, p, room)
	}
	s.counters.mu.Lock()
	defer s.counters.mu.Unlock()
	s.counters.outlook = o
}

// forgetMedia deletes the pictures and clips of days that are older than they are to be kept.
func (s *Store) forgetMedia(r Retention, days []FileStats) (names []string) {
	for _, f := range days {
		day := dayOf(f.Day.UnixMicro())
		if r.MediaAge <= 0 || f.MediaBytes == 0 || s.cfg.Now().Sub(dayTime(day+1)) <= r.MediaAge {
			continue
		}
		if err := s.days.deleteMedia(day); err != nil {
			s.cfg.Logger.Error("delete pictures and clips", slog.String("folder", mediaName(day)), slog.Any("err", err))
			continue
		}
		s.cfg.Logger.Info("deleted pictures and clips", slog.String("folder", mediaName(day)))
		names = append(names, mediaName(day))
	}
	return names
}

// deletable gives the bytes of the days that may go when space is needed: all but the current one and the newest, and
// those that are gone already.
func deletable(now time.Time, days []kept, gone []string) (n int64) {
	for i, d := range days {
		if d.day != dayOf(now.UnixMicro()) && i < len(days)-1 && !slices.Contains(gone, dayName(d.day)) {
			n += d.bytes
		}
	}
	return n
}

// rung gives the rung of the ladder for so many free bytes, and those that deleting days would free. A box that keeps as
// much as its disk holds is always near the floor: that is no trouble while it has days to give.
func rung(free, deletable, floor int64) Pressure {
	switch {
	case free < floor/2:
		return ShedDetections
	case free < floor:
		return ShedSnapshots
	case free+deletable < 2*floor:
		return Warn
	}
	return Normal
}

// PressureOf tells the rung of the ladder of a store that does not run, by the free bytes of its file system; never Warn,
// since what it could delete is not known.
func (r Retention) PressureOf(free, total int64) Pressure {
	floor := r.floor(total)
	return rung(free, floor, floor)
}

// settled tells whether the clock can be trusted to tell the age of days: a wrong one must not cost the history. It is
// compared with the monotonic clock from pass to pass, and at first with the newest day. House is locked.
func (s *Store) settled(now time.Time) bool {
	r := s.cfg.Retention
	mono := time.Now()
	if s.lastWall.IsZero() {
		s.lastWall, s.lastMono = now, mono
		if list := s.days.list(0, 1<<40); len(list) > 0 {
			s.lastWall = dayTime(list[len(list)-1] + 1)
		}
	}
	if leap := now.Sub(s.lastWall) - mono.Sub(s.lastMono); leap > clockLeap && r.Settle > 0 {
		s.cfg.Logger.Warn("the clock leapt ahead: no day is deleted for its age until it has settled",
			slog.Duration("leap", leap.Round(time.Second)), slog.Duration("settle", r.Settle))
		s.distrust = mono.Add(r.Settle)
	}
	s.lastWall, s.lastMono = now, mono
	return !mono.Before(s.distrust)
}

// clockLeap is how far ahead of the monotonic clock the wall clock may get between two passes.
const clockLeap = time.Hour

// delivered gives the newest event that every sink has delivered.
func (s *Store) delivered(ctx context.Context) (seq int64, err error) {
	err = s.reader.QueryRowContext(ctx, "SELECT coalesce(min(seq), 9223372036854775807) FROM sink_cursors").Scan(&seq)
	return seq, explain(err)
}

// forget deletes a day. The catalogue learns first that the day is over, so that a crash half way cannot bring it back.
func (s *Store) forget(ctx context.Context, day int64) error {
	err := s.do(ctx, func(work context.Context, w *writer) error {
		err := w.change(work, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(work, `INSERT INTO meta (key, value) VALUES ('floor', ?)
				ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)`, day+1)
			if err == nil {
				_, err = tx.ExecContext(work, "DELETE FROM sequences WHERE closed_us < ?", dayTime(day).UnixMicro())
			}
			return err
		})
		if err != nil && !errors.Is(err, ErrDiskFull) { // on a full disk deleting is what helps
			return err
		}
		return w.closeDay(work, day)
	})
	if err != nil {
		return err
	}
	return s.days.delete(day)
}

// sweep deletes what a crash left of days that were deleted.
func (d *days) sweep() error {
	list, err := filepath.Glob(filepath.Join(d.dir, "media-*"))
	if err != nil {
		return err
	}
	for _, path := range list {
		t, err := time.Parse("media-20060102", filepath.Base(path))
		if err == nil && d.expired(dayOf(t.UnixMicro())) {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}
