package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

const (
	defaultPage       = 50
	maxPage           = 1000
	maxDetectionsPage = 10_000
)

func pageSizeOf(n, most int) (int, error) {
	switch {
	case n < 0:
		return 0, fmt.Errorf("page_size: %w: %d is negative", ErrInvalid, n)
	case n == 0:
		return defaultPage, nil
	}
	return min(n, most), nil
}

// plan is a checked query.
type plan struct {
	Query
	bound      [8]byte // hash of the query, for its page tokens
	lo, hi     int64   // microseconds, half open
	size       int
	hasCursor  bool
	cursor     key
	descending bool
}

func (s *Store) plan(list string, q Query, most int) (*plan, error) {
	if err := s.running(); err != nil {
		return nil, err
	}
	p := &plan{Query: q, bound: q.hash(list), lo: math.MinInt64, hi: math.MaxInt64, descending: !q.Ascending}
	var err error
	if p.size, err = pageSizeOf(q.PageSize, most); err != nil {
		return nil, err
	}
	if !q.Start.IsZero() {
		p.lo = q.Start.UnixMicro()
	}
	if !q.End.IsZero() {
		p.hi = q.End.UnixMicro()
	}
	if !q.Start.IsZero() && !q.End.IsZero() && p.hi < p.lo {
		return nil, fmt.Errorf("end_time: %w: it is before start_time", ErrInvalid)
	}
	if q.PageToken != "" {
		if p.cursor, err = parseToken(q.PageToken, p.bound); err != nil {
			return nil, err
		}
		p.hasCursor = true
	}
	return p, nil
}

// days gives the days to read, in reading order.
func (p *plan) days(d *days) []int64 {
	lo, hi := p.lo, p.hi
	if p.hasCursor && p.descending {
		hi = min(hi, p.cursor[0]+1)
	} else if p.hasCursor {
		lo = max(lo, p.cursor[0])
	}
	if p.Received { // by capture a row may lie in any day
		lo, hi = minMicros, maxMicros
	}
	if hi <= lo {
		return nil
	}
	list := d.list(dayOf(max(lo, minMicros)), dayOf(min(hi, maxMicros)-1))
	if p.descending {
		slices.Reverse(list)
	}
	return list
}

// after tells whether a row comes after the cursor in the order of the list.
func (p *plan) after(k key) bool {
	if !p.hasCursor {
		return true
	}
	c := k.compare(p.cursor)
	return c > 0 && !p.descending || c < 0 && p.descending
}

func (p *plan) compare(a, b key) int {
	if p.descending {
		return b.compare(a)
	}
	return a.compare(b)
}

// keyed is a row with its place in the list.
type keyed[T any] struct {
	key key
	row T
}

// readDays fills a page from one day after the other; read gives up to size+1 rows of a day after the cursor.
func readDays[T any](ctx context.Context, s *Store, p *plan, read func(context.Context, *dayFile, int) ([]keyed[T], error)) (rows []T, next string, err error) {
	var page []keyed[T]
	for _, day := range p.days(s.days) {
		list, err := readDay(ctx, s, day, p.size+1-len(page), read)
		if err != nil {
			return nil, "", err
		}
		if page = append(page, list...); len(page) > p.size {
			page = page[:p.size]
			next = printToken(p.bound, page[p.size-1].key)
			break
		}
	}
	rows = make([]T, len(page))
	for i := range page {
		rows[i] = page[i].row
	}
	return rows, next, nil
}

// readDay reads from one day's file. A day that goes away or is damaged meanwhile has no rows; damage is reported.
func readDay[T any](ctx context.Context, s *Store, day int64, n int, read func(context.Context, *dayFile, int) ([]keyed[T], error)) ([]keyed[T], error) {
	f, ok := s.days.borrow(day)
	if !ok {
		return nil, nil
	}
	defer f.release()
	ctx, stop := f.bound(ctx)
	defer stop()
	rows, err := read(ctx, f, n)
	switch {
	case err == nil:
		return rows, nil
	case f.gone.Err() != nil:
		return nil, nil
	case errors.Is(explain(err), ErrCorrupt), errors.Is(err, errBlock):
		s.suspect(day)
		return nil, nil
	}
	return nil, fmt.Errorf("read %s: %w", dayName(day), explain(err))
}

