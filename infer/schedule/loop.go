package schedule

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/vedette/vedette/infer"
)

// loop moves batches from a policy to instances.
type loop struct {
	cfg         Config
	anyInstance bool // work is not bound to an instance

	mu        sync.Mutex
	policy    policy
	instances []*instance
	idle      []int // indices of idle instances, last used last
	rejected  []rejection
	armed     time.Time // when the timer will ring, zero: never
	sweep     time.Time // when to look for clients that went away, zero: nothing waits
	stopping  bool
	closed    bool // nothing runs any more
	running   int  // instances at work
	leaving   int  // instances that Resize removed and that are not gone
	admitted  uint64

	alarm   chan struct{} // the timer must ring earlier; one slot: a second call says no more
	changed chan struct{} // Stop was called or the last work ended; one slot likewise
}

type instance struct {
	index   int
	idle    bool
	working bool // its goroutine was started
	leaving bool // it gets nothing new
	batch   Batch
	// kick starts the worker on batch. One slot, so that the one who decides
	// never waits; at most one batch is under way.
	kick chan struct{}
}

// rejection is what is to be told when the lock is free: a job that will never
// run, or an instance that is gone.
type rejection struct {
	job  *Job
	err  *infer.Error
	gone *instance
}

func newLoop(cfg Config) *loop {
	l := &loop{cfg: cfg, alarm: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	for i := range cfg.Instances {
		l.instances = append(l.instances, &instance{index: i, idle: true, kick: make(chan struct{}, 1)})
	}
	// The first instance is used first.
	for i := range l.instances {
		l.idle = append(l.idle, len(l.instances)-1-i)
	}
	return l
}

// Run implements Scheduler.
func (l *loop) Run(ctx context.Context) error {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	l.watch(ctx, func(in *instance) { wg.Go(func() { l.work(in, stop) }) })
	// No batch is at work now and none will start.
	close(stop)
	wg.Wait()
	return nil
}

// watch rings the policy when time has come, starts the work of instances, and
// returns when all is done.
func (l *loop) watch(ctx context.Context, start func(*instance)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	cancelled := ctx.Done()
	for {
		l.mu.Lock()
		if l.stopping && l.running == 0 && l.policy.queued() == 0 {
			l.closed = true
		}
		for _, in := range l.instances {
			if !in.working {
				in.working = true
				start(in)
			}
		}
		closed := l.closed && l.running == 0
		at := l.armed
		rejected := l.takeLocked()
		l.mu.Unlock()
		l.deliver(rejected)
		if closed {
			return
		}
		var ring <-chan time.Time
		if !at.IsZero() {
			timer.Reset(time.Until(at))
			ring = timer.C
		}
		select {
		case <-cancelled:
			cancelled = nil
			l.abandon()
		case <-l.alarm:
		case <-l.changed:
		case <-ring:
			l.ring()
		}
	}
}

// sweepEvery is how long a request whose client has gone may wait on for an
// instance. Looking from time to time costs a request nothing, which being told
// by its context would.
const sweepEvery = 20 * time.Millisecond

// ring is called when the armed time has come.
func (l *loop) ring() {
	now := time.Now()
	l.mu.Lock()
	l.armed = time.Time{}
	l.policy.expire(now)
	if !l.sweep.IsZero() && !l.sweep.After(now) {
		l.sweep = time.Time{}
		l.policy.sweep(now)
	}
	l.dispatchLocked(now, anywhere, nil)
	// What is due now and could not be done waits for an instance; what comes
	// later needs the timer again.
	if l.policy.wake().After(now) {
		l.armLocked()
	}
	l.sweepLocked(now)
	l.armAtLocked(l.sweep)
	rejected := l.takeLocked()
	l.mu.Unlock()
	l.deliver(rejected)
}

// abandon rejects what waits and refuses everything new.
func (l *loop) abandon() {
	l.mu.Lock()
	l.stopping, l.closed = true, true
	l.policy.stop()
	l.policy.drain(errStopping())
	rejected := l.takeLocked()
	l.mu.Unlock()
	l.deliver(rejected)
}

// work runs the batches of one instance.
func (l *loop) work(in *instance, stop <-chan struct{}) {
	for {
		select {
		case <-in.kick:
			for more := true; more; {
				l.execute(in)
				more = l.next(in, true)
			}
		case <-stop:
			return
		}
	}
}

func (l *loop) execute(in *instance) {
	l.cfg.Run(in.index, &in.batch)
	if l.cfg.Limiter != nil {
		l.cfg.Limiter.Release(in.index, true)
	}
	clear(in.batch.Jobs)
	clear(in.batch.Ended)
	in.batch.Jobs, in.batch.Ended = in.batch.Jobs[:0], in.batch.Ended[:0]
}

// next finds more work for an instance that just ended a batch. The worker goes
// on with it (true); anyone else leaves it to the worker.
func (l *loop) next(in *instance, worker bool) bool {
	l.mu.Lock()
	// Most of the time there is nothing, and nothing to look at the clock for.
	more := (!l.anyInstance || l.policy.queued() > 0) && l.decideLocked(time.Now(), in)
	if more {
		if !worker {
			in.kick <- struct{}{}
		}
	} else {
		l.running--
		in.idle = true
		l.idle = append(l.idle, in.index)
		if l.stopping && l.running == 0 {
			signal(l.changed)
		}
	}
	rejected := l.takeLocked()
	l.mu.Unlock()
	l.deliver(rejected)
	return more && worker
}

// decideLocked asks the policy for work of a free instance.
func (l *loop) decideLocked(now time.Time, in *instance) bool {
	idle := l.closed || in.leaving && l.anyInstance
	if l.cfg.Limiter != nil && (idle || l.policy.queued() == 0) {
		l.cfg.Limiter.Withdraw(in.index)
		return false
	}
	if idle {
		return false
	}
	if l.cfg.Limiter != nil {
		if !l.cfg.Limiter.Acquire(in.index, func() { l.retry(in.index) }) {
			return false
		}
	}
	ok := l.policy.decide(now, in.index, &in.batch)
	if !ok && l.cfg.Limiter != nil {
		l.cfg.Limiter.Release(in.index, false)
	}
	l.armLocked()
	return ok
}

// dispatchLocked hands work to idle instances: to the hinted one, or to any. It
// returns the instance whose batch holds own, which is then the caller's to
// execute.
func (l *loop) dispatchLocked(now time.Time, hint int, own *Job) (mine *instance) {
	for n := len(l.idle) - 1; n >= 0; n-- { //nolint:modernize // the slice shrinks on the way
		in := l.instances[l.idle[n]]
		if hint >= 0 && in.index != hint {
			continue
		}
		if !l.decideLocked(now, in) {
			if l.anyInstance && l.cfg.Limiter == nil || hint >= 0 {
				break
			}
			continue
		}
		l.idle = append(l.idle[:n], l.idle[n+1:]...)
		in.idle = false
		l.running++
		if own != nil && mine == nil && slices.Contains(in.batch.Jobs, own) {
			mine = in
		} else {
			in.kick <- struct{}{}
		}
		if hint >= 0 {
			break
		}
	}
	return mine
}

// freeLocked tells whether the hinted instance, or any, could take work.
func (l *loop) freeLocked(hint int) bool {
	switch hint {
	case nowhere:
		return false
	case anywhere:
		return len(l.idle) > 0
	}
	return l.instances[hint].idle
}

// armLocked makes the timer ring in time for the policy.
func (l *loop) armLocked() { l.armAtLocked(l.policy.wake()) }

// sweepLocked makes it ring for what waits now, too. From then on ring does, as
// long as something waits.
func (l *loop) sweepLocked(now time.Time) {
	if l.sweep.IsZero() && l.policy.queued() > 0 {
		l.sweep = now.Add(sweepEvery)
		l.armAtLocked(l.sweep)
	}
}

func (l *loop) armAtLocked(at time.Time) {
	if at.IsZero() || !l.armed.IsZero() && !at.Before(l.armed) {
		return
	}
	l.armed = at
	signal(l.alarm)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Enqueue implements Scheduler.
func (l *loop) Enqueue(j *Job, inline bool) error {
	if j.Enqueued.IsZero() {
		j.Enqueued = time.Now()
	}
	now := j.Enqueued
	own := j
	if !inline {
		own = nil
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return errStopping()
	}
	j.Ordinal = l.admitted + 1 // before it can be rejected on the way
	hint, err := l.policy.enqueue(now, j)
	if err == nil {
		l.admitted++
	} else {
		rejected := l.takeLocked()
		l.mu.Unlock()
		l.deliver(rejected)
		return err
	}
	var mine *instance
	if l.freeLocked(hint) {
		mine = l.dispatchLocked(now, hint, own)
	}
	l.armLocked()
	if mine == nil {
		l.sweepLocked(now)
	}
	rejected := l.takeLocked()
	l.mu.Unlock()
	l.deliver(rejected)
	if mine != nil {
		l.execute(mine)
		l.next(mine, false)
	}
	return nil
}

// Done implements Scheduler.
func (l *loop) Done(j *Job) {
	if l.anyInstance {
		return // nothing waits for the end of an independent request
	}
	l.back(j, l.policy.done)
}

// Reschedule implements Scheduler.
func (l *loop) Reschedule(j *Job) {
	l.back(j, func(now time.Time, j *Job) int {
		hint := l.policy.reschedule(now, j)
		l.sweepLocked(now)
		return hint
	})
}

// back tells the policy of a job that an instance is through with.
func (l *loop) back(j *Job, tell func(time.Time, *Job) int) {
	now := time.Now()
	l.mu.Lock()
	hint := tell(now, j)
	if l.freeLocked(hint) {
		l.dispatchLocked(now, hint, nil)
	}
	l.armLocked()
	rejected := l.takeLocked()
	l.mu.Unlock()
	l.deliver(rejected)
}

// retry is the limiter's word that an instance may try again.
func (l *loop) retry(instance int) {
	now := time.Now()
	l.mu.Lock()
	if l.instances[instance].idle {
		l.dispatchLocked(now, instance, nil)
	}
	rejected := l.takeLocked()
	l.mu.Unlock()
	l.deliver(rejected)
}

// Retire implements Scheduler.
func (l *loop) Retire() {
	now := time.Now()
	l.mu.Lock()
	l.policy.retire(now)
	l.dispatchLocked(now, anywhere, nil)
	rejected := l.takeLocked()
	l.mu.Unlock()
	l.deliver(rejected)
}

// Stop implements Scheduler.
func (l *loop) Stop() {
	l.mu.Lock()
	l.stopping = true
	l.policy.stop()
	now := time.Now()
	l.dispatchLocked(now, anywhere, nil)
	signal(l.changed)
	l.mu.Unlock()
}

// Queued implements Scheduler.
func (l *loop) Queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy.queued()
}

// Sequences implements Scheduler.
func (l *loop) Sequences() []infer.SequenceInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy.sequences(time.Now())
}

