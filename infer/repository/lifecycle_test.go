package repository_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

// echo copies its first input to its first output, and can be told by
// parameters to misbehave.
type echo struct{}

func withEcho() map[string]backend.Backend {
	b := maps.Clone(backends())
	b["echo"] = echo{}
	return b
}

func (echo) Complete(_ context.Context, m *backend.Model) error {
	if text := m.Parameter("complete_error", ""); text != "" {
		return errors.New(text)
	}
	return nil
}

func (echo) NewInstance(_ context.Context, m *backend.Model, at backend.Placement) (backend.Instance, error) {
	switch m.Parameter("load", "") {
	case "panic":
		panic("the model file is cursed")
	case "slow":
		time.Sleep(10 * time.Second)
	case "fail":
		return nil, errors.New("the model file is broken")
	}
	d, _ := time.ParseDuration(m.Parameter("delay", "0s"))
	return &echoInstance{m: m, at: at, delay: d}, nil
}

type echoInstance struct {
	m     *backend.Model
	at    backend.Placement
	delay time.Duration
}

func (e *echoInstance) Execute(_ context.Context, jobs []*backend.Job) {
	time.Sleep(e.delay)
	switch e.m.Parameter("execute", "") {
	case "panic":
		panic("a bad day")
	case "forget":
		return
	}
	for _, j := range jobs {
		r := j.NewResponse()
		out := e.m.Config.GetOutput()[0].GetName()
		in := &j.Inputs[0]
		dst := j.Into(out, len(in.Data))
		if dst == nil {
			dst = r.Alloc(len(in.Data))
		}
		copy(dst, in.Data)
		r.AddView(out, in.DataType, in.Shape, dst)
		j.Respond(r)
	}
}

func (e *echoInstance) Close() error { return nil }

const echoModel = `backend: "echo"
input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }
`

func parameter(key, value string) string {
	return fmt.Sprintf("parameters { key: %q value { string_value: %q } }\n", key, value)
}

func ask(t *testing.T, r *repository.Repository, model string) error {
	t.Helper()
	resp, err := infer.Do(t.Context(), r, &infer.Request{Model: model, Inputs: []tensor.Tensor{numbers("IN", false, 4)}})
	if err == nil {
		if got := ints(t, resp, "OUT"); len(got) != 1 || got[0] != 4 {
			t.Errorf("%s answered %v", model, got)
		}
		resp.Release()
	}
	return err
}

func index(r *repository.Repository) string {
	var lines []string
	for _, e := range r.Index(false) {
		lines = append(lines, strings.TrimRight(strings.Join([]string{e.Name, e.Version, e.State, e.Reason}, " "), " "))
	}
	return strings.Join(lines, "\n")
}

func TestR1AndR5OneBadModelTouchesNoOther(t *testing.T) {
	root := write(t, files{
		"good/config.pbtxt":        echoModel,
		"good/1/keep":              "",
		"broken/config.pbtxt":      echoModel + parameter("load", "fail"),
		"broken/1/keep":            "",
		"cursed/config.pbtxt":      echoModel + parameter("load", "panic"),
		"cursed/1/keep":            "",
		"foreign/config.pbtxt":     `backend: "nothing"`,
		"foreign/1/keep":           "",
		"garbled/config.pbtxt":     `backend: `,
		"garbled/1/keep":           "",
		"versionless/config.pbtxt": echoModel,
		"notes/readme":             "", "notes/src/code": "",
		"1-only/1/something":      "",
		"incomplete/config.pbtxt": echoModel + parameter("complete_error", "its graph has no outputs"),
		"incomplete/1/keep":       "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho()})
		if err := r.Loaded(t.Context()); err == nil {
			t.Error("nothing was said of the bad models")
		}
		if err := ask(t, r, "good"); err != nil {
			t.Error(err)
		}
		if r.Ready(t.Context()) {
			t.Error("the server says it is ready although models are not")
		}
		want := `1-only  UNAVAILABLE Invalid model name: Could not determine backend for model '1-only' with no backend in model configuration. Expected model name of the form 'model.<backend_name>'.
broken 1 UNAVAILABLE the model file is broken
cursed 1 UNAVAILABLE model crashed while it was loaded: the model file is cursed
foreign 1 UNAVAILABLE unable to find backend library for backend 'nothing', try specifying runtime on the model configuration.
garbled  UNAVAILABLE config.pbtxt: unexpected EOF
good 1 READY
incomplete 1 UNAVAILABLE its graph has no outputs
notes   it has neither a configuration nor a version
versionless  UNAVAILABLE at least one version must be available under the version policy of model 'versionless'`
		if got := index(r); got != want {
			t.Errorf("index:\n%s\nwant:\n%s", got, want)
		}
	})
}

