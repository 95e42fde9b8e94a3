package perf

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vedette/vedette/infer/v2client"
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

// Number is a number on the command line that may be 0.
type Number int

// Count is a number on the command line that may not be 0.
type Count int

// UnmarshalText reads it.
func (n *Number) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 10, 31)
	if err != nil {
		return fmt.Errorf("%q is not a number from 0 to %d", text, math.MaxInt32)
	}
	*n = Number(v)
	return nil
}

// UnmarshalText reads it.
func (n *Count) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 10, 31)
	if err != nil || v == 0 {
		return fmt.Errorf("%q is not a number from 1 to %d", text, math.MaxInt32)
	}
	*n = Count(v)
	return nil
}

// Time is a span of time on the command line: with a unit, or in milliseconds as perf_analyzer has it.
type Time time.Duration

// UnmarshalText reads it.
func (m *Time) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		n, notNumber := strconv.ParseUint(string(text), 10, 32)
		if notNumber != nil {
			return err
		}
		d = time.Duration(n) * time.Millisecond
	}
	if d <= 0 {
		return fmt.Errorf("%s is not above 0", text)
	}
	*m = Time(d)
	return nil
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

// steps are the measurements to make: every load, at one server and then at the other.
func (c *Command) steps() ([]Config, error) {
	base, err := c.base()
	if err != nil {
		return nil, err
	}
	loads, given := []float64{1}, 0
	for _, text := range []string{c.Concurrency, c.Periodic, c.Rate, c.Intervals} {
		if text != "" {
			given++
		}
	}
	if given > 1 {
		return nil, errors.New("--concurrency-range, --periodic-concurrency-range, --request-rate-range and --request-intervals: only one of them makes sense")
	}
	text := c.Concurrency + c.Periodic + c.Rate
	end := append(strings.Split(text, ":"), "")[1]
	n, err := strconv.ParseFloat(end, 64)
	endless := err == nil && n == 0
	switch {
	case c.Search && (c.Limit <= 0 || c.Concurrency+c.Rate == "" || endless || c.Beside != ""):
		return nil, errors.New("--binary-search needs --latency-threshold, a range of concurrency or rate with an end, and one server")
	case endless && (c.Limit <= 0 || c.Periodic != ""):
		return nil, fmt.Errorf("%q has no end: --latency-threshold has to give one to a range of concurrency or rate", text)
	case text != "":
		if loads, err = span(text, c.Rate == ""); err != nil {
			return nil, err
		}
	}
	switch {
	case c.Periodic != "":
		_, to, by, err := bounds(text, true)
		if err != nil {
			return nil, err
		}
		base.GrowTo, base.GrowBy, base.GrowEvery = int(to), int(by), int(c.Period)
		loads = loads[:1]
	case c.Intervals != "":
		if base.Intervals, err = readIntervals(c.Intervals); err != nil {
			return nil, err
		}
	}
	var out []Config
	for _, load := range loads {
		cfg := base
		if c.Rate != "" {
			cfg.Rate = load
		} else {
			cfg.Concurrency = int(load)
		}
		cfg.GRPC, cfg.HTTP = c.addresses(c.URL, c.HTTP)
		out = append(out, cfg)
		if c.Beside != "" {
			cfg.GRPC, cfg.HTTP = c.addresses(c.Beside, c.BesideHTTP)
			out = append(out, cfg)
		}
	}
	return out, nil
}

// addresses sorts out which protocol an address is for.
func (c *Command) addresses(url, other string) (grpcAddress, httpAddress string) {
	if !strings.EqualFold(c.Protocol, "http") {
		return cmp.Or(url, "127.0.0.1:8001"), other
	}
	return "", cmp.Or(other, url, "127.0.0.1:8000")
}

