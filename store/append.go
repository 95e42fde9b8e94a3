package store

import (
	"context"
	"fmt"
	"math"
	"time"
)

// pending is a batch on its way to the disk.
type pending struct {
	batch  Batch
	weight int64
	done   chan error
	flush  bool // commit now
}

// weight is what a batch counts for in the queue.
func (b *Batch) weight() int64 {
	n := len(b.Tracks) + len(b.Events) + len(b.Media) + len(b.Frames)
	for i := range b.Frames {
		n += len(b.Frames[i].Objects)
	}
	return int64(n)
}

// Append queues a batch for the next commit window. It blocks while the queue is full (events are never lost; a caller
// with frames it may drop should pass a context with a deadline). The channel receives exactly one value: nil when the
// batch is durable, or why it never will be; it may be ignored. A batch with a value that cannot be stored is refused
// whole, with an ErrInvalid that names it.
//
// A batch is atomic unless it spans days: then each day's part is. Event numbers are filled in at commit.
func (s *Store) Append(ctx context.Context, b Batch) (committed <-chan error, err error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	return s.queue(ctx, b, false)
}

func (s *Store) queue(ctx context.Context, b Batch, flush bool) (<-chan error, error) {
	p := &pending{batch: b, weight: min(b.weight(), int64(s.cfg.Queue)), done: make(chan error, 1), flush: flush}
	if err := s.running(); err != nil {
		return nil, err
	}
	if err := s.room.Acquire(ctx, p.weight); err != nil {
		return nil, fmt.Errorf("store queue is full: %w", err)
	}
	s.mu.Lock()
	if !s.open {
		s.mu.Unlock()
		s.room.Release(p.weight)
		return nil, ErrClosed
	}
	s.waiting = append(s.waiting, p)
	s.waitingWeight += p.weight
	if flush {
		s.flushes++
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // the writer has been told already
	}
	return p.done, nil
}

// Flush commits what was appended before it and returns when that is durable.
func (s *Store) Flush(ctx context.Context) error {
	done, err := s.queue(ctx, Batch{}, true)
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

// The times that can be stored: a clock that says something else has not been set.
const (
	minMicros = 946684800_000000  // 2000-01-01
	maxMicros = 7258118400_000000 // 2200-01-01
	maxName   = 128
	// maxPayload bounds what an event carries.
	maxPayload = 1 << 20
)

func (b *Batch) check() error {
	for i := range b.Frames {
		if err := b.Frames[i].check(); err != nil {
			return fmt.Errorf("frames[%d].%w", i, err)
		}
	}
	for i := range b.Tracks {
		if err := b.Tracks[i].check(); err != nil {
			return fmt.Errorf("tracks[%d].%w", i, err)
		}
	}
	for i := range b.Events {
		e := &b.Events[i]
		err := first(checkName("type", e.Type), checkTime("time", e.Time))
		if err == nil && e.Camera != "" { // without, it is about the box itself
			err = checkName("camera", e.Camera)
		}
		if err == nil && len(e.Payload) > maxPayload {
			err = fmt.Errorf("payload: %w: %d bytes, at most %d", ErrInvalid, len(e.Payload), maxPayload)
		}
		if err != nil {
			return fmt.Errorf("events[%d].%w", i, err)
		}
	}
	for i := range b.Media {
		if err := b.Media[i].check(); err != nil {
			return fmt.Errorf("media[%d].%w", i, err)
		}
	}
	return nil
}

func (f *Frame) check() error {
	err := first(checkID("sequence", f.Sequence), checkName("camera", f.Camera), checkTime("capture_time", f.CaptureTime))
	if err == nil && !f.ReceiveTime.IsZero() {
		err = checkTime("receive_time", f.ReceiveTime)
	}
	if err == nil && len(f.Objects) > maxObjects {
		err = fmt.Errorf("objects: %w: %d of them, at most %d", ErrInvalid, len(f.Objects), maxObjects)
	}
	for i := range f.Objects {
		if err != nil {
			break
		}
		o := &f.Objects[i]
		err = first(checkName("class", o.Class), checkScore(o.Score), o.Box.check())
		if err == nil && o.Local < 0 {
			err = fmt.Errorf("local: %w: %d is negative", ErrInvalid, o.Local)
		}
		if err != nil {
			err = fmt.Errorf("objects[%d].%w", i, err)
		}
	}
	return err
}

func (t *Track) check() error {
	err := first(checkID("id.sequence", t.ID.Sequence), checkID("id.local", t.ID.Local), checkName("camera", t.Camera),
		checkName("class", t.Class), checkTime("start", t.Start), checkTime("end", t.End), checkScore(t.Score), t.Box.check())
	switch {
	case err != nil:
	case t.End.Before(t.Start):
		err = fmt.Errorf("end: %w: it is before start", ErrInvalid)
	case t.State != TrackActive && t.State != TrackEnded:
		err = fmt.Errorf("state: %w: want TrackActive or TrackEnded", ErrInvalid)
	case t.Picture != "":
		err = checkFile("picture", t.Picture)
	}
	switch {
	case err != nil:
	case len(t.EndReason) > maxName:
		err = fmt.Errorf("end_reason: %w: longer than %d bytes", ErrInvalid, maxName)
	}
	for i := range t.Path {
		if err != nil {
			break
		}
		p := &t.Path[i]
		if err = first(checkTime("time", p.Time), (&Box{X1: p.X, Y1: p.Y, X2: p.X, Y2: p.Y}).check()); err != nil {
			err = fmt.Errorf("path[%d].%w", i, err)
		}
	}
	return err
}

func (b *Box) check() error {
	for _, v := range [4]float32{b.X1, b.Y1, b.X2, b.Y2} {
		if math.IsNaN(float64(v)) {
			return fmt.Errorf("box: %w: a coordinate is not a number", ErrInvalid)
		}
	}
	if b.X1 > b.X2 || b.Y1 > b.Y2 {
		return fmt.Errorf("box: %w: its corners are the wrong way round", ErrInvalid)
	}
	return nil
}

func checkScore(v float32) error {
	if !(v >= 0 && v <= 1) {
		return fmt.Errorf("score: %w: %v is not in 0..1", ErrInvalid, v)
	}
	return nil
}

func checkID(what string, v int64) error {
	if v <= 0 {
		return fmt.Errorf("%s: %w: %d is not positive", what, ErrInvalid, v)
	}
	return nil
}

func checkName(what, v string) error {
	if v == "" || len(v) > maxName {
		return fmt.Errorf("%s: %w: want 1 to %d bytes, have %d", what, ErrInvalid, maxName, len(v))
	}
	return nil
}

func checkTime(what string, t time.Time) error {
	if us := t.UnixMicro(); us < minMicros || us >= maxMicros {
		return fmt.Errorf("%s: %w: %s is not between 2000 and 2200", what, ErrInvalid, t.UTC().Format(time.DateOnly))
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
