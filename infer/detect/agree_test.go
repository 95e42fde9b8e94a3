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
		{"a little less sure", func(b *detect.Box) { b.Score -= 0.05 }, ""},
		{"scores fallen", func(b *detect.Box) { b.Score -= 0.2 }, "its scores differ by 0.20"},
		{"scores gone", func(b *detect.Box) { b.Score *= 0.1 }, "agrees with its reference on 0 % of 24 boxes"},
		{"other classes", func(b *detect.Box) { b.Class++ }, "on 0 % of 48 boxes"},
		{"loose boxes", func(b *detect.Box) { b.X2 += (b.X2 - b.X1) / 4 }, "overlap those of its reference by 0.80"},
		{"not a number", func(b *detect.Box) { b.Score = math.NaN() }, "on 0 % of 24 boxes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a detect.Agreement
			for range 8 {
				variant := street()
				for i := range variant {
					c.change(&variant[i])
				}
				a.Add(street(), variant)
			}
			err := a.Check()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v, want %q", a, err, c.want)
			}
		})
	}
	var few detect.Agreement
	few.Add(nil, nil)
	if err := few.Check(); err == nil || !strings.Contains(err.Error(), "too little in the pictures") {
		t.Errorf("too little to judge: %v", err)
	}
}
