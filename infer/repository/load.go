package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vedette/vedette/infer"
)

// Load implements infer.Catalog.
func (r *Repository) Load(ctx context.Context, name string, opts infer.LoadOptions) error {
	if opts.Replace {
		return r.replace(ctx, name)
	}
	if err := r.controllable(name); err != nil {
		return err
	}
	id, err := r.resolve(ctx, name)
	if err != nil {
		return err
	}
	var p *plan
	switch {
	case opts.Config == "" && len(opts.Files) > 0:
		return infer.Errorf(infer.InvalidArgument, "Load parameter 'config' must be specified for model file override")
	case opts.Config != "":
		p, err = r.override(ctx, id, opts)
	default:
		p, err = r.read(ctx, id)
	}
	if err == nil {
		defer p.drop()
		err = r.loadDependencies(ctx, p, nil)
	}
	if err != nil {
		if r.exists(ctx, id) {
			r.noteFailure(id, err)
		}
		return asLoadError(name, err)
	}
	if err := r.apply(ctx, p); err != nil {
		return err
	}
	r.unknown.Store(false) // from now on the client says what is served
	r.refreshEnsembles(ctx)
	return nil
}

// replace loads what serves once more, from the same files, and swaps.
func (r *Repository) replace(ctx context.Context, name string) error {
	m := (*r.table.Load())[name]
	if m == nil || len(m.ready) == 0 {
		return infer.Errorf(infer.NotFound, "model '%s' has no instances to replace", name)
	}
	p := r.held(m.ready[0])
	if p == nil {
		return infer.Errorf(infer.Unavailable, "model '%s' is being replaced already", name)
	}
	defer p.drop()
	if err := r.apply(ctx, p); err != nil {
		return err
	}
	r.refreshEnsembles(ctx)
	return nil
}

// held is what a version was loaded from, held; nil if that is gone.
func (r *Repository) held(v *version) *plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !v.plan.hold() {
		return nil
	}
	return v.plan
}

func (r *Repository) controllable(name string) error {
	if r.cfg.Mode != ModeExplicit {
		return infer.Errorf(infer.Unavailable, "explicit model load / unload is not allowed if polling is enabled")
	}
	if r.stopping.Load() {
		return infer.Errorf(infer.Unavailable, "Server exiting")
	}
	select {
	case <-r.started:
	default:
		return infer.Errorf(infer.Unavailable, "Server not ready")
	}
	return validName(name)
}

// asLoadError keeps the class of errors that have one.
func asLoadError(name string, err error) error {
	if e, ok := errors.AsType[*infer.Error](err); ok {
		return e
	}
	return infer.Errorf(infer.InvalidArgument, "load failed for model '%s': %v", name, err)
}

// exists tells whether there is a model to keep a failure of: a name that somebody made up is none.
func (r *Repository) exists(ctx context.Context, id string) bool {
	r.mu.Lock()
	known := r.models[id] != nil
	r.mu.Unlock()
	for _, root := range r.roots {
		if !known && r.identify(root.String(), r.base(id)) == id {
			_, err := root.print(ctx, r.base(id))
			known = !errors.Is(err, errNoModel)
		}
	}
	return known
}

