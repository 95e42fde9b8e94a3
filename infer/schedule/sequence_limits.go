package schedule

import (
	"strconv"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// sequenceLimits is what our own parameters of a model say about the queue of
// each of its sequences. Without them a sequence waits without bound, as in
// Triton.
type sequenceLimits struct {
	queue int // requests that may wait; 0: no limit
	// full says what gives way when the queue is full: reject, drop_oldest or
	// latest_only.
	full string
	idle time.Duration // replaces max_sequence_idle_microseconds; -1: never
}

// limitsOf reads the parameters sequence.max_queue_size, sequence.queue_policy
// and sequence.max_idle_microseconds. The configuration has been validated.
func limitsOf(m *inference.ModelConfig) sequenceLimits {
	get := func(key string) string { return m.GetParameters()[key].GetStringValue() }
	l := sequenceLimits{full: get("sequence.queue_policy")}
	l.queue, _ = strconv.Atoi(get("sequence.max_queue_size"))
	if l.full == "latest_only" && l.queue == 0 {
		l.queue = 1
	}
	if us, err := strconv.ParseInt(get("sequence.max_idle_microseconds"), 10, 64); err == nil {
		l.idle = time.Duration(us) * time.Microsecond
		if us == 0 {
			l.idle = -1
		}
	}
	return l
}

// makeRoom applies the queue policy before j joins its sequence's queue. The
// first and the last request of a sequence never give way.
func (q *sequencer) makeRoom(r *run, j *Job) *infer.Error {
	if q.limits.queue == 0 || r.queue.n < q.limits.queue || j.End {
		return nil
	}
	switch q.limits.full {
	case "drop_oldest", "latest_only":
		for o := r.queue.head; o != nil && r.queue.n >= q.limits.queue; {
			next := o.next
			if !o.Start && !o.End {
				r.queue.remove(o)
				r.dropped++
				if r.slot == nil {
					q.backlogged--
				}
				q.drop(o, errSuperseded(o.Key))
			}
			o = next
		}
		return nil
	}
	r.dropped++
	e := infer.Errorf(infer.Unavailable, "Exceeds maximum queue size")
	e.Reason = infer.ReasonRejected
	return e
}

func errSuperseded(k Key) *infer.Error {
	e := infer.Errorf(infer.Unavailable, "request of sequence %s gave way to a newer one", k)
	e.Reason = infer.ReasonRejected
	return e
}
