package backendtest

import (
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// Owner keeps what an instance answers to one job at a time, for tests that call it by themselves. It wants every output, and
// its client never gives up. The zero value is ready; it is not safe for concurrent use.
type Owner struct {
	// Reuse has responses used again once they are released, as the server does; only the last one is then kept.
	Reuse bool

	// Response is the last one, Responses are all.
	Response  *infer.Response
	Responses []*infer.Response
	Err       error
	Finished  bool

	pool  tensor.Pool
	spare *infer.Response
}

var _ backend.Owner = (*Owner)(nil)

// NewResponse implements backend.Owner.
func (o *Owner) NewResponse(*backend.Job) *infer.Response {
	if !o.Reuse {
		return infer.NewResponse(&o.pool, nil)
	}
	if r := o.spare; r != nil {
		o.spare = nil
		return r
	}
	return infer.NewResponse(&o.pool, func(r *infer.Response) { o.spare = r })
}

// Respond implements backend.Owner.
func (o *Owner) Respond(_ *backend.Job, r *infer.Response) {
	if o.Response = r; !o.Reuse {
		o.Responses = append(o.Responses, r)
	}
}

// RespondError implements backend.Owner.
func (o *Owner) RespondError(_ *backend.Job, err error) { o.Err = err }

// Fail implements backend.Owner.
func (o *Owner) Fail(_ *backend.Job, err error) { o.Err = err }

// Finish implements backend.Owner.
func (o *Owner) Finish(*backend.Job) { o.Finished = true }

// Reschedule implements backend.Owner.
func (*Owner) Reschedule(*backend.Job) {}

// Cancelled implements backend.Owner.
func (*Owner) Cancelled(*backend.Job) bool { return false }

// Wants implements backend.Owner.
func (*Owner) Wants(*backend.Job, string) bool { return true }
