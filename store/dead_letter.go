package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// DeadLetter is an event that the receiver of a sink refused for good, set aside so that those after it are delivered.
type DeadLetter struct {
	Sink     string
	Seq      int64  // number of the event
	Event    []byte // opaque: the whole of it, because retention may delete its day
	Reason   string // what the receiver said last
	Attempts int    // how often it was refused
	Time     time.Time
	Again    bool // it waits to be sent again
}

// MaxDeadLetters is how many dead letters a sink can have.
const MaxDeadLetters = 10_000

// ErrDeadLetters says that a sink has as many dead letters as it can have; the event stays where it is.
var ErrDeadLetters = errors.New("too many dead letters")

// SetAside keeps a dead letter and moves the sink's cursor to it, both or neither. What is known of the same letter is
// replaced; Time is set here. ErrDeadLetters.
func (s *Store) SetAside(ctx context.Context, l DeadLetter) error {
	if err := checkName("sink", l.Sink); err != nil {
		return err
	}
	now := s.cfg.Now().UnixMicro()
	err := s.change(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `INSERT INTO dead_letters (sink, seq, event, reason, attempts, time_us, again)
			SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
			WHERE (SELECT count(*) FROM dead_letters WHERE sink = ?1 AND seq <> ?2) < ?8
			ON CONFLICT DO UPDATE SET event = excluded.event, reason = excluded.reason, attempts = excluded.attempts, time_us = excluded.time_us, again = excluded.again`,
			l.Sink, l.Seq, l.Event, l.Reason, l.Attempts, now, l.Again, MaxDeadLetters)
		if err := orNone(r, err, ErrDeadLetters); err != nil {
			return err
		}
		return setSinkCursor(ctx, tx, l.Sink, l.Seq, now)
	})
	if err != nil {
		return fmt.Errorf("set event %d of sink %q aside: %w", l.Seq, l.Sink, err)
	}
	return nil
}

// DeadLetters reads up to limit dead letters of a sink with a number above after, in order; again: those alone that wait
// to be sent again.
func (s *Store) DeadLetters(ctx context.Context, sink string, after int64, again bool, limit int) (list []DeadLetter, err error) {
	if err := s.running(); err != nil {
		return nil, err
	}
	rows, err := s.reader.QueryContext(ctx, `SELECT sink, seq, event, reason, attempts, time_us, again FROM dead_letters
		WHERE sink = ? AND seq > ? AND again >= ? ORDER BY seq LIMIT ?`, sink, after, again, min(max(limit, 1), maxPage))
	if err != nil {
		return nil, explain(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var l DeadLetter
		var us int64
		if err := rows.Scan(&l.Sink, &l.Seq, &l.Event, &l.Reason, &l.Attempts, &us, &l.Again); err != nil {
			return nil, explain(err)
		}
		l.Time = fromMicro(us)
		list = append(list, l)
	}
	return list, explain(rows.Err())
}

// CountDeadLetters counts the dead letters of a sink.
func (s *Store) CountDeadLetters(ctx context.Context, sink string) (n int64, err error) {
	if err := s.running(); err != nil {
		return 0, err
	}
	err = s.reader.QueryRowContext(ctx, "SELECT count(*) FROM dead_letters WHERE sink = ?", sink).Scan(&n)
	return n, explain(err)
}

// RedeliverDeadLetters has dead letters of a sink wait to be sent again, nil: all of them, and returns how many there
// are of those. ErrNotFound for a number that is not there; then nothing is changed.
func (s *Store) RedeliverDeadLetters(ctx context.Context, sink string, seqs []int64) (int, error) {
	return s.changeDeadLetters(ctx, sink, seqs, "UPDATE dead_letters SET again = 1")
}

// DeleteDeadLetters forgets dead letters of a sink, nil: all of them, and returns how many. ErrNotFound for a number that
// is not there; then nothing is changed.
func (s *Store) DeleteDeadLetters(ctx context.Context, sink string, seqs []int64) (int, error) {
	return s.changeDeadLetters(ctx, sink, seqs, "DELETE FROM dead_letters")
}

func (s *Store) changeDeadLetters(ctx context.Context, sink string, seqs []int64, statement string) (n int, err error) {
	err = s.change(ctx, func(tx *sql.Tx) error {
		n = 0
		if seqs == nil {
			r, err := tx.ExecContext(ctx, statement+" WHERE sink = ?", sink)
			if err != nil {
				return err
			}
			all, err := r.RowsAffected()
			n = int(all)
			return err
		}
		for _, seq := range seqs {
			r, err := tx.ExecContext(ctx, statement+" WHERE sink = ? AND seq = ?", sink, seq)
			if err := orNone(r, err, ErrNotFound); err != nil {
				return fmt.Errorf("dead letter %d: %w", seq, err)
			}
			n++
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("sink %q: %w", sink, err)
	}
	return n, nil
}
