package store

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

const (
	// packDelay is how long after its end a minute is packed: late frames are in by then.
	packDelay = 30 * time.Second
	// packBudget bounds what packing adds to the wait of a window that comes meanwhile.
	packBudget = 20 * time.Millisecond
)

// pack rewrites the window-sized blocks of whole minutes as blocks of a minute: fewer rows, and half the bytes.
// It works on the files that are open for writing, a transaction at a time.
func (w *writer) pack(ctx context.Context) {
	before := w.s.cfg.Now().Add(-packDelay).UnixMicro()
	before -= before % minuteMicros
	for day, d := range w.days {
		err := d.pack(ctx, before)
		if err == nil {
			continue
		}
		err = errors.Join(err, w.closeDay(ctx, day)) // opened afresh for the next window
		w.s.cfg.Logger.Warn("pack detections", slog.String("file", dayName(day)), slog.Any("err", err))
		if errors.Is(err, ErrCorrupt) {
			w.s.suspect(day)
		}
	}
}

// pack packs as many keys with loose blocks that start before the time as the budget allows.
func (w *dayWriter) pack(ctx context.Context, before int64) error {
	keys, err := w.loose(ctx, before)
	if err != nil || len(keys) == 0 {
		return err
	}
	// Without an fsync: what a power cut undoes here is packed again.
	if _, err := w.conn.ExecContext(ctx, "PRAGMA synchronous = NORMAL"); err != nil {
		return explain(err)
	}
	begin := time.Now()
	err = w.transaction(ctx, func() error {
		for _, k := range keys {
			if err := w.packKey(ctx, k); err != nil {
				return err
			}
			if time.Since(begin) > packBudget {
				return nil
			}
		}
		return nil
	})
	_, back := w.conn.ExecContext(ctx, "PRAGMA synchronous = FULL")
	return errors.Join(err, explain(back))
}

// loose lists what there is to pack, oldest first.
func (w *dayWriter) loose(ctx context.Context, before int64) (keys []blockKey, err error) {
	rows, err := w.conn.QueryContext(ctx, `SELECT sequence, camera, start_us / 60000000 FROM detections
		WHERE packed = 0 AND start_us < ? ORDER BY start_us LIMIT 10000`, before)
	if err != nil {
		return nil, explain(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	known := map[blockKey]bool{}
	for rows.Next() {
		var k blockKey
		if err := rows.Scan(&k.sequence, &k.camera, &k.minute); err != nil {
			return nil, explain(err)
		}
		if !known[k] {
			known[k] = true
			keys = append(keys, k)
		}
	}
	return keys, explain(rows.Err())
}

// packKey replaces the blocks of one sequence and minute.
func (w *dayWriter) packKey(ctx context.Context, k blockKey) error {
	frames, ids, err := w.framesOf(ctx, k)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := w.conn.ExecContext(ctx, "DELETE FROM detections WHERE id = ?", id); err != nil {
			return err
		}
	}
	return w.writeBlocks(ctx, k, frames, true)
}

func (w *dayWriter) framesOf(ctx context.Context, k blockKey) (frames []frameRec, ids []int64, err error) {
	rows, err := w.conn.QueryContext(ctx, `SELECT id, start_us, data FROM detections
		WHERE camera = ? AND sequence = ? AND start_us >= ? AND start_us < ? ORDER BY start_us, id`,
		k.camera, k.sequence, k.minute*minuteMicros, (k.minute+1)*minuteMicros)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id, start int64
		var data []byte
		if err := rows.Scan(&id, &start, &data); err != nil {
			return nil, nil, err
		}
		err := decodeBlock(data, start, func(f *frameRec) bool {
			frames = append(frames, cloneFrame(f))
			return true
		})
		if err != nil {
			return nil, nil, errors.Join(ErrCorrupt, err)
		}
		ids = append(ids, id)
	}
	return slices.Clip(frames), ids, rows.Err()
}
