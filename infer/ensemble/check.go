package ensemble

import (
	"fmt"
	"slices"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// check looks for everything that keeps a graph from running and returns what
// the models of its steps are. Messages are those clients know from Triton.
func check(cfg Config) ([]*infer.ModelInfo, error) {
	m := cfg.Model
	name := m.GetName()
	var infos []*infer.ModelInfo
	c := checker{ensemble: m, seen: make(map[string]port), made: make(map[string]bool), used: make(map[string]bool)}
	c.borders()
	for i, s := range m.GetEnsembleScheduling().GetStep() {
		if s.GetModelName() == "" {
			return nil, fmt.Errorf("must specify 'model_name' in step %d of ensemble '%s'", i, name)
		}
		if len(s.GetInputMap()) == 0 {
			return nil, fmt.Errorf("must specify 'input_map' in step %d of ensemble '%s'", i, name)
		}
		if len(s.GetOutputMap()) == 0 {
			return nil, fmt.Errorf("must specify 'output_map' in step %d of ensemble '%s'", i, name)
		}
		info, err := cfg.Lookup(s.GetModelName(), s.GetModelVersion())
		if err != nil {
			return nil, fmt.Errorf("ensemble '%s' depends on '%s' which has no loaded version. Model '%s' loading failed with error: %w",
				name, s.GetModelName(), s.GetModelName(), err)
		}
		infos = append(infos, info)
		if b := info.Config.GetMaxBatchSize(); b > 0 && b < m.GetMaxBatchSize() {
			return nil, fmt.Errorf("ensemble %s allows maximum batch size %d, but it contains model %s which only allows maximum batch size to be %d",
				name, m.GetMaxBatchSize(), s.GetModelName(), b)
		}
		if m.GetResponseCache().GetEnable() && info.Decoupled {
			return nil, infer.Errorf(infer.InvalidArgument, "Response cache does not currently support ensemble '%s' with model '%s' of 'decoupled' transaction policy. "+
				"Please disable the response cache.", name, s.GetModelName())
		}
		if err := c.inputs(s, info.Config); err != nil {
			return nil, err
		}
		if err := c.outputs(s, info.Config); err != nil {
			return nil, err
		}
	}
	return infos, c.ends()
}

type checker struct {
	ensemble *inference.ModelConfig
	seen     map[string]port // tensors, as the first who names one has it
	made     map[string]bool // by a step, or by the request
	used     map[string]bool // by a step, or in the answer
}

// port is what one side says of a tensor.
type port struct {
	dataType inference.DataType
	dims     []int64
	batched  bool // the tensor has one dimension more in front
	model    string
}

// full is the shape with the batch dimension.
func (p port) full() []int64 {
	if p.batched {
		return append([]int64{-1}, p.dims...)
	}
	return p.dims
}

// borders notes what the ensemble itself says of its tensors.
func (c *checker) borders() {
	m := c.ensemble
	batched := m.GetMaxBatchSize() > 0
	for _, in := range m.GetInput() {
		c.seen[in.GetName()] = port{in.GetDataType(), inner(in.GetDims(), in.GetReshape()), batched, m.GetName()}
		c.made[in.GetName()] = true
	}
	for _, out := range m.GetOutput() {
		if _, passed := c.seen[out.GetName()]; !passed {
			c.seen[out.GetName()] = port{out.GetDataType(), inner(out.GetDims(), out.GetReshape()), batched, m.GetName()}
		}
		c.used[out.GetName()] = true
	}
}

// inner are the dimensions behind a reshape.
func inner(dims []int64, r *inference.ModelTensorReshape) []int64 {
	if r != nil {
		return r.GetShape()
	}
	return dims
}

func (c *checker) inputs(s *inference.ModelEnsembling_Step, cfg *inference.ModelConfig) error {
	name := c.ensemble.GetName()
	for in, t := range s.GetInputMap() {
		if !slices.ContainsFunc(cfg.GetInput(), func(o *inference.ModelInput) bool { return o.GetName() == in }) {
			return fmt.Errorf("in ensemble %s, ensemble tensor %s is mapping to non-existing input %s in model %s", name, t, in, s.GetModelName())
		}
		c.used[t] = true
	}
	for _, in := range cfg.GetInput() {
		t, mapped := s.GetInputMap()[in.GetName()]
		if !mapped && !in.GetOptional() {
			return fmt.Errorf("in ensemble %s, input %s in model %s is not mapped to any ensemble tensors", name, in.GetName(), s.GetModelName())
		}
		if !mapped {
			continue
		}
		if err := c.agree(t, port{in.GetDataType(), in.GetDims(), cfg.GetMaxBatchSize() > 0, s.GetModelName()}); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) outputs(s *inference.ModelEnsembling_Step, cfg *inference.ModelConfig) error {
	name := c.ensemble.GetName()
	for out, t := range s.GetOutputMap() {
		if !slices.ContainsFunc(cfg.GetOutput(), func(o *inference.ModelOutput) bool { return o.GetName() == out }) {
			return fmt.Errorf("in ensemble %s, ensemble tensor %s is mapped from non-existing output %s in model %s", name, t, out, s.GetModelName())
		}
	}
	for _, out := range cfg.GetOutput() {
		t, mapped := s.GetOutputMap()[out.GetName()]
		if !mapped {
			continue
		}
		if c.made[t] {
			return fmt.Errorf("ensemble tensor '%s' can appear in an output map only once for ensemble '%s' step of model '%s'", t, name, s.GetModelName())
		}
		c.made[t] = true
		if err := c.agree(t, port{out.GetDataType(), out.GetDims(), cfg.GetMaxBatchSize() > 0, s.GetModelName()}); err != nil {
			return err
		}
	}
	return nil
}

// ends looks for tensors that come from nowhere and inputs that go nowhere.
func (c *checker) ends() error {
	name := c.ensemble.GetName()
	for _, s := range c.ensemble.GetEnsembleScheduling().GetStep() {
		for in, t := range s.GetInputMap() {
			if !c.made[t] {
				return fmt.Errorf("in ensemble %s, ensemble tensor %s, which input %s in model %s needs, is made by no step and is no input of the ensemble",
					name, t, in, s.GetModelName())
			}
		}
	}
	for _, out := range c.ensemble.GetOutput() {
		if !c.made[out.GetName()] {
			return fmt.Errorf("ensemble output '%s' for ensemble '%s' is not used: no step makes it", out.GetName(), name)
		}
	}
	for _, in := range c.ensemble.GetInput() {
		if !c.used[in.GetName()] {
			return fmt.Errorf("ensemble input '%s' for ensemble '%s' is not used", in.GetName(), name)
		}
	}
	return nil
}

// agree compares what is said of a tensor with what was said of it before. A
// model that batches and one that does not agree in two ways: both have the
// same dimensions, and a batch of one is put in front or taken away; or the one
// that does not batch spells the batch dimension out.
func (c *checker) agree(name string, now port) error {
	before, known := c.seen[name]
	if !known {
		c.seen[name] = now
		return nil
	}
	where := "in ensemble " + c.ensemble.GetName() + ", ensemble tensor " + name + ": "
	if before.dataType != now.dataType {
		return fmt.Errorf("%sinconsistent data type: %s is inferred from model %s while %s is inferred from model %s",
			where, before.dataType, before.model, now.dataType, now.model)
	}
	if alike(before.dims, now.dims) || alike(before.full(), now.full()) {
		return nil
	}
	hint := "make their dims agree, or give one of them a reshape"
	if before.batched != now.batched {
		hint += "; the first dimension of a model with max_batch_size is its batch"
	}
	return fmt.Errorf("%sinconsistent shape: %s is inferred from model %s while %s is inferred from model %s (%s)",
		where, tensor.FormatShape(before.full()), before.model, tensor.FormatShape(now.full()), now.model, hint)
}

func alike(a, b []int64) bool {
	return slices.EqualFunc(a, b, func(x, y int64) bool { return x == y || x == -1 || y == -1 })
}
