package tracker_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

var update = flag.Bool("update", false, "record the tracks of the scenes in testdata anew")

// Each scene in testdata is followed in both modes and compared with what is
// recorded beside it; -update records anew.
func TestScenesGiveTheRecordedTracks(t *testing.T) {
	scenes, err := filepath.Glob(filepath.Join("testdata", "*.det.txt"))
	if err != nil || len(scenes) == 0 {
		t.Fatalf("no scenes in testdata: %v", err)
	}
	for _, path := range scenes {
		name := strings.TrimSuffix(path, ".det.txt")
		fps, err := strconv.ParseFloat(regexp.MustCompile(`(\d+)fps$`).FindStringSubmatch(name)[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range modes {
			t.Run(filepath.Base(name)+"/"+mode.String(), func(t *testing.T) {
				got, err := eval.Follow(tracker.Config{Mode: mode}, fps, readRows(t, path))
				if err != nil {
					t.Fatal(err)
				}
				golden := name + "." + mode.String() + ".txt"
				if *update {
					record(t, golden, got)
				}
				compareRows(t, got, readRows(t, golden))
			})
		}
	}
}

func record(t *testing.T, path string, rows []eval.Row) {
	t.Helper()
	var buf bytes.Buffer
	if err := eval.WriteRows(&buf, rows); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
