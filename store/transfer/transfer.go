// Package transfer takes history out of a store for other tools, and puts it into one: detections and tracks as CSV,
// JSON Lines or Parquet, detections also in the text format of the MOT Challenge.
//
// Boxes are shares of the frame (0..1), but for MOT, whose boxes are pixels. Times are RFC 3339 in UTC. What is
// imported gets sequences of its own, so that it can never be mixed up with what the box saw itself.
package transfer

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/vedette/vedette/store"
)

// Format is a file format.
type Format string

// The formats.
const (
	CSV       Format = "csv"
	JSONLines Format = "jsonl"
	Parquet   Format = "parquet"
	MOT       Format = "mot"
)

// ParseFormat reads the name of a format; the error is a store.ErrInvalid.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case CSV, JSONLines, Parquet, MOT:
		return f, nil
	}
	return "", fmt.Errorf("format %q: %w: want csv, jsonl, parquet or mot", name, store.ErrInvalid)
}

// history is what is exported from.
type history interface {
	ListDetections(ctx context.Context, q store.Query) ([]store.Detection, string, error)
	ListTracks(ctx context.Context, q store.Query) ([]store.Track, string, error)
	GetTrack(ctx context.Context, id store.TrackID) (store.Track, error)
}

// ExportDetections writes the detections that a query selects, oldest first, and tells how many. The page size and
// token of the query are not used. The memory it takes does not grow with the history (Parquet: a row group).
func ExportDetections(ctx context.Context, from history, q store.Query, f Format, mot MOTConfig, to io.Writer) (n int64, err error) {
	var w rowWriter[detectionRow]
	if f == MOT {
		w, err = newMOTWriter(to, q, mot)
	} else {
		w, err = newRowWriter[detectionRow](f, to)
	}
	if err != nil {
		return 0, err
	}
	q.Ascending, q.PageSize, q.PageToken = true, 5000, ""
	for {
		list, next, err := from.ListDetections(ctx, q)
		if err != nil {
			return n, err
		}
		for i := range list {
			if err := w.write(newDetectionRow(&list[i])); err != nil {
				return n, err
			}
		}
		n += int64(len(list))
		if q.PageToken = next; next == "" {
			return n, w.close()
		}
	}
}

// ExportTracks writes the tracks that a query selects, oldest first, with their paths (CSV: without), and tells how many.
func ExportTracks(ctx context.Context, from history, q store.Query, f Format, to io.Writer) (n int64, err error) {
	w, err := newRowWriter[trackRow](f, to)
	if err != nil {
		return 0, err
	}
	q.Ascending, q.PageSize, q.PageToken = true, 1000, ""
	for {
		list, next, err := from.ListTracks(ctx, q)
		if err != nil {
			return n, err
		}
		for _, t := range list {
			if f != CSV {
				t, err = from.GetTrack(ctx, t.ID)
				if errors.Is(err, store.ErrNotFound) {
					continue // retention was faster
				} else if err != nil {
					return n, err
				}
			}
			if err := w.write(newTrackRow(&t)); err != nil {
				return n, err
			}
			n++
		}
		if q.PageToken = next; next == "" {
			return n, w.close()
		}
	}
}

// rowWriter writes one file.
type rowWriter[T any] interface {
	write(row T) error
	close() error
}

func newRowWriter[T record[P], P any](f Format, to io.Writer) (rowWriter[T], error) {
	switch f { //nolint:exhaustive // MOT is no format of rows
	case CSV:
		w := &csvWriter[T, P]{w: csv.NewWriter(to)}
		var row T
		return w, w.w.Write(row.columns())
	case JSONLines:
		return &jsonWriter[T]{json.NewEncoder(to)}, nil
	case Parquet:
		return &parquetWriter[T]{parquet.NewGenericWriter[T](to, parquet.Compression(&zstd.Codec{}), parquet.MaxRowsPerRowGroup(100_000))}, nil
	}
	return nil, fmt.Errorf("format %q: %w: tracks and detections are exported as csv, jsonl or parquet (detections also as mot)", f, store.ErrInvalid)
}

type csvWriter[T record[P], P any] struct{ w *csv.Writer }

func (w *csvWriter[T, P]) write(row T) error { return w.w.Write(row.fields()) }

func (w *csvWriter[T, P]) close() error {
	w.w.Flush()
	return w.w.Error()
}

type jsonWriter[T any] struct{ e *json.Encoder }

func (w *jsonWriter[T]) write(row T) error { return w.e.Encode(row) }

func (w *jsonWriter[T]) close() error { return nil }

type parquetWriter[T any] struct{ w *parquet.GenericWriter[T] }

func (w *parquetWriter[T]) write(row T) error {
	_, err := w.w.Write([]T{row})
	return err
}

func (w *parquetWriter[T]) close() error { return w.w.Close() }
