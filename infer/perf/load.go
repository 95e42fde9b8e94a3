package perf

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

// model is what the server says of the model.
type model struct {
	inputs   []tensor.Tensor // with data to send
	batched  bool
	sequence bool
	textID   bool // correlation ids are strings
	// decoupled: a request is answered when its last answer is there.
	decoupled bool
}

func describe(ctx context.Context, c *v2client.Client, cfg *Config) (*model, error) {
	version := ""
	if cfg.Version > 0 {
		version = strconv.FormatInt(cfg.Version, 10)
	}
	conf, err := c.ModelConfig(ctx, &inference.ModelConfigRequest{Name: cfg.Model, Version: version})
	if err != nil {
		return nil, fmt.Errorf("describe model %q: %w", cfg.Model, err)
	}
	meta, err := c.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: cfg.Model, Version: version})
	if err != nil {
		return nil, fmt.Errorf("describe model %q: %w", cfg.Model, err)
	}
	mc := conf.GetConfig()
	decoupled := mc.GetModelTransactionPolicy().GetDecoupled()
	if decoupled && !cfg.Streaming {
		return nil, fmt.Errorf("measure model %q: it answers a request any number of times, which only a stream can take", cfg.Model)
	}
	m := &model{decoupled: decoupled, batched: mc.GetMaxBatchSize() > 0}
	for _, in := range mc.GetSequenceBatching().GetControlInput() {
		for _, k := range in.GetControl() {
			if k.GetKind() == inference.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID && k.GetDataType() == inference.DataType_TYPE_STRING {
				m.textID = true
			}
		}
	}
	if cfg.Batch > 1 && int64(cfg.Batch) > int64(mc.GetMaxBatchSize()) {
		return nil, fmt.Errorf("measure model %q in batches of %d: it takes %d at most", cfg.Model, cfg.Batch, mc.GetMaxBatchSize())
	}
	if m.sequence, err = keepsState(ctx, c, mc); err != nil {
		return nil, err
	}
	for _, in := range meta.GetInputs() {
		t, err := m.tensor(in, cfg)
		if err != nil {
			return nil, fmt.Errorf("measure model %q: %w", cfg.Model, err)
		}
		m.inputs = append(m.inputs, t)
	}
	return m, nil
}

// keepsState tells whether a model, or a step of an ensemble, wants sequences.
func keepsState(ctx context.Context, c *v2client.Client, mc *inference.ModelConfig) (bool, error) {
	for _, step := range mc.GetEnsembleScheduling().GetStep() {
		conf, err := c.ModelConfig(ctx, &inference.ModelConfigRequest{Name: step.GetModelName()})
		if err != nil {
			return false, fmt.Errorf("describe model %q: %w", step.GetModelName(), err)
		}
		if keeps, err := keepsState(ctx, c, conf.GetConfig()); keeps || err != nil {
			return keeps, err
		}
	}
	return mc.GetSequenceBatching() != nil, nil
}

