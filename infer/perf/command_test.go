package perf

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestStepsOfACommandLine(t *testing.T) {
	c := Command{Model: "m", URL: "a:1", Beside: "b:1", Concurrency: "1:5:2", Shape: []string{"IN:PUT:3,4"}, Value: []string{"IN:PUT:1,-2.5"}, Batch: 2}
	steps, err := c.steps()
	if err != nil || len(steps) != 6 {
		t.Fatalf("got %+v, %v", steps, err)
	}
	var loads []int
	var at []string
	for _, s := range steps {
		loads, at = append(loads, s.Concurrency), append(at, s.GRPC)
	}
	if !slices.Equal(loads, []int{1, 1, 3, 3, 5, 5}) || strings.Join(at, " ") != "a:1 b:1 a:1 b:1 a:1 b:1" || !slices.Equal(steps[0].Shapes["IN:PUT"], []int64{3, 4}) ||
		!slices.Equal(steps[0].Values["IN:PUT"], []float64{1, -2.5}) {
		t.Errorf("got %v at %v, shapes %v", loads, at, steps[0].Shapes)
	}
	c = Command{Model: "m", Concurrency: "2:0:3", Limit: 5}
	if steps, err = c.steps(); err != nil || len(steps) != 1001 || steps[2].Concurrency != 8 {
		t.Errorf("got %d steps, %v", len(steps), err)
	}
	c = Command{Model: "m", Periodic: "1:16:4", Period: 10}
	if steps, err = c.steps(); err != nil || len(steps) != 1 || steps[0].Concurrency != 1 || steps[0].GrowTo != 16 || steps[0].GrowBy != 4 {
		t.Errorf("got %+v, %v", steps, err)
	}
	c = Command{Model: "m", Rate: "0.5:1:0.25", Poisson: true}
	if steps, err = c.steps(); err != nil || len(steps) != 3 || steps[2].Rate != 1 || steps[2].Concurrency != 0 || !steps[2].Poisson {
		t.Errorf("got %+v, %v", steps, err)
	}
}

func TestCommandLinesThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		command Command
		want    string
	}{
		{Command{Concurrency: "1:2:3:4"}, "FROM:TO:STEP"},
		{Command{Concurrency: "0"}, "above 0"},
		{Command{Rate: "NaN"}, "above 0"},
		{Command{Concurrency: "5:1"}, "ends before it begins"},
		{Command{Rate: "1:9999999"}, "more than a thousand"},
		{Command{Concurrency: "1:9999999"}, "at most 65536"},
		{Command{Concurrency: "1.5:3"}, "above 0"},
		{Command{Concurrency: "1:0"}, "has no end"},
		{Command{Concurrency: "1:9:0", Limit: 1}, "above 0"},
		{Command{Concurrency: "1:0", Limit: 1, Search: true}, "with an end"},
		{Command{Periodic: "1:0", Limit: 1}, "has no end"},
		{Command{Variation: 101}, "not from 0 to 100"},
		{Command{Stability: -1}, "not from 0 to 100"},
		{Command{Limit: math.NaN()}, "below 0"},
		{Command{Percentile: -2}, "nor -1"},
		{Command{Input: []string{"none"}}, "no such file"},
		{Command{Concurrency: "1", Rate: "1"}, "only one of them"},
		{Command{Memory: "cuda"}, "--shared-memory system can"},
		{Command{Shape: []string{"x"}}, "NAME:D,D"},
		{Command{Value: []string{"x"}}, "NAME:V,V"},
		{Command{Value: []string{"x:1,"}}, `"" is not a number`},
		{Command{Shape: []string{"x:1,a"}}, `"a" is not a dimension`},
	} {
		if _, err := c.command.steps(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want it to say %q", c.command, err, c.want)
		}
	}
}

func TestT1NumbersOfACommandLine(t *testing.T) {
	var n Number
	var c Count
	if n.UnmarshalText([]byte("0")) != nil || n.UnmarshalText([]byte("7")) != nil || n != 7 || c.UnmarshalText([]byte("7")) != nil || c != 7 {
		t.Errorf("read %d and %d", n, c)
	}
	for _, text := range []string{"-1", "x", "", "1e9", "99999999999999999999", "2147483648"} {
		if n.UnmarshalText([]byte(text)) == nil || c.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q was taken", text)
		}
	}
	if c.UnmarshalText([]byte("0")) == nil {
		t.Error("0 was taken")
	}
}

func TestT1ReportIsThatOfPerfAnalyzer(t *testing.T) {
	at := func(n int, throughput float64) *Result {
		return &Result{
			Concurrency: n, Window: Window{Throughput: throughput, Latency: Latency{Mean: 100 * time.Microsecond, P50: 90 * time.Microsecond, P90: 110 * time.Microsecond, P95: 120 * time.Microsecond, P99: 150 * time.Microsecond}},
			Server: Server{Queue: 5 * time.Microsecond, ComputeInput: time.Microsecond, ComputeInfer: 40 * time.Microsecond, ComputeOutput: 2 * time.Microsecond},
		}
	}
	var out bytes.Buffer
	if err := WriteReport(&out, []*Result{at(1, 20.5), at(2, 10)}, true); err != nil {
		t.Fatal(err)
	}
	want := `Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency,Avg latency,request/response,response wait
2,10.000,0,52,5,1,40,2,0,90,110,120,150,100,0,100
1,20.500,0,52,5,1,40,2,0,90,110,120,150,100,0,100
`
	if out.String() != want {
		t.Errorf("got\n%s", &out)
	}
	out.Reset()
	if err := WriteReport(&out, []*Result{{Rate: 2.5}}, false); err != nil || !strings.HasPrefix(out.String(), "Request Rate,") || !strings.HasSuffix(out.String(), "\n2.5,0.000,0,0,0,0,0,0,0,0,0,0,0\n") {
		t.Errorf("got\n%s, %v", &out, err)
	}
}

func TestT1AFileThatCannotBeWrittenIsToldAtOnce(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Command{Model: "m", URL: "127.0.0.1:1", CSV: kept, Report: filepath.Join(dir, "none", "x.csv")}
	if err := c.Run(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "save results: open") {
		t.Errorf("got %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Report = pipe
	if err := c.Run(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "the server cannot be reached") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "x" {
		t.Errorf("a file that nothing was written to holds %q, %v", text, err)
	}
}

func TestT1MomentsOfARateAreKept(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 0, 100 * time.Microsecond, 3 * time.Millisecond} {
		at := time.Now().Add(d)
		if sleepUntil(t.Context(), at); time.Now().Before(at) {
			t.Errorf("woke up %v early", time.Until(at))
		}
	}
}

func TestT1CertificatesAreBelievedAsFarAsIsSaid(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler()) // its certificate is for example.com
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command Command
		name    string
		want    string
	}{
		{Command{CA: ca}, "example.com", ""},
		{Command{CA: ca}, "other", "is valid for"},
		{Command{CA: ca, VerifyHost: "0"}, "other", ""},
		{Command{VerifyHost: "0"}, "example.com", "unknown authority"},
		{Command{VerifyPeer: "0"}, "other", ""},
	} {
		cfg, err := c.command.client()
		if err != nil {
			t.Fatal(err)
		}
		cfg.TLS.ServerName = c.name
		conn, err := tls.Dial("tcp", srv.Listener.Addr().String(), cfg.TLS)
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v at %s: got %v, want it to say %q", c.command, c.name, err, c.want)
		}
	}
}
