package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

// model is what the server says of the model, and what it is sent.
type model struct {
	inputs, outputs []port
	batched         bool
	sequence        bool
	textID          bool // correlation ids are strings
	// decoupled: a request is answered when its last answer is there.
	decoupled bool
	// streams are the requests: those of a sequence follow each other, any others form one stream.
	streams [][]request
	given   bool     // the streams' lengths are the user's choice
	all     []called // the model, and those it calls
}

// called is a model, and its version; empty: any.
type called struct{ name, version string }

// port is one input or output, without its batch dimension.
type port struct {
	name     string
	typ      tensor.DataType
	dims     []int64
	optional bool
}

// request is what is sent, and what should come back; no outputs: anything.
type request struct {
	inputs, outputs []tensor.Tensor
}

func describe(ctx context.Context, c v2client.Describer, cfg *Config) (*model, error) {
	version := ""
	if cfg.Version > 0 {
		version = strconv.FormatInt(cfg.Version, 10)
	}
	conf, err := c.ModelConfig(ctx, &inference.ModelConfigRequest{Name: cfg.Model, Version: version})
	if err != nil {
		return nil, fmt.Errorf("describe model %q: %w", cfg.Model, said(err))
	}
	meta, err := c.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: cfg.Model, Version: version})
	if err != nil {
		return nil, fmt.Errorf("describe model %q: %w", cfg.Model, said(err))
	}
	mc := conf.GetConfig()
	m := &model{decoupled: mc.GetModelTransactionPolicy().GetDecoupled(), batched: mc.GetMaxBatchSize() > 0}
	if m.decoupled && !cfg.Streaming {
		return nil, fmt.Errorf("measure model %q: it answers a request any number of times, which only a stream can take: --streaming", cfg.Model)
	}
	for _, in := range mc.GetSequenceBatching().GetControlInput() {
		for _, k := range in.GetControl() {
			if k.GetKind() == inference.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID && k.GetDataType() == inference.DataType_TYPE_STRING {
				m.textID = true
			}
		}
	}
	if cfg.Batch > 1 && !m.batched {
		return nil, fmt.Errorf("measure model %q in batches of %d: it takes none (its max_batch_size is 0)", cfg.Model, cfg.Batch)
	}
	if cfg.Batch > 1 && int64(cfg.Batch) > int64(mc.GetMaxBatchSize()) {
		return nil, fmt.Errorf("measure model %q in batches of %d: it takes %d at most", cfg.Model, cfg.Batch, mc.GetMaxBatchSize())
	}
	m.all = []called{{cfg.Model, version}}
	if err := m.follow(ctx, c, mc); err != nil {
		return nil, err
	}
	for _, text := range cfg.Called {
		name, version, _ := strings.Cut(text, ":")
		m.call(called{name, version})
	}
	if m.inputs, err = m.ports(meta.GetInputs()); err == nil {
		m.outputs, err = m.ports(meta.GetOutputs())
	}
	if err != nil {
		return nil, fmt.Errorf("measure model %q: %w", cfg.Model, err)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Shapes)) {
		if err := m.knows(name); cfg.strict && err != nil {
			return nil, fmt.Errorf("--shape: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Values)) {
		if err := m.knows(name); cfg.strict && err != nil {
			return nil, fmt.Errorf("--value: %w", err)
		}
	}
	for i := range m.inputs {
		m.inputs[i].optional = slices.ContainsFunc(mc.GetInput(), func(in *inference.ModelInput) bool { return in.GetOptional() && in.GetName() == m.inputs[i].name })
	}
	if err := m.fill(cfg); err != nil {
		return nil, fmt.Errorf("measure model %q: %w", cfg.Model, err)
	}
	return m, nil
}

func (m *model) ports(list []*inference.ModelMetadataResponse_TensorMetadata) ([]port, error) {
	var out []port
	for _, t := range list {
		p := port{name: t.GetName(), dims: slices.Clone(t.GetShape())}
		var err error
		if p.typ, err = tensor.Parse(t.GetDatatype()); err != nil {
			return nil, err
		}
		if m.batched && len(p.dims) > 0 {
			p.dims = p.dims[1:]
		}
		out = append(out, p)
	}
	return out, nil
}

// follow finds the models of an ensemble's steps, and whether any of them wants sequences.
func (m *model) follow(ctx context.Context, c v2client.Describer, mc *inference.ModelConfig) error {
	m.sequence = m.sequence || mc.GetSequenceBatching() != nil
	for _, step := range mc.GetEnsembleScheduling().GetStep() {
		part := called{name: step.GetModelName()}
		if v := step.GetModelVersion(); v > 0 {
			part.version = strconv.FormatInt(v, 10)
		}
		if !m.call(part) {
			continue
		}
		conf, err := c.ModelConfig(ctx, &inference.ModelConfigRequest{Name: part.name, Version: part.version})
		if err != nil {
			return fmt.Errorf("describe model %q: %w", part.name, said(err))
		}
		if err := m.follow(ctx, c, conf.GetConfig()); err != nil {
			return err
		}
	}
	return nil
}

// call adds a model that is called, and tells whether it is a new one.
func (m *model) call(c called) bool {
	if slices.ContainsFunc(m.all, func(o called) bool {
		return o.name == c.name && (o.version == c.version || c.version == "" || o.version == "")
	}) {
		return false
	}
	m.all = append(m.all, c)
	return true
}

// knows tells whether the model has an input.
func (m *model) knows(input string) error {
	var names []string
	for _, p := range m.inputs {
		if p.name == input {
			return nil
		}
		names = append(names, p.name)
	}
	return fmt.Errorf("the model has no input %q, only %s", input, strings.Join(names, ", "))
}

// fill makes the requests.
func (m *model) fill(cfg *Config) error {
	if cfg.Data == nil {
		var r request
		for _, p := range m.inputs {
			t, err := p.made(cfg)
			if err != nil {
				return err
			}
			r.inputs = append(r.inputs, t)
		}
		if m.batched {
			r = batch([]request{r}, 0, cfg.Batch)
		}
		m.streams = [][]request{{r}}
		return nil
	}
	m.given = true
	for i, steps := range cfg.Data.streams {
		var list []request
		for k, s := range steps {
			r := request{}
			var err error
			if cfg.Data.folder {
				if r.outputs, err = s.those(m.outputs).tensors(m.outputs, nil); err != nil {
					return fmt.Errorf("input data: %w", err)
				}
				s = s.those(m.inputs)
			}
			if r.inputs, err = s.tensors(m.inputs, cfg.Shapes); err != nil {
				return fmt.Errorf("input data: request %d of list %d: %w", k, i, err)
			}
			if cfg.Data.expected != nil {
				if r.outputs, err = cfg.Data.expected[i][k].tensors(m.outputs, nil); err != nil {
					return fmt.Errorf("input data: validation_data: request %d of list %d: %w", k, i, err)
				}
			}
			list = append(list, r)
		}
		if m.sequence {
			m.streams = append(m.streams, list)
		} else if m.streams == nil {
			m.streams = [][]request{list}
		} else {
			m.streams[0] = append(m.streams[0], list...)
		}
	}
	if m.batched {
		return m.makeBatches(cfg.Batch)
	}
	return nil
}

// makeBatches puts requests together: of sequences each as often as needed, of others those that follow each other.
func (m *model) makeBatches(size int) error {
	for i, list := range m.streams {
		var out []request
		for k := range list {
			part, at := list, k*size
			if m.sequence {
				part, at = list[k:k+1], 0
			}
			for n := 1; n < size; n++ {
				if !alike(part[at%len(part)].inputs, part[(at+n)%len(part)].inputs) {
					return errors.New("input data: requests of different shapes cannot be batched")
				}
			}
			out = append(out, batch(part, at, size))
		}
		m.streams[i] = out
	}
	return nil
}

func alike(a, b []tensor.Tensor) bool {
	return slices.EqualFunc(a, b, func(x, y tensor.Tensor) bool { return x.Name == y.Name && slices.Equal(x.Shape, y.Shape) })
}

// batch makes one request of size that follow each other in list, from at on and around.
func batch(list []request, at, size int) request {
	join := func(of func(request) []tensor.Tensor) []tensor.Tensor {
		out := slices.Clone(of(list[at%len(list)]))
		for i := range out {
			out[i].Shape = append([]int64{int64(size)}, out[i].Shape...)
			var data []byte
			for n := range size {
				if part := of(list[(at+n)%len(list)]); i < len(part) {
					data = append(data, part[i].Data...)
				}
			}
			out[i].Data = data
		}
		return out
	}
	return request{inputs: join(func(r request) []tensor.Tensor { return r.inputs }), outputs: join(func(r request) []tensor.Tensor { return r.outputs })}
}

// those are the values that belong to ports.
func (s step) those(ports []port) step {
	out := step{}
	for _, p := range ports {
		if v, ok := s[p.name]; ok {
			out[p.name] = v
		}
	}
	return out
}

// tensors are those a request of the input data gives, in the order of ports. Only optional inputs may be missing;
// outputs that are missing may be anything.
func (s step) tensors(ports []port, shapes map[string][]int64) ([]tensor.Tensor, error) {
	var out []tensor.Tensor
	for name := range s {
		if !slices.ContainsFunc(ports, func(p port) bool { return p.name == name }) {
			return nil, fmt.Errorf("the model has no %q", name)
		}
	}
	for _, p := range ports {
		v, ok := s[p.name]
		if !ok {
			if !p.optional && shapes != nil {
				return nil, fmt.Errorf("input %q is missing", p.name)
			}
			continue
		}
		t, err := v.tensor(p.name, p.typ, p.dims, shapes[p.name])
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", p.name, err)
		}
		out = append(out, t)
	}
	return out, nil
}

