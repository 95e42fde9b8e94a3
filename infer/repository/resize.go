package repository

import (
	"context"
	"log/slog"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/modelconfig"
)

// resizable tells whether a plan differs from what serves in its instance
// groups at most: then instances come and go, and whatever else the versions
// have stays as it is.
func (r *Repository) resizable(m *model, p *plan) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(m.ready) != len(p.versions) || p.content == "" {
		return false
	}
	for i, v := range m.ready {
		if v.number != p.versions[i] || v.sched == nil || v.decoupled || v.closing.Load() ||
			v.plan.content != p.content || !modelconfig.EqualButInstances(v.plan.cfg, p.cfg) {
			return false
		}
	}
	return true
}

// resize changes the instances of every version of a model in place.
func (r *Repository) resize(ctx context.Context, m *model, p *plan) error {
	r.mu.Lock()
	versions := slices.Clone(m.ready)
	r.mu.Unlock()
	var all []*exchange
	faults := make(map[int64]error)
	for _, v := range versions {
		x, err := v.prepare(ctx, p)
		if err != nil {
			faults[v.number] = err
			continue
		}
		all = append(all, x)
	}
	r.mu.Lock()
	if len(faults) > 0 {
		for _, x := range all {
			x.abandon()
		}
		defer r.mu.Unlock()
		return r.failLocked(m, p, nil, faults)
	}
	for _, x := range all {
		x.applyLocked(p)
		x.v.logger.Info("instances are exchanged", slog.Int("count", len(x.fresh)), slog.Int("removed", len(x.removed)))
	}
	m.cfg, m.print, m.failed, p.applied = p.cfg, p.print, "", true
	r.publishLocked()
	r.mu.Unlock()
	for _, x := range all {
		x.v.sched.Resize(x.add, x.leave)
	}
	return nil
}

// exchange is a change of a version's instances that is prepared.
type exchange struct {
	v       *version
	cfg     *inference.ModelConfig // normalised
	fresh   []*instance
	removed []*instance

	add   int // for the scheduler
	leave []int
}

// prepare loads the instances a version lacks for a new configuration.
func (v *version) prepare(ctx context.Context, p *plan) (x *exchange, err error) {
	x = &exchange{v: v, cfg: clone(v.cfg)}
	x.cfg.InstanceGroup = clone(p.cfg).GetInstanceGroup()
	machine := modelconfig.Machine{GPUs: v.repo.cfg.GPUs}
	modelconfig.Normalise(x.cfg, machine)
	if err := modelconfig.Validate(x.cfg, machine); err != nil {
		return nil, err
	}
	be := v.repo.cfg.Backends[x.cfg.GetBackend()]
	rest := slices.DeleteFunc(slices.Clone(v.loaded()), func(in *instance) bool { return in.leaves })
	passive := true
	for _, at := range placements(x.cfg, v.repo.cfg.Cores) {
		passive = passive && at.Passive
		i := slices.IndexFunc(rest, func(in *instance) bool { return serves(in, at, x.cfg) })
		if i >= 0 {
			rest = slices.Delete(rest, i, i+1)
			continue
		}
		in, err := v.instance(ctx, be, x.cfg, at)
		if err != nil {
			x.abandon()
			return nil, err
		}
		x.fresh = append(x.fresh, in)
	}
	if passive {
		x.abandon()
		return nil, v.allPassive()
	}
	x.removed = rest
	return x, nil
}

// serves tells whether an instance can take a place. One with more threads than
// its share would take the cores of the others.
func serves(in *instance, at backend.Placement, cfg *inference.ModelConfig) bool {
	return in.name == at.Name && in.at.Kind == at.Kind && in.at.GPU == at.GPU && in.at.Passive == at.Passive &&
		in.at.CPUThreads <= at.CPUThreads && slices.Equal(in.at.Profiles, at.Profiles) &&
		slices.EqualFunc(in.at.Secondary, at.Secondary, func(a, b *inference.ModelInstanceGroup_SecondaryDevice) bool { return proto.Equal(a, b) }) &&
		proto.Equal(in.group.GetRateLimiter(), groupOf(cfg, at.Group).GetRateLimiter())
}

func (x *exchange) abandon() {
	for _, in := range x.fresh {
		x.v.close(in)
	}
}

// applyLocked puts the instances in place; the scheduler is still to be told.
// Those that are removed go when they have finished what they have.
func (x *exchange) applyLocked(p *plan) {
	v := x.v
	v.resizing.Lock()
	defer v.resizing.Unlock()
	if v.closing.Load() || !p.hold() { // the server stops
		x.abandon()
		return
	}
	v.plan.drop()
	v.plan = p
	info := *v.info
	info.Config = x.cfg
	v.info = &info

	active := slices.Clone(*v.active.Load())
	for _, in := range x.fresh {
		if !in.at.Passive {
			active = append(active, in)
			x.add++
		}
	}
	// Those that leave stay in the list until they are gone.
	all := slices.Concat(v.loaded(), x.fresh)
	for _, in := range x.removed {
		in.leaves = true
		if in.at.Passive {
			v.close(in)
			all = slices.DeleteFunc(all, func(other *instance) bool { return other == in })
			continue
		}
		x.leave = append(x.leave, slices.Index(active, in))
	}
	v.active.Store(&active)
	v.instances.Store(&all)
}

// gone closes an instance that finished what it had.
func (v *version) gone(index int) {
	v.repo.running.Go(func() {
		v.resizing.Lock()
		defer v.resizing.Unlock()
		all := v.loaded()
		i := slices.Index(all, v.at(index))
		if i < 0 {
			return // the whole version was freed
		}
		rest := slices.Delete(slices.Clone(all), i, i+1)
		v.instances.Store(&rest)
		v.close(all[i])
	})
}