// tensor makes an input's data.
func (m *model) tensor(in *inference.ModelMetadataResponse_TensorMetadata, cfg *Config) (tensor.Tensor, error) {
	t := tensor.Tensor{Name: in.GetName(), Shape: append([]int64(nil), in.GetShape()...)}
	var err error
	if t.DataType, err = tensor.Parse(in.GetDatatype()); err != nil {
		return t, err
	}
	dims := t.Shape
	if m.batched && len(dims) > 0 {
		dims[0], dims = int64(cfg.Batch), dims[1:]
	}
	given := cfg.Shapes[t.Name]
	for i, d := range dims {
		switch {
		case d >= 0:
		case len(given) == len(dims) && given[i] >= 0:
			dims[i] = given[i]
		default:
			return t, fmt.Errorf("input %q has shape %s: say what the open dimensions are", t.Name, tensor.FormatShape(in.GetShape()))
		}
	}
	n, err := tensor.ElementCount(t.Shape)
	if err != nil {
		return t, err
	}
	if t.DataType == tensor.Bytes {
		for range n {
			t.Data = tensor.AppendElement(t.Data, "0")
		}
		return t, nil
	}
	size, err := tensor.ByteSize(t.DataType, t.Shape)
	if err != nil {
		return t, err
	}
	t.Data = make([]byte, size)
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

// load sends requests.
type load struct {
	cfg     *Config
	model   *model
	client  *v2client.Client
	http    *v2client.HTTP
	pool    *v2client.Pool
	behind  atomic.Int64
	answers atomic.Int64 // of decoupled models
	nextID  atomic.Uint64
}

func newLoad(ctx context.Context, cfg *Config, c *v2client.Client, m *model) (*load, error) {
	l := &load{cfg: cfg, model: m, client: c}
	l.nextID.Store(rand.Uint64() >> 1)
	if cfg.HTTP != "" {
		l.http = v2client.NewHTTP("http://"+cfg.HTTP, v2client.Config{})
	}
	if cfg.SharedMemory {
		size := 0
		for _, t := range m.inputs {
			size += (len(t.Data) + 63) / 64 * 64
		}
		var err error
		if l.pool, err = v2client.NewPool(ctx, c, l.workers(), max(size, 1)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *load) close(ctx context.Context) {
	if l.http != nil {
		_ = l.http.Close()
	}
	if l.pool != nil {
		_ = l.pool.Close(context.WithoutCancel(ctx))
	}
}

func (l *load) batch() int {
	if !l.model.batched {
		return 1
	}
	return l.cfg.Batch
}

// maxUnderWay bounds the requests of a rate that are under way at once.
const maxUnderWay = 256

func (l *load) workers() int {
	if l.cfg.Rate > 0 {
		return maxUnderWay
	}
	return l.cfg.Concurrency
}

// run keeps the load up until ctx ends.
func (l *load) run(ctx context.Context, samples chan<- sample) {
	var wg sync.WaitGroup
	defer wg.Wait()
	var due chan time.Time // when requests of a rate should have left; nil: as soon as the last was answered
	if l.cfg.Rate > 0 {
		due = make(chan time.Time) // a request nobody is free for is late, not queued
		wg.Go(func() { l.clock(ctx, due) })
	}
	for range l.workers() {
		wg.Go(func() { l.work(ctx, due, samples) })
	}
}

// clock tells workers when to send.
func (l *load) clock(ctx context.Context, due chan<- time.Time) {
	r := rand.New(rand.NewPCG(3, 4))
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		select {
		case due <- next:
		default:
			l.behind.Add(1)
		}
		next = next.Add(pause(l.cfg.Rate, l.cfg.Poisson, r))
		timer.Reset(time.Until(next))
	}
}

// work sends one request after the other.
func (l *load) work(ctx context.Context, due <-chan time.Time, samples chan<- sample) {
	w, err := l.newWorker(ctx)
	if err != nil {
		select {
		case samples <- sample{err: err}:
		case <-ctx.Done():
		}
		return
	}
	defer w.close()
	for ctx.Err() == nil {
		begin := time.Now()
		if due != nil {
			select {
			case begin = <-due:
			case <-ctx.Done():
				return
			}
		}
		err := w.send(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case samples <- sample{time.Since(begin), err}:
		case <-ctx.Done():
			return
		}
	}
}

// worker is one client's state.
type worker struct {
	load   *load
	req    v2client.Request
	slot   *v2client.Slot
	stream *v2client.Stream
	left   int // requests of the sequence that are to come
	random *rand.Rand
}

func (l *load) newWorker(ctx context.Context) (*worker, error) {
	w := &worker{load: l, random: rand.New(rand.NewPCG(5, l.nextID.Add(1)))}
	w.req = v2client.Request{Model: l.cfg.Model, Version: l.cfg.Version}
	if l.model.decoupled {
		w.req.Parameters = map[string]any{"triton_enable_empty_final_response": true}
	}
	if l.pool != nil {
		slot, err := l.pool.Get(ctx)
		if err != nil {
			return nil, err
		}
		w.slot = slot
	}
	at := 0
	for _, t := range l.model.inputs {
		in := v2client.Input{Tensor: t}
		if w.slot != nil {
			copy(w.slot.Bytes[at:], t.Data)
			in.Place = w.slot.Place(at, len(t.Data))
			at += (len(t.Data) + 63) / 64 * 64
		}
		w.req.Inputs = append(w.req.Inputs, in)
	}
	if l.cfg.Streaming {
		var err error
		if w.stream, err = l.client.Stream(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *worker) close() {
	if w.slot != nil {
		w.slot.Release()
	}
}

func (w *worker) send(ctx context.Context) error {
	if w.load.model.sequence {
		w.step()
	}
	var err error
	switch {
	case w.stream != nil:
		if err = w.stream.SendRequest(&w.req); err == nil {
			err = w.receive()
		}
	case w.load.http != nil:
		_, err = w.load.http.Infer(ctx, &w.req)
	default:
		_, err = w.load.client.Infer(ctx, &w.req)
	}
	if err != nil {
		w.left = 0 // the sequence is of no more use
	}
	return err
}

// receive reads the answer of a request: the one there is, or all up to the last of a model that gives many.
func (w *worker) receive() error {
	for {
		resp, err := w.stream.Next()
		if err != nil {
			return err
		}
		if w.load.model.decoupled && len(resp.Outputs) > 0 {
			w.load.answers.Add(1)
		}
		if resp.Final || !w.load.model.decoupled {
			return nil
		}
	}
}

// step moves on in the worker's sequence, or begins the next: a fifth shorter or longer than the mean.
func (w *worker) step() {
	w.req.Start = w.left == 0
	if w.req.Start {
		mean := w.load.cfg.SequenceLength
		w.left = max(1, mean-mean/5+w.random.IntN(2*(mean/5)+1))
		id := w.load.nextID.Add(1)
		w.req.Sequence = id
		if w.load.model.textID {
			w.req.Sequence = strconv.FormatUint(id, 10)
		}
	}
	w.left--
	w.req.End = w.left == 0
}

// counters are the sums of a model's statistics.
type counters struct {
	requests, queue, input, infer, output, inferences, executions uint64
}

func statistics(ctx context.Context, c *v2client.Client, cfg *Config) (counters, error) {
	var sum counters
	resp, err := c.ModelStatistics(ctx, &inference.ModelStatisticsRequest{Name: cfg.Model})
	if err != nil {
		return sum, fmt.Errorf("read statistics of model %q: %w", cfg.Model, err)
	}
	for _, m := range resp.GetModelStats() {
		s := m.GetInferenceStats()
		sum.requests += s.GetSuccess().GetCount()
		sum.queue += s.GetQueue().GetNs()
		sum.input += s.GetComputeInput().GetNs()
		sum.infer += s.GetComputeInfer().GetNs()
		sum.output += s.GetComputeOutput().GetNs()
		sum.inferences += m.GetInferenceCount()
		sum.executions += m.GetExecutionCount()
	}
	return sum, nil
}

func (c counters) since(b counters) Server {
	n := max(c.requests-b.requests, 1)
	each := func(now, then uint64) time.Duration { return time.Duration((now - then) / n) }
	return Server{
		Queue: each(c.queue, b.queue), ComputeInput: each(c.input, b.input), ComputeInfer: each(c.infer, b.infer),
		ComputeOutput: each(c.output, b.output), Inferences: c.inferences - b.inferences, Executions: c.executions - b.executions,
	}
}
