package eval_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
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
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(filepath.Join(dir, "mot")); err != nil {
		t.Skipf("no test data at %s: set VEDETTE_TEST_DATA", dir)
	}
	return dir
}

// recorded are the figures of the challenge's own evaluator, by set and
// sequence.
func recorded(t *testing.T, mot string) map[string]map[string]json.RawMessage {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(mot, "ref_metrics.json"))
	if err != nil {
		t.Fatal(err)
	}
	var sets map[string]map[string]json.RawMessage
	if err := json.Unmarshal(data, &sets); err != nil {
		t.Fatal(err)
	}
	return sets
}

func TestFiguresEqualTheChallengesEvaluator(t *testing.T) {
	mot := filepath.Join(sharedData(t), "mot")
	count := 0
	for set, sequences := range recorded(t, mot) {
		if strings.HasPrefix(set, "combined") {
			continue
		}
		suffix := ""
		if variant, ok := strings.CutPrefix(set, "vtest "); ok {
			suffix = "_" + variant
		}
		for name, want := range sequences {
			count++
			t.Run(name+suffix, func(t *testing.T) {
				dir := filepath.Join(mot, name)
				r, err := eval.Score(name, rows(t, dir, "gt.txt"), rows(t, dir, "ref_bytetrack"+suffix+".txt"))
				if err != nil {
					t.Fatal(err)
				}
				compareFigures(t, r.Figures(), want)
			})
		}
	}
	if count < 20 {
		t.Errorf("only %d sequences have recorded figures", count)
	}
}

// The published tracker at full and lower rates, all sequences of a set
// together: this needs tracker, thinning, scores and sums to agree.
func TestCombinedFiguresEqualTheChallengesEvaluator(t *testing.T) {
	mot := filepath.Join(sharedData(t), "mot")
	count := 0
	for label, raw := range recorded(t, mot)["combined and lower rates"] {
		var sequences map[string]json.RawMessage
		if err := json.Unmarshal(raw, &sequences); err != nil {
			t.Fatal(err)
		}
		var every int
		_, after, _ := strings.Cut(label, "every ")
		if _, err := fmt.Sscanf(after, "%d. frame", &every); err != nil {
			t.Fatalf("label %q: %v", label, err)
		}
		count++
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			var results []*eval.Result
			for name := range sequences {
				if name == "COMBINED" {
					continue
				}
				r := scoreThinned(t, filepath.Join(mot, name), every)
				compareFigures(t, r.Figures(), sequences[name])
				results = append(results, r)
			}
			compareFigures(t, eval.Combine("COMBINED", results).Figures(), sequences["COMBINED"])
		})
	}
	if count < 6 {
		t.Errorf("only %d combined figures are recorded", count)
	}
}

func scoreThinned(t *testing.T, dir string, every int) *eval.Result {
	t.Helper()
	cfg := tracker.Config{Mode: tracker.Conformance}
	params, err := os.Open(filepath.Join(dir, "ref_params.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = params.Close() }()
	if err := eval.ReadParams(params, &cfg); err != nil {
		t.Fatal(err)
	}
	got, err := eval.Follow(cfg, 30, eval.Thin(rows(t, dir, "det.txt"), every))
	if err != nil {
		t.Fatal(err)
	}
	r, err := eval.Score(filepath.Base(dir), eval.Thin(rows(t, dir, "gt.txt"), every), got)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The challenge's own development kit states these figures for this file.
func TestFiguresOfTheDevelopmentKit(t *testing.T) {
	dir := filepath.Join(sharedData(t), "mot", "TUD-Campus")
	r, err := eval.Score("TUD-Campus", rows(t, dir, "gt.txt"), rows(t, dir, "motmetrics_test.txt"))
	if err != nil {
		t.Fatal(err)
	}
	f := r.Figures()
	got := fmt.Sprintf("MOTA %.1f IDF1 %.1f FP %d FN %d IDs %d", f.MOTA, f.IDF1, f.FP, f.FN, f.IDSW)
	if want := "MOTA 52.6 IDF1 55.8 FP 13 FN 150 IDs 7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func rows(t testing.TB, dir, file string) []eval.Row {
	t.Helper()
	r, err := eval.ReadRowsFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func compareFigures(t *testing.T, got eval.Figures, recorded json.RawMessage) {
	t.Helper()
	var want map[string]float64
	if err := json.Unmarshal(recorded, &want); err != nil || len(want) == 0 {
		t.Fatalf("nothing recorded for %s: %v", got.Name, err)
	}
	v := reflect.ValueOf(got)
	for name, w := range want {
		f := v.FieldByName(name)
		if !f.IsValid() {
			t.Errorf("%s is recorded but not computed", name)
			continue
		}
		var g float64
		if f.CanInt() {
			g = float64(f.Int())
		} else {
			g = f.Float()
		}
		if math.Abs(g-w) > 5.1e-5 {
			t.Errorf("%s %s = %.5f, want %.4f", got.Name, name, g, w)
		}
	}
}
