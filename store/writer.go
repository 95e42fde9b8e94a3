package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// writer owns every connection that changes rows. Its methods run on the goroutine of run, except during start.
type writer struct {
	s    *Store
	db   *sql.DB // the catalogue's
	days map[int64]*dayWriter
	uid  string // of the store; day files carry it

	unlock func() error // gives the data directory back

	window     *window // being committed, or waiting to be tried again
	lastCommit time.Time
	backoff    time.Duration
	retryAt    time.Time
	nextEvent  int64
	active     map[int64]map[int64]int64 // of each sequence with active tracks: local id to day
}

// maxBackoff is the longest that a failing commit waits before the next try.
const maxBackoff = 5 * time.Second

// earlyCommit is the weight at which a window is committed before its time, and which a window does not exceed by more
// than a batch.
const earlyCommit = 20_000

// run commits windows and serves ops until ctx ends; then it commits what is left.
func (w *writer) run(ctx context.Context) {
	// The context of writes outlives ctx: a commit is never interrupted half way.
	work := context.WithoutCancel(ctx)
	house := time.NewTicker(time.Second)
	defer house.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait, ok := w.due(); ok {
			timer.Reset(wait)
		}
		select {
		case <-ctx.Done():
			w.finish(work)
			return
		case <-w.s.wake:
		case <-timer.C:
			w.commit(work)
		case o := <-w.s.ops:
			o.done <- o.run(work, w)
		case <-house.C:
			w.tidy(work)
		}
	}
}

// due tells how long until the next commit, if one is needed.
func (w *writer) due() (time.Duration, bool) {
	if w.window != nil {
		return time.Until(w.retryAt), true
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	n := len(w.s.waiting)
	switch {
	case n == 0:
		return 0, false
	case w.s.waitingWeight >= earlyCommit, w.s.flushes > 0:
		return 0, true
	}
	return time.Until(w.lastCommit.Add(w.s.cfg.Window)), true
}

// finish stops Append, and commits what was queued; what cannot be committed is reported to its sender.
func (w *writer) finish(ctx context.Context) {
	w.s.mu.Lock()
	w.s.open = false
	w.s.mu.Unlock()
	for failed := 0; failed < 3; {
		w.commit(ctx)
		if w.window != nil {
			failed++
		} else if _, more := w.due(); !more {
			return
		}
	}
	for left := w.window.batches; len(left) > 0; left = w.s.take() {
		for _, p := range left {
			w.s.settle(p, fmt.Errorf("%w: it stopped before the batch could be written", ErrClosed))
		}
	}
	w.window = nil
}

// take takes the oldest batches from the queue, as many as make a window: what is more waits, so that no commit gets long.
func (s *Store) take() []*pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, weight := 0, int64(0)
	for n < len(s.waiting) && weight < earlyCommit {
		weight += s.waiting[n].weight
		if s.waiting[n].flush {
			s.flushes--
		}
		n++
	}
	list := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	s.waitingWeight -= weight
	if len(s.waiting) == 0 {
		s.waiting = nil
	}
	return list
}

// settle tells a sender the fate of its batch and gives its room back.
func (s *Store) settle(p *pending, err error) {
	p.done <- err
	s.room.Release(p.weight)
}

// commit writes the window at hand, or what is queued, and publishes it. What fails stays at hand.
func (w *writer) commit(ctx context.Context) {
	if w.window == nil {
		batches := w.s.take()
		if len(batches) == 0 {
			return
		}
		w.window = &window{batches: batches, done: map[int64]bool{}}
	}
	begin := time.Now()
	w.lastCommit = begin
	err := w.write(ctx, w.window)
	switch {
	case err == nil:
		w.accept(w.window, begin)
	case refused(err):
		w.single(ctx, w.window, err)
	default:
		w.retry(err)
		return
	}
	w.window, w.backoff = nil, 0
	for day, d := range w.days {
		if err := d.checkpoint(ctx); err != nil {
			w.s.cfg.Logger.Warn("checkpoint", slog.String("file", dayName(day)), slog.Any("err", err))
		}
	}
}

// accept publishes a window that is on disk and tells its senders.
func (w *writer) accept(win *window, begin time.Time) {
	c := Commit{Time: w.s.cfg.Now()}
	if len(win.batches) == 1 {
		c.Batch = win.batches[0].batch
	} else {
		for _, p := range win.batches {
			c.Frames = append(c.Frames, p.batch.Frames...)
			c.Tracks = append(c.Tracks, p.batch.Tracks...)
			c.Events = append(c.Events, p.batch.Events...)
			c.Media = append(c.Media, p.batch.Media...)
		}
	}
	for i := range c.Tracks {
		w.follow(&c.Tracks[i])
	}
	if n := len(c.Events); n > 0 {
		w.s.lastEvent.Store(c.Events[n-1].Seq)
	}
	if c.weight() > 0 {
		w.s.counters.committed(&c.Batch, begin)
		w.s.log.publish(c)
	}
	for _, p := range win.batches {
		w.s.settle(p, nil)
	}
}

// single tries the batches of a refused window one by one, so that only the guilty one is lost.
func (w *writer) single(ctx context.Context, win *window, err error) {
	if len(win.batches) == 1 {
		w.s.counters.commitErrors.Add(1)
		w.s.cfg.Logger.Error("batch refused by the database", slog.Any("err", err))
		w.s.settle(win.batches[0], err)
		return
	}
	for _, p := range win.batches {
		one := &window{batches: []*pending{p}, done: win.done, events: win.events}
		begin := time.Now()
		if err := w.write(ctx, one); err != nil {
			w.single(ctx, one, err)
		} else {
			w.accept(one, begin)
		}
	}
}

