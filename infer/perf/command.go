package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"
)

// Command is the verb of the command line: its fields are its flags, tagged for the command line library. They are those
// of perf_analyzer where it has them.
type Command struct {
	Model      string `short:"m" name:"model" aliases:"model-name" required:"" placeholder:"NAME" help:"Model to ask."`
	Version    int64  `short:"x" name:"model-version" placeholder:"N" help:"Its version; the server's choice by default."`
	Protocol   string `short:"i" name:"protocol" enum:"grpc,http,gRPC,HTTP" default:"grpc" help:"What --url speaks: grpc or http (${default})."`
	URL        string `short:"u" name:"url" placeholder:"ADDR" help:"Address of the server: 127.0.0.1:8001 by default, 127.0.0.1:8000 of http."`
	HTTP       string `name:"http" placeholder:"ADDR" help:"Send requests to this HTTP address instead; --url still tells of the model."`
	Beside     string `placeholder:"ADDR" help:"Address of a second server, measured in turns with the first."`
	BesideHTTP string `name:"beside-http" placeholder:"ADDR" help:"HTTP address of the second server."`

	Header      []string `short:"H" placeholder:"KEY:VALUE" sep:"none" help:"Header, or metadata of gRPC, of every call; may be given several times."`
	Compression string   `name:"grpc-compression-algorithm" enum:"none,gzip" default:"none" help:"How gRPC compresses requests: none or gzip."`
	TLS         bool     `name:"ssl-grpc-use-ssl" help:"Speak TLS with gRPC. With HTTP the address begins with https://."`
	CA          string   `name:"ssl-grpc-root-certifications-file" aliases:"ssl-https-ca-certificates-file" type:"path" placeholder:"FILE" help:"Certificates to trust instead of the system's."`
	Cert        string   `name:"ssl-grpc-certificate-chain-file" aliases:"ssl-https-client-certificate-file" type:"path" placeholder:"FILE" help:"The client's own certificate."`
	Key         string   `name:"ssl-grpc-private-key-file" aliases:"ssl-https-private-key-file" type:"path" placeholder:"FILE" help:"And its key."`

	Concurrency  string  `name:"concurrency-range" placeholder:"FROM:TO:STEP" help:"Requests kept under way; 1 by default."`
	Periodic     string  `name:"periodic-concurrency-range" placeholder:"FROM:TO:STEP" help:"Begin with so many under way and add more as they are answered, in one measurement."`
	Period       Count   `name:"request-period" default:"10" placeholder:"N" help:"Answers to each before more are added (${default})."`
	Rate         string  `name:"request-rate-range" placeholder:"FROM:TO:STEP" help:"Requests a second instead, whatever comes back."`
	Distribution string  `name:"request-distribution" enum:"constant,poisson" default:"constant" help:"When requests of a rate leave: constant or poisson."`
	Poisson      bool    `help:"The same as --request-distribution poisson."`
	Intervals    string  `name:"request-intervals" type:"path" placeholder:"FILE" help:"File of microseconds between requests, one a line, over and over."`
	Limit        float64 `short:"l" name:"latency-threshold" placeholder:"MS" help:"Stop where the latency (p99, or --percentile) is beyond so many milliseconds."`
	Search       bool    `name:"binary-search" help:"With --latency-threshold: look for the highest load of the range that stays within it by halving."`

	Batch      Count    `short:"b" name:"batch-size" default:"1" help:"Batch dimension (${default})."`
	Input      []string `name:"input-data" placeholder:"zero|random|FILE|DIR" sep:"none" help:"What is sent: zeros, random values, a JSON file of requests, or a folder with a file for each input."`
	Shape      []string `placeholder:"NAME:D,D" sep:"none" help:"Dimensions of an input that the model leaves open; may be given several times."`
	Value      []string `placeholder:"NAME:V,V" sep:"none" help:"What an input is filled with, over and over, instead of zeros; may be given several times."`
	Random     bool     `help:"The same as --input-data random."`
	Text       string   `name:"string-data" placeholder:"TEXT" help:"What inputs of strings are filled with."`
	TextLength Count    `name:"string-length" default:"128" placeholder:"N" help:"Length of random strings (${default})."`
	Parameter  []string `name:"request-parameter" placeholder:"NAME:VALUE:TYPE" sep:"none" help:"Parameter of every request, of type bool, int, uint, float or string; may be given several times."`
	Stream     bool     `name:"streaming" help:"Send over gRPC streams."`
	Memory     string   `name:"shared-memory" enum:"none,system,cuda" default:"none" help:"Where tensors are: none or system; cuda is refused."`
	OutputSize Count    `name:"output-shared-memory-size" default:"102400" placeholder:"BYTES" help:"Room in shared memory for each output of strings or of open dimensions (${default})."`
	InputForm  string   `name:"input-tensor-format" enum:"binary,json" default:"binary" help:"How HTTP sends tensors: binary or json."`
	OutputForm string   `name:"output-tensor-format" enum:"binary,json" default:"binary" help:"How it has them answered: binary or json."`
	Called     []string `name:"bls-composing-models" placeholder:"NAME,NAME" help:"Models that a script calls, to tell what they cost; those of an ensemble are known."`

	Sequence  Number  `name:"sequence-length" placeholder:"N" help:"Mean length of sequences of models that keep state: that of the input data, or 20, by default."`
	Variation float64 `name:"sequence-length-variation" default:"20" placeholder:"PERCENT" help:"How much shorter or longer they may be (${default})."`
	Sequences Count   `name:"num-of-sequences" default:"4" placeholder:"N" help:"Sequences open at once at a rate (${default})."`
	IDs       string  `name:"sequence-id-range" placeholder:"FROM[:TO]" help:"Their correlation ids, up to TO exclusively."`

	Mode           string  `name:"measurement-mode" enum:"time_windows,count_windows" default:"time_windows" help:"Windows of a time or of a number of requests (${default})."`
	Interval       Time    `short:"p" name:"measurement-interval" default:"5s" help:"Length of a measurement window, as a duration or in milliseconds (${default})."`
	WindowRequests Count   `name:"measurement-request-count" default:"50" placeholder:"N" help:"Requests in a window of count_windows (${default})."`
	Requests       Number  `name:"request-count" placeholder:"N" help:"Measure exactly so many requests instead of windows."`
	Warmup         Number  `name:"warmup-request-count" placeholder:"N" help:"Requests that are sent before anything is measured."`
	Percentile     int     `placeholder:"N" help:"Latency that has to settle and that --latency-threshold is about; the mean has to settle by default."`
	Stability      float64 `short:"s" name:"stability-percentage" default:"10" help:"How much three windows may differ (${default})."`
	Trials         Count   `short:"r" name:"max-trials" default:"10" help:"Windows before it gives up on that (${default})."`

	Collect         bool     `name:"collect-metrics" help:"Read the server's metrics meanwhile and tell the means."`
	MetricsURL      string   `name:"metrics-url" default:"127.0.0.1:8002/metrics" placeholder:"ADDR" help:"Where they are (${default})."`
	MetricsInterval Time     `name:"metrics-interval" default:"1s" help:"How often, as a duration or in milliseconds (${default})."`
	TraceLevel      []string `name:"trace-level" enum:"OFF,TIMESTAMPS,TENSORS" placeholder:"LEVEL" help:"Have the server trace the model meanwhile: TIMESTAMPS, TENSORS, or OFF; may be given several times."`
	TraceRate       string   `name:"trace-rate" placeholder:"N" help:"One request in so many."`
	TraceCount      string   `name:"trace-count" placeholder:"N" help:"At most so many; -1: no limit."`
	TraceFrequency  string   `name:"log-frequency" placeholder:"N" help:"A new trace file after so many; 0: one file."`
	TraceFile       string   `name:"trace-file" placeholder:"FILE" help:"The server's trace file; servers that keep it to their own command line say so."`
	Verbose         bool     `short:"v" help:"Tell of every window."`
	Async           bool     `short:"a" hidden:"" help:"Accepted for perf_analyzer's sake: every request waits on its own here."`
	Sync            bool     `hidden:"" help:"Likewise."`
	Serial          bool     `name:"serial-sequences" hidden:"" help:"Likewise: a sequence has one request under way."`
	Threads         int      `name:"max-threads" hidden:"" help:"Likewise."`
	Kind            string   `name:"service-kind" enum:"triton" default:"triton" hidden:"" help:"Likewise."`
	Zero            bool     `short:"z" hidden:"" help:"The same as --input-data zero."`
	Folder          string   `name:"data-directory" type:"path" hidden:"" help:"The same as --input-data DIR."`
	VerifyPeer      string   `name:"ssl-https-verify-peer" enum:"0,1" default:"1" hidden:"" help:"0: believe any certificate."`
	VerifyHost      string   `name:"ssl-https-verify-host" enum:"0,1,2" default:"2" hidden:"" help:"0: believe it whatever its name."`
	CertType        string   `name:"ssl-https-client-certificate-type" enum:"PEM" default:"PEM" hidden:"" help:"Accepted for perf_analyzer's sake."`
	KeyType         string   `name:"ssl-https-private-key-type" enum:"PEM" default:"PEM" hidden:"" help:"Likewise."`
	Report          string   `short:"f" name:"latency-report-file" placeholder:"FILE" help:"Write the results as perf_analyzer's CSV too, in microseconds."`
	VerboseReport   bool     `name:"verbose-csv" help:"Add its columns of means."`
	CSV             string   `name:"csv" placeholder:"FILE" help:"And as CSV with the columns of the table."`
	JSON            string   `name:"json" placeholder:"FILE" help:"And as JSON."`
	Export          string   `name:"profile-export-file" placeholder:"FILE" help:"And every request with its time and those of its answers, as perf_analyzer's JSON."`
}

