package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/metrics"
	"github.com/vedette/vedette/infer/stats"
)

func scrape(t *testing.T, cfg metrics.Config) string {
	t.Helper()
	rec := httptest.NewRecorder()
	metrics.Handler(cfg).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != 200 || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/plain") {
		t.Fatalf("got %d %v: %s", rec.Code, rec.Header(), rec.Body)
	}
	return rec.Body.String()
}

func model() []stats.Snapshot {
	var m stats.Model
	m.Executed(stats.Execution{Size: 4, Inferences: 3, Succeeded: 2, Queue: 2 * time.Millisecond, Total: 6 * time.Millisecond, Infer: time.Millisecond, End: time.Now()})
	m.Failed(infer.ReasonRejected, time.Millisecond)
	m.Loaded(1500 * time.Millisecond)
	s := m.Snapshot()
	s.Name, s.Version, s.Pending, s.Tags = "person", 2, 5, map[string]string{"site": "gate", "a b": "c"}
	return []stats.Snapshot{s}
}

func TestX2FamiliesLabelsAndValues(t *testing.T) {
	got := scrape(t, metrics.Config{Models: model, NoCPU: true, NoGPU: true})
	const l = `_a_b="c",_site="gate",model="person",version="2"`
	for _, want := range []string{
		"# HELP nv_inference_request_success Number of successful inference requests, all batch sizes\n# TYPE nv_inference_request_success counter\nnv_inference_request_success{" + l + "} 2\n",
		`nv_inference_request_failure{_a_b="c",_site="gate",model="person",reason="REJECTED",version="2"} 1`,
		`nv_inference_request_failure{_a_b="c",_site="gate",model="person",reason="OTHER",version="2"} 0`,
		`reason="CANCELED"`, `reason="BACKEND"`,
		"nv_inference_count{" + l + "} 3",
		"nv_inference_exec_count{" + l + "} 1",
		"nv_inference_request_duration_us{" + l + "} 6000",
		"nv_inference_queue_duration_us{" + l + "} 2000",
		"nv_inference_compute_input_duration_us{" + l + "} 0",
		"nv_inference_compute_infer_duration_us{" + l + "} 2000",
		"nv_inference_compute_output_duration_us{" + l + "} 0",
		"# TYPE nv_inference_pending_request_count gauge\nnv_inference_pending_request_count{" + l + "} 5",
		"nv_model_load_duration_secs{" + l + "} 1.5",
		"nv_pinned_memory_pool_total_bytes 0",
		"vedette_inference_request_duration_seconds_bucket{" + l + `,le="0.005"} 2`,
		"vedette_inference_request_duration_seconds_count{" + l + "} 2",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, grep(got, "nv_"))
		}
	}
	for _, absent := range []string{"nv_cache", "nv_cpu", "nv_gpu", "first_response"} {
		if strings.Contains(got, absent) {
			t.Errorf("%s is told", absent)
		}
	}
}

func grep(text, word string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestX2SwitchesOfFamilies(t *testing.T) {
	decoupled := func() []stats.Snapshot {
		list := model()
		list[0].Decoupled, list[0].Cached = true, true
		return list
	}
	got := scrape(t, metrics.Config{Models: decoupled, NoCPU: true, NoGPU: true, NoLatencies: true, FirstResponse: true})
	if strings.Contains(got, "nv_inference_request_duration_us") {
		t.Error("cumulative latencies are told")
	}
	for _, want := range []string{"nv_inference_first_response_histogram_ms_bucket", "nv_cache_num_hits_per_model", "nv_cache_miss_duration_per_model"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not told", want)
		}
	}
}

func TestX2MachineIsReadFromTheKernel(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n")
	write("meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n")
	h := metrics.Handler(metrics.Config{Models: model, NoGPU: true, Proc: dir, Interval: 1})
	read := func() string {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return rec.Body.String()
	}
	read()
	write("stat", "cpu  130 0 130 720 120 0 0 0 0 0\n") // 60 of 100 ticks were work
	got := read()
	for _, want := range []string{"nv_cpu_utilization 0.6\n", fmt.Sprintf("nv_cpu_memory_total_bytes %g\n", 1000.0*1024), fmt.Sprintf("nv_cpu_memory_used_bytes %d\n", 600*1024)} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, grep(got, "nv_cpu"))
		}
	}
}

func TestX2MachineThatCannotBeReadIsLeftOut(t *testing.T) {
	got := scrape(t, metrics.Config{Models: model, Proc: t.TempDir()})
	if strings.Contains(got, "nv_cpu") || !strings.Contains(got, "nv_inference_count") {
		t.Error(grep(got, "nv_"))
	}
}

