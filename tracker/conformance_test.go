package tracker_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

// sharedData finds the folder of test data that is kept outside the project.
func sharedData(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("VEDETTE_TEST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	if _, err := os.Stat(filepath.Join(dir, "mot")); err != nil {
		t.Skipf("no test data at %s: set VEDETTE_TEST_DATA", dir)
	}
	return dir
}

// Every recorded output of the published tracker is repeated: all of
// (frame, id), and boxes within a thousandth of a pixel.
func TestConformanceRepeatsRecordedReference(t *testing.T) {
	references, err := filepath.Glob(filepath.Join(sharedData(t), "mot", "*", "ref_bytetrack*.txt"))
	if err != nil || len(references) == 0 {
		t.Fatalf("no recorded output found: %v", err)
	}
	for _, path := range references {
		dir, file := filepath.Split(path)
		variant := strings.TrimSuffix(strings.TrimPrefix(file, "ref_bytetrack"), ".txt")
		t.Run(filepath.Base(dir)+variant, func(t *testing.T) {
			t.Parallel()
			dets := readRows(t, filepath.Join(dir, "det"+variant+".txt"))
			got, err := eval.Follow(conformanceConfig(t, filepath.Join(dir, "ref_params.txt")), 30, dets)
			if err != nil {
				t.Fatal(err)
			}
			compareRows(t, got, readRows(t, path))
		})
	}
}

func conformanceConfig(t *testing.T, params string) tracker.Config {
	t.Helper()
	cfg := tracker.Config{Mode: tracker.Conformance}
	f, err := os.Open(params)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	if err := eval.ReadParams(f, &cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func readRows(t testing.TB, path string) []eval.Row {
	t.Helper()
	rows, err := eval.ReadRowsFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func compareRows(t *testing.T, got, want []eval.Row) {
	t.Helper()
	type key struct {
		frame int
		id    int64
	}
	boxes := make(map[key]tracker.Box, len(got))
	for _, r := range got {
		boxes[key{r.Frame, r.ID}] = r.Box
	}
	if len(boxes) != len(got) {
		t.Errorf("%d of %d rows repeat a frame and id", len(got)-len(boxes), len(got))
	}
	missing, moved := 0, 0
	for _, r := range want {
		box, ok := boxes[key{r.Frame, r.ID}]
		switch {
		case !ok:
			missing++
			if missing == 1 {
				t.Errorf("frame %d id %d is missing", r.Frame, r.ID)
			}
		case distance(box, r.Box) > 1e-3:
			moved++
			if moved == 1 {
				t.Errorf("frame %d id %d is at %v, want %v", r.Frame, r.ID, box, r.Box)
			}
		}
	}
	if missing+moved > 0 || len(got) != len(want) {
		t.Errorf("%d rows missing, %d moved; %d rows, want %d", missing, moved, len(got), len(want))
	}
}

func distance(a, b tracker.Box) float64 {
	return max(math.Abs(a.X1-b.X1), math.Abs(a.Y1-b.Y1), math.Abs(a.X2-b.X2), math.Abs(a.Y2-b.Y2))
}
