package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// dayWriter is the writing end of one day's file. Only the writer goroutine touches it.
type dayWriter struct {
	day   int64
	db    *sql.DB
	conn  *sql.Conn
	names map[string]int64
	used  time.Time

	skew            int64      // as the file has it
	commits, weight int        // since the last checkpoint
	keeper          *sql.DB    // checkpoints beside conn
	moving          chan moved // of the checkpoint under way; nil: there is none

	insertName, insertBlock, upsertTrack, putPath, insertEvent, putMedia *sql.Stmt
	blob                                                                 []byte
}

const upsertTrackSQL = `
INSERT INTO tracks (sequence, local, camera, class, start_us, end_us, state, end_reason, score, box, detections, picture)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (sequence, local) DO UPDATE SET class = excluded.class, end_us = excluded.end_us, state = excluded.state,
  end_reason = excluded.end_reason, score = excluded.score, box = excluded.box, detections = excluded.detections,
  picture = excluded.picture
WHERE tracks.state = 1 OR excluded.state = 2`

const insertBlockSQL = `
INSERT INTO detections (camera, sequence, start_us, end_us, objects, classes, score, packed, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`

func openDayWriter(ctx context.Context, path string, day int64) (_ *dayWriter, err error) {
	db, err := openWriter(path)
	if err != nil {
		return nil, err
	}
	w := &dayWriter{day: day, db: db, names: map[string]int64{}}
	defer func() {
		if err != nil {
			err = errors.Join(explain(err), w.close(ctx))
		}
	}()
	if w.keeper, err = openWriter(path); err != nil {
		return nil, err
	}
	if w.conn, err = db.Conn(ctx); err != nil {
		return nil, err
	}
	if _, err = w.conn.ExecContext(ctx, "PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 33554432"); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&w.insertName, "INSERT INTO names (name) VALUES (?) RETURNING id"},
		{&w.insertBlock, insertBlockSQL},
		{&w.upsertTrack, upsertTrackSQL},
		{&w.putPath, "INSERT OR REPLACE INTO paths (track, data) SELECT id, ? FROM tracks WHERE sequence = ? AND local = ?"},
		{&w.insertEvent, "INSERT INTO events (seq, time_us, camera, type, sequence, local, payload) VALUES (?, ?, ?, ?, ?, ?, ?)"},
		{&w.putMedia, "INSERT OR REPLACE INTO media (event, kind, file, start_us, end_us) VALUES (?, ?, ?, ?, ?)"},
	} {
		stmt, err := w.conn.PrepareContext(ctx, s.text) //nolint:sqlclosecheck // close closes it
		if senseless(err) {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		} else if err != nil {
			return nil, err
		}
		*s.stmt = stmt
	}
	return w, w.load(ctx)
}

// load reads what the writer keeps in mind of the file.
func (w *dayWriter) load(ctx context.Context) (err error) {
	if w.skew, err = readSkew(ctx, w.conn); err != nil {
		return err
	}
	return w.loadNames(ctx)
}

func (w *dayWriter) close(ctx context.Context) error {
	var errs []error
	for _, s := range []*sql.Stmt{w.insertName, w.insertBlock, w.upsertTrack, w.putPath, w.insertEvent, w.putMedia} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if w.moving != nil {
		<-w.moving
	}
	if w.keeper != nil {
		errs = append(errs, w.keeper.Close())
	}
	if w.conn != nil {
		// Readers may keep the log from being put away by closing alone. Whether this works
		// out or not, nothing is lost.
		_, _ = w.conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint(PASSIVE)")
		errs = append(errs, w.conn.Close())
	}
	return errors.Join(append(errs, w.db.Close())...)
}

func (w *dayWriter) loadNames(ctx context.Context) (err error) {
	clear(w.names)
	rows, err := w.conn.QueryContext(ctx, "SELECT id, name FROM names")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id int64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			return err
		}
		w.names[name] = id
	}
	return rows.Err()
}

// transaction runs fn in an IMMEDIATE transaction of the file.
func (w *dayWriter) transaction(ctx context.Context, fn func() error) error {
	_, err := w.conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	if err != nil {
		return explain(err)
	}
	if err = fn(); err == nil {
		_, err = w.conn.ExecContext(ctx, "COMMIT")
	}
	if err == nil {
		return nil
	}
	// SQLite has rolled back by itself after some errors (disk full); a second ROLLBACK then fails, harmlessly.
	_, _ = w.conn.ExecContext(ctx, "ROLLBACK")
	return errors.Join(explain(err), w.load(ctx))
}

// commit writes one window's part in one transaction.
func (w *dayWriter) commit(ctx context.Context, p *part) error {
	w.commits++
	w.weight += p.weight()
	return w.transaction(ctx, func() error {
		if err := w.writeSkew(ctx, skewOf(p.frames)); err != nil {
			return fmt.Errorf("write the skew: %w", err)
		}
		if err := w.writeFrames(ctx, p.frames); err != nil {
			return fmt.Errorf("write detections: %w", err)
		}
		if err := w.writeTracks(ctx, p.tracks); err != nil {
			return fmt.Errorf("write tracks: %w", err)
		}
		for _, e := range p.events {
			if err := w.writeEvent(ctx, e); err != nil {
				return fmt.Errorf("write event: %w", err)
			}
		}
		for _, m := range p.media {
			if _, err := w.putMedia.ExecContext(ctx, m.Event, int64(m.Kind), m.File, m.Start.UnixMicro(), m.End.UnixMicro()); err != nil {
				return fmt.Errorf("write media: %w", err)
			}
		}
		return nil
	})
}

