package repository

import (
	"context"
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
	mark      *mark // where its outcome is noted for statistics
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
	return r
}

// Respond implements backend.Owner.
func (j *job) Respond(_ *backend.Job, r *infer.Response) {
	if j.v.cached && j.cacheable {
		start := time.Now()
		j.v.repo.cache.put(j.digest, r)
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
		j.v.stats.Responded(n, false, now.Sub(j.started), 0, now.Sub(j.received))
		j.deliver(infer.Reply{Response: r})
		return
	}
	j.note(succeeded)
	j.end(infer.Reply{Response: r, Final: true})
}

// Finish implements backend.Owner.
func (j *job) Finish(*backend.Job) {
	if !j.v.decoupled {
		j.Fail(nil, infer.Errorf(infer.Internal, "model '%s' answered nothing", j.v.name))
		return
	}
	now := time.Now()
	j.v.stats.Responded(j.responses, true, now.Sub(j.started), 0, now.Sub(j.received))
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
		j.v.stats.ResponseFailed(j.responses, reason == infer.ReasonCanceled, now.Sub(j.started))
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
		j.Fail(nil, infer.Errorf(infer.Unsupported, "model '%s' has no iterative sequences", j.v.name))
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