// Run measures and prints to w, one line for each step. What was measured is told even if a step fails. Requests that failed
// are an error in the end.
func (c *Command) Run(ctx context.Context, w io.Writer) error {
	steps, err := c.steps()
	if err != nil {
		return err
	}
	files := []struct {
		path  string
		write func(io.Writer, []*Result) error
	}{
		{c.Report, func(w io.Writer, results []*Result) error { return WriteReport(w, results, c.VerboseReport) }},
		{c.CSV, WriteCSV},
		{c.JSON, WriteJSON},
		{c.Export, WriteRequests},
	}
	for _, f := range files { // it would be a pity to learn it in the end
		if err := writable(f.path); err != nil {
			return err
		}
	}
	var results []*Result
	try := func(cfg Config) (within bool, err error) {
		cfg.Progress = c.progress(w)
		res, err := Run(ctx, cfg)
		if err != nil {
			return false, err
		}
		results = append(results, res)
		within = res.Requests > 0 && (c.Limit <= 0 || float64(res.Latency.Chosen) <= c.Limit*float64(time.Millisecond))
		return within, c.print(w, cfg, res)
	}
	if c.Search {
		err = search(steps, try)
	} else {
		for _, cfg := range steps {
			var within bool
			if within, err = try(cfg); err != nil || !within {
				break
			}
		}
	}
	if len(results) == 0 {
		return err
	}
	if _, e := fmt.Fprintln(w); e != nil {
		return e
	}
	errs := []error{err, WriteTable(w, results)}
	for _, f := range files {
		errs = append(errs, save(f.path, results, f.write))
	}
	return errors.Join(append(errs, failures(results))...)
}

