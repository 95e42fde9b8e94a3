package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// Command is the verb of the command line: its fields are its flags, tagged for the command line library.
type Command struct {
	Model      string `short:"m" required:"" placeholder:"NAME" help:"Model to ask."`
	Version    int64  `short:"x" name:"model-version" placeholder:"N" help:"Its version; the server's choice by default."`
	URL        string `short:"u" name:"url" default:"127.0.0.1:8001" placeholder:"ADDR" help:"gRPC address of the server (${default})."`
	HTTP       string `name:"http" placeholder:"ADDR" help:"Send requests to this HTTP address instead; --url still tells of the model."`
	Beside     string `placeholder:"ADDR" help:"gRPC address of a second server, measured in turns with the first."`
	BesideHTTP string `name:"beside-http" placeholder:"ADDR" help:"HTTP address of the second server."`

	Concurrency string  `name:"concurrency-range" placeholder:"FROM:TO:STEP" help:"Requests kept under way; 1 by default."`
	Rate        string  `name:"request-rate-range" placeholder:"FROM:TO:STEP" help:"Requests a second instead, whatever comes back."`
	Poisson     bool    `help:"Send them at random moments."`
	Limit       float64 `name:"latency-threshold" placeholder:"MS" help:"Stop where the p99 latency is beyond so many milliseconds."`

	Batch    int      `short:"b" name:"batch-size" default:"1" help:"Batch dimension (${default})."`
	Shape    []string `placeholder:"NAME:D,D" sep:"none" help:"Dimensions of an input that the model leaves open; may be given several times."`
	Value    []string `placeholder:"NAME:V,V" sep:"none" help:"What an input is filled with, over and over, instead of zeros; may be given several times."`
	Random   bool     `help:"Fill tensors at random instead of with zeros."`
	Stream   bool     `name:"streaming" help:"Send over gRPC streams."`
	Memory   string   `name:"shared-memory" enum:"none,system" default:"none" help:"Where tensors are: none or system."`
	Sequence int      `name:"sequence-length" default:"20" help:"Mean length of sequences of models that keep state (${default})."`

	Interval  time.Duration `name:"measurement-interval" default:"5s" help:"Length of a measurement window (${default})."`
	Stability float64       `name:"stability-percentage" default:"10" help:"How much three windows may differ (${default})."`
	Trials    int           `name:"max-trials" default:"10" help:"Windows before it gives up on that (${default})."`

	CSV  string `short:"f" name:"csv" placeholder:"FILE" help:"Write the results as CSV too."`
	JSON string `name:"json" placeholder:"FILE" help:"And as JSON."`
}

// Run measures and prints to w, one line for each step.
func (c *Command) Run(ctx context.Context, w io.Writer) error {
	steps, err := c.steps()
	if err != nil {
		return err
	}
	var results []*Result
	for _, cfg := range steps {
		res, err := Run(ctx, cfg)
		if err != nil {
			return err
		}
		results = append(results, res)
		if err := c.print(w, cfg, res); err != nil {
			return err
		}
		if c.Limit > 0 && float64(res.Latency.P99) > c.Limit*float64(time.Millisecond) {
			break
		}
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := WriteTable(w, results); err != nil {
		return err
	}
	return errors.Join(save(c.CSV, results, WriteCSV), save(c.JSON, results, WriteJSON))
}

func (*Command) print(w io.Writer, cfg Config, res *Result) error {
	load := fmt.Sprintf("concurrency %d", res.Concurrency)
	if res.Rate > 0 {
		load = fmt.Sprintf("%g requests/s", res.Rate)
	}
	at := cfg.GRPC
	if cfg.HTTP != "" {
		at = cfg.HTTP
	}
	note := ""
	if !res.Stable {
		note = ", not stable"
	}
	if res.Error != "" {
		note += ", first error: " + res.Error
	}
	_, err := fmt.Fprintf(w, "%s, %s: %.1f inferences/s, p50 %s ms, p99 %s ms%s\n", at, load, res.Throughput, millis(res.Latency.P50), millis(res.Latency.P99), note)
	return err
}

// steps are the measurements to make: every load, at one server and then at the other.
func (c *Command) steps() ([]Config, error) {
	base := Config{
		GRPC: c.URL, HTTP: c.HTTP, Model: c.Model, Version: c.Version, Poisson: c.Poisson, Batch: c.Batch, Random: c.Random, Streaming: c.Stream,
		SharedMemory: c.Memory == "system", SequenceLength: c.Sequence, Window: c.Interval, Stability: c.Stability / 100, MaxWindows: c.Trials,
	}
	var err error
	if base.Shapes, err = ParseShapes(c.Shape); err != nil {
		return nil, err
	}
	if base.Values, err = ParseValues(c.Value); err != nil {
		return nil, err
	}
	loads, text := []float64{1}, c.Concurrency
	if c.Rate != "" {
		if text != "" {
			return nil, errors.New("--concurrency-range and --request-rate-range: only one of them makes sense")
		}
		text = c.Rate
	}
	if text != "" {
		if loads, err = span(text); err != nil {
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
		out = append(out, cfg)
		if c.Beside != "" {
			cfg.GRPC, cfg.HTTP = c.Beside, c.BesideHTTP
			out = append(out, cfg)
		}
	}
	return out, nil
}

// span reads FROM[:TO[:STEP]].
func span(text string) ([]float64, error) {
	parts := strings.Split(text, ":")
	v := []float64{0, 0, 1}
	for i, p := range parts {
		n, err := strconv.ParseFloat(p, 64)
		if err != nil || i > 2 || !(n > 0) {
			return nil, fmt.Errorf("%q is not FROM:TO:STEP of numbers above 0", text)
		}
		v[i] = n
	}
	if len(parts) == 1 {
		v[1] = v[0]
	}
	if (v[1]-v[0])/v[2] > 1000 {
		return nil, fmt.Errorf("%q has more than a thousand steps: make them larger", text)
	}
	var out []float64
	for x := v[0]; x <= v[1]+v[2]/1e6; x += v[2] {
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