// noteFailure records why a model that has nothing to serve has nothing; one that serves goes on as it is.
func (r *Repository) noteFailure(name string, err error) {
	m := r.entry(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logger.Error("model cannot be loaded", slog.String("model", name), slog.Any("err", err))
	if len(m.ready) > 0 {
		return
	}
	m.wanted = true
	m.failed = err.Error()
	r.publishLocked()
}

func (r *Repository) serves(name string) bool {
	m := (*r.table.Load())[name]
	return m != nil && len(m.ready) > 0
}

// apply loads what a plan asks for beside what serves, and then swaps.
func (r *Repository) apply(ctx context.Context, p *plan) error {
	m := r.entry(p.id)
	m.op.Lock()
	defer m.op.Unlock()

	r.mu.Lock()
	// A plan that versions live from already is applied again on purpose.
	unchanged := !p.applied && p.print != "" && p.print == m.print && len(m.ready) > 0
	if !unchanged {
		m.wanted, m.failed = true, ""
		for _, number := range p.versions {
			if m.serving(number) == nil {
				m.states[number] = versionState{state: stateLoading}
			}
		}
		r.publishLocked()
	}
	r.mu.Unlock()
	if unchanged {
		return nil
	}
	if !p.applied && r.resizable(m, p) {
		return r.resize(ctx, m, p)
	}
	start := time.Now()
	fresh, faults := r.build(ctx, p)
	if len(faults) == 0 {
		handed := r.handOver(m, fresh)
		defer handed()
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping.Load() {
		// Nobody would close what is loaded now.
		for _, number := range p.versions {
			faults[number] = infer.Errorf(infer.Unavailable, "Server exiting")
		}
	}
	if len(faults) > 0 {
		return r.failLocked(m, p, fresh, faults)
	}
	old := m.ready
	m.ready, m.cfg, m.print, p.applied = fresh, p.cfg, p.print, true
	for number := range m.states {
		if !slices.Contains(p.versions, number) {
			m.states[number] = versionState{state: stateUnavailable, reason: "unloaded"}
		}
	}
	for _, v := range fresh {
		m.states[v.number] = versionState{state: stateReady}
		v.stats.Loaded(time.Since(start))
		r.running.Go(func() { v.serve(r.ctx) })
	}
	r.publishLocked()
	for _, v := range old {
		v.begin()
	}
	r.logger.Info("model is ready", slog.String("model", m.name), slog.Any("versions", p.versions))
	return nil
}

func (m *model) serving(number int64) *version {
	for _, v := range m.ready {
		if v.number == number {
			return v
		}
	}
	return nil
}

// failLocked ends a load that did not work out: what served before still does.
func (r *Repository) failLocked(m *model, p *plan, fresh []*version, faults map[int64]error) error {
	for _, v := range fresh {
		v.free()
	}
	if len(m.ready) == 0 {
		m.cfg = p.cfg
	}
	var b strings.Builder
	for _, number := range p.versions {
		if m.serving(number) == nil {
			m.states[number] = versionState{state: stateUnavailable, reason: "unloaded"}
		}
		err := faults[number]
		if err == nil {
			continue
		}
		r.logger.Error("model cannot be loaded", slog.String("model", m.name), slog.Int64("version", number), slog.Any("err", err))
		if m.serving(number) == nil {
			m.states[number] = versionState{state: stateUnavailable, reason: err.Error()}
		}
		fmt.Fprintf(&b, "version %d is at UNAVAILABLE state: %v;\n", number, err)
	}
	r.publishLocked()
	return infer.Errorf(infer.InvalidArgument, "load failed for model '%s': %s", p.name, b.String())
}

// Unload implements infer.Catalog.
func (r *Repository) Unload(ctx context.Context, name string, dependents bool) error {
	if err := r.controllable(name); err != nil {
		return err
	}
	id, err := r.resolve(ctx, name)
	if err != nil {
		return err
	}
	r.unload(ctx, id, dependents)
	r.refreshEnsembles(ctx)
	return nil
}

func (r *Repository) unload(ctx context.Context, name string, dependents bool) {
	r.mu.Lock()
	m := r.models[name]
	r.mu.Unlock()
	if m == nil {
		return
	}
	m.op.Lock()
	r.mu.Lock()
	cfg := m.cfg
	m.wanted, m.failed, m.print = false, "", ""
	r.retireLocked(m)
	r.mu.Unlock()
	m.op.Unlock()
	if !dependents {
		return
	}
	for _, part := range r.parts(ctx, name, cfg) {
		r.unload(ctx, part, true)
	}
}

// retireLocked takes a model's versions out of service.
func (r *Repository) retireLocked(m *model) {
	old := m.ready
	m.ready = nil
	for number := range m.states {
		m.states[number] = versionState{state: stateUnavailable, reason: "unloaded"}
	}
	for _, v := range old {
		m.states[v.number] = versionState{state: stateUnloading}
	}
	r.publishLocked()
	for _, v := range old {
		v.begin()
	}
}

// retired notes that the last request of an unloaded version was answered.
func (r *Repository) retired(v *version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.models[v.id]
	if m.serving(v.number) == nil && m.states[v.number].state == stateUnloading {
		m.states[v.number] = versionState{state: stateUnavailable, reason: "unloaded"}
		r.publishLocked()
	}
}

// closeAll ends the service of everything: ensembles before what they are made
// of, so that their requests under way can finish.
func (r *Repository) closeAll(ctx context.Context) {
	var plain []*version
	byDepth := make(map[int][]*version)
	for _, m := range r.sorted() {
		for _, v := range m.ready {
			if v.sched != nil {
				plain = append(plain, v)
				continue
			}
			d := r.depth(ctx, v)
			byDepth[d] = append(byDepth[d], v)
		}
	}
	for _, d := range slices.Backward(slices.Sorted(maps.Keys(byDepth))) {
		for _, v := range byDepth[d] {
			v.begin()
		}
		for _, v := range byDepth[d] {
			<-v.closed
		}
	}
	for _, v := range plain {
		v.sched.Stop()
	}
}

// depth is how many ensembles are nested below one.
func (r *Repository) depth(ctx context.Context, v *version) int {
	d := 0
	for i, part := range r.parts(ctx, v.id, v.cfg) {
		if below, err := r.find(part, v.cfg.GetEnsembleScheduling().GetStep()[i].GetModelVersion()); err == nil {
			d = max(d, 1+r.depth(ctx, below))
		}
	}
	return d
}

// loadAtStart loads what the mode asks for and says what failed.
func (r *Repository) loadAtStart(ctx context.Context) error {
	var ids []string
	var faults []error
	if r.cfg.Mode != ModeExplicit || slices.Equal(r.cfg.Startup, []string{"*"}) {
		var err error
		if ids, _, err = r.candidates(ctx); err != nil {
			r.logger.Error("not every model is known", slog.Any("err", err))
			faults = append(faults, err)
			r.unknown.Store(true)
		} else if len(ids) == 0 {
			r.logger.Warn("there is no model in the repositories", slog.Any("repositories", r.roots))
		}
	} else {
		for _, name := range r.cfg.Startup {
			id, err := r.resolve(ctx, name)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			ids = append(ids, id)
		}
	}
	return errors.Join(append(faults, r.loadAll(ctx, ids))...)
}

// loadAll loads models side by side, and each ensemble after what it is made
// of, so that a model that hangs holds up only what needs it.
func (r *Repository) loadAll(ctx context.Context, names []string) error {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	plans := make([]*plan, len(names))
	faults := make([]error, len(names))
	done := make(map[string]chan struct{})
	for _, name := range names {
		done[name] = make(chan struct{})
	}
	var reads, loads errgroup.Group
	reads.SetLimit(r.cfg.LoadThreads) // of stores that may be slow
	turns := make(chan struct{}, r.cfg.LoadThreads)
	for i, name := range names {
		reads.Go(func() error {
			p, err := r.readNamed(ctx, name)
			if err != nil {
				r.noteFailure(name, err)
				faults[i] = fmt.Errorf("model '%s': %w", name, err)
				close(done[name])
				return nil
			}
			plans[i] = p
			if p.cfg.GetEnsembleScheduling() == nil {
				loads.Go(func() error {
					defer close(done[name])
					turns <- struct{}{}
					defer func() { <-turns }()
					faults[i] = r.retry(ctx, p)
					return nil
				})
			}
			return nil
		})
	}
	_ = reads.Wait() // faults are kept one by one
	known := make(map[string]*plan)
	for i, p := range plans {
		if p != nil {
			defer p.drop()
			known[names[i]] = p
		} else if infer.CodeOf(faults[i]) == infer.Unavailable {
			r.tried[names[i]] = r.tried[names[i]].later(r.cfg.PollInterval)
		}
	}
	for i, p := range plans {
		if p == nil || p.cfg.GetEnsembleScheduling() == nil {
			continue
		}
		loads.Go(func() error {
			for _, part := range r.leaves(ctx, p, known, make(map[string]bool)) {
				<-done[part]
			}
			if faults[i] = r.loadDependencies(ctx, p, nil); faults[i] == nil {
				faults[i] = r.apply(ctx, p)
			} else {
				r.noteFailure(p.id, faults[i])
			}
			return nil
		})
	}
	_ = loads.Wait()
	return errors.Join(faults...)
}

func (r *Repository) readNamed(ctx context.Context, name string) (*plan, error) {
	if err := validName(r.base(name)); err != nil {
		return nil, err
	}
	return r.read(ctx, name)
}

func (r *Repository) retry(ctx context.Context, p *plan) error {
	err := r.apply(ctx, p)
	for n := 0; err != nil && n < r.cfg.LoadRetries && ctx.Err() == nil; n++ {
		err = r.apply(ctx, p)
	}
	return err
}

// poll follows the directories until ctx ends.
func (r *Repository) poll(ctx context.Context) {
	if r.cfg.Mode != ModePoll {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(r.cfg.PollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.pollOnce(ctx)
		}
	}
}

// attempt is a load of poll mode. A model that cannot be loaded is left alone until its files change, one that could not
// be copied from its store for a while that doubles.
type attempt struct {
	print string    // of the files
	again time.Time // zero: when they change
	wait  time.Duration
}

func (a attempt) later(every time.Duration) attempt {
	a.wait = min(max(2*a.wait, every), max(every, 5*time.Minute))
	a.again = time.Now().Add(a.wait)
	return a
}

func (r *Repository) pollOnce(ctx context.Context) {
	names, all, err := r.candidates(ctx)
	if err != nil {
		// What cannot be read now may be there later: nothing is unloaded for it.
		r.logger.Error("a repository is not followed", slog.Any("err", err))
	} else {
		r.unknown.Store(false)
	}
	prints := make(map[string]string)
	for _, m := range r.sorted() {
		prints[m.name] = m.print
		if err == nil && !slices.Contains(names, m.name) && m.wanted {
			r.unload(ctx, m.name, false)
			delete(r.tried, m.name) // it may come back as it was
		}
	}
	var changed []string
	for _, name := range names {
		now := all[name].print
		if now == "" {
			if root, err := r.locate(ctx, name); err == nil {
				now, _ = root.print(ctx, r.base(name)) // empty where it went away meanwhile
			}
		}
		before := r.tried[name]
		switch {
		case now == "" || now == prints[name]:
		case now != before.print:
			r.tried[name] = attempt{print: now}
			changed = append(changed, name)
		case !before.again.IsZero() && time.Now().After(before.again):
			changed = append(changed, name)
		}
	}
	if len(changed) > 0 {
		_ = r.loadAll(ctx, changed) // noted with the models
	}
	r.refreshEnsembles(ctx)
}

func versionDir(dir string, number int64) string {
	return filepath.Join(dir, strconv.FormatInt(number, 10))
}