// suspect has a day's file checked, and set aside if it is damaged.
func (s *Store) suspect(day int64) {
	select {
	case s.look <- day:
	default: // busy with others; whoever reads it next says so again
	}
}

// merged reads the first n rows of each selection, and keeps the first n of all. Without names there is one selection:
// everything. With one selection a camera, each walks an index in order.
func merged[T any](ctx context.Context, f *dayFile, p *plan, names []string, n int, read func(ctx context.Context, id int64) ([]keyed[T], error)) ([]keyed[T], error) {
	if len(names) == 0 {
		return read(ctx, 0)
	}
	ids, err := f.ids(ctx, names)
	if err != nil {
		return nil, err
	}
	var all []keyed[T]
	for _, id := range ids {
		rows, err := read(ctx, id)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	if len(ids) > 1 {
		slices.SortFunc(all, func(a, b keyed[T]) int { return p.compare(a.key, b.key) })
	}
	return all[:min(n, len(all))], nil
}

// conditions collects a WHERE clause.
type conditions struct {
	text []string
	args []any
}

func (c *conditions) add(text string, args ...any) {
	c.text = append(c.text, text)
	c.args = append(c.args, args...)
}

// in wants the column to be one of ids, of which there is at least one.
func (c *conditions) in(column string, ids []int64) {
	c.text = append(c.text, column+" IN (?"+strings.Repeat(", ?", len(ids)-1)+")")
	for _, id := range ids {
		c.args = append(c.args, id)
	}
}

// between bounds the time column, and seeks to the cursor; columns is the order of the list, without the time.
func (c *conditions) between(p *plan, time string, columns ...string) {
	if p.lo != math.MinInt64 {
		c.add(time+" >= ?", p.lo)
	}
	if p.hi != math.MaxInt64 {
		c.add(time+" < ?", p.hi)
	}
	if !p.hasCursor {
		return
	}
	op := " > "
	if p.descending {
		op = " < "
	}
	args := make([]any, 1+len(columns))
	for i := range args {
		args[i] = p.cursor[i]
	}
	c.add("("+time+", "+strings.Join(columns, ", ")+")"+op+"(?"+strings.Repeat(", ?", len(columns))+")", args...)
}

func (c *conditions) where() string {
	if len(c.text) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.text, " AND ")
}

func (p *plan) orderBy(columns ...string) string {
	dir := ""
	if p.descending {
		dir = " DESC"
	}
	return " ORDER BY " + strings.Join(columns, dir+", ") + dir
}

// some translates the classes or types of a query; none is true when the file has no row of any of them.
func (f *dayFile) some(ctx context.Context, names []string) (ids []int64, none bool, err error) {
	ids, err = f.ids(ctx, names)
	return ids, len(names) > 0 && len(ids) == 0, err
}

const trackColumns = "sequence, local, camera, class, start_us, end_us, state, end_reason, score, box, detections, picture"

// ListTracks lists tracks whose start lies in [Start, End), by start, without their paths. Cameras, Classes, MinScore,
// MinDuration, State and Sequence apply.
func (s *Store) ListTracks(ctx context.Context, q Query) (tracks []Track, next string, err error) {
	p, err := s.plan("tracks", q, maxPage)
	if err != nil {
		return nil, "", err
	}
	return readDays(ctx, s, p, func(ctx context.Context, f *dayFile, n int) ([]keyed[Track], error) {
		classes, none, err := f.some(ctx, q.Classes)
		if err != nil || none {
			return nil, err
		}
		return merged(ctx, f, p, q.Cameras, n, func(ctx context.Context, camera int64) ([]keyed[Track], error) {
			var c conditions
			if camera != 0 {
				c.add("camera = ?", camera)
			}
			if len(classes) > 0 {
				c.in("class", classes)
			}
			if q.MinScore > 0 {
				c.add("score >= ?", packScore(q.MinScore))
			}
			if q.MinDuration > 0 {
				c.add("end_us - start_us >= ?", q.MinDuration.Microseconds())
			}
			index := ""
			switch q.State {
			case TrackActive: // few, whatever the day holds
				index = " INDEXED BY tracks_active"
				c.add("state = 1")
			case TrackEnded:
				c.add("state = 2")
			case TrackAny:
			}
			if q.Sequence != 0 {
				c.add("sequence = ?", q.Sequence)
			}
			c.between(p, "start_us", "sequence", "local")
			return f.tracks(ctx, index+c.where()+p.orderBy("start_us", "sequence", "local")+fmt.Sprint(" LIMIT ", n), c.args)
		})
	})
}

