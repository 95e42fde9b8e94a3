package onnxruntime

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

func library(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "third_party", "onnxruntime", "libonnxruntime.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there: make deps fetches it", path)
	}
	return path
}

// owner takes the answers of several jobs.
type owner struct {
	pool  *tensor.Pool
	resp  map[*backend.Job]*infer.Response
	err   map[*backend.Job]error
	wants func(string) bool

	cancelled bool
}

func newOwner(pool *tensor.Pool) *owner {
	return &owner{pool: pool, resp: map[*backend.Job]*infer.Response{}, err: map[*backend.Job]error{}, wants: func(string) bool { return true }}
}
func (o *owner) NewResponse(*backend.Job) *infer.Response  { return infer.NewResponse(o.pool, nil) }
func (o *owner) Respond(j *backend.Job, r *infer.Response) { o.resp[j] = r }
func (o *owner) RespondError(j *backend.Job, err error)    { o.Fail(j, err) }
func (o *owner) Fail(j *backend.Job, err error)            { o.err[j] = err }
func (*owner) Finish(*backend.Job)                         {}
func (*owner) Reschedule(*backend.Job)                     {}
func (o *owner) Cancelled(*backend.Job) bool               { return o.cancelled }
func (o *owner) Wants(_ *backend.Job, name string) bool    { return o.wants(name) }

func model(t testing.TB, name, config string) *backend.Model {
	t.Helper()
	c := &inference.ModelConfig{}
	if err := prototext.Unmarshal([]byte(config), c); err != nil {
		t.Fatal(err)
	}
	c.DefaultModelFilename = name + ".onnx"
	return &backend.Model{Name: name, Version: 1, VersionDir: "testdata", Config: c, Logger: slog.New(slog.DiscardHandler)}
}

// rig is a loaded instance with the pool its batches come from.
type rig struct {
	instance backend.Instance
	model    *backend.Model
	pool     *tensor.Pool
}

func load(t testing.TB, name, config string) (*rig, error) {
	t.Helper()
	return loadModel(t, model(t, name, config))
}

func loadModel(t testing.TB, m *backend.Model) (*rig, error) {
	t.Helper()
	r := &rig{model: m, pool: &tensor.Pool{}}
	b := New(Config{Library: library(t), Pool: r.pool})
	if err := b.Complete(t.Context(), r.model); err != nil {
		return nil, err
	}
	var err error
	if r.instance, err = b.NewInstance(t.Context(), r.model, backend.Placement{Name: m.Name + "_0", CPUThreads: 1, GPU: -1}); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := r.instance.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, nil
}

