package repository_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

// ensemble writes the configuration of an ensemble over INT32[-1] tensors from
// lines "model IN=a OUT=b".
func ensemble(in, out string, steps ...string) string {
	var b strings.Builder
	b.WriteString("platform: \"ensemble\"\n")
	for n := range strings.FieldsSeq(in) {
		fmt.Fprintf(&b, "input { name: %q data_type: TYPE_INT32 dims: [ -1 ] }\n", n)
	}
	for n := range strings.FieldsSeq(out) {
		fmt.Fprintf(&b, "output { name: %q data_type: TYPE_INT32 dims: [ -1 ] }\n", n)
	}
	b.WriteString("ensemble_scheduling {\n")
	for _, s := range steps {
		f := strings.Fields(s)
		fmt.Fprintf(&b, "step { model_name: %q model_version: -1", f[0])
		for _, m := range f[1:] {
			port, name, _ := strings.Cut(m, "=")
			kind := "output_map"
			if strings.HasPrefix(port, "I") || port == "WAIT" || port == "DELAY" {
				kind = "input_map"
			}
			fmt.Fprintf(&b, " %s { key: %q value: %q }", kind, port, name)
		}
		b.WriteString(" }\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func addModel(extra string) string {
	return `backend: "adder"
input [ { name: "IN0" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "IN1" data_type: TYPE_INT32 dims: [ -1 ] } ]
output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }
` + extra
}

// adder adds two inputs after a while.
type adder struct{ delay time.Duration }

func (a adder) Complete(context.Context, *backend.Model) error { return nil }
func (a adder) NewInstance(context.Context, *backend.Model, backend.Placement) (backend.Instance, error) {
	return a, nil
}
func (a adder) Close() error { return nil }

func (a adder) Execute(_ context.Context, jobs []*backend.Job) {
	time.Sleep(a.delay)
	for _, j := range jobs {
		x, y := tensor.View[int32](j.Input("IN0").Data), tensor.View[int32](j.Input("IN1").Data)
		r := j.NewResponse()
		out := tensor.View[int32](r.Add("OUT", tensor.Int32, j.Inputs[0].Shape, len(j.Inputs[0].Data)))
		for i := range out {
			out[i] = x[i] + y[i]
		}
		j.Respond(r)
	}
}

func ensembleBackends() map[string]backend.Backend {
	b := references()
	b["adder"] = adder{10 * time.Millisecond}
	return b
}

func TestS11StepsWithoutDependencyRunSideBySide(t *testing.T) {
	slow := echoModel + parameter("delay", "100ms") + "instance_group { count: 2 kind: KIND_CPU }"
	root := write(t, files{
		"slow/config.pbtxt": slow, "slow/1/keep": "",
		"add/config.pbtxt": addModel(""), "add/1/keep": "",
		"e/config.pbtxt": ensemble("A B", "SUM LEFT",
			"slow IN=A OUT=LEFT", "slow IN=B OUT=right", "add IN0=LEFT IN1=right OUT=SUM"),
		"e/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: ensembleBackends()})
		start := time.Now()
		resp, err := infer.Do(t.Context(), r, &infer.Request{Model: "e", Inputs: []tensor.Tensor{numbers("A", false, 1, 2), numbers("B", false, 10, 20)}})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(ints(t, resp, "SUM"), ints(t, resp, "LEFT")); got != "[11 22] [1 2]" {
			t.Errorf("answer %s", got)
		}
		resp.Release()
		if took := time.Since(start); took != 110*time.Millisecond {
			t.Errorf("two steps of 100 ms side by side and one of 10 ms took %v", took)
		}
		// Only what is asked for is worked out.
		start = time.Now()
		resp, err = infer.Do(t.Context(), r, &infer.Request{
			Model: "e", Inputs: []tensor.Tensor{numbers("A", false, 1), numbers("B", false, 2)}, Outputs: []infer.OutputSpec{{Name: "LEFT"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Outputs) != 1 || time.Since(start) != 100*time.Millisecond {
			t.Errorf("one output took %v: %v", time.Since(start), resp.Outputs)
		}
		resp.Release()
		s, err := r.Statistics("add", 0)
		if err != nil || s[0].GetExecutionCount() != 1 {
			t.Errorf("statistics of the step: %v %v", s, err)
		}
	})
}

func TestS11EnsemblesAreCheckedAtLoad(t *testing.T) {
	root := write(t, files{
		"m/config.pbtxt": echoModel, "m/1/keep": "",
		"f/config.pbtxt": strings.ReplaceAll(echoModel, "TYPE_INT32", "TYPE_FP32"), "f/1/keep": "",
		"bad/config.pbtxt": echoModel + parameter("load", "fail"), "bad/1/keep": "",
		"e1/config.pbtxt": ensemble("A", "B", "bad IN=A OUT=B"), "e1/1/keep": "",
		"e2/config.pbtxt": ensemble("A", "B", "m IN=A OUT=x", "m IN=A OUT=x"), "e2/1/keep": "",
		"e3/config.pbtxt": ensemble("A C", "B", "m IN=A OUT=B"), "e3/1/keep": "",
		"e4/config.pbtxt": ensemble("A", "B", "f IN=A OUT=B"), "e4/1/keep": "",
		"e5/config.pbtxt": ensemble("A", "B", "m IN=nothing OUT=B"), "e5/1/keep": "",
		"e6/config.pbtxt": ensemble("A", "B", "e7 IN=A OUT=B"), "e6/1/keep": "",
		"e7/config.pbtxt": ensemble("A", "B", "e6 IN=A OUT=B"), "e7/1/keep": "",
		"e8/config.pbtxt": ensemble("A", "B", "m IX=A OUT=B"), "e8/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: ensembleBackends()})
		got := index(r)
		for _, want := range []string{
			"e1 1 UNAVAILABLE ensemble 'e1' depends on 'bad' which has no loaded version. Model 'bad' loading failed with error: ",
			"e2 1 UNAVAILABLE ensemble tensor 'x' can appear in an output map only once for ensemble 'e2' step of model 'm'",
			"e3 1 UNAVAILABLE ensemble input 'C' for ensemble 'e3' is not used",
			"e4 1 UNAVAILABLE in ensemble e4, ensemble tensor A: inconsistent data type: TYPE_INT32 is inferred from model e4 while TYPE_FP32 is inferred from model f",
			"e5 1 UNAVAILABLE in ensemble e5, ensemble tensor nothing, which input IN in model m needs, is made by no step",
			"e6  UNAVAILABLE circular dependency between ensembles: e6 -> e7 -> e6",
			"e8 1 UNAVAILABLE in ensemble e8, ensemble tensor A is mapping to non-existing input IX in model m",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("index lacks %q", want)
			}
		}
		if t.Failed() {
			t.Log(got)
		}
	})
}

func TestS2OrderIsPreservedOverInstances(t *testing.T) {
	root := write(t, files{
		"m/config.pbtxt": `backend: "adder" max_batch_size: 1
input [ { name: "IN0" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "IN1" data_type: TYPE_INT32 dims: [ -1 ] } ]
output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }
dynamic_batching { preserve_ordering: true } instance_group { count: 4 kind: KIND_CPU }`,
		"m/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: map[string]backend.Backend{"adder": jittery{}}})
		const n = 40
		got := make(chan int32, n)
		for i := range int32(n) {
			req := &infer.Request{Model: "m", Inputs: []tensor.Tensor{numbers("IN0", true, i), numbers("IN1", true, 0)}}
			if err := r.Submit(t.Context(), req, func(rep infer.Reply) {
				got <- ints(t, rep.Response, "OUT")[0]
				rep.Response.Release()
			}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range int32(n) {
			if v := <-got; v != i {
				t.Errorf("answer %d is for request %d", i, v)
			}
		}
	})
}

// jittery takes longer for even numbers than for odd ones.
type jittery struct{}

func (jittery) Complete(context.Context, *backend.Model) error { return nil }
func (jittery) Close() error                                   { return nil }
func (jittery) NewInstance(context.Context, *backend.Model, backend.Placement) (backend.Instance, error) {
	return jittery{}, nil
}

func (jittery) Execute(ctx context.Context, jobs []*backend.Job) {
	v := tensor.View[int32](jobs[0].Inputs[0].Data)[0]
	time.Sleep(time.Duration(1+(v+1)%2*7) * time.Millisecond)
	adder{}.Execute(ctx, jobs)
}

const repeatModel = `backend: "repeat"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] }, { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]
model_transaction_policy { decoupled: true }`

func TestS11AndS12EveryResponseOfADecoupledStepIsFollowed(t *testing.T) {
	stream := `platform: "ensemble"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] }, { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] }, { name: "OFFSET" data_type: TYPE_INT32 dims: [ -1 ] } ]
output { name: "SUM" data_type: TYPE_INT32 dims: [ -1 ] }
ensemble_scheduling { %s step [
 { model_name: "r" input_map [ { key: "IN" value: "IN" }, { key: "DELAY" value: "DELAY" }, { key: "WAIT" value: "WAIT" } ] output_map { key: "OUT" value: "each" } },
 { model_name: "slow" input_map { key: "IN" value: "OFFSET" } output_map { key: "OUT" value: "offset" } },
 { model_name: "add" input_map [ { key: "IN0" value: "each" }, { key: "IN1" value: "offset" } ] output_map { key: "OUT" value: "SUM" } } ] }`
	root := write(t, files{
		"r/config.pbtxt": repeatModel, "r/1/keep": "",
		"slow/config.pbtxt": echoModel + parameter("delay", "50ms"), "slow/1/keep": "",
		"add/config.pbtxt": strings.Replace(addModel("instance_group { count: 4 kind: KIND_CPU }"), `"adder"`, `"jittery"`, 1), "add/1/keep": "",
		"free/config.pbtxt": fmt.Sprintf(stream, ""), "free/1/keep": "",
		"tight/config.pbtxt": fmt.Sprintf(stream, "max_inflight_requests: 1"), "tight/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		b := ensembleBackends()
		b["jittery"] = jittery{}
		r := serve(t, repository.Config{Roots: []string{root}, Backends: b})
		if err := r.Loaded(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, model := range []string{"free", "tight"} {
			m, err := r.Model(model, 0)
			if err != nil || !m.Decoupled {
				t.Fatalf("an ensemble with a decoupled step is not decoupled: %v %v", m, err)
			}
			const n = 8
			var values []int32
			var delays []uint32
			for i := range int32(n) {
				values, delays = append(values, i), append(delays, 1)
			}
			var mu sync.Mutex
			var got []int32
			end := make(chan error, 1)
			req := &infer.Request{Model: model, Inputs: []tensor.Tensor{
				numbers("IN", false, values...), numbers("OFFSET", false, 100),
				{Name: "DELAY", DataType: tensor.Uint32, Shape: []int64{n}, Data: tensor.AsBytes(delays)},
				{Name: "WAIT", DataType: tensor.Uint32, Shape: []int64{1}, Data: make([]byte, 4)},
			}}
			if err := r.Submit(t.Context(), req, func(rep infer.Reply) {
				if rep.Response != nil {
					mu.Lock()
					got = append(got, ints(t, rep.Response, "SUM")[0])
					mu.Unlock()
					rep.Response.Release()
				}
				if rep.Final {
					if rep.Err == nil && rep.Response == nil {
						rep.Err = errors.New("the last response was not the final one")
					}
					end <- rep.Err
				}
			}); err != nil {
				t.Fatal(err)
			}
			if err := <-end; err != nil {
				t.Errorf("%s: %v", model, err)
			}
			if fmt.Sprint(got) != "[100 101 102 103 104 105 106 107]" {
				t.Errorf("%s answered %v", model, got)
			}
		}
	})
}

func TestS11AndS12ResponsesKeepTheirOrderOnEveryStep(t *testing.T) {
	root := write(t, files{
		"r/config.pbtxt": repeatModel, "r/1/keep": "",
		"j/config.pbtxt": strings.Replace(addModel("instance_group { count: 4 kind: KIND_CPU }"), `"adder"`, `"jittery"`, 1), "j/1/keep": "",
		"sum/config.pbtxt": strings.Replace(fmt.Sprintf(sequenceModel, "direct {}"), "max_batch_size: 4", "max_batch_size: 0", 1), "sum/1/keep": "",
		"e/config.pbtxt": `platform: "ensemble"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] }, { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ]
output [ { name: "EACH" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "SUM" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling { step [
 { model_name: "r" input_map [ { key: "IN" value: "IN" }, { key: "DELAY" value: "DELAY" }, { key: "WAIT" value: "WAIT" } ] output_map { key: "OUT" value: "each" } },
 { model_name: "j" input_map [ { key: "IN0" value: "each" }, { key: "IN1" value: "each" } ] output_map { key: "OUT" value: "EACH" } },
 { model_name: "sum" input_map { key: "INPUT" value: "EACH" } output_map { key: "OUTPUT" value: "SUM" } } ] }`, "e/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		b := ensembleBackends()
		b["jittery"] = jittery{}
		r := serve(t, repository.Config{Roots: []string{root}, Backends: b})
		if err := r.Loaded(t.Context()); err != nil {
			t.Fatal(err)
		}
		camera := infer.CorrelationID{Num: 3}
		first, err := infer.Do(t.Context(), r, &infer.Request{
			Model: "sum", Correlation: camera, SequenceStart: true, Inputs: []tensor.Tensor{numbers("INPUT", false, 0)},
		})
		if err != nil {
			t.Fatal(err)
		}
		first.Release()
		const n = 20
		var values []int32
		var want []string
		for i := range int32(n) {
			values = append(values, i)
			want = append(want, fmt.Sprint(2*i, ":", i*(i+1)))
		}
		var got []string
		end := make(chan error, 1)
		err = r.Submit(t.Context(), &infer.Request{Model: "e", Correlation: camera, Inputs: []tensor.Tensor{
			numbers("IN", false, values...),
			{Name: "DELAY", DataType: tensor.Uint32, Shape: []int64{n}, Data: make([]byte, 4*n)},
			{Name: "WAIT", DataType: tensor.Uint32, Shape: []int64{1}, Data: make([]byte, 4)},
		}}, func(rep infer.Reply) {
			if rep.Response != nil {
				got = append(got, fmt.Sprint(ints(t, rep.Response, "EACH")[0], ":", ints(t, rep.Response, "SUM")[0]))
				rep.Response.Release()
			}
			if rep.Final {
				end <- rep.Err
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-end; err != nil {
			t.Error(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("answers:\n%v\nwant:\n%v", got, want)
		}
	})
}

func TestS11EnsemblesAreCheckedAgainWhenAPartIsAnother(t *testing.T) {
	root := write(t, files{
		"m/config.pbtxt": echoModel, "m/1/keep": "",
		"e/config.pbtxt": ensemble("A", "B", "m IN=A OUT=B"), "e/1/keep": "",
		"outer/config.pbtxt": strings.Replace(ensemble("A", "B", "e IA=A B=B"), `"IA"`, `"A"`, 1), "outer/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: ensembleBackends(), Mode: repository.ModeExplicit, Startup: []string{"*"}})
		if err := r.Loaded(t.Context()); err != nil {
			t.Fatal(err)
		}
		try := func(model string) error {
			resp, err := infer.Do(t.Context(), r, &infer.Request{Model: model, Inputs: []tensor.Tensor{numbers("A", false, 7)}})
			if err == nil {
				if got := fmt.Sprint(ints(t, resp, "B"), resp.Output("B").Shape); got != "[7] [1]" {
					t.Errorf("%s answered %s", model, got)
				}
				resp.Release()
			}
			return err
		}
		for _, c := range []struct{ name, config, fault string }{
			{"a part that batches now is given a batch of one", echoModel + "max_batch_size: 4", ""},
			{"a part of another type takes the ensemble away", strings.ReplaceAll(echoModel, "TYPE_INT32", "TYPE_FP32"), "inconsistent data type"},
			{"and brings it back", echoModel, ""},
		} {
			rewrite(t, root, "m/config.pbtxt", c.config)
			if err := r.Load(t.Context(), "m", infer.LoadOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, model := range []string{"e", "outer"} {
				if err := try(model); (err != nil) != (c.fault != "") {
					t.Errorf("%s: %s: %v", c.name, model, err)
				}
			}
			if got := index(r); !strings.Contains(got, c.fault) || r.Ready(t.Context()) != (c.fault == "") {
				t.Errorf("%s: ready %v, index:\n%s", c.name, r.Ready(t.Context()), got)
			}
		}
	})
}
