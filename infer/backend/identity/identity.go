// Package identity is a model that answers with what it was sent: INPUTx
// becomes OUTPUTx, byte for byte. It exists to measure the server around it and
// to test clients.
//
// Model parameters: execute_delay_ms makes every execution take so long, and
// instance_wise_delay_multiplier so many times longer for each instance after
// the second; creation_delay_sec makes the load take longer.
//
// Every response has the parameters param0 to param3, which are the same
// always, so that clients can be tested with them; response_parameters: false
// leaves them out.
package identity

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/internal/pause"
)

// Backend makes identity models.
type Backend struct {
	bytes *prometheus.CounterVec
}

// New makes the backend.
func New() *Backend {
	return &Backend{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "input_byte_size_counter", Help: "Cumulative input_byte_size across all identity model requests",
	}, []string{"model", "version"})}
}

// Describe implements prometheus.Collector.
func (b *Backend) Describe(ch chan<- *prometheus.Desc) { b.bytes.Describe(ch) }

// Collect implements prometheus.Collector.
func (b *Backend) Collect(ch chan<- prometheus.Metric) { b.bytes.Collect(ch) }

// Complete implements backend.Backend: there is no file to learn from. It
// refuses inputs that have no output of their kind.
func (*Backend) Complete(_ context.Context, m *backend.Model) error {
	outputs := m.Config.GetOutput()
	if len(m.Config.GetInput()) != len(outputs) {
		return infer.Errorf(infer.InvalidArgument, "model configuration must have equal input/output pairs")
	}
	for _, in := range m.Config.GetInput() {
		name, ok := strings.CutPrefix(in.GetName(), "INPUT")
		if !ok {
			return infer.Errorf(infer.InvalidArgument, "expected input name to follow INPUT<index> pattern, got '%s'", in.GetName())
		}
		k := slices.IndexFunc(outputs, func(o *inference.ModelOutput) bool { return o.GetName() == "OUTPUT"+name })
		switch {
		case k < 0:
			return infer.Errorf(infer.InvalidArgument, "expected input and output indices to match: input '%s' has no output 'OUTPUT%s'", in.GetName(), name)
		case outputs[k].GetDataType() != in.GetDataType():
			return infer.Errorf(infer.InvalidArgument, "expected input and output datatype to match, got %s and %s", in.GetDataType(), outputs[k].GetDataType())
		}
	}
	return nil
}

// NewInstance implements backend.Backend.
func (b *Backend) NewInstance(ctx context.Context, m *backend.Model, at backend.Placement) (backend.Instance, error) {
	i := &instance{bytes: b.bytes.WithLabelValues(m.Name, strconv.FormatInt(m.Version, 10))}
	for _, in := range m.Config.GetInput() {
		i.pairs = append(i.pairs, pair{in.GetName(), "OUTPUT" + strings.TrimPrefix(in.GetName(), "INPUT")})
	}
	seconds, err := number(m, "creation_delay_sec", 0)
	if err != nil {
		return nil, err
	}
	switch with := m.Parameter("response_parameters", "true"); with {
	case "true":
		i.parameters = parameters
	case "false":
	default:
		return nil, fmt.Errorf("identity model '%s': parameter 'response_parameters' is %q, neither true nor false", m.Name, with)
	}
	if at.Index == 0 {
		pause.For(ctx, time.Duration(seconds)*time.Second)
	}
	ms, err := number(m, "execute_delay_ms", 0)
	if err != nil {
		return nil, err
	}
	times, err := number(m, "instance_wise_delay_multiplier", 0)
	if err != nil {
		return nil, err
	}
	i.delay = time.Duration(ms) * time.Millisecond * time.Duration(max(times*at.Index, 1))
	return i, nil
}

func number(m *backend.Model, key string, def int) (int, error) {
	s := m.Parameter(key, strconv.Itoa(def))
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("identity model '%s': parameter '%s' is %q, not a number of at least 0", m.Name, key, s)
	}
	return n, nil
}

type instance struct {
	pairs []pair
	delay time.Duration
	bytes prometheus.Counter
	// parameters of every response; nil: it has none.
	parameters map[string]any
}

type pair struct{ in, out string }

// parameters are every response's; nobody writes to them.
//
//nolint:gochecknoglobals // a constant table; Go has no constant maps
var parameters = map[string]any{
	"param0": "an example string parameter", "param1": int64(42), "param2": false, "param3": 123.123,
}

// Execute implements backend.Instance.
func (i *instance) Execute(ctx context.Context, jobs []*backend.Job) {
	pause.For(ctx, i.delay)
	for _, j := range jobs {
		r := j.NewResponse()
		r.Parameters = i.parameters
		for _, p := range i.pairs {
			in := j.Input(p.in)
			if in == nil {
				continue
			}
			i.bytes.Add(float64(len(in.Data)))
			if !j.Wants(p.out) {
				continue
			}
			r.AddView(p.out, in.DataType, in.Shape, in.Data)
		}
		j.Respond(r)
	}
}

// Close implements backend.Instance.
func (i *instance) Close() error { return nil }