// Open implements Scheduler.
func (l *loop) Open() []*Sequence {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy.open()
}

// Adopt implements Scheduler.
func (l *loop) Adopt(open []*Sequence) (rest []*Sequence) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range open {
		if !l.policy.adopt(now, s) {
			rest = append(rest, s)
		}
	}
	l.armLocked()
	return rest
}

// reject is what policies call; answers are given outside of the lock.
func (l *loop) reject(j *Job, err *infer.Error) {
	l.rejected = append(l.rejected, rejection{job: j, err: err})
}

// Resize implements Scheduler.
func (l *loop) Resize(add int, remove []int) {
	now := time.Now()
	l.mu.Lock()
	for range add {
		in := &instance{index: len(l.instances), idle: true, kick: make(chan struct{}, 1)}
		l.instances = append(l.instances, in)
		l.idle = append(l.idle, in.index)
		l.policy.grow(now)
	}
	for _, index := range remove {
		if in := l.instances[index]; !in.leaving {
			in.leaving = true
			l.leaving++
			l.policy.shrink(index)
		}
	}
	l.dispatchLocked(now, anywhere, nil)
	l.armLocked()
	rejected := l.takeLocked()
	signal(l.changed) // new instances need their goroutines
	l.mu.Unlock()
	l.deliver(rejected)
}

// departLocked finds the instances that leave and have nothing left.
func (l *loop) departLocked() {
	for _, in := range l.instances {
		if in.leaving && in.idle && l.policy.vacant(in.index) {
			in.idle = false
			l.idle = slices.DeleteFunc(l.idle, func(i int) bool { return i == in.index })
			l.leaving--
			l.rejected = append(l.rejected, rejection{gone: in})
		}
	}
}

func (l *loop) takeLocked() []rejection {
	if l.leaving > 0 {
		l.departLocked()
	}
	r := l.rejected
	l.rejected = nil
	return r
}

func (l *loop) deliver(rejected []rejection) {
	for _, r := range rejected {
		switch {
		case r.gone == nil:
			l.cfg.Reject(r.job, r.err)
		case l.cfg.Gone != nil:
			l.cfg.Gone(r.gone.index)
		}
	}
	if len(rejected) > 0 {
		signal(l.changed)
	}
}

func errStopping() *infer.Error {
	return infer.Errorf(infer.Unavailable, "Server is stopping, scheduler for model has stopped accepting new inference requests")
}
