package schedule

import (
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// oldest joins the oldest requests of an instance's sequences to batches, with
// at most one request of each sequence under way.
type oldest struct {
	q         *sequencer
	cfg       Config
	delay     time.Duration
	preferred []int32
	batchers  []*batcher // by instance
}

func newOldest(q *sequencer, cfg Config, c *inference.ModelSequenceBatching_StrategyOldest) *oldest {
	o := &oldest{q: q, cfg: cfg, delay: time.Duration(c.GetMaxQueueDelayMicroseconds()) * time.Microsecond, preferred: c.GetPreferredBatchSize()}
	if len(o.preferred) == 0 && cfg.Model.GetMaxBatchSize() > 0 {
		o.preferred = []int32{cfg.Model.GetMaxBatchSize()}
	}
	for range cfg.Instances {
		o.grow()
	}
	return o
}

func (o *oldest) grow() {
	b := newBatcher(int(o.cfg.Model.GetMaxBatchSize()), o.preferred, o.delay, o.cfg, o.q.drop)
	b.cancelled = o.cancelled
	o.batchers = append(o.batchers, b)
}

// offer puts the slot's next request into the queue of its instance once the
// one before has its answer.
func (o *oldest) offer(now time.Time, s *slot) {
	r := s.run
	if r == nil || s.inflight > 0 {
		return
	}
	if r.queue.head != nil && r.queue.head.Cancelled() {
		o.q.cancel(now, s) // offers the slot again to whoever moves in
		return
	}
	j := r.queue.pop()
	if j == nil {
		return
	}
	s.inflight++
	s.batching = true
	j.slot = s
	o.q.supersede(r, j)
	enqueued := j.Priority
	j.Priority = 0 // sequences have no priorities: order is what they are for
	_ = o.batchers[s.instance].push(now, j)
	j.Priority = enqueued
	j.deadline = time.Time{}
	if r.ended && r.queue.n == 0 {
		o.q.release(now, s) // who moves in waits for this answer
	}
}

func (o *oldest) decide(now time.Time, instance int, b *Batch) bool {
	n := len(b.Jobs)
	if !o.batchers[instance].decide(now, b) {
		return false
	}
	for _, j := range b.Jobs[n:] {
		o.q.handOut(j, j.slot)
	}
	return true
}

// cancelled ends the sequence of a request that was given up while it waited
// for its batch.
func (o *oldest) cancelled(j *Job) {
	s := j.slot
	s.inflight--
	s.batching = false
	o.q.drop(j, errCancelled())
	switch {
	case s.run != nil && s.run.started == j.Sequence:
		o.q.cancel(time.Now(), s)
	default: // it was its sequence's last; whoever moved in may go on
		o.q.tell(s.instance, j.Sequence, "cancelled")
		o.offer(time.Now(), s)
	}
}

func (o *oldest) sweep() {
	for _, b := range o.batchers {
		b.sweep()
	}
}

func (o *oldest) wake() time.Time {
	var at time.Time
	for _, b := range o.batchers {
		at = earlier(at, b.wake())
	}
	return at
}

func (o *oldest) drain(err *infer.Error) {
	for _, b := range o.batchers {
		for j := b.first(); j != nil; j = b.first() {
			b.remove(j)
			j.slot.inflight--
			j.slot.batching = false
			o.q.drop(j, err)
		}
	}
}
