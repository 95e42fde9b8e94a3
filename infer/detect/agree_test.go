package detect_test

import (
	"math"
	"strings"
	"testing"

	"github.com/vedette/vedette/infer/detect"
)

// street is what a detector sees in one picture.
func street() []detect.Box {
	return []detect.Box{
		{X1: 10, Y1: 10, X2: 30, Y2: 60, Score: 0.9},
		{X1: 100, Y1: 40, X2: 180, Y2: 90, Score: 0.8, Class: 2},
		{X1: 40, Y1: 10, X2: 60, Y2: 60, Score: 0.6},
		{X1: 200, Y1: 10, X2: 220, Y2: 60, Score: 0.2},
	}
}

func TestVariantsAreTakenOnlyWhenTheyAgree(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(b *detect.Box)
		want   string // "": taken
	}{
		{"the same", func(*detect.Box) {}, ""},
		{"rounding", func(b *detect.Box) { b.X1 += 0.05; b.Score -= 0.001 }, ""},
		{"scores fallen", func(b *detect.Box) { b.Score -= 0.2 }, "scores differ by 0.200, at most 0.100"},
		{"scores gone", func(b *detect.Box) { b.Score *= 0.1 }, "(F1), at least 0.900 are needed: 24 boxes of the reference, 0 of the variant"},
		{"other classes", func(b *detect.Box) { b.Class++ }, "(F1)"},
		{"loose boxes", func(b *detect.Box) { b.X2 += (b.X2 - b.X1) / 4 }, "(IoU), at least 0.900"},
		{"not a number", func(b *detect.Box) { b.Score = math.NaN() }, "(F1)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a detect.Agreement
			for range 8 {
				variant := street()
				for i := range variant {
					c.change(&variant[i])
				}
				a.Add(street(), variant, 0.3)
			}
			err := a.Check(detect.DefaultLimits())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v, want %q", a, err, c.want)
			}
		})
	}
	var few detect.Agreement
	few.Add(nil, nil, 0.3)
	if err := few.Check(detect.DefaultLimits()); err == nil || !strings.Contains(err.Error(), "compared on 1 pictures") || !strings.Contains(err.Error(), "sees 0 objects") {
		t.Errorf("too little to judge: %v", err)
	}
}
