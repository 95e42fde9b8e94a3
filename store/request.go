package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Request is one that made something, and that may be sent again by a client that heard no answer.
type Request struct {
	ID      []byte // tells it from every other
	Content []byte // a hash of what it asked for
	Name    string // of what it made
}

// requestAge is how long a request is known.
const requestAge = 24 * time.Hour

// KeepRequest notes what a request made; durable when it returns. A day later it is forgotten.
func (s *Store) KeepRequest(ctx context.Context, r Request) error {
	now := s.cfg.Now()
	err := s.change(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO requests (request, content, name, time_us) VALUES (?, ?, ?, ?)",
			r.ID, r.Content, r.Name, now.UnixMicro())
		if err == nil {
			_, err = tx.ExecContext(ctx, "DELETE FROM requests WHERE time_us < ?", now.Add(-requestAge).UnixMicro())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("note a request: %w", err)
	}
	return nil
}

// GetRequest finds a request of the last day; ErrNotFound.
func (s *Store) GetRequest(ctx context.Context, id []byte) (Request, error) {
	r := Request{ID: id}
	if err := s.running(); err != nil {
		return r, err
	}
	row := s.reader.QueryRowContext(ctx, "SELECT content, name FROM requests WHERE request = ? AND time_us >= ?",
		id, s.cfg.Now().Add(-requestAge).UnixMicro())
	return r, explain(row.Scan(&r.Content, &r.Name))
}
