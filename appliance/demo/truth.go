package demo

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/vedette/vedette/appliance/demo/scene"
)

//go:embed clip/truth.csv.gz
var streetTruth []byte

// GroundTruth is what a clip shows, frame by frame.
type GroundTruth struct {
	frames [scene.Frames][]scene.Object
}

// Truth reads the ground truth kept beside the embedded clip.
func Truth() (*GroundTruth, error) { return ReadTruth(bytes.NewReader(streetTruth)) }

// ReadTruth reads the ground truth of a clip that command render made: rows of
// scene.AppendTruth, packed by gzip.
func ReadTruth(packed io.Reader) (*GroundTruth, error) {
	z, err := gzip.NewReader(packed)
	if err != nil {
		return nil, fmt.Errorf("demo truth: %w", err)
	}
	r := csv.NewReader(z)
	r.FieldsPerRecord = scene.TruthColumns
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("demo truth: %w", err)
	}
	t := &GroundTruth{}
	for i, row := range rows {
		var v [scene.TruthColumns]float64
		for j, s := range row {
			if v[j], err = strconv.ParseFloat(s, 64); err != nil {
				return nil, fmt.Errorf("demo truth: line %d: %w", i+1, err)
			}
		}
		n, o := scene.ParseTruth(v)
		if n < 0 || n >= scene.Frames {
			return nil, fmt.Errorf("demo truth: line %d: no frame %d in the clip", i+1, n)
		}
		t.frames[n] = append(t.frames[n], o)
	}
	return t, nil
}

// Frame is what frame k shows, counted from the camera's start over all loops.
// The result is shared: it must not change.
func (t *GroundTruth) Frame(k int64) []scene.Object { return t.frames[k%scene.Frames] }

// Identity tells objects apart over all loops: whoever is carried over from
// one loop into the next keeps the number.
func (t *GroundTruth) Identity(k int64, o scene.Object) int64 {
	actor, pass := o.Origin()
	return (k/scene.Frames-int64(pass))<<16 | int64(actor)
}

// Rows is the embedded truth as text, in the form that scene.AppendTruth
// describes.
func (t *GroundTruth) Rows() []byte {
	var out []byte
	for n, objects := range t.frames {
		out = scene.AppendTruth(out, n, objects)
	}
	return out
}
