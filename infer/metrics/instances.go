package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vedette/vedette/infer/stats"
)

// Instance is a loaded copy of a model that tells where it runs.
type Instance struct {
	Model   string
	Version int64
	Name    string
	// Provider is where it really runs: cpu, or the accelerator before it.
	Provider string
	// Fallbacks counts how often an accelerator was given up; Reason is why it is not in use now.
	Fallbacks int
	Reason    string
}

// instances collects where instances run.
type instances struct{ list func() []Instance }

func (*instances) Describe(chan<- *prometheus.Desc) {}

func (i *instances) Collect(ch chan<- prometheus.Metric) {
	for _, in := range i.list() {
		l := prometheus.Labels{"model": in.Model, "version": strconv.FormatInt(in.Version, 10), "instance": in.Name}
		emit(ch, family{name: "vedette_instance_fallbacks_total", help: "Times the instance gave up an accelerator and went on with the processor"}, l, float64(in.Fallbacks))
		l["provider"] = in.Provider
		emit(ch, family{name: "vedette_instance_provider", help: "1 for the execution provider that the instance really runs on", gauge: true}, l, 1)
	}
}

// budgets compares how long requests queue with how long they may: what an autoscaler needs to know.
type budgets struct {
	cfg Config

	mu   sync.Mutex
	last map[key]*period
}

type key struct {
	model   string
	version int64
}

// period is the stretch of time a ratio is of.
type period struct {
	begin time.Time
	queue stats.Duration
	mean  time.Duration
}

func (*budgets) Describe(chan<- *prometheus.Desc) {}

func (b *budgets) Collect(ch chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := make(map[key]*period)
	for _, s := range b.cfg.Models() {
		budget := b.cfg.QueueBudget(s.Name, s.Version)
		if budget <= 0 {
			continue
		}
		k := key{s.Name, s.Version}
		p := b.last[k]
		if p == nil || s.Queue.Count < p.queue.Count {
			p = &period{queue: stats.Duration{}} // new, or loaded again
		}
		if now := time.Now(); now.Sub(p.begin) >= b.cfg.Interval {
			p.mean = 0
			if n := s.Queue.Count - p.queue.Count; n > 0 {
				p.mean = (s.Queue.Total - p.queue.Total) / time.Duration(n)
			}
			p.begin, p.queue = now, s.Queue
		}
		seen[k] = p
		l := labels(&s)
		emit(ch, family{name: "vedette_inference_queue_budget_seconds", help: "How long requests of the model may queue", gauge: true}, l, budget.Seconds())
		emit(ch, family{
			name: "vedette_inference_queue_budget_ratio", gauge: true,
			help: "Mean time in the queue of late, as a share of the budget: above 1 the model needs more instances or machines",
		}, l, float64(p.mean)/float64(budget))
	}
	b.last = seen
}
