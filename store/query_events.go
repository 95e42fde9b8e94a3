package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const eventColumns = "seq, time_us, camera, type, sequence, local, payload"

// ListEvents lists events whose time lies in [Start, End), by time. Cameras, Types, Payload, Sequence and Track apply.
func (s *Store) ListEvents(ctx context.Context, q Query) (events []Event, next string, err error) {
	p, err := s.plan("events", q, maxPage)
	if err != nil {
		return nil, "", err
	}
	return readDays(ctx, s, p, func(ctx context.Context, f *dayFile, n int) ([]keyed[Event], error) {
		types, none, err := f.some(ctx, q.Types)
		if err != nil || none {
			return nil, err
		}
		return merged(ctx, f, p, q.Cameras, n, func(ctx context.Context, camera int64) ([]keyed[Event], error) {
			var c conditions
			if camera != 0 {
				c.add("camera = ?", camera)
			}
			if len(types) > 0 {
				c.in("type", types)
			}
			for field, values := range q.Payload {
				args := []any{"$." + field}
				for _, v := range values {
					args = append(args, v)
				}
				const text = "CAST(payload AS TEXT)" // a BLOB would be taken for JSONB
				c.add("CASE WHEN json_valid("+text+") THEN "+text+" ->> ? END IN (?"+strings.Repeat(", ?", len(values)-1)+")", args...)
			}
			if q.Track != (TrackID{}) {
				c.add("sequence > 0 AND sequence = ? AND local = ?", q.Track.Sequence, q.Track.Local)
			} else if q.Sequence != 0 {
				c.add("sequence > 0 AND sequence = ?", q.Sequence)
			}
			c.between(p, "time_us", "seq")
			list, err := f.events(ctx, c.where()+p.orderBy("time_us", "seq")+fmt.Sprint(" LIMIT ", n), c.args)
			if err == nil {
				err = f.addMediaOf(ctx, list)
			}
			return list, err
		})
	})
}

// GetEvent reads one event; ErrNotFound.
func (s *Store) GetEvent(ctx context.Context, seq int64) (Event, error) {
	if err := s.running(); err != nil {
		return Event{}, err
	}
	for _, day := range s.days.list(0, 1<<40) {
		list, err := readDay(ctx, s, day, 1, func(ctx context.Context, f *dayFile, _ int) ([]keyed[Event], error) {
			if f.newestEvent() < seq {
				return nil, nil
			}
			list, err := f.events(ctx, " WHERE seq = ?", []any{seq})
			if err == nil {
				err = f.addMediaOf(ctx, list)
			}
			return list, err
		})
		if err != nil {
			return Event{}, err
		}
		if len(list) > 0 {
			return list[0].row, nil
		}
	}
	return Event{}, fmt.Errorf("event %d: %w", seq, ErrNotFound)
}

func (f *dayFile) events(ctx context.Context, tail string, args []any) (list []keyed[Event], err error) {
	rows, err := f.db.QueryContext(ctx, "SELECT "+eventColumns+" FROM events"+tail, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e Event
		var us, camera, kind int64
		if err := rows.Scan(&e.Seq, &us, &camera, &kind, &e.Track.Sequence, &e.Track.Local, &e.Payload); err != nil {
			return nil, err
		}
		if e.Camera, err = f.name(ctx, camera); err != nil {
			return nil, err
		}
		if e.Type, err = f.name(ctx, kind); err != nil {
			return nil, err
		}
		e.Time = fromMicro(us)
		list = append(list, keyed[Event]{key{us, e.Seq}, e})
	}
	return list, rows.Err()
}

// NewestEvent is the largest sequence number of an event that is shown; 0 when there was none.
func (s *Store) NewestEvent() int64 { return s.lastEvent.Load() }

// EventsAfter reads up to limit events with a sequence number above seq, in order of sequence number: what a sink
// delivers next. An event is shown when all before it are durable, so a cursor never passes one by.
func (s *Store) EventsAfter(ctx context.Context, seq int64, limit int) ([]Event, error) {
	if err := s.running(); err != nil {
		return nil, err
	}
	limit = min(max(limit, 1), maxPage)
	last := s.NewestEvent()
	var all []Event
	for _, day := range s.days.list(0, 1<<40) {
		list, err := readDay(ctx, s, day, limit, func(ctx context.Context, f *dayFile, n int) ([]keyed[Event], error) {
			if f.newestEvent() <= seq {
				return nil, nil
			}
			return f.events(ctx, " WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?", []any{seq, last, n})
		})
		if err != nil {
			return nil, err
		}
		for i := range list {
			all = append(all, list[i].row)
		}
	}
	slices.SortFunc(all, func(a, b Event) int { return cmp.Compare(a.Seq, b.Seq) })
	return all[:min(limit, len(all))], nil
}
