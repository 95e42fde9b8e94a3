package server

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/metrics"
	"github.com/vedette/vedette/infer/trace"
	"github.com/vedette/vedette/infer/v2http"
)

// observer stands between the repository and the backends: it sees where instances run, and when those requests
// are executed that are traced.
type observer struct {
	traces *trace.Settings

	mu        sync.Mutex
	instances map[*observed]metrics.Instance
}

// observe puts the observer in front of every backend.
func (o *observer) observe(backends map[string]backend.Backend) map[string]backend.Backend {
	out := make(map[string]backend.Backend, len(backends))
	for name, b := range backends {
		out[name] = observedBackend{b, o}
	}
	return out
}

// list returns where instances run, of those that tell, in order; of one model, or of all when model is empty.
func (o *observer) list(model string) []metrics.Instance {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []metrics.Instance
	for _, in := range o.instances {
		if model == "" || in.Model == model {
			out = append(out, in)
		}
	}
	slices.SortFunc(out, func(a, b metrics.Instance) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Name, b.Name))
	})
	return out
}

type observedBackend struct {
	backend.Backend

	observer *observer
}

// NewInstance implements backend.Backend. What instances can do besides executing is kept.
func (b observedBackend) NewInstance(ctx context.Context, m *backend.Model, at backend.Placement) (backend.Instance, error) {
	in, err := b.Backend.NewInstance(ctx, m, at)
	if err != nil {
		return nil, err
	}
	o := &observed{Instance: in, observer: b.observer, version: m.Version}
	if p, ok := in.(provider); ok {
		o.provider = p
		o.shown = metrics.Instance{Model: m.Name, Version: m.Version, Name: at.Name}
		o.look()
	}
	keeper, keeps := in.(backend.SequenceKeeper)
	snapshotter, snaps := in.(backend.SequenceSnapshotter)
	switch {
	case keeps && snaps:
		return struct {
			*observed
			backend.SequenceKeeper
			backend.SequenceSnapshotter
		}{o, keeper, snapshotter}, nil
	case keeps:
		return struct {
			*observed
			backend.SequenceKeeper
		}{o, keeper}, nil
	case snaps:
		return struct {
			*observed
			backend.SequenceSnapshotter
		}{o, snapshotter}, nil
	}
	return o, nil
}

// provider is an instance that can tell where it runs. It is asked between executions.
type provider interface {
	Provider() (name string, fallbacks int, reason error)
}

type observed struct {
	backend.Instance

	observer *observer
	version  int64
	provider provider         // nil: it does not tell
	shown    metrics.Instance // what the observer knows
	noted    bool
}

// Execute implements backend.Instance.
func (o *observed) Execute(ctx context.Context, jobs []*backend.Job) {
	e := o.observer.traces.Executing(func(yield func(*infer.Request, time.Time) bool) {
		for _, j := range jobs {
			if !j.Null && !yield(j.Request, j.Enqueued) {
				return
			}
		}
	}, o.version)
	if e.Empty() {
		o.Instance.Execute(ctx, jobs)
	} else {
		o.trace(ctx, jobs, e)
	}
	if o.provider != nil {
		o.look()
	}
}

// trace executes a batch with traced requests in it.
func (o *observed) trace(ctx context.Context, jobs []*backend.Job, e trace.Execution) {
	timing, start := jobs[0].Timing, time.Now()
	if timing == nil {
		timing = new(backend.Timing)
	}
	defer func() { e.Done(start, timing.InputEnd, timing.OutputStart, time.Now()) }() // even if the model panics
	o.Instance.Execute(ctx, jobs)
}

// look notes where the instance runs if that has changed.
func (o *observed) look() {
	name, fallbacks, reason := o.provider.Provider()
	now := o.shown
	now.Provider, now.Fallbacks, now.Reason = name, fallbacks, ""
	if reason != nil {
		now.Reason = reason.Error()
	}
	if o.noted && now == o.shown {
		return
	}
	o.shown, o.noted = now, true
	o.observer.mu.Lock()
	defer o.observer.mu.Unlock()
	if o.observer.instances == nil {
		o.observer.instances = make(map[*observed]metrics.Instance)
	}
	o.observer.instances[o] = now
}

// MemoryBytes implements backend.Sized.
func (o *observed) MemoryBytes() uint64 {
	if s, ok := o.Instance.(backend.Sized); ok {
		return s.MemoryBytes()
	}
	return 0
}

// Retire implements backend.Retirer.
func (o *observed) Retire() {
	if r, ok := o.Instance.(backend.Retirer); ok {
		r.Retire()
	}
}

// Close implements backend.Instance.
func (o *observed) Close() error {
	o.observer.mu.Lock()
	delete(o.observer.instances, o)
	o.observer.mu.Unlock()
	return o.Instance.Close()
}

// instanceMetadata tells gRPC clients what instances tells those of HTTP.
func (s *Server) instanceMetadata(model string) []*inference.ModelMetadataResponse_InstanceMetadata {
	var out []*inference.ModelMetadataResponse_InstanceMetadata
	for _, in := range s.instances(model) {
		out = append(out, &inference.ModelMetadataResponse_InstanceMetadata{
			Name: in.Name, Version: in.Version, Provider: in.Provider, Fallbacks: int64(in.Fallbacks), Reason: in.Reason,
		})
	}
	return out
}

// instances tell HTTP clients where a model's instances run.
func (s *Server) instances(model string) []v2http.Instance {
	var out []v2http.Instance
	for _, in := range s.observer.list(model) {
		out = append(out, v2http.Instance{
			Name: in.Name, Version: strconv.FormatInt(in.Version, 10), Provider: in.Provider, Fallbacks: in.Fallbacks, Reason: in.Reason, Note: note(in.Provider),
		})
	}
	return out
}

// note marks the providers that have never been tried where this server was made.
func note(provider string) string {
	first, _, _ := strings.Cut(provider, ",")
	if slices.Contains([]string{"cuda", "tensorrt", "openvino", "xnnpack"}, first) {
		return "untested on hardware"
	}
	return ""
}

// queueBudget is how long requests of a model may queue: what its parameter queue_budget_ms says, or else its
// default time-out, or else the delay it may wait for a batch.
func (s *Server) queueBudget(model string, version int64) time.Duration {
	info, err := s.repo.Model(model, version)
	if err != nil {
		return 0
	}
	if p := info.Config.GetParameters()["queue_budget_ms"]; p != nil {
		if ms, err := strconv.ParseFloat(p.GetStringValue(), 64); err == nil {
			return time.Duration(ms * float64(time.Millisecond))
		}
	}
	d := info.Config.GetDynamicBatching()
	us := d.GetDefaultQueuePolicy().GetDefaultTimeoutMicroseconds()
	if us == 0 {
		us = d.GetMaxQueueDelayMicroseconds()
	}
	return time.Duration(us) * time.Microsecond
}
