package flags_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vedette/vedette/infer/server/flags"
)

func TestX9AFileHoldsFlagsAndTheCommandLineWins(t *testing.T) {
	write := func(text string) string {
		name := filepath.Join(t.TempDir(), "infer.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	file := write(`# the box in the yard
model-repository: [/a, /b]
http-port: 9000
grpc-port: 9001
allow-metrics: off
model-control-mode: explicit
load-model: [x, y]
trace-config: ["level=TIMESTAMPS", "rate=3"]
`)
	for _, args := range [][]string{
		{"--config-file", file, "--http-port=9002", "--model-repository=/c"},
		{"--http-port", "9002", "--model-repository", "/c", "--config-file=" + file},
	} {
		cfg, _, _, err := flags.Parse(args, none)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.HTTP != "0.0.0.0:9002" || cfg.GRPC != "0.0.0.0:9001" || cfg.Metrics != "" || strings.Join(cfg.Repository.Roots, ",") != "/a,/b,/c" ||
			strings.Join(cfg.Repository.Startup, ",") != "x,y" || cfg.Trace.Rate != 3 {
			t.Errorf("got %+v", cfg)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"model-repository: /a\nhtpp-port: 1\ngrpc-port: x\n", `line 2: there is no flag "htpp-port"`},
		{"model-repository: /a\nhtpp-port: 1\ngrpc-port: x\n", "line 3: grpc-port: it is not a whole number within 0 and 65535"},
		{"- a", "line 1: expected lines of flag: value"},
		{"a: [", "did not find expected"},
		{"http-port: {a: b}", "line 1: http-port takes a value or a list of values"},
		{"config-file: other.yaml", `there is no flag "config-file"`},
	} {
		if _, _, _, err := flags.Parse([]string{"--config-file", write(c.text)}, none); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.text, err, c.want)
		}
	}
	if _, _, _, err := flags.Parse([]string{"--config-file=/none"}, none); err == nil || !strings.Contains(err.Error(), "/none") {
		t.Errorf("got %v", err)
	}
}

func TestX9OldTraceFlagsAreUnderstood(t *testing.T) {
	cfg, _, _, err := flags.Parse(strings.Fields("--model-repository /a --trace-file=/t --trace-level TIMESTAMPS --trace-rate=7 --trace-count 9 --trace-log-frequency=2"), none)
	if err != nil || cfg.Trace.File != "/t" || cfg.Trace.Levels[0] != "TIMESTAMPS" || cfg.Trace.Rate != 7 || cfg.Trace.Count != 9 || cfg.Trace.LogFrequency != 2 {
		t.Errorf("got %+v, %v", cfg.Trace, err)
	}
}
