package repository

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

// state is one tensor that the server carries from each request of a sequence
// to the next. Input and output belong together by their configuration entry.
type state struct {
	input, output string
	dataType      tensor.DataType
	shape         []int64 // initial, with the batch dimension
	initial       []byte  // never written to
	returned      bool    // the output is also one of the model's
}

// held is the state of one sequence, in the order of version.states.
type held struct {
	tensors []tensor.Tensor
	buffers []*tensor.Buffer // nil where the tensor is the initial state
}

func (h *held) release() {
	for i, b := range h.buffers {
		if b != nil {
			b.Release()
			h.buffers[i] = nil
		}
	}
}

func statesOf(cfg *inference.ModelConfig, dir string) ([]state, error) {
	var out []state
	for i, s := range cfg.GetSequenceBatching().GetState() {
		st := state{input: s.GetInputName(), output: s.GetOutputName(), dataType: modelconfig.DataType(s.GetDataType())}
		dims := s.GetDims()
		var init *inference.ModelSequenceBatching_InitialState
		if len(s.GetInitialState()) > 0 {
			init = s.GetInitialState()[0]
			dims = init.GetDims()
		}
		if cfg.GetMaxBatchSize() > 0 {
			st.shape = append(st.shape, 1)
		}
		for _, d := range dims {
			if d == -1 {
				d = 1
			}
			st.shape = append(st.shape, d)
		}
		n, err := tensor.ElementCount(st.shape)
		if err != nil {
			return nil, fmt.Errorf("sequence_batching.state[%d]: %w", i, err)
		}
		if n > 1<<30 {
			return nil, fmt.Errorf("sequence_batching.state[%d]: %d elements are more than a state may have", i, n)
		}
		size := int(n) * max(st.dataType.Size(), 4)
		if st.dataType != tensor.Bytes {
			size = int(n) * st.dataType.Size()
		}
		st.initial = make([]byte, size) // zeros: models that look at START do not care
		if f := init.GetDataFile(); f != "" {
			if st.initial, err = initialState(dir, f, st, size); err != nil {
				return nil, err
			}
		}
		for _, o := range cfg.GetOutput() {
			st.returned = st.returned || o.GetName() == st.output
		}
		out = append(out, st)
	}
	return out, nil
}

func initialState(dir, name string, st state, size int) ([]byte, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("initial state file '%s' for state input '%s' must be inside the model's initial_state directory", name, st.input)
	}
	data, err := readTensor(filepath.Join(dir, "initial_state", name), st.dataType, size)
	if err != nil {
		return nil, fmt.Errorf("initial state of '%s': %w", st.input, err)
	}
	if st.dataType != tensor.Bytes && len(data) < size {
		return nil, fmt.Errorf("initial_state setting expects %d bytes, but the data provided from %s only has %d bytes", size, name, len(data))
	}
	return data, nil
}

// attachState adds the sequence's state to a request's inputs.
func (v *version) attachState(j *job) {
	h, ok := j.sched.Sequence.State.(*held)
	if !ok {
		h = &held{tensors: make([]tensor.Tensor, len(v.states)), buffers: make([]*tensor.Buffer, len(v.states))}
		j.sched.Sequence.State = h
	}
	if !ok || j.Start {
		h.release()
		for i := range v.states {
			s := &v.states[i]
			h.tensors[i] = tensor.Tensor{Name: s.input, DataType: s.dataType, Shape: s.shape, Data: s.initial}
		}
	}
	j.Inputs = append(j.Inputs, h.tensors...)
}

func (v *version) padState(n *null) {
	for i := range v.states {
		s := &v.states[i]
		n.Inputs = append(n.Inputs, tensor.Tensor{Name: s.input, DataType: s.dataType, Shape: s.shape, Data: s.initial})
	}
}

// keepState takes the state outputs of a response for the sequence's next
// request, and out of the response unless they are outputs as well.
func (v *version) keepState(j *job, r *infer.Response) {
	h, ok := j.sched.Sequence.State.(*held)
	if !ok {
		return
	}
	for i := range v.states {
		s := &v.states[i]
		out := r.Output(s.output)
		if out == nil {
			continue
		}
		// Outputs may be views of the old state, so it lives as long as they.
		if old := h.buffers[i]; old != nil {
			r.Keep(old)
		}
		b := v.repo.pool.Get(len(out.Data))
		copy(b.Bytes, out.Data)
		h.buffers[i] = b
		h.tensors[i] = tensor.Tensor{Name: s.input, DataType: out.DataType, Shape: slices.Clone(out.Shape), Data: b.Bytes}
	}
}
