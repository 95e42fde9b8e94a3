package schedule

import (
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// dynamic is the policy of models without state: requests run in the order of
// priority and arrival on any instance, joined to batches if so configured.
type dynamic struct {
	batcher  *batcher
	hold     int
	stopping bool
}

func newDynamic(cfg Config, dyn *inference.ModelDynamicBatching, reject func(*Job, *infer.Error)) *dynamic {
	if dyn == nil {
		return &dynamic{batcher: newBatcher(0, nil, 0, cfg, reject), hold: cfg.HoldQueued}
	}
	delay := time.Duration(dyn.GetMaxQueueDelayMicroseconds()) * time.Microsecond
	b := newBatcher(int(cfg.Model.GetMaxBatchSize()), dyn.GetPreferredBatchSize(), delay, cfg, reject)
	b.levels = make([]level, max(1, int(dyn.GetPriorityLevels())))
	for i := range b.levels {
		b.levels[i].policy = dyn.GetDefaultQueuePolicy()
		if p, ok := dyn.GetPriorityQueuePolicy()[uint64(i+1)]; ok {
			b.levels[i].policy = p
		}
	}
	if d := int(dyn.GetDefaultPriorityLevel()); d >= 1 && d <= len(b.levels) {
		b.fallback = d - 1
	}
	return &dynamic{batcher: b, hold: cfg.HoldQueued}
}

func (d *dynamic) enqueue(now time.Time, j *Job) (int, *infer.Error) {
	if d.stopping {
		return nowhere, errStopping()
	}
	return anywhere, d.batcher.push(now, j)
}

func (d *dynamic) done(time.Time, *Job) int { return nowhere }

// reschedule is never called: only sequences are iterative.
func (d *dynamic) reschedule(now time.Time, j *Job) int {
	_ = d.batcher.push(now, j) // a job without priority or time-out always fits
	return anywhere
}

func (d *dynamic) decide(now time.Time, _ int, b *Batch) bool {
	if d.hold > 0 {
		if d.batcher.count < d.hold {
			return false
		}
		d.hold = 0
	}
	return d.batcher.decide(now, b)
}

func (d *dynamic) expire(now time.Time) { d.batcher.expire(now) }

func (d *dynamic) sweep(time.Time) { d.batcher.sweep() }

func (d *dynamic) wake() time.Time { return d.batcher.wake() }

func (d *dynamic) stop() { d.stopping, d.hold = true, 0 }

func (d *dynamic) retire(time.Time) {}

func (d *dynamic) queued() int { return d.batcher.count }

func (d *dynamic) drain(err *infer.Error) {
	for j := d.batcher.first(); j != nil; j = d.batcher.first() {
		d.batcher.remove(j)
		d.batcher.reject(j, err)
	}
}

func (d *dynamic) grow(time.Time) {}

func (d *dynamic) shrink(int) {}

func (d *dynamic) vacant(int) bool { return true }

func (d *dynamic) open() []*Sequence { return nil }

func (d *dynamic) adopt(time.Time, *Sequence) bool { return false }

func (d *dynamic) sequences(time.Time) []infer.SequenceInfo { return nil }
