package repository

import (
	"bytes"
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/ensemble"
	"github.com/vedette/vedette/infer/schedule"
	"github.com/vedette/vedette/infer/stats"
)

// version is one loaded version of a model: its instances, and the scheduler
// in front of them.
type version struct {
	repo      *Repository
	id        string // in the repository's tables
	name      string
	number    int64
	ctx       context.Context //nolint:containedctx // its life, which ends when the server gives up on it
	plan      *plan
	cfg       *inference.ModelConfig
	info      *infer.ModelInfo
	shown     atomic.Pointer[infer.ModelInfo] // info with the ready versions
	sig       *signature
	logger    *slog.Logger
	decoupled bool
	sequences bool
	cached    bool        // answers go through the response cache
	serial    int64       // tells this load from others of the same version
	uncached  atomic.Bool // it was told that one does not fit
	controls  []control
	states    []state
	labels    map[string][]string

	model *backend.Model
	sched schedule.Scheduler
	// Slices that never change: a resize puts others in their place.
	instances atomic.Pointer[[]*instance] // all that are loaded
	active    atomic.Pointer[[]*instance] // those not passive, as the scheduler counts them, also when they are gone
	resizing  sync.Mutex                  // held while instances are exchanged, and when they are freed
	order     *order                      // nil unless preserve_ordering
	ensemble  *ensemble.Ensemble          // in place of a scheduler

	stats stats.Model
	lasts atomic.Int64 // how long a run takes, in ns; 0: nobody knows
	jobs  sync.Pool

	inflight atomic.Int64
	closing  atomic.Bool
	empty    chan struct{} // closing or inflight changed; one slot: a second call says no more
	closed   chan struct{} // everything of it is freed

	// A version that hands its open sequences to the one that replaces it:
	// newcomers wait at replaced until that is done. All are set before closing
	// is; whoever takes the heir away decides whether it is one.
	heir     atomic.Pointer[version]
	handed   chan struct{}
	replaced chan struct{}
}

// instance is one loaded copy of the model.
type instance struct {
	name   string
	model  backend.Instance
	keeper backend.SequenceKeeper // nil unless it keeps state
	at     backend.Placement
	group  *inference.ModelInstanceGroup
	leaves bool    // it gets nothing new; guarded by model.op
	permit *permit // nil without a rate limiter
	// open are the sequences of which it saw a request; nil if neither it nor
	// the server keeps state of them.
	open map[uint64]*schedule.Sequence

	// For the batch at work.
	jobs   []*backend.Job
	marks  []mark
	timing backend.Timing
	nulls  []*null
	zeros  []byte   // shared by all padding
	_      [64]byte // instances of one model run on different cores
}

// enter counts a request in; false means the version is going away.
func (v *version) enter() bool {
	v.inflight.Add(1)
	if v.closing.Load() {
		v.leave()
		return false
	}
	return true
}

func (v *version) leave() {
	if v.inflight.Add(-1) == 0 && v.closing.Load() {
		v.poke()
	}
}

// submit admits a request that came for this version.
func (v *version) submit(ctx context.Context, req *infer.Request, reply func(infer.Reply), inline bool) error {
	j := v.newJob(ctx, req, reply)
	now := time.Now()
	j.received = req.Received
	if j.received.IsZero() {
		j.received = now
	}
	if err := v.sig.check(req, j); err != nil {
		return v.refuse(j, now, v.prefixed(req, err))
	}
	if v.cached && v.hit(j, now) {
		return nil
	}
	if v.ensemble != nil {
		return v.submitEnsemble(j, now, inline)
	}
	s := &j.sched
	s.Payload, s.Context, s.Batch, s.Priority, s.Timeout = j, ctx, j.Batch, req.Priority, req.Timeout
	s.Key = schedule.Key{Scope: req.Scope, ID: req.Correlation}
	s.Start, s.End, s.Enqueued = req.SequenceStart, req.SequenceEnd, now
	if err := v.sched.Enqueue(s, inline); err != nil {
		e, ok := err.(*infer.Error) //nolint:errorlint // the scheduler's own type, never wrapped
		if ok && !v.sequences {
			err = v.prefixed(req, e)
		}
		return v.refuse(j, now, err)
	}
	return nil
}

func (v *version) refuse(j *job, now time.Time, err error) error {
	v.stats.Failed(infer.ReasonOf(err), now.Sub(j.received))
	j.free()
	return err
}

// prefixed puts the request's id before a message, as clients know it.
func (v *version) prefixed(req *infer.Request, err *infer.Error) *infer.Error {
	id := req.ID
	if id == "" {
		id = "<id_unknown>"
	}
	return &infer.Error{Code: err.Code, Reason: err.Reason, Message: "[request id: " + id + "] " + err.Message}
}