// failures is the error that requests failed, if any did.
func failures(results []*Result) error {
	failed, all, first := 0, 0, ""
	for _, r := range results {
		failed, all, first = failed+r.Errors, all+r.Errors+r.Requests, cmp.Or(first, r.Error)
	}
	if first == "" {
		return nil
	}
	return fmt.Errorf("%d of %d requests failed, the first: %s", failed, all, first)
}

// search looks for the last of rising loads that is within the limit.
func search(steps []Config, try func(Config) (bool, error)) error {
	for low, high := 0, len(steps); low < high; {
		middle := (low + high) / 2
		within, err := try(steps[middle])
		if err != nil {
			return err
		}
		if within {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return nil
}

func (c *Command) progress(w io.Writer) func(Window) {
	if !c.Verbose {
		return nil
	}
	return func(win Window) {
		_, _ = fmt.Fprintf(w, "  window: %d requests, %.1f inferences/s, mean %s ms, p99 %s ms, %d errors\n",
			win.Requests, win.Throughput, millis(win.Latency.Mean), millis(win.Latency.P99), win.Errors)
	}
}

func (*Command) print(w io.Writer, cfg Config, res *Result) error {
	load := fmt.Sprintf("concurrency %d", res.Concurrency)
	switch {
	case len(cfg.Intervals) > 0:
		load = "given intervals"
	case res.Rate > 0:
		load = fmt.Sprintf("%g requests/s", res.Rate)
	}
	note := ""
	if !res.Stable {
		note = ", not stable"
	}
	if res.Error != "" {
		note += ", first error: " + res.Error
	}
	for _, series := range slices.Sorted(maps.Keys(res.Metrics)) {
		note += fmt.Sprintf("\n  %s %.6g", series, res.Metrics[series])
	}
	for _, p := range res.Parts {
		note += fmt.Sprintf("\n  %s: queue %s ms, input %s ms, infer %s ms, output %s ms, %d inferences in %d executions",
			p.Model, millis(p.Queue), millis(p.ComputeInput), millis(p.ComputeInfer), millis(p.ComputeOutput), p.Inferences, p.Executions)
	}
	_, err := fmt.Fprintf(w, "%s, %s: %.1f inferences/s, p50 %s ms, p99 %s ms%s\n", res.Address, load, res.Throughput, millis(res.Latency.P50), millis(res.Latency.P99), note)
	return err
}

// writable makes sure that a file can be written, and leaves it as it is. Pipes are left alone: whoever reads one would take
// that for all.
func writable(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	return f.Close()
}

func save(path string, results []*Result, write func(io.Writer, []*Result) error) (err error) {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f, results)
}
