package verbs_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vedette/vedette/tracker/eval/verbs"
)

// Two objects walk towards each other and pass; the detector loses one for a
// while.
func scene(t *testing.T) (det, gtRoot string) {
	t.Helper()
	dir := t.TempDir()
	var dets, gt strings.Builder
	for f := 1; f <= 40; f++ {
		for id, x := range []int{10 + 6*f, 400 - 6*f} {
			fmt.Fprintf(&gt, "%d,%d,%d,%d,30,80,1,1,1\n", f, id+1, x, 50+100*id)
			if id == 0 || f < 20 || f > 25 {
				fmt.Fprintf(&dets, "%d,-1,%d,%d,30,80,0.9\n", f, x, 50+100*id)
			}
		}
	}
	gtRoot = filepath.Join(dir, "gt")
	write(t, filepath.Join(gtRoot, "walk", "gt.txt"), gt.String())
	write(t, filepath.Join(gtRoot, "walk", "det.txt"), dets.String())
	write(t, filepath.Join(gtRoot, "walk", "seqinfo.ini"), "[Sequence]\nname=walk\nframeRate=25\nseqLength=40\n")
	return filepath.Join(gtRoot, "walk", "det.txt"), gtRoot
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTrackThenScore(t *testing.T) {
	for _, mode := range []string{"conformance", "default"} {
		t.Run(mode, func(t *testing.T) {
			det, gtRoot := scene(t)
			results := t.TempDir()
			var out bytes.Buffer
			track := verbs.Track{Mode: mode, Det: det, Out: filepath.Join(results, "walk.txt")}
			if err := track.Run(&out); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "2 objects") || !strings.Contains(out.String(), "25 frames a second") {
				t.Errorf("track says %q", out.String())
			}
			out.Reset()
			pictures := filepath.Join(results, "pictures")
			savePicture(t, filepath.Join(pictures, "walk", "img1", "000020.png"))
			score := verbs.Score{
				GTRoot: gtRoot, Results: results, JSON: filepath.Join(results, "f.json"),
				CSV: filepath.Join(results, "f.csv"), HTML: filepath.Join(results, "f.html"), Frames: pictures,
			}
			if err := score.Run(t.Context(), &out); err != nil {
				t.Fatal(err)
			}
			checkTable(t, out.String())
			checkFiles(t, results)
		})
	}
}

func savePicture(t *testing.T, path string) {
	t.Helper()
	var buf bytes.Buffer
	if err := png.Encode(&buf, image.NewGray(image.Rect(0, 0, 640, 480))); err != nil {
		t.Fatal(err)
	}
	write(t, path, buf.String())
}

func checkTable(t *testing.T, table string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want a header, walk and COMBINED:\n%s", len(lines), table)
	}
	for i, want := range []string{"SEQUENCE HOTA", "walk ", "COMBINED "} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, want) {
			t.Errorf("line %d is %q, want it to begin with %q", i+1, got, want)
		}
	}
}

func checkFiles(t *testing.T, dir string) {
	t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var figures []struct {
		Name string  `json:"name"`
		HOTA float64 `json:"HOTA"`
	}
	if err := json.Unmarshal(read("f.json"), &figures); err != nil || len(figures) != 2 || figures[1].Name != "COMBINED" || figures[0].HOTA < 80 {
		t.Errorf("JSON: %v %+v", err, figures)
	}
	records, err := csv.NewReader(bytes.NewReader(read("f.csv"))).ReadAll()
	if err != nil || len(records) != 3 || records[0][1] != "HOTA" {
		t.Errorf("CSV: %v %q", err, records)
	}
	if html := string(read("f.html")); !strings.Contains(html, "walk") || !strings.Contains(html, "<polyline") {
		t.Errorf("HTML lacks the sequence or its plot")
	}
}

func TestScoreRefusesWhatDoesNotFit(t *testing.T) {
	_, gtRoot := scene(t)
	cases := []struct {
		name, file, text, want string
		every                  int
	}{
		{"no result at all", "", "", "no results", 1},
		{"a result without annotation", "other.txt", "1,1,0,0,9,9,1\n", "other", 1},
		{"a result beyond the end", "walk.txt", "41,1,0,0,9,9,1\n", "beyond", 1},
		{"a result of the full rate at a lower one", "walk.txt", "40,1,0,0,9,9,1\n", "beyond", 2},
		{"the same identity twice in a frame", "walk.txt", "1,1,0,0,9,9,1\n1,1,9,9,9,9,1\n", "twice", 1},
		{"no numbers", "walk.txt", "1,a,0,0,9,9,1\n", "line 1", 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			results := t.TempDir()
			if c.file != "" {
				write(t, filepath.Join(results, c.file), c.text)
			}
			score := verbs.Score{GTRoot: gtRoot, Results: results, Every: c.every}
			err := score.Run(t.Context(), &bytes.Buffer{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestDetectScoresPerfectDetections(t *testing.T) {
	_, gtRoot := scene(t)
	det := filepath.Join(t.TempDir(), "det.txt")
	gt, err := os.ReadFile(filepath.Join(gtRoot, "walk", "gt.txt"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, det, string(gt))
	var out bytes.Buffer
	detect := verbs.Detect{GT: filepath.Join(gtRoot, "walk", "gt.txt"), Det: det}
	if err := detect.Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(out.String()); len(got) != 22 || got[12] != "100.000" {
		t.Errorf("detect prints\n%s", out.String())
	}
}