func TestQueueTimeIsComparedWithItsBudget(t *testing.T) {
	budget := func(name string, version int64) time.Duration {
		if name != "person" || version != 2 {
			t.Errorf("asked for the budget of %s %d", name, version)
		}
		return 500 * time.Microsecond
	}
	got := scrape(t, metrics.Config{Models: model, NoCPU: true, NoGPU: true, QueueBudget: budget})
	const l = `_a_b="c",_site="gate",model="person",version="2"`
	for _, want := range []string{"vedette_inference_queue_budget_seconds{" + l + "} 0.0005", "vedette_inference_queue_budget_ratio{" + l + "} 2\n"} { // 2 ms of two requests
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, grep(got, "queue"))
		}
	}
}

func TestWhereInstancesRunIsTold(t *testing.T) {
	list := func() []metrics.Instance {
		return []metrics.Instance{{Model: "m", Version: 3, Name: "m_0_1", Provider: "cpu", Fallbacks: 4, Reason: "no device"}}
	}
	got := scrape(t, metrics.Config{Models: model, NoCPU: true, NoGPU: true, Instances: list})
	for _, want := range []string{
		`vedette_instance_provider{instance="m_0_1",model="m",provider="cpu",version="3"} 1`, `vedette_instance_fallbacks_total{instance="m_0_1",model="m",version="3"} 4`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, grep(got, "instance"))
		}
	}
}

func TestX2FirstResponsesAreCountedInTritonsBuckets(t *testing.T) {
	list := func() []stats.Snapshot {
		var m stats.Model
		m.Responded(0, false, 0, 0, 300*time.Millisecond)
		s := m.Snapshot()
		s.Name, s.Version, s.Decoupled = "d", 1, true
		return []stats.Snapshot{s}
	}
	got := grep(scrape(t, metrics.Config{Models: list, NoCPU: true, NoGPU: true, FirstResponse: true}), "first_response")
	for _, want := range []string{`le="100"} 0`, `le="500"} 1`, `le="2000"} 1`, `le="5000"} 1`, `le="+Inf"} 1`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, `le="250"`) {
		t.Errorf("other buckets are told\n%s", got)
	}
}

func TestX2FirstResponsesAreCountedInTheBucketsOfTheModel(t *testing.T) {
	list := func() []stats.Snapshot {
		var m stats.Model
		m.Configure([]time.Duration{10 * time.Millisecond, time.Second}, nil)
		m.Responded(0, false, 0, 0, 300*time.Millisecond)
		s := m.Snapshot()
		s.Name, s.Version, s.Decoupled = "d", 1, true
		return []stats.Snapshot{s}
	}
	got := grep(scrape(t, metrics.Config{Models: list, NoCPU: true, NoGPU: true, FirstResponse: true}), "first_response")
	for _, want := range []string{`le="10"} 0`, `le="1000"} 1`, `le="+Inf"} 1`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestX2SummariesTellPercentilesWhenAskedTo(t *testing.T) {
	q, err := metrics.ParseQuantiles("0.5:0.05,0.1:0.0.1,0.75:0.01")
	if err != nil {
		t.Fatal(err)
	}
	var m stats.Model
	m.Configure(nil, q.Summaries(stats.Snapshot{Name: "m", Version: 2, Cached: true, Tags: map[string]string{"team": "gate"}}))
	for range 100 {
		m.Executed(stats.Execution{Size: 1, Inferences: 1, Succeeded: 1, Queue: 20 * time.Microsecond, Infer: 3 * time.Microsecond, Total: 50 * time.Microsecond})
	}
	m.Hit(time.Now(), 7*time.Microsecond, 9*time.Microsecond)
	m.Missed(5 * time.Microsecond)
	got := scrape(t, metrics.Config{Models: func() []stats.Snapshot { return []stats.Snapshot{m.Snapshot()} }, NoCPU: true, NoGPU: true})
	const l = `{_team="gate",model="m",version="2"`
	for _, want := range []string{
		"nv_inference_request_summary_us" + l + `,quantile="0.5"} 50`, "nv_inference_request_summary_us_count" + l + "} 101",
		"nv_inference_queue_summary_us" + l + `,quantile="0.75"} 20`, "nv_inference_queue_summary_us" + l + `,quantile="0.1"} 20`, "nv_inference_compute_infer_summary_us_sum" + l + "} 300",
		"nv_inference_compute_input_summary_us_count" + l + "} 100", "nv_inference_compute_output_summary_us_count" + l + "} 100",
		"nv_cache_hit_summary_per_model_sum" + l + "} 7", "nv_cache_miss_summary_per_model_sum" + l + "} 5",
		`vedette_inference_request_duration_seconds_count{model="",version="0"} 101`,
		"# HELP nv_inference_request_summary_us Summary of inference request duration in microseconds (includes cached requests)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, grep(got, "summary"))
		}
	}
	for _, bad := range []string{"", "0.5", "2:0.1", "0.5:x", "NaN:0.1"} {
		if _, err := metrics.ParseQuantiles(bad); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}
