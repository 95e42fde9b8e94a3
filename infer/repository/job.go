package repository

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/schedule"
)

// job is a request on its way through a model version. Jobs are used again.
type job struct {
	backend.Job
	sched schedule.Job
	v     *version
	ctx   context.Context //nolint:containedctx // the request's own, for as long as the request lives
	reply func(infer.Reply)

	received  time.Time
	started   time.Time // execution began; zero: still queued
	responses int
	begun     time.Time // the response to come, of a decoupled model
	answered  time.Time // the response before
	mark      *mark     // where its outcome is noted for statistics
	corrid    [8]byte

	digest    digest // of the request, for the cache
	cacheable bool
	lookup    time.Duration
}

// mark is what statistics need to know of one job of a batch when the job
// itself has gone.
type mark struct {
	outcome            outcome
	batch              int
	enqueued, received time.Time
}

type outcome uint8

const (
	unanswered outcome = iota
	succeeded
	failed
	rescheduled
)

func (v *version) newJob(ctx context.Context, req *infer.Request, reply func(infer.Reply)) *job {
	j, ok := v.jobs.Get().(*job)
	if !ok {
		j = new(job)
		j.Owner = j
		j.v = v
	}
	j.ctx, j.reply, j.Request, j.cacheable = ctx, reply, req, v.cached
	return j
}

// free makes the job ready for the next request.
func (j *job) free() {
	v := j.v
	clear(j.Inputs)
	*j = job{Job: backend.Job{Owner: j, Inputs: j.Inputs[:0]}, v: v}
	v.jobs.Put(j)
	v.leave()
}

// NewResponse implements backend.Owner.
func (j *job) NewResponse(*backend.Job) *infer.Response {
	r := j.v.repo.newResponse()
	r.ID, r.Model, r.Version = j.Request.ID, j.v.name, j.v.number
	if j.v.decoupled {
		j.begun = time.Now()
	}
	return r
}

// took divides the time since the last response of a decoupled model.
func (j *job) took(now time.Time) (infer, output time.Duration) {
	from := j.answered
	if from.IsZero() {
		from = j.started
	}
	to := j.begun
	if to.Before(from) {
		to = now
	}
	j.begun, j.answered = time.Time{}, now
	return to.Sub(from), now.Sub(to)
}

// keep puts an answer into the response cache, unless it lies where others may write.
func (j *job) keep(r *infer.Response) {
	if slices.ContainsFunc(j.Request.Outputs, func(o infer.OutputSpec) bool { return o.Into != nil }) {
		return
	}
	if size, ok := j.v.repo.cache.put(j.digest, r); !ok && j.v.uncached.CompareAndSwap(false, true) {
		j.v.logger.Warn("failed to insert key into the response cache: the response is larger than the cache; told once for a model",
			slog.Int("bytes", size), slog.Int("cache", j.v.repo.cache.limit))
	}
}

// Respond implements backend.Owner.
func (j *job) Respond(_ *backend.Job, r *infer.Response) {
	if r == nil && j.v.decoupled {
		now := time.Now()
		j.begun = time.Time{}
		took, _ := j.took(now)
		j.v.stats.Responded(j.responses, true, took, 0, now.Sub(j.received))
		j.responses++
		return
	}
	if j.v.cached && j.cacheable {
		start := time.Now()
		j.keep(r)
		j.v.stats.Missed(j.lookup + time.Since(start))
	}
	if err := j.finishResponse(r); err != nil {
		r.Release()
		j.Fail(nil, err)
		return
	}
	if j.v.decoupled {
		n := j.responses
		j.responses++
		now := time.Now()
		took, output := j.took(now)
		j.v.stats.Responded(n, false, took, output, now.Sub(j.received))
		j.deliver(infer.Reply{Response: r})
		return
	}
	j.note(succeeded)
	j.end(infer.Reply{Response: r, Final: true})
}

