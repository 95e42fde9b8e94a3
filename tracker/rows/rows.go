// Package rows lays detections and tracks out as tensors, so that a tracker can
// be a model among others.
//
//	BOXES    FP32[n,6]  x1 y1 x2 y2 score class
//	TRACKS   FP32[n,8]  x1 y1 x2 y2 score class state age_ms
//	TRACK_ID INT64[n]   the identity of each row of TRACKS
//
// Boxes are in pixels of the decoded frame, scores 0..1, classes whole numbers
// stored as floats (exact up to 2^24). State is 0 tentative, 1 tracked, 2 lost.
// Age_ms is the time from first seen until now in milliseconds; it is exact up
// to 2^24 ms (4.6 hours) and within 1/2^24 of itself beyond.
//
// Values are little-endian, as everywhere on the wire.
package rows

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/vedette/vedette/tracker"
)

// Columns of the two layouts.
const (
	BoxColumns   = 6
	TrackColumns = 8
)

const (
	boxBytes   = 4 * BoxColumns
	trackBytes = 4 * TrackColumns
	idBytes    = 8
)

// Boxes appends the detections of a BOXES tensor to dets and returns it.
// The data is not kept. Class values that are no whole number in range come
// out as class -1; NaN and infinities pass through to the tracker, which
// ignores such rows.
func Boxes(dets []tracker.Detection, data []byte) ([]tracker.Detection, error) {
	if len(data)%boxBytes != 0 {
		return dets, fmt.Errorf("read BOXES: %d bytes are no rows of %d FP32 values", len(data), BoxColumns)
	}
	for ; len(data) > 0; data = data[boxBytes:] {
		dets = append(dets, tracker.Detection{
			Box:   tracker.Box{X1: float(data, 0), Y1: float(data, 1), X2: float(data, 2), Y2: float(data, 3)},
			Score: float(data, 4),
			Class: class(float(data, 5)),
		})
	}
	return dets, nil
}

// AppendBoxes appends the rows of a BOXES tensor to data and returns it.
func AppendBoxes(data []byte, dets []tracker.Detection) []byte {
	for i := range dets {
		d := &dets[i]
		data = appendFloats(data, d.X1, d.Y1, d.X2, d.Y2, d.Score, float64(d.Class))
	}
	return data
}

// AppendTracks appends the rows of a TRACKS tensor and the values of a
// TRACK_ID tensor to the two slices and returns them.
func AppendTracks(data, ids []byte, tracks []tracker.Track) (rows, id []byte) {
	for i := range tracks {
		t := &tracks[i]
		age := float64(t.Age) / float64(time.Millisecond)
		data = appendFloats(data, t.X1, t.Y1, t.X2, t.Y2, t.Score, float64(t.Class), float64(t.State), age)
		ids = binary.LittleEndian.AppendUint64(ids, uint64(t.ID))
	}
	return data, ids
}

// Tracks appends the tracks of a TRACKS and a TRACK_ID tensor to tracks and
// returns it. What the layout does not carry stays zero: Start, Last and
// Detection.
func Tracks(tracks []tracker.Track, data, ids []byte) ([]tracker.Track, error) {
	if len(data)%trackBytes != 0 {
		return tracks, fmt.Errorf("read TRACKS: %d bytes are no rows of %d FP32 values", len(data), TrackColumns)
	}
	if len(ids)%idBytes != 0 || len(ids)/idBytes != len(data)/trackBytes {
		return tracks, fmt.Errorf("read TRACK_ID: %d bytes do not fit %d rows of TRACKS", len(ids), len(data)/trackBytes)
	}
	for ; len(data) > 0; data, ids = data[trackBytes:], ids[idBytes:] {
		state := float(data, 6)
		if state != 0 && state != 1 && state != 2 {
			return tracks, fmt.Errorf("read TRACKS: state %v is not 0, 1 or 2", state)
		}
		age := float(data, 7)
		if !(age >= 0 && age < float64(math.MaxInt64/time.Millisecond)) {
			return tracks, fmt.Errorf("read TRACKS: age %v ms is not a duration", age)
		}
		tracks = append(tracks, tracker.Track{
			ID:    int64(binary.LittleEndian.Uint64(ids)),
			Box:   tracker.Box{X1: float(data, 0), Y1: float(data, 1), X2: float(data, 2), Y2: float(data, 3)},
			Score: float(data, 4),
			Class: class(float(data, 5)),
			State: tracker.State(state),
			Age:   time.Duration(age * float64(time.Millisecond)),
		})
	}
	return tracks, nil
}

func float(data []byte, column int) float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*column:])))
}

// class rounds to the nearest whole number.
func class(f float64) int {
	if !(f > -1<<24 && f < 1<<24) {
		return -1
	}
	return int(math.Round(f))
}

func appendFloats(data []byte, values ...float64) []byte {
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
	}
	return data
}