func TestR1AFolderWithoutAModelIsLeftAlone(t *testing.T) {
	root := write(t, files{"good/config.pbtxt": echoModel, "good/1/keep": "", "train/train.py": "", "train/data/007/x": ""})
	other := write(t, files{"good/notes.txt": ""})
	for _, mode := range []repository.Mode{repository.ModeNone, repository.ModePoll, repository.ModeExplicit} {
		synctest.Test(t, func(t *testing.T) {
			r := serve(t, repository.Config{Roots: []string{root, other}, Backends: withEcho(), Mode: mode, Startup: []string{"*"}, PollInterval: time.Second})
			if err := r.Loaded(t.Context()); err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			time.Sleep(3 * time.Second)
			if got, want := index(r), "good 1 READY\ntrain   it has neither a configuration nor a version"; got != want || !r.Ready(t.Context()) {
				t.Errorf("%s: ready %v, index:\n%s\nwant:\n%s", mode, r.Ready(t.Context()), got, want)
			}
			if mode != repository.ModeExplicit {
				return
			}
			want := "Invalid model name: Could not determine backend for model 'train' with no backend in model configuration."
			if err := r.Load(t.Context(), "train", infer.LoadOptions{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("asked to load it: %v", err)
			}
		})
	}
}

func TestR4AndR5ModelsAreLoadedAndUnloadedOnDemand(t *testing.T) {
	root := write(t, files{
		"a/config.pbtxt": echoModel, "a/1/keep": "", "a/3/keep": "", "a/007/keep": "", "a/x/keep": "",
		"b/config.pbtxt": echoModel, "b/1/keep": "",
		"e/config.pbtxt": `platform: "ensemble" input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }
ensemble_scheduling { step [ { model_name: "a" input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "mid" } },
 { model_name: "b" input_map { key: "IN" value: "mid" } output_map { key: "OUT" value: "OUT" } } ] }`,
		"e/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), Mode: repository.ModeExplicit, Startup: []string{"b"}})
		if got, want := index(r), "a\nb 1 READY\ne"; got != want {
			t.Errorf("index after start:\n%s\nwant:\n%s", got, want)
		}
		if err := ask(t, r, "a"); err == nil || err.Error() != "Request for unknown model: 'a' is not found" {
			t.Errorf("a model never loaded: %v", err)
		}
		if err := r.Load(ctx, "e", infer.LoadOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := ask(t, r, "e"); err != nil {
			t.Error(err)
		}
		if got, want := index(r), "a 3 READY\nb 1 READY\ne 1 READY"; got != want {
			t.Errorf("index with all loaded:\n%s\nwant:\n%s", got, want)
		}
		if err := r.Unload(ctx, "a", false); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got, want := index(r), "a 3 UNAVAILABLE unloaded\nb 1 READY\ne 1 UNAVAILABLE ensemble 'e' depends on 'a' which has no loaded version"; got != want {
			t.Errorf("index without a:\n%s\nwant:\n%s", got, want)
		}
		if err := ask(t, r, "a"); err == nil || err.Error() != "Request for unknown model: 'a' has no available versions" {
			t.Errorf("an unloaded model: %v", err)
		}
		if err := r.Load(ctx, "a", infer.LoadOptions{}); err != nil {
			t.Error(err)
		}
		if err := ask(t, r, "e"); err != nil {
			t.Errorf("the ensemble did not come back with its part: %v", err)
		}
		if err := r.Unload(ctx, "e", true); err != nil {
			t.Error(err)
		}
		if err := r.Unload(ctx, "never-there", true); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got, want := index(r), "a 3 UNAVAILABLE unloaded\nb 1 UNAVAILABLE unloaded\ne 1 UNAVAILABLE unloaded"; got != want {
			t.Errorf("index after unloading all:\n%s\nwant:\n%s", got, want)
		}
		for name, want := range map[string]string{
			"../a": "is not the name of a directory", "": "is not the name of a directory",
			"zzz": "failed to load 'zzz', failed to poll from model repository",
		} {
			if err := r.Load(ctx, name, infer.LoadOptions{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("load %q: %v", name, err)
			}
		}
	})
}

func TestR4LoadCanBeOverridden(t *testing.T) {
	root := write(t, files{"a/config.pbtxt": echoModel, "a/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), Mode: repository.ModeExplicit, Startup: []string{"*"}})
		json := `{"name":"a","backend":"echo","max_batch_size":0,"input":[{"name":"IN","data_type":"TYPE_INT32","dims":[-1]}],
			"output":[{"name":"OUT","data_type":"TYPE_INT32","dims":["-1"]}]}`
		if err := r.Load(ctx, "a", infer.LoadOptions{Config: json, Files: map[string][]byte{"5/model.txt": []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		if m, err := r.Model("a", 5); err != nil || m.Version != 5 {
			t.Errorf("version of the override: %v %v", m, err)
		}
		if err := ask(t, r, "a"); err != nil {
			t.Error(err)
		}
		for want, opts := range map[string]infer.LoadOptions{
			"Load parameter 'config' must be specified for model file override":            {Files: map[string][]byte{"1/x": nil}},
			"Invalid config override: ":                                                    {Config: "{"},
			"leads out of the model's directory":                                           {Config: json, Files: map[string][]byte{"../../x": nil}},
			"at least one version must be available under the version policy of model 'a'": {Config: json, Files: map[string][]byte{"x": nil}},
		} {
			if err := r.Load(ctx, "a", opts); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
		if err := ask(t, r, "a"); err != nil {
			t.Errorf("failed loads took the model away: %v", err)
		}
	})
}

func TestR4AndR5ModelOfTwoRepositoriesIsNotLoaded(t *testing.T) {
	one, two := write(t, files{"a/config.pbtxt": echoModel, "a/1/keep": "", "b/config.pbtxt": echoModel, "b/1/keep": ""}), write(t, files{"a/config.pbtxt": echoModel, "a/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{one, two}, Backends: withEcho(), Mode: repository.ModeExplicit, Startup: []string{"b"}})
		if got, want := index(r), "a  UNAVAILABLE model appears in two or more repositories\nb 1 READY"; got != want {
			t.Errorf("index:\n%s\nwant:\n%s", got, want)
		}
		err := r.Load(t.Context(), "a", infer.LoadOptions{})
		if err == nil || !strings.HasPrefix(err.Error(), "failed to load 'a', model appears in two or more repositories: ") {
			t.Error(err)
		}
	})
}

func TestR4ReloadIsWithoutAGap(t *testing.T) {
	root := write(t, files{"a/config.pbtxt": echoModel + parameter("delay", "5ms"), "a/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), Mode: repository.ModeExplicit, Startup: []string{"a"}})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := ask(t, r, "a"); err != nil { //nolint:contextcheck // a request outlives the stop
						t.Errorf("a request failed during a reload: %v", err)
						return
					}
				}
			})
		}
		for i := range 5 {
			time.Sleep(20 * time.Millisecond)
			rewrite(t, root, "a/config.pbtxt", echoModel+parameter("delay", fmt.Sprintf("%dms", i+3)))
			if err := r.Load(ctx, "a", infer.LoadOptions{}); err != nil {
				t.Error(err)
			}
		}
		rewrite(t, root, "a/config.pbtxt", echoModel+parameter("load", "fail"))
		err := r.Load(ctx, "a", infer.LoadOptions{})
		if err == nil || err.Error() != "load failed for model 'a': version 1 is at UNAVAILABLE state: the model file is broken;\n" {
			t.Errorf("load of a broken model: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
		stop()
		wg.Wait()
		if got := index(r); got != "a 1 READY" {
			t.Errorf("index: %s", got)
		}
	})
}

// stamps makes every write a change, whatever the bubble's clock says.
var stamps atomic.Int64

func rewrite(t *testing.T, root, name, text string) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stamp := time.Unix(1, stamps.Add(1))
	if err := os.Chtimes(file, stamp, stamp); err != nil {
		t.Fatal(err)
	}
}

func TestR4PollingFollowsTheDirectories(t *testing.T) {
	root := write(t, files{"a/config.pbtxt": echoModel, "a/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), Mode: repository.ModePoll, PollInterval: time.Second})
		step := func(want string) {
			t.Helper()
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			if got := index(r); got != want {
				t.Errorf("index:\n%s\nwant:\n%s", got, want)
			}
		}
		step("a 1 READY")
		rewrite(t, root, "b/1/keep", "")
		rewrite(t, root, "b/config.pbtxt", "backend:")
		step("a 1 READY\nb  UNAVAILABLE config.pbtxt: unexpected EOF")
		rewrite(t, root, "b/config.pbtxt", echoModel)
		rewrite(t, root, "a/2/keep", "")
		step("a 1 UNAVAILABLE unloaded\na 2 READY\nb 1 READY")
		if err := os.RemoveAll(filepath.Join(root, "b")); err != nil {
			t.Fatal(err)
		}
		step("a 1 UNAVAILABLE unloaded\na 2 READY\nb 1 UNAVAILABLE unloaded")
		if err := r.Load(t.Context(), "a", infer.LoadOptions{}); infer.CodeOf(err) != infer.Unavailable {
			t.Errorf("load while polling: %v", err)
		}
	})
}

func TestX7ModelsThatMisbehaveFailTheirRequestsOnly(t *testing.T) {
	root := write(t, files{
		"panics/config.pbtxt": echoModel + parameter("execute", "panic"), "panics/1/keep": "",
		"forgets/config.pbtxt": echoModel + parameter("execute", "forget"), "forgets/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho()})
		for range 3 {
			for model, want := range map[string]string{"panics": "model 'panics' crashed: a bad day", "forgets": "model 'forgets' gave no answer"} {
				if err := ask(t, r, model); err == nil || err.Error() != want {
					t.Errorf("%s: %v", model, err)
				}
			}
		}
	})
}

func TestStoppingAnswersWhatIsUnderWay(t *testing.T) {
	root := write(t, files{"a/config.pbtxt": echoModel + parameter("delay", "100ms"), "a/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		r, err := repository.New(repository.Config{Roots: []string{root}, Backends: withEcho()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.Run(ctx, time.Minute); err != nil {
				t.Error(err)
			}
		})
		_ = r.Loaded(ctx)
		for range 5 {
			wg.Go(func() {
				if err := ask(t, r, "a"); err != nil {
					t.Errorf("a request that was taken failed: %v", err)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		cancel()
		synctest.Wait()
		if err := ask(t, r, "a"); infer.CodeOf(err) != infer.Unavailable {
			t.Errorf("a request after the stop: %v", err)
		}
		wg.Wait()
	})
}

func TestX1StatisticsCountWhatHappened(t *testing.T) {
	root := write(t, files{
		"a/config.pbtxt": `backend: "echo" max_batch_size: 4 input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }
dynamic_batching { max_queue_delay_microseconds: 10000 } ` + parameter("delay", "7ms"),
		"a/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho()})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				resp, err := infer.Do(t.Context(), r, &infer.Request{Model: "a", Inputs: []tensor.Tensor{numbers("IN", true, 1)}})
				if err != nil {
					t.Error(err)
					return
				}
				resp.Release()
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		_, err := infer.Do(t.Context(), r, &infer.Request{Model: "a"})
		if err == nil {
			t.Error("a request without inputs was answered")
		}
		synctest.Wait()
		s, err := r.Statistics("a", 0)
		if err != nil || len(s) != 1 {
			t.Fatal(err)
		}
		st := s[0]
		if st.GetInferenceCount() != 4 || st.GetExecutionCount() != 1 || st.GetInferenceStats().GetFail().GetCount() != 1 {
			t.Errorf("statistics %v", st)
		}
		if got := time.Duration(st.GetInferenceStats().GetQueue().GetNs()); got != 6*time.Millisecond {
			t.Errorf("4 requests that waited 3, 2, 1 and 0 ms have queued %v", got)
		}
		if b := st.GetBatchStats(); len(b) != 1 || b[0].GetBatchSize() != 4 || b[0].GetComputeInfer().GetNs() != uint64(7*time.Millisecond) {
			t.Errorf("batch statistics %v", b)
		}
	})
}

func TestP15AndX3OutputsGoWhereTheClientWantsThem(t *testing.T) {
	root := write(t, files{
		"a/config.pbtxt": echoModel, "a/1/keep": "",
		"c/config.pbtxt": `backend: "echo" max_batch_size: 2 input { name: "IN" data_type: TYPE_FP32 dims: [ 3 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }`,
		"c/labels.txt": "cat\ndog\n",
		"c/1/keep":     "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho()})
		region := make([]byte, 16)
		req := &infer.Request{Model: "a", Inputs: []tensor.Tensor{numbers("IN", false, 7, 8)}, Outputs: []infer.OutputSpec{{Name: "OUT", Into: region}}}
		resp, err := infer.Do(t.Context(), r, req)
		if err != nil {
			t.Fatal(err)
		}
		if !tensor.SameMemory(resp.Output("OUT").Data, region) || tensor.View[int32](region)[1] != 8 {
			t.Errorf("region holds %v", region)
		}
		resp.Release()
		req.Outputs[0].Into = region[:4]
		_, err = infer.Do(t.Context(), r, req)
		want := "shared memory size specified with the request for output 'OUT' (4 bytes) should be at least 8 bytes to hold the results"
		if err == nil || err.Error() != want {
			t.Errorf("a region too small: %v", err)
		}
		scores := tensor.AsBytes([]float32{0.25, 0.5, 1, 3, 2, 1})
		resp, err = infer.Do(t.Context(), r, &infer.Request{
			Model:   "c",
			Inputs:  []tensor.Tensor{{Name: "IN", DataType: tensor.FP32, Shape: []int64{2, 3}, Data: scores}},
			Outputs: []infer.OutputSpec{{Name: "OUT", Classes: 2}},
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := tensor.DecodeStrings(resp.Output("OUT").Data)
		if err != nil || fmt.Sprint(got, resp.Output("OUT").Shape) != "[1.000000:2 0.500000:1:dog 3.000000:0:cat 2.000000:1:dog] [2 2]" {
			t.Errorf("classes %q %v %v", got, resp.Output("OUT").Shape, err)
		}
		resp.Release()
	})
}

func TestALoadThatMeetsTheStopIsGivenUp(t *testing.T) {
	root := write(t, files{"a/config.pbtxt": echoModel + parameter("load", "slow"), "a/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		r, err := repository.New(repository.Config{Roots: []string{root}, Backends: withEcho(), Mode: repository.ModeExplicit})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.Run(ctx, time.Second); err != nil {
				t.Error(err)
			}
		})
		_ = r.Loaded(ctx)
		wg.Go(func() {
			if err := r.Load(ctx, "a", infer.LoadOptions{}); err == nil || !strings.Contains(err.Error(), "Server exiting") {
				t.Errorf("a load that ended after the stop: %v", err)
			}
		})
		time.Sleep(time.Second)
		cancel()
		wg.Wait()
	})
}

func TestStartAndStopAtOnceTenTimes(t *testing.T) {
	root := write(t, files{"a/config.pbtxt": echoModel, "a/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		for range 10 {
			r, err := repository.New(repository.Config{Roots: []string{root}, Backends: withEcho()})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := r.Run(ctx, time.Second); err != nil {
					t.Error(err)
				}
			})
			cancel()
			wg.Wait()
		}
	})
}