func mustLoad(t testing.TB, name, config string) *rig {
	t.Helper()
	r, err := load(t, name, config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func job(o *owner, batch int, in ...tensor.Tensor) *backend.Job {
	return &backend.Job{Request: &infer.Request{}, Inputs: in, Batch: batch, Owner: o, Timing: &backend.Timing{}}
}

// run executes jobs together and gives their responses, released with the test.
func (r *rig) run(t testing.TB, o *owner, jobs ...*backend.Job) []*infer.Response {
	t.Helper()
	r.instance.Execute(t.Context(), jobs)
	out := make([]*infer.Response, len(jobs))
	for i, j := range jobs {
		if (o.resp[j] == nil) == (o.err[j] == nil) {
			t.Fatalf("job %d: response %v and error %v: want exactly one", i, o.resp[j], o.err[j])
		}
		if o.err[j] != nil {
			t.Fatal(o.err[j])
		}
		out[i] = o.resp[j]
	}
	return out
}

func floats(name string, shape []int64, v ...float32) tensor.Tensor {
	return tensor.Tensor{Name: name, DataType: tensor.FP32, Shape: shape, Data: tensor.AsBytes(v)}
}

func want(t testing.TB, r *infer.Response, name string, shape []int64, v ...float32) {
	t.Helper()
	o := r.Output(name)
	if o == nil {
		t.Errorf("no output %s", name)
		return
	}
	if !slices.Equal(o.Shape, shape) || !slices.Equal(tensor.Float32s(o.Data), v) {
		t.Errorf("%s is %v %v, want %v %v", name, o.Shape, tensor.Float32s(o.Data), shape, v)
	}
}

func TestR2AndR8TheGraphCompletesTheConfiguration(t *testing.T) {
	for _, c := range []struct{ name, file, config, want string }{
		{
			"a free first dimension everywhere batches", "addsub", "",
			`max_batch_size: 4 dynamic_batching {}
			 input { name: "A" data_type: TYPE_FP32 dims: 4 } input { name: "B" data_type: TYPE_FP32 dims: 4 }
			 output { name: "SUM" data_type: TYPE_FP32 dims: 4 } output { name: "DIFF" data_type: TYPE_FP32 dims: 4 }`,
		},
		{
			"what is configured stays", "addsub",
			`max_batch_size: 16 input { name: "A" data_type: TYPE_FP32 dims: 4 } input { name: "B" data_type: TYPE_FP32 dims: 4 }`,
			`max_batch_size: 16 dynamic_batching {}
			 input { name: "A" data_type: TYPE_FP32 dims: 4 } input { name: "B" data_type: TYPE_FP32 dims: 4 }
			 output { name: "SUM" data_type: TYPE_FP32 dims: 4 } output { name: "DIFF" data_type: TYPE_FP32 dims: 4 }`,
		},
		{
			"a fixed first dimension does not batch", "ones", "",
			`input { name: "N" data_type: TYPE_INT64 dims: 1 } output { name: "ONES" data_type: TYPE_INT32 dims: -1 }`,
		},
		{
			"a default is no input, a scalar is one element", "default", "",
			`input { name: "X" data_type: TYPE_FP32 dims: 2 } input { name: "OFFSET" data_type: TYPE_FP32 dims: 1 }
			 output { name: "Y" data_type: TYPE_FP32 dims: 2 }`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := model(t, c.file, c.config)
			if err := New(Config{Library: library(t)}).Complete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			w := model(t, c.file, c.want)
			if got, want := prototext.Format(m.Config), prototext.Format(w.Config); strings.Join(strings.Fields(got), "") != strings.Join(strings.Fields(want), "") {
				t.Errorf("got %s\nwant %s", got, want)
			}
		})
	}
}

func TestASingleRequestIsNotCopied(t *testing.T) {
	r := mustLoad(t, "addsub", "")
	o := newOwner(&tensor.Pool{})
	j := job(o, 2, floats("A", []int64{2, 4}, 1, 2, 3, 4, 5, 6, 7, 8), floats("B", []int64{2, 4}, 1, 1, 1, 1, 2, 2, 2, 2))
	into := make([]byte, 32)
	j.Request.Outputs = []infer.OutputSpec{{Name: "SUM", Into: into}, {Name: "DIFF"}}
	resp := r.run(t, o, j)[0]
	want(t, resp, "SUM", []int64{2, 4}, 2, 3, 4, 5, 7, 8, 9, 10)
	want(t, resp, "DIFF", []int64{2, 4}, 0, 1, 2, 3, 3, 4, 5, 6)
	if !tensor.SameMemory(resp.Output("SUM").Data, into) {
		t.Error("SUM was not written to the memory the client gave")
	}
	if r.pool.Lent() != 0 {
		t.Errorf("%d buffers of the batch pool are lent for a single request", r.pool.Lent())
	}
	resp.Release()
}

func TestABatchGivesWhatItsRequestsGiveAlone(t *testing.T) {
	r := mustLoad(t, "addsub", "max_batch_size: 64")
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		o := newOwner(&tensor.Pool{})
		var jobs []*backend.Job
		var sums [][]float32
		for range 1 + rnd.IntN(5) {
			n := 1 + rnd.IntN(4)
			a, b, sum := make([]float32, 4*n), make([]float32, 4*n), make([]float32, 4*n)
			for i := range a {
				a[i], b[i] = float32(rnd.IntN(100)), float32(rnd.IntN(100))
				sum[i] = a[i] + b[i]
			}
			shape := []int64{int64(n), 4}
			jobs, sums = append(jobs, job(o, n, floats("A", shape, a...), floats("B", shape, b...))), append(sums, sum)
		}
		into := make([]byte, len(sums[0])*4)
		jobs[0].Request.Outputs = []infer.OutputSpec{{Name: "SUM", Into: into}}
		for i, resp := range r.run(t, o, jobs...) {
			want(t, resp, "SUM", []int64{int64(len(sums[i]) / 4), 4}, sums[i]...)
			resp.Release()
		}
		if got := tensor.Float32s(into); !slices.Equal(got, sums[0]) {
			t.Fatalf("the client's memory has %v, want %v", got, sums[0])
		}
		if r.pool.Lent() != 0 {
			t.Fatalf("%d buffers are still lent after every response was released", r.pool.Lent())
		}
	}
}

