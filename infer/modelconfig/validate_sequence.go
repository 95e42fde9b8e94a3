package modelconfig

import (
	"fmt"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
)

func (f *ConfigError) sequence(cfg *inference.ModelConfig) {
	s, name := cfg.GetSequenceBatching(), cfg.GetName()
	if u := s.GetDirect().GetMinimumSlotUtilization(); s.GetDirect() != nil && !(u >= 0 && u <= 1) {
		f.add("sequence batching minimum slot utilization must be in range (0.0, 1.0] for %s", name)
	}
	if o := s.GetOldest(); o != nil {
		f.preferred("sequence batching", o.GetPreferredBatchSize(), cfg)
		if c := o.GetMaxCandidateSequences(); c < 0 || c > maxCandidates {
			f.add("sequence_batching.oldest.max_candidate_sequences: %d of %s is not between 0 and %d", c, name, maxCandidates)
		}
	}
	f.controls(cfg)
	f.states(cfg)
}

func (f *ConfigError) controls(cfg *inference.ModelConfig) {
	name := cfg.GetName()
	seen := make(map[inference.ModelSequenceBatching_Control_Kind]bool)
	names := make(map[string]bool)
	for i, in := range cfg.GetSequenceBatching().GetControlInput() {
		at := fmt.Sprintf("sequence_batching.control_input[%d]", i)
		if in.GetName() == "" {
			f.add("%s: sequence batching control tensor must have a name for %s", at, name)
		}
		if names[in.GetName()] {
			f.add("%s: sequence batching control tensor '%s' is specified for multiple control kinds for %s", at, in.GetName(), name)
		}
		names[in.GetName()] = true
		if len(in.GetControl()) == 0 {
			f.add("%s: sequence batching control tensor '%s' has no control for %s", at, in.GetName(), name)
		}
		for _, c := range in.GetControl() {
			if seen[c.GetKind()] {
				f.add("%s: sequence batching specifies multiple %s tensors for %s", at, c.GetKind(), name)
			}
			seen[c.GetKind()] = true
			if c.GetKind() == inference.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID {
				f.correlation(at, c, name)
			} else {
				f.flag(at, c, name)
			}
		}
	}
}

func (f *ConfigError) flag(at string, c *inference.ModelSequenceBatching_Control, name string) {
	sets := 0
	for _, v := range []struct {
		field string
		n     int
	}{
		{"int32_false_true", len(c.GetInt32FalseTrue())},
		{"fp32_false_true", len(c.GetFp32FalseTrue())},
		{"bool_false_true", len(c.GetBoolFalseTrue())},
	} {
		if v.n == 0 {
			continue
		}
		sets++
		if v.n != 2 {
			f.add("%s: sequence batching control '%s' must have exactly 2 entries for %s for %s", at, v.field, c.GetKind(), name)
		}
	}
	switch {
	case sets == 0:
		f.add("%s: sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for %s for %s", at, c.GetKind(), name)
	case sets > 1:
		f.add("%s: sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and 'bool_false_true' for %s for %s", at, c.GetKind(), name)
	}
}

func (f *ConfigError) correlation(at string, c *inference.ModelSequenceBatching_Control, name string) {
	switch DataType(c.GetDataType()) {
	case tensor.Uint64, tensor.Int64, tensor.Uint32, tensor.Int32, tensor.Bytes:
	default:
		f.add("%s: unexpected data type for control %s for %s. Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
			at, c.GetKind(), name)
	}
	if len(c.GetInt32FalseTrue())+len(c.GetFp32FalseTrue())+len(c.GetBoolFalseTrue()) > 0 {
		f.add("%s: sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for %s for %s", at, c.GetKind(), name)
	}
}

func (f *ConfigError) states(cfg *inference.ModelConfig) {
	inputs, outputs := make(map[string]bool), make(map[string]bool)
	for _, in := range cfg.GetInput() {
		inputs[in.GetName()] = true
	}
	for i, s := range cfg.GetSequenceBatching().GetState() {
		at := fmt.Sprintf("sequence_batching.state[%d]", i)
		if s.GetInputName() == "" || s.GetOutputName() == "" {
			f.add("%s: state must specify 'input_name' and 'output_name' for %s", at, cfg.GetName())
		}
		if inputs[s.GetInputName()] {
			f.add("%s: state input '%s' is also an input of %s", at, s.GetInputName(), cfg.GetName())
		}
		if outputs[s.GetOutputName()] {
			f.add("%s: state output '%s' appears twice in %s", at, s.GetOutputName(), cfg.GetName())
		}
		inputs[s.GetInputName()], outputs[s.GetOutputName()] = true, true
		if DataType(s.GetDataType()) == tensor.Invalid {
			f.add("%s: state must specify 'data_type' for %s", at, cfg.GetName())
		}
		for _, d := range s.GetDims() {
			if d < 1 && d != -1 {
				f.add("%s: state dimension must be integer >= 1, or -1 to indicate a variable-size dimension for %s", at, cfg.GetName())
			}
		}
		if s.GetUseGrowableMemory() && !s.GetUseSameBufferForInputOutput() {
			f.add("%s: 'use_growable_memory' is only supported when use_single_buffer is enabled for %s", at, cfg.GetName())
		}
		f.initial(at, s)
	}
}

func (f *ConfigError) initial(at string, s *inference.ModelSequenceBatching_State) {
	if len(s.GetInitialState()) > 1 {
		f.add("%s: initial_state field for state input '%s' must contain exactly one or zero element. Found %d elements", at, s.GetInputName(), len(s.GetInitialState()))
	}
	for _, i := range s.GetInitialState() {
		if i.GetName() == "" {
			f.add("%s: field 'name' must be set when using initial_state for state input '%s'", at, s.GetInputName())
		}
		if i.GetDataType() != s.GetDataType() {
			f.add("%s: the data type used for 'initial_state' field of state '%s' does not match the state data type", at, s.GetInputName())
		}
		if i.GetStateData() == nil {
			f.add("%s: initial_state of state '%s' must specify zero_data or data_file", at, s.GetInputName())
		}
		if len(i.GetDims()) != len(s.GetDims()) {
			f.add("%s: the number of dimensions in 'initial_state' field of state '%s' does not match that of the state", at, s.GetInputName())
			continue
		}
		for k, d := range i.GetDims() {
			switch {
			case d < 1:
				f.add("%s: initial_state dims of state '%s' must not have variable dimensions", at, s.GetInputName())
			case s.GetDims()[k] != -1 && s.GetDims()[k] != d:
				f.add("%s: the dimensions in 'initial_state' field of state '%s' do not match those of the state", at, s.GetInputName())
			}
		}
	}
}