func (w *dayWriter) id(ctx context.Context, name string) (int64, error) {
	if id, ok := w.names[name]; ok {
		return id, nil
	}
	var id int64
	if err := w.insertName.QueryRowContext(ctx, name).Scan(&id); err != nil {
		return 0, err
	}
	w.names[name] = id
	return id, nil
}

type blockKey struct{ sequence, camera, minute int64 }

// writeFrames makes one block of the frames of each sequence and minute.
func (w *dayWriter) writeFrames(ctx context.Context, frames []*Frame) error {
	blocks := map[blockKey][]frameRec{}
	var order []blockKey
	for _, f := range frames {
		camera, err := w.id(ctx, f.Camera)
		if err != nil {
			return err
		}
		rec := frameRec{capture: f.CaptureTime.UnixMicro(), number: f.Number, objects: make([]objectRec, len(f.Objects))}
		rec.receive = rec.capture
		if !f.ReceiveTime.IsZero() {
			rec.receive = f.ReceiveTime.UnixMicro()
		}
		for i := range f.Objects {
			o := &f.Objects[i]
			class, err := w.id(ctx, o.Class)
			if err != nil {
				return err
			}
			rec.objects[i] = objectRec{local: o.Local, class: class, score: packScore(o.Score), box: packBox(o.Box)}
		}
		k := blockKey{f.Sequence, camera, rec.capture / minuteMicros}
		if _, ok := blocks[k]; !ok {
			order = append(order, k)
		}
		blocks[k] = append(blocks[k], rec)
	}
	for _, k := range order {
		if err := w.writeBlocks(ctx, k, blocks[k], false); err != nil {
			return err
		}
	}
	return nil
}

// writeBlocks writes frames of one key, in order of capture, cut where they get too many.
func (w *dayWriter) writeBlocks(ctx context.Context, k blockKey, frames []frameRec, packed bool) error {
	slices.SortStableFunc(frames, func(a, b frameRec) int { return int(a.capture - b.capture) })
	for len(frames) > 0 {
		objects, n, classes, score := 0, 0, int64(0), int32(0)
		for n < len(frames) && (n == 0 || objects+len(frames[n].objects) <= blockObjects) {
			for _, o := range frames[n].objects {
				classes |= classBit(o.class)
				score = max(score, o.score)
			}
			objects += len(frames[n].objects)
			n++
		}
		start, end := frames[0].capture, frames[n-1].capture
		w.blob = appendBlock(w.blob[:0], start, frames[:n])
		_, err := w.insertBlock.ExecContext(ctx, k.camera, k.sequence, start, end, objects, classes, score, packed, w.blob)
		if err != nil {
			return err
		}
		frames = frames[n:]
	}
	return nil
}

func classBit(class int64) int64 { return 1 << (uint64(class) % 63) }

// writeTracks writes the last version of every track, and the last path.
func (w *dayWriter) writeTracks(ctx context.Context, tracks []*Track) error {
	last := make(map[TrackID]int, len(tracks))
	for i, t := range tracks {
		last[t.ID] = i
	}
	for i, t := range tracks {
		if last[t.ID] == i {
			if err := w.writeTrack(ctx, t); err != nil {
				return err
			}
		}
	}
	for _, t := range tracks {
		if t.Path != nil {
			w.blob = appendPath(w.blob[:0], t.Start.UnixMicro(), t.Path)
			if _, err := w.putPath.ExecContext(ctx, w.blob, t.ID.Sequence, t.ID.Local); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *dayWriter) writeTrack(ctx context.Context, t *Track) error {
	camera, err := w.id(ctx, t.Camera)
	if err != nil {
		return err
	}
	class, err := w.id(ctx, t.Class)
	if err != nil {
		return err
	}
	reason := int64(0)
	if t.EndReason != "" {
		if reason, err = w.id(ctx, t.EndReason); err != nil {
			return err
		}
	}
	_, err = w.upsertTrack.ExecContext(ctx, t.ID.Sequence, t.ID.Local, camera, class, t.Start.UnixMicro(), t.End.UnixMicro(),
		int64(t.State), reason, packScore(t.Score), boxInt(packBox(t.Box)), t.Detections, t.Picture)
	return err
}

func (w *dayWriter) writeEvent(ctx context.Context, e *Event) error {
	camera, err := w.id(ctx, e.Camera)
	if err != nil {
		return err
	}
	kind, err := w.id(ctx, e.Type)
	if err != nil {
		return err
	}
	_, err = w.insertEvent.ExecContext(ctx, e.Seq, e.Time.UnixMicro(), camera, kind, e.Track.Sequence, e.Track.Local, e.Payload)
	return err
}