// base is what all measurements have in common.
func (c *Command) base() (Config, error) {
	cfg := Config{
		Model: c.Model, Version: c.Version, Compress: c.Compression == "gzip", Poisson: c.Poisson || c.Distribution == "poisson", Batch: int(c.Batch),
		Random: c.Random, Text: c.Text, TextLength: int(c.TextLength), Streaming: c.Stream, SharedMemory: c.Memory == "system", OutputSize: int(c.OutputSize),
		JSONInputs: c.InputForm == "json", JSONOutputs: c.OutputForm == "json", Called: c.Called,
		SequenceLength: int(c.Sequence), SequenceSpread: c.Variation / 100, Sequences: int(c.Sequences), Window: time.Duration(c.Interval),
		Requests: int(c.Requests), Warmup: int(c.Warmup), Percentile: max(c.Percentile, 0), Stability: c.Stability / 100, MaxWindows: int(c.Trials),
		Keep: c.Export != "", MetricsInterval: time.Duration(c.MetricsInterval), strict: true,
	}
	switch { // NaN is none of them
	case !(c.Variation >= 0 && c.Variation <= 100):
		return cfg, fmt.Errorf("--sequence-length-variation %v is not from 0 to 100", c.Variation)
	case !(c.Stability >= 0 && c.Stability <= 100):
		return cfg, fmt.Errorf("--stability-percentage %v is not from 0 to 100", c.Stability)
	case !(c.Limit >= 0):
		return cfg, fmt.Errorf("--latency-threshold %v is below 0", c.Limit)
	case c.Percentile < -1:
		return cfg, fmt.Errorf("--percentile %d is not within 1 and 99, nor -1 for the mean", c.Percentile)
	}
	if c.Variation == 0 {
		cfg.SequenceSpread = -1
	}
	if c.Mode == "count_windows" {
		cfg.WindowRequests = int(c.WindowRequests)
	}
	if c.Collect {
		cfg.Metrics = c.MetricsURL
	}
	if c.Memory == "cuda" {
		return cfg, errors.New("--shared-memory cuda: the memory of GPUs cannot be shared from here; --shared-memory system can")
	}
	cfg.Trace = c.trace()
	var err error
	from := slices.Clone(c.Input)
	if c.Folder != "" {
		from = append(from, c.Folder)
	}
	if err := cfg.Send(from); err != nil {
		return cfg, err
	}
	if cfg.Shapes, err = ParseShapes(c.Shape); err != nil {
		return cfg, err
	}
	if cfg.Values, err = ParseValues(c.Value); err != nil {
		return cfg, err
	}
	if cfg.Parameters, err = parseParameters(c.Parameter); err != nil {
		return cfg, err
	}
	if cfg.FirstID, cfg.LastID, err = parseIDs(c.IDs); err != nil {
		return cfg, err
	}
	cfg.Client, err = c.client()
	return cfg, err
}

// Send has the measurement send what --input-data names: zero, random, files of requests or a folder.
func (c *Config) Send(inputs []string) error {
	for _, from := range inputs {
		switch from {
		case "zero":
		case "random":
			c.Random = true
		default:
			data, err := readData(from)
			if err != nil {
				return err
			}
			if c.Data == nil {
				c.Data = data
			} else if err := c.Data.add(data); err != nil {
				return fmt.Errorf("--input-data %s: %w", from, err)
			}
		}
	}
	return nil
}

// trace is what is asked of the server's tracing.
func (c *Command) trace() map[string][]string {
	out := make(map[string][]string)
	if len(c.TraceLevel) > 0 {
		out["trace_level"] = c.TraceLevel
	}
	for name, v := range map[string]string{"trace_rate": c.TraceRate, "trace_count": c.TraceCount, "log_frequency": c.TraceFrequency, "trace_file": c.TraceFile} {
		if v != "" {
			out[name] = []string{v}
		}
	}
	return out
}

// client is how to talk to the servers.
func (c *Command) client() (v2client.Config, error) {
	cfg := v2client.Config{}
	for _, text := range c.Header {
		key, value, ok := strings.Cut(text, ":")
		if !ok || key == "" {
			return cfg, fmt.Errorf("-H %q is not KEY:VALUE", text)
		}
		if cfg.Headers == nil {
			cfg.Headers = make(map[string]string)
		}
		cfg.Headers[key] = strings.TrimSpace(value)
	}
	if !c.TLS && c.CA == "" && c.Cert == "" && c.Key == "" && c.VerifyPeer != "0" && c.VerifyHost != "0" {
		return cfg, nil
	}
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.VerifyPeer == "0" || c.VerifyHost == "0"} //nolint:gosec // asked for
	if c.VerifyPeer != "0" && c.VerifyHost == "0" {                                                                     // whoever signed it counts all the same
		cfg.TLS.VerifyConnection = func(s tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: cfg.TLS.RootCAs, Intermediates: x509.NewCertPool()}
			for _, c := range s.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(o)
			return err
		}
	}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return cfg, fmt.Errorf("certificates to trust: %w", err)
		}
		cfg.TLS.RootCAs = x509.NewCertPool()
		if !cfg.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return cfg, fmt.Errorf("certificates to trust: %s has none", c.CA)
		}
	}
	if c.Cert != "" || c.Key != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return cfg, fmt.Errorf("the client's certificate: %w", err)
		}
		cfg.TLS.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// readIntervals reads microseconds, one a line.
func readIntervals(path string) ([]time.Duration, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--request-intervals: %w", err)
	}
	var out []time.Duration
	for i, word := range strings.Fields(string(text)) {
		n, err := strconv.ParseUint(word, 10, 40)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("--request-intervals: %s: entry %d: %q is no number of microseconds", path, i+1, word)
		}
		out = append(out, time.Duration(n)*time.Microsecond)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--request-intervals: %s is empty", path)
	}
	return out, nil
}

