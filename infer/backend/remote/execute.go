package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

var _ backend.SequenceKeeper = (*instance)(nil)

// Execute sends every request on at once: the other server batches them as it
// sees fit.
func (in *instance) Execute(ctx context.Context, jobs []*backend.Job) {
	if len(jobs) == 1 {
		in.answer(ctx, jobs[0])
		return
	}
	var wg sync.WaitGroup
	for _, j := range jobs {
		wg.Go(func() { in.answer(ctx, j) })
	}
	wg.Wait()
}

func (in *instance) answer(ctx context.Context, j *backend.Job) {
	if j.Null {
		j.Respond(j.NewResponse())
		return
	}
	ctx, cancel := context.WithTimeout(ctx, in.timeout)
	defer cancel()
	s, err := in.deliver(ctx, j)
	if err != nil {
		j.Fail(translate(s.address, err))
	}
}

// deliver finds a server that takes the request and answers with what it says.
func (in *instance) deliver(ctx context.Context, j *backend.Job) (*server, error) {
	req := in.request(j)
	wait := in.wait
	var tried []*server
	for try := 0; ; try++ {
		s, pinned := in.pick(j, time.Now(), tried)
		started, err := in.ask(ctx, s, j, req)
		took := started || reached(err)
		s.heard(time.Now(), took)
		if err == nil || took || pinned || try >= in.retries {
			return s, err
		}
		tried = append(tried, s)
		select {
		case <-ctx.Done():
			return s, err
		case <-time.After(wait):
		}
		wait *= 2
	}
}

// pick chooses the server: a sequence's own, else the next in turn that the request has not been to and that is not
// resting. One that rests and was not tried comes before one that was: a check may be wrong, or old. Pinned says that no
// other will do.
func (in *instance) pick(j *backend.Job, now time.Time, tried []*server) (s *server, pinned bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if j.Sequence != 0 && !j.Start {
		if s = in.homes[j.Sequence]; s != nil {
			return s, true
		}
	}
	best, least := in.next, math.MaxInt
	for at := in.next; at < in.next+len(in.servers) && least > 0; at++ {
		c, against := in.servers[at%len(in.servers)], 0
		if c.resting(now) {
			against++
		}
		if slices.Contains(tried, c) {
			against += 2
		}
		if against < least {
			best, least = at, against
		}
	}
	s = in.servers[best%len(in.servers)]
	in.next = best + 1
	if j.Sequence != 0 {
		in.homes[j.Sequence] = s
	}
	return s, false
}

// request is the job in the client's words.
func (in *instance) request(j *backend.Job) *v2client.Request {
	req := &v2client.Request{
		Model: in.model, Version: in.version, ID: j.Request.ID, Priority: j.Request.Priority, Timeout: j.Request.Timeout,
		Parameters: j.Request.Parameters,
	}
	if in.decoupled {
		// Else nothing would tell the last answer of a stream.
		req.Parameters = maps.Clone(req.Parameters)
		if req.Parameters == nil {
			req.Parameters = map[string]any{}
		}
		req.Parameters["triton_enable_empty_final_response"] = true
	}
	if j.Sequence != 0 {
		req.Sequence, req.Start, req.End = in.prefix|j.Sequence&0xffffffff, j.Start, j.End
	}
	for _, t := range j.Inputs {
		// Controls and state are the other server's own affair.
		if in.inputs[t.Name] {
			req.Inputs = append(req.Inputs, v2client.Input{Tensor: t})
		}
	}
	for _, o := range j.Request.Outputs {
		req.Outputs = append(req.Outputs, v2client.Output{Name: o.Name})
	}
	return req
}

// ask gives one server the request. Started says that an answer was handed on, so
// that another server must not be asked.
func (in *instance) ask(ctx context.Context, s *server, j *backend.Job, req *v2client.Request) (started bool, err error) {
	if !in.decoupled {
		r, err := s.infer(ctx, req)
		if err != nil {
			return false, err
		}
		return true, in.respond(j, r)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.grpc.Stream(ctx)
	if err != nil {
		return false, err
	}
	if err := stream.SendRequest(req); err != nil {
		return false, err
	}
	for {
		r, err := stream.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return started, err
		}
		started = true
		if len(r.Outputs) > 0 || !r.Final {
			if err := in.respond(j, r); err != nil {
				return started, err
			}
		}
		if r.Final {
			j.Finish()
			return true, nil
		}
	}
}

// respond hands an answer on; its tensors stay in the message they came in, whose memory is given back with them.
// What the configuration does not allow is an error: whoever reads the tensors next relies on it.
func (in *instance) respond(j *backend.Job, r *v2client.Response) error {
	out := j.NewResponse()
	out.OnRelease(r.Release)
	for k, v := range r.Parameters {
		if out.Parameters == nil {
			out.Parameters = map[string]any{}
		}
		if k != "triton_final_response" {
			out.Parameters[k] = v
		}
	}
	for i := range r.Outputs {
		t := &r.Outputs[i]
		want, known := in.outputs[t.Name]
		if !known || !j.Wants(t.Name) {
			continue
		}
		err := check(t, want)
		if out.Output(t.Name) != nil {
			err = errors.New("it is there twice")
		}
		if err != nil {
			err = &v2client.AnswerError{ID: r.ID, Message: fmt.Sprintf("output '%s' of the answer: %v", t.Name, err)}
			out.Release()
			return err
		}
		data := t.Data
		if into := j.Into(t.Name, len(data)); into != nil {
			copy(into, data)
			data = into
		}
		out.AddView(t.Name, t.DataType, t.Shape, data)
	}
	for name := range in.outputs {
		if !in.decoupled && j.Wants(name) && out.Output(name) == nil {
			err := &v2client.AnswerError{ID: r.ID, Message: fmt.Sprintf("the answer lacks output '%s'", name)}
			out.Release()
			return err
		}
	}
	j.Respond(out)
	return nil
}

// check compares an output of an answer with the configuration and with itself.
func check(t *tensor.Tensor, want tensor.DataType) error {
	if t.DataType != want {
		return fmt.Errorf("it is %s, the configuration says %s", t.DataType, want)
	}
	n, err := tensor.ElementCount(t.Shape)
	if err != nil {
		return err
	}
	have, what := int64(len(t.Data)), "bytes"
	if t.DataType == tensor.Bytes {
		what = "strings"
		have, err = tensor.CountElements(t.Data)
	} else {
		n, err = tensor.ByteSize(t.DataType, t.Shape)
	}
	if err == nil && n != have {
		err = fmt.Errorf("shape %s takes %d %s, not %d", tensor.FormatShape(t.Shape), n, what, have)
	}
	return err
}
