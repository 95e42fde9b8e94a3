package backend

import (
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// Job is one request in an instance's hands, valid until its final answer.
type Job struct {
	// Request is the client's. Read its parameters here and its tensors in
	// Inputs.
	Request *infer.Request
	// Inputs are the request's tensors in the shapes the model is to see, then
	// the controls and the state of its sequence. They are read-only.
	Inputs []tensor.Tensor
	// Batch is the request's share of the batch: the first dimension of its
	// tensors, 1 where the model does not batch.
	Batch int

	// Sequence numbers the sequence within the server, never reused; 0 is
	// none. Start and End tell its first and last request.
	Sequence   uint64
	Start, End bool
	// Null is the padding of an idle slot: it has inputs of the right shape
	// and is executed, its answer goes nowhere.
	Null bool

	// Enqueued is when it came to the model's scheduler.
	Enqueued time.Time
	// Timing is shared by all jobs of one Execute.
	Timing *Timing
	// Owner gets the answers; the server sets it.
	Owner Owner
}

// Owner receives a job's answers: the server, or a test.
type Owner interface {
	NewResponse(*Job) *infer.Response
	// Respond takes a response; it is the final answer unless the model is
	// decoupled. Nil is a response of a decoupled model that is only counted.
	Respond(*Job, *infer.Response)
	// RespondError takes a response that failed; it is the final answer unless
	// the model is decoupled.
	RespondError(*Job, error)
	Fail(*Job, error)
	Finish(*Job)
	// Reschedule asks for one more Execute of an iterative sequence's request.
	Reschedule(*Job)
	Cancelled(*Job) bool
	Wants(j *Job, output string) bool
}

// NewResponse makes the response to be filled: id, model and version are set,
// buffers come from the server's pool.
func (j *Job) NewResponse() *infer.Response { return j.Owner.NewResponse(j) }

// Respond answers with all outputs that are wanted, in any order, and with the
// state outputs. It is final unless the model is decoupled. The server owns the
// response from here on. A decoupled model may respond with nil: nothing is
// sent, and statistics count an empty response.
//
// Statistics divide the time since the response before: what passed until
// NewResponse is inference, the rest went into the output.
func (j *Job) Respond(r *infer.Response) { j.Owner.Respond(j, r) }

// RespondError answers with an error in place of a response. Unlike Fail it
// does not end the job of a decoupled model.
func (j *Job) RespondError(err error) { j.Owner.RespondError(j, err) }

// Fail answers with an error and is final.
func (j *Job) Fail(err error) { j.Owner.Fail(j, err) }

// Finish ends a decoupled job without a further response.
func (j *Job) Finish() { j.Owner.Finish(j) }

// Reschedule hands the job back to be executed again before its sequence goes
// on; it takes the place of an answer in this Execute and is for models with
// iterative sequences only. Responses may have been given before by decoupled
// models.
func (j *Job) Reschedule() { j.Owner.Reschedule(j) }

// Cancelled tells that nobody waits for the answer any more; it must still be
// given.
func (j *Job) Cancelled() bool { return j.Owner.Cancelled(j) }

// Wants tells whether an output is asked for, be it by the client or as state.
func (j *Job) Wants(output string) bool { return j.Owner.Wants(j, output) }

// Input finds an input by name, nil if there is none.
func (j *Job) Input(name string) *tensor.Tensor {
	for i := range j.Inputs {
		if j.Inputs[i].Name == name {
			return &j.Inputs[i]
		}
	}
	return nil
}

// Into is the memory an output should be written to if the client gave some
// that is large enough, so that it need not be copied later; nil if not.
func (j *Job) Into(output string, size int) []byte {
	for i := range j.Request.Outputs {
		o := &j.Request.Outputs[i]
		if o.Name == output && o.Classes == 0 && len(o.Into) >= size && size > 0 {
			return o.Into[:size:size]
		}
	}
	return nil
}

// Timing divides an Execute for the statistics. Marks are optional: without
// them all the time counts as inference.
type Timing struct {
	// InputEnd is when the inputs were gathered, OutputStart when results
	// began to be handed out.
	InputEnd, OutputStart time.Time
}
