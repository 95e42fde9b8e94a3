package server_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/infer/perf"
)

const manyModel = `backend: "repeat" model_transaction_policy { decoupled: true }
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] }, { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]`

func TestT1PerfMeasuresEveryWayOfSending(t *testing.T) {
	models := testModels()
	models["many/1/keep"], models["many/config.pbtxt"] = "", manyModel
	r := start(t, "--model-repository", repository(t, models), "--allow-client-shm=true")
	var all []*perf.Result
	given := func(text string) *perf.Data {
		d, err := perf.ParseData([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		name string
		cfg  perf.Config
	}{
		{"HTTP alone", perf.Config{Model: "plain", HTTP: r.at("HTTP"), SharedMemory: true}},
		{"given data and its answers", perf.Config{Model: "plain", Concurrency: 2, Batch: 2, Data: given(`{"data": [{"INPUT0": [1, 2]}, {"INPUT0": [3, 4]}, {"INPUT0": [5, 6]}],
			"validation_data": [{"OUTPUT0": [1, 2]}, {"OUTPUT0": [3, 4]}, {"OUTPUT0": [5, 6]}]}`)}},
		{"given sequences and their answers", perf.Config{Model: "sum", Streaming: true, Data: given(`{"data": [[{"INPUT": [1]}, {"INPUT": [2]}], [{"INPUT": [5]}]],
			"validation_data": [[{"OUTPUT": [1]}, {"OUTPUT": [3]}], [{"OUTPUT": [5]}]]}`)}},
		{"more and more at once", perf.Config{Model: "plain", Concurrency: 1, GrowTo: 5, GrowBy: 2, GrowEvery: 4, Warmup: 3, Keep: true}},
		{"so many requests", perf.Config{Model: "plain", Concurrency: 3, Requests: 30, Warmup: 10, Keep: true}},
		{"so many at a rate", perf.Config{Model: "plain", Rate: 1000, Requests: 30, Warmup: 10, Keep: true}},
		{"given intervals", perf.Config{Model: "plain", Intervals: []time.Duration{time.Millisecond, 2 * time.Millisecond}, WindowRequests: 5}},
		{"metrics", perf.Config{Model: "plain", Metrics: r.at("metrics"), MetricsInterval: 10 * time.Millisecond}},
		{"outputs in shared memory", perf.Config{Model: "plain", SharedMemory: true, HTTP: r.at("HTTP"), OutputSize: 8, Data: given(`{"data": [{"INPUT0": [1, 2]}], "validation_data": [{"OUTPUT0": [1, 2]}]}`)}},
		{"JSON", perf.Config{Model: "plain", HTTP: r.at("HTTP"), JSONInputs: true, JSONOutputs: true, Batch: 2, Data: given(`{"data": [{"INPUT0": [1.5, -2]}, {"INPUT0": [3, 4]}], "validation_data": [{"OUTPUT0": [1.5, -2]}, {"OUTPUT0": [3, 4]}]}`)}},
		{"steps of an ensemble", perf.Config{Model: "chain"}},
		{"concurrency over gRPC", perf.Config{Model: "plain", Concurrency: 2, Batch: 4, Random: true}},
		{"over HTTP", perf.Config{Model: "plain", HTTP: r.at("HTTP")}},
		{"a rate at random moments", perf.Config{Model: "plain", Rate: 500, Poisson: true}},
		{"shared memory", perf.Config{Model: "plain", SharedMemory: true}},
		{"sequences over streams", perf.Config{Model: "sum", Streaming: true, Concurrency: 3, SequenceLength: 5}},
		{"given values", perf.Config{Model: "plain", Values: map[string][]float64{"INPUT0": {1, 2}}}},
		{"a decoupled model", perf.Config{Model: "many", Streaming: true, Concurrency: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.cfg.GRPC = r.at("gRPC"); c.name == "HTTP alone" {
				c.cfg.GRPC = ""
			}
			c.cfg.Window, c.cfg.MaxWindows = 50*time.Millisecond, 4
			if c.cfg.Data == nil {
				c.cfg.Shapes = map[string][]int64{"INPUT0": {16}, "IN": {3}, "DELAY": {3}}
			}
			windows := 0
			c.cfg.Progress = func(perf.Window) { windows++ }
			res, err := perf.Run(t.Context(), c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			l := res.Latency
			if res.Requests == 0 || res.Errors != 0 || windows != res.Windows || l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.Max {
				t.Errorf("got %+v", res)
			}
			if c.cfg.Model == "many" && (res.Answers < 2*res.Requests || res.Answers > 4*res.Requests+20) {
				t.Errorf("%d answers to %d requests for three each", res.Answers, res.Requests)
			}
			// The server tells of the same windows, but for the few requests of which it does not know at once that they are over.
			told := res.Requests >= 20 && res.Windows <= 3
			if told && (res.Server.Executions == 0 || res.Server.Inferences == 0) {
				t.Errorf("the server says %+v of %d requests", res.Server, res.Requests)
			}
			if want := int64(c.cfg.Requests); want > 0 && max(int64(res.Server.Inferences)-want, want-int64(res.Server.Inferences)) > 8 {
				t.Errorf("the server says %+v of %d requests", res.Server, want)
			}
			if n := max(c.cfg.Requests, 5*c.cfg.GrowEvery); n > 0 && (res.Requests != n || len(res.Sent) != n || len(res.Sent[0].Answers) != 1) {
				t.Errorf("measured %d of %d requests, kept %d", res.Requests, n, len(res.Sent))
			}
			if c.name == "steps of an ensemble" && (len(res.Parts) != 2 || res.Parts[1].Model != "plain2" || (told && res.Parts[1].Inferences == 0)) {
				t.Errorf("its parts are %+v", res.Parts)
			}
			if c.cfg.Metrics != "" && res.Metrics["process_resident_memory_bytes"] < 1<<20 {
				t.Errorf("the server has %v", res.Metrics)
			}
			all = append(all, res)
		})
	}
	var table, csv, json bytes.Buffer
	for _, err := range []error{perf.WriteTable(&table, all), perf.WriteCSV(&csv, all), perf.WriteJSON(&json, all), perf.WriteRequests(&json, all)} {
		if err != nil {
			t.Error(err)
		}
	}
	if strings.Count(table.String(), "\n") != len(all)+1 || strings.Count(csv.String(), "\n") != len(all)+1 || !strings.Contains(json.String(), `"Throughput"`) ||
		!strings.Contains(json.String(), `"response_timestamps":[1`) {
		t.Errorf("got\n%s", table.String())
	}
}

func TestT1PerfSaysWhatItNeeds(t *testing.T) {
	models := testModels()
	models["many/1/keep"], models["many/config.pbtxt"] = "", manyModel
	r := start(t, "--model-repository", repository(t, models))
	for _, c := range []struct {
		name string
		cfg  perf.Config
		want string
	}{
		{"no model", perf.Config{GRPC: "x:1"}, "no model is named"},
		{"no address", perf.Config{Model: "plain"}, "no address is given"},
		{"an open dimension", perf.Config{Model: "plain", GRPC: r.at("gRPC")}, "say what the open dimensions are"},
		{"too large a batch", perf.Config{Model: "plain", GRPC: r.at("gRPC"), Batch: 9}, "it takes 8 at most"},
		{"an unknown model", perf.Config{Model: "none", GRPC: r.at("gRPC")}, "Request for unknown model: 'none' is not found"},
		{"a decoupled model without a stream", perf.Config{Model: "many", GRPC: r.at("gRPC")}, "only a stream can take"},
		{"values that do not fill", perf.Config{Model: "sum", GRPC: r.at("gRPC"), Values: map[string][]float64{"INPUT": {1, 2}}}, "2 values do not fill shape [1] of 1 elements"},
		{"JSON over gRPC", perf.Config{Model: "plain", GRPC: "x:1", JSONInputs: true}, "need HTTP"},
		{"a trace file", perf.Config{Model: "sum", GRPC: r.at("gRPC"), Trace: map[string][]string{"trace_file": {"x"}}}, "trace file location can not be updated through network protocol"},
		{"a stream over HTTP", perf.Config{Model: "plain", GRPC: "x:1", HTTP: "x:1", Streaming: true}, "streams need gRPC"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := perf.Run(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
}

func TestT1PerfHasTheServerTraceMeanwhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.json")
	r := start(t, "--model-repository", repository(t, testModels()), "--trace-config=triton,file="+file)
	settings := "http://" + r.at("HTTP") + "/v2/models/plain/trace/setting"
	_, before := fetch(t, "GET", settings, "")
	c := perf.Command{
		Model: "plain", Shape: []string{"INPUT0:1"}, Requests: 5, Trials: 1,
		TraceLevel: []string{"TIMESTAMPS"}, TraceRate: "1", TraceCount: "2",
	}
	traces := 0
	for _, protocol := range []string{"grpc", "http"} {
		c.Protocol, c.URL = protocol, r.at("gRPC")
		if protocol == "http" {
			c.URL = r.at("HTTP")
		}
		if err := c.Run(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		}
		if _, after := fetch(t, "GET", settings, ""); after != before {
			t.Errorf("over %s the settings were %s, and are now %s", protocol, before, after)
		}
		traces += 2
	}
	r.stop()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	r.done <- nil // for the cleanup
	made := 0
	for _, x := range readTraces(t, file) {
		if x.Model == "plain" {
			made++
		}
	}
	if made != traces {
		t.Errorf("%d traces, want %d", made, traces)
	}
}

func TestT1PerfTellsOfWrongAnswers(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()))
	d, err := perf.ParseData([]byte(`{"data": [{"INPUT0": [1, 2]}], "validation_data": [{"OUTPUT0": [1, 3]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := perf.Run(t.Context(), perf.Config{Model: "plain", GRPC: r.at("gRPC"), Data: d, Requests: 3})
	if err != nil || res.Errors != 3 || res.Error != `output "OUTPUT0" is not what validation_data has` {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestT1PerfEndsItsSequencesAndKeepsTheirIDsApart(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()))
	for _, streaming := range []bool{true, false} {
		cfg := perf.Config{Model: "sum", GRPC: r.at("gRPC"), Concurrency: 3, FirstID: 5, LastID: 8, SequenceLength: 4, SequenceSpread: 0.5, Streaming: streaming, Requests: 201}
		res, err := perf.Run(t.Context(), cfg)
		if err != nil || res.Errors > 0 || res.Requests != 201 {
			t.Errorf("got %+v, %v", res, err)
		}
		if _, body := fetch(t, "GET", "http://"+r.at("HTTP")+"/v2/sequences", ""); strings.Contains(body, `"sum"`) {
			t.Errorf("sequences were left open: %s", body)
		}
	}
	cfg := perf.Config{Model: "sum", GRPC: r.at("gRPC"), Concurrency: 3, FirstID: 5, LastID: 6}
	if _, err := perf.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "2 correlation ids are not enough for 3 sequences at once") {
		t.Errorf("got %v", err)
	}
}

func TestT1PerfGoesOnAfterAWrongAnswerOfSeveral(t *testing.T) {
	models := testModels()
	models["many/1/keep"], models["many/config.pbtxt"] = "", manyModel
	r := start(t, "--model-repository", repository(t, models))
	d, err := perf.ParseData([]byte(`{"data": [{"IN": [1, 2], "DELAY": [0, 0], "WAIT": [0]}], "validation_data": [{"OUT": [1], "IDX": [0]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	// The second of two answers is wrong every time; a client that lost count would see wrong first ones too.
	res, err := perf.Run(t.Context(), perf.Config{Model: "many", GRPC: r.at("gRPC"), Streaming: true, Data: d, Requests: 20})
	if err != nil || res.Errors != 20 || res.Answers != 40 {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestT1PerfKeepsWhatItMeasuredOfAServerThatEnds(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()))
	dir := t.TempDir()
	c := perf.Command{
		Model: "plain", URL: r.at("gRPC"), Concurrency: "1:5", Shape: []string{"INPUT0:4"}, Interval: perf.Time(20 * time.Millisecond), Trials: 1,
		Report: filepath.Join(dir, "x.csv"), Export: filepath.Join(dir, "x.json"),
	}
	steps := 0
	out := writer(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte(", concurrency ")) {
			if steps++; steps == 2 {
				r.stop()
				r.done <- <-r.done
			}
		}
		return len(p), nil
	})
	if err := c.Run(t.Context(), out); err == nil || !strings.Contains(err.Error(), "the server cannot be reached") {
		t.Errorf("got %v", err)
	}
	text, err := os.ReadFile(c.Report)
	if err != nil || bytes.Count(text, []byte("\n")) != 3 || !bytes.HasPrefix(text, []byte("Concurrency,Inferences/Second,")) {
		t.Errorf("the report holds %s, %v", text, err)
	}
	if text, err = os.ReadFile(c.Export); err != nil || bytes.Count(text, []byte(`"experiment":`)) != 2 {
		t.Errorf("the export holds %.300s, %v", text, err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestT1PerfSaysThatRequestsFail(t *testing.T) {
	models := testModels()
	models["late/1/keep"], models["late/config.pbtxt"] = "", identityModel+`parameters { key: "execute_delay_ms" value { string_value: "100" } }`
	models["later/1/keep"], models["later/config.pbtxt"] = "", identityModel+`parameters { key: "execute_delay_ms" value { string_value: "2000" } }`
	r := start(t, "--model-repository", repository(t, models))
	var out bytes.Buffer
	// Every request fails: it ends with the first window.
	c := perf.Command{Model: "sum", URL: r.at("gRPC"), Batch: 2, Concurrency: "1:3", Interval: perf.Time(100 * time.Millisecond), Trials: 1000}
	if err := c.Run(t.Context(), &out); err == nil || !strings.Contains(err.Error(), "requests failed, the first: inference request to model 'sum' must specify batch-size 1") {
		t.Errorf("got %v\n%s", err, &out)
	}
	if strings.Contains(out.String(), "concurrency 2") {
		t.Errorf("it went on:\n%s", &out)
	}
	for want, c := range map[string]perf.Command{
		`the model has no input "X", only INPUT0`:        {Model: "late", Shape: []string{"INPUT0:4", "X:1"}},
		`--value: the model has no input "Y"`:            {Model: "late", Shape: []string{"INPUT0:4"}, Value: []string{"Y:1"}},
		"Request for unknown model: 'none' is not found": {Model: "none"},
	} {
		c.URL = r.at("gRPC")
		if err := c.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	// A window lasts until something is answered, but not for ever.
	cfg := perf.Config{Model: "late", GRPC: r.at("gRPC"), Shapes: map[string][]int64{"INPUT0": {4}}, Window: time.Millisecond, MaxWindows: 2}
	if res, err := perf.Run(t.Context(), cfg); err != nil || res.Windows != 2 || res.Requests != 2 || res.Latency.P50 < 100*time.Millisecond {
		t.Errorf("got %+v, %v", res, err)
	}
	cfg.Model, cfg.Patience = "later", time.Millisecond
	if _, err := perf.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "no request was answered within 2ms") {
		t.Errorf("got %v", err)
	}
}

func TestT1PerfEndsWhenItIsTold(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()))
	ctx, cancel := context.WithCancel(t.Context())
	cfg := perf.Config{Model: "sum", GRPC: r.at("gRPC"), Window: 20 * time.Millisecond, MaxWindows: 1 << 30, Stability: 1e-9, Progress: func(perf.Window) { cancel() }}
	if _, err := perf.Run(ctx, cfg); err == nil {
		t.Error("a measurement that was cut off has a result")
	}
}

func TestPerfCommandComparesTwoServers(t *testing.T) {
	r, other := start(t, "--model-repository", repository(t, testModels())), start(t, "--model-repository", repository(t, testModels()))
	dir := t.TempDir()
	c := perf.Command{
		Model: "plain", URL: r.at("gRPC"), Beside: other.at("gRPC"), BesideHTTP: other.at("HTTP"), Concurrency: "1:2", Shape: []string{"INPUT0:4"},
		Interval: perf.Time(30 * time.Millisecond), Trials: 3, CSV: filepath.Join(dir, "x.csv"), JSON: filepath.Join(dir, "x.json"),
	}
	var out bytes.Buffer
	if err := c.Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{r.at("gRPC") + ", concurrency 2: ", other.at("HTTP") + ", concurrency 1: ", "p99 ms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	if _, table, _ := strings.Cut(out.String(), "\n\n"); strings.Count(table, other.at("HTTP")) != 2 || !strings.Contains(table, "server") {
		t.Errorf("the servers are not in the table:\n%s", table)
	}
	for _, path := range []string{c.CSV, c.JSON} {
		if text, err := os.ReadFile(path); err != nil || len(text) < 100 {
			t.Errorf("%s holds %q, %v", path, text, err)
		}
	}
}