// tracks reads tracks with everything after FROM tracks.
func (f *dayFile) tracks(ctx context.Context, tail string, args []any) (list []keyed[Track], err error) {
	rows, err := f.db.QueryContext(ctx, "SELECT "+trackColumns+" FROM tracks"+tail, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		t, err := f.scanTrack(ctx, rows)
		if err != nil {
			return nil, err
		}
		list = append(list, keyed[Track]{key{t.Start.UnixMicro(), t.ID.Sequence, t.ID.Local}, t})
	}
	return list, rows.Err()
}

func (f *dayFile) scanTrack(ctx context.Context, rows *sql.Rows) (Track, error) {
	var t Track
	var camera, class, start, end, reason, box int64
	var score int32
	if err := rows.Scan(&t.ID.Sequence, &t.ID.Local, &camera, &class, &start, &end, &t.State, &reason, &score, &box,
		&t.Detections, &t.Picture); err != nil {
		return Track{}, err
	}
	var err error
	if t.Camera, err = f.name(ctx, camera); err != nil {
		return Track{}, err
	}
	if t.Class, err = f.name(ctx, class); err != nil {
		return Track{}, err
	}
	if reason != 0 {
		if t.EndReason, err = f.name(ctx, reason); err != nil {
			return Track{}, err
		}
	}
	t.Start, t.End, t.Score, t.Box = fromMicro(start), fromMicro(end), unpackScore(score), unpackBox(intBox(box))
	return t, nil
}

// activeTracks reads the active tracks of a sequence in one day's file.
func (s *Store) activeTracks(ctx context.Context, day, sequence int64) ([]Track, error) {
	list, err := readDay(ctx, s, day, 0, func(ctx context.Context, f *dayFile, _ int) ([]keyed[Track], error) {
		return f.tracks(ctx, " WHERE state = 1 AND sequence = ?", []any{sequence})
	})
	tracks := make([]Track, len(list))
	for i := range list {
		tracks[i] = list[i].row
	}
	return tracks, err
}

// GetTrack reads one track with its path.
func (s *Store) GetTrack(ctx context.Context, id TrackID) (Track, error) {
	q, err := s.GetSequence(ctx, id.Sequence)
	if errors.Is(err, ErrNotFound) {
		return Track{}, fmt.Errorf("track %s: %w", id, ErrNotFound)
	} else if err != nil {
		return Track{}, fmt.Errorf("track %s: %w", id, err)
	}
	// A track starts while its sequence is open, as a rule: clocks may disagree, and what was imported may come late.
	days := s.days.list(0, 1<<40)
	opened := dayOf(q.OpenedAt.UnixMicro())
	slices.SortStableFunc(days, func(a, b int64) int { return cmp.Compare(max(a-opened, opened-a), max(b-opened, opened-b)) })
	for _, day := range days {
		list, err := readDay(ctx, s, day, 1, func(ctx context.Context, f *dayFile, _ int) ([]keyed[Track], error) {
			list, err := f.tracks(ctx, " WHERE sequence = ? AND local = ?", []any{id.Sequence, id.Local})
			if err == nil && len(list) > 0 {
				list[0].row.Path, err = f.path(ctx, id, list[0].row.Start.UnixMicro())
			}
			return list, err
		})
		if err != nil {
			return Track{}, err
		}
		if len(list) > 0 {
			return list[0].row, nil
		}
	}
	return Track{}, fmt.Errorf("track %s: %w", id, ErrNotFound)
}

func (f *dayFile) path(ctx context.Context, id TrackID, start int64) ([]Point, error) {
	var data []byte
	err := f.db.QueryRowContext(ctx, "SELECT data FROM paths JOIN tracks ON tracks.id = paths.track WHERE sequence = ? AND local = ?",
		id.Sequence, id.Local).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return decodePath(data, start)
}
