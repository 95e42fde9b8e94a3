package onnxruntime

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// input is one tensor the graph is fed.
type input struct {
	port
	optional bool
	ragged   bool
	batch    *inference.BatchInput // made here of another input's shapes; nil: a request's own
}

// output is one tensor the graph gives.
type output struct {
	port
	scatter string // BATCH_SCATTER_WITH_INPUT_SHAPE: the input whose shapes cut it; else empty
	known   bool   // every dimension but the batch is fixed, so memory can wait for it
	wide    bool   // it comes as its FP32 twin
	scalar  bool   // it has no dimensions, as a run has shown
}

// carried is the type in which the output leaves the graph.
func (o *output) carried() tensor.DataType {
	if o.wide {
		return tensor.FP32
	}
	return o.typ
}

// source is the name of what the session gives for the output.
func (o *output) source() string {
	if o.wide {
		return o.name + wideSuffix
	}
	return o.name
}

// instance is one copy of a model. The server runs one Execute at a time.
type instance struct {
	model    *backend.Model
	path     string
	at       backend.Placement
	pool     *tensor.Pool
	batching bool
	inputs   []input
	outputs  []output
	optional bool // some input may be absent
	words    bool // some input is BYTES

	// sessions by the set of optional inputs that are absent (bit i: inputs[i]).
	sessions   map[uint64]*session
	fallback   fallback
	newSession opener
	now        func() time.Time
	watch      watch

	// Reused between Executes.
	in, out []ort.Value
	bufs    []*tensor.Buffer
	shape   []int64
	pins    runtime.Pinner
	one     [1]*backend.Job
	nothing [8]byte // what a tensor without elements points to

	askedEmpty bool
	noEmpty    error // why the graph gets no tensors without elements

	weights uint64 // size of the version's files, which every session has in memory
	opened  atomic.Int64
}

// MemoryBytes implements backend.Sized: the weights as often as sessions keep them.
func (in *instance) MemoryBytes() uint64 { return in.weights * uint64(in.opened.Load()) }

// ports lists what the graph is fed and gives, in the configuration's order.
func (in *instance) ports(c *inference.ModelConfig, g graph) {
	add := func(name string, optional, ragged bool, batch *inference.BatchInput) {
		p := find(g.inputs, name)
		if p == nil {
			p = &port{name: name, dims: nil}
		}
		in.inputs = append(in.inputs, input{port: *p, optional: optional, ragged: ragged, batch: batch})
		in.optional = in.optional || optional
		in.words = in.words || p.typ == tensor.Bytes
	}
	for _, i := range c.GetInput() {
		add(i.GetName(), i.GetOptional(), i.GetAllowRaggedBatch(), nil)
	}
	for _, b := range c.GetBatchInput() {
		for _, name := range b.GetTargetName() {
			add(name, false, false, b)
		}
	}
	for _, ci := range c.GetSequenceBatching().GetControlInput() {
		add(ci.GetName(), false, false, nil)
	}
	for _, s := range c.GetSequenceBatching().GetState() {
		add(s.GetInputName(), false, false, nil)
	}
	give := func(name string, promised []int64, reshape *inference.ModelTensorReshape) {
		if slices.ContainsFunc(in.outputs, func(o output) bool { return o.name == name }) {
			return
		}
		p := find(g.outputs, name)
		o := output{port: *p}
		o.dims = in.promise(p.dims, promised, reshape)
		// An input that is an output too stays where it is: nothing is written to memory that waits for it.
		o.known = len(p.dims) > 0 && p.typ != tensor.Bytes && find(g.inputs, name) == nil
		for i, d := range o.dims {
			o.known = o.known && (d > 0 || (i == 0 && in.batching))
		}
		for _, b := range c.GetBatchOutput() {
			if slices.Contains(b.GetTargetName(), name) && len(b.GetSourceInput()) > 0 {
				o.scatter = b.GetSourceInput()[0]
				o.known = false
			}
		}
		o.wide = !o.known && (o.typ == tensor.FP16 || o.typ == tensor.BF16)
		in.outputs = append(in.outputs, o)
	}
	for _, o := range c.GetOutput() {
		give(o.GetName(), o.GetDims(), o.GetReshape())
	}
	for _, s := range c.GetSequenceBatching().GetState() {
		give(s.GetOutputName(), s.GetDims(), nil)
	}
}

