package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// unitsForChecking copies the units to a temporary folder, with commands and manual pages that exist on
// any machine in place of our own.
func unitsForChecking(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed (make test installs it)")
	}
	files, err := filepath.Glob("*.service")
	if err != nil || len(files) < 3 {
		t.Fatalf("units: %v, %v", files, err)
	}
	targets, err := filepath.Glob("*.target")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^ExecStart=.*$`)
	manual := regexp.MustCompile(`(?m)^Documentation=.*$`)
	dir := t.TempDir()
	var out []string
	for _, f := range append(files, targets...) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		b = command.ReplaceAll(b, []byte("ExecStart=/bin/true"))
		b = manual.ReplaceAll(b, nil)
		path := filepath.Join(dir, f)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		out = append(out, path)
	}
	return out
}

func TestTheUnitsAreValid(t *testing.T) {
	for _, u := range unitsForChecking(t) {
		// The exit status is 0 for unknown keys too: only silence is consent.
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", u).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", filepath.Base(u), err, out)
		}
	}
}

func TestTheServicesAreConfined(t *testing.T) {
	const limit = 2.0
	score := regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`)
	for _, u := range unitsForChecking(t) {
		if filepath.Ext(u) != ".service" {
			continue
		}
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", u).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", u, err, out)
		}
		m := score.FindSubmatch(out)
		if m == nil {
			t.Fatalf("no score in the answer:\n%s", out)
		}
		if s, err := strconv.ParseFloat(string(m[1]), 64); err != nil || s > limit {
			t.Errorf("%s: exposure %s, the limit is %.1f", filepath.Base(u), m[1], limit)
		}
	}
}
