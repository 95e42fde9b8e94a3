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
	for _, kind := range []string{"*.target", "*.socket"} {
		more, err := filepath.Glob(kind)
		if err != nil || len(more) == 0 {
			t.Fatalf("%s: %v, %v", kind, more, err)
		}
		files = append(files, more...)
	}
	command := regexp.MustCompile(`(?m)^ExecStart=.*$`)
	manual := regexp.MustCompile(`(?m)^Documentation=.*$`)
	dir := t.TempDir()
	var out []string
	for _, f := range files {
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
	for _, u := range unitsForChecking(t) {
		if filepath.Ext(u) != ".service" {
			continue
		}
		if s := score(t, u); s > limit {
			t.Errorf("%s: exposure %.1f, the limit is %.1f", filepath.Base(u), s, limit)
		}
	}
}

// score is the exposure that systemd-analyze finds for a unit.
func score(t *testing.T, unit string) float64 {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", unit).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", unit, err, out)
	}
	m := regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no score in the answer:\n%s", out)
	}
	s, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The drop-ins for GPUs and video devices open devices; what that costs is told, and stays below what a plain service has.
func TestTheDropInsForDevicesAreValidAndScoredApart(t *testing.T) {
	for name, service := range map[string]string{"gpu.conf": "vedette-infer", "video-devices.conf": "vedette-ingest"} {
		t.Run(name, func(t *testing.T) { checkDropIn(t, name, service) })
	}
}

func checkDropIn(t *testing.T, name, service string) {
	t.Helper()
	for _, u := range unitsForChecking(t) {
		if filepath.Base(u) != service+".service" {
			continue
		}
		unit, err := os.ReadFile(u)
		if err != nil {
			t.Fatal(err)
		}
		conf, err := os.ReadFile("examples/" + name)
		if err != nil {
			t.Fatal(err)
		}
		// Offline, systemd-analyze reads one file: later settings of a section win as those of a drop-in do.
		unit = regexp.MustCompile(`(?m)^\[Install\]\n.*\n?`).ReplaceAll(unit, nil)
		path := filepath.Join(t.TempDir(), service+"-devices.service")
		if err := os.WriteFile(path, append(append(unit, '\n'), conf...), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", path).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v\n%s", err, out)
		}
		s := score(t, path)
		t.Logf("exposure_%s_with_%s %.1f points", service, name, s)
		if s > 2 {
			t.Errorf("with %s the exposure is %.1f", name, s)
		}
		return
	}
	t.Fatalf("there is no %s.service", service)
}
