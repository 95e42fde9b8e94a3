package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vedette/vedette/appliance/cli"
)

// vedette runs the command line and returns what it printed.
func vedette(t *testing.T, args ...string) (out, faults string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err = cli.Run(t.Context(), cli.Env{Args: args, Stdout: &stdout, Stderr: &stderr, Version: "test", Executable: filepath.Join(t.TempDir(), "vedette")})
	return stdout.String(), stderr.String(), err
}

func TestEveryFaultOfAConfigurationIsToldAtOnceWithItsLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vedette.yaml")
	text := "htp: 127.0.0.1:1\nlog-level: loud\ndemo: maybe\nmodels: [a]\ngrpc:\nhttp: 127.0.0.1:1\nhttp: 127.0.0.1:2\nfilter: x\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, faults, err := vedette(t, "config", "check", path)
	if err == nil {
		t.Fatal("the check finds nothing")
	}
	for _, want := range []string{
		"line 1: htp: there is no such setting (is http meant?)", "line 2: log-level:", "line 3: demo:", "line 4: models:", "line 5: grpc:",
		"line 7: http: it stands already in line 6", "line 8: filter: there is no such setting",
	} {
		if !strings.Contains(faults, want) {
			t.Errorf("%q is missing in:\n%s", want, faults)
		}
	}
	if _, _, err := vedette(t, "serve", "--config", path); err == nil || !strings.Contains(err.Error(), "line 1: htp") || !strings.Contains(err.Error(), "line 8") {
		t.Errorf("a start with the same file: %v", err)
	}
}

// What a value must be beyond its type is told with the rest, in the file as in flags and the environment.
func TestValuesThatCannotWorkAreToldAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vedette.yaml")
	text := "http: localhost\ngrpc: 127.0.0.1:99999\nkeep-days: -1\ntrace-ratio: 2\ntrace-otlp: collector:4317\nhub: ftp://hub\nfollow-interval: 0s\n" +
		"tls-cert: " + path + "\ntls-client-ca: " + path + "\nfollow-key: " + path + "\nmodels: /nowhere\nkeep-gib: .nan\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, faults, err := vedette(t, "config", "check", path)
	if err == nil {
		t.Fatal("the check finds nothing")
	}
	for i, name := range []string{
		"http", "grpc", "keep-days", "trace-ratio", "trace-otlp", "hub", "follow-interval", "tls-cert", "tls-client-ca", "follow-key", "models", "keep-gib",
	} {
		if want := fmt.Sprintf("line %d: %s: ", i+1, name); !strings.Contains(faults, want) {
			t.Errorf("%q is missing in:\n%s", want, faults)
		}
	}
	t.Setenv("VEDETTE_GRPC", "nonsense")
	_, _, err = vedette(t, "serve", "--keep-days=-1", "--tls-key", path, "--http", ":8080")
	for _, want := range []string{"--grpc", "--keep-days", "--tls-key it needs tls-cert"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a start with faulty flags: %v, want %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "--http") {
		t.Errorf("a start with --http :8080: %v", err)
	}
}

func TestTheShippedConfigurationHoldsWithEveryCommentTakenAway(t *testing.T) {
	shipped, err := os.ReadFile("../../systemd/vedette.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^#([a-z-]+: )`).ReplaceAll(shipped, []byte("$1"))
	if bytes.Equal(all, shipped) {
		t.Fatal("nothing is commented out")
	}
	for name, text := range map[string][]byte{"as shipped": shipped, "with everything set": all} {
		path := filepath.Join(t.TempDir(), "vedette.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, faults, _ := vedette(t, "config", "check", path)
		for fault := range strings.Lines(faults) {
			if !strings.Contains(fault, "there is no such file") && !strings.Contains(fault, "there is no such folder") { // of an installed box
				t.Errorf("%s: %s", name, fault)
			}
		}
	}
	// The file is the manual: every setting stands in it.
	out, _, err := vedette(t, "config", "list")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(out) {
		if !regexp.MustCompile(`(?m)^#?` + regexp.QuoteMeta(name) + `: `).Match(shipped) {
			t.Errorf("the setting %s is not explained in systemd/vedette.yaml", name)
		}
	}
}
