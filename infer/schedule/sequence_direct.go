package schedule

import (
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// direct gives each sequence one place in the batch for life: the batch index
// is the slot. Idle slots below the highest ready one are padded.
type direct struct {
	q       *sequencer
	delay   time.Duration
	fill    float64 // share of slots that must be ready to run before the delay is over
	padding [][]*Job
	waiting []time.Time // by instance: when its delay ends
}

func newDirect(q *sequencer, d *inference.ModelSequenceBatching_StrategyDirect) *direct {
	s := &direct{
		q: q, delay: time.Duration(d.GetMaxQueueDelayMicroseconds()) * time.Microsecond,
		fill: float64(d.GetMinimumSlotUtilization()),
	}
	for range q.slots {
		s.grow()
	}
	return s
}

func (d *direct) grow() {
	padding := make([]*Job, d.q.perSlots)
	for i := range padding {
		padding[i] = &Job{Null: true, Batch: 1}
	}
	d.padding, d.waiting = append(d.padding, padding), append(d.waiting, time.Time{})
}

func (d *direct) offer(time.Time, *slot) {}

func (d *direct) decide(now time.Time, instance int, b *Batch) bool {
	d.waiting[instance] = time.Time{}
	slots := d.q.slots[instance]
	var first *Job
	ready, highest := 0, 0
	var oldest time.Time
	for _, s := range slots {
		for s.run != nil && s.run.queue.head != nil && s.run.queue.head.Cancelled() {
			d.q.cancel(now, s)
		}
		if s.run == nil || s.run.queue.head == nil {
			continue
		}
		j := s.run.queue.head
		if first == nil {
			first = j
		}
		ready++
		highest = s.index
		oldest = earlier(oldest, j.Enqueued)
	}
	if ready == 0 {
		return false
	}
	if d.delay > 0 && d.fill > 0 && now.Sub(oldest) < d.delay &&
		float64(ready)/float64(len(slots)) < d.fill && !d.q.stopping {
		d.waiting[instance] = oldest.Add(d.delay)
		return false
	}
	for _, s := range slots[:highest+1] {
		r := s.run
		if r == nil || r.queue.head == nil ||
			r.queue.head != first && d.q.cfg.Compatible != nil && !d.q.cfg.Compatible(first, r.queue.head) {
			pad := d.padding[instance][s.index]
			pad.Like = first
			b.Jobs = append(b.Jobs, pad)
			continue
		}
		j := r.queue.pop()
		j.slot = s
		s.inflight++
		d.q.supersede(r, j)
		d.q.handOut(j, s)
		b.Jobs = append(b.Jobs, j)
		if r.ended && r.queue.n == 0 {
			d.q.release(now, s) // who moves in is of the next batch
		}
	}
	return true
}

func (d *direct) sweep() {}

func (d *direct) wake() time.Time {
	var at time.Time
	for _, w := range d.waiting {
		at = earlier(at, w)
	}
	return at
}

func (d *direct) drain(*infer.Error) {}
