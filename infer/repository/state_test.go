package repository_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/dynasequence"
	"github.com/vedette/vedette/infer/backend/implicitstate"
	"github.com/vedette/vedette/infer/backend/iterative"
	"github.com/vedette/vedette/infer/backend/repeat"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

func references() map[string]backend.Backend {
	b := withEcho()
	b["implicit_state"], b["dyna_sequence"], b["repeat"] = implicitstate.Backend{}, dynasequence.Backend{}, repeat.Backend{}
	return b
}

func step(t *testing.T, r *repository.Repository, model string, id infer.CorrelationID, value int32, flags string) (int32, error) {
	t.Helper()
	resp, err := infer.Do(t.Context(), r, &infer.Request{
		Model: model, Correlation: id, Inputs: []tensor.Tensor{numbers("INPUT", true, value)},
		SequenceStart: flags == "start" || flags == "both", SequenceEnd: flags == "end" || flags == "both",
	})
	if err != nil {
		return 0, err
	}
	defer resp.Release()
	return ints(t, resp, "OUTPUT")[0], nil
}

const stateModel = `backend: "implicit_state" max_batch_size: 2
input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
sequence_batching { oldest { max_candidate_sequences: 4 } %s }`

func TestS8TheServerKeepsState(t *testing.T) {
	root := write(t, files{
		"zero/config.pbtxt": fmt.Sprintf(stateModel, `state { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 1 ] }`),
		"zero/1/keep":       "",
		"file/config.pbtxt": fmt.Sprintf(stateModel, `state { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ -1 ]
  initial_state { name: "ten" data_type: TYPE_INT32 dims: [ 1 ] data_file: "ten" } }
 state { input_name: "A" output_name: "Z" data_type: TYPE_FP32 dims: [ 3 ] }`),
		"file/initial_state/ten": "\x0a\x00\x00\x00surplus",
		"file/1/keep":            "",
		"short/config.pbtxt": fmt.Sprintf(stateModel, `state { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 1 ]
  initial_state { name: "x" data_type: TYPE_INT32 dims: [ 1 ] data_file: "two" } }`),
		"short/initial_state/two": "ab",
		"short/1/keep":            "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: references()})
		for model, first := range map[string]int32{"zero": 0, "file": 10} {
			for _, id := range []infer.CorrelationID{{Num: 5}, {Str: "5"}} {
				sum := first
				for i, flags := range []string{"start", "", "", "end"} {
					sum += int32(i + 1)
					if got, err := step(t, r, model, id, int32(i+1), flags); err != nil || got != sum {
						t.Errorf("%s: request %d answered %d %v, want %d", model, i, got, err, sum)
					}
				}
			}
		}
		want := "file 1 READY\nshort 1 UNAVAILABLE initial_state setting expects 4 bytes, but the data provided from two only has 2 bytes\nzero 1 READY"
		if got := index(r); got != want {
			t.Errorf("index:\n%s", got)
		}
		// A state output is no output of the model.
		_, err := infer.Do(t.Context(), r, &infer.Request{
			Model: "zero", Correlation: infer.CorrelationID{Num: 1}, SequenceStart: true,
			Inputs: []tensor.Tensor{numbers("INPUT", true, 1)}, Outputs: []infer.OutputSpec{{Name: "SO"}},
		})
		if err == nil || err.Error() != "[request id: <id_unknown>] unexpected inference output 'SO' for model 'zero'" {
			t.Errorf("a state output was asked for: %v", err)
		}
	})
}

const dynaModel = `backend: "dyna_sequence" max_batch_size: 4
input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
sequence_batching { max_sequence_idle_microseconds: 1000000 oldest { max_candidate_sequences: 2 }
  control_input [
    { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } },
    { name: "END" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } },
    { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } },
    { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: %s } } ] }`

