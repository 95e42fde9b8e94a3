// Package onnxruntime is the backend that runs ONNX models: detectors,
// classifiers, embeddings, tree models.
//
// ONNX Runtime is a shared library that is looked up when the first model
// needs it, so a server without it starts and says what is missing. Tensors of a
// request are handed to it as they lie in memory, and results are written
// straight into the response; only a batch made of several requests is gathered.
//
// Model parameters: intra_op_thread_count, inter_op_thread_count,
// execution_mode (0 sequential, 1 parallel), enable_mem_arena,
// enable_mem_pattern, dynamic_batch (true frees the batch dimension of a model that
// was exported for a batch of one, if that provably changes nothing), batch_of_one
// (true lets max_batch_size be 1 for a model whose first dimension is fixed at
// one, so that it fits where batches are expected), and session.* entries, which go to ONNX Runtime as they are. Threads do not spin unless session.intra_op.allow_spinning says so, and an
// instance has its share of the CPU budget unless intra_op_thread_count says
// otherwise.
package onnxruntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

// Config is what the backend needs to know.
type Config struct {
	// Library is the path of ONNX Runtime's shared library.
	Library string
	// Logger is for what nobody else hears of; nil discards.
	Logger *slog.Logger
	// Pool lends the memory of batches; nil makes one.
	Pool *tensor.Pool
}

// New returns the backend. Nothing is loaded before the first model.
func New(cfg Config) *Backend {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Pool == nil {
		cfg.Pool = &tensor.Pool{}
	}
	return &Backend{cfg: cfg, graphs: map[string]graphEntry{}, newSession: newSession, now: time.Now}
}

// Backend is the onnxruntime backend.
type Backend struct {
	cfg        Config
	newSession opener
	now        func() time.Time

	mu     sync.Mutex // guards what follows
	loaded bool
	graphs map[string]graphEntry // by path
}

var _ backend.Backend = (*Backend)(nil)

// graphEntry remembers a file's signature for as long as the file is the same.
type graphEntry struct {
	graph graph
	size  int64
	time  time.Time
}

// defaultMaxBatch is what a model that can batch and says nothing is given.
const defaultMaxBatch = 4

// Complete reads the model's inputs and outputs, and whether it can batch.
func (b *Backend) Complete(_ context.Context, m *backend.Model) error {
	c := m.Config
	if len(c.GetInput())+len(c.GetBatchInput()) > 0 && len(c.GetOutput()) > 0 {
		return nil
	}
	g, err := b.graph(m)
	if err != nil {
		return err
	}
	return complete(m, g)
}

func complete(m *backend.Model, g graph) error {
	c := m.Config
	switch {
	case !g.batches() && c.GetMaxBatchSize() > 0:
		return infer.Errorf(infer.InvalidArgument,
			"autofill failed for model '%s': model does not support batching while non-zero max_batch_size is specified", m.Name)
	case g.batches() && c.GetMaxBatchSize() == 0:
		n := defaultMaxBatch
		if v := m.Settings["default-max-batch-size"]; v != "" {
			var err error
			if n, err = strconv.Atoi(v); err != nil || n < 0 {
				return infer.Errorf(infer.InvalidArgument, "backend setting default-max-batch-size: %q is not a number from 0", v)
			}
		}
		c.MaxBatchSize = int32(n)
	}
	if g.batches() && c.GetMaxBatchSize() > 1 && c.GetSchedulingChoice() == nil {
		c.SchedulingChoice = &inference.ModelConfig_DynamicBatching{DynamicBatching: &inference.ModelDynamicBatching{}}
	}
	found := &inference.ModelConfig{}
	dims := func(p port) ([]int64, *inference.ModelTensorReshape) {
		d := p.dims
		if c.GetMaxBatchSize() > 0 {
			d = d[1:]
		}
		if len(d) > 0 {
			return append([]int64(nil), d...), nil
		}
		if c.GetMaxBatchSize() > 0 {
			return []int64{1}, &inference.ModelTensorReshape{}
		}
		return []int64{1}, nil
	}
	controls := controlNames(c)
	for _, p := range g.inputs {
		if controls[p.name] {
			continue
		}
		d, r := dims(p)
		found.Input = append(found.Input, &inference.ModelInput{Name: p.name, DataType: modelconfig.FromDataType(p.typ), Dims: d, Reshape: r})
	}
	for _, p := range g.outputs {
		if controls[p.name] {
			continue
		}
		d, r := dims(p)
		found.Output = append(found.Output, &inference.ModelOutput{Name: p.name, DataType: modelconfig.FromDataType(p.typ), Dims: d, Reshape: r})
	}
	if len(c.GetBatchInput()) > 0 {
		found.Input = nil
	}
	modelconfig.FillIO(c, found)
	return nil
}

