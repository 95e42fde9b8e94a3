package script_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/backend/prepare"
	"github.com/vedette/vedette/infer/backend/script"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// models are what a script under test can call.
type models struct {
	run  map[string]func(ctx context.Context, req *infer.Request) (*infer.Response, error)
	pool tensor.Pool
	wg   sync.WaitGroup

	mu     sync.Mutex
	called []*infer.Request
}

func (m *models) Submit(ctx context.Context, req *infer.Request, reply func(infer.Reply)) error {
	if req.Model == "many" { // as often as it is told, or until it is cancelled
		n := req.Parameters["n"].(int64)
		m.wg.Go(func() {
			for i := int64(0); i < n && ctx.Err() == nil; i++ {
				r := infer.NewResponse(&m.pool, nil)
				tensor.View[int64](r.Add("OUT", tensor.Int64, []int64{1}, 8))[0] = i
				reply(infer.Reply{Response: r})
			}
			if req.Parameters["fault"] == true {
				reply(infer.Reply{Err: infer.Errorf(infer.Unavailable, "tired"), Final: true})
				return
			}
			reply(infer.Reply{Final: true})
		})
		return nil
	}
	f := m.run[req.Model]
	if f == nil {
		return infer.Errorf(infer.NotFound, "Request for unknown model: '%s' is not found", req.Model)
	}
	m.mu.Lock()
	m.called = append(m.called, req)
	m.mu.Unlock()
	m.wg.Go(func() {
		r, err := f(ctx, req)
		reply(infer.Reply{Response: r, Err: err, Final: true})
	})
	return nil
}

// double gives twice what it gets.
func (m *models) double(_ context.Context, req *infer.Request) (*infer.Response, error) {
	r := infer.NewResponse(&m.pool, nil)
	in := req.Inputs[0]
	out := tensor.View[int64](r.Add("OUT", tensor.Int64, in.Shape, len(in.Data)))
	for i, v := range tensor.View[int64](in.Data) {
		out[i] = 2 * v
	}
	return r, nil
}

func newModels() *models {
	m := &models{}
	m.run = map[string]func(context.Context, *infer.Request) (*infer.Response, error){
		"double": m.double,
		"broken": func(context.Context, *infer.Request) (*infer.Response, error) {
			return nil, infer.Errorf(infer.Unavailable, "out of order")
		},
		"slow": func(ctx context.Context, _ *infer.Request) (*infer.Response, error) {
			<-ctx.Done()
			return nil, infer.Errorf(infer.Cancelled, "cancelled")
		},
	}
	return m
}

const io = `input { name: "IN" data_type: TYPE_INT64 dims: -1 } output { name: "OUT" data_type: TYPE_INT64 dims: -1 } `

func model(t *testing.T, m *models, config, text string) *backend.Model {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.star"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &inference.ModelConfig{}
	if err := prototext.Unmarshal([]byte(config), c); err != nil {
		t.Fatal(err)
	}
	return &backend.Model{Name: "script", Version: 1, VersionDir: dir, Config: c, Inferer: m, Logger: slog.New(slog.DiscardHandler)}
}

func numbers(v ...int64) tensor.Tensor {
	return tensor.Tensor{Name: "IN", DataType: tensor.Int64, Shape: []int64{int64(len(v))}, Data: tensor.AsBytes(v)}
}

