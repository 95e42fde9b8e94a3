package repository

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// The states of the repository index.
const (
	stateReady       = "READY"
	stateUnavailable = "UNAVAILABLE"
	stateLoading     = "LOADING"
	stateUnloading   = "UNLOADING"
)

// model is what the repository remembers of a name. The fields behind op are
// guarded by Repository.mu, like the map the model is in.
type model struct {
	name string
	op   *sync.Mutex // one load or unload of it at a time

	wanted bool // loaded, or tried to, and not unloaded since
	states map[int64]versionState
	ready  []*version // ascending
	cfg    *inference.ModelConfig
	print  string // of the files it was loaded from; empty: by override
	failed string // why there is no version at all
}

type versionState struct{ state, reason string }

// shown is what requests see of a model; it never changes.
type shown struct {
	ready  []*version // ascending
	states map[int64]versionState
	alias  bool // it stands under the name of the only model that has it
	models int  // how many have the name, where that is not one: the rest is empty
}

// publishLocked shows requests the state of all models.
func (r *Repository) publishLocked() {
	r.published.Add(1)
	t := make(map[string]*shown, len(r.models))
	for name, m := range r.models {
		if len(m.states) == 0 && len(m.ready) == 0 {
			continue
		}
		s := &shown{ready: slices.Clone(m.ready), states: maps.Clone(m.states)}
		var numbers []string
		for _, v := range s.ready {
			numbers = append(numbers, strconv.FormatInt(v.number, 10))
		}
		for _, v := range s.ready {
			info := *v.info
			info.Versions = numbers
			v.shown.Store(&info)
		}
		t[name] = s
		if base := r.base(name); base != name {
			if other := t[base]; other != nil {
				t[base] = &shown{alias: true, models: other.models + 1}
			} else {
				t[base] = &shown{ready: s.ready, states: s.states, alias: true, models: 1}
			}
		}
	}
	r.table.Store(&t)
}

// find picks the version a request is for.
func (r *Repository) find(name string, number int64) (*version, error) {
	m := (*r.table.Load())[name]
	if m == nil {
		code := infer.NotFound
		if r.cfg.Namespaces {
			code = infer.InvalidArgument
		}
		return nil, infer.Errorf(code, "Request for unknown model: '%s' is not found", name)
	}
	if m.models > 1 {
		return nil, ambiguous(name, m.models)
	}
	if number <= 0 {
		if n := len(m.ready); n > 0 {
			return m.ready[n-1], nil
		}
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' has no available versions", name)
	}
	for _, v := range m.ready {
		if v.number == number {
			return v, nil
		}
	}
	if _, known := m.states[number]; known {
		return nil, infer.Errorf(infer.Unavailable, "Request for unknown model: '%s' version %d is not at ready state", name, number)
	}
	return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' version %d is not found", name, number)
}

// sorted lists the models by name.
func (r *Repository) sorted() []model {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []model
	for _, m := range r.models {
		out = append(out, model{
			name: m.name, wanted: m.wanted, states: maps.Clone(m.states), ready: slices.Clone(m.ready),
			cfg: m.cfg, print: m.print, failed: m.failed,
		})
	}
	slices.SortFunc(out, func(a, b model) int { return cmp.Compare(a.name, b.name) })
	return out
}

// entry is the model of a name, made if need be.
func (r *Repository) entry(name string) *model {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.models[name]
	if m == nil {
		m = &model{name: name, op: new(sync.Mutex), states: make(map[int64]versionState)}
		r.models[name] = m
	}
	return m
}

// Server implements infer.Catalog.
func (r *Repository) Server() infer.ServerInfo {
	return infer.ServerInfo{
		Name: r.cfg.Name, Version: r.cfg.Version, Stopping: r.stopping.Load(),
		Extensions: []string{
			"classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy",
			"model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data", "parameters",
			"statistics", "trace", "logging",
		},
	}
}

// Ready implements infer.Catalog.
func (r *Repository) Ready(context.Context) bool {
	select {
	case <-r.loaded:
	default:
		return false
	}
	if r.stopping.Load() {
		return false
	}
	if r.cfg.LooseReadiness {
		return true
	}
	if r.unknown.Load() {
		return false
	}
	for _, m := range r.sorted() {
		if m.wanted && len(m.ready) == 0 {
			return false
		}
		for _, s := range m.states {
			if s.state != stateReady && (s.state != stateUnavailable || s.reason != "unloaded") {
				return false
			}
		}
	}
	return true
}