func TestR8ABatchBeyondTheMaximumIsRefused(t *testing.T) {
	r := mustLoad(t, "addsub", "max_batch_size: 1")
	o := newOwner(nil)
	j := job(o, 2, floats("A", []int64{2, 4}, make([]float32, 8)...), floats("B", []int64{2, 4}, make([]float32, 8)...))
	r.instance.Execute(t.Context(), []*backend.Job{j})
	if err := o.err[j]; err == nil || err.Error() != "batch size 2 for 'addsub', max allowed is 1" {
		t.Errorf("got %v", err)
	}
}

func TestP9EveryElementTypeComesBack(t *testing.T) {
	r := mustLoad(t, "echo", "")
	o := newOwner(nil)
	in := []tensor.Tensor{
		{Name: "S", DataType: tensor.Bytes, Shape: []int64{3}, Data: tensor.EncodeStrings("a", "", "lange Wörter")},
		{Name: "I", DataType: tensor.Int64, Shape: []int64{2}, Data: tensor.AsBytes([]int64{-1, 1 << 40})},
		{Name: "B", DataType: tensor.Bool, Shape: []int64{2}, Data: []byte{1, 0}},
		{Name: "H", DataType: tensor.FP16, Shape: []int64{3}, Data: []byte{1, 2, 3, 4, 5, 6}},
		{Name: "D", DataType: tensor.FP64, Shape: []int64{2, 2}, Data: tensor.AsBytes([]float64{1, 2, 3, 4})},
	}
	resp := r.run(t, o, job(o, 1, in...))[0]
	for _, i := range in {
		out := resp.Output("OUT_" + i.Name)
		if out == nil || out.DataType != i.DataType || !slices.Equal(out.Shape, i.Shape) || !slices.Equal(out.Data, i.Data) {
			t.Errorf("%s: %v came back as %v", i.Name, i, out)
		}
	}
	resp.Release()
}

