// Package identity is a model that answers with what it was sent: INPUTx
// becomes OUTPUTx, byte for byte. It exists to measure the server around it and
// to test clients.
//
// Model parameters: execute_delay_ms makes every execution take so long,
// instance_wise_delay_multiplier multiplies that by the number of the instance.
package identity

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/internal/pause"
)

// Backend makes identity models. The zero value is ready.
type Backend struct{}

// Complete implements backend.Backend: there is no file to learn from.
func (Backend) Complete(context.Context, *backend.Model) error { return nil }

// NewInstance implements backend.Backend.
func (Backend) NewInstance(_ context.Context, m *backend.Model, at backend.Placement) (backend.Instance, error) {
	i := new(instance)
	for _, in := range m.Config.GetInput() {
		out, ok := strings.CutPrefix(in.GetName(), "INPUT")
		if !ok {
			return nil, fmt.Errorf("identity model '%s': input '%s' must be named INPUT and a number", m.Name, in.GetName())
		}
		i.pairs = append(i.pairs, pair{in.GetName(), "OUTPUT" + out})
	}
	ms, err := number(m, "execute_delay_ms", 0)
	if err != nil {
		return nil, err
	}
	times, err := number(m, "instance_wise_delay_multiplier", 1)
	if err != nil {
		return nil, err
	}
	i.delay = time.Duration(ms) * time.Millisecond
	if at.Index > 0 {
		i.delay *= time.Duration(times * at.Index)
	}
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
}

type pair struct{ in, out string }

// Execute implements backend.Instance.
func (i *instance) Execute(ctx context.Context, jobs []*backend.Job) {
	pause.For(ctx, i.delay)
	for _, j := range jobs {
		r := j.NewResponse()
		for _, p := range i.pairs {
			in := j.Input(p.in)
			if in == nil || !j.Wants(p.out) {
				continue
			}
			r.AddView(p.out, in.DataType, in.Shape, in.Data)
		}
		j.Respond(r)
	}
}

// Close implements backend.Instance.
func (i *instance) Close() error { return nil }
