package transfer

import (
	"fmt"
	"strconv"
	"time"

	"github.com/vedette/vedette/store"
)

// record is a row that can be a line of CSV; P is its pointer type.
type record[P any] interface {
	columns() []string
	fields() []string
	parsed(fields []string) (P, error)
}

// detectionRow is a detection in a file.
type detectionRow struct {
	Camera      string    `json:"camera" parquet:"camera,dict"`
	Sequence    int64     `json:"sequence" parquet:"sequence"`
	Track       int64     `json:"track,omitempty" parquet:"track"`
	CaptureTime time.Time `json:"capture_time" parquet:"capture_time,timestamp(microsecond)"`
	ReceiveTime time.Time `json:"receive_time" parquet:"receive_time,timestamp(microsecond)"`
	Frame       int64     `json:"frame" parquet:"frame,delta"`
	Class       string    `json:"class" parquet:"class,dict"`
	Score       float32   `json:"score" parquet:"score"`
	X1          float32   `json:"x1" parquet:"x1"`
	Y1          float32   `json:"y1" parquet:"y1"`
	X2          float32   `json:"x2" parquet:"x2"`
	Y2          float32   `json:"y2" parquet:"y2"`
}

func newDetectionRow(d *store.Detection) detectionRow {
	return detectionRow{
		d.Camera, d.Sequence, d.Local, d.CaptureTime, d.ReceiveTime, d.Frame, d.Class, d.Score,
		d.Box.X1, d.Box.Y1, d.Box.X2, d.Box.Y2,
	}
}

func (detectionRow) columns() []string {
	return []string{"camera", "sequence", "track", "capture_time", "receive_time", "frame", "class", "score", "x1", "y1", "x2", "y2"}
}

func (r detectionRow) fields() []string {
	return []string{
		r.Camera, integer(r.Sequence), integer(r.Track), timestamp(r.CaptureTime), timestamp(r.ReceiveTime), integer(r.Frame),
		r.Class, number(r.Score), number(r.X1), number(r.Y1), number(r.X2), number(r.Y2),
	}
}

func (detectionRow) parsed(fields []string) (*detectionRow, error) {
	f := fieldReader{columns: detectionRow{}.columns(), fields: fields}
	r := &detectionRow{
		f.text(), f.integer(), f.integer(), f.time(), f.time(), f.integer(), f.text(), f.number(), f.number(), f.number(), f.number(), f.number(),
	}
	return r, f.err
}

func (r *detectionRow) object() store.Object {
	return store.Object{Local: r.Track, Class: r.Class, Score: r.Score, Box: store.Box{X1: r.X1, Y1: r.Y1, X2: r.X2, Y2: r.Y2}}
}

// pointRow is a point of a track's path.
type pointRow struct {
	Time time.Time `json:"time" parquet:"time,timestamp(microsecond)"`
	X    float32   `json:"x" parquet:"x"`
	Y    float32   `json:"y" parquet:"y"`
}

// trackRow is a track in a file.
type trackRow struct {
	Sequence   int64      `json:"sequence" parquet:"sequence"`
	Track      int64      `json:"track" parquet:"track"`
	Camera     string     `json:"camera" parquet:"camera,dict"`
	Class      string     `json:"class" parquet:"class,dict"`
	Start      time.Time  `json:"start" parquet:"start,timestamp(microsecond)"`
	End        time.Time  `json:"end" parquet:"end,timestamp(microsecond)"`
	Active     bool       `json:"active,omitempty" parquet:"active"`
	EndReason  string     `json:"end_reason,omitempty" parquet:"end_reason,dict"`
	Score      float32    `json:"score" parquet:"score"`
	X1         float32    `json:"x1" parquet:"x1"`
	Y1         float32    `json:"y1" parquet:"y1"`
	X2         float32    `json:"x2" parquet:"x2"`
	Y2         float32    `json:"y2" parquet:"y2"`
	Detections int64      `json:"detections" parquet:"detections"`
	Picture    string     `json:"picture,omitempty" parquet:"picture"`
	Path       []pointRow `json:"path,omitempty" parquet:"path"`
}

