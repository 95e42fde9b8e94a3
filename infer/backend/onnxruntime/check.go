package onnxruntime

import (
	"slices"
	"strings"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

func refuse(format string, args ...any) error {
	return infer.Errorf(infer.InvalidArgument, format, args...)
}

// check compares the configuration with the graph. Its messages are what
// operators of the reference server search for.
func check(m *backend.Model, g graph) error {
	c := m.Config
	expected := len(c.GetBatchInput())
	for _, in := range c.GetInput() {
		if !in.GetOptional() {
			expected++
		}
	}
	n, err := checkControls(m, g)
	if err != nil {
		return err
	}
	expected += n + len(c.GetSequenceBatching().GetState())
	optional := 0
	for _, in := range c.GetInput() {
		// Optional inputs that have no default in the graph count as its own.
		if in.GetOptional() && find(g.inputs, in.GetName()) != nil {
			optional++
		}
	}
	if len(g.inputs) != expected+optional {
		return refuse("unable to load model '%s', configuration expects %d inputs, model provides %d", m.Name, expected, len(g.inputs))
	}
	for _, in := range c.GetInput() {
		if err := checkInput(m, g, in); err != nil {
			return err
		}
	}
	for _, out := range c.GetOutput() {
		if err := checkOutput(m, g, out); err != nil {
			return err
		}
	}
	for _, s := range c.GetSequenceBatching().GetState() {
		p := find(g.outputs, s.GetOutputName())
		if p == nil {
			return unexpected("output", s.GetOutputName(), g.outputs)
		}
		if err := checkType(m, "output state", s.GetOutputName(), s.GetDataType(), p); err != nil {
			return err
		}
		if find(g.inputs, s.GetInputName()) == nil {
			return unexpected("input", s.GetInputName(), g.inputs)
		}
	}
	for _, bi := range c.GetBatchInput() {
		for _, name := range bi.GetTargetName() {
			if find(g.inputs, name) == nil {
				return unexpected("input", name, g.inputs)
			}
		}
	}
	return nil
}

// checkControls compares the sequence controls and counts their tensors.
func checkControls(m *backend.Model, g graph) (int, error) {
	n := 0
	for _, in := range m.Config.GetSequenceBatching().GetControlInput() {
		p := find(g.inputs, in.GetName())
		if p == nil {
			return 0, infer.Errorf(infer.Internal, "configuration specified sequence control '%s', but model does not provide that input", in.GetName())
		}
		dims := p.dims
		if m.Config.GetMaxBatchSize() > 0 && len(dims) > 0 {
			dims = dims[1:]
		}
		if !slices.Equal(dims, []int64{1}) {
			return 0, refuse("unable to load model '%s', sequence control '%s' in model has dims %s but dims [1] is expected",
				m.Name, in.GetName(), tensor.FormatShape(dims))
		}
		for _, k := range in.GetControl() {
			if t := controlType(k); t != p.typ {
				return 0, refuse("unable to load model '%s', sequence control '%s', the model expects data-type %s but the model configuration specifies data-type %s",
					m.Name, in.GetName(), p.typ, modelconfig.FromDataType(t))
			}
		}
		n++
	}
	return n, nil
}

func controlType(k *inference.ModelSequenceBatching_Control) tensor.DataType {
	switch {
	case len(k.GetInt32FalseTrue()) > 0:
		return tensor.Int32
	case len(k.GetFp32FalseTrue()) > 0:
		return tensor.FP32
	case len(k.GetBoolFalseTrue()) > 0:
		return tensor.Bool
	}
	return modelconfig.DataType(k.GetDataType())
}

func unexpected(kind, name string, ports []port) error {
	names := make([]string, len(ports))
	for i := range ports {
		names[i] = ports[i].name
	}
	slices.Sort(names)
	return refuse("unexpected inference %s '%s', allowed %ss are: %s", kind, name, kind, strings.Join(names, ", "))
}

func checkInput(m *backend.Model, g graph, in *inference.ModelInput) error {
	name := in.GetName()
	if in.GetOptional() && m.Config.GetMaxBatchSize() != 0 {
		return refuse("unable to load model '%s', optional input '%s' is not supported for models that support batching", m.Name, name)
	}
	p := find(g.inputs, name)
	if p == nil {
		if in.GetOptional() {
			return nil // a default in the graph that a request may replace
		}
		return unexpected("input", name, g.inputs)
	}
	if err := checkType(m, "input", name, in.GetDataType(), p); err != nil {
		return err
	}
	if in.GetAllowRaggedBatch() {
		switch {
		case in.GetOptional():
			return refuse("unable to load model '%s', configuration expects model provides input with shape [-1] for ragged input '%s', which is not supported for optional input",
				m.Name, name)
		case !slices.Equal(p.dims, []int64{-1}):
			return refuse("unable to load model '%s', configuration expects model provides input with shape [-1]  for ragged input '%s', model provides %s",
				m.Name, name, tensor.FormatShape(p.dims))
		}
		return nil
	}
	return checkDims(m, name, p, in.GetDims(), in.GetReshape())
}

func checkOutput(m *backend.Model, g graph, out *inference.ModelOutput) error {
	p := find(g.outputs, out.GetName())
	if p == nil {
		return unexpected("output", out.GetName(), g.outputs)
	}
	if err := checkType(m, "output", out.GetName(), out.GetDataType(), p); err != nil {
		return err
	}
	for _, b := range m.Config.GetBatchOutput() {
		if slices.Contains(b.GetTargetName(), out.GetName()) {
			return nil
		}
	}
	return checkDims(m, out.GetName(), p, out.GetDims(), out.GetReshape())
}

func checkType(m *backend.Model, kind, name string, configured inference.DataType, p *port) error {
	t := modelconfig.DataType(configured)
	if t == tensor.Invalid {
		return infer.Errorf(infer.Internal, "unsupported datatype %s for %s '%s' for model '%s'", configured, kind, name, m.Name)
	}
	if p.typ == tensor.Invalid {
		return refuse("unable to load model '%s', %s '%s' of the model is %s, which no request can carry", m.Name, kind, name, p.onnx)
	}
	if t != p.typ {
		return refuse("unable to load model '%s', configuration expects datatype %s for %s '%s', model provides %s",
			m.Name, configured, kind, name, modelconfig.FromDataType(p.typ))
	}
	return nil
}

// checkDims compares shapes; -1 of the model takes anything, so that a
// configuration may promise more than the graph says.
func checkDims(m *backend.Model, name string, p *port, dims []int64, reshape *inference.ModelTensorReshape) error {
	if reshape != nil {
		dims = reshape.GetShape()
	}
	if len(p.dims) == 0 {
		for _, d := range dims {
			if d != 1 {
				return refuse("unable to load model '%s', scalar tensor '%s', should only provide 1 in the model configuration when the model doesn't support batching. Model configuration provided: %s.",
					m.Name, name, tensor.FormatShape(dims))
			}
		}
		return nil
	}
	batch := m.Config.GetMaxBatchSize() > 0
	full := dims
	if batch {
		if p.dims[0] != -1 {
			return refuse("model '%s', tensor '%s': for the model to support batching the shape should have at least 1 dimension and the first dimension must be -1; but shape expected by the model is %s",
				m.Name, name, tensor.FormatShape(p.dims))
		}
		full = append([]int64{-1}, dims...)
	}
	same := len(full) == len(p.dims)
	for i := 0; same && i < len(full); i++ {
		same = p.dims[i] == full[i] || p.dims[i] == -1
	}
	switch {
	case same:
		return nil
	case batch:
		return refuse("model '%s', tensor '%s': the model expects %d dimensions (shape %s) but the model configuration specifies %d dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape %s)",
			m.Name, name, len(p.dims), tensor.FormatShape(p.dims), len(full), tensor.FormatShape(full))
	}
	return refuse("model '%s', tensor '%s': the model expects %d dimensions (shape %s) but the model configuration specifies %d dimensions (shape %s)",
		m.Name, name, len(p.dims), tensor.FormatShape(p.dims), len(full), tensor.FormatShape(full))
}