// controlNames are the tensors of a sequence model that no client gives or gets.
func controlNames(c *inference.ModelConfig) map[string]bool {
	names := map[string]bool{}
	for _, in := range c.GetSequenceBatching().GetControlInput() {
		names[in.GetName()] = true
	}
	for _, s := range c.GetSequenceBatching().GetState() {
		names[s.GetInputName()], names[s.GetOutputName()] = true, true
	}
	return names
}

// file is the path of the model's graph.
func file(m *backend.Model) string {
	name := m.Config.GetDefaultModelFilename()
	if name == "" {
		name = "model.onnx"
	}
	path := filepath.Join(m.VersionDir, name)
	if st, err := os.Stat(path); err == nil && st.IsDir() { // a graph with its weights beside it
		path = filepath.Join(path, "model.onnx")
	}
	return path
}

// sizeOf adds up the files below a directory: the graph and the weights beside it.
func sizeOf(dir string) uint64 {
	var size uint64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // what cannot be read is not counted
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			size += uint64(info.Size())
		}
		return nil
	})
	return size
}

// graph reads a model's signature, once for every state of its file.
func (b *Backend) graph(m *backend.Model) (graph, error) {
	path := file(m)
	st, err := os.Stat(path)
	if err != nil {
		return graph{}, infer.Errorf(infer.NotFound, "load model '%s' version %d: %v", m.Name, m.Version, err)
	}
	if err := b.load(m); err != nil {
		return graph{}, err
	}
	key := path
	if freed(m) {
		key += "?dynamic_batch"
	}
	if ofOne(m) {
		key += "?batch_of_one"
	}
	b.mu.Lock()
	e, ok := b.graphs[key]
	b.mu.Unlock()
	if ok && e.size == st.Size() && e.time.Equal(st.ModTime()) {
		return e.graph, nil
	}
	g, err := signature(m, path)
	if err != nil {
		return graph{}, infer.Errorf(infer.InvalidArgument, "load model '%s' version %d: %v", m.Name, m.Version, err)
	}
	b.mu.Lock()
	b.graphs[key] = graphEntry{g, st.Size(), st.ModTime()}
	b.mu.Unlock()
	return g, nil
}

// signature reads a model file, with its batch dimension freed if it asks for that.
func signature(m *backend.Model, path string) (graph, error) {
	if ofOne(m) {
		return openGraph(m, path)
	}
	if !freed(m) {
		return readGraph(path)
	}
	data, err := freedModel(path)
	if err != nil {
		return graph{}, err
	}
	in, out, err := ort.GetInputOutputInfoWithONNXData(data)
	if err != nil {
		return graph{}, err
	}
	g := graph{inputs: portsOf(in), outputs: portsOf(out)}
	if !g.batches() {
		return graph{}, errors.New("dynamic_batch: not every input and output has a first dimension to be freed")
	}
	// An output whose sides the runtime no longer knows has those it had.
	if fixed, err := readGraph(path); err == nil {
		for i := range g.outputs {
			if p := find(fixed.outputs, g.outputs[i].name); p != nil && len(p.dims) == len(g.outputs[i].dims) {
				copy(g.outputs[i].dims[1:], p.dims[1:])
			}
		}
	}
	return g, prove(g, data)
}

// ofOne tells whether the model takes its one picture as a batch of one.
func ofOne(m *backend.Model) bool { return m.Parameter("batch_of_one", "false") == "true" }

// openGraph reads the signature of a model for a batch of one as that of a model for batches. That nothing but one comes
// is max_batch_size's to see to.
func openGraph(m *backend.Model, path string) (graph, error) {
	if m.Config.GetMaxBatchSize() > 1 {
		return graph{}, fmt.Errorf("batch_of_one: max_batch_size is %d, not 1", m.Config.GetMaxBatchSize())
	}
	g, err := readGraph(path)
	if err != nil {
		return graph{}, err
	}
	for _, ports := range [][]port{g.inputs, g.outputs} {
		for _, p := range ports {
			if len(p.dims) == 0 || p.dims[0] > 1 {
				return graph{}, fmt.Errorf("batch_of_one: the first dimension of '%s' is not 1: %s", p.name, tensor.FormatShape(p.dims))
			}
			p.dims[0] = -1
		}
	}
	return g, nil
}

func freedModel(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return freeBatch(data)
}

// NewInstance makes a session of its own.
func (b *Backend) NewInstance(_ context.Context, m *backend.Model, at backend.Placement) (backend.Instance, error) {
	g, err := b.graph(m)
	if err != nil {
		return nil, err
	}
	if err := check(m, g); err != nil {
		return nil, err
	}
	in := &instance{
		model: m, path: file(m), at: at, pool: b.cfg.Pool, batching: m.Config.GetMaxBatchSize() > 0, sessions: map[uint64]*session{},
		newSession: b.newSession, now: b.now,
	}
	in.weights = sizeOf(m.VersionDir)
	in.ports(m.Config, g)
	if err := in.open(0); err != nil {
		return nil, fmt.Errorf("load model '%s' version %d: %w", m.Name, m.Version, err)
	}
	return in, nil
}