// run executes a script on one request and checks that every inner response was given back.
func run(t *testing.T, config, text string, in tensor.Tensor) *backendtest.Owner {
	t.Helper()
	m := newModels()
	mod := model(t, m, config, text)
	inst, err := script.New().NewInstance(t.Context(), mod, backend.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	o := &backendtest.Owner{}
	inst.Execute(t.Context(), []*backend.Job{{
		Request: &infer.Request{ID: "r1", Scope: "private", Parameters: map[string]any{"n": int64(3)}}, Inputs: []tensor.Tensor{in}, Batch: 1, Owner: o,
	}})
	m.wg.Wait()
	t.Cleanup(func() {
		for _, r := range o.Responses {
			r.Release()
		}
		if n := m.pool.Lent(); n != 0 {
			t.Errorf("%d buffers of inner responses are still lent", n)
		}
	})
	return o
}

func TestX8ScriptsCallModelsAndDecide(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []int64
	}{
		{"an inner model's tensor is passed on", `
def execute(request):
    return infer("double", {"X": request.inputs["IN"]})
`, []int64{2, 4, 6}},
		{"a loop with a condition", `
def execute(request):
    x = request.inputs["IN"]
    while max(x.values()) < 40:
        x = infer("double", {"X": x})["OUT"]
    return {"OUT": x}
`, []int64{16, 32, 48}},
		{"several at once, in order", `
def execute(request):
    x = request.inputs["IN"]
    parts = infer_all([("double", {"X": x.rows(i, i + 1)}) for i in range(x.size)])
    return {"OUT": tensor("INT64", [len(parts)], [p["OUT"].values()[0] for p in parts])}
`, []int64{2, 4, 6}},
		{"an error is caught", `
def execute(request):
    outputs, err = try_infer("broken", {"X": request.inputs["IN"]})
    return {"OUT": tensor("INT64", [1], [len(err)])}
`, []int64{int64(len("out of order"))}},
		{"a model that answers several times", `
def execute(request):
    parts = infer_stream("many", {}, parameters={"n": 3, "s": "text", "b": False, "f": 1.5})
    return {"OUT": tensor("INT64", [len(parts)], [p["OUT"].values()[0] for p in parts])}
`, []int64{0, 1, 2}},
		{"a model that answers nothing", `
def execute(request):
    if cancelled(): fail("the client still waits")
    return {"OUT": tensor("INT64", [1], [len(infer_stream("many", {}, parameters={"n": 0}))])}
`, []int64{0}},
		{"what the request says", `
def execute(request):
    if request.id != "r1": fail("id " + request.id)
    return {"OUT": tensor("INT64", [2], [request.parameters["n"], int(config["factor"])])}
`, []int64{3, 7}},
		{"numbers of every type come back", `
def execute(request):
    for typ in ["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "FP16", "BF16", "FP32", "FP64"]:
        t = tensor(typ, [1, 2], [1, 100])
        if t.values() != [1, 100] or t.datatype != typ or t.shape != [1, 2] or t.argmax() != 1: fail(typ, t.values())
    if tensor("BYTES", [2], ["a", "bc"]).values() != ["a", "bc"]: fail("strings")
    if tensor("BOOL", [2], [True, False]).values() != [True, False]: fail("bools")
    return {"OUT": tensor("INT64", [1, 1], [-5]).reshape([1])}
`, []int64{-5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := run(t, io+`parameters { key: "factor" value { string_value: "7" } }`, c.text, numbers(1, 2, 3))
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if got := tensor.View[int64](o.Responses[0].Output("OUT").Data); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestX8ScriptsThatFailSayWhyAndWhere(t *testing.T) {
	const begin = "def execute(request):\n    "
	for _, c := range []struct {
		name, text, want string
		code             infer.Code
	}{
		{"an inner error keeps its code", begin + `return infer("broken", {"X": request.inputs["IN"]})`, "model 'broken': out of order", infer.Unavailable},
		{"one of several answers that fails", begin + `return infer_stream("many", {}, parameters={"n": 2, "fault": True})[0]`, "model 'many': tired", infer.Unavailable},
		{"answers without end", begin + `return infer_stream("many", {}, parameters={"n": 1 << 62})[0]`, "more than 1024 times", infer.Internal},
		{"a parameter that is none", begin + `return infer("double", {}, parameters={"x": []})`, "parameter 'x' is list", infer.Internal},
		{"a parameter that does not fit", begin + `return infer("double", {}, parameters={"x": 1 << 64})`, "does not fit 64 bits", infer.Internal},
		{"a parameter without a name", begin + `return infer("double", {}, parameters={1: 1})`, "the name of parameter 1", infer.Internal},
		{"a model there is not", begin + `return infer("nobody", {})`, "'nobody' is not found", infer.NotFound},
		{"its own words", begin + `fail("no such thing")`, "model.star:2:9: fail: no such thing", infer.Internal},
		{"the place is named", begin + `return 1 // 0`, "model.star:2", infer.Internal},
		{"no dict", begin + `return 5`, "returned int, not a dict", infer.Internal},
		{"an output nobody configured", begin + `return {"X": request.inputs["IN"]}`, "not one of the configuration's", infer.Internal},
		{"another type", begin + `return {"OUT": tensor("FP32", [1], [1.0])}`, "is FP32, the configuration says INT64", infer.Internal},
		{"an output missing", begin + `return {}`, "output 'OUT' is missing", infer.Internal},
		{"a number that does not fit", begin + `return {"OUT": tensor("INT8", [1], [128])}`, "128 does not fit INT8", infer.Internal},
		{"more values than the shape", begin + `return {"OUT": tensor("INT64", [1], [1, 2])}`, "2 values for the shape [1]", infer.Internal},
		{"a shape that overflows", begin + `return {"OUT": tensor("INT64", [1 << 62, 1 << 62], [])}`, "0 values for the shape", infer.Internal},
		{"rows that are not there", begin + `return {"OUT": request.inputs["IN"].rows(2, 9)}`, "rows: 2 to 9", infer.Internal},
		{"an answer in between", begin + `respond({"OUT": request.inputs["IN"]})`, "not decoupled", infer.Internal},
		{"one of several", begin + `return infer_all([("double", {"X": request.inputs["IN"]}), ("broken", {"X": request.inputs["IN"]})])[0]`, "request 1 to model 'broken'", infer.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := run(t, io, c.text, numbers(1, 2, 3))
			if o.Err == nil || len(o.Responses) != 0 || !strings.Contains(o.Err.Error(), c.want) || infer.CodeOf(o.Err) != c.code {
				t.Errorf("got  %v (code %d)\nwant %s (code %d)", o.Err, infer.CodeOf(o.Err), c.want, c.code)
			}
		})
	}
}

func TestX8ScriptsAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ config, text, want string }{
		"in steps": {`parameters { key: "max_steps" value { string_value: "10000" } }`, "def execute(request):\n    while True: pass", "too many steps"},
		"in time": {
			`parameters { key: "max_steps" value { string_value: "9000000000000" } } parameters { key: "max_time_ms" value { string_value: "50" } }`,
			"def execute(request):\n    while True: pass", "ran longer than 50ms",
		},
		"in the time of the models it calls": {
			`parameters { key: "max_time_ms" value { string_value: "50" } }`, "def execute(request):\n    return infer(\"slow\", {})", "cancelled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if o := run(t, io+c.config, c.text, numbers(1)); o.Err == nil || !strings.Contains(o.Err.Error(), c.want) {
				t.Errorf("got %v, want %s", o.Err, c.want)
			}
		})
	}
}