func newTrackRow(t *store.Track) trackRow {
	r := trackRow{
		Sequence: t.ID.Sequence, Track: t.ID.Local, Camera: t.Camera, Class: t.Class, Start: t.Start, End: t.End,
		Active: t.State == store.TrackActive, EndReason: t.EndReason, Score: t.Score,
		X1: t.Box.X1, Y1: t.Box.Y1, X2: t.Box.X2, Y2: t.Box.Y2, Detections: t.Detections, Picture: t.Picture,
	}
	for _, p := range t.Path {
		r.Path = append(r.Path, pointRow(p))
	}
	return r
}

func (trackRow) columns() []string {
	return []string{
		"sequence", "track", "camera", "class", "start", "end", "active", "end_reason", "score", "x1", "y1", "x2", "y2",
		"detections", "picture",
	}
}

func (r trackRow) fields() []string {
	return []string{
		integer(r.Sequence), integer(r.Track), r.Camera, r.Class, timestamp(r.Start), timestamp(r.End), strconv.FormatBool(r.Active),
		r.EndReason, number(r.Score), number(r.X1), number(r.Y1), number(r.X2), number(r.Y2), integer(r.Detections), r.Picture,
	}
}

func (trackRow) parsed(fields []string) (*trackRow, error) {
	f := fieldReader{columns: trackRow{}.columns(), fields: fields}
	r := &trackRow{
		Sequence: f.integer(), Track: f.integer(), Camera: f.text(), Class: f.text(), Start: f.time(), End: f.time(),
		Active: f.boolean(), EndReason: f.text(), Score: f.number(), X1: f.number(), Y1: f.number(), X2: f.number(), Y2: f.number(),
		Detections: f.integer(), Picture: f.text(),
	}
	return r, f.err
}

func (r *trackRow) track() store.Track {
	t := store.Track{
		ID: store.TrackID{Sequence: r.Sequence, Local: r.Track}, Camera: r.Camera, Class: r.Class, Start: r.Start, End: r.End,
		State: store.TrackEnded, EndReason: r.EndReason, Score: r.Score, Box: store.Box{X1: r.X1, Y1: r.Y1, X2: r.X2, Y2: r.Y2},
		Detections: r.Detections, Picture: r.Picture,
	}
	if r.Active {
		t.EndReason = "EXPORTED" // it went on, but not here
	}
	for _, p := range r.Path {
		t.Path = append(t.Path, store.Point(p))
	}
	return t
}

func integer(v int64) string { return strconv.FormatInt(v, 10) }

func number(v float32) string { return strconv.FormatFloat(float64(v), 'g', -1, 32) }

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// fieldReader reads the fields of a line in order, and keeps the first error.
type fieldReader struct {
	columns, fields []string
	next            int
	err             error
}

func (f *fieldReader) text() string {
	f.next++
	return f.fields[f.next-1]
}

func (f *fieldReader) fail(want string) {
	if f.err == nil {
		f.err = fmt.Errorf("%s: %w: %q is not %s", f.columns[f.next-1], store.ErrInvalid, f.fields[f.next-1], want)
	}
}

func (f *fieldReader) integer() int64 {
	v, err := strconv.ParseInt(f.text(), 10, 64)
	if err != nil {
		f.fail("a whole number")
	}
	return v
}

func (f *fieldReader) number() float32 {
	v, err := strconv.ParseFloat(f.text(), 32)
	if err != nil {
		f.fail("a number")
	}
	return float32(v)
}

func (f *fieldReader) boolean() bool {
	v, err := strconv.ParseBool(f.text())
	if err != nil {
		f.fail("true or false")
	}
	return v
}

func (f *fieldReader) time() time.Time {
	v, err := time.Parse(time.RFC3339Nano, f.text())
	if err != nil {
		f.fail("a time such as 2031-05-06T12:00:00.5Z")
	}
	return v
}
