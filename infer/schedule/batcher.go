package schedule

import (
	"slices"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// batcher is a queue of independent requests and the rule by which they are
// joined to batches: the whole of dynamic batching, and half of the oldest
// strategy of sequences.
type batcher struct {
	max          int // largest sum of batch sizes; 0: requests are not joined
	preferred    []int
	maxPreferred int
	delay        time.Duration
	compatible   func(a, b *Job) bool
	reject       func(*Job, *infer.Error)
	// cancelled, if not nil, takes cancelled jobs instead of reject.
	cancelled func(*Job)

	levels   []level
	fallback int // index of the default level
	count    int
	nearest  time.Time // no deadline is earlier; zero: there is none
	waiting  time.Time // when the delay of a batch that could be larger ends
}

// level is one priority: first who waits in time, then who was late.
type level struct {
	policy     *inference.ModelQueuePolicy
	live, late jobs
}

func newBatcher(limit int, preferred []int32, delay time.Duration, cfg Config, reject func(*Job, *infer.Error)) *batcher {
	b := &batcher{max: limit, delay: delay, compatible: cfg.Compatible, reject: reject, levels: make([]level, 1)}
	for _, p := range preferred {
		b.preferred = append(b.preferred, int(p))
		b.maxPreferred = max(b.maxPreferred, int(p))
	}
	return b
}

// push queues a job, or says why not.
func (b *batcher) push(now time.Time, j *Job) *infer.Error {
	j.level = b.fallback
	if p := j.Priority; p > 0 && p <= uint64(len(b.levels)) {
		j.level = int(p) - 1
	}
	lv := &b.levels[j.level]
	if limit := lv.policy.GetMaxQueueSize(); limit > 0 && lv.live.n+lv.late.n >= int(limit) {
		e := infer.Errorf(infer.Unavailable, "Exceeds maximum queue size")
		e.Reason = infer.ReasonRejected
		return e
	}
	j.issued = now
	j.deadline = time.Time{}
	if t := queueTimeout(lv.policy, j.Timeout); t > 0 {
		j.deadline = now.Add(t)
	}
	b.nearest = earlier(b.nearest, j.deadline)
	if b.cancelled == nil { // sequences wait for their turn
		b.nearest = earlier(b.nearest, j.until())
	}
	lv.live.push(j)
	b.count++
	return nil
}

// queueTimeout is the time a request may wait: the policy's, or what the
// request asks for where the policy lets it and that is no longer than the
// policy's own limit. A policy without a limit of its own can be overridden
// too; Triton forgets that case.
func queueTimeout(p *inference.ModelQueuePolicy, asked time.Duration) time.Duration {
	t := time.Duration(p.GetDefaultTimeoutMicroseconds()) * time.Microsecond
	if p.GetAllowTimeoutOverride() && asked > 0 && (t == 0 || asked < t) {
		return asked
	}
	return t
}

// expire acts on the time-outs that have come.
func (b *batcher) expire(now time.Time) {
	if b.nearest.IsZero() || now.Before(b.nearest) {
		return
	}
	b.nearest = time.Time{}
	for i := range b.levels {
		lv := &b.levels[i]
		for j := lv.live.head; j != nil; {
			next := j.next
			switch {
			case j.abandoned(now):
				b.drop(j)
			case j.deadline.IsZero() || j.deadline.After(now):
				b.nearest = earlier(b.nearest, j.until())
			case lv.policy.GetTimeoutAction() == inference.ModelQueuePolicy_DELAY:
				lv.live.remove(j)
				j.deadline = time.Time{}
				lv.late.push(j)
				b.nearest = earlier(b.nearest, j.until())
			default:
				b.remove(j)
				e := infer.Errorf(infer.Unavailable, "Request timeout expired")
				e.Reason = infer.ReasonRejected
				b.reject(j, e)
			}
			j = next
		}
		for j := lv.late.head; j != nil; {
			next := j.next
			if j.abandoned(now) {
				b.drop(j)
			} else {
				b.nearest = earlier(b.nearest, j.until())
			}
			j = next
		}
	}
}

// sweep takes away every job whose client has gone.
func (b *batcher) sweep() {
	for i := range b.levels {
		b.trimAll(b.levels[i].live.head)
		b.trimAll(b.levels[i].late.head)
	}
}

func (b *batcher) trimAll(j *Job) {
	for j != nil {
		next := j.next
		if j.Cancelled() {
			b.drop(j)
		}
		j = next
	}
}

// drop takes away a job whose client has gone.
func (b *batcher) drop(j *Job) {
	b.remove(j)
	if b.cancelled != nil {
		b.cancelled(j)
	} else {
		b.reject(j, errCancelled())
	}
}

// decide appends to b what should run now and tells whether there is anything.
func (b *batcher) decide(now time.Time, out *Batch) bool {
	b.waiting = time.Time{}
	b.expire(now)
	n := b.choose(now)
	for ; n > 0; n-- {
		j := b.first()
		b.remove(j)
		out.Jobs = append(out.Jobs, j)
	}
	return len(out.Jobs) > 0
}

// choose is how many from the head of the queue form the batch to run now.
func (b *batcher) choose(now time.Time) int {
	first := b.first()
	for first != nil && first.Cancelled() {
		b.trim(first)
		first = b.first() // the end of a sequence may have brought another
	}
	if first == nil {
		return 0
	}
	if b.max <= 1 || len(b.preferred) == 0 {
		return 1
	}
	var pending, count, best, bestCount int
	full := false
	oldest := first.issued
	for j := first; j != nil; j = b.trim(b.after(j)) {
		if count > 0 {
			if pending+j.Batch > b.maxPreferred && best == 0 {
				best, bestCount = pending, count
			}
			if pending+j.Batch > b.max || b.compatible != nil && !b.compatible(first, j) {
				full = true
				break
			}
		}
		if j.issued.Before(oldest) {
			oldest = j.issued
		}
		pending += j.Batch
		count++
		if slices.Contains(b.preferred, pending) {
			best, bestCount = pending, count
		}
	}
	over := b.delay > 0 && now.Sub(oldest) >= b.delay
	switch {
	case best != 0 && !over:
		return bestCount
	case full || pending >= b.maxPreferred || over || b.delay == 0:
		return count
	}
	b.waiting = oldest.Add(b.delay)
	return 0
}

// trim removes cancelled jobs from j on and returns the first that is not.
func (b *batcher) trim(j *Job) *Job {
	for j != nil && j.Cancelled() {
		next := b.after(j)
		b.drop(j)
		j = next
	}
	return j
}

// first is the head of the queue in the order in which requests are to run.
func (b *batcher) first() *Job {
	for i := range b.levels {
		if j := b.levels[i].live.head; j != nil {
			return j
		}
		if j := b.levels[i].late.head; j != nil {
			return j
		}
	}
	return nil
}

// after is the job behind j in that order.
func (b *batcher) after(j *Job) *Job {
	if j.next != nil {
		return j.next
	}
	if lv := &b.levels[j.level]; j.list == &lv.live && lv.late.head != nil {
		return lv.late.head
	}
	for i := j.level + 1; i < len(b.levels); i++ {
		if j := b.levels[i].live.head; j != nil {
			return j
		}
		if j := b.levels[i].late.head; j != nil {
			return j
		}
	}
	return nil
}

func (b *batcher) remove(j *Job) {
	j.list.remove(j)
	b.count--
}

// wake is when time alone changes what decide would say.
func (b *batcher) wake() time.Time { return earlier(b.waiting, b.nearest) }

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func errCancelled() *infer.Error {
	e := infer.Errorf(infer.Cancelled, "request cancelled")
	e.Reason = infer.ReasonCanceled
	return e
}

// jobs is a queue of jobs, linked through them.
type jobs struct {
	head, tail *Job
	n          int
}

func (l *jobs) push(j *Job) {
	j.list, j.prev, j.next = l, l.tail, nil
	if l.tail == nil {
		l.head = j
	} else {
		l.tail.next = j
	}
	l.tail = j
	l.n++
}

func (l *jobs) pushFront(j *Job) {
	j.list, j.prev, j.next = l, nil, l.head
	if l.head == nil {
		l.tail = j
	} else {
		l.head.prev = j
	}
	l.head = j
	l.n++
}

func (l *jobs) remove(j *Job) {
	if j.prev == nil {
		l.head = j.next
	} else {
		j.prev.next = j.next
	}
	if j.next == nil {
		l.tail = j.prev
	} else {
		j.next.prev = j.prev
	}
	j.list, j.prev, j.next = nil, nil, nil
	l.n--
}

func (l *jobs) pop() *Job {
	j := l.head
	if j != nil {
		l.remove(j)
	}
	return j
}

func (l *jobs) anyCancelled() bool {
	for j := l.head; j != nil; j = j.next {
		if j.Cancelled() {
			return true
		}
	}
	return false
}