// parseIDs reads FROM[:TO]; TO itself is not used.
func parseIDs(text string) (first, last uint64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	from, to, bounded := strings.Cut(text, ":")
	first, err = strconv.ParseUint(from, 10, 63)
	if err == nil && bounded {
		last, err = strconv.ParseUint(to, 10, 63)
		last--
	}
	if err != nil || first == 0 || bounded && last < first {
		return 0, 0, fmt.Errorf("--sequence-id-range %q is not FROM[:TO] of numbers above 0", text)
	}
	return first, last, nil
}

// parseParameters reads parameters written as NAME:VALUE:TYPE.
func parseParameters(list []string) (map[string]any, error) {
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // an empty map is as good
	}
	out := make(map[string]any, len(list))
	for _, text := range list {
		name, rest, _ := strings.Cut(text, ":")
		at := strings.LastIndexByte(rest, ':')
		if name == "" || at < 0 {
			return nil, fmt.Errorf("--request-parameter %q is not NAME:VALUE:TYPE", text)
		}
		var v any
		var err error
		switch value := rest[:at]; rest[at+1:] {
		case "bool":
			v, err = strconv.ParseBool(value)
		case "int":
			v, err = strconv.ParseInt(value, 10, 64)
		case "uint":
			v, err = strconv.ParseUint(value, 10, 64)
		case "float", "double":
			v, err = strconv.ParseFloat(value, 64)
		case "string":
			v = value
		default:
			err = errors.New("the type is none of bool, int, uint, float and string")
		}
		if err != nil {
			return nil, fmt.Errorf("--request-parameter %q: %w", text, err)
		}
		out[name] = v
	}
	return out, nil
}

// maxConcurrency bounds the requests under way.
const maxConcurrency = 1 << 16

// bounds reads FROM[:TO[:STEP]], of whole numbers if they are of concurrency. TO may be 0: without end, or as good as.
func bounds(text string, concurrency bool) (from, to, step float64, err error) {
	v := []float64{0, 0, 1}
	parts := strings.Split(text, ":")
	for i, p := range parts {
		n, err := strconv.ParseFloat(p, 64)
		if err != nil || i > 2 || !(n > 0 || n == 0 && i == 1) || concurrency && n != math.Trunc(n) {
			return 0, 0, 0, fmt.Errorf("%q is not FROM:TO:STEP of numbers above 0", text)
		}
		if concurrency && n > maxConcurrency {
			return 0, 0, 0, fmt.Errorf("%q: at most %d requests can be under way", text, maxConcurrency)
		}
		v[i] = n
	}
	if from, to, step = v[0], v[1], v[2]; len(parts) == 1 {
		return from, from, step, nil
	}
	if to > 0 {
		return from, to, step, nil
	}
	if to = from + maxSteps*step; concurrency {
		to = min(to, maxConcurrency)
	}
	return from, to, step, nil
}

// maxSteps bounds what is measured one after the other.
const maxSteps = 1000

// span lists the loads of a range.
func span(text string, concurrency bool) ([]float64, error) {
	from, to, step, err := bounds(text, concurrency)
	if err != nil {
		return nil, err
	}
	if (to-from)/step > maxSteps {
		return nil, fmt.Errorf("%q has more than a thousand steps: make them larger", text)
	}
	var out []float64
	for x := from; x <= to+step/1e6; x += step {
		out = append(out, x)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%q ends before it begins", text)
	}
	return out, nil
}

// ParseShapes reads dimensions written as NAME:D,D.
func ParseShapes(list []string) (map[string][]int64, error) {
	out := make(map[string][]int64, len(list))
	for _, text := range list {
		at := strings.LastIndexByte(text, ':')
		if at <= 0 {
			return nil, fmt.Errorf("--shape %q is not NAME:D,D", text)
		}
		var dims []int64
		for d := range strings.SplitSeq(text[at+1:], ",") {
			n, err := strconv.ParseInt(d, 10, 64)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("--shape %q: %q is not a dimension", text, d)
			}
			dims = append(dims, n)
		}
		out[text[:at]] = dims
	}
	return out, nil
}

// ParseValues reads numbers written as NAME:V,V.
func ParseValues(list []string) (map[string][]float64, error) {
	out := make(map[string][]float64, len(list))
	for _, text := range list {
		at := strings.LastIndexByte(text, ':')
		if at <= 0 {
			return nil, fmt.Errorf("--value %q is not NAME:V,V", text)
		}
		for v := range strings.SplitSeq(text[at+1:], ",") {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return nil, fmt.Errorf("--value %q: %q is not a number", text, v)
			}
			out[text[:at]] = append(out[text[:at]], n)
		}
	}
	return out, nil
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
