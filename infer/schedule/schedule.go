// Package schedule decides which requests of a model run when, together with
// which others, and on which instance.
//
// It has two layers. A policy is a plain struct: it is told what arrived, what
// ended and what time it is, and says what an idle instance should run. The
// loop around it supplies time, instances and goroutines. Policies are tested
// by scripts (testdata), the loop in bubbles of fake time. Nothing here knows
// what a backend is: a batch is handed to a function.
//
// The step from a request to an idle instance is made by the goroutine that
// brings the request, and from a finished batch to the next by the goroutine
// that finished it, both under one lock: under load no hand-over costs a
// goroutine switch. The loop's own goroutine only waits for time to pass.
package schedule

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// Scheduler runs the requests of one model version.
type Scheduler interface {
	// Run works until Stop was called and everything admitted was handed out,
	// or until ctx ends; then what still waits is rejected.
	Run(ctx context.Context) error
	// Enqueue admits j or refuses it with an *infer.Error. After nil the
	// scheduler owns j until it goes to Config.Run or Config.Reject. With
	// inline the caller is willing to wait: if an instance is idle, the batch
	// runs on the caller's goroutine before Enqueue returns.
	Enqueue(j *Job, inline bool) error
	// Done tells that a job that was handed to Config.Run had its final
	// answer. The job must not be used afterwards by the scheduler or its
	// caller's other goroutines.
	Done(j *Job)
	// Reschedule takes back a job that was handed to Config.Run, in place of
	// Done, to run it again before its sequence goes on. It is for models with
	// iterative sequences.
	Reschedule(j *Job)
	// Retire says that open sequences will get no further request: each ends
	// when it has nothing left, and the backlog moves in.
	Retire()
	// Stop refuses what is new from now on. Requests of open sequences are
	// still taken while Run has work left.
	Stop()
	// Resize adds instances, which are numbered behind all there were, and lets
	// others go: they finish what they have, open sequences until their end,
	// get nothing new, and are then told to Config.Gone.
	Resize(add int, remove []int)
	// Queued is the number of requests that wait for execution.
	Queued() int
	// Open are the sequences that have a slot and may get further requests, for
	// a successor's Adopt.
	Open() []*Sequence
	// Adopt continues sequences that another scheduler of the model had open.
	// It is called before Run. What finds no slot is returned.
	Adopt(open []*Sequence) (rest []*Sequence)
	// Sequences lists open sequences; nil for models without.
	Sequences() []infer.SequenceInfo
}

// Config says what a scheduler works for.
type Config struct {
	// Model is the normalised configuration.
	Model *inference.ModelConfig
	// Instances is how many can execute; at least 1.
	Instances int
	// Run executes a batch on an instance and returns when the instance can
	// take another. The batch is valid during the call.
	Run func(instance int, b *Batch)
	// Reject answers a job that will never run.
	Reject func(j *Job, err *infer.Error)
	// Gone is told when an instance that Resize removed is used no more. It must
	// not call the scheduler. nil: nobody is.
	Gone func(instance int)
	// Compatible tells whether two requests may share a batch; nil: always.
	Compatible func(a, b *Job) bool
	// Ended asks for Batch.Ended: instances keep state per sequence.
	Ended bool
	// HoldQueued and HoldBacklog let nothing run until so many requests wait
	// in slots (or the queue) and in the backlog, once. For test suites that
	// need a known start; 0: no hold.
	HoldQueued, HoldBacklog int
	// Limiter, if not nil, is asked before an instance runs.
	Limiter Limiter
	// NextSequence numbers sequences; nil: from 1 on. Schedulers that share it
	// never use a number twice.
	NextSequence *atomic.Uint64
	Logger       *slog.Logger // nil: silent
}

// Limiter rations executions over all models of a server.
type Limiter interface {
	// Acquire takes what an execution of the instance needs, or remembers that
	// the instance waits and returns false; retry is called when it may ask
	// again.
	Acquire(instance int, retry func()) bool
	// Release gives back what Acquire took; ran tells whether there was an
	// execution.
	Release(instance int, ran bool)
	// Withdraw says that an instance that may be waiting has nothing to run.
	Withdraw(instance int)
}