// promise fills the dimensions the graph leaves free with the configuration's.
func (in *instance) promise(dims, promised []int64, reshape *inference.ModelTensorReshape) []int64 {
	if reshape != nil {
		promised = reshape.GetShape()
	}
	offset := 0
	if in.batching {
		offset = 1
	}
	dims = slices.Clone(dims)
	if len(promised)+offset != len(dims) {
		return dims
	}
	for i := range promised {
		if dims[offset+i] == -1 {
			dims[offset+i] = promised[i]
		}
	}
	return dims
}

// Close frees the sessions.
func (in *instance) Close() error {
	var err error
	for _, s := range in.sessions {
		err = s.close()
	}
	clear(in.sessions)
	in.watch.close()
	in.opened.Store(0)
	return err
}

// Execute runs the jobs as one batch where the model batches and their shapes
// agree, and one by one where not.
func (in *instance) Execute(_ context.Context, jobs []*backend.Job) {
	if len(jobs) == 0 {
		return
	}
	in.retry()
	if in.words {
		jobs = in.whole(jobs)
	}
	if len(jobs) > 1 && in.batching && !in.optional && in.agree(jobs) {
		in.run(jobs)
		return
	}
	for _, j := range jobs {
		in.one[0] = j
		in.run(in.one[:])
	}
}

// agree tells whether the jobs' tensors can lie behind one another.
func (in *instance) agree(jobs []*backend.Job) bool {
	for i := range in.inputs {
		p := &in.inputs[i]
		if p.batch != nil {
			continue
		}
		first := jobs[0].Input(p.name)
		if first == nil || len(first.Shape) == 0 {
			return false
		}
		for _, j := range jobs[1:] {
			t := j.Input(p.name)
			if t == nil || len(t.Shape) == 0 || (!p.ragged && !slices.Equal(t.Shape[1:], first.Shape[1:])) {
				return false
			}
		}
	}
	return true
}

// run executes jobs as one batch and answers each of them.
func (in *instance) run(jobs []*backend.Job) {
	defer in.release()
	rows := 0
	for _, j := range jobs {
		rows += max(1, j.Batch)
	}
	if limit := int(in.model.Config.GetMaxBatchSize()); in.batching && rows > limit {
		fail(jobs, infer.Errorf(infer.Internal, "batch size %d for '%s', max allowed is %d", rows, in.model.Name, limit))
		return
	}
	s, err := in.gather(jobs)
	if err != nil {
		fail(jobs, err)
		return
	}
	responses := make([]*infer.Response, len(jobs))
	for i, j := range jobs {
		responses[i] = j.NewResponse()
	}
	err = in.room(jobs, responses, rows)
	if err == nil {
		if t := jobs[0].Timing; t != nil {
			t.InputEnd = time.Now()
		}
		err = in.call(s, jobs)
		if t := jobs[0].Timing; t != nil {
			t.OutputStart = time.Now()
		}
	}
	if err == nil {
		err = in.deal(jobs, responses, rows)
	}
	if err != nil {
		for _, r := range responses {
			r.Release()
		}
		fail(jobs, err)
		return
	}
	for i, j := range jobs {
		j.Respond(responses[i])
	}
}

func fail(jobs []*backend.Job, err error) {
	for _, j := range jobs {
		j.Fail(err)
	}
}

// release frees what one call has used.
func (in *instance) release() {
	for _, v := range in.in {
		_ = v.Destroy() // frees memory, cannot fail
	}
	for _, v := range in.out {
		if v != nil {
			_ = v.Destroy() // frees memory, cannot fail
		}
	}
	for _, b := range in.bufs {
		b.Release()
	}
	in.in, in.out, in.bufs = in.in[:0], in.out[:0], in.bufs[:0]
	in.pins.Unpin()
}

// call runs the session, and once more on the CPU if an accelerator gave up.
func (in *instance) call(s *session, jobs []*backend.Job) error {
	if len(in.in) == 0 {
		return infer.Errorf(infer.InvalidArgument, "model '%s' is given no input: ONNX Runtime is asked with one at least", in.model.Name)
	}
	err := in.watch.run(jobs, s, in.in, in.out)
	if err != nil && in.failed(err) {
		if err = in.watch.run(jobs, s, in.in, in.out); err != nil {
			in.failed(err)
		}
	}
	wanted := slices.ContainsFunc(jobs, func(j *backend.Job) bool { return j.Null || !j.Cancelled() })
	if err != nil && wanted && in.fallback.active() {
		if s, err = in.giveUp(s, err); err == nil {
			if err = in.watch.run(jobs, s, in.in, in.out); err != nil {
				in.failed(err)
			}
		}
	}
	if err != nil {
		return &infer.Error{Code: infer.Internal, Message: fmt.Sprintf("onnx runtime error: %v", err), Reason: infer.ReasonBackend}
	}
	return nil
}
