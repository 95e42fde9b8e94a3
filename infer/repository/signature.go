package repository

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

// signature is what a model takes and gives, prepared for checking requests.
// Its messages are part of the protocol: clients match them.
type signature struct {
	model    string
	maxBatch int64
	inputs   []port
	outputs  []port
	required int // inputs that are not optional
	states   []string
	corrid   tensor.DataType // type of the CORRID control, Invalid without
}

// port is one input or output.
type port struct {
	name     string
	dataType tensor.DataType
	dims     []int64 // as clients see it, without the batch dimension
	reshape  []int64 // as the model sees it; nil: alike
	optional bool
	ragged   bool
	variable bool // dims has a -1
}

func newSignature(cfg *inference.ModelConfig) *signature {
	s := &signature{model: cfg.GetName(), maxBatch: int64(cfg.GetMaxBatchSize())}
	for _, in := range cfg.GetInput() {
		p := newPort(in.GetName(), in.GetDataType(), in.GetDims(), in.GetReshape())
		p.optional, p.ragged = in.GetOptional(), in.GetAllowRaggedBatch()
		if !p.optional {
			s.required++
		}
		s.inputs = append(s.inputs, p)
	}
	for _, out := range cfg.GetOutput() {
		s.outputs = append(s.outputs, newPort(out.GetName(), out.GetDataType(), out.GetDims(), out.GetReshape()))
	}
	for _, st := range cfg.GetSequenceBatching().GetState() {
		s.states = append(s.states, st.GetOutputName())
	}
	for _, c := range cfg.GetSequenceBatching().GetControlInput() {
		for _, k := range c.GetControl() {
			if k.GetKind() == inference.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID {
				s.corrid = modelconfig.DataType(k.GetDataType())
			}
		}
	}
	return s
}

func newPort(name string, t inference.DataType, dims []int64, r *inference.ModelTensorReshape) port {
	p := port{name: name, dataType: modelconfig.DataType(t), dims: dims, variable: slices.Contains(dims, -1)}
	if r != nil {
		p.reshape = append([]int64{}, r.GetShape()...)
	}
	return p
}

func (s *signature) input(name string) *port  { return find(s.inputs, name) }
func (s *signature) output(name string) *port { return find(s.outputs, name) }

func find(ports []port, name string) *port {
	for i := range ports {
		if ports[i].name == name {
			return &ports[i]
		}
	}
	return nil
}

// check validates a request and prepares the job's inputs. Errors carry no
// request id yet.
func (s *signature) check(req *infer.Request, j *job) *infer.Error {
	if req.Raw != nil {
		if err := s.deduce(req); err != nil {
			return err
		}
	}
	if err := s.checkOutputs(req); err != nil {
		return err
	}
	if err := s.checkNames(req); err != nil {
		return err
	}
	batch, err := s.checkBatch(req)
	if err != nil {
		return err
	}
	j.Batch = int(batch)
	j.Inputs = append(j.Inputs[:0], req.Inputs...)
	for i := range j.Inputs {
		p := s.input(j.Inputs[i].Name)
		if err := s.checkTensor(p, &j.Inputs[i]); err != nil {
			return err
		}
		if p.reshape != nil {
			j.Inputs[i].Shape = s.reshaped(p.dims, p.reshape, j.Inputs[i].Shape)
		}
	}
	if s.corrid != tensor.Invalid {
		return s.checkCorrelation(req.Correlation)
	}
	return nil
}

func invalid(format string, args ...any) *infer.Error {
	return infer.Errorf(infer.InvalidArgument, format, args...)
}

func (s *signature) checkOutputs(req *infer.Request) *infer.Error {
	for i := range req.Outputs {
		name := req.Outputs[i].Name
		if s.output(name) == nil {
			return invalid("unexpected inference output '%s' for model '%s'", name, s.model)
		}
		for k := range i {
			if req.Outputs[k].Name == name {
				return invalid("output '%s' already exists in request. Duplicate output name '%s' is not allowed in a request", name, name)
			}
		}
	}
	return nil
}

