package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/vedette/vedette/api/inference"
)

// limiter rations executions by named resources that instances hold while they
// run (the rate limiter of the model configuration).
type limiter struct {
	explicit map[string]int // totals given by the operator

	mu      sync.Mutex
	needs   map[*permit]struct{}
	total   map[resource]int
	used    map[resource]int
	waiting []*permit
	freed   chan struct{} // something was given back; one slot: a second says no more
}

// resource is one kind, on one device or on the whole machine.
type resource struct {
	name   string
	device int // -1: CPU; -2: everywhere
}

// permit is what one instance needs to run.
type permit struct {
	l        *limiter
	needs    map[resource]int
	priority uint64
	runs     uint64
	waiting  bool
	retry    func()
}

func newLimiter(explicit map[string]int) *limiter {
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
		waiting := l.waiting
		l.waiting = nil
		// An instance of priority p gets 1/p of the chances.
		slices.SortStableFunc(waiting, func(a, b *permit) int {
			return cmp.Compare((a.runs+1)*a.priority, (b.runs+1)*b.priority)
		})
		for _, p := range waiting {
			p.waiting = false
		}
		l.mu.Unlock()
		for _, p := range waiting {
			p.retry()
		}
	}
}

// register makes the permit of an instance, or says that it could never run.
func (l *limiter) register(g *inference.ModelInstanceGroup, gpu int) (*permit, error) {
	p := &permit{l: l, needs: make(map[resource]int), priority: uint64(max(g.GetRateLimiter().GetPriority(), 1))}
	for _, r := range g.GetRateLimiter().GetResources() {
		k := resource{r.GetName(), gpu}
		if r.GetGlobal() {
			k.device = -2
		}
		p.needs[k] += int(r.GetCount())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, n := range p.needs {
		if limit, ok := l.explicit[k.name]; ok && n > limit {
			return nil, fmt.Errorf("Resource count for \"%s\" is limited to %d which will prevent scheduling of one or more model instances, "+ //nolint:staticcheck // clients match it
				"the minimum required count is %d", k.name, limit, n)
		}
	}
	l.needs[p] = struct{}{}
	l.totalLocked()
	return p, nil
}

// remove forgets an instance.
func (l *limiter) remove(p *permit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.needs, p)
	l.waiting = slices.DeleteFunc(l.waiting, func(w *permit) bool { return w == p })
	l.totalLocked()
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
		if n, ok := l.explicit[k.name]; ok {
			l.total[k] = n
		}
	}
}

func (p *permit) acquire(retry func()) bool {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, n := range p.needs {
		if l.used[k]+n <= l.total[k] {
			continue
		}
		if !p.waiting {
			p.waiting, p.retry = true, retry
			l.waiting = append(l.waiting, p)
		}
		return false
	}
	for k, n := range p.needs {
		l.used[k] += n
	}
	p.runs++
	return true
}

func (p *permit) release() {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, n := range p.needs {
		l.used[k] -= n
	}
	if len(l.waiting) > 0 {
		select {
		case l.freed <- struct{}{}:
		default:
		}
	}
}

// Acquire implements schedule.Limiter for the instances of a version.
func (v *version) Acquire(instance int, retry func()) bool {
	return v.at(instance).permit.acquire(retry)
}

// Release implements schedule.Limiter.
func (v *version) Release(instance int) { v.at(instance).permit.release() }