// retry keeps the window at hand for another try.
func (w *writer) retry(err error) {
	w.s.counters.commitErrors.Add(1)
	w.backoff = min(max(2*w.backoff, 100*time.Millisecond), maxBackoff)
	w.retryAt = time.Now().Add(w.backoff)
	w.s.cfg.Logger.Error("commit failed, it will be tried again", slog.Duration("in", w.backoff), slog.Any("err", err))
	if errors.Is(err, ErrDiskFull) {
		w.s.diskFull()
	}
}

// write puts the parts of a window into their files, each in one transaction, oldest day first.
func (w *writer) write(ctx context.Context, win *window) error {
	if w.s.Pressure() >= ShedDetections {
		for _, p := range win.batches {
			w.s.counters.shed(p.batch.Frames)
			p.batch.Frames = nil
		}
	}
	if !win.events {
		win.events = true
		for _, p := range win.batches {
			for i := range p.batch.Events {
				w.nextEvent++
				p.batch.Events[i].Seq = w.nextEvent
			}
		}
	}
	parts := split(win)
	order := make([]int64, 0, 2)
	for day := range parts {
		order = append(order, day)
	}
	slices.Sort(order)
	for _, day := range order {
		if err := w.writePart(ctx, day, parts[day]); err != nil {
			return fmt.Errorf("%s: %w", dayName(day), err)
		}
		win.done[day] = true
	}
	return nil
}

func (w *writer) writePart(ctx context.Context, day int64, p *part) error {
	if w.s.days.expired(day) {
		w.s.counters.expired.Add(uint64(len(p.frames) + len(p.tracks) + len(p.events)))
		return nil
	}
	d, err := w.day(ctx, day)
	if err == nil {
		w.s.days.sawSkew(day, skewOf(p.frames)) // before a reader can see them
		err = d.commit(ctx, p)
	}
	switch {
	case err == nil:
		d.used = time.Now()
		if n := len(p.events); n > 0 {
			w.s.days.sawEvent(day, p.events[n-1].Seq)
		}
		return nil
	case errors.Is(err, ErrCorrupt):
		return errors.Join(err, w.setAside(ctx, day, err))
	case refused(err):
		return err
	}
	return errors.Join(err, w.closeDay(ctx, day)) // opened afresh for the next try
}

// day gives the writing end of a day's file, which it makes when there is none.
func (w *writer) day(ctx context.Context, day int64) (*dayWriter, error) {
	if d := w.days[day]; d != nil {
		return d, nil
	}
	if f, ok := w.s.days.borrow(day); ok {
		f.release()
	} else {
		meta := map[string]any{"store": w.uid, "day": dayTime(day).Format(time.DateOnly), skewKey: minSkew}
		if err := createDB(ctx, w.s.days.path(day), dayKind, 8192, meta); err != nil {
			return nil, err
		}
		if err := w.s.days.add(day, 0, minSkew); err != nil {
			return nil, err
		}
	}
	d, err := openDayWriter(ctx, w.s.days.path(day), day)
	if err != nil {
		return nil, err
	}
	w.days[day] = d
	return d, nil
}

func (w *writer) closeDay(ctx context.Context, day int64) error {
	d := w.days[day]
	if d == nil {
		return nil
	}
	delete(w.days, day)
	return d.close(ctx)
}

// setAside takes a damaged day out of service; the next write to that day starts a new file.
func (w *writer) setAside(ctx context.Context, day int64, cause error) error {
	if err := w.closeDay(ctx, day); err != nil {
		w.s.cfg.Logger.Warn("close damaged file", slog.String("file", dayName(day)), slog.Any("err", err))
	}
	name, err := w.s.days.setAside(day, w.s.cfg.Now())
	if err != nil {
		return err
	}
	w.s.cfg.Logger.Error("a damaged day was set aside; the other days are not affected",
		slog.String("file", name), slog.Any("err", cause))
	return nil
}

// follow notes which tracks are active, so that closing a sequence can end them.
func (w *writer) follow(t *Track) {
	of := w.active[t.ID.Sequence]
	switch {
	case t.State == TrackActive && of == nil:
		w.active[t.ID.Sequence] = map[int64]int64{t.ID.Local: dayOf(t.Start.UnixMicro())}
	case t.State == TrackActive:
		of[t.ID.Local] = dayOf(t.Start.UnixMicro())
	default:
		delete(of, t.ID.Local)
		if len(of) == 0 {
			delete(w.active, t.ID.Sequence)
		}
	}
}

// tidy closes files that have not been written for a while, and packs detections while nothing waits.
func (w *writer) tidy(ctx context.Context) {
	for day, d := range w.days {
		if time.Since(d.used) > 5*time.Minute {
			if err := w.closeDay(ctx, day); err != nil {
				w.s.cfg.Logger.Warn("close idle file", slog.String("file", dayName(day)), slog.Any("err", err))
			}
		}
	}
	if w.window == nil && w.s.Pressure() < ShedDetections {
		w.pack(ctx)
	}
}

func (w *writer) close(ctx context.Context) error {
	// Readers first: whoever closes last puts the log into the file, and readers cannot.
	errs := []error{w.s.days.closeAll()}
	for day := range w.days {
		errs = append(errs, w.closeDay(ctx, day))
	}
	if w.s.reader != nil {
		errs = append(errs, w.s.reader.Close())
	}
	if w.db != nil {
		errs = append(errs, w.db.Close())
	}
	return errors.Join(append(errs, w.unlock())...)
}

// change runs fn in a transaction of the catalogue; it is durable when change returns nil.
func (w *writer) change(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return explain(err)
	}
	if err := fn(tx); err != nil {
		return errors.Join(explain(err), tx.Rollback())
	}
	return explain(tx.Commit())
}
