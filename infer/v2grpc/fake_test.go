package v2grpc_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// models is a server of a few models: "echo" returns its inputs, "repeat" is decoupled and returns its input
// as often as its only element says, "hold" answers when it is told to.
type models struct {
	pool tensor.Pool

	mu      sync.Mutex
	held    map[string]chan struct{} // by request id
	seen    []*infer.Request
	loaded  map[string]infer.LoadOptions
	stopped bool
}

func (m *models) Submit(ctx context.Context, req *infer.Request, reply func(infer.Reply)) error {
	if _, err := m.Model(req.Model, req.Version); err != nil {
		return err
	}
	copied := *req
	copied.Parameters = maps.Clone(req.Parameters)
	copied.Inputs, copied.Outputs = slices.Clone(req.Inputs), slices.Clone(req.Outputs)
	m.mu.Lock()
	m.seen = append(m.seen, &copied)
	hold := m.held[req.ID]
	m.mu.Unlock()
	switch req.Model {
	case "repeat":
		n := int(tensor.View[int32](req.Inputs[0].Data)[0])
		for range n {
			reply(infer.Reply{Response: m.respond(req)})
		}
		reply(infer.Reply{Final: true})
	case "hold":
		go func() {
			select {
			case <-hold:
				reply(infer.Reply{Response: m.respond(req), Final: true})
			case <-ctx.Done():
				reply(infer.Reply{Err: infer.Errorf(infer.Cancelled, "request was cancelled"), Final: true})
			}
		}()
	case "fail":
		reply(infer.Reply{Err: infer.Errorf(infer.Unavailable, "Exceeds maximum queue size"), Final: true})
	default:
		reply(infer.Reply{Response: m.respond(req), Final: true})
	}
	return nil
}

func (m *models) respond(req *infer.Request) *infer.Response {
	r := infer.NewResponse(&m.pool, nil)
	r.ID, r.Model, r.Version, r.Parameters = req.ID, req.Model, 3, req.Parameters
	for _, t := range req.Inputs {
		if len(req.Outputs) > 0 && !slices.ContainsFunc(req.Outputs, func(o infer.OutputSpec) bool { return o.Name == t.Name }) {
			continue
		}
		copy(r.Add(t.Name, t.DataType, t.Shape, len(t.Data)), t.Data)
	}
	return r
}

func (m *models) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.seen)
}

// waitFor returns when so many requests have come.
func (m *models) waitFor(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); m.count() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d requests came", m.count(), n)
		}
	}
}

func (m *models) last() *infer.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[len(m.seen)-1]
}

func (m *models) Server() infer.ServerInfo {
	return infer.ServerInfo{Name: "triton", Version: "1", Extensions: []string{"sequence"}}
}

func (m *models) Ready(context.Context) bool { return !m.stopped }

func (m *models) Model(name string, version int64) (*infer.ModelInfo, error) {
	switch {
	case name != "echo" && name != "repeat" && name != "hold" && name != "fail":
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' is not found", name)
	case version > 0 && version != 3:
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' version %d is not found", name, version)
	}
	return &infer.ModelInfo{
		Name: name, Version: 3, Versions: []string{"2", "3"}, Platform: "test", Decoupled: name == "repeat",
		Inputs:  []infer.TensorInfo{{Name: "IN", DataType: tensor.FP32, Shape: []int64{-1, 4}}},
		Outputs: []infer.TensorInfo{{Name: "OUT", DataType: tensor.FP32, Shape: []int64{-1, 4}}},
		Config:  &inference.ModelConfig{Name: name, MaxBatchSize: 8},
	}, nil
}

func (m *models) ModelReady(name string, version int64) (bool, error) {
	_, err := m.Model(name, version)
	return err == nil, err
}

func (m *models) Index(readyOnly bool) []infer.IndexEntry {
	list := []infer.IndexEntry{{Name: "echo", Version: "3", State: "READY"}}
	if !readyOnly {
		list = append(list, infer.IndexEntry{Name: "broken", Version: "1", State: "UNAVAILABLE", Reason: "no file"})
	}
	return list
}

func (m *models) Load(_ context.Context, name string, opts infer.LoadOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == "broken" {
		return infer.Errorf(infer.InvalidArgument, "load failed for model '%s': no file", name)
	}
	if m.loaded == nil {
		m.loaded = make(map[string]infer.LoadOptions)
	}
	m.loaded[name] = opts
	return nil
}

func (m *models) Unload(_ context.Context, name string, dependents bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.loaded, name)
	if dependents {
		clear(m.loaded)
	}
	return nil
}

func (m *models) Statistics(name string, _ int64) ([]*inference.ModelStatistics, error) {
	if name != "" && name != "echo" {
		return nil, infer.Errorf(infer.InvalidArgument, "requested model '%s' is not available", name)
	}
	return []*inference.ModelStatistics{{Name: "echo", Version: "3", InferenceCount: 7}}, nil
}

func (m *models) Sequences() []infer.SequenceInfo { return nil }

// logging is a set of log settings.
type logging map[string]any

func (l logging) Settings() map[string]any { return l }

func (l logging) Update(changes map[string]any) error {
	for k, v := range changes {
		if k == "log_file" {
			return infer.Errorf(infer.Unsupported, "log file location can not be updated through network protocol")
		}
		if fmt.Sprintf("%T", v) != fmt.Sprintf("%T", l[k]) {
			return infer.Errorf(infer.InvalidArgument, "%s is not a %T", k, l[k])
		}
		l[k] = v
	}
	return nil
}
