package eval

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/vedette/vedette/tracker"
)

// ReadParams reads key=value lines into a tracker's settings.
func ReadParams(r io.Reader, cfg *tracker.Config) error {
	scan := bufio.NewScanner(r)
	for n := 1; scan.Scan(); n++ {
		line := strings.TrimSpace(scan.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return fmt.Errorf("parameters: line %d: %q is not key=value", n, line)
		}
		if err := cfg.Set(strings.TrimSpace(key), strings.TrimSpace(value)); err != nil {
			return fmt.Errorf("parameters: line %d: %w", n, err)
		}
	}
	return scan.Err()
}

// Follow runs a tracker over detections and returns what it reports, frame by
// frame. Frames are taken at the given rate; frames without a detection, up to
// the last one with any, are told to the tracker as empty.
func Follow(cfg tracker.Config, fps float64, dets []Row) ([]Row, error) {
	t, err := tracker.New(cfg)
	if err != nil {
		return nil, err
	}
	if !(fps > 0) {
		return nil, fmt.Errorf("follow: %v is not a frame rate", fps)
	}
	frames := byFrame(dets)
	var out []Row
	var batch []tracker.Detection
	for i, rows := range frames {
		batch = batch[:0]
		for _, r := range rows {
			batch = append(batch, tracker.Detection{Box: r.Box, Score: r.Score, Class: r.Class})
		}
		at := time.Duration(float64(i) / fps * float64(time.Second))
		for _, tr := range t.Update(at, batch) {
			out = append(out, Row{Frame: i + 1, ID: tr.ID, Box: tr.Box, Score: tr.Score, Class: tr.Class, Visibility: 1})
		}
	}
	return out, nil
}

// byFrame sorts rows into frames; index 0 is frame 1.
func byFrame(rows []Row) [][]Row {
	last := 0
	for i := range rows {
		last = max(last, rows[i].Frame)
	}
	frames := make([][]Row, last)
	for _, r := range rows {
		frames[r.Frame-1] = append(frames[r.Frame-1], r)
	}
	return frames
}
