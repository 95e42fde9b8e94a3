package store

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
)

// ListDetections lists detections whose capture time lies in [Start, End), by capture time. Cameras, Classes,
// MinScore, Sequence and Track apply.
func (s *Store) ListDetections(ctx context.Context, q Query) (detections []Detection, next string, err error) {
	p, err := s.plan("detections", q, maxDetectionsPage)
	if err != nil {
		return nil, "", err
	}
	if p.Track != (TrackID{}) {
		p.Sequence = p.Track.Sequence
	}
	return readDays(ctx, s, p, func(ctx context.Context, f *dayFile, n int) ([]keyed[Detection], error) {
		classes, none, err := f.some(ctx, q.Classes)
		if err != nil || none {
			return nil, err
		}
		if err := f.loadNames(ctx); err != nil {
			return nil, err
		}
		lo, hi := p.captured(f)
		scan := &scan{p: p, lo: lo, hi: hi, classes: classes, score: packScore(q.MinScore), top: top[detectionRef]{n: n, p: p}}
		if p.hasCursor && p.descending {
			scan.hi = min(hi, p.cursor[0]+1)
		} else if p.hasCursor {
			scan.lo = max(lo, p.cursor[0])
		}
		cameras, err := f.camerasOf(ctx, q.Cameras)
		if err != nil {
			return nil, err
		}
		for _, camera := range cameras {
			if err := scan.camera(ctx, f, camera); err != nil {
				return nil, err
			}
		}
		return f.detections(ctx, scan.top.sorted())
	})
}

// camerasOf gives the ids of the named cameras, or of all that have detections in the file.
func (f *dayFile) camerasOf(ctx context.Context, names []string) (ids []int64, err error) {
	if len(names) > 0 {
		return f.ids(ctx, names)
	}
	// One seek in the index a camera.
	rows, err := f.db.QueryContext(ctx, `WITH RECURSIVE c (id) AS (SELECT min(camera) FROM detections
		UNION ALL SELECT (SELECT min(camera) FROM detections WHERE camera > c.id) FROM c WHERE c.id IS NOT NULL)
		SELECT id FROM c WHERE id IS NOT NULL`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// detectionRef is a detection before its names are looked up.
type detectionRef struct {
	camera, receive int64
	object          objectRec
}

// scan collects the detections that come first in the list, of those captured in [lo, hi).
type scan struct {
	p       *plan
	lo, hi  int64
	classes []int64
	score   int32
	top     top[detectionRef]
}

// camera walks one camera's blocks in the order of the list until no later one can matter. A block lies within one
// minute, so a block that starts a minute before the bound may still reach over it.
func (s *scan) camera(ctx context.Context, f *dayFile, camera int64) (err error) {
	p := s.p
	lo, hi := s.top.within(s.lo, s.hi)
	var c conditions
	c.add("camera = ?", camera)
	if lo != math.MinInt64 {
		c.add("start_us >= ? AND end_us >= ?", lo-lo%minuteMicros, lo)
	}
	if hi != math.MaxInt64 {
		c.add("start_us < ?", hi)
	}
	if p.Sequence != 0 {
		c.add("sequence = ?", p.Sequence)
	}
	if s.score > 0 {
		c.add("score >= ?", s.score)
	}
	if len(s.classes) > 0 {
		bits := int64(0)
		for _, class := range s.classes {
			bits |= classBit(class)
		}
		c.add("classes & ? != 0", bits)
	}
	rows, err := f.db.QueryContext(ctx, "SELECT sequence, start_us, end_us, data FROM detections"+c.where()+p.orderBy("start_us"), c.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var sequence, start, end int64
		var data sql.RawBytes
		if err := rows.Scan(&sequence, &start, &end, &data); err != nil {
			return err
		}
		edge := start
		if p.descending {
			edge = start - start%minuteMicros + minuteMicros
		}
		if s.top.beyond(edge) {
			break
		}
		if p.descending && s.top.beyond(end+1) {
			continue
		}
		if err := s.block(data, camera, sequence, start); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s *scan) block(data []byte, camera, sequence, start int64) error {
	p := s.p
	return decodeBlock(data, start, func(f *frameRec) bool {
		switch { // frames lie in the order of their capture
		case f.capture < s.lo:
			return true
		case f.capture >= s.hi:
			return false
		case p.Received && (f.receive < p.lo || f.receive >= p.hi):
			return true
		case s.top.full && p.descending && f.capture < s.top.cut[0]:
			return true
		case s.top.full && !p.descending && f.capture > s.top.cut[0]:
			return false
		}
		for i := range f.objects {
			o := &f.objects[i]
			if o.score < s.score || p.Track.Local != 0 && o.local != p.Track.Local ||
				len(s.classes) > 0 && !slices.Contains(s.classes, o.class) {
				continue
			}
			if k := (key{f.capture, sequence, f.number, int64(i)}); p.after(k) {
				s.top.add(k, detectionRef{camera: camera, receive: f.receive, object: *o})
			}
		}
		return true
	})
}

// detections looks up the names of what was found.
func (f *dayFile) detections(ctx context.Context, refs []keyed[detectionRef]) ([]keyed[Detection], error) {
	list := make([]keyed[Detection], len(refs))
	for i := range refs {
		k, r := refs[i].key, &refs[i].row
		camera, err := f.name(ctx, r.camera)
		if err != nil {
			return nil, err
		}
		class, err := f.name(ctx, r.object.class)
		if err != nil {
			return nil, err
		}
		list[i] = keyed[Detection]{k, Detection{
			Sequence: k[1], Camera: camera, CaptureTime: fromMicro(k[0]), ReceiveTime: fromMicro(r.receive), Frame: k[2],
			Object: Object{Local: r.object.local, Class: class, Score: unpackScore(r.object.score), Box: unpackBox(r.object.box)},
		}}
	}
	return list, nil
}

// top keeps the n rows that come first in the list, whatever order they are found in.
type top[T any] struct {
	n    int
	p    *plan
	rows []keyed[T] // at most 2n; sorted and cut when full
	full bool       // worst is the n-th best so far
	cut  key
}

func (t *top[T]) add(k key, row T) {
	if t.full && t.p.compare(k, t.cut) >= 0 {
		return
	}
	if t.rows = append(t.rows, keyed[T]{k, row}); len(t.rows) >= 2*t.n {
		t.shrink()
	}
}

func (t *top[T]) shrink() {
	slices.SortFunc(t.rows, func(a, b keyed[T]) int { return t.p.compare(a.key, b.key) })
	if len(t.rows) >= t.n {
		t.rows = t.rows[:t.n]
		t.full, t.cut = true, t.rows[t.n-1].key
	}
}

// within narrows [lo, hi) to the times that can still matter.
func (t *top[T]) within(lo, hi int64) (int64, int64) {
	if len(t.rows) >= t.n {
		t.shrink()
	}
	switch {
	case !t.full:
	case t.p.descending:
		lo = max(lo, t.cut[0])
	default:
		hi = min(hi, t.cut[0]+1)
	}
	return lo, hi
}

// beyond tells whether nothing from time us on, in the order of the list, can matter any more.
func (t *top[T]) beyond(us int64) bool {
	if !t.full && len(t.rows) >= t.n {
		t.shrink()
	}
	if !t.full {
		return false
	}
	if t.p.descending {
		return us <= t.cut[0]
	}
	return us > t.cut[0]
}

func (t *top[T]) sorted() []keyed[T] {
	t.shrink()
	return t.rows
}