// Model implements infer.Catalog.
func (r *Repository) Model(name string, number int64) (*infer.ModelInfo, error) {
	v, err := r.find(name, number)
	if err != nil {
		return nil, err
	}
	return v.shown.Load(), nil
}

// ModelReady implements infer.Catalog.
func (r *Repository) ModelReady(name string, number int64) (bool, error) {
	_, err := r.find(name, number)
	switch {
	case err == nil:
		return true, nil
	case infer.CodeOf(err) == infer.Unavailable:
		return false, nil
	}
	return false, err
}

// indexPatience is what a store gets to say what else it holds: what was tried is known without it.
const indexPatience = 2 * time.Second

// Index implements infer.Catalog.
func (r *Repository) Index(readyOnly bool) []infer.IndexEntry {
	known := make(map[string]bool)
	var out []infer.IndexEntry
	for _, m := range r.sorted() {
		if len(m.states) == 0 && m.failed == "" {
			continue // named as what it is on disk, if there
		}
		known[m.name] = true
		if len(m.states) == 0 && !readyOnly {
			out = append(out, infer.IndexEntry{Name: r.base(m.name), State: stateUnavailable, Reason: m.failed})
		}
		for _, number := range slices.Sorted(maps.Keys(m.states)) {
			s := m.states[number]
			if readyOnly && s.state != stateReady {
				continue
			}
			out = append(out, infer.IndexEntry{Name: r.base(m.name), Version: strconv.FormatInt(number, 10), State: s.state, Reason: s.reason})
		}
	}
	if !readyOnly {
		ctx, cancel := context.WithTimeout(r.life(), indexPatience)
		all, err := r.list(ctx)
		cancel()
		if err != nil {
			r.logger.Error("the index is not complete", slog.Any("err", err))
		}
		for name, l := range all {
			switch {
			case known[name]:
			case l.twice:
				out = append(out, infer.IndexEntry{Name: r.base(name), State: stateUnavailable, Reason: duplicate})
			case !l.model:
				out = append(out, infer.IndexEntry{Name: r.base(name), Reason: cmp.Or(l.why, noModel)})
			default:
				out = append(out, infer.IndexEntry{Name: r.base(name)})
			}
		}
	}
	for i := range out {
		out[i].Reason = strings.ToValidUTF8(out[i].Reason, "\uFFFD") // gRPC carries nothing else, and libraries quote files
	}
	slices.SortStableFunc(out, func(a, b infer.IndexEntry) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Statistics implements infer.Catalog.
func (r *Repository) Statistics(name string, number int64) ([]*inference.ModelStatistics, error) {
	t := *r.table.Load()
	var out []*inference.ModelStatistics
	if name == "" {
		for _, n := range slices.Sorted(maps.Keys(t)) {
			if t[n].alias {
				continue
			}
			for _, v := range t[n].ready {
				out = append(out, v.snapshot().Proto())
			}
		}
		return out, nil
	}
	m := t[name]
	if m == nil || len(m.ready) == 0 {
		return nil, infer.Errorf(infer.InvalidArgument, "requested model '%s' is not available", name)
	}
	for _, v := range m.ready {
		if number <= 0 || v.number == number {
			out = append(out, v.snapshot().Proto())
		}
	}
	if len(out) == 0 {
		return nil, infer.Errorf(infer.InvalidArgument, "requested model version is not available for model '%s'", name)
	}
	return out, nil
}

// Sequences implements infer.Catalog.
func (r *Repository) Sequences() []infer.SequenceInfo {
	var out []infer.SequenceInfo
	for _, m := range r.sorted() {
		for _, v := range m.ready {
			if v.sched == nil {
				continue
			}
			for _, s := range v.sched.Sequences() {
				s.Model, s.Version = v.name, v.number
				if s.Slot >= 0 {
					s.Instance = v.at(s.Index).name
				}
				out = append(out, s)
			}
		}
	}
	return out
}