func (s *signature) checkNames(req *infer.Request) *infer.Error {
	n := len(req.Inputs)
	for i := range req.Inputs {
		for k := range i {
			if req.Inputs[k].Name == req.Inputs[i].Name {
				return invalid("input '%s' already exists in request", req.Inputs[i].Name)
			}
		}
	}
	if n > len(s.inputs) || n < s.required {
		return s.wrongCount(req)
	}
	for i := range req.Inputs {
		if s.input(req.Inputs[i].Name) == nil {
			return invalid("unexpected inference input '%s' for model '%s'", req.Inputs[i].Name, s.model)
		}
	}
	// As many as needed are there; with optional ones a required one may still
	// be missing.
	if s.required < len(s.inputs) && len(s.missing(req)) > 0 {
		return s.wrongCount(req)
	}
	return nil
}

func (s *signature) missing(req *infer.Request) []string {
	var names []string
	for i := range s.inputs {
		p := &s.inputs[i]
		if !p.optional && !slices.ContainsFunc(req.Inputs, func(t tensor.Tensor) bool { return t.Name == p.name }) {
			names = append(names, p.name)
		}
	}
	return names
}

func (s *signature) wrongCount(req *infer.Request) *infer.Error {
	var got []string
	for i := range req.Inputs {
		got = append(got, req.Inputs[i].Name)
	}
	slices.Sort(got)
	want := fmt.Sprintf("expected %d inputs", len(s.inputs))
	if s.required < len(s.inputs) {
		want = fmt.Sprintf("expected number of inputs between %d and %d", s.required, len(s.inputs))
	}
	return invalid("%s but got %d inputs for model '%s'. Got input(s) %s, but missing required input(s) %s. Please provide all required input(s).",
		want, len(req.Inputs), s.model, quoted(got), quoted(s.missing(req)))
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "[]"
	}
	return "['" + strings.Join(names, "','") + "']"
}

// checkBatch finds the batch size that all inputs agree on.
func (s *signature) checkBatch(req *infer.Request) (int64, *infer.Error) {
	if s.maxBatch == 0 {
		return 1, nil
	}
	batch := int64(-1)
	for i := range req.Inputs {
		in := &req.Inputs[i]
		if len(in.Shape) == 0 {
			return 0, invalid("input '%s' has no shape but model requires batch dimension for '%s'", in.Name, s.model)
		}
		if in.Shape[0] < 0 {
			return 0, s.unspecified(in)
		}
		if batch < 0 {
			batch = in.Shape[0]
		} else if in.Shape[0] != batch {
			return 0, invalid("input '%s' batch size does not match other inputs for '%s'", in.Name, s.model)
		}
	}
	if len(req.Inputs) == 0 {
		batch = 1
	}
	if batch > s.maxBatch {
		return 0, invalid("inference request batch-size must be <= %d for '%s'", s.maxBatch, s.model)
	}
	if batch < 1 {
		return 0, invalid("inference request batch-size must be >= 1 for '%s'", s.model)
	}
	return batch, nil
}

const batchNote = " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. " +
	"If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. " +
	"See the model configuration docs for more info on max_batch_size."

// checkTensor compares type, shape and size with what the model takes.
func (s *signature) checkTensor(p *port, t *tensor.Tensor) *infer.Error {
	if t.DataType != p.dataType {
		return invalid("inference input '%s' data-type is '%s', but model '%s' expects '%s'", t.Name, t.DataType, s.model, p.dataType)
	}
	shape := t.Shape
	if s.maxBatch > 0 {
		shape = shape[1:]
	}
	if slices.ContainsFunc(t.Shape, func(d int64) bool { return d < 0 }) {
		return s.unspecified(t)
	}
	match := len(shape) == len(p.dims)
	for i := 0; match && i < len(shape); i++ {
		match = p.dims[i] == -1 || p.dims[i] == shape[i]
	}
	if !match {
		want, note := p.dims, ""
		if s.maxBatch > 0 {
			want, note = append([]int64{-1}, p.dims...), batchNote
		}
		return invalid("unexpected shape for input '%s' for model '%s'. Expected %s, got %s.%s",
			t.Name, s.model, tensor.FormatShape(want), tensor.FormatShape(t.Shape), note)
	}
	if t.DataType == tensor.Bytes {
		return s.checkElements(t)
	}
	size, err := tensor.ByteSize(t.DataType, t.Shape)
	if err != nil {
		return invalid("input '%s' for model '%s': %v", t.Name, s.model, err)
	}
	if size != int64(len(t.Data)) {
		return invalid("input byte size mismatch for input '%s' for model '%s'. Expected %d, got %d", t.Name, s.model, size, len(t.Data))
	}
	return nil
}