func TestP9TensorsOfAnySizeComeBack(t *testing.T) {
	r := mustLoad(t, "open", "")
	halves := func(name string, typ tensor.DataType, v ...uint16) tensor.Tensor {
		return tensor.Tensor{Name: name, DataType: typ, Shape: []int64{int64(len(v))}, Data: tensor.AsBytes(v)}
	}
	words := func(v ...string) tensor.Tensor {
		return tensor.Tensor{Name: "S", DataType: tensor.Bytes, Shape: []int64{int64(len(v))}, Data: tensor.EncodeStrings(v...)}
	}
	every := make([]uint16, 1<<16)
	for i := range every {
		every[i] = uint16(i)
	}
	for _, c := range []struct {
		in  []tensor.Tensor
		sum float32
	}{
		{[]tensor.Tensor{halves("H", tensor.FP16, 0x3c00), halves("B", tensor.BF16, 0x3f80, 0xc000), floats("X", []int64{3}, 1, 2, 3), words("a", "")}, 6},
		{[]tensor.Tensor{halves("H", tensor.FP16), halves("B", tensor.BF16), floats("X", []int64{0}), words()}, 0},
		{[]tensor.Tensor{halves("H", tensor.FP16, every...), halves("B", tensor.BF16, every...), floats("X", []int64{1}, 7), words("ä")}, 7},
	} {
		o := newOwner(nil)
		resp := r.run(t, o, job(o, 1, c.in...))[0]
		for _, in := range c.in {
			out := resp.Output("OUT_" + in.Name)
			if out == nil || out.DataType != in.DataType || !slices.Equal(out.Shape, in.Shape) || len(out.Data) != len(in.Data) {
				t.Fatalf("%s%v came back as %v", in.Name, in.Shape, out)
			}
			if in.DataType != tensor.FP16 && in.DataType != tensor.BF16 {
				if !slices.Equal(out.Data, in.Data) {
					t.Errorf("%s: %v came back as %v", in.Name, in.Data, out.Data)
				}
				continue
			}
			wide := tensor.FP16ToFloat32
			if in.DataType == tensor.BF16 {
				wide = tensor.BF16ToFloat32
			}
			got := tensor.View[uint16](out.Data)
			for i, h := range tensor.View[uint16](in.Data) {
				if a, b := wide(h), wide(got[i]); got[i] != h && (a == a || b == b) { // NaNs may differ
					t.Fatalf("%s: %04x came back as %04x", in.Name, h, got[i])
				}
			}
		}
		want(t, resp, "SUM", []int64{1}, c.sum)
		resp.Release()
	}
	o := newOwner(nil)
	j := job(o, 1, halves("H", tensor.FP16), halves("B", tensor.BF16), floats("X", []int64{0}), words("a", "b\x00c"))
	r.instance.Execute(t.Context(), []*backend.Job{j})
	if err := o.err[j]; infer.CodeOf(err) != infer.InvalidArgument || !strings.Contains(err.Error(), "element 1 has a zero byte") {
		t.Errorf("a string that would be cut: %v", err)
	}
}

func TestP9AnInputThatIsAnOutputTooComesBack(t *testing.T) {
	r := mustLoad(t, "through", `input { name: "X" data_type: TYPE_FP32 dims: [ 1, 2 ] } output { name: "X" data_type: TYPE_FP32 dims: [ 1, 2 ] }
		output { name: "Y" data_type: TYPE_FP32 dims: [ 1, 2 ] } output { name: "C" data_type: TYPE_FP32 dims: [ 1, 2 ] }`)
	o := newOwner(nil)
	resp := r.run(t, o, job(o, 1, floats("X", []int64{1, 2}, 3, 4)))[0]
	want(t, resp, "X", []int64{1, 2}, 3, 4)
	want(t, resp, "Y", []int64{1, 2}, -3, -4)
	want(t, resp, "C", []int64{1, 2}, 7, 8)
	resp.Release()
}

func TestAGraphThatIsAskedNothingSaysSo(t *testing.T) {
	r := mustLoad(t, "nothing", `output { name: "C" data_type: TYPE_FP32 dims: 1 }`)
	o := newOwner(nil)
	j := job(o, 1)
	r.instance.Execute(t.Context(), []*backend.Job{j})
	if err := o.err[j]; infer.CodeOf(err) != infer.InvalidArgument || !strings.Contains(err.Error(), "is given no input") {
		t.Errorf("got %v", err)
	}
}