// RespondError implements backend.Owner.
func (j *job) RespondError(_ *backend.Job, err error) {
	if !j.v.decoupled {
		j.Fail(nil, err)
		return
	}
	took, output := j.took(time.Now())
	j.v.stats.ResponseFailed(j.responses, false, took, output)
	j.responses++
	j.deliver(infer.Reply{Err: err})
}

// conclude answers a decoupled request with its last response.
func (j *job) conclude(r *infer.Response) {
	if err := j.finishResponse(r); err != nil {
		r.Release()
		j.Fail(nil, err)
		return
	}
	now := time.Now()
	took, output := j.took(now)
	j.v.stats.Responded(j.responses, false, took, output, now.Sub(j.received))
	j.v.stats.Finished(j.Batch, j.started.Sub(j.sched.Enqueued), now.Sub(j.started), now.Sub(j.received))
	j.end(infer.Reply{Response: r, Final: true})
}

// Finish implements backend.Owner.
func (j *job) Finish(*backend.Job) {
	if !j.v.decoupled {
		j.Fail(nil, infer.Errorf(infer.Internal, "model '%s' answered nothing", j.v.name))
		return
	}
	now := time.Now()
	if j.responses == 0 {
		j.v.stats.Responded(0, true, now.Sub(j.started), 0, now.Sub(j.received))
	}
	j.v.stats.Finished(j.Batch, j.started.Sub(j.sched.Enqueued), now.Sub(j.started), now.Sub(j.received))
	j.end(infer.Reply{Final: true})
}

// Fail implements backend.Owner.
func (j *job) Fail(_ *backend.Job, err error) {
	j.note(failed)
	reason := infer.ReasonOf(err)
	if reason == infer.ReasonOther {
		reason = infer.ReasonBackend
	}
	j.fail(err, reason)
}

// reject ends a job that the scheduler gave up: what it says of a request that it had taken comes without the id.
func (j *job) reject(err *infer.Error) { j.fail(err, infer.ReasonOf(err)) }

func (j *job) fail(err error, reason infer.Reason) {
	now := time.Now()
	j.v.stats.Failed(reason, now.Sub(j.received))
	if j.v.decoupled && !j.started.IsZero() {
		took, _ := j.took(now)
		j.v.stats.ResponseFailed(j.responses, reason == infer.ReasonCanceled, took, 0)
	}
	j.end(infer.Reply{Err: err, Final: true})
}

func (j *job) note(o outcome) {
	if j.mark != nil {
		j.mark.outcome = o
	}
}

// end gives the final answer.
func (j *job) end(r infer.Reply) {
	if !j.started.IsZero() && j.v.sched != nil {
		j.v.sched.Done(&j.sched)
	}
	j.deliver(r)
	j.free()
}

// deliver gives an answer, in its turn where the model keeps an order.
func (j *job) deliver(r infer.Reply) {
	if j.v.order != nil {
		j.v.order.deliver(j.sched.Ordinal, j.reply, r)
		return
	}
	j.reply(r)
}

// Reschedule implements backend.Owner.
func (j *job) Reschedule(*backend.Job) {
	if !j.v.cfg.GetSequenceBatching().GetIterativeSequence() {
		j.Fail(nil, infer.Errorf(infer.InvalidArgument,
			"Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while model '%s' has no iterative sequences", j.v.name))
		return
	}
	j.note(rescheduled)
	j.mark = nil
	clear(j.Inputs[len(j.Request.Inputs):]) // controls and state are of one execution
	j.Inputs = j.Inputs[:len(j.Request.Inputs)]
	j.v.sched.Reschedule(&j.sched)
}

// Cancelled implements backend.Owner.
func (j *job) Cancelled(*backend.Job) bool { return j.ctx.Err() != nil }

// Wants implements backend.Owner.
func (j *job) Wants(_ *backend.Job, output string) bool {
	if len(j.Request.Outputs) == 0 {
		return true
	}
	for i := range j.Request.Outputs {
		if j.Request.Outputs[i].Name == output {
			return true
		}
	}
	return slices.Contains(j.v.sig.states, output)
}
