package transfer

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/vedette/vedette/store"
)

// Importer puts files into a store. Detections and tracks that speak of the same sequence go to the same new one.
// An Importer is for one goroutine; Close ends it.
type Importer struct {
	to        *store.Store
	sequences map[int64]int64 // of the file, to the store's
	ends      map[int64]time.Time
}

// NewImporter makes an importer.
func NewImporter(to *store.Store) *Importer {
	return &Importer{to: to, sequences: map[int64]int64{}, ends: map[int64]time.Time{}}
}

// rowReader reads one file; io.EOF at its end.
type rowReader[P any] interface {
	read(ctx context.Context) (P, error)
}

// importChunk is how many rows are appended at once.
const importChunk = 2000

// Detections imports detections and tells how many; mot matters to MOT files alone, whose tracks are imported too. An
// error names the line or row; what came before it stays. Parquet takes an *os.File or another io.ReaderAt.
func (m *Importer) Detections(ctx context.Context, f Format, mot MOTConfig, from io.Reader) (n int64, err error) {
	var r rowReader[*detectionRow]
	if f == MOT {
		r, err = newMOTReader(from, mot)
	} else {
		r, err = newRowReader[detectionRow, *detectionRow](f, from)
	}
	if err != nil {
		return 0, err
	}
	tracks := map[store.TrackID]*store.Track{}
	var b store.Batch
	for rows := 0; ; rows++ {
		row, err := r.read(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = m.add(ctx, &b, row)
		}
		if err != nil {
			return n, errors.Join(m.flush(ctx, &b), err)
		}
		if f == MOT && row.Track != 0 {
			follow(tracks, row)
		}
		if n++; rows%importChunk == importChunk-1 {
			if err := m.flush(ctx, &b); err != nil {
				return n, fmt.Errorf("up to row %d: %w", rows+1, err)
			}
		}
	}
	for _, t := range tracks {
		b.Tracks = append(b.Tracks, *t)
	}
	return n, m.flush(ctx, &b)
}

// add puts a row into a batch, in the frame of the row before if that is the same.
func (m *Importer) add(ctx context.Context, b *store.Batch, row *detectionRow) (err error) {
	if row.Sequence, err = m.sequence(ctx, row.Sequence, row.Camera, row.CaptureTime); err != nil {
		return err
	}
	at := slices.IndexFunc(b.Frames[max(0, len(b.Frames)-64):], func(f store.Frame) bool {
		return f.Sequence == row.Sequence && f.Number == row.Frame && f.CaptureTime.Equal(row.CaptureTime)
	})
	if at < 0 {
		b.Frames = append(b.Frames, store.Frame{
			Sequence: row.Sequence, Camera: row.Camera, CaptureTime: row.CaptureTime, ReceiveTime: row.ReceiveTime, Number: row.Frame,
		})
		at = len(b.Frames) - 1
	} else {
		at += max(0, len(b.Frames)-64)
	}
	b.Frames[at].Objects = append(b.Frames[at].Objects, row.object())
	return nil
}

// follow makes a track of its detections.
func follow(tracks map[store.TrackID]*store.Track, row *detectionRow) {
	id := store.TrackID{Sequence: row.Sequence, Local: row.Track}
	t := tracks[id]
	if t == nil {
		t = &store.Track{ID: id, Camera: row.Camera, Class: row.Class, Start: row.CaptureTime, State: store.TrackEnded, EndReason: importReason}
		tracks[id] = t
	}
	if row.CaptureTime.Before(t.Start) {
		t.Start = row.CaptureTime
	}
	o := row.object()
	if !row.CaptureTime.Before(t.End) {
		t.End, t.Box = row.CaptureTime, o.Box
	}
	t.Score = max(t.Score, o.Score)
	t.Detections++
	t.Path = append(t.Path, store.Point{Time: row.CaptureTime, X: (o.Box.X1 + o.Box.X2) / 2, Y: (o.Box.Y1 + o.Box.Y2) / 2})
}

// Tracks imports tracks and tells how many.
func (m *Importer) Tracks(ctx context.Context, f Format, from io.Reader) (n int64, err error) {
	r, err := newRowReader[trackRow, *trackRow](f, from)
	if err != nil {
		return 0, err
	}
	var b store.Batch
	for {
		row, err := r.read(ctx)
		if errors.Is(err, io.EOF) {
			return n, m.flush(ctx, &b)
		}
		if err == nil {
			row.Sequence, err = m.sequence(ctx, row.Sequence, row.Camera, row.Start)
		}
		if err != nil {
			return n, errors.Join(m.flush(ctx, &b), err)
		}
		b.Tracks = append(b.Tracks, row.track())
		if n++; len(b.Tracks) == importChunk {
			if err := m.flush(ctx, &b); err != nil {
				return n, fmt.Errorf("up to row %d: %w", n, err)
			}
		}
	}
}