// Job is the scheduler's part of a request. The caller fills the first block.
type Job struct {
	Payload    any // the caller's
	Context    context.Context
	Batch      int
	Priority   uint64
	Timeout    time.Duration
	Key        Key
	Start, End bool

	// Enqueued is when Enqueue took it (if the caller had not set it).
	Enqueued time.Time
	// Ordinal counts the jobs the scheduler admitted, from 1 on.
	Ordinal uint64
	// Sequence is the job's sequence in sequence models.
	Sequence *Sequence
	// Null marks padding of an idle slot; Like is the job whose shapes it
	// takes.
	Null bool
	Like *Job

	next, prev *Job
	list       *jobs
	issued     time.Time // joined the queue whose delay counts
	deadline   time.Time
	level      int
	slot       *slot
	iterative  bool // its sequence is its own
}

// Cancelled tells whether the client has gone.
func (j *Job) Cancelled() bool { return j.Context != nil && j.Context.Err() != nil }

// giveUp is when its client stops waiting, where that is known before.
func (j *Job) giveUp() (at time.Time, known bool) {
	if j.Context == nil {
		return time.Time{}, false
	}
	return j.Context.Deadline()
}

// abandoned tells whether the client has gone, or would have if its clock were this one.
func (j *Job) abandoned(now time.Time) bool {
	at, known := j.giveUp()
	return j.Cancelled() || known && !at.After(now)
}

// until is the moment at which waiting has to end, zero if there is none.
func (j *Job) until() time.Time {
	if at, known := j.giveUp(); known {
		return earlier(j.deadline, at)
	}
	return j.deadline
}

// Key names a sequence: a correlation id within the listener it came through.
type Key struct {
	Scope string
	ID    infer.CorrelationID
}

// String is the correlation id as messages print it.
func (k Key) String() string {
	if k.ID.Str != "" {
		return k.ID.Str
	}
	return fmt.Sprint(k.ID.Num)
}

// Sequence is the life of one sequence, from a START to its end.
type Sequence struct {
	ID    uint64 // unique within the process
	Key   Key
	State any // the caller's, for the time the sequence lives
	// Instance is where it runs, -1 before it has a slot.
	Instance int
}

// Batch is what an instance is to run at once.
type Batch struct {
	Jobs []*Job
	// Ended are sequences to be closed before the jobs run.
	Ended []Ended
}

// Ended is a sequence that will see no further request.
type Ended struct {
	Sequence *Sequence
	Cause    string // end, idle, cancelled, replaced, unload
}

// New chooses the scheduler that the configuration names.
func New(cfg Config) (Scheduler, error) {
	if cfg.Instances < 1 {
		return nil, fmt.Errorf("schedule model %q: it has no instance to run on", cfg.Model.GetName())
	}
	if cfg.Run == nil || cfg.Reject == nil {
		return nil, fmt.Errorf("schedule model %q: Config.Run and Config.Reject are needed", cfg.Model.GetName())
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l := newLoop(cfg)
	switch s := cfg.Model.GetSchedulingChoice().(type) {
	case *inference.ModelConfig_SequenceBatching:
		l.policy = newSequencer(cfg, s.SequenceBatching, l.reject)
	case *inference.ModelConfig_DynamicBatching:
		l.policy = newDynamic(cfg, s.DynamicBatching, l.reject)
		l.anyInstance = true
	default:
		l.policy = newDynamic(cfg, nil, l.reject)
		l.anyInstance = true
	}
	return l, nil
}

// What a policy says instead of an instance.
const (
	anywhere = -1
	nowhere  = -2
)

// policy is the pure half of a scheduler. It is called under the loop's lock.
type policy interface {
	// enqueue admits j; the result is the instance that may now have work,
	// anywhere or nowhere.
	enqueue(now time.Time, j *Job) (instance int, err *infer.Error)
	// done notes a final answer; the result is as of enqueue.
	done(now time.Time, j *Job) (instance int)
	// reschedule queues a job again that was handed out; the result is as of
	// enqueue.
	reschedule(now time.Time, j *Job) (instance int)
	// decide fills b with what an idle instance should run now.
	decide(now time.Time, instance int, b *Batch) bool
	// expire acts on time-outs that have come.
	expire(now time.Time)
	// sweep ends what waits and whose client has gone.
	sweep(now time.Time)
	// wake is when expire or decide should be called again, zero for never.
	wake() time.Time
	stop()
	retire(now time.Time)
	queued() int
	// drain removes everything that waits.
	drain(err *infer.Error)
	sequences(now time.Time) []infer.SequenceInfo
	open() []*Sequence
	// grow adds an instance; shrink gives one nothing new; vacant tells when
	// that one has nothing left.
	grow(now time.Time)
	shrink(instance int)
	vacant(instance int) bool
	adopt(now time.Time, s *Sequence) bool
}