// maxRequest bounds a tensor of a request, in bytes, as gRPC bounds messages.
const maxRequest = math.MaxInt32

// made is an input of zeros, of given values or at random.
func (p port) made(cfg *Config) (tensor.Tensor, error) {
	t := tensor.Tensor{Name: p.name, DataType: p.typ, Shape: slices.Clone(p.dims)}
	given := cfg.Shapes[p.name]
	if given == nil && slices.Contains(t.Shape, -1) {
		return t, fmt.Errorf("input %q has shape %s: say what the open dimensions are with --shape %s:D,D", p.name, tensor.FormatShape(p.dims), p.name)
	}
	fits := given == nil || slices.EqualFunc(given, t.Shape, func(g, d int64) bool { return g >= 0 && (d < 0 || d == g) })
	if !fits {
		return t, fmt.Errorf("input %q has shape %s: it cannot be %s", p.name, tensor.FormatShape(p.dims), tensor.FormatShape(given))
	}
	if given != nil {
		t.Shape = slices.Clone(given)
	}
	n, err := tensor.ElementCount(t.Shape)
	if err != nil {
		return t, err
	}
	each := int64(t.DataType.Size())
	if t.DataType == tensor.Bytes {
		each = int64(4 + max(len(cfg.Text), 1))
		if cfg.Text == "" && cfg.Random {
			each = int64(4 + cfg.TextLength)
		}
	}
	if n > maxRequest/each/int64(cfg.Batch) {
		return t, fmt.Errorf("input %q of shape %s in a batch of %d would be larger than %d bytes", p.name, tensor.FormatShape(t.Shape), cfg.Batch, maxRequest)
	}
	if t.DataType == tensor.Bytes {
		r := rand.New(rand.NewPCG(1, 2))
		for range n {
			text := cfg.Text
			if text == "" && cfg.Random {
				text = letters(r, cfg.TextLength)
			} else if text == "" {
				text = "0"
			}
			t.Data = tensor.AppendElement(t.Data, text)
		}
		return t, nil
	}
	t.Data = make([]byte, n*each)
	switch values := cfg.Values[t.Name]; {
	case len(values) > 0:
		if err := put(t, values); err != nil {
			return t, fmt.Errorf("input %q: %w", t.Name, err)
		}
	case cfg.Random:
		fill(t)
	}
	return t, nil
}