// A kernel of ONNX Runtime that divides by the number of elements would end the process.
func TestTensorsWithoutElementsGoToModelsThatTakeThem(t *testing.T) {
	r := mustLoad(t, "product", "")
	o := newOwner(nil)
	want(t, r.run(t, o, job(o, 1, floats("X", []int64{1, 2}, 1, 2)))[0], "Y", []int64{1, 1}, 5)
	j := job(o, 1, floats("X", []int64{1, 0}))
	r.instance.Execute(t.Context(), []*backend.Job{j})
	if err := o.err[j]; infer.CodeOf(err) != infer.InvalidArgument ||
		!strings.Contains(err.Error(), "shape [1,0] has no elements: the model's operator Einsum is not known to take one") {
		t.Errorf("got %v", err)
	}
}

func TestOutputsOfUnknownSizeAreTaken(t *testing.T) {
	r := mustLoad(t, "ones", "")
	o := newOwner(nil)
	j := job(o, 1, tensor.Tensor{Name: "N", DataType: tensor.Int64, Shape: []int64{1}, Data: tensor.AsBytes([]int64{5})})
	out := r.run(t, o, j)[0].Output("ONES")
	if !slices.Equal(out.Shape, []int64{5}) || !slices.Equal(tensor.View[int32](out.Data), []int32{1, 1, 1, 1, 1}) {
		t.Errorf("got %v", out)
	}
}

func TestS8StateIsReadAndReturned(t *testing.T) {
	const sequence = `max_batch_size: 4 sequence_batching {
		control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } }
		state { input_name: "STATE_IN" output_name: "STATE_OUT" data_type: TYPE_FP32 dims: 1 } }`
	r := mustLoad(t, "accumulate", sequence)
	if n := len(r.model.Config.GetInput()) + len(r.model.Config.GetOutput()); n != 2 {
		t.Errorf("completed to %d tensors, want INPUT and OUTPUT alone: %v", n, r.model.Config)
	}
	o := newOwner(nil)
	one := []int64{1, 1}
	jobs := []*backend.Job{
		job(o, 1, floats("INPUT", one, 5), floats("START", one, 0), floats("STATE_IN", one, 10)),
		job(o, 1, floats("INPUT", one, 7), floats("START", one, 1), floats("STATE_IN", one, 10)),
	}
	resp := r.run(t, o, jobs...)
	want(t, resp[0], "STATE_OUT", one, 15)
	want(t, resp[1], "STATE_OUT", one, 7)
	want(t, resp[1], "OUTPUT", one, 7)
}

func TestS10RaggedRequestsLieBehindOneAnother(t *testing.T) {
	r := mustLoad(t, "ragged", `max_batch_size: 8
		input { name: "VALUES" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
		batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ENDS" data_type: TYPE_FP32 source_input: "VALUES" }
		batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "DOUBLED" source_input: "VALUES" }
		output { name: "DOUBLED" data_type: TYPE_FP32 dims: -1 } output { name: "OUT_ENDS" data_type: TYPE_FP32 dims: 1 reshape { shape: [] } }`)
	o := newOwner(nil)
	resp := r.run(t, o, job(o, 1, floats("VALUES", []int64{1, 3}, 1, 2, 3)), job(o, 1, floats("VALUES", []int64{1, 2}, 4, 5)))
	want(t, resp[0], "DOUBLED", []int64{1, 3}, 2, 4, 6)
	want(t, resp[1], "DOUBLED", []int64{1, 2}, 8, 10)
	want(t, resp[1], "OUT_ENDS", []int64{1}, 5)
}

func TestR8ADefaultOfTheGraphMayBeReplaced(t *testing.T) {
	r := mustLoad(t, "default", `input { name: "X" data_type: TYPE_FP32 dims: 2 } input { name: "OFFSET" data_type: TYPE_FP32 dims: 1 }
		input { name: "FACTOR" data_type: TYPE_FP32 dims: 2 optional: true } output { name: "Y" data_type: TYPE_FP32 dims: 2 }`)
	two := []int64{2}
	x, offset := floats("X", two, 1, 2), floats("OFFSET", []int64{1}, 0.5)
	o := newOwner(nil)
	want(t, r.run(t, o, job(o, 1, x, offset))[0], "Y", two, 10.5, 200.5)
	want(t, r.run(t, o, job(o, 1, x, offset, floats("FACTOR", two, 2, 3)))[0], "Y", two, 2.5, 6.5)
}