func TestX8ADecoupledScriptAnswersAsOftenAsItLikes(t *testing.T) {
	o := run(t, io+`model_transaction_policy { decoupled: true }`, `
def execute(request):
    x = request.inputs["IN"]
    for i in range(x.size):
        respond(infer("double", {"X": x.rows(i, i + 1)}))
`, numbers(1, 2, 3))
	if o.Err != nil || !o.Finished || len(o.Responses) != 3 {
		t.Fatalf("%d responses, finished %v, error %v", len(o.Responses), o.Finished, o.Err)
	}
	for i, r := range o.Responses {
		if v := tensor.View[int64](r.Output("OUT").Data); !slices.Equal(v, []int64{int64(2 * (i + 1))}) {
			t.Errorf("response %d is %v", i, v)
		}
	}
}

func TestX8ScriptsThatCannotRunAreRefusedAtLoad(t *testing.T) {
	for name, c := range map[string]struct{ config, text, want string }{
		"a syntax error":           {io, "def execute(request)\n", "model.star:2:1: got newline, want ':'"},
		"a name nobody knows":      {io, "def execute(request):\n    return nothing\n", "undefined: nothing"},
		"no execute":               {io, "x = 1\n", "does not define execute(request)"},
		"a call while loading":     {io, "infer(\"double\", {})\ndef execute(request):\n    return {}\n", "only from execute"},
		"an endless load":          {io + `parameters { key: "max_steps" value { string_value: "1000" } }`, "while True:\n    pass\n", "too many steps"},
		"no outputs configured":    {"", "def execute(request):\n    return {}\n", "must list inputs and outputs"},
		"a bound that is none":     {io + `parameters { key: "max_time_ms" value { string_value: "-1" } }`, "", "parameters[max_time_ms]"},
		"a file that is not there": {io + `default_model_filename: "other.star"`, "", "other.star: no such file"},
	} {
		err := script.New().Complete(t.Context(), model(t, newModels(), c.config, c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// crop runs the real prepare backend with a region.
func crop(t *testing.T) func(context.Context, *infer.Request) (*infer.Response, error) {
	c := &inference.ModelConfig{}
	if err := prototext.Unmarshal([]byte(`parameters { key: "size" value { string_value: "8" } }`), c); err != nil {
		t.Fatal(err)
	}
	in, err := prepare.New().NewInstance(t.Context(), &backend.Model{Name: "crop", Config: c}, backend.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	return func(ctx context.Context, req *infer.Request) (*infer.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		o := &backendtest.Owner{}
		in.Execute(ctx, []*backend.Job{{Request: req, Inputs: req.Inputs, Batch: 1, Owner: o}})
		if o.Err != nil {
			return nil, o.Err
		}
		return o.Responses[0], nil
	}
}

func TestX8TheExampleClassifiesEveryBox(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "docs", "examples", "script", "models", "classify")
	config, err := os.ReadFile(filepath.Join(dir, "config.pbtxt"))
	if err != nil {
		t.Fatal(err)
	}
	m := newModels()
	m.run["crop"] = crop(t)
	// Class 1 is bright, class 0 dark.
	m.run["classifier"] = func(_ context.Context, req *infer.Request) (*infer.Response, error) {
		sum := float32(0)
		v := tensor.Float32s(req.Inputs[0].Data)
		for _, x := range v {
			sum += x / 255 / float32(len(v))
		}
		r := infer.NewResponse(&m.pool, nil)
		copy(tensor.View[float32](r.Add("SCORES", tensor.FP32, []int64{2}, 8)), []float32{1 - sum, sum})
		return r, nil
	}
	mod := model(t, m, string(config), "")
	mod.VersionDir = filepath.Join(dir, "1")
	inst, err := script.New().NewInstance(t.Context(), mod, backend.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	const w, h = 64, 32
	pix := make([]byte, w*h)
	for i := range pix {
		if i%w >= 32 {
			pix[i] = 255 // the right half is bright
		}
	}
	o := &backendtest.Owner{}
	inst.Execute(t.Context(), []*backend.Job{{Request: &infer.Request{}, Owner: o, Batch: 1, Inputs: []tensor.Tensor{
		{Name: "FRAME", DataType: tensor.Uint8, Shape: []int64{w * h}, Data: pix},
		{Name: "FRAME_INFO", DataType: tensor.Int64, Shape: []int64{8}, Data: tensor.AsBytes([]int64{prepare.FormatGray, w, h, 0, 0, 0, 0, 0})},
		{Name: "BOXES", DataType: tensor.FP32, Shape: []int64{3, 6}, Data: tensor.AsBytes([]float32{
			0, 0, 20, 20, 0.9, 0, 40, 0, 60, 20, 0.8, 0, 40, 0, 60, 20, 0.1, 0,
		})},
	}}})
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	defer o.Responses[0].Release()
	if got := tensor.View[int64](o.Responses[0].Output("LABEL").Data); !slices.Equal(got, []int64{0, 1, -1}) {
		t.Errorf("labels %v, want dark, bright and not asked", got)
	}
	if frame.InfoLen != 8 {
		t.Error("the example's FRAME_INFO has another length")
	}
}

func TestX7Conformance(t *testing.T) {
	m := newModels()
	backendtest.Run(t, backendtest.Case{
		Backend: script.New(),
		Model:   model(t, m, io, "def execute(request):\n    return infer(\"double\", {\"X\": request.inputs[\"IN\"]})\n"),
		Inputs:  func(i int) []tensor.Tensor { return []tensor.Tensor{numbers(int64(i), 1)} }, Patience: time.Second,
	})
	m.wg.Wait()
	if n := m.pool.Lent(); n != 0 {
		t.Errorf("%d buffers of inner responses are still lent", n)
	}
}

func TestX8AScriptThatCallsItselfEndsInTime(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "self", "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"config.pbtxt": `backend: "script" input { name: "IN" data_type: TYPE_INT64 dims: -1 } output { name: "OUT" data_type: TYPE_INT64 dims: -1 }
parameters { key: "max_time_ms" value { string_value: "500" } }`,
		"1/model.star": "def execute(request):\n    return infer(\"self\", request.inputs)\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, "self", file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r, err := repository.New(repository.Config{Roots: []string{dir}, Backends: map[string]backend.Backend{"script": script.New()}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Run(ctx, time.Minute) })
		if err := r.Loaded(ctx); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the instance is free again after the first
			resp, err := infer.Do(ctx, r, &infer.Request{Model: "self", Version: -1, Inputs: []tensor.Tensor{numbers(1)}})
			if err == nil || infer.CodeOf(err) != infer.Internal || !strings.Contains(err.Error(), "it ran longer than 500ms (parameters[max_time_ms]): model.star:2:17: model 'self'") {
				t.Errorf("got %v", err)
			}
			resp.Release()
		}
		cancel()
		wg.Wait()
	})
}
