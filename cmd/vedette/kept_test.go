package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/store"
	"github.com/vedette/vedette/store/transfer"
)

// walk is two objects that pass each other, as MOTChallenge writes results.
func walk() string {
	var text strings.Builder
	for f := 1; f <= 40; f++ {
		for id, x := range []int{10 + 6*f, 400 - 6*f} {
			fmt.Fprintf(&text, "%d,%d,%d,%d,30,80,1,1,1\n", f, id+1, x, 50+100*id)
		}
	}
	return text.String()
}

func TestWhatAnApplianceKeptIsScored(t *testing.T) {
	dir := t.TempDir()
	gt := filepath.Join(dir, "gt", "door")
	if err := os.MkdirAll(gt, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"gt.txt": walk(), "seqinfo.ini": "[Sequence]\nname=door\nframeRate=10\nseqLength=40\nimWidth=640\nimHeight=480\n",
	} {
		if err := os.WriteFile(filepath.Join(gt, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := store.New(store.Config{Dir: filepath.Join(dir, "data")})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-s.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	into := transfer.NewImporter(s)
	if _, err := into.Detections(ctx, transfer.MOT, transfer.MOTConfig{
		Camera: "door", Width: 640, Height: 480, Interval: time.Second / 10, Start: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}, strings.NewReader(walk())); err != nil {
		t.Fatal(err)
	}
	if err := into.Close(ctx); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(dir, "backup")
	if _, err := s.Backup(ctx, backup); err != nil {
		t.Fatal(err)
	}
	out, err := verb(t, "eval", "score", filepath.Join(dir, "gt"), "--store", backup)
	if err != nil {
		t.Fatal(err)
	}
	last := strings.Fields(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:])
	if last[0] != "COMBINED" || !strings.HasPrefix(last[1], "99.") && last[1] != "100.0000" {
		t.Errorf("printed\n%s", out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{filepath.Join(dir, "gt"), "--store", filepath.Join(dir, "none")}, "none"},
		{[]string{filepath.Join(dir, "gt")}, "give either RESULTS"},
		{[]string{dir, "--store", backup}, "no camera of"},
	} {
		if _, err := verb(t, append([]string{"eval", "score"}, c.args...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.args, err, c.want)
		}
	}
}
