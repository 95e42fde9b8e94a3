package ensemble_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/ensemble"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

// door is a server of models that exist only as functions; requests wait until
// the test lets them go on.
type door struct {
	t      *testing.T
	models map[string]*infer.ModelInfo

	mu     sync.Mutex
	log    []string
	parked map[string]func(error)
}

// model describes one from protobuf text.
func (d *door) model(text string) {
	cfg := new(inference.ModelConfig)
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		d.t.Fatal(err)
	}
	info := &infer.ModelInfo{Name: cfg.GetName(), Config: cfg, Decoupled: cfg.GetModelTransactionPolicy().GetDecoupled()}
	for _, in := range cfg.GetInput() {
		var shape []int64
		if cfg.GetMaxBatchSize() > 0 {
			shape = []int64{-1}
		}
		info.Inputs = append(info.Inputs, infer.TensorInfo{
			Name: in.GetName(), DataType: modelconfig.DataType(in.GetDataType()), Shape: append(shape, in.GetDims()...),
		})
	}
	d.models[cfg.GetName()] = info
}

func (d *door) lookup(name string, _ int64) (*infer.ModelInfo, error) {
	if m := d.models[name]; m != nil {
		return m, nil
	}
	return nil, errors.New("no such model")
}

// Submit notes a step and parks it under "model id".
func (d *door) Submit(_ context.Context, req *infer.Request, reply func(infer.Reply)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := req.Model + " " + req.ID
	for _, in := range req.Inputs {
		line += fmt.Sprintf(" %s%s", in.Name, tensor.FormatShape(in.Shape))
		if in.DataType == tensor.Bool {
			line += fmt.Sprintf("=%d", in.Data[0])
		}
	}
	if req.SequenceStart {
		line += " start"
	}
	if req.SequenceEnd {
		line += " end"
	}
	d.log = append(d.log, line)
	out := d.models[req.Model].Config.GetOutput()
	first := req.Inputs[0]
	d.parked[req.Model+" "+req.ID] = func(err error) {
		if err != nil {
			reply(infer.Reply{Err: err, Final: true})
			return
		}
		r := infer.NewResponse(nil, nil)
		for _, o := range out {
			if o.GetName() != "NEVER" {
				data := first.Data
				if req.Model != "same" {
					data = slices.Clone(data)
				}
				r.AddView(o.GetName(), modelconfig.DataType(o.GetDataType()), first.Shape, data)
			}
		}
		reply(infer.Reply{Response: r, Final: true})
	}
	return nil
}

// release lets a parked step answer.
func (d *door) release(step string, err error) {
	d.mu.Lock()
	f := d.parked[step]
	delete(d.parked, step)
	d.mu.Unlock()
	if f == nil {
		d.t.Fatalf("step %q is not waiting; so far %v", step, d.log)
	}
	f(err)
}

func (d *door) steps() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := strings.Join(d.log, "; ")
	d.log = nil
	return s
}

const (
	detector = `name: "detect" input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }`
	tracker  = `name: "track" input [ { name: "BOXES" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "OBSERVED" data_type: TYPE_BOOL dims: [ 1 ] }, { name: "TIME" data_type: TYPE_INT32 dims: [ 1 ] } ]
output { name: "TRACKS" data_type: TYPE_INT32 dims: [ -1 ] } sequence_batching { }`
	pipeline = `name: "pipe" platform: "ensemble"
input [ { name: "FRAME" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "SEEN" data_type: TYPE_BOOL dims: [ 1 ] }, { name: "TIME" data_type: TYPE_INT32 dims: [ 1 ] } ]
output { name: "TRACKS" data_type: TYPE_INT32 dims: [ -1 ] }
ensemble_scheduling { step [
 { model_name: "detect" input_map { key: "IN" value: "FRAME" } output_map { key: "OUT" value: "boxes" } },
 { model_name: "track" input_map [ { key: "BOXES" value: "boxes" }, { key: "OBSERVED" value: "SEEN" }, { key: "TIME" value: "TIME" } ] output_map { key: "TRACKS" value: "TRACKS" } } ] }`
)