// put writes numbers, again and again until the tensor is full.
func put(t tensor.Tensor, values []float64) error {
	n := len(t.Data) / t.DataType.Size()
	if n%len(values) != 0 {
		return fmt.Errorf("%d values do not fill shape %s of %d elements", len(values), tensor.FormatShape(t.Shape), n)
	}
	le := binary.LittleEndian
	for i := range n {
		v := values[i%len(values)]
		at := t.Data[i*t.DataType.Size():]
		switch t.DataType {
		case tensor.FP32:
			le.PutUint32(at, math.Float32bits(float32(v)))
		case tensor.FP64:
			le.PutUint64(at, math.Float64bits(v))
		case tensor.Int64, tensor.Uint64:
			le.PutUint64(at, uint64(int64(v)))
		case tensor.Int32, tensor.Uint32:
			le.PutUint32(at, uint32(int64(v)))
		case tensor.Int16, tensor.Uint16:
			le.PutUint16(at, uint16(int64(v)))
		case tensor.Int8, tensor.Uint8, tensor.Bool:
			at[0] = byte(int64(v))
		default:
			return fmt.Errorf("values cannot be given for %s", t.DataType)
		}
	}
	return nil
}

// fill writes numbers any model can bear: floats within 0 and 1, bytes of any value, truths.
func fill(t tensor.Tensor) {
	r := rand.New(rand.NewPCG(1, 2))
	switch t.DataType {
	case tensor.FP32:
		for i := range len(t.Data) / 4 {
			copy(t.Data[4*i:], tensor.AsBytes([]float32{r.Float32()}))
		}
	case tensor.FP64:
		for i := range len(t.Data) / 8 {
			copy(t.Data[8*i:], tensor.AsBytes([]float64{r.Float64()}))
		}
	case tensor.Bool:
		for i := range t.Data {
			t.Data[i] = byte(r.IntN(2))
		}
	case tensor.Uint8, tensor.Int8:
		for i := range t.Data {
			t.Data[i] = byte(r.IntN(256))
		}
	default: // numbers of more bytes stay zero: at random they would be beyond any table
	}
}