// run is the function of the scheduler: one batch on one instance.
func (v *version) run(index int, b *schedule.Batch) {
	in := v.at(index)
	for _, e := range b.Ended {
		in.endSequence(e.Sequence, backend.Cause(e.Cause))
	}
	if len(b.Jobs) == 0 {
		return
	}
	start := time.Now()
	size := v.gather(in, b, start)
	v.execute(in)
	end := time.Now()
	e := stats.Execution{Size: size, End: end}
	e.Input, e.Infer, e.Output = divide(&in.timing, start, end)
	allFailed := !v.decoupled
	for i := range in.marks {
		m := &in.marks[i]
		allFailed = allFailed && (m.outcome == failed || m.received.IsZero())
		if m.outcome != succeeded {
			continue
		}
		e.Succeeded++
		e.Inferences += m.batch
		e.Queue += start.Sub(m.enqueued)
		e.Total += end.Sub(m.received)
	}
	if !allFailed {
		v.stats.Executed(e)
	}
	v.lasted(end.Sub(start))
}

// briefRun is about what it costs to wake another goroutine and to come back.
const briefRun = 50 * time.Microsecond

// brief tells that the model has been done sooner than another goroutine would have been woken for it.
func (v *version) brief() bool {
	d := v.lasts.Load()
	return d > 0 && d <= int64(briefRun)
}

// lasted notes how long a run took: a longer one counts at once, shorter ones over time.
func (v *version) lasted(took time.Duration) {
	d, old := max(1, int64(took)), v.lasts.Load()
	if old > d {
		d = old - (old-d+7)/8
	}
	v.lasts.Store(d)
}

// gather turns a batch into the jobs the instance sees.
func (v *version) gather(in *instance, b *schedule.Batch, start time.Time) (size int) {
	in.jobs, in.marks = in.jobs[:0], in.marks[:0]
	in.timing = backend.Timing{}
	for range b.Jobs {
		in.marks = append(in.marks, mark{})
	}
	for i, s := range b.Jobs {
		if s.Null {
			in.jobs = append(in.jobs, v.padding(in, i, s.Like))
			size++
			continue
		}
		j, ok := s.Payload.(*job)
		if !ok {
			continue // cannot be: the scheduler returns what submit gave it
		}
		j.started = start
		j.Enqueued, j.Timing = s.Enqueued, &in.timing
		if !v.decoupled {
			m := &in.marks[i]
			m.batch, m.enqueued, m.received = j.Batch, s.Enqueued, j.received
			j.mark = m
		}
		if v.sequences {
			v.attach(j)
			if in.open != nil {
				in.open[j.Sequence] = j.sched.Sequence
			}
		}
		size += j.Batch
		in.jobs = append(in.jobs, &j.Job)
	}
	return size
}

// execute calls the model. A model that panics or leaves a job without an
// answer fails its jobs, not the server.
func (v *version) execute(in *instance) {
	defer func() {
		if p := recover(); p != nil {
			v.logger.Error("model panicked", slog.String("instance", in.name),
				slog.Any("err", p), slog.String("stack", string(debug.Stack())))
			v.answer(in, infer.Errorf(infer.Internal, "model '%s' crashed: %v", v.name, p))
			return
		}
		v.answer(in, nil)
	}()
	in.model.Execute(v.ctx, in.jobs)
}

// answer fails the jobs that a batch left without an answer.
func (v *version) answer(in *instance, err *infer.Error) {
	if v.decoupled {
		return
	}
	for i, j := range in.jobs {
		if in.marks[i].outcome != unanswered || in.marks[i].received.IsZero() {
			continue
		}
		if err == nil {
			err = infer.Errorf(infer.Internal, "model '%s' gave no answer", v.name)
		}
		j.Fail(err)
	}
}

func (in *instance) endSequence(s *schedule.Sequence, cause backend.Cause) {
	if _, ok := in.open[s.ID]; !ok {
		return
	}
	delete(in.open, s.ID)
	if h, ok := s.State.(*held); ok {
		h.release()
		s.State = nil
	}
	if in.keeper != nil {
		in.keeper.EndSequence(s.ID, cause)
	}
}

// divide splits the time of a batch as far as the backend marked it.
func divide(t *backend.Timing, start, end time.Time) (input, infer, output time.Duration) {
	from, to := start, end
	if t.InputEnd.After(start) {
		from = t.InputEnd
	}
	if t.OutputStart.After(from) {
		to = t.OutputStart
	}
	return from.Sub(start), to.Sub(from), end.Sub(to)
}

// serve runs the version until it was told to end and everything is answered,
// then frees the instances.
func (v *version) serve(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for !v.closing.Load() || v.inflight.Load() > 0 {
			<-v.empty
		}
		if v.sched != nil {
			v.sched.Stop()
		}
	})
	if v.sched != nil {
		if err := v.sched.Run(ctx); err != nil {
			v.logger.Error("scheduler stopped", slog.Any("err", err))
		}
		v.begin()
	}
	wg.Wait()
	if heir := v.heir.Swap(nil); heir != nil {
		v.bequeath(heir)
		close(v.handed)
	}
	v.free()
	close(v.closed)
	v.repo.retired(v)
}

// begin lets in nothing new, so that the version ends when all is answered.
// Its scheduler works on until then.
func (v *version) begin() {
	v.closing.Store(true)
	for _, in := range v.loaded() {
		if r, ok := in.model.(backend.Retirer); ok {
			r.Retire()
		}
	}
	if v.sched != nil && v.heir.Load() == nil {
		v.sched.Retire()
	}
	v.poke()
}

