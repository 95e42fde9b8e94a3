package repository

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// limiter rations executions by named resources that instances hold while they
// run (the rate limiter of the model configuration).
type limiter struct {
	explicit []Resource // totals given by the operator; none: as much as the neediest instance wants

	mu      sync.Mutex
	needs   map[*permit]struct{}
	total   map[resource]int
	used    map[resource]int
	waiting []*permit
	freed   chan struct{} // something was given back; one slot: a second says no more
}

// Resource is how much there is of what instances hold while they run.
type Resource struct {
	Name  string
	Count int
	// Device is where; -1: as much on every device. CPU instances count as
	// device 0. It does not matter for resources that models share over all
	// devices (global).
	Device int
}

// resource is one kind, on one device or on the whole machine.
type resource struct {
	name   string
	device int // everywhere: the machine's
}

const everywhere = -1

// permit is what one instance needs to run.
type permit struct {
	l        *limiter
	needs    map[resource]int
	priority uint64
	runs     uint64
	waiting  bool
	retry    func()
}

func newLimiter(explicit []Resource) *limiter {
	return &limiter{
		explicit: explicit, needs: make(map[*permit]struct{}), total: make(map[resource]int), used: make(map[resource]int),
		freed: make(chan struct{}, 1),
	}
}

// run tells those who wait that there may be something for them, until ctx
// ends.
func (l *limiter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.freed:
		}
		l.mu.Lock()
		waiting := slices.Clone(l.waiting)
		slices.SortStableFunc(waiting, func(a, b *permit) int { return cmp.Compare(a.rank(), b.rank()) })
		l.mu.Unlock()
		for _, p := range waiting {
			p.retry()
		}
	}
}

// tell has run look at those who wait.
func (l *limiter) tell() {
	if len(l.waiting) == 0 {
		return
	}
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// register makes the permit of an instance, or says that it could never run.
func (l *limiter) register(g *inference.ModelInstanceGroup, gpu int) (*permit, error) {
	p := &permit{l: l, needs: make(map[resource]int), priority: uint64(max(g.GetRateLimiter().GetPriority(), 1))}
	for _, r := range g.GetRateLimiter().GetResources() {
		k := resource{r.GetName(), max(gpu, 0)}
		if r.GetGlobal() {
			k.device = everywhere
		}
		p.needs[k] += int(r.GetCount())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, n := range p.needs {
		if limit := l.limit(k); len(l.explicit) > 0 && n > limit {
			return nil, infer.Errorf(infer.InvalidArgument, "Resource count for \"%s\" is limited to %d which will prevent scheduling of one or more model instances, "+
				"the minimum required count is %d", k.name, limit, n)
		}
		for _, known := range []map[resource]int{p.needs, l.total} {
			if k.device == everywhere && slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(o resource) bool { return o.name == k.name && o.device != everywhere }) ||
				k.device != everywhere && known[resource{k.name, everywhere}] > 0 {
				return nil, infer.Errorf(infer.InvalidArgument, "Resource \"%s\" is present as both global and device-specific resource in the model configuration.", k.name)
			}
		}
	}
	l.needs[p] = struct{}{}
	l.totalLocked()
	return p, nil
}

// limit is what the operator says there is of a resource: nothing of one that is not named.
func (l *limiter) limit(k resource) int {
	n := 0
	for _, e := range l.explicit {
		if e.Name == k.name && (e.Device == k.device || e.Device < 0 || k.device == everywhere) {
			n = max(n, e.Count)
		}
	}
	return n
}

// remove forgets an instance.
func (l *limiter) remove(p *permit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.needs, p)
	p.leaveLocked()
	l.totalLocked()
	l.tell()
}

// totalLocked works out how much there is of each resource: what the operator
// said, else as much as the neediest instance wants.
func (l *limiter) totalLocked() {
	clear(l.total)
	for p := range l.needs {
		for k, n := range p.needs {
			l.total[k] = max(l.total[k], n)
		}
	}
	for k := range l.total {
		if len(l.explicit) > 0 {
			l.total[k] = l.limit(k)
		}
	}
}

// rank is the place among those who wait, the lowest first: an instance of
// priority p gets 1/p of the chances.
func (p *permit) rank() uint64 { return (p.runs + 1) * p.priority }

// acquire takes what the instance needs if it is there and nobody who waits for
// some of it comes before.
func (p *permit) acquire(retry func()) bool {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	fits := true
	for k, n := range p.needs {
		fits = fits && l.used[k]+n <= l.total[k]
	}
	if !fits || slices.ContainsFunc(l.waiting, p.yields) {
		if !p.waiting {
			p.waiting, p.retry = true, retry
			l.waiting = append(l.waiting, p)
			if fits {
				l.tell() // whoever comes before may not want it any more
			}
		}
		return false
	}
	p.leaveLocked()
	for k, n := range p.needs {
		l.used[k] += n
	}
	return true
}

// yields tells whether w, who waits, comes before p.
func (p *permit) yields(w *permit) bool {
	if w == p || w.rank() >= p.rank() {
		return false
	}
	for k := range p.needs {
		if _, both := w.needs[k]; both {
			return true
		}
	}
	return false
}

// leaveLocked takes the permit out of those who wait.
func (p *permit) leaveLocked() {
	if p.waiting {
		p.waiting = false
		p.l.waiting = slices.DeleteFunc(p.l.waiting, func(w *permit) bool { return w == p })
	}
}

func (p *permit) release(ran bool) {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if ran {
		p.runs++
	}
	for k, n := range p.needs {
		l.used[k] -= n
	}
	l.tell()
}

// withdraw is for an instance that has nothing to run any more.
func (p *permit) withdraw() {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.waiting {
		p.leaveLocked()
		l.tell()
	}
}

// Acquire implements schedule.Limiter for the instances of a version.
func (v *version) Acquire(instance int, retry func()) bool {
	return v.at(instance).permit.acquire(retry)
}

// Release implements schedule.Limiter.
func (v *version) Release(instance int, ran bool) { v.at(instance).permit.release(ran) }

// Withdraw implements schedule.Limiter.
func (v *version) Withdraw(instance int) { v.at(instance).permit.withdraw() }