func (s *signature) unspecified(t *tensor.Tensor) *infer.Error {
	return invalid("All input dimensions should be specified for input '%s' for model '%s', got %s", t.Name, s.model, tensor.FormatShape(t.Shape))
}

// checkElements walks the lengths of a BYTES input.
func (s *signature) checkElements(t *tensor.Tensor) *infer.Error {
	want, err := tensor.ElementCount(t.Shape)
	if err != nil {
		return invalid("input '%s' for model '%s': %v", t.Name, s.model, err)
	}
	var n int64
	for data := t.Data; len(data) > 0; n++ {
		if n >= want {
			return invalid("unexpected number of string elements %d for inference input '%s' for model '%s', expecting %d", n+1, t.Name, s.model, want)
		}
		if len(data) < 4 {
			return invalid("incomplete string length indicator for inference input '%s' for model '%s', expecting 4 bytes but only %d bytes available. "+
				"Please make sure the string length indicator is in one buffer.", t.Name, s.model, len(data))
		}
		size := uint64(binary.LittleEndian.Uint32(data))
		data = data[4:]
		if size > uint64(len(data)) {
			return invalid("incomplete string data for inference input '%s' for model '%s', expecting string of length %d but only %d bytes available",
				t.Name, s.model, size, len(data))
		}
		data = data[size:]
	}
	if n != want {
		return invalid("expected %d string elements for inference input '%s' for model '%s', got %d", want, t.Name, s.model, n)
	}
	return nil
}

func (s *signature) checkCorrelation(id infer.CorrelationID) *infer.Error {
	switch {
	case id.Str != "" && s.corrid != tensor.Bytes:
		return invalid("sequence batching control 'CORRID' data-type is 'STRING', but model '%s' expects '%s'", s.model, s.corrid)
	case id.Num != 0 && s.corrid == tensor.Bytes:
		return invalid("sequence batching control 'CORRID' data-type is 'UINT64', but model '%s' expects 'STRING'", s.model)
	}
	return nil
}

// reshaped is the shape on the other side of a reshape: each variable size of
// the one side is, in order, that of the other.
func (s *signature) reshaped(from, to, shape []int64) []int64 {
	out := make([]int64, 0, len(to)+1)
	if s.maxBatch > 0 && len(shape) > 0 {
		out = append(out, shape[0])
		shape = shape[1:]
	}
	var sizes []int64
	for i, d := range from {
		if d == -1 && i < len(shape) {
			sizes = append(sizes, shape[i])
		}
	}
	for _, d := range to {
		if d == -1 && len(sizes) > 0 {
			d, sizes = sizes[0], sizes[1:]
		}
		out = append(out, d)
	}
	return out
}

// deduce makes the one input of a raw request from the configuration.
func (s *signature) deduce(req *infer.Request) *infer.Error {
	if len(s.inputs) != 1 {
		return invalid("Raw request must only have 1 input (found %d) to be deduced but got %d inputs in '%s' model configuration", 1, len(s.inputs), s.model)
	}
	p := &s.inputs[0]
	shape := slices.Clone(p.dims)
	data := req.Raw
	variable, fixed := -1, int64(1)
	for i, d := range shape {
		switch {
		case d != -1:
			fixed *= d
		case variable >= 0:
			return invalid("The shape of the raw input '%s' can not be deduced because there are more than one variable-sized dimension", p.name)
		default:
			variable = i
		}
	}
	if p.dataType == tensor.Bytes {
		if variable >= 0 || fixed != 1 {
			return invalid("For BYTE datatype raw input '%s', the model must have input shape [1]", p.name)
		}
		data = tensor.AppendElement(make([]byte, 0, 4+len(data)), data)
	} else if variable >= 0 {
		unit := fixed * int64(p.dataType.Size())
		if unit <= 0 || int64(len(data))%unit != 0 {
			return invalid("Input byte size %d for raw input '%s' can not be divided into elements of %d bytes", len(data), p.name, unit)
		}
		shape[variable] = int64(len(data)) / unit
	}
	if s.maxBatch > 0 {
		shape = append([]int64{1}, shape...)
	}
	req.Inputs = []tensor.Tensor{{Name: p.name, DataType: p.dataType, Shape: shape, Data: data}}
	req.Raw = nil
	return nil
}
