package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vedette/vedette/appliance/cli"
)

func verb(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Run(t.Context(), cli.Env{Args: args, Stdout: &out, Stderr: &out, Version: "1.2.3", Executable: filepath.Join(t.TempDir(), "bin", "vedette"), Commands: tools(filepath.Join("bin", "vedette"))})
	return out.String(), err
}

func TestTrackingIsScoredFromTheCommandLine(t *testing.T) {
	dir := t.TempDir()
	var det, gt strings.Builder
	for f := 1; f <= 20; f++ {
		fmt.Fprintf(&gt, "%d,1,%d,50,30,80,1,1,1\n", f, 10+4*f)
		fmt.Fprintf(&det, "%d,-1,%d,50,30,80,0.9\n", f, 10+4*f)
	}
	for name, text := range map[string]string{
		"gt/walk/gt.txt": gt.String(), "gt/walk/det.txt": det.String(), "gt/walk/seqinfo.ini": "[Sequence]\nname=walk\nframeRate=25\nseqLength=20\n", "out/keep": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := verb(t, "eval", "track", filepath.Join(dir, "gt", "walk", "det.txt"), filepath.Join(dir, "out", "walk.txt"))
	if err != nil || !strings.Contains(out, "1 objects from 20 detections") {
		t.Fatal(out, err)
	}
	out, err = verb(t, "eval", "score", filepath.Join(dir, "gt"), filepath.Join(dir, "out"))
	if err != nil || !strings.Contains(out, "HOTA") || !strings.Contains(out, "walk") {
		t.Error(out, err)
	}
}

func TestToolsSayWhatTheyNeed(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"perf"}, "missing flags: --model"},
		{[]string{"perf", "-m", "x", "--concurrency-range", "zero"}, "FROM:TO:STEP"},
		{[]string{"perf", "-m", "x", "--shared-memory", "cuda"}, "--shared-memory system can"},
		{[]string{"analyze", "-m", "x", "--instances", "1,0"}, "0 is not at least 1"},
		{[]string{"analyze", "-m", "x", "--memory-budget", "5"}, "needs --metrics"},
		{[]string{"eval", "score"}, "expected"},
	} {
		if out, err := verb(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("vedette %s: got %v, want it to say %q (%s)", strings.Join(c.args, " "), err, c.want, out)
		}
	}
}