func TestS4AndS7SequencesAreToldApartAndListed(t *testing.T) {
	root := write(t, files{
		"num/config.pbtxt": fmt.Sprintf(dynaModel, "TYPE_UINT64"), "num/1/keep": "",
		"str/config.pbtxt": fmt.Sprintf(dynaModel, "TYPE_STRING"), "str/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: references()})
		num, str := infer.CorrelationID{Num: 1000}, infer.CorrelationID{Str: "1000"}
		for model, id := range map[string]infer.CorrelationID{"num": num, "str": str} {
			for _, s := range []struct {
				flags       string
				value, want int32
			}{{"start", 1, 1}, {"", 2, 3}, {"end", 3, 1006}} {
				if got, err := step(t, r, model, id, s.value, s.flags); err != nil || got != s.want {
					t.Errorf("%s %s: %d %v, want %d", model, s.flags, got, err, s.want)
				}
			}
		}
		for model, id := range map[string]infer.CorrelationID{"num": str, "str": num} {
			if _, err := step(t, r, model, id, 1, "start"); infer.CodeOf(err) != infer.InvalidArgument {
				t.Errorf("%s took an id of the other type: %v", model, err)
			}
		}
		if _, err := step(t, r, "num", num, 1, "start"); err != nil {
			t.Error(err)
		}
		list := r.Sequences()
		if len(list) != 1 || list[0].Model != "num" || list[0].Correlation != num || list[0].State != "active" || list[0].Instance != "num_0" {
			t.Errorf("sequences: %+v", list)
		}
		time.Sleep(2 * time.Second)
		if list := r.Sequences(); len(list) != 0 {
			t.Errorf("an idle sequence is still there: %+v", list)
		}
		_, err := step(t, r, "num", num, 1, "")
		want := "inference request for sequence 1000 to model 'num' must specify the START flag on the first request of the sequence"
		if err == nil || err.Error() != want {
			t.Errorf("after the idle time: %v", err)
		}
	})
}

