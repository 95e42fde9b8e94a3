package analyze

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vedette/vedette/infer/launch"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/perf"
)

// Command is the verb of the command line: its fields are its flags, tagged for the command line library.
type Command struct {
	Models  []string `short:"m" name:"model" required:"" placeholder:"NAME" help:"Model to try configurations of; several, or given several times, are asked at once. Of an ensemble the models of its steps are varied."`
	Roots   []string `name:"model-repository" type:"path" placeholder:"DIR" help:"Start a server with this repository, and end it afterwards; may be given several times."`
	Server  string   `type:"path" placeholder:"FILE" help:"The program to start; vedette-infer beside this one by default."`
	Flags   []string `name:"server-flag" sep:"none" placeholder:"--FLAG=VALUE" help:"A flag for the server that is started; may be given several times."`
	URL     string   `short:"u" name:"url" default:"127.0.0.1:8001" placeholder:"ADDR" help:"Or else the gRPC address of a server in explicit mode (${default})."`
	Metrics string   `placeholder:"ADDR" help:"Its metrics address, to measure memory."`
	Shape   []string `placeholder:"NAME:D,D" sep:"none" help:"Dimensions of an input that the model leaves open; may be given several times."`
	Value   []string `placeholder:"NAME:V,V" sep:"none" help:"What an input is filled with, over and over, instead of zeros; may be given several times."`

	Input []string `name:"input-data" placeholder:"zero|random|FILE|DIR" sep:"none" help:"What one model is sent, as with perf."`

	Instances   []int           `placeholder:"N,N" help:"Numbers of instances to try; 1, 2 and 4 if nothing is said of any setting."`
	Threads     []int           `placeholder:"N,N" help:"Numbers of threads of ONNX Runtime to try; likewise 1 and 2."`
	MaxBatches  []int           `name:"max-batch-sizes" placeholder:"N,N" help:"Largest batches of the server to try, for models that have any."`
	Delays      []time.Duration `placeholder:"1ms,5ms" help:"Delays to try that requests may wait for a batch; likewise as it is and 0."`
	Concurrency []int           `default:"1,4,16" placeholder:"N,N" help:"Requests under way (${default})."`
	Batches     []int           `name:"batch-sizes" default:"1" placeholder:"N,N" help:"Batch dimensions of requests (${default})."`

	Latency float64 `name:"latency-budget" placeholder:"MS" help:"The p99 latency must be within so many milliseconds."`
	Memory  int64   `name:"memory-budget" placeholder:"MIB" help:"The server must stay within so many MiB; needs --metrics."`

	Interval   time.Duration `name:"measurement-interval" default:"2s" help:"Length of a measurement window (${default})."`
	Trials     int           `name:"max-trials" default:"6" help:"Windows before a measurement that does not settle is taken as it is (${default})."`
	Checkpoint string        `type:"path" placeholder:"FILE" help:"Keeps what was measured; checkpoint.json in the output folder by default."`
	Out        string        `short:"o" type:"path" default:"analysis" placeholder:"DIR" help:"Folder of report.html and config.pbtxt, in a folder for each model where there are several (${default})."`
}

// Run tries everything, tells w how far it is, and writes the result.
func (c *Command) Run(ctx context.Context, w io.Writer) error {
	cfg, err := c.config(w)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o750); err != nil {
		return fmt.Errorf("make the output folder: %w", err)
	}
	log := filepath.Join(c.Out, "server.log")
	if len(c.Roots) > 0 {
		out, err := os.Create(log)
		if err != nil {
			return fmt.Errorf("open the server's log: %w", err)
		}
		defer func() { _ = out.Close() }()
		own, err := launch.Start(ctx, launch.Config{Program: c.Server, Repositories: c.Roots, Flags: c.Flags, Log: out})
		if err != nil {
			return fmt.Errorf("%w (--server names the program, %s tells more)", err, log)
		}
		defer func() { _ = own.Close() }()
		cfg.Load.GRPC, cfg.Memory = own.Target, own.Memory
	}
	report, err := Run(ctx, cfg)
	if err != nil && len(c.Roots) > 0 {
		return fmt.Errorf("%w (the server's log is %s)", err, log)
	}
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := report.WriteHTML(&html); err != nil {
		return err
	}
	written := []string{filepath.Join(c.Out, "report.html")}
	if err := os.WriteFile(written[0], html.Bytes(), 0o640); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if i := slices.IndexFunc(report.Points, func(p *Point) bool { return p.Fault == "" }); i < 0 && len(report.Points) > 0 {
		return fmt.Errorf("nothing could be measured: %s", report.Points[0].Fault)
	}
	if report.Best == nil {
		return fmt.Errorf("no configuration that was tried keeps to the limits: %s tells how far off they are", written[0])
	}
	for _, conf := range report.Configs {
		dir := c.Out
		if len(report.Configs) > 1 {
			dir = filepath.Join(c.Out, conf.GetName())
			if err := os.MkdirAll(dir, 0o750); err != nil {
				return fmt.Errorf("write the configuration: %w", err)
			}
		}
		path := filepath.Join(dir, "config.pbtxt")
		if err := os.WriteFile(path, modelconfig.Print(conf), 0o640); err != nil {
			return fmt.Errorf("write the configuration: %w", err)
		}
		written = append(written, path)
	}
	b := report.Best
	_, err = fmt.Fprintf(w, "best: %s, %d under way: %.1f inferences/s, p99 %s ms\nwritten: %s\n", b.Label(), b.Concurrency, b.Throughput, millis(b.P99),
		strings.Join(written, ", "))
	return err
}