func (v *version) poke() {
	select {
	case v.empty <- struct{}{}:
	default:
	}
}

// at is the instance the scheduler means.
func (v *version) at(index int) *instance { return (*v.active.Load())[index] }

// loaded are the instances there are.
func (v *version) loaded() []*instance {
	if p := v.instances.Load(); p != nil {
		return *p
	}
	return nil
}

// free closes the instances.
func (v *version) free() {
	v.resizing.Lock()
	defer v.resizing.Unlock()
	for _, in := range v.loaded() {
		v.close(in)
	}
	v.plan.drop()
}

// close frees an instance.
func (v *version) close(in *instance) {
	for _, s := range in.open {
		in.endSequence(s, backend.CauseUnload)
	}
	if in.permit != nil {
		v.repo.limiter.remove(in.permit)
	}
	if err := in.model.Close(); err != nil {
		v.logger.Error("instance did not close", slog.String("instance", in.name), slog.Any("err", err))
	}
}

func (v *version) snapshot() stats.Snapshot {
	s := v.stats.Snapshot()
	s.Namespace = v.repo.namespace(v.id)
	s.Name, s.Version, s.Tags, s.Decoupled = v.name, v.number, v.cfg.GetMetricTags(), v.decoupled
	s.Cached = v.cfg.GetResponseCache().GetEnable()
	if v.sched != nil {
		s.Pending = v.sched.Queued()
	}
	for _, in := range v.loaded() {
		if sized, ok := in.model.(backend.Sized); ok {
			s.Memory = addMemory(s.Memory, in.at.GPU, sized.MemoryBytes())
		}
		if in.at.GPU >= 0 && !slices.Contains(s.GPUs, int32(in.at.GPU)) {
			s.GPUs = append(s.GPUs, int32(in.at.GPU))
		}
	}
	return s
}

// addMemory adds what an instance keeps to what others keep in the same place; gpu below 0 is the CPU.
func addMemory(list []stats.Memory, gpu int, size uint64) []stats.Memory {
	if size == 0 {
		return list
	}
	at := stats.Memory{Type: "CPU"}
	if gpu >= 0 {
		at = stats.Memory{Type: "GPU", ID: int64(gpu)}
	}
	for i, m := range list {
		if m.Type == at.Type && m.ID == at.ID {
			list[i].Size += size
			return list
		}
	}
	at.Size = size
	return append(list, at)
}

// edition is another whenever the model may answer something else than before: after a load, and where a model asks others,
// after any change of models.
func (v *version) edition() int64 {
	if v.ensemble != nil || v.cfg.GetBackend() == "script" {
		return v.repo.published.Load()
	}
	return v.serial
}

// hit answers a request from the response cache if it can.
func (v *version) hit(j *job, now time.Time) bool {
	if j.Request.Shared && v.ensemble != nil {
		j.cacheable = false // its steps read the memory itself
	} else if j.Request.Shared {
		// What is kept under the name of these bytes must be the answer to them.
		for i := range j.Inputs {
			j.Inputs[i].Data = bytes.Clone(j.Inputs[i].Data)
		}
	}
	j.digest = digestOf(v, j.Request, j.Inputs)
	entry := v.repo.cache.get(j.digest)
	looked := time.Now()
	if entry == nil {
		j.lookup = looked.Sub(now)
		return false
	}
	r := j.NewResponse(nil)
	r.Parameters = entry.parameters
	for i := range entry.outputs {
		o := &entry.outputs[i]
		r.AddView(o.Name, o.DataType, o.Shape, o.Data)
	}
	j.cacheable = false
	if err := j.finishResponse(r); err != nil {
		r.Release()
		j.fail(err, infer.ReasonOther)
		return true
	}
	v.stats.Hit(looked, looked.Sub(now), looked.Sub(j.received))
	j.reply(infer.Reply{Response: r, Final: true})
	j.free()
	return true
}

// submitEnsemble hands a checked request to the steps of an ensemble.
func (v *version) submitEnsemble(j *job, now time.Time, inline bool) error {
	j.started, j.sched.Enqueued = now, now
	submit := v.ensemble.Submit
	if inline {
		submit = v.ensemble.SubmitWaiting
	}
	err := submit(j.ctx, j.Request, func(r infer.Reply) {
		switch {
		case r.Err != nil:
			j.Fail(nil, r.Err)
		case v.decoupled && r.Response != nil && r.Final:
			j.conclude(r.Response)
		case v.decoupled:
			if r.Response != nil {
				j.Respond(nil, r.Response)
			}
			if r.Final {
				j.Finish(nil)
			}
		default:
			batch, received := j.Batch, j.received
			j.Respond(nil, r.Response)
			end := time.Now()
			v.stats.Executed(stats.Execution{
				Size: batch, Inferences: batch, Succeeded: 1, Total: end.Sub(received), Infer: end.Sub(now), End: end,
			})
			v.lasted(end.Sub(now))
		}
	})
	if err != nil {
		return v.refuse(j, now, err)
	}
	return nil
}
