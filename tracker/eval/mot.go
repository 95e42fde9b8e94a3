package eval

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/vedette/vedette/tracker"
)

// Row is one line of a MOTChallenge file: a detection, a tracked box or an
// annotation, with frames counted from 1.
type Row struct {
	Frame      int
	ID         int64 // -1 in files of detections
	Box        tracker.Box
	Score      float64 // of annotations: 0 marks what is not scored
	Class      int     // -1 where the file names none
	Visibility float64 // 1 where the file names none
}

// maxFrame bounds a file's frames, since each takes memory: ten million are
// four days at 30 frames a second.
const maxFrame = 10_000_000

// ReadRows reads lines of frame, id, x, y, width, height, score, class,
// visibility, separated by commas or blanks. The last three may be missing.
// Frames may come in any order and are kept as they come.
func ReadRows(r io.Reader) ([]Row, error) {
	var rows []Row
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, 1<<20)
	for n := 1; scan.Scan(); n++ {
		line := bytes.TrimSpace(scan.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		row, err := parseRow(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		rows = append(rows, row)
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	return rows, nil
}

func parseRow(line []byte) (Row, error) {
	var fields [9]float64
	fields[6], fields[7], fields[8] = 1, -1, 1
	words := strings.FieldsFunc(string(line), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	if len(words) < 6 {
		return Row{}, fmt.Errorf("%d fields, want at least frame, id, x, y, width, height", len(words))
	}
	for i, word := range words[:min(len(words), len(fields))] {
		f, err := strconv.ParseFloat(word, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return Row{}, fmt.Errorf("field %d: %q is not a number", i+1, word)
		}
		fields[i] = f
	}
	if fields[0] < 1 || fields[0] > maxFrame || fields[0] != math.Trunc(fields[0]) {
		return Row{}, fmt.Errorf("frame %v is not a whole number from 1 to %d", fields[0], maxFrame)
	}
	if math.Abs(fields[1]) > 1<<53 || fields[1] != math.Trunc(fields[1]) {
		return Row{}, fmt.Errorf("id %v is not a whole number", fields[1])
	}
	if math.Abs(fields[7]) > 1<<31 {
		return Row{}, fmt.Errorf("class %v is not a class", fields[7])
	}
	return Row{
		Frame: int(fields[0]), ID: int64(fields[1]),
		Box:   tracker.Box{X1: fields[2], Y1: fields[3], X2: fields[2] + fields[4], Y2: fields[3] + fields[5]},
		Score: fields[6], Class: int(fields[7]), Visibility: fields[8],
	}, nil
}

// WriteRows writes rows as ReadRows reads them, with six decimals as the
// challenge's own tools do.
func WriteRows(w io.Writer, rows []Row) error {
	buf := bufio.NewWriter(w)
	for i := range rows {
		r := &rows[i]
		if _, err := fmt.Fprintf(buf, "%d,%d,%.6f,%.6f,%.6f,%.6f,%.6f,%d,-1,-1\n",
			r.Frame, r.ID, r.Box.X1, r.Box.Y1, r.Box.Width(), r.Box.Height(), r.Score, r.Class); err != nil {
			return err
		}
	}
	return buf.Flush()
}

// ReadRowsFile is ReadRows of a file.
func ReadRowsFile(path string) ([]Row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	rows, err := ReadRows(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return rows, nil
}

// Info is what a seqinfo.ini tells of a sequence.
type Info struct {
	Name      string
	FrameRate float64 // frames a second; 0 if not told
	Length    int     // frames; 0 if not told
	Width     int     // pixels; 0 if not told
	Height    int
}

// ReadInfo reads a seqinfo.ini; keys it does not know are skipped.
func ReadInfo(r io.Reader) (Info, error) {
	var info Info
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		key, value, ok := strings.Cut(scan.Text(), "=")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		var err error
		switch strings.TrimSpace(key) {
		case "name":
			info.Name = value
		case "frameRate":
			info.FrameRate, err = strconv.ParseFloat(value, 64)
			if err == nil && !(info.FrameRate >= 0 && info.FrameRate < 1e6) {
				err = errors.New("not a rate")
			}
		case "seqLength":
			info.Length, err = strconv.Atoi(value)
		case "imWidth":
			info.Width, err = strconv.Atoi(value)
		case "imHeight":
			info.Height, err = strconv.Atoi(value)
		}
		if err != nil {
			return Info{}, fmt.Errorf("sequence information: %s: %w", key, err)
		}
	}
	return info, scan.Err()
}

// ReadInfoFile is ReadInfo of a file.
func ReadInfoFile(path string) (Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return Info{}, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := ReadInfo(f)
	if err != nil {
		return Info{}, fmt.Errorf("read %s: %w", path, err)
	}
	return info, nil
}