// maxCount bounds numbers of instances, requests and the like.
const maxCount = 1 << 16

func (c *Command) config(w io.Writer) (Config, error) {
	shapes, err := perf.ParseShapes(c.Shape)
	if err != nil {
		return Config{}, err
	}
	values, err := perf.ParseValues(c.Value)
	if err != nil {
		return Config{}, err
	}
	if c.Memory > 0 && c.Metrics == "" && len(c.Roots) == 0 {
		return Config{}, errors.New("--memory-budget needs --metrics: the server tells its memory there")
	}
	if len(c.Roots) > 0 && c.Metrics != "" {
		return Config{}, errors.New("--metrics is for a server that runs already, --model-repository for one of its own")
	}
	for i, model := range c.Models {
		if slices.Contains(c.Models[:i], model) {
			return Config{}, fmt.Errorf("--model %s is given twice", model)
		}
	}
	if len(c.Input) > 0 && len(c.Models) > 1 {
		return Config{}, errors.New("--input-data is for one model")
	}
	if !(c.Latency >= 0) || c.Memory < 0 || c.Trials < 0 || c.Interval < 0 {
		return Config{}, errors.New("--latency-budget, --memory-budget, --max-trials and --measurement-interval cannot be below 0")
	}
	cfg := Config{
		Models: c.Models, Load: perf.Config{GRPC: c.URL, Shapes: shapes, Values: values, Window: c.Interval, MaxWindows: c.Trials},
		Instances: c.Instances, Threads: c.Threads, MaxBatches: c.MaxBatches, Delays: c.Delays,
		Concurrency: c.Concurrency, Batches: c.Batches, MaxLatency: time.Duration(c.Latency * float64(time.Millisecond)), MaxMemory: c.Memory << 20,
		Checkpoint: c.Checkpoint,
	}
	if len(c.Instances)+len(c.Threads)+len(c.MaxBatches)+len(c.Delays) == 0 {
		cfg.Instances, cfg.Threads, cfg.Delays = []int{1, 2, 4}, []int{1, 2}, []time.Duration{-1, 0}
	}
	if err := cfg.Load.Send(c.Input); err != nil {
		return Config{}, err
	}
	cfg.Sent = strings.Join(slices.Concat(c.Input, c.Shape, c.Value), " ")
	if c.Metrics != "" {
		cfg.Memory = func(ctx context.Context) (int64, error) { return metricsMemory(ctx, c.Metrics) }
	}
	if cfg.Checkpoint == "" {
		cfg.Checkpoint = filepath.Join(c.Out, "checkpoint.json")
	}
	for name, list := range map[string][]int{"instances": c.Instances, "threads": c.Threads, "max-batch-sizes": c.MaxBatches, "concurrency": c.Concurrency, "batch-sizes": c.Batches} {
		for _, n := range list {
			if n < 1 || n > maxCount {
				return Config{}, fmt.Errorf("--%s: %d is not at least 1 and at most %d", name, n, maxCount)
			}
		}
	}
	for _, d := range c.Delays {
		if d < 0 {
			return Config{}, fmt.Errorf("--delays: %v is below 0", d)
		}
	}
	const bar = 20
	cfg.Progress = func(done, total int, p *Point) {
		said := fmt.Sprintf("%.1f inferences/s, p99 %s ms", p.Throughput, millis(p.P99))
		switch {
		case p.Fault != "":
			said = p.Fault
		case p.Errors > 0:
			said += fmt.Sprintf(", %d errors: %s", p.Errors, p.Error)
		}
		_, _ = fmt.Fprintf(w, "[%-*s] %d/%d  %s, %d under way: %s\n", bar, strings.Repeat("=", bar*done/total), done, total, p.Label(), p.Concurrency, said)
	}
	return cfg, nil
}
