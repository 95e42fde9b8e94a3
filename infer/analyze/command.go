package analyze

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/perf"
)

// Command is the verb of the command line: its fields are its flags, tagged for the command line library.
type Command struct {
	Model   string   `short:"m" required:"" placeholder:"NAME" help:"Model to try configurations of."`
	URL     string   `short:"u" name:"url" default:"127.0.0.1:8001" placeholder:"ADDR" help:"gRPC address of a server in explicit mode (${default})."`
	Metrics string   `placeholder:"ADDR" help:"Its metrics address, to measure memory."`
	Shape   []string `placeholder:"NAME:D,D" sep:"none" help:"Dimensions of an input that the model leaves open; may be given several times."`

	Instances   []int           `placeholder:"N,N" help:"Numbers of instances to try."`
	Threads     []int           `placeholder:"N,N" help:"Numbers of threads of ONNX Runtime to try."`
	MaxBatches  []int           `name:"max-batch-sizes" placeholder:"N,N" help:"Largest batches of the server to try."`
	Delays      []time.Duration `placeholder:"1ms,5ms" help:"Delays to try that requests may wait for a batch."`
	Concurrency []int           `default:"1,4,16" placeholder:"N,N" help:"Requests under way (${default})."`
	Batches     []int           `name:"batch-sizes" default:"1" placeholder:"N,N" help:"Batch dimensions of requests (${default})."`

	Latency float64 `name:"latency-budget" placeholder:"MS" help:"The p99 latency must be within so many milliseconds."`
	Memory  int64   `name:"memory-budget" placeholder:"MIB" help:"The server must stay within so many MiB; needs --metrics."`

	Interval   time.Duration `name:"measurement-interval" default:"2s" help:"Length of a measurement window (${default})."`
	Trials     int           `name:"max-trials" default:"6" help:"Windows before a measurement that does not settle is taken as it is (${default})."`
	Checkpoint string        `type:"path" placeholder:"FILE" help:"Keeps what was measured; checkpoint.json in the output folder by default."`
	Out        string        `short:"o" type:"path" default:"analysis" placeholder:"DIR" help:"Folder of config.pbtxt and report.html (${default})."`
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
	report, err := Run(ctx, cfg)
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := report.WriteHTML(&html); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Out, "report.html"), html.Bytes(), 0o640); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if report.Best == nil {
		return fmt.Errorf("no configuration that was tried keeps to the limits: %s tells how far off they are", filepath.Join(c.Out, "report.html"))
	}
	if err := os.WriteFile(filepath.Join(c.Out, "config.pbtxt"), modelconfig.Print(report.Config), 0o640); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	b := report.Best
	_, err = fmt.Fprintf(w, "best: %v, %d under way: %.1f inferences/s, p99 %s ms\nwritten: %s and %s\n", b.Settings, b.Concurrency, b.Throughput, millis(b.P99),
		filepath.Join(c.Out, "config.pbtxt"), filepath.Join(c.Out, "report.html"))
	return err
}

func (c *Command) config(w io.Writer) (Config, error) {
	shapes, err := perf.ParseShapes(c.Shape)
	if err != nil {
		return Config{}, err
	}
	if c.Memory > 0 && c.Metrics == "" {
		return Config{}, errors.New("--memory-budget needs --metrics: the server tells its memory there")
	}
	cfg := Config{
		Load:    perf.Config{Model: c.Model, GRPC: c.URL, Shapes: shapes, Window: c.Interval, MaxWindows: c.Trials},
		Metrics: c.Metrics, Instances: c.Instances, Threads: c.Threads, MaxBatches: c.MaxBatches, Delays: c.Delays,
		Concurrency: c.Concurrency, Batches: c.Batches, MaxLatency: time.Duration(c.Latency * float64(time.Millisecond)), MaxMemory: c.Memory << 20,
		Checkpoint: c.Checkpoint,
	}
	if cfg.Checkpoint == "" {
		cfg.Checkpoint = filepath.Join(c.Out, "checkpoint.json")
	}
	for name, list := range map[string][]int{"instances": c.Instances, "threads": c.Threads, "max-batch-sizes": c.MaxBatches, "concurrency": c.Concurrency, "batch-sizes": c.Batches} {
		for _, n := range list {
			if n < 1 {
				return Config{}, fmt.Errorf("--%s: %d is not at least 1", name, n)
			}
		}
	}
	const bar = 20
	cfg.Progress = func(done, total int, p Point) {
		said := fmt.Sprintf("%.1f inferences/s, p99 %s ms", p.Throughput, millis(p.P99))
		if p.Fault != "" {
			said = p.Fault
		}
		_, _ = fmt.Fprintf(w, "[%-*s] %d/%d  %v, %d under way: %s\n", bar, strings.Repeat("=", bar*done/total), done, total, p.Settings, p.Concurrency, said)
	}
	return cfg, nil
}
