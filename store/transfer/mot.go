package transfer

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/vedette/vedette/store"
)

// MOTConfig says what the lines of a MOT file leave unsaid.
type MOTConfig struct {
	Camera        string        // of an import; an export takes the one camera of its query
	Width, Height int           // of the frame, in pixels
	Start         time.Time     // capture time of frame 1; an export without takes its first detection's
	Interval      time.Duration // from frame to frame; 0: 1 s / 25
	Class         string        // of an import, for lines that give none; "": person
}

func (c *MOTConfig) check() error {
	if c.Width <= 0 || c.Height <= 0 {
		return fmt.Errorf("mot: %w: it needs the frame's width and height in pixels", store.ErrInvalid)
	}
	if c.Interval < 0 {
		return fmt.Errorf("mot: %w: a negative interval between frames", store.ErrInvalid)
	}
	if c.Interval == 0 {
		c.Interval = time.Second / 25
	}
	if c.Class == "" {
		c.Class = "person"
	}
	return nil
}

// motWriter writes lines of the result format: frame, id, left, top, width, height, score, -1, -1, -1. Frames count
// from 1; tracks are numbered in order of appearance, because the numbers of sequences would make them unwieldy;
// a detection without a track has -1.
type motWriter struct {
	w   *bufio.Writer
	cfg MOTConfig
	ids map[store.TrackID]int
}

func newMOTWriter(to io.Writer, q store.Query, cfg MOTConfig) (*motWriter, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if len(q.Cameras) != 1 {
		return nil, fmt.Errorf("mot: %w: a file holds one camera; choose one", store.ErrInvalid)
	}
	return &motWriter{w: bufio.NewWriter(to), cfg: cfg, ids: map[store.TrackID]int{}}, nil
}

func (w *motWriter) write(r detectionRow) error {
	if w.cfg.Start.IsZero() {
		w.cfg.Start = r.CaptureTime
	}
	frame := 1 + int64(math.Round(float64(r.CaptureTime.Sub(w.cfg.Start))/float64(w.cfg.Interval)))
	if frame < 1 {
		return nil // from before the first frame
	}
	id := -1
	if r.Track != 0 {
		k := store.TrackID{Sequence: r.Sequence, Local: r.Track}
		if w.ids[k] == 0 {
			w.ids[k] = len(w.ids) + 1
		}
		id = w.ids[k]
	}
	width, height := float64(w.cfg.Width), float64(w.cfg.Height)
	_, err := fmt.Fprintf(w.w, "%d,%d,%.2f,%.2f,%.2f,%.2f,%.3f,-1,-1,-1\n", frame, id, float64(r.X1)*width, float64(r.Y1)*height,
		float64(r.X2-r.X1)*width, float64(r.Y2-r.Y1)*height, r.Score)
	return err
}

func (w *motWriter) close() error { return w.w.Flush() }

// motReader reads lines of the result, detection and ground truth formats. Lines that ground truth marks as not to be
// counted (0 in the seventh place, with nine places) are left out.
type motReader struct {
	r   *csv.Reader
	cfg MOTConfig
}

func newMOTReader(from io.Reader, cfg MOTConfig) (*motReader, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Camera == "" || cfg.Start.IsZero() {
		return nil, fmt.Errorf("mot: %w: an import needs the camera and the time of the first frame", store.ErrInvalid)
	}
	r := csv.NewReader(from)
	r.FieldsPerRecord, r.TrimLeadingSpace, r.ReuseRecord = -1, true, true
	return &motReader{r, cfg}, nil
}

func (r *motReader) read(context.Context) (*detectionRow, error) {
	for {
		fields, err := r.r.Read()
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
		}
		line, _ := r.r.FieldPos(0)
		row, err := r.row(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if row != nil {
			return row, nil
		}
	}
}

// maxFrame bounds frame numbers and ids: years of video.
const maxFrame = 1e9

// row translates a line; nil when it does not count.
func (r *motReader) row(fields []string) (*detectionRow, error) {
	if len(fields) < 6 {
		return nil, fmt.Errorf("%w: %d places, want at least frame, id, left, top, width, height", store.ErrInvalid, len(fields))
	}
	v := make([]float64, min(len(fields), 9))
	for i := range v {
		var err error
		if v[i], err = strconv.ParseFloat(strings.TrimSpace(fields[i]), 64); err != nil || math.IsNaN(v[i]) || math.IsInf(v[i], 0) {
			return nil, fmt.Errorf("%w: place %d: %q is not a number", store.ErrInvalid, i+1, fields[i])
		}
	}
	frame, id := int64(v[0]), int64(v[1])
	if v[0] < 1 || v[0] > maxFrame || math.Abs(v[1]) > maxFrame || v[4] < 0 || v[5] < 0 {
		return nil, fmt.Errorf("%w: frames count from 1 (to %d), ids go that far too, and a box has a size", store.ErrInvalid, int64(maxFrame))
	}
	score := 1.0
	if len(v) > 6 {
		if len(fields) == 9 && v[6] == 0 {
			return nil, nil //nolint:nilnil // a line that ground truth marks as not to be counted
		}
		if score = v[6]; score < 0 || score > 1 {
			score = 1 // -1: not given; above 1: another detector's scale
		}
	}
	class := r.cfg.Class
	if len(fields) == 9 && v[7] > 1 {
		class = "mot-" + strconv.Itoa(int(v[7]))
	}
	width, height := float64(r.cfg.Width), float64(r.cfg.Height)
	at := r.cfg.Start.Add(time.Duration(frame-1) * r.cfg.Interval)
	return &detectionRow{
		Camera: r.cfg.Camera, Sequence: 1, Track: max(id, 0), CaptureTime: at, ReceiveTime: at, Frame: frame, Class: class, Score: float32(score),
		X1: float32(v[2] / width), Y1: float32(v[3] / height), X2: float32((v[2] + v[4]) / width), Y2: float32((v[3] + v[5]) / height),
	}, nil
}