func TestS12DecoupledModelsAnswerAsOftenAsTheyLike(t *testing.T) {
	root := write(t, files{
		"r/config.pbtxt": `backend: "repeat"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] }, { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]
model_transaction_policy { decoupled: true }`, "r/1/keep": "",
	})
	request := func(n int) *infer.Request {
		in, delay := make([]int32, n), make([]uint32, n)
		for i := range n {
			in[i], delay[i] = int32(i), 1
		}
		return &infer.Request{Model: "r", Inputs: []tensor.Tensor{
			numbers("IN", false, in...),
			{Name: "DELAY", DataType: tensor.Uint32, Shape: []int64{int64(n)}, Data: tensor.AsBytes(delay)},
			{Name: "WAIT", DataType: tensor.Uint32, Shape: []int64{1}, Data: make([]byte, 4)},
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: references()})
		for _, n := range []int{0, 1, 5} {
			replies := make(chan string, n+1)
			err := r.Submit(t.Context(), request(n), func(rep infer.Reply) {
				switch {
				case rep.Final:
					replies <- fmt.Sprint("final ", rep.Response != nil, rep.Err)
				default:
					replies <- fmt.Sprint(ints(t, rep.Response, "OUT")[0])
				}
				rep.Response.Release()
			})
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if got := <-replies; got != fmt.Sprint(i) {
					t.Errorf("reply %d of %d is %s", i, n, got)
				}
			}
			if got := <-replies; got != "final false <nil>" {
				t.Errorf("last reply: %s", got)
			}
		}
		if _, err := infer.Do(t.Context(), r, request(3)); err == nil || err.Error() != "expected a single response, got 3" {
			t.Errorf("asked for one response: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		end := make(chan error, 1)
		if err := r.Submit(ctx, request(100), func(rep infer.Reply) {
			rep.Response.Release()
			if rep.Final {
				end <- rep.Err
			}
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		cancel()
		if err := <-end; infer.CodeOf(err) != infer.Cancelled {
			t.Errorf("a cancelled request ended with %v", err)
		}
		s, err := r.Statistics("r", 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := s[0]; got.GetInferenceStats().GetSuccess().GetCount() != 4 || got.GetInferenceStats().GetFail().GetCount() != 1 ||
			got.GetResponseStats()["0"].GetSuccess().GetCount() != 4 || got.GetResponseStats()["0"].GetEmptyResponse().GetCount() != 1 {
			t.Errorf("statistics: %v", got)
		}
	})
}

func TestS9IterativeRequestsRunUntilTheModelIsDone(t *testing.T) {
	root := write(t, files{
		"i/config.pbtxt": `backend: "iterative_sequence" max_batch_size: 4
input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
model_transaction_policy { decoupled: true }
sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 2 } }`, "i/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		b := references()
		b["iterative_sequence"] = iterative.Backend{}
		r := serve(t, repository.Config{Roots: []string{root}, Backends: b})
		type stream struct {
			got string
			end chan error
		}
		streams := make([]*stream, 5)
		for k := range streams {
			s := &stream{end: make(chan error, 1)}
			streams[k] = s
			req := &infer.Request{Model: "i", Inputs: []tensor.Tensor{numbers("INPUT", true, int32(k+1))}}
			if err := r.Submit(t.Context(), req, func(rep infer.Reply) {
				if rep.Response != nil {
					s.got += fmt.Sprint(ints(t, rep.Response, "OUTPUT")[0])
					rep.Response.Release()
				}
				if rep.Final {
					s.end <- rep.Err
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		for k, s := range streams {
			if err := <-s.end; err != nil || s.got != "43210"[4-k:] {
				t.Errorf("request %d was answered %q %v", k+1, s.got, err)
			}
		}
		if list := r.Sequences(); len(list) != 0 {
			t.Errorf("sequences are left: %+v", list)
		}
	})
}

func TestS4SequencesOutliveAPlannedReload(t *testing.T) {
	models := map[string]string{
		"server":  fmt.Sprintf(stateModel, `state { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 1 ] }`),
		"backend": fmt.Sprintf(dynaModel, "TYPE_UINT64"),
	}
	f := files{}
	for name, text := range models {
		f[name+"/config.pbtxt"], f[name+"/1/keep"] = text, ""
	}
	root := write(t, f)
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: references(), Mode: repository.ModeExplicit, Startup: []string{"*"}})
		for name, text := range models {
			ids := []infer.CorrelationID{{Num: 1}, {Num: 2}}
			for i, id := range ids {
				if _, err := step(t, r, name, id, int32(10*i), "start"); err != nil {
					t.Fatal(err)
				}
			}
			for round := range 3 {
				rewrite(t, root, name+"/config.pbtxt", text+strings.Repeat(" ", round+1))
				if err := r.Load(t.Context(), name, infer.LoadOptions{}); err != nil {
					t.Fatal(err)
				}
				for i, id := range ids {
					want := int32(10*i + round + 1)
					if got, err := step(t, r, name, id, 1, ""); err != nil || got != want {
						t.Errorf("%s, round %d, sequence %d: %d %v, want %d", name, round, i, got, err, want)
					}
				}
			}
		}
		if n := len(r.Sequences()); n != 4 {
			t.Errorf("%d sequences are open", n)
		}
	})
}

// A reload in the middle of the stream: nothing is refused, nothing is lost.
func TestS4ASequenceUnderLoadOutlivesReloads(t *testing.T) {
	model := fmt.Sprintf(stateModel, `state { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 1 ] }`)
	root := write(t, files{"m/config.pbtxt": model, "m/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: references(), Mode: repository.ModeExplicit, Startup: []string{"m"}})
		end := make(chan struct{})
		go func() {
			defer close(end)
			for round := range 10 {
				time.Sleep(7 * time.Millisecond)
				rewrite(t, root, "m/1/keep", strings.Repeat("x", round+1))
				if err := r.Load(t.Context(), "m", infer.LoadOptions{}); err != nil {
					t.Error(err)
				}
			}
		}()
		for i := range int32(100) {
			flags := ""
			if i == 0 {
				flags = "start"
			}
			if got, err := step(t, r, "m", infer.CorrelationID{Num: 9}, 1, flags); err != nil || got != i+1 {
				t.Errorf("request %d: %d %v", i, got, err)
			}
			time.Sleep(time.Millisecond)
		}
		<-end
	})
}

func TestS4AReloadDoesNotWaitForABacklog(t *testing.T) {
	model := fmt.Sprintf(stateModel, `state { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 1 ] }`)
	model = strings.ReplaceAll(model, "max_candidate_sequences: 4", "max_candidate_sequences: 1") + parameter("sequence.max_idle_microseconds", "0")
	root := write(t, files{"m/config.pbtxt": model, "m/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: references(), Mode: repository.ModeExplicit, Startup: []string{"m"}})
		if _, err := step(t, r, "m", infer.CorrelationID{Num: 1}, 1, "start"); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() {
			_, err := step(t, r, "m", infer.CorrelationID{Num: 2}, 1, "both")
			waited <- err
		}()
		synctest.Wait()
		rewrite(t, root, "m/1/keep", "x")
		if err := r.Load(t.Context(), "m", infer.LoadOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; err != nil {
			t.Errorf("the request in the backlog: %v", err)
		}
		if _, err := step(t, r, "m", infer.CorrelationID{Num: 3}, 1, "both"); err != nil {
			t.Errorf("a new sequence: %v", err)
		}
	})
}

func TestS8AndX7TestCasesOfSuitesAreUnderstood(t *testing.T) {
	model := `backend: "implicit_state"
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "TEST_CASE" data_type: TYPE_INT32 dims: [ 1 ] } ]
output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
sequence_batching { %s control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } }`
	root := write(t, files{
		"without/config.pbtxt": fmt.Sprintf(model, ""), "without/1/keep": "",
		"with/config.pbtxt": fmt.Sprintf(model, `state { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ]
			initial_state { name: "zero" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } }`), "with/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: references()})
		if err := r.Loaded(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			model string
			test  int32
			start bool
			want  string
		}{
			{"without", 0, true, "unable to add state 'undefined_state'. State configuration is missing for model 'without'."},
			{"with", 0, true, "state 'undefined_state' is not a valid state name."},
			{"with", 1, true, "[5]"},
			{"with", 1, false, "[5]"}, // the state was not set
			{"with", 2, false, "nothing"},
			{"with", 3, false, "growable memory should always provide memory in GPU"},
		} {
			resp, err := infer.Do(t.Context(), r, &infer.Request{
				Model: c.model, Correlation: infer.CorrelationID{Num: 1}, SequenceStart: c.start,
				Inputs: []tensor.Tensor{numbers("INPUT", false, 5), numbers("TEST_CASE", false, c.test)},
			})
			got := "nothing"
			switch {
			case err != nil:
				got = err.Error()
			case len(resp.Outputs) > 0:
				got = fmt.Sprint(ints(t, resp, "OUTPUT"))
			}
			resp.Release()
			if got != c.want {
				t.Errorf("%s, case %d: %s, want %s", c.model, c.test, got, c.want)
			}
		}
	})
}

func TestR6SequencesStayWhenInstancesComeAndGo(t *testing.T) {
	model := fmt.Sprintf(stateModel, `state { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 1 ] }`)
	group := func(n int) string { return model + fmt.Sprintf(" instance_group { count: %d kind: KIND_CPU }", n) }
	root := write(t, files{"m/config.pbtxt": group(2), "m/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: references(), Mode: repository.ModeExplicit, Startup: []string{"m"}, Cores: 1})
		id := func(i int) infer.CorrelationID { return infer.CorrelationID{Num: uint64(i + 1)} }
		const sequences = 8 // four slots an instance
		for i := range sequences {
			if _, err := step(t, r, "m", id(i), int32(i), "start"); err != nil {
				t.Fatal(err)
			}
		}
		asked := sequences
		for round, instances := range []int{3, 2, 1, 2} {
			rewrite(t, root, "m/config.pbtxt", group(instances))
			if err := r.Load(t.Context(), "m", infer.LoadOptions{}); err != nil {
				t.Fatal(err)
			}
			for i := range sequences {
				if got, err := step(t, r, "m", id(i), 1, ""); err != nil || got != int32(i+round+1) {
					t.Errorf("%d instances, sequence %d: %d %v, want %d", instances, i, got, err, i+round+1)
				}
				asked++
			}
			synctest.Wait() // statistics may come after the answer
			if st, err := r.Statistics("m", 1); err != nil || st[0].GetInferenceCount() != uint64(asked) {
				t.Errorf("%d instances: statistics begin anew: %v %v", instances, st, err)
			}
			if info, err := r.Model("m", 1); err != nil || info.Config.GetInstanceGroup()[0].GetCount() != int32(instances) {
				t.Errorf("the configuration told is %v, %v", info, err)
			}
		}
		// At one instance the second one left, and lives until its sequences have ended; new ones come to its successor.
		for i := range sequences {
			if _, err := step(t, r, "m", id(i), 1, "end"); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		for i := range sequences {
			if _, err := step(t, r, "m", id(100+i), 1, "start"); err != nil {
				t.Error(err)
			}
		}
		where := make(map[string]int)
		for _, s := range r.Sequences() {
			where[s.Instance]++
		}
		if len(where) != 2 || where["m_0_0"] != 4 || where["m_0_1"] != 4 {
			t.Errorf("got %v", where)
		}
	})
}

// census counts the instances of echo that live, and those ever made.
type census struct {
	echo

	made, live atomic.Int32
}

func (c *census) NewInstance(ctx context.Context, m *backend.Model, at backend.Placement) (backend.Instance, error) {
	if at.Index > 6 {
		return nil, errors.New("too many for this machine")
	}
	in, err := c.echo.NewInstance(ctx, m, at)
	c.made.Add(1)
	c.live.Add(1)
	return counted{in, c}, err
}

type counted struct {
	backend.Instance

	census *census
}

func (c counted) Close() error {
	c.census.live.Add(-1)
	return c.Instance.Close()
}

func TestR6OnlyTheDifferenceOfInstancesIsLoaded(t *testing.T) {
	group := func(n int) string { return echoModel + fmt.Sprintf(" instance_group { count: %d kind: KIND_CPU }", n) }
	root := write(t, files{"m/config.pbtxt": group(2), "m/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		c := new(census)
		r := serve(t, repository.Config{Roots: []string{root}, Backends: map[string]backend.Backend{"echo": c}, Mode: repository.ModeExplicit, Startup: []string{"m"}, Cores: 1})
		expect := func(what string, made, live int32) {
			t.Helper()
			synctest.Wait()
			if c.made.Load() != made || c.live.Load() != live {
				t.Errorf("%s: %d were made, %d live, want %d and %d", what, c.made.Load(), c.live.Load(), made, live)
			}
			if err := ask(t, r, "m"); err != nil {
				t.Error(err)
			}
		}
		load := func(text string, opts infer.LoadOptions) error {
			rewrite(t, root, "m/config.pbtxt", text)
			return r.Load(t.Context(), "m", opts)
		}
		expect("at start", 2, 2)
		for _, step := range []struct {
			what, text string
			opts       infer.LoadOptions
			made, live int32
		}{
			{what: "three", text: group(3), made: 3, live: 3},
			{what: "one", text: group(1), made: 3, live: 1},
			{what: "a configuration that says the same", text: group(1) + " ", made: 3, live: 1},
			{what: "two by override", text: group(1), opts: infer.LoadOptions{Config: `{"backend":"echo","input":[{"name":"IN","data_type":"TYPE_INT32","dims":[-1]}],"output":[{"name":"OUT","data_type":"TYPE_INT32","dims":[-1]}],"instance_group":[{"count":2,"kind":"KIND_CPU"}]}`}, made: 4, live: 2},
			{what: "another model", text: group(2) + parameter("a", "b"), made: 6, live: 2},
		} {
			if err := load(step.text, step.opts); err != nil {
				t.Fatal(step.what, err)
			}
			expect(step.what, step.made, step.live)
		}
		if err := load(echoModel+parameter("a", "b")+" instance_group { count: 9 kind: KIND_CPU }", infer.LoadOptions{}); err == nil || !strings.Contains(err.Error(), "too many for this machine") {
			t.Errorf("got %v", err)
		}
		expect("what cannot be loaded changes nothing", 11, 2)
	})
}
