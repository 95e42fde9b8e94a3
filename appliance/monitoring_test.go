package appliance_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// exported are the names of metrics in the programs' source, and those of the process that the library adds.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{"process_resident_memory_bytes": true, "process_cpu_seconds_total": true}
	quoted := regexp.MustCompile(`"((?:vedette|nv)_[a-z0-9_]+)"`)
	for _, dir := range []string{".", "../infer/metrics"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			for _, m := range quoted.FindAllSubmatch(b, -1) {
				names[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func TestTheDashboardAndTheAlertsAskForMetricsThatExist(t *testing.T) {
	names := exported(t)
	metric := regexp.MustCompile(`\b(?:vedette|nv|process)_[a-z0-9_]+`)
	check := func(where, expr string) {
		t.Helper()
		found := metric.FindAllString(expr, -1)
		if len(found) == 0 && !strings.HasPrefix(expr, "up{") {
			t.Errorf("%s asks for nothing of ours: %s", where, expr)
		}
		for _, m := range found {
			if !names[m] && !names[strings.TrimSuffix(m, "_bucket")] {
				t.Errorf("%s asks for %s, which nothing exports", where, m)
			}
		}
	}

	text, err := os.ReadFile("../docs/monitoring/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil || len(board.Panels) == 0 {
		t.Fatalf("the dashboard: %v", err)
	}
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			check("panel "+p.Title, q.Expr)
		}
	}

	if text, err = os.ReadFile("../docs/monitoring/alerts.yaml"); err != nil {
		t.Fatal(err)
	}
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &alerts); err != nil || len(alerts.Groups) == 0 {
		t.Fatalf("the alerts: %v", err)
	}
	for _, r := range alerts.Groups[0].Rules {
		check("alert "+r.Alert, r.Expr)
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("alert %s does not say what to do", r.Alert)
		}
	}
}

// What makes each alert fire is tried with Prometheus' own tool.
func TestTheAlertsFireWhenTheyShould(t *testing.T) {
	rules, err := os.ReadFile("../docs/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("../docs/monitoring/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllSubmatch(rules, -1) {
		if !regexp.MustCompile(`alertname: ` + string(m[1]) + `\n +exp_alerts:`).Match(tests) {
			t.Errorf("no test has %s fire", m[1])
		}
	}
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not installed (make test installs it)")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = "../docs/monitoring"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