func open(t *testing.T, text string, models ...string) (*ensemble.Ensemble, *door) {
	t.Helper()
	d := &door{t: t, models: map[string]*infer.ModelInfo{}, parked: map[string]func(error){}}
	for _, m := range models {
		d.model(m)
	}
	cfg := new(inference.ModelConfig)
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	e, err := ensemble.New(ensemble.Config{Model: cfg, Lookup: d.lookup, Inferer: d})
	if err != nil {
		t.Fatal(err)
	}
	return e, d
}

func frame(id string, camera uint64) *infer.Request {
	return &infer.Request{ID: id, Model: "pipe", Correlation: infer.CorrelationID{Num: camera}, Inputs: []tensor.Tensor{
		{Name: "FRAME", DataType: tensor.Int32, Shape: []int64{2}, Data: make([]byte, 8)},
		{Name: "SEEN", DataType: tensor.Bool, Shape: []int64{1}, Data: []byte{1}},
		{Name: "TIME", DataType: tensor.Int32, Shape: []int64{1}, Data: make([]byte, 4)},
	}}
}

// ask submits and returns where the outcome will be.
func ask(t *testing.T, e *ensemble.Ensemble, req *infer.Request) chan string {
	t.Helper()
	got := make(chan string, 1)
	err := e.Submit(t.Context(), req, func(r infer.Reply) {
		got <- fmt.Sprint(r.Response != nil, " ", r.Err)
		r.Response.Release()
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func TestS11TicketsKeepTheOrderOfAdmission(t *testing.T) {
	e, d := open(t, pipeline, detector, tracker)
	one, two, other := ask(t, e, frame("1", 7)), ask(t, e, frame("2", 7)), ask(t, e, frame("x", 8))
	expect(t, "first steps", d.steps(), "detect 1 IN[2]; detect 2 IN[2]; detect x IN[2]")
	d.release("detect 2", nil)
	expect(t, "the second frame overtakes in the detector", d.steps(), "")
	d.release("detect x", nil)
	expect(t, "another camera does not wait", d.steps(), "track x BOXES[2] OBSERVED[1]=1 TIME[1]")
	d.release("detect 1", nil)
	expect(t, "both in order", d.steps(), "track 1 BOXES[2] OBSERVED[1]=1 TIME[1]; track 2 BOXES[2] OBSERVED[1]=1 TIME[1]")
	for _, id := range []string{"1", "2", "x"} {
		d.release("track "+id, nil)
	}
	for _, c := range []chan string{one, two, other} {
		expect(t, "outcome", <-c, "true <nil>")
	}
}

func TestS11AFailedFrameIsAnUnobservedTick(t *testing.T) {
	e, d := open(t, pipeline, detector, tracker)
	first, second := frame("1", 7), frame("2", 7)
	first.SequenceStart, second.SequenceEnd = true, true
	one, two := ask(t, e, first), ask(t, e, second)
	_ = d.steps()
	d.release("detect 2", infer.Errorf(infer.InvalidArgument, "no picture"))
	expect(t, "the tick waits for its turn", d.steps(), "")
	d.release("detect 1", errors.New("broken"))
	expect(t, "ticks in order, with their flags", d.steps(),
		"track 1 BOXES[0] OBSERVED[1]=0 TIME[1] start; track 2 BOXES[0] OBSERVED[1]=0 TIME[1] end")
	d.release("track 1", nil)
	d.release("track 2", errors.New("this is not the request's fault"))
	expect(t, "outcome", <-one, "false in ensemble 'pipe', broken")
	expect(t, "outcome", <-two, "false in ensemble 'pipe', no picture")
}

func TestS11ATrackerWithoutThatInputIsPassedBy(t *testing.T) {
	e, d := open(t, strings.ReplaceAll(pipeline, `"OBSERVED"`, `"FLAG"`), detector, strings.ReplaceAll(tracker, `"OBSERVED"`, `"FLAG"`))
	one, two := ask(t, e, frame("1", 7)), ask(t, e, frame("2", 7))
	d.release("detect 2", nil)
	_ = d.steps()
	d.release("detect 1", errors.New("broken"))
	expect(t, "the second goes on", d.steps(), "track 2 BOXES[2] FLAG[1]=1 TIME[1]")
	d.release("track 2", nil)
	expect(t, "outcome", <-one, "false in ensemble 'pipe', broken")
	expect(t, "outcome", <-two, "true <nil>")
}

func TestS11AnOutputThatNobodySetsIsADeadlock(t *testing.T) {
	e, d := open(t, strings.ReplaceAll(pipeline, `"OUT"`, `"NEVER"`), strings.ReplaceAll(detector, `"OUT"`, `"NEVER"`), tracker)
	got := ask(t, e, frame("1", 7))
	_ = d.steps()
	d.release("detect 1", nil)
	expect(t, "the tracker hears of it", d.steps(), "track 1 BOXES[0] OBSERVED[1]=0 TIME[1]")
	d.release("track 1", nil)
	expect(t, "outcome", <-got,
		"false in ensemble 'pipe', [request id: 1] unexpected deadlock, at least one output is not set while no more ensemble steps can be made")
}

func TestS11BatchDimensionsComeAndGo(t *testing.T) {
	mixed := `name: "mix" platform: "ensemble" max_batch_size: 4
input { name: "A" data_type: TYPE_INT32 dims: [ 2 ] } output { name: "B" data_type: TYPE_INT32 dims: [ 2 ] }
ensemble_scheduling { step [
 { model_name: "plain" input_map { key: "IN" value: "A" } output_map { key: "OUT" value: "x" } },
 { model_name: "batched" input_map { key: "IN" value: "x" } output_map { key: "OUT" value: "B" } } ] }`
	e, d := open(t, mixed,
		`name: "plain" input { name: "IN" data_type: TYPE_INT32 dims: [ 2 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ 2 ] }`,
		`name: "batched" max_batch_size: 4 input { name: "IN" data_type: TYPE_INT32 dims: [ 2 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ 2 ] }`)
	shape := make(chan []int64, 1)
	err := e.Submit(t.Context(), &infer.Request{ID: "1", Inputs: []tensor.Tensor{
		{Name: "A", DataType: tensor.Int32, Shape: []int64{1, 2}, Data: make([]byte, 8)},
	}}, func(r infer.Reply) {
		shape <- slices.Clone(r.Response.Outputs[0].Shape)
		r.Response.Release()
	})
	if err != nil {
		t.Fatal(err)
	}
	d.release("plain 1", nil)
	d.release("batched 1", nil)
	expect(t, "steps", d.steps(), "plain 1 IN[2]; batched 1 IN[1,2]")
	expect(t, "output", tensor.FormatShape(<-shape), "[1,2]")
}

func TestP19AndS11ACancelledRequestStopsBeforeItsNextStep(t *testing.T) {
	e, d := open(t, pipeline, detector, tracker)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	if err := e.Submit(ctx, frame("1", 7), func(r infer.Reply) { got <- r.Err }); err != nil {
		t.Fatal(err)
	}
	_ = d.steps()
	cancel()
	d.release("detect 1", nil)
	expect(t, "the sequence only hears that time went by", d.steps(), "track 1 BOXES[0] OBSERVED[1]=0 TIME[1]")
	d.release("track 1", nil)
	if err := <-got; infer.CodeOf(err) != infer.Cancelled {
		t.Errorf("outcome %v", err)
	}
}

// mixed opens an ensemble of two steps that have the tensor x between them.
func mixed(t *testing.T, first, second string) (*ensemble.Ensemble, *door, error) {
	t.Helper()
	d := &door{t: t, models: map[string]*infer.ModelInfo{}, parked: map[string]func(error){}}
	model := `name: %q input { name: "IN" data_type: TYPE_INT32 dims: [ %s ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ %s ] } max_batch_size: %s`
	spell := func(name, text string) { // "in / out / max_batch_size"
		f := strings.Split(text, "/")
		d.model(fmt.Sprintf(model, name, f[0], f[1], f[2]))
	}
	spell("first", first)
	spell("second", second)
	cfg := new(inference.ModelConfig)
	text := `name: "mix" platform: "ensemble" max_batch_size: 4
input { name: "A" data_type: TYPE_INT32 dims: [ 2 ] } output { name: "B" data_type: TYPE_INT32 dims: [ 2 ] }
ensemble_scheduling { step [
 { model_name: "first" input_map { key: "IN" value: "A" } output_map { key: "OUT" value: "x" } },
 { model_name: "second" input_map { key: "IN" value: "x" } output_map { key: "OUT" value: "B" } } ] }`
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	e, err := ensemble.New(ensemble.Config{Model: cfg, Lookup: d.lookup, Inferer: d})
	return e, d, err
}

func TestS11ShapesBetweenStepsAreComparedAtLoad(t *testing.T) {
	for _, c := range []struct{ name, first, second, fault string }{
		{"equal shapes pass", "2/2/4", "2/2/4", ""},
		{"a shape that varies passes", "2/-1/4", "2/2/4", ""},
		{"a model without batching may have the same dims", "2/2/4", "2/2/0", ""},
		{"a model without batching may spell the batch of one out", "2/2/4", "1,2/1,2/0", ""},
		{"a model without batching may leave the batch open", "2/2/4", "-1,2/-1,2/0", ""},
		{"a model without batching may come first", "1,2/1,2/0", "2/2/4", ""},
		{
			"other sizes are refused", "2/3/4", "2/2/4",
			"in ensemble mix, ensemble tensor x: inconsistent shape: [-1,3] is inferred from model first while [-1,2] is inferred from model second",
		},
		{
			"another rank is refused, and told why it may be", "2/2/4", "1,1,2/2/0",
			"in ensemble mix, ensemble tensor x: inconsistent shape: [-1,2] is inferred from model first while [1,1,2] is inferred from model second " +
				"(make their dims agree, or give one of them a reshape; the first dimension of a model with max_batch_size is its batch)",
		},
		{
			"the batch dimension in the dims of a model that batches is refused", "2/2/4", "1,2/2/4",
			"inconsistent shape: [-1,2] is inferred from model first while [-1,1,2] is inferred from model second",
		},
		{
			"what the ensemble itself says counts", "2/2/4", "2/3/4",
			"in ensemble mix, ensemble tensor B: inconsistent shape: [-1,2] is inferred from model mix while [-1,3] is inferred from model second",
		},
		{"a step that allows less than the ensemble is refused", "2/2/2", "2/2/4", "but it contains model first which only allows maximum batch size to be 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := mixed(t, c.first, c.second)
			if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("got %v\nwant %s", err, c.fault)
			}
		})
	}
}

func TestS11ABatchSpelledOutIsKept(t *testing.T) {
	e, d, err := mixed(t, "2/2/4", "1,2/1,2/0")
	if err != nil {
		t.Fatal(err)
	}
	shape := make(chan []int64, 1)
	err = e.Submit(t.Context(), &infer.Request{ID: "1", Inputs: []tensor.Tensor{
		{Name: "A", DataType: tensor.Int32, Shape: []int64{1, 2}, Data: make([]byte, 8)},
	}}, func(r infer.Reply) {
		shape <- slices.Clone(r.Response.Outputs[0].Shape)
		r.Response.Release()
	})
	if err != nil {
		t.Fatal(err)
	}
	d.release("first 1", nil)
	d.release("second 1", nil)
	expect(t, "steps", d.steps(), "first 1 IN[1,2]; second 1 IN[1,2]")
	expect(t, "output", tensor.FormatShape(<-shape), "[1,2]")
}

func TestS11AnOutputLeftOutIsAnOptionalInputLeftOut(t *testing.T) {
	e, d := open(t, `name: "pipe" platform: "ensemble"
input { name: "A" data_type: TYPE_INT32 dims: [ -1 ] } output { name: "B" data_type: TYPE_INT32 dims: [ -1 ] }
ensemble_scheduling { step [
 { model_name: "first" input_map { key: "IN" value: "A" } output_map [ { key: "OUT" value: "x" }, { key: "NEVER" value: "y" } ] },
 { model_name: "second" input_map [ { key: "IN" value: "x" }, { key: "MORE" value: "y" } ] output_map { key: "OUT" value: "B" } } ] }`,
		`name: "first" input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "NEVER" data_type: TYPE_INT32 dims: [ -1 ] } ]`,
		`name: "second" input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "MORE" data_type: TYPE_INT32 dims: [ -1 ] optional: true } ] output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }`)
	got := ask(t, e, &infer.Request{ID: "1", Inputs: []tensor.Tensor{{Name: "A", DataType: tensor.Int32, Shape: []int64{2}, Data: make([]byte, 8)}}})
	d.release("first 1", nil)
	expect(t, "the second step goes without", d.steps(), "first 1 IN[2]; second 1 IN[2]")
	d.release("second 1", nil)
	expect(t, "outcome", <-got, "true <nil>")
}

// feed is a decoupled model whose responses say where they stand in sequences
// of their own, before a tracker that notes what it hears.
type feed struct {
	parameters []map[string]any
	heard      []string
}

func (f *feed) Submit(_ context.Context, req *infer.Request, reply func(infer.Reply)) error {
	if req.Model == "track" {
		f.heard = append(f.heard, fmt.Sprint(req.Correlation, req.SequenceStart, req.SequenceEnd))
		r := infer.NewResponse(nil, nil)
		r.AddView("TRACKS", tensor.Int32, []int64{1}, make([]byte, 4))
		reply(infer.Reply{Response: r, Final: true})
		return nil
	}
	for _, p := range f.parameters {
		r := infer.NewResponse(nil, nil)
		r.Parameters = p
		r.AddView("OUT", tensor.Int32, []int64{1}, make([]byte, 4))
		reply(infer.Reply{Response: r})
	}
	reply(infer.Reply{Final: true})
	return nil
}

func TestS11AndS12ADecoupledStepOpensAndClosesSequences(t *testing.T) {
	d := &door{t: t, models: map[string]*infer.ModelInfo{}}
	d.model(strings.Replace(detector, `name: "detect"`, `name: "detect" model_transaction_policy { decoupled: true }`, 1))
	d.model(`name: "track" input { name: "BOXES" data_type: TYPE_INT32 dims: [ -1 ] } output { name: "TRACKS" data_type: TYPE_INT32 dims: [ -1 ] } sequence_batching { }`)
	cfg := new(inference.ModelConfig)
	text := `name: "pipe" platform: "ensemble" input { name: "A" data_type: TYPE_INT32 dims: [ -1 ] } output { name: "B" data_type: TYPE_INT32 dims: [ -1 ] }
ensemble_scheduling { step [
 { model_name: "detect" input_map { key: "IN" value: "A" } output_map { key: "OUT" value: "x" } },
 { model_name: "track" input_map { key: "BOXES" value: "x" } output_map { key: "TRACKS" value: "B" } } ] }`
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	f := &feed{parameters: []map[string]any{
		{"sequence_id": int64(5), "sequence_start": true}, {"sequence_id": uint64(5), "sequence_start": false}, {"sequence_end": true}, {"sequence_id": "door", "sequence_start": true, "sequence_end": true}, nil,
	}}
	e, err := ensemble.New(ensemble.Config{Model: cfg, Lookup: d.lookup, Inferer: f})
	if err != nil {
		t.Fatal(err)
	}
	responses := 0
	end := make(chan error, 1)
	req := &infer.Request{Correlation: infer.CorrelationID{Num: 9}, Inputs: []tensor.Tensor{{Name: "A", DataType: tensor.Int32, Shape: []int64{1}, Data: make([]byte, 4)}}}
	if err := e.Submit(t.Context(), req, func(r infer.Reply) {
		if r.Response != nil {
			responses++
			r.Response.Release()
		}
		if r.Final {
			end <- r.Err
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-end; err != nil || responses != 5 {
		t.Errorf("%d responses, %v", responses, err)
	}
	expect(t, "the tracker", strings.Join(f.heard, "; "),
		"{5 } true false; {5 } false false; {9 } false true; {0 door} true true; {9 } false false")
}

func TestAClientThatAsksIsToldWhenEachStepEnded(t *testing.T) {
	e, d := open(t, pipeline, detector, tracker)
	for _, asked := range []bool{true, false} {
		req := frame("1", 7)
		req.Parameters = map[string]any{"step_times": asked}
		got := make(chan any, 1)
		if err := e.Submit(t.Context(), req, func(r infer.Reply) {
			got <- r.Response.Parameters["step_times"]
			r.Response.Release()
		}); err != nil {
			t.Fatal(err)
		}
		d.release("detect 1", nil)
		d.release("track 1", nil)
		value := <-got
		if !asked {
			if value != nil {
				t.Errorf("nobody asked, and was told %v", value)
			}
			continue
		}
		var detect, track int64
		if n, err := fmt.Sscanf(fmt.Sprint(value), "detect=%d,track=%d", &detect, &track); n != 2 || err != nil || detect <= 0 || track < detect {
			t.Errorf("step_times %v: %v", value, err)
		}
	}
}

// guard notes what it is asked about.
type guard struct {
	asked []string
	err   error
}

func (g *guard) Intact(input string) error {
	g.asked = append(g.asked, input)
	return g.err
}

func (g *guard) Keep(input string) { g.asked = append(g.asked, "keep "+input) }

func TestAnInputIsCheckedWhenTheStepThatReadsItHasEndedAndNotLater(t *testing.T) {
	e, d := open(t, pipeline, detector, tracker)
	g := &guard{}
	req := frame("1", 7)
	req.Guard = g
	got := ask(t, e, req)
	d.release("detect 1", nil)
	expect(t, "asked after the first step", fmt.Sprint(g.asked), "[FRAME]")
	d.release("track 1", nil)
	expect(t, "outcome", <-got, "true <nil>")
	expect(t, "asked in the end", fmt.Sprint(g.asked), "[FRAME SEEN TIME]")

	_ = d.steps()
	req = frame("2", 7)
	req.Guard = &guard{err: errors.New("overwritten")}
	got = ask(t, e, req)
	d.release("detect 2", nil)
	expect(t, "an input that changed is nothing seen", d.steps(), "detect 2 IN[2]; track 2 BOXES[0] OBSERVED[1]=0 TIME[1]")
	d.release("track 2", nil)
	expect(t, "outcome", <-got, "false overwritten")
}

func TestAnInputThatAStepPassesOnIsNotReadForGood(t *testing.T) {
	same := strings.Replace(detector, "detect", "same", 1)
	e, d := open(t, strings.Replace(pipeline, `"detect"`, `"same"`, 1), same, tracker)
	g := &guard{}
	req := frame("1", 7)
	req.Guard = g
	got := ask(t, e, req)
	d.release("same 1", nil)
	expect(t, "asked after the first step", fmt.Sprint(g.asked), "[keep FRAME]")
	d.release("track 1", nil)
	expect(t, "outcome", <-got, "true <nil>")
}