const importReason = "IMPORT"

// sequence gives the store's sequence for one of the file.
func (m *Importer) sequence(ctx context.Context, id int64, camera string, at time.Time) (int64, error) {
	have, ok := m.sequences[id]
	if !ok {
		var err error
		have, err = m.to.OpenSequence(ctx, store.Sequence{Camera: camera, OpenReason: importReason, OpenedAt: at})
		if err != nil {
			return 0, err
		}
		m.sequences[id] = have
	}
	if at.After(m.ends[have]) {
		m.ends[have] = at
	}
	return have, nil
}

// flush appends a batch, waits until it is durable, and empties it.
func (m *Importer) flush(ctx context.Context, b *store.Batch) error {
	full := *b
	*b = store.Batch{}
	done, err := m.to.Append(ctx, full)
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

// Close closes the sequences that were imported.
func (m *Importer) Close(ctx context.Context) error {
	var errs []error
	for _, id := range m.sequences {
		errs = append(errs, m.to.CloseSequence(ctx, id, importReason, m.ends[id]))
	}
	clear(m.sequences)
	return errors.Join(errs...)
}

func newRowReader[T record[P], P any](f Format, from io.Reader) (rowReader[P], error) {
	switch f { //nolint:exhaustive // MOT is no format of rows
	case CSV:
		return newCSVReader[T, P](from)
	case JSONLines:
		d := json.NewDecoder(from)
		d.DisallowUnknownFields()
		return &jsonReader[T, P]{d: d}, nil
	case Parquet:
		at, ok := from.(io.ReaderAt)
		if !ok {
			return nil, fmt.Errorf("parquet: %w: it is read from a file, not from a stream", store.ErrInvalid)
		}
		return newParquetReader[T, P](at)
	}
	return nil, fmt.Errorf("format %q: %w: tracks and detections are imported from csv, jsonl or parquet (detections also from mot)", f, store.ErrInvalid)
}

type csvReader[T record[P], P any] struct{ r *csv.Reader }

func newCSVReader[T record[P], P any](from io.Reader) (*csvReader[T, P], error) {
	r := csv.NewReader(from)
	var row T
	head, err := r.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("csv: %w: %w", store.ErrInvalid, err)
	}
	if !slices.Equal(head, row.columns()) {
		return nil, fmt.Errorf("csv: %w: the first line is %q, want %q", store.ErrInvalid, head, row.columns())
	}
	return &csvReader[T, P]{r}, nil
}

func (r *csvReader[T, P]) read(context.Context) (P, error) {
	var none P
	fields, err := r.r.Read()
	if errors.Is(err, io.EOF) {
		return none, io.EOF
	} else if err != nil {
		return none, fmt.Errorf("csv: %w: %w", store.ErrInvalid, err)
	}
	var row T
	p, err := row.parsed(fields)
	if err != nil {
		line, _ := r.r.FieldPos(0)
		return none, fmt.Errorf("line %d: %w", line, err)
	}
	return p, nil
}

type jsonReader[T, P any] struct {
	d    *json.Decoder
	rows int
}

func (r *jsonReader[T, P]) read(context.Context) (P, error) {
	var none P
	row := new(T)
	r.rows++
	switch err := r.d.Decode(row); {
	case errors.Is(err, io.EOF):
		return none, io.EOF
	case err != nil:
		return none, fmt.Errorf("row %d: %w: %w", r.rows, store.ErrInvalid, err)
	}
	return any(row).(P), nil
}

type parquetReader[T, P any] struct{ r *parquet.GenericReader[T] }

// newParquetReader turns the library's panics over files that are not Parquet into errors.
func newParquetReader[T, P any](from io.ReaderAt) (_ *parquetReader[T, P], err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("parquet: %w: %v", store.ErrInvalid, p)
		}
	}()
	return &parquetReader[T, P]{parquet.NewGenericReader[T](from)}, nil
}

func (r *parquetReader[T, P]) read(context.Context) (_ P, err error) {
	var none P
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("parquet: %w: %v", store.ErrInvalid, p)
		}
	}()
	rows := make([]T, 1)
	n, err := r.r.Read(rows)
	switch {
	case n == 1:
		return any(&rows[0]).(P), nil
	case errors.Is(err, io.EOF):
		return none, io.EOF
	}
	return none, fmt.Errorf("parquet: %w: %w", store.ErrInvalid, err)
}
