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
parameters { key: "execute_delay_ms" value { string_value: "4" } }
`
	models["slow/1/keep"] = ""
	r := start(t, "--model-repository", repository(t, models), "--model-control-mode=explicit", "--load-model=slow")
	dir := filepath.Join(t.TempDir(), "out")
	c := analyze.Command{
		Models: []string{"slow"}, URL: r.at("gRPC"), Metrics: r.at("metrics"), Instances: []int{1, 4}, Concurrency: []int{4}, Batches: []int{1},
		Interval: 60 * time.Millisecond, Trials: 3, Out: dir, Memory: 1 << 20,
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
	if err != nil || conf.GetInstanceGroup()[0].GetCount() != 4 || conf.GetParameters()["execute_delay_ms"].GetStringValue() != "4" {
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
	} {
		t.Run(c.name, func(t *testing.T) {
			c.command.Out = t.TempDir()
			if err := c.command.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
}