func TestX7TreeModelsRun(t *testing.T) {
	r := mustLoad(t, "tree", "")
	o := newOwner(nil)
	j := job(o, 2, floats("X", []int64{2, 2}, 0.1, 0, 0.9, 0))
	want(t, r.run(t, o, j)[0], "Y", []int64{2, 1}, -1, 1)
}

func TestARequestThatDoesNotFitFailsAlone(t *testing.T) {
	r := mustLoad(t, "addsub", "")
	good := floats("A", []int64{1, 4}, 1, 2, 3, 4)
	for name, b := range map[string]tensor.Tensor{
		"too few bytes":   {Name: "B", DataType: tensor.FP32, Shape: []int64{1, 4}, Data: make([]byte, 12)},
		"a wrong shape":   floats("B", []int64{1, 3}, 1, 2, 3),
		"no elements":     floats("B", []int64{0, 4}),
		"another name":    floats("C", []int64{1, 4}, 1, 2, 3, 4),
		"a negative side": {Name: "B", DataType: tensor.FP32, Shape: []int64{-1, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwner(r.pool)
			j := job(o, 1, good, b)
			r.instance.Execute(t.Context(), []*backend.Job{j})
			if o.err[j] == nil || o.resp[j] != nil {
				t.Fatalf("error %v, response %v", o.err[j], o.resp[j])
			}
			if n := r.pool.Lent(); n != 0 {
				t.Errorf("%d buffers are still lent", n)
			}
			after := r.run(t, o, job(o, 1, good, floats("B", []int64{1, 4}, 1, 1, 1, 1)))[0]
			want(t, after, "SUM", []int64{1, 4}, 2, 3, 4, 5)
			after.Release()
		})
	}
}

