package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.starlark.net/starlark"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// callKey is where a thread keeps its call.
const callKey = "call"

// call is one run of a script: the request it serves and the responses it holds.
type call struct {
	in   *instance
	ctx  context.Context
	job  *backend.Job
	held []*lease
}

// lease shares an inner response between the script and the answers that show its
// tensors.
type lease struct {
	response *infer.Response
	users    atomic.Int32
}

func (l *lease) release() {
	if l.users.Add(-1) == 0 {
		l.response.Release()
	}
}

func (c *call) release() {
	for _, l := range c.held {
		l.release()
	}
}

// maxParallel bounds one infer_all.
const maxParallel = 1024

var errLoading = errors.New("models cannot be called while the script is being loaded, only from execute")

func current(t *starlark.Thread) (*call, error) {
	c, ok := t.Local(callKey).(*call)
	if !ok || c.job == nil {
		return nil, errLoading
	}
	return c, nil
}

// asked is the request that a script makes by the arguments of a built-in function.
func asked(t *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (*call, *infer.Request, error) {
	c, err := current(t)
	if err != nil {
		return nil, nil, err
	}
	req, err := c.request(b.Name(), args, kwargs)
	return c, req, err
}

func inferOne(t *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	c, req, err := asked(t, b, args, kwargs)
	if err != nil {
		return nil, err
	}
	r, err := infer.Await(c.ctx, c.in.model.Inferer, req)
	if err != nil {
		return nil, fmt.Errorf("model '%s': %w", req.Model, err)
	}
	return c.hold(r), nil
}

func tryInfer(t *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	c, req, err := asked(t, b, args, kwargs)
	if err != nil {
		return nil, err
	}
	r, err := infer.Await(c.ctx, c.in.model.Inferer, req)
	if err != nil {
		return starlark.Tuple{starlark.None, starlark.String(err.Error())}, nil //nolint:nilerr // the script asked to see it
	}
	return starlark.Tuple{c.hold(r), starlark.None}, nil
}

// maxAnswers bounds what one infer_stream keeps.
const maxAnswers = 1024

// inferStream waits until a model that answers any number of times is done.
func inferStream(t *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	c, req, err := asked(t, b, args, kwargs)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	var responses []*infer.Response
	var fault error
	done := make(chan struct{})
	err = c.in.model.Inferer.Submit(ctx, req, func(r infer.Reply) {
		if r.Err != nil {
			fault = cmp.Or(fault, r.Err)
		}
		if r.Response != nil {
			responses = append(responses, r.Response)
		}
		if len(responses) > maxAnswers {
			fault = cmp.Or(fault, fmt.Errorf("it answers more than %d times", maxAnswers))
			cancel()
			responses[maxAnswers].Release()
			responses = responses[:maxAnswers]
		}
		if r.Final {
			close(done)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("model '%s': %w", req.Model, err)
	}
	<-done
	list := make([]starlark.Value, len(responses))
	for i, r := range responses {
		list[i] = c.hold(r)
	}
	if fault != nil {
		return nil, fmt.Errorf("model '%s': %w", req.Model, fault)
	}
	return starlark.NewList(list), nil
}

// cancelled tells whether the client has given up.
func cancelled(t *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	c, err := current(t)
	if err != nil {
		return nil, err
	}
	return starlark.Bool(c.job.Cancelled()), starlark.UnpackArgs(b.Name(), args, kwargs)
}

// inferAll submits everything before it waits for anything.
func inferAll(t *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	c, err := current(t)
	if err != nil {
		return nil, err
	}
	var list *starlark.List
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "requests", &list); err != nil {
		return nil, err
	}
	if list.Len() > maxParallel {
		return nil, fmt.Errorf("infer_all: %d requests, at most %d", list.Len(), maxParallel)
	}
	requests := make([]*infer.Request, list.Len())
	for i := range requests {
		pair, ok := list.Index(i).(starlark.Tuple)
		if !ok {
			return nil, fmt.Errorf("infer_all: request %d is %s, not (model, inputs)", i, list.Index(i).Type())
		}
		if requests[i], err = c.request(b.Name(), pair, nil); err != nil {
			return nil, err
		}
	}
	responses, err := c.all(requests)
	if err != nil {
		return nil, err
	}
	out := make([]starlark.Value, len(responses))
	for i, r := range responses {
		out[i] = c.hold(r)
	}
	return starlark.NewList(out), nil
}

// all runs requests at once. On an error the others' responses are released.
func (c *call) all(requests []*infer.Request) ([]*infer.Response, error) {
	responses, errs := make([]*infer.Response, len(requests)), make([]error, len(requests))
	var wg sync.WaitGroup
	for i, req := range requests {
		wg.Add(1)
		reply := func(r infer.Reply) {
			switch {
			case r.Response != nil && responses[i] == nil:
				responses[i] = r.Response
			case r.Response != nil:
				r.Response.Release()
			}
			if r.Err != nil {
				errs[i] = r.Err
			}
			if r.Final {
				wg.Done()
			}
		}
		if err := c.in.model.Inferer.Submit(c.ctx, req, reply); err != nil {
			errs[i] = err
			wg.Done()
		}
	}
	wg.Wait()
	for i, err := range errs {
		if err == nil && responses[i] == nil {
			err = errors.New("no response")
		}
		if err != nil {
			for _, r := range responses {
				r.Release()
			}
			return nil, fmt.Errorf("request %d to model '%s': %w", i, requests[i].Model, err)
		}
	}
	return responses, nil
}

// request reads the arguments of infer.
func (c *call) request(fn string, args starlark.Tuple, kwargs []starlark.Tuple) (*infer.Request, error) {
	req := &infer.Request{Version: -1, ID: c.job.Request.ID, Scope: c.job.Request.Scope, Priority: c.job.Request.Priority, Received: time.Now()}
	var inputs, parameters *starlark.Dict
	var outputs *starlark.List
	var version, timeout int64 = -1, 0
	var id starlark.Value
	if err := starlark.UnpackArgs(fn, args, kwargs, "model", &req.Model, "inputs", &inputs, "outputs?", &outputs, "version?", &version,
		"timeout_us?", &timeout, "correlation_id?", &id, "sequence_start?", &req.SequenceStart, "sequence_end?", &req.SequenceEnd,
		"parameters?", &parameters); err != nil {
		return nil, err
	}
	var err error
	if req.Parameters, err = given(parameters); err != nil {
		return nil, fmt.Errorf("%s: %w", fn, err)
	}
	req.Version, req.Timeout = version, time.Duration(timeout)*time.Microsecond
	switch id := id.(type) {
	case nil:
	case starlark.Int:
		n, ok := id.Uint64()
		if !ok {
			return nil, fmt.Errorf("%s: correlation_id %s is negative or too large", fn, id)
		}
		req.Correlation.Num = n
	case starlark.String:
		req.Correlation.Str = string(id)
	default:
		return nil, fmt.Errorf("%s: correlation_id is %s, not a number or a string", fn, id.Type())
	}
	for _, kv := range inputs.Items() {
		name, okName := starlark.AsString(kv[0])
		v, okValue := kv[1].(*value)
		if !okName || !okValue {
			return nil, fmt.Errorf("%s: inputs[%s] is %s, not a tensor", fn, kv[0], kv[1].Type())
		}
		t := v.t
		t.Name = name
		req.Inputs = append(req.Inputs, t)
	}
	if outputs == nil {
		return req, nil
	}
	for i := range outputs.Len() {
		name, ok := starlark.AsString(outputs.Index(i))
		if !ok {
			return nil, fmt.Errorf("%s: outputs[%d] is no name", fn, i)
		}
		req.Outputs = append(req.Outputs, infer.OutputSpec{Name: name})
	}
	return req, nil
}

// given are the parameters that a script sends along.
func given(d *starlark.Dict) (map[string]any, error) {
	if d == nil || d.Len() == 0 {
		return nil, nil //nolint:nilnil // an empty map is as good
	}
	out := make(map[string]any, d.Len())
	for _, kv := range d.Items() {
		name, ok := starlark.AsString(kv[0])
		if !ok {
			return nil, fmt.Errorf("the name of parameter %s is no string", kv[0])
		}
		switch v := kv[1].(type) {
		case starlark.String:
			out[name] = string(v)
		case starlark.Bool:
			out[name] = bool(v)
		case starlark.Float:
			out[name] = float64(v)
		case starlark.Int:
			n, ok := v.Int64()
			if !ok {
				return nil, fmt.Errorf("parameter '%s': %s does not fit 64 bits", name, v)
			}
			out[name] = n
		default:
			return nil, fmt.Errorf("parameter '%s' is %s, not a string, number or truth", name, v.Type())
		}
	}
	return out, nil
}

// hold shows a response to the script for as long as the script runs.
func (c *call) hold(r *infer.Response) starlark.Value {
	l := &lease{response: r}
	l.users.Store(1)
	c.held = append(c.held, l)
	out := starlark.NewDict(len(r.Outputs))
	for _, t := range r.Outputs {
		_ = out.SetKey(starlark.String(t.Name), &value{t}) // strings are hashable
	}
	return out
}

// respond answers at once.
func respond(t *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	c, err := current(t)
	if err != nil {
		return nil, err
	}
	var outputs *starlark.Dict
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "outputs", &outputs); err != nil {
		return nil, err
	}
	if !c.in.decoupled {
		return nil, errors.New("respond: the model is not decoupled, return the outputs instead")
	}
	r, err := c.response(outputs)
	if err != nil {
		return nil, err
	}
	c.job.Respond(r)
	return starlark.None, nil
}

// response makes the answer. Its tensors may be views of inner responses, which it
// keeps, or of the request, which outlives it.
func (c *call) response(outputs *starlark.Dict) (*infer.Response, error) {
	r := c.job.NewResponse()
	for _, kv := range outputs.Items() {
		name, _ := starlark.AsString(kv[0])
		v, ok := kv[1].(*value)
		typ, configured := c.in.outputs[name]
		switch {
		case !configured:
			r.Release()
			return nil, fmt.Errorf("output %s is not one of the configuration's", kv[0])
		case !ok:
			r.Release()
			return nil, fmt.Errorf("output '%s' is %s, not a tensor", name, kv[1].Type())
		case v.t.DataType != typ:
			r.Release()
			return nil, fmt.Errorf("output '%s' is %s, the configuration says %s", name, v.t.DataType, typ)
		}
		if c.job.Wants(name) {
			c.add(r, name, &v.t)
		}
	}
	for name := range c.in.outputs {
		if c.job.Wants(name) && r.Output(name) == nil {
			r.Release()
			return nil, fmt.Errorf("output '%s' is missing", name)
		}
	}
	for _, l := range c.held {
		l.users.Add(1)
		r.OnRelease(l.release)
	}
	return r, nil
}

func (c *call) add(r *infer.Response, name string, t *tensor.Tensor) {
	if into := c.job.Into(name, len(t.Data)); into != nil {
		copy(into, t.Data)
		r.AddView(name, t.DataType, t.Shape, into)
		return
	}
	r.AddView(name, t.DataType, t.Shape, t.Data)
}
