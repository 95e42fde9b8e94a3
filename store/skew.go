package store

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"
)

// Detections lie in the order of their capture. To find them by receive time, every day's file knows how far apart the two
// are at most.
const (
	skewKey = "skew_us"
	// minSkew is what live cameras stay below.
	minSkew = int64(10 * time.Second / time.Microsecond)
	// oldSkew is taken for files from before there was a skew in them.
	oldSkew = int64(time.Hour / time.Microsecond)
)

func skewOf(frames []*Frame) (skew int64) {
	for _, f := range frames {
		if d := f.ReceiveTime.UnixMicro() - f.CaptureTime.UnixMicro(); !f.ReceiveTime.IsZero() {
			skew = max(skew, d, -d)
		}
	}
	return skew
}

func readSkew(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (skew int64, err error) {
	err = db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", skewKey).Scan(&skew)
	if errors.Is(err, sql.ErrNoRows) {
		return oldSkew, nil
	}
	return skew, err
}

// writeSkew raises the file's skew, by enough not to be called for long.
func (w *dayWriter) writeSkew(ctx context.Context, skew int64) error {
	if skew <= w.skew {
		return nil
	}
	_, err := w.conn.ExecContext(ctx, "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", skewKey, 2*skew)
	if err == nil {
		w.skew = 2 * skew
	}
	return err
}

// captured gives the capture times in a file that can matter.
func (p *plan) captured(f *dayFile) (lo, hi int64) {
	lo, hi = p.lo, p.hi
	if !p.Received {
		return lo, hi
	}
	skew := f.largestSkew()
	if lo != math.MinInt64 {
		lo = max(lo-skew, minMicros)
	}
	if hi != math.MaxInt64 {
		hi = min(hi+skew, maxMicros)
	}
	return lo, hi
}
