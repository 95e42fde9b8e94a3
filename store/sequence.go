package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Sequence is the durable row behind a correlation id: one model following one stream epoch of one camera.
type Sequence struct {
	ID           int64 // the correlation id, given by OpenSequence, never reused
	Camera       string
	StreamEpoch  string
	Model        string
	ModelVersion string
	OpenReason   string
	OpenedAt     time.Time // zero: now
	CloseReason  string    // "" while open
	ClosedAt     time.Time
}

// OpenSequence makes a sequence and returns its id; the row is durable when it returns.
func (s *Store) OpenSequence(ctx context.Context, q Sequence) (id int64, err error) {
	if err := checkName("camera", q.Camera); err != nil {
		return 0, fmt.Errorf("open sequence: %w", err)
	}
	if q.OpenedAt.IsZero() {
		q.OpenedAt = s.cfg.Now()
	}
	err = s.change(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `INSERT INTO sequences (camera, stream_epoch, model, model_version, open_reason, opened_us)
			VALUES (?, ?, ?, ?, ?, ?) RETURNING id`, q.Camera, q.StreamEpoch, q.Model, q.ModelVersion, q.OpenReason,
			q.OpenedAt.UnixMicro()).Scan(&id)
	})
	if err != nil {
		return 0, fmt.Errorf("open sequence of camera %q: %w", q.Camera, err)
	}
	return id, nil
}

// CloseSequence ends a sequence; closing one twice is no error and keeps the first reason. Its active tracks are ended
// too, after everything appended before the call and with the same reason, and subscribers see them end.
// When the store starts, sequences left open by a crash are closed with reason "CRASH".
func (s *Store) CloseSequence(ctx context.Context, id int64, reason string, at time.Time) error {
	if err := checkName("reason", reason); err != nil {
		return fmt.Errorf("close sequence %d: %w", id, err)
	}
	err := s.Flush(ctx)
	if err == nil {
		err = s.endTracks(ctx, id, reason)
	}
	if err == nil {
		err = s.change(ctx, func(tx *sql.Tx) error {
			r, err := tx.ExecContext(ctx, `UPDATE sequences SET close_reason = coalesce(close_reason, ?), closed_us = coalesce(closed_us, ?)
				WHERE id = ?`, reason, at.UnixMicro(), id)
			return orNone(r, err, ErrNotFound)
		})
	}
	if err != nil {
		return fmt.Errorf("close sequence %d: %w", id, err)
	}
	return nil
}

// endTracks appends the end of every track of a sequence that is still active.
func (s *Store) endTracks(ctx context.Context, sequence int64, reason string) error {
	var days []int64
	err := s.do(ctx, func(_ context.Context, w *writer) error {
		days = slices.Compact(slices.Sorted(maps.Values(w.active[sequence])))
		return nil
	})
	if err != nil || len(days) == 0 {
		return err
	}
	var b Batch
	for _, day := range days {
		tracks, err := s.activeTracks(ctx, day, sequence)
		if err != nil {
			return err
		}
		for _, t := range tracks {
			t.State, t.EndReason = TrackEnded, reason
			b.Tracks = append(b.Tracks, t)
		}
	}
	done, err := s.queue(ctx, b, true)
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// HasSequences tells whether anything was ever followed on a camera that retention has not removed since.
func (s *Store) HasSequences(ctx context.Context, camera string) (known bool, err error) {
	if err := s.running(); err != nil {
		return false, err
	}
	err = s.reader.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM sequences WHERE camera = ?)", camera).Scan(&known)
	return known, explain(err)
}

// GetSequence reads a sequence; ErrNotFound.
func (s *Store) GetSequence(ctx context.Context, id int64) (Sequence, error) {
	list, err := s.sequences(ctx, "id = ?", id)
	if err == nil && len(list) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Sequence{}, fmt.Errorf("sequence %d: %w", id, err)
	}
	return list[0], nil
}

// OpenSequences lists the sequences that are not closed, by id.
func (s *Store) OpenSequences(ctx context.Context) ([]Sequence, error) {
	return s.sequences(ctx, "closed_us IS NULL")
}

// Crashed lists the sequences that the last run left open and the start of this one closed, with their ids, cameras and
// times alone. It is there from Ready on.
func (s *Store) Crashed() []Sequence { return slices.Clone(s.crashed) }

func (s *Store) sequences(ctx context.Context, where string, args ...any) (list []Sequence, err error) {
	if err := s.running(); err != nil {
		return nil, err
	}
	rows, err := s.reader.QueryContext(ctx, `SELECT id, camera, stream_epoch, model, model_version, open_reason, opened_us,
		coalesce(close_reason, ''), coalesce(closed_us, 0) FROM sequences WHERE `+where+" ORDER BY id", args...)
	if err != nil {
		return nil, explain(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var q Sequence
		var opened, closed int64
		if err := rows.Scan(&q.ID, &q.Camera, &q.StreamEpoch, &q.Model, &q.ModelVersion, &q.OpenReason, &opened, &q.CloseReason, &closed); err != nil {
			return nil, explain(err)
		}
		q.OpenedAt, q.ClosedAt = fromMicro(opened), fromMicro(closed)
		list = append(list, q)
	}
	return list, explain(rows.Err())
}
