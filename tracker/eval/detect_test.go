package eval_test

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

func at(frame int, x, y, w, h, score float64) eval.Row {
	return eval.Row{Frame: frame, ID: -1, Box: tracker.Box{X1: x, Y1: y, X2: x + w, Y2: y + h}, Score: score, Class: -1, Visibility: 1}
}

func TestAveragePrecision(t *testing.T) {
	gt := []eval.Row{at(1, 0, 0, 100, 100, 1), at(1, 200, 0, 100, 100, 1), at(2, 0, 0, 100, 100, 1), at(2, 300, 0, 100, 100, 0)}
	cases := []struct {
		name string
		dets []eval.Row
		ap50 float64
	}{
		{"nothing detected", nil, 0},
		{"all found, nothing else", []eval.Row{at(1, 0, 0, 100, 100, .9), at(1, 200, 0, 100, 100, .8), at(2, 0, 0, 100, 100, .7)}, 100},
		// Recall reaches 2/3: 67 of the 101 steps, 0.00 to 0.66, have precision 1.
		{"two of three found", []eval.Row{at(1, 0, 0, 100, 100, .9), at(1, 200, 0, 100, 100, .8)}, 100 * 67.0 / 101},
		{"a wrong one of least score costs nothing", []eval.Row{
			at(1, 0, 0, 100, 100, .9), at(1, 200, 0, 100, 100, .8), at(2, 0, 0, 100, 100, .7), at(2, 600, 0, 100, 100, .1),
		}, 100},
		// The wrong one comes first: precision is 1/2, 2/3, 3/4 at most 3/4 everywhere.
		{"a wrong one of highest score", []eval.Row{
			at(1, 0, 0, 100, 100, .9), at(1, 200, 0, 100, 100, .8), at(2, 0, 0, 100, 100, .7), at(2, 600, 0, 100, 100, 1),
		}, 75},
		{"one on what is not scored does not count", []eval.Row{
			at(1, 0, 0, 100, 100, .9), at(1, 200, 0, 100, 100, .8), at(2, 0, 0, 100, 100, .7), at(2, 300, 0, 100, 100, 1),
		}, 100},
		{"a second one on the same object is wrong", []eval.Row{
			at(1, 0, 0, 100, 100, .95), at(1, 1, 0, 100, 100, .94), at(1, 200, 0, 100, 100, .8), at(2, 0, 0, 100, 100, .7),
		}, 100 * (34*1 + 67*0.75) / 101},
		{"too little overlap is wrong", []eval.Row{at(1, 40, 40, 100, 100, .9)}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := eval.Detect("", eval.Pictures(gt, c.dets), 0.6)
			if math.Abs(f.AP50-c.ap50) > 1e-9 {
				t.Errorf("AP50 = %.4f, want %.4f", f.AP50, c.ap50)
			}
			if f.Boxes != 3 || f.Dets != len(c.dets) {
				t.Errorf("%d boxes and %d detections counted", f.Boxes, f.Dets)
			}
		})
	}
}

// The same model on the same clip was measured elsewhere, by another program
// and on every third frame, at 89.7 and 26.9.
func TestAveragePrecisionOfARealDetector(t *testing.T) {
	dir := filepath.Join(sharedData(t), "mot", "vtest-480x360")
	f := eval.Detect("vtest", eval.Pictures(rows(t, dir, "gt.txt"), rows(t, dir, "det_yolox_0.7.txt")), 0.6)
	if math.Abs(f.AP50-89.7) > 0.6 || math.Abs(f.AP75-26.9) > 0.6 {
		t.Errorf("AP50 %.2f AP75 %.2f, want about 89.7 and 26.9", f.AP50, f.AP75)
	}
}
