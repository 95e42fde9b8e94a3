// Package implicitstate is a model whose state the server keeps: each state
// input plus INPUT becomes the state output and OUTPUT. It exists to test what
// schedulers do with state.
//
// INPUT, OUTPUT and the first state of the configuration are INT32 of one
// shape; further states are passed on unchanged.
//
// An input TEST_CASE INT32[1] makes it do what test suites of servers ask for:
// 0 sets a state that does not exist, 1 answers without setting the state, 2
// leaves the state as it is and answers nothing, 3 wants memory on a GPU.
package implicitstate

import (
	"context"
	"slices"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// Backend makes accumulators without memory. The zero value is ready.
type Backend struct{}

// Complete implements backend.Backend: there is no file to learn from.
func (Backend) Complete(context.Context, *backend.Model) error { return nil }

// NewInstance implements backend.Backend.
func (Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	states := m.Config.GetSequenceBatching().GetState()
	testing := slices.ContainsFunc(m.Config.GetInput(), func(in *inference.ModelInput) bool { return in.GetName() == "TEST_CASE" })
	if len(states) == 0 && !testing {
		return nil, infer.Errorf(infer.InvalidArgument, "unable to add state. State configuration is missing for model '%s'.", m.Name)
	}
	return &instance{m.Name, states}, nil
}

type instance struct {
	model  string
	states []*inference.ModelSequenceBatching_State
}

// Execute implements backend.Instance.
func (i *instance) Execute(_ context.Context, jobs []*backend.Job) {
	for _, j := range jobs {
		if err := i.one(j); err != nil {
			j.Fail(err)
		}
	}
}

func (i *instance) one(j *backend.Job) error {
	test := j.Input("TEST_CASE")
	if test != nil && len(test.Data) >= 4 && tensor.View[int32](test.Data)[0] == 0 {
		if len(i.states) == 0 {
			return infer.Errorf(infer.InvalidArgument,
				"unable to add state 'undefined_state'. State configuration is missing for model '%s'.", i.model)
		}
		return infer.Errorf(infer.InvalidArgument, "state 'undefined_state' is not a valid state name.")
	}
	if len(i.states) == 0 {
		return infer.Errorf(infer.InvalidArgument, "unable to add state. State configuration is missing for model '%s'.", i.model)
	}
	in, first := j.Input("INPUT"), j.Input(i.states[0].GetInputName())
	if in == nil || first == nil {
		return infer.Errorf(infer.InvalidArgument, "implicit_state model needs INPUT and its state")
	}
	sums := slices.Clone(tensor.View[int32](in.Data))
	for k, v := range tensor.View[int32](first.Data) {
		if k < len(sums) {
			sums[k] += v
		}
	}
	if test != nil && len(test.Data) >= 4 {
		return i.try(j, tensor.View[int32](test.Data)[0], in.Shape, sums)
	}
	r := j.NewResponse()
	copy(r.Add(i.states[0].GetOutputName(), tensor.Int32, in.Shape, 4*len(sums)), tensor.AsBytes(sums))
	for _, s := range i.states[1:] {
		if t := j.Input(s.GetInputName()); t != nil {
			r.AddView(s.GetOutputName(), t.DataType, t.Shape, t.Data)
		}
	}
	if j.Wants("OUTPUT") && i.states[0].GetOutputName() != "OUTPUT" {
		copy(r.Add("OUTPUT", tensor.Int32, in.Shape, 4*len(sums)), tensor.AsBytes(sums))
	}
	j.Respond(r)
	return nil
}

// try does what a test case asks for.
func (i *instance) try(j *backend.Job, test int32, shape []int64, sums []int32) error {
	if test < 1 || test > 2 {
		return infer.Errorf(infer.Unsupported, "growable memory should always provide memory in GPU")
	}
	r := j.NewResponse()
	if test == 1 && j.Wants("OUTPUT") {
		copy(r.Add("OUTPUT", tensor.Int32, shape, 4*len(sums)), tensor.AsBytes(sums))
	}
	j.Respond(r)
	return nil
}

// Close implements backend.Instance.
func (i *instance) Close() error { return nil }