func TestR8ConfigurationsTheGraphContradictsAreRefused(t *testing.T) {
	const io = ` input { name: "A" data_type: TYPE_FP32 dims: 4 } input { name: "B" data_type: TYPE_FP32 dims: 4 }`
	const out = ` output { name: "SUM" data_type: TYPE_FP32 dims: 4 }`
	for _, c := range []struct{ name, file, config, want string }{
		{
			"too few inputs", "addsub", `max_batch_size: 1 input { name: "A" data_type: TYPE_FP32 dims: 4 }` + out,
			"unable to load model 'addsub', configuration expects 1 inputs, model provides 2",
		},
		{
			"an input the graph does not have", "addsub", `max_batch_size: 1 input { name: "A" data_type: TYPE_FP32 dims: 4 } input { name: "X" data_type: TYPE_FP32 dims: 4 }` + out,
			"unexpected inference input 'X', allowed inputs are: A, B",
		},
		{
			"an output the graph does not have", "addsub", `max_batch_size: 1` + io + ` output { name: "X" data_type: TYPE_FP32 dims: 4 }`,
			"unexpected inference output 'X', allowed outputs are: DIFF, SUM",
		},
		{
			"another type", "addsub", `max_batch_size: 1 input { name: "A" data_type: TYPE_INT32 dims: 4 } input { name: "B" data_type: TYPE_FP32 dims: 4 }` + out,
			"unable to load model 'addsub', configuration expects datatype TYPE_INT32 for input 'A', model provides TYPE_FP32",
		},
		{
			"other dims with batching", "addsub", `max_batch_size: 1 input { name: "A" data_type: TYPE_FP32 dims: 5 } input { name: "B" data_type: TYPE_FP32 dims: 4 }` + out,
			"model 'addsub', tensor 'A': the model expects 2 dimensions (shape [-1,4]) but the model configuration specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape [-1,5])",
		},
		{
			"other dims without batching", "ones", `input { name: "N" data_type: TYPE_INT64 dims: 2 } output { name: "ONES" data_type: TYPE_INT32 dims: -1 }`,
			"model 'ones', tensor 'N': the model expects 1 dimensions (shape [1]) but the model configuration specifies 1 dimensions (shape [2])",
		},
		{
			"batching of a graph that cannot", "ones", `max_batch_size: 2 input { name: "N" data_type: TYPE_INT64 dims: 1 } output { name: "ONES" data_type: TYPE_INT32 dims: -1 }`,
			"model 'ones', tensor 'N': for the model to support batching the shape should have at least 1 dimension and the first dimension must be -1; but shape expected by the model is [1]",
		},
		{
			"batching asked of auto-complete", "ones", `max_batch_size: 2`,
			"autofill failed for model 'ones': model does not support batching while non-zero max_batch_size is specified",
		},
		{
			"an optional input with batching", "addsub", `max_batch_size: 2` + ` input { name: "A" data_type: TYPE_FP32 dims: 4 } input { name: "B" data_type: TYPE_FP32 dims: 4 optional: true }` + out,
			"unable to load model 'addsub', optional input 'B' is not supported for models that support batching",
		},
		{
			"a ragged input of a graph with rows", "addsub", `max_batch_size: 2 input { name: "A" data_type: TYPE_FP32 dims: 4 allow_ragged_batch: true } input { name: "B" data_type: TYPE_FP32 dims: 4 }` + out,
			"unable to load model 'addsub', configuration expects model provides input with shape [-1]  for ragged input 'A', model provides [-1,4]",
		},
		{
			"a control the graph does not have", "addsub", `max_batch_size: 2` + io + out + ` sequence_batching { control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [0, 1] } } }`,
			"configuration specified sequence control 'READY', but model does not provide that input",
		},
		{
			"a control of another type", "accumulate", `max_batch_size: 2 sequence_batching { control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }
				state { input_name: "STATE_IN" output_name: "STATE_OUT" data_type: TYPE_FP32 dims: 1 } }`,
			"unable to load model 'accumulate', sequence control 'START', the model expects data-type FP32 but the model configuration specifies data-type TYPE_INT32",
		},
		{
			"an accelerator nobody knows", "addsub", `max_batch_size: 1` + io + out + ` optimization { execution_accelerators { cpu_execution_accelerator { name: "abacus" } } }`,
			"unknown Execution Accelerator 'abacus' is requested",
		},
		{
			"a parameter that is no number", "addsub", `parameters { key: "intra_op_thread_count" value { string_value: "many" } }`,
			`parameters[intra_op_thread_count]: "many" is not a number from 0`,
		},
		{
			"an optimisation level there is not", "addsub", `optimization { graph { level: 7 } }`,
			"optimization.graph.level 7 is not one of -1, 0, 1, 2",
		},
		{"no such file", "absent", "", "absent.onnx: no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.file, c.config)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestR8ADamagedFileIsATypedError(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join("testdata", "conv.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"truncated": whole[:len(whole)-100], "empty": {}, "noise": []byte("this is no model at all")} {
		t.Run(name, func(t *testing.T) {
			m := model(t, name, "")
			m.VersionDir = dir
			if err := os.WriteFile(filepath.Join(dir, name+".onnx"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			err := New(Config{Library: library(t)}).Complete(t.Context(), m)
			if infer.CodeOf(err) != infer.InvalidArgument || err == nil || !strings.Contains(err.Error(), name+".onnx") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAMissingLibrarySaysHowToGetIt(t *testing.T) {
	m := model(t, "addsub", "")
	for path, want := range map[string]string{
		"":                           "no library is named: give the path of libonnxruntime.so.1 with --onnxruntime",
		"/nowhere/libonnxruntime.so": "/nowhere/libonnxruntime.so is not there: `make deps` fetches it, --onnxruntime names another",
	} {
		err := New(Config{Library: path}).Complete(t.Context(), m)
		if infer.CodeOf(err) != infer.Unavailable || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
