package store

import (
	"context"
	"database/sql"
)

const (
	checkpointCommits = 25      // five seconds of windows
	checkpointWeight  = 500_000 // some 6 MB of detections
	// longLog is the pages of a log that did not begin anew for long: 32 MB.
	longLog = 4096
)

// moved is how a checkpoint went.
type moved struct {
	pages int // in the log, moved or not
	err   error
}

// checkpoint has the log moved into the file when enough has come together. It is done beside the writer, on a
// connection of its own, so that no window waits for the disk twice. A log begins anew only when all of it was moved,
// which what is written meanwhile prevents: of a log that gets long, the little that is left is moved between windows.
func (w *dayWriter) checkpoint(ctx context.Context) error {
	if w.moving != nil {
		select {
		case m := <-w.moving:
			w.moving = nil
			if m.err == nil && m.pages > longLog {
				m = moveLog(ctx, w.conn)
			}
			return m.err
		default:
			return nil
		}
	}
	if w.commits < checkpointCommits && w.weight < checkpointWeight {
		return nil
	}
	w.commits, w.weight = 0, 0
	done := make(chan moved, 1)
	w.moving = done
	go func() { done <- moveLog(context.WithoutCancel(ctx), w.keeper) }()
	return nil
}

// moveLog moves as much of the log into the file as readers allow.
func moveLog(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (m moved) {
	var busy, done int
	m.err = explain(db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &m.pages, &done))
	return m
}
