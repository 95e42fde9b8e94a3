package eval_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

// The product's tracker must stay ahead of the published one by the figures
// below, with the one set of parameters, at every rate.
func TestDefaultTrackerStaysAhead(t *testing.T) {
	mot := filepath.Join(sharedData(t), "mot")
	floors := []struct {
		label    string
		hota     float64
		switches float64 // share of the reference's identity switches
	}{
		{"MOT17-half (02,05,10), every 1. frame", 0.7, 1},
		{"MOT17-half (02,05,10), every 3. frame", 2.5, 0.6},
		{"MOT17-half (02,05,10), every 6. frame", 5.4, 0.5},
		{"DanceTrack (8), every 1. frame", 12.6, 0.8},
		{"DanceTrack (8), every 2. frame", 12, 0.7},
		{"DanceTrack (8), every 4. frame", 11.8, 0.5},
	}
	for _, floor := range floors {
		t.Run(floor.label, func(t *testing.T) {
			sequences, every := combined(t, mot, floor.label)
			var want eval.Figures
			if err := json.Unmarshal(sequences["COMBINED"], &want); err != nil {
				t.Fatal(err)
			}
			var results []*eval.Result
			for name := range sequences {
				if name != "COMBINED" {
					results = append(results, scoreDefault(t, filepath.Join(mot, name), every))
				}
			}
			got := eval.Combine("COMBINED", results).Figures()
			t.Logf("HOTA %.2f (%+.2f), IDF1 %.2f (%+.2f), %d identity switches of %d",
				got.HOTA, got.HOTA-want.HOTA, got.IDF1, got.IDF1-want.IDF1, got.IDSW, want.IDSW)
			if got.HOTA < want.HOTA+floor.hota {
				t.Errorf("HOTA %.2f, want %.2f more than %.2f", got.HOTA, floor.hota, want.HOTA)
			}
			if limit := floor.switches * float64(want.IDSW); float64(got.IDSW) > limit {
				t.Errorf("%d identity switches, want at most %.0f", got.IDSW, limit)
			}
		})
	}
}

func TestDefaultTrackerStaysAheadOnCars(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(sharedData(t), "mot", "KITTI-*-Car"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no sequences of cars: %v", err)
	}
	var ours, reference []*eval.Result
	for _, dir := range dirs {
		ours = append(ours, scoreDefault(t, dir, 1))
		reference = append(reference, scoreThinned(t, dir, 1))
	}
	got, want := eval.Combine("", ours).Figures(), eval.Combine("", reference).Figures()
	t.Logf("HOTA %.2f (%+.2f)", got.HOTA, got.HOTA-want.HOTA)
	if got.HOTA < want.HOTA+5.5 {
		t.Errorf("HOTA %.2f, want 5.5 more than %.2f", got.HOTA, want.HOTA)
	}
}

// combined finds the recorded figures whose label begins as told.
func combined(t *testing.T, mot, label string) (sequences map[string]json.RawMessage, every int) {
	t.Helper()
	for name, raw := range recorded(t, mot)["combined and lower rates"] {
		if !strings.HasPrefix(name, label) {
			continue
		}
		if err := json.Unmarshal(raw, &sequences); err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(name, "every ")
		if _, err := fmt.Sscanf(after, "%d. frame", &every); err != nil {
			t.Fatal(err)
		}
		return sequences, every
	}
	t.Fatalf("no figures recorded for %s", label)
	return nil, 0
}

func scoreDefault(t *testing.T, dir string, every int) *eval.Result {
	t.Helper()
	info, err := eval.ReadInfoFile(filepath.Join(dir, "seqinfo.ini"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := eval.Follow(tracker.Config{}, info.FrameRate/float64(every), eval.Thin(rows(t, dir, "det.txt"), every))
	if err != nil {
		t.Fatal(err)
	}
	r, err := eval.Score(filepath.Base(dir), eval.Thin(rows(t, dir, "gt.txt"), every), got)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
