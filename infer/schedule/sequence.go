package schedule

import (
	"cmp"
	"container/heap"
	"container/list"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// sequencer is the policy of models with state. Every open sequence has a slot
// of an instance, or waits in the backlog for one; its requests run one after
// the other where its slot is. How the slots of an instance make a batch is the
// strategy's part.
type sequencer struct {
	cfg    Config
	idle   time.Duration
	reject func(*Job, *infer.Error)
	limits sequenceLimits
	// iterative: requests without an id are sequences of their own, which the
	// model has executed again until it has enough.
	iterative bool

	strategy strategy
	live     map[Key]*run // those that may get further requests
	slots    [][]*slot    // by instance
	leaving  []bool       // by instance: nothing new comes to its slots
	perSlots int          // slots of an instance
	free     freeSlots
	backlog  *list.List // of *run
	ending   [][]Ended  // by instance: to be told before its next batch

	count, backlogged int // jobs that wait, and those of them in the backlog
	hold, holdBacklog int
	next              *atomic.Uint64
	reapAt            time.Time // no sequence goes idle earlier
	expireAt          time.Time // no backlog times out earlier
	stopping          bool
	retiring          bool // no open sequence gets a further request
}

// strategy makes batches of an instance's slots.
type strategy interface {
	// grow adds an instance, of which the sequencer has the slots.
	grow()
	// offer tells that a slot may have a request to run.
	offer(now time.Time, s *slot)
	decide(now time.Time, instance int, b *Batch) bool
	// sweep ends what waits in it and whose client has gone.
	sweep()
	wake() time.Time
	drain(err *infer.Error)
}

// slot is a sequence's place in an instance.
type slot struct {
	instance, index int
	run             *run
	// inflight requests of it, or of its last sequence, have no answer yet.
	inflight int
	// batching: one of them waits for its batch.
	batching bool
}

// run is a sequence from the scheduler's side: all requests under one id from
// the opening one to the last.
type run struct {
	key      Key
	slot     *slot // nil in the backlog
	waiting  *list.Element
	queue    jobs
	ended    bool // its last request came
	newest   *Sequence
	started  *Sequence // of the last request that was handed out
	expiry   time.Time // when the backlog gives it up
	opened   time.Time
	last     time.Time
	requests uint64
	dropped  uint64
}

func newSequencer(cfg Config, sb *inference.ModelSequenceBatching, reject func(*Job, *infer.Error)) *sequencer {
	q := &sequencer{
		cfg: cfg, reject: reject, limits: limitsOf(cfg.Model), iterative: sb.GetIterativeSequence(),
		idle: time.Duration(sb.GetMaxSequenceIdleMicroseconds()) * time.Microsecond,
		live: make(map[Key]*run), backlog: list.New(), ending: make([][]Ended, cfg.Instances),
		hold: cfg.HoldQueued, holdBacklog: cfg.HoldBacklog, next: cfg.NextSequence,
	}
	if q.idle == 0 {
		q.idle = time.Second
	}
	if q.limits.idle != 0 {
		q.idle = q.limits.idle
	}
	if q.next == nil {
		q.next = new(atomic.Uint64)
	}
	q.perSlots = max(1, int(cfg.Model.GetMaxBatchSize()))
	if c := int(sb.GetOldest().GetMaxCandidateSequences()); c > 0 {
		q.perSlots = c
	}
	for range cfg.Instances {
		for _, s := range q.addSlots() {
			heap.Push(&q.free, s)
		}
	}
	if o := sb.GetOldest(); o != nil {
		q.strategy = newOldest(q, cfg, o)
	} else {
		q.strategy = newDirect(q, sb.GetDirect())
	}
	return q
}

// addSlots makes the slots of one instance more.
func (q *sequencer) addSlots() []*slot {
	slots := make([]*slot, q.perSlots)
	for k := range slots {
		slots[k] = &slot{instance: len(q.slots), index: k}
	}
	q.slots, q.leaving = append(q.slots, slots), append(q.leaving, false)
	return slots
}

func (q *sequencer) enqueue(now time.Time, j *Job) (int, *infer.Error) {
	model := q.cfg.Model.GetName()
	if q.iterative && j.Key.ID.IsZero() {
		j.iterative, j.Start, j.End = true, true, false
		j.Key = Key{Scope: iterativeScope, ID: infer.CorrelationID{Num: q.next.Add(1)}}
	}
	switch {
	case j.Batch > 1:
		return nowhere, infer.Errorf(infer.InvalidArgument,
			"inference request to model '%s' must specify batch-size 1 due to requirements of sequence batcher", model)
	case j.Key.ID.IsZero():
		return nowhere, infer.Errorf(infer.InvalidArgument,
			"inference request to model '%s' must specify a non-zero or non-empty correlation ID", model)
	case q.stopping && j.Start:
		return nowhere, errStopping()
	}
	r := q.live[j.Key]
	switch {
	case r == nil && !j.Start:
		return nowhere, infer.Errorf(infer.InvalidArgument,
			"inference request for sequence %s to model '%s' must specify the START flag on the first request of the sequence", j.Key, model)
	case r == nil:
		r = q.begin(now, j.Key)
	case j.Start:
		q.cfg.Logger.Warn("sequence starts again before its end came", slog.String("sequence", j.Key.String()))
	default:
		if err := q.makeRoom(r, j); err != nil {
			return nowhere, err
		}
	}
	if j.Start {
		r.newest = &Sequence{ID: q.next.Add(1), Key: j.Key, Instance: -1}
	}
	j.Sequence = r.newest
	if j.End {
		delete(q.live, j.Key)
		r.ended = true
	}
	r.queue.push(j)
	r.requests++
	r.last = now
	q.count++
	hint := nowhere
	if s := r.slot; s != nil {
		hint = s.instance
		q.strategy.offer(now, s) // may end the sequence and free the slot
	} else {
		q.backlogged++
		if j.Timeout > 0 {
			r.expiry = earlier(r.expiry, now.Add(j.Timeout))
			q.expireAt = earlier(q.expireAt, r.expiry)
		}
	}
	if q.hold > 0 || q.holdBacklog > 0 {
		if q.held() {
			return nowhere, nil
		}
		return anywhere, nil
	}
	return hint, nil
}

// begin opens a sequence in a free slot or at the end of the backlog.
func (q *sequencer) begin(now time.Time, key Key) *run {
	r := &run{key: key, opened: now, last: now}
	q.live[key] = r
	if len(q.free) == 0 {
		r.waiting = q.backlog.PushBack(r)
		return r
	}
	s, _ := heap.Pop(&q.free).(*slot)
	s.run, r.slot = r, s
	q.watch(now)
	return r
}

// held tells whether the test hook still keeps everything waiting, and forgets
// it once it does not.
func (q *sequencer) held() bool {
	if q.count-q.backlogged < q.hold || q.backlogged < q.holdBacklog {
		return true
	}
	q.hold, q.holdBacklog = 0, 0
	return false
}

func (q *sequencer) decide(now time.Time, instance int, b *Batch) bool {
	if q.hold > 0 || q.holdBacklog > 0 {
		if q.held() {
			return false
		}
	}
	if e := q.ending[instance]; len(e) > 0 {
		b.Ended = append(b.Ended, e...)
		q.ending[instance] = e[:0]
	}
	more := q.strategy.decide(now, instance, b)
	return more || len(b.Ended) > 0
}

// handOut notes that a job leaves for its instance.
func (q *sequencer) handOut(j *Job, s *slot) {
	q.count--
	s.batching = false
	j.Sequence.Instance = s.instance
}

// supersede notes which Sequence of a run is being executed: one that started
// again under the same id replaces the one before.
func (q *sequencer) supersede(r *run, j *Job) {
	if r.started != nil && r.started != j.Sequence {
		q.tell(j.slot.instance, r.started, "replaced")
	}
	r.started = j.Sequence
}

func (q *sequencer) tell(instance int, s *Sequence, cause string) {
	if q.cfg.Ended && s != nil {
		q.ending[instance] = append(q.ending[instance], Ended{s, cause})
	}
}

// iterativeScope keeps the ids made here apart from any client's.
const iterativeScope = "\x00iterative"

// reschedule puts a job back to the head of its sequence. Only the first
// execution sees START.
func (q *sequencer) reschedule(now time.Time, j *Job) int {
	s := j.slot
	s.inflight--
	j.Start = false
	r := s.run
	if r == nil || r.started != j.Sequence {
		// Its sequence has moved out with this request as its last.
		q.count++
		q.drop(j, errStopping())
		return nowhere
	}
	r.queue.pushFront(j)
	r.last = now
	q.count++
	q.strategy.offer(now, s)
	return s.instance
}

func (q *sequencer) done(now time.Time, j *Job) int {
	s := j.slot
	if s == nil {
		return nowhere
	}
	s.inflight--
	hint := nowhere
	if r := s.run; j.iterative && r != nil && r.newest == j.Sequence {
		delete(q.live, r.key)
		r.ended = true
		q.tell(s.instance, j.Sequence, "end")
		q.release(now, s)
		return s.instance
	}
	if j.End {
		q.tell(s.instance, j.Sequence, "end")
		if q.cfg.Ended {
			hint = s.instance
		}
	}
	if r := s.run; r != nil && q.retiring && r.queue.n == 0 && s.inflight == 0 {
		q.closeIdle(now, s, "unload")
		return s.instance
	}
	if r := s.run; r != nil {
		r.last = now
		q.watch(now)
		q.strategy.offer(now, s)
		if r.queue.n > 0 || q.count > 0 {
			hint = s.instance
		}
	}
	return hint
}

// release empties a slot and lets the first of the backlog move in.
func (q *sequencer) release(now time.Time, s *slot) {
	s.run.slot = nil
	s.run = nil
	q.admit(now, s)
}

// admit lets the first of the backlog move into an empty slot.
func (q *sequencer) admit(now time.Time, s *slot) {
	if q.leaving[s.instance] {
		return
	}
	for e := q.backlog.Front(); e != nil; e = q.backlog.Front() {
		r, _ := q.backlog.Remove(e).(*run)
		r.waiting = nil
		q.backlogged -= r.queue.n
		if r.queue.anyCancelled() {
			q.fail(r, errCancelled())
			continue
		}
		r.slot, s.run = s, r
		r.last = now
		q.watch(now)
		q.strategy.offer(now, s)
		return
	}
	heap.Push(&q.free, s)
}

// cancel ends the sequence of a slot because its client went away.
func (q *sequencer) cancel(now time.Time, s *slot) {
	r := s.run
	q.fail(r, errCancelled())
	q.tell(s.instance, r.started, "cancelled")
	q.release(now, s)
}

// fail rejects everything of a sequence that waits and closes it.
func (q *sequencer) fail(r *run, err *infer.Error) {
	if q.live[r.key] == r {
		delete(q.live, r.key)
	}
	r.ended = true
	for j := r.queue.pop(); j != nil; j = r.queue.pop() {
		q.drop(j, err)
	}
}

// drop rejects one job that waits.
func (q *sequencer) drop(j *Job, err *infer.Error) {
	q.count--
	q.reject(j, err)
}

func (q *sequencer) expire(now time.Time) {
	if !q.expireAt.IsZero() && !now.Before(q.expireAt) {
		q.expireBacklog(now)
	}
	if !q.reapAt.IsZero() && !now.Before(q.reapAt) {
		q.reap(now)
	}
}

// expireBacklog gives up sequences of which a request waited too long.
func (q *sequencer) expireBacklog(now time.Time) {
	q.expireAt = time.Time{}
	for e := q.backlog.Front(); e != nil; {
		next := e.Next()
		r, _ := e.Value.(*run)
		if !r.expiry.IsZero() && !now.Before(r.expiry) {
			q.backlog.Remove(e)
			q.backlogged -= r.queue.n
			err := infer.Errorf(infer.Unavailable, "timeout of the corresponding sequence has been expired")
			err.Reason = infer.ReasonRejected
			q.fail(r, err)
		} else {
			q.expireAt = earlier(q.expireAt, r.expiry)
		}
		e = next
	}
}

// sweep does now what admit and the strategy do when the turn of a cancelled
// request comes.
func (q *sequencer) sweep(now time.Time) {
	for e := q.backlog.Front(); e != nil; {
		next := e.Next()
		if r, ok := e.Value.(*run); ok && r.queue.anyCancelled() {
			q.backlog.Remove(e)
			r.waiting = nil
			q.backlogged -= r.queue.n
			q.fail(r, errCancelled())
		}
		e = next
	}
	q.strategy.sweep()
	for _, slots := range q.slots {
		for _, s := range slots {
			for s.run != nil && !s.batching && s.run.queue.head != nil && s.run.queue.head.Cancelled() {
				q.cancel(now, s)
			}
		}
	}
}

// reap closes sequences that have a slot and let nothing hear of them. Time
// runs from the last arrival or answer, whichever was later; a sequence with
// work left is never idle.
func (q *sequencer) reap(now time.Time) {
	q.reapAt = time.Time{}
	for _, slots := range q.slots {
		for _, s := range slots {
			r := s.run
			if r == nil || r.queue.n > 0 || s.inflight > 0 {
				continue // done or release will set the time anew
			}
			if at := r.last.Add(q.idle); now.Before(at) {
				q.reapAt = earlier(q.reapAt, at)
				continue
			}
			q.cfg.Logger.Info("sequence closed for idleness", slog.String("model", q.cfg.Model.GetName()), slog.String("sequence", r.key.String()))
			q.closeIdle(now, s, "idle")
		}
	}
}

// closeIdle ends the sequence of a slot that has nothing to do.
func (q *sequencer) closeIdle(now time.Time, s *slot, cause string) {
	r := s.run
	delete(q.live, r.key)
	r.ended = true
	q.tell(s.instance, r.started, cause)
	q.release(now, s)
}

func (q *sequencer) retire(now time.Time) {
	q.retiring = true
	for _, slots := range q.slots {
		for _, s := range slots {
			if s.run != nil && s.run.queue.n == 0 && s.inflight == 0 {
				q.closeIdle(now, s, "unload")
			}
		}
	}
}

// watch makes reap look again once a sequence that lived now could be idle.
func (q *sequencer) watch(now time.Time) {
	if q.idle > 0 {
		q.reapAt = earlier(q.reapAt, now.Add(q.idle))
	}
}

func (q *sequencer) wake() time.Time {
	return earlier(earlier(q.reapAt, q.expireAt), q.strategy.wake())
}

func (q *sequencer) stop() {
	q.stopping, q.hold, q.holdBacklog = true, 0, 0
}

func (q *sequencer) queued() int { return q.count }

func (q *sequencer) drain(err *infer.Error) {
	for e := q.backlog.Front(); e != nil; e = q.backlog.Front() {
		r, _ := q.backlog.Remove(e).(*run)
		q.backlogged -= r.queue.n
		q.fail(r, err)
	}
	for _, slots := range q.slots {
		for _, s := range slots {
			if s.run != nil {
				q.fail(s.run, err)
			}
		}
	}
	q.strategy.drain(err)
}

func (q *sequencer) sequences(time.Time) []infer.SequenceInfo {
	var out []infer.SequenceInfo
	add := func(r *run) {
		info := infer.SequenceInfo{
			Scope: r.key.Scope, Correlation: r.key.ID, State: "backlog", Queued: r.queue.n,
			Opened: r.opened, Last: r.last, Requests: r.requests, Dropped: r.dropped, Slot: -1,
		}
		if r.slot != nil {
			info.State, info.Slot, info.Index = "active", r.slot.index, r.slot.instance
		}
		out = append(out, info)
	}
	for _, slots := range q.slots {
		for _, s := range slots {
			if s.run != nil {
				add(s.run)
			}
		}
	}
	for e := q.backlog.Front(); e != nil; e = e.Next() {
		if r, ok := e.Value.(*run); ok {
			add(r)
		}
	}
	slices.SortStableFunc(out, func(a, b infer.SequenceInfo) int { return cmp.Compare(a.Opened.UnixNano(), b.Opened.UnixNano()) })
	return out
}

// freeSlots is a heap: slot 0 of every instance is used before slot 1 of any.
type freeSlots []*slot

func (f freeSlots) Len() int { return len(f) }
func (f freeSlots) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(f[i].index, f[j].index), cmp.Compare(f[i].instance, f[j].instance)) < 0
}
func (f freeSlots) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *freeSlots) Push(x any) {
	if s, ok := x.(*slot); ok {
		*f = append(*f, s)
	}
}

func (f *freeSlots) Pop() any {
	old := *f
	s := old[len(old)-1]
	*f = old[:len(old)-1]
	return s
}
