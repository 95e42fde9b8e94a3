package repository

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vedette/vedette/api/inference"
)

// loadDependencies loads the models of an ensemble that are not there yet.
func (r *Repository) loadDependencies(ctx context.Context, p *plan, path []string) error {
	path = append(path, p.id)
	for _, name := range r.parts(ctx, p.id, p.cfg) {
		if slices.Contains(path, name) {
			return fmt.Errorf("circular dependency between ensembles: %s -> %s", strings.Join(path, " -> "), name)
		}
		if validName(r.base(name)) != nil || r.serves(name) {
			continue // the ensemble's own check says what is wrong
		}
		d, err := r.read(ctx, name)
		if err != nil {
			r.noteFailure(name, err)
			continue
		}
		if err = r.loadDependencies(ctx, d, path); err == nil {
			_ = r.apply(ctx, d) // noted with the model; the ensemble says it lacks it
		}
		d.drop()
		if err != nil {
			return err
		}
	}
	return nil
}

// leaves are the models that an ensemble is made of in the end, as far as they
// are among the plans.
func (r *Repository) leaves(ctx context.Context, p *plan, plans map[string]*plan, seen map[string]bool) []string {
	var out []string
	for _, name := range r.parts(ctx, p.id, p.cfg) {
		part := plans[name]
		if part == nil || seen[name] {
			continue
		}
		seen[name] = true
		if part.cfg.GetEnsembleScheduling() == nil {
			out = append(out, name)
		} else {
			out = append(out, r.leaves(ctx, part, plans, seen)...)
		}
	}
	return out
}

// refreshEnsembles looks again at ensembles after models came or went: one that
// lost a part cannot serve, one that got it back can, and one whose part is
// another now is checked and made anew. Ensembles of ensembles follow.
func (r *Repository) refreshEnsembles(ctx context.Context) {
	for again, n := true, 0; again && n < 16; n++ {
		again = false
		for _, m := range r.sorted() {
			if m.wanted && m.cfg.GetEnsembleScheduling() != nil && r.refresh(ctx, &m) {
				again = true
			}
		}
	}
}

// refresh tells whether others may have to follow.
func (r *Repository) refresh(ctx context.Context, m *model) bool {
	lacking := r.lacking(ctx, m.name, m.cfg)
	switch {
	case lacking != "" && len(m.ready) > 0:
		r.suspend(m.name, fmt.Sprintf("ensemble '%s' depends on '%s' which has no loaded version", r.base(m.name), lacking))
		return true
	case lacking == "" && len(m.ready) == 0:
		p, err := r.read(ctx, m.name)
		if err != nil {
			return false
		}
		defer p.drop()
		return r.apply(ctx, p) == nil // noted with the model
	case lacking == "" && slices.ContainsFunc(m.ready, func(v *version) bool { return v.ensemble.Stale(r.Model) }):
		p := r.held(m.ready[0])
		if p == nil {
			return true // it was replaced meanwhile
		}
		defer p.drop()
		if err := r.apply(ctx, p); err != nil {
			r.suspend(m.name, err.Error())
		}
		return true
	}
	return false
}

// lacking names a part of an ensemble that has no version to serve.
func (r *Repository) lacking(ctx context.Context, id string, cfg *inference.ModelConfig) string {
	for _, part := range r.parts(ctx, id, cfg) {
		if !r.serves(part) {
			return part
		}
	}
	return ""
}

// suspend takes an ensemble out of service.
func (r *Repository) suspend(name, reason string) {
	m := r.entry(name)
	m.op.Lock()
	defer m.op.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	old := m.ready
	m.ready, m.print = nil, ""
	for _, v := range old {
		m.states[v.number] = versionState{stateUnavailable, reason}
	}
	r.publishLocked()
	for _, v := range old {
		v.begin()
	}
}
