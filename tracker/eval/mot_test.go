package eval_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/vedette/vedette/tracker/eval"
)

func TestReadRows(t *testing.T) {
	const text = "1,7,10.5,20,30,40,0.5,1,0.25\n\n# a remark\n  2 8 1 2 3 4\r\n3,-1,1,2,3,4,0.9,-1,-1,-1\n"
	got, err := eval.ReadRows(strings.NewReader(text))
	if err != nil || len(got) != 3 {
		t.Fatalf("%d rows, error %v", len(got), err)
	}
	if r := got[0]; r.Frame != 1 || r.ID != 7 || r.Box.X2 != 40.5 || r.Box.Y2 != 60 || r.Score != 0.5 || r.Class != 1 || r.Visibility != 0.25 {
		t.Errorf("row of nine fields: %+v", r)
	}
	if r := got[1]; r.Frame != 2 || r.ID != 8 || r.Score != 1 || r.Class != -1 || r.Visibility != 1 {
		t.Errorf("row of six fields: %+v", r)
	}
	if r := got[2]; r.ID != -1 || r.Score != 0.9 || r.Class != -1 {
		t.Errorf("row of ten fields: %+v", r)
	}
}

func TestReadRowsRefusesWhatIsNoRow(t *testing.T) {
	for name, text := range map[string]string{
		"too few fields":        "1,2,3,4,5\n",
		"a word":                "1,2,3,4,5,six\n",
		"no number":             "1,2,NaN,4,5,6\n",
		"an infinite box":       "1,2,3,4,Inf,6\n",
		"frame zero":            "0,2,3,4,5,6\n",
		"half a frame":          "1.5,2,3,4,5,6\n",
		"a frame without end":   "1e300,2,3,4,5,6\n",
		"half an identity":      "1,2.5,3,4,5,6\n",
		"an identity too large": "1,1e300,3,4,5,6\n",
		"a line without end":    strings.Repeat("1", 2<<20),
	} {
		if _, err := eval.ReadRows(strings.NewReader(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestReadInfo(t *testing.T) {
	info, err := eval.ReadInfo(strings.NewReader("[Sequence]\nname=a b\nimDir=img1\nframeRate=12.5\nseqLength=7\nimWidth=640\nimHeight=480\n"))
	if want := (eval.Info{Name: "a b", FrameRate: 12.5, Length: 7, Width: 640, Height: 480}); err != nil || info != want {
		t.Errorf("%+v, %v; want %+v", info, err, want)
	}
	for _, text := range []string{"frameRate=fast", "frameRate=-1", "frameRate=NaN", "seqLength=1.5", "imWidth=", "imHeight=x"} {
		if _, err := eval.ReadInfo(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestThinKeepsEveryKthFrame(t *testing.T) {
	var in []eval.Row
	for f := 1; f <= 10; f++ {
		in = append(in, at(f, float64(f), 0, 1, 1, 1))
	}
	var got []float64
	for i, r := range eval.Thin(in, 4) {
		if r.Frame != i+1 {
			t.Errorf("kept frame %d is numbered %d", i+1, r.Frame)
		}
		got = append(got, r.Box.X1)
	}
	if len(got) != 3 || got[0] != 1 || got[1] != 5 || got[2] != 9 {
		t.Errorf("frames %v are kept, want 1, 5 and 9", got)
	}
}

// FuzzReadRows: what is read can be written and read again, unchanged to six
// decimals, and can be scored against itself without a crash.
func FuzzReadRows(f *testing.F) {
	f.Add([]byte("1,7,10.5,20,30,40,0.5,1,0.25\n2,8,1,2,3,4\n"))
	f.Add([]byte("1 1 0 0 -5 1e300 1 8 1\n\n#\n1,2,3"))
	f.Add([]byte("3,-1,1,2,3,4,0.9,-1,-1,-1\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := eval.ReadRows(bytes.NewReader(data))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := eval.WriteRows(&out, rows); err != nil {
			t.Fatal(err)
		}
		again, err := eval.ReadRows(&out)
		if err != nil || len(again) != len(rows) {
			t.Fatalf("%d rows became %d: %v", len(rows), len(again), err)
		}
		for i := range rows {
			a, b := &rows[i], &again[i]
			if a.Frame != b.Frame || a.ID != b.ID || a.Class != b.Class || math.Abs(a.Box.X1-b.Box.X1) > 1e-6+1e-9*math.Abs(a.Box.X1) {
				t.Fatalf("%+v became %+v", a, b)
			}
			if a.Frame > 1000 {
				return // scoring takes memory for every frame
			}
		}
		if r, err := eval.Score("fuzz", rows, rows); err == nil {
			if f := r.Figures(); math.IsNaN(f.HOTA) || math.IsNaN(f.MOTA) || math.IsNaN(f.IDF1) {
				t.Fatalf("figures %+v", f)
			}
		}
	})
}
