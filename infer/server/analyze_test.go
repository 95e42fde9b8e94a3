package server_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/infer/analyze"
	"github.com/vedette/vedette/infer/modelconfig"
)

func TestT2AnalyzeFindsSettingsGoesOnAndPutsTheModelBack(t *testing.T) {
	models := testModels()
	models["slow/config.pbtxt"] = `backend: "identity" max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
parameters { key: "execute_delay_ms" value { string_value: "50" } }
`
	models["slow/1/keep"] = ""
	r := start(t, "--model-repository", repository(t, models), "--model-control-mode=explicit", "--load-model=slow")
	dir := filepath.Join(t.TempDir(), "out")
	c := analyze.Command{
		Models: []string{"slow"}, URL: r.at("gRPC"), Metrics: r.at("metrics"), Instances: []int{1, 4}, Concurrency: []int{4}, Batches: []int{1},
		Interval: 200 * time.Millisecond, Trials: 3, Out: dir, Memory: 1 << 20,
	}
	var out bytes.Buffer
	if err := c.Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "best: 4 instances") || strings.Count(out.String(), "inferences/s") != 3 {
		t.Errorf("got\n%s", &out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.pbtxt"))
	if err != nil {
		t.Fatal(err)
	}
	conf, err := modelconfig.Parse(text)
	if err != nil || conf.GetInstanceGroup()[0].GetCount() != 4 || conf.GetParameters()["execute_delay_ms"].GetStringValue() != "50" {
		t.Errorf("got %v, %v", conf, err)
	}
	html, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || bytes.Count(html, []byte("<circle")) != 6 || bytes.Count(html, []byte(`class="best"`)) != 4 {
		t.Errorf("%v in\n%s", err, html)
	}
	// What is drawn is well formed.
	for _, part := range strings.SplitAfter(string(html), "<svg")[1:] {
		svg, _, _ := strings.Cut("<svg"+part, "</svg>")
		for d := xml.NewDecoder(strings.NewReader(svg + "</svg>")); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	// The model is back as it is on disk.
	if code, body := fetch(t, "GET", "http://"+r.at("HTTP")+"/v2/models/slow/config", ""); code != 200 || !strings.Contains(body, `"count":1`) {
		t.Error(code, body)
	}
	// A second run measures only what is new, and settings the server refuses are told.
	before, err := os.ReadFile(filepath.Join(dir, "checkpoint.json"))
	if err != nil {
		t.Fatal(err)
	}
	c.Concurrency, c.Latency = []int{4, 2}, 0.5
	out.Reset()
	if err := c.Run(t.Context(), &out); err == nil || !strings.Contains(err.Error(), "no configuration that was tried keeps to the limits") {
		t.Errorf("got %v\n%s", err, &out)
	}
	after, err := os.ReadFile(filepath.Join(dir, "checkpoint.json"))
	if err != nil || !bytes.HasPrefix(after, bytes.TrimSuffix(before, []byte("]}"))) || bytes.Count(after, []byte(`"Concurrency":2`)) != 2 {
		t.Errorf("%v: the checkpoint was\n%s\nand is\n%s", err, before, after)
	}
}

func TestT2AnalyzeVariesSeveralModelsAndTheStepsOfAnEnsembleOnAServerOfItsOwn(t *testing.T) {
	program := filepath.Join(t.TempDir(), "server")
	script := "#!/bin/sh\n" + asServer + "=\"$(printf '%s\\n' \"$@\" --onnxruntime '" + library() + "')\" exec '" + os.Args[0] + "'\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	models := testModels()
	one := identityModel + "instance_group [ { kind: KIND_CPU count: 1 } ]"
	slow := one + `parameters { key: "execute_delay_ms" value { string_value: "50" } }` // far beyond what a starved box adds
	for _, c := range []struct {
		name          string
		asked         []string
		plain, plain2 string
		want          string
	}{
		{"several models", []string{"plain", "plain2"}, slow, slow, "plain: 3 instances; plain2: 3 instances,"},
		{"an ensemble", []string{"chain"}, one, slow, "plain2: 3 instances,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			models["plain/config.pbtxt"], models["plain2/config.pbtxt"] = c.plain, c.plain2
			a := analyze.Command{
				Models: c.asked, Roots: []string{repository(t, models)}, Server: program, Instances: []int{1, 3}, Threads: []int{1, 2}, Concurrency: []int{4}, Batches: []int{1},
				Shape: []string{"INPUT0:4", "IN:4"}, Interval: 200 * time.Millisecond, Trials: 3, Out: dir, Memory: 1 << 20,
			}
			var out bytes.Buffer
			if err := a.Run(t.Context(), &out); err != nil {
				log, _ := os.ReadFile(filepath.Join(dir, "server.log"))
				t.Fatalf("%v\n%s\n%s", err, &out, log)
			}
			// Threads concern neither model, so that there are four combinations at most.
			_, best, _ := strings.Cut(out.String(), "best: ")
			if !strings.Contains(best, c.want) || strings.Count(out.String(), "p99") > 5 {
				t.Errorf("got\n%s", &out)
			}
			text, err := os.ReadFile(filepath.Join(dir, "plain2", "config.pbtxt"))
			if err != nil {
				t.Fatal(err)
			}
			if conf, err := modelconfig.Parse(text); err != nil || conf.GetInstanceGroup()[0].GetCount() != 3 {
				t.Errorf("got %v, %v", conf, err)
			}
			if html, err := os.ReadFile(filepath.Join(dir, "report.html")); err != nil || !bytes.Contains(html, []byte("Throughput and memory")) {
				t.Errorf("%v in\n%s", err, html)
			}
			// What was measured is remembered: nothing is measured again.
			begin, first := time.Now(), out.String()
			out.Reset()
			if err := a.Run(t.Context(), &out); err != nil || out.String() != first {
				t.Errorf("after %v: %v\n%s", time.Since(begin), err, &out)
			}
		})
	}
}

func TestT2AnalyzeTakesEveryKindOfModel(t *testing.T) {
	models := testModels()
	models["many/1/keep"], models["many/config.pbtxt"] = "", manyModel
	models["whole/1/keep"], models["whole/config.pbtxt"] = "", strings.Replace(strings.Replace(identityModel, "max_batch_size: 8", "", 1), "-1", "2", 2)
	r := start(t, "--model-repository", repository(t, models), "--model-control-mode=explicit")
	for _, c := range []struct {
		name    string
		command analyze.Command
		tried   int
	}{
		{"decoupled", analyze.Command{Models: []string{"many"}, Shape: []string{"IN:2", "DELAY:2"}, Instances: []int{1}}, 1},
		{"without batches, which stays so", analyze.Command{Models: []string{"whole"}, MaxBatches: []int{1, 8}}, 1},
		{"nothing is said", analyze.Command{Models: []string{"sum"}}, 3}, // delays do not concern it, nor do threads
	} {
		t.Run(c.name, func(t *testing.T) {
			c.command.URL, c.command.Out, c.command.Interval, c.command.Trials, c.command.Concurrency = r.at("gRPC"), t.TempDir(), 10*time.Millisecond, 1, []int{2}
			var out bytes.Buffer
			if err := c.command.Run(t.Context(), &out); err != nil || strings.Count(out.String(), "under way: ") != c.tried+1 || strings.Contains(out.String(), "errors") {
				t.Errorf("%v\n%s", err, &out)
			}
			text, err := os.ReadFile(filepath.Join(c.command.Out, "config.pbtxt"))
			if err != nil {
				t.Fatal(err)
			}
			if conf, err := modelconfig.Parse(text); err != nil || (conf.GetMaxBatchSize() == 0) != (c.command.Models[0] != "sum") {
				t.Errorf("%v in\n%s", err, text)
			}
		})
	}
}

func TestT2AnalyzeBeginsWithModelsAsTheyAreOnDisk(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()), "--model-control-mode=explicit", "--load-model=chain")
	// What a run that was killed leaves behind.
	if code, body := fetch(t, "POST", "http://"+r.at("HTTP")+"/v2/repository/models/plain2/load",
		`{"parameters": {"config": "{\"backend\": \"identity\", \"max_batch_size\": 8, \"instance_group\": [{\"kind\": \"KIND_CPU\", \"count\": 7}], \"input\": [{\"name\": \"INPUT0\", \"data_type\": \"TYPE_FP32\", \"dims\": [-1]}], \"output\": [{\"name\": \"OUTPUT0\", \"data_type\": \"TYPE_FP32\", \"dims\": [-1]}]}"}}`); code != 200 {
		t.Fatal(code, body)
	}
	dir := t.TempDir()
	c := analyze.Command{Models: []string{"chain"}, URL: r.at("gRPC"), Shape: []string{"IN:2"}, Delays: []time.Duration{0}, Concurrency: []int{1}, Interval: 10 * time.Millisecond, Trials: 1, Out: dir}
	if err := c.Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "plain2", "config.pbtxt"))
	if err != nil || bytes.Contains(text, []byte("count: 7")) {
		t.Errorf("%v in\n%s", err, text)
	}
	if code, body := fetch(t, "GET", "http://"+r.at("HTTP")+"/v2/models/plain2/config", ""); code != 200 || strings.Contains(body, `"count":7`) {
		t.Error(code, body)
	}
	// A checkpoint with a hole is read.
	checkpoint := filepath.Join(dir, "checkpoint.json")
	text, err = os.ReadFile(checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(checkpoint, bytes.Replace(text, []byte(`"points":[`), []byte(`"points":[null,`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context(), io.Discard); err != nil {
		t.Error(err)
	}
	// What was measured is of these requests alone.
	c.Shape = []string{"IN:3"}
	if err := c.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "is of other requests (IN:2)") {
		t.Errorf("got %v", err)
	}
}

func TestT2AnalyzeEndsWithTheServerAndGoesOnWithTheNext(t *testing.T) {
	models, dir := repository(t, testModels()), t.TempDir()
	r := start(t, "--model-repository", models, "--model-control-mode=explicit")
	c := analyze.Command{Models: []string{"sum"}, URL: r.at("gRPC"), Instances: []int{1, 2, 3, 4}, Concurrency: []int{1}, Interval: 10 * time.Millisecond, Trials: 1, Out: dir}
	points := 0
	err := c.Run(t.Context(), writer(func(p []byte) (int, error) {
		if points++; points == 2 {
			r.stop()
			r.done <- <-r.done
		}
		return len(p), nil
	}))
	if err == nil || !strings.Contains(err.Error(), "the server is gone") || points != 2 {
		t.Errorf("after %d points: %v", points, err)
	}
	r = start(t, "--model-repository", models, "--model-control-mode=explicit")
	c.URL = r.at("gRPC")
	var out bytes.Buffer
	if err := c.Run(t.Context(), &out); err != nil || strings.Count(out.String(), "under way: ") != 5 {
		t.Errorf("%v\n%s", err, &out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "checkpoint.json"))
	if err != nil || bytes.Count(text, []byte(`"Throughput"`)) != 4 {
		t.Errorf("%v in\n%s", err, text)
	}
}

func TestT2AnalyzeSaysWhatItNeeds(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()))
	for _, c := range []struct {
		name    string
		command analyze.Command
		want    string
	}{
		{"a server that is not in explicit mode", analyze.Command{Models: []string{"plain"}, URL: r.at("gRPC")}, "--model-control-mode=explicit"},
		{"memory without metrics", analyze.Command{Models: []string{"plain"}, Memory: 1}, "needs --metrics"},
		{"a server that cannot be started", analyze.Command{Models: []string{"plain"}, Roots: []string{"/"}, Server: "/none"}, "--server names the program"},
		{"a server that ends", analyze.Command{Models: []string{"plain"}, Roots: []string{"/"}, Server: "/bin/false"}, "the inference server ended: it did not say why"},
		{"no instances", analyze.Command{Models: []string{"plain"}, Instances: []int{0}}, "0 is not at least 1"},
		{"too many requests", analyze.Command{Models: []string{"plain"}, Concurrency: []int{1 << 20}}, "at most 65536"},
		{"a negative delay", analyze.Command{Models: []string{"plain"}, Delays: []time.Duration{-1}}, "is below 0"},
		{"a negative limit", analyze.Command{Models: []string{"plain"}, Latency: -1}, "cannot be below 0"},
		{"a model twice", analyze.Command{Models: []string{"plain", "plain"}}, "plain is given twice"},
		{"data of several", analyze.Command{Models: []string{"plain", "sum"}, Input: []string{"random"}}, "for one model"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.command.Out = t.TempDir()
			if err := c.command.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
}
