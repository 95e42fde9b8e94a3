package repository_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

// witness notes where its instances are placed and what they are given.
type witness struct {
	mu     sync.Mutex
	places []backend.Placement
	seen   []string // instance: input shape first-element ... of each job
}

func (w *witness) Complete(context.Context, *backend.Model) error { return nil }

func (w *witness) NewInstance(_ context.Context, m *backend.Model, at backend.Placement) (backend.Instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places = append(w.places, at)
	return &witnessInstance{w: w, at: at, fail: m.Parameter("execute", "") == "fail"}, nil
}

func (w *witness) take() (seen string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen = strings.Join(w.seen, "; ")
	w.seen = nil
	return seen
}

type witnessInstance struct {
	w    *witness
	at   backend.Placement
	fail bool
}

func (i *witnessInstance) Execute(_ context.Context, jobs []*backend.Job) {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	for _, j := range jobs {
		line := i.at.Name
		for _, in := range j.Inputs {
			line += fmt.Sprintf(" %s%s%x", in.Name, tensor.FormatShape(in.Shape), in.Data)
		}
		i.w.seen = append(i.w.seen, line)
		if i.fail {
			j.Fail(errors.New("not today"))
			continue
		}
		r := j.NewResponse()
		copy(r.Add("OUT", tensor.Int32, j.Inputs[0].Shape, len(j.Inputs[0].Data)), j.Inputs[0].Data)
		j.Respond(r)
	}
}

func (i *witnessInstance) Close() error { return nil }

func withWitness(w *witness) map[string]backend.Backend {
	b := maps.Clone(withEcho())
	b["witness"] = w
	return b
}

const witnessModel = `backend: "witness" max_batch_size: 4
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
`

func TestR3VersionPoliciesChooseWhatIsLoaded(t *testing.T) {
	versions := files{}
	for name, policy := range map[string]string{
		"default": "", "two": "version_policy { latest { num_versions: 2 } }", "all": "version_policy { all { } }",
		"some": "version_policy { specific { versions: [ 2, 1, 9 ] } }", "none": "version_policy { specific { versions: [ 9 ] } }",
	} {
		versions[name+"/config.pbtxt"] = echoModel + policy
		for _, v := range []string{"1", "2", "3", "10", "011", "0", "-1", "x1", "1x"} {
			versions[name+"/"+v+"/keep"] = ""
		}
		versions[name+"/7"] = "a file is no version"
	}
	root := write(t, versions)
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho()})
		want := "all 1 READY\nall 2 READY\nall 3 READY\nall 10 READY\ndefault 10 READY\n" +
			"none  UNAVAILABLE at least one version must be available under the version policy of model 'none'\n" +
			"some 1 READY\nsome 2 READY\ntwo 3 READY\ntwo 10 READY"
		if got := index(r); got != want {
			t.Errorf("index:\n%s\nwant:\n%s", got, want)
		}
		if m, err := r.Model("some", 0); err != nil || m.Version != 2 || !slices.Equal(m.Versions, []string{"1", "2"}) {
			t.Errorf("no version asked for: %+v %v", m, err)
		}
	})
}

func TestR2ConfigurationsAreCompletedUnlessForbidden(t *testing.T) {
	root := write(t, files{
		"bare/1/model.echo": "", "named/config.pbtxt": `name: "other" backend: "echo"`, "named/1/keep": "",
		"variant/config.pbtxt": echoModel, "variant/configs/big.pbtxt": strings.Replace(echoModel, "dims: [ -1 ]", "dims: [ 7 ]", 1), "variant/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), ConfigName: "big"})
		want := "bare 1 READY\nnamed  UNAVAILABLE unexpected directory name 'named' for model 'other', directory name must equal model name\nvariant 1 READY"
		if got := index(r); got != want {
			t.Errorf("index:\n%s\nwant:\n%s", got, want)
		}
		if m, err := r.Model("variant", 0); err != nil || m.Inputs[0].Shape[0] != 7 {
			t.Errorf("the named configuration is not taken: %+v %v", m, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), NoAutoComplete: true, ConfigName: "../../bare"})
		if got := index(r); !strings.Contains(got, "bare  UNAVAILABLE open") || !strings.HasSuffix(got, "variant 1 READY") {
			t.Errorf("index:\n%s", got)
		}
		if m, err := r.Model("variant", 0); err != nil || m.Inputs[0].Shape[0] != -1 {
			t.Errorf("a name that leads away is not ignored: %+v %v", m, err)
		}
	})
}

func TestR6InstancesArePlacedAsTheGroupsSay(t *testing.T) {
	root := write(t, files{
		"plain/config.pbtxt": witnessModel, "plain/1/keep": "",
		"two/config.pbtxt": witnessModel + `instance_group [ { count: 2 kind: KIND_CPU }, { name: "extra" kind: KIND_CPU passive: true } ]`, "two/1/keep": "",
		"gpu/config.pbtxt": witnessModel + "instance_group { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] }", "gpu/1/keep": "",
		"none/config.pbtxt": witnessModel + "instance_group { kind: KIND_GPU gpus: [ 5 ] }", "none/1/keep": "",
		"asleep/config.pbtxt": witnessModel + "instance_group { kind: KIND_CPU passive: true }", "asleep/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		w := new(witness)
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withWitness(w), Cores: 6, GPUs: []int32{0, 1}, LoadThreads: 1})
		var got []string
		for _, p := range w.places {
			got = append(got, fmt.Sprintf("%s %s %d threads=%d", p.Name, p.Kind, p.GPU, p.CPUThreads))
		}
		slices.Sort(got)
		want := []string{
			"asleep_0_0 KIND_CPU -1 threads=6", "extra_0 KIND_CPU -1 threads=2",
			"gpu_0_0 KIND_GPU 0 threads=6", "gpu_0_1 KIND_GPU 1 threads=6", "gpu_0_2 KIND_GPU 0 threads=6", "gpu_0_3 KIND_GPU 1 threads=6",
			"plain_0 KIND_CPU -1 threads=6", "two_0_0 KIND_CPU -1 threads=2", "two_0_1 KIND_CPU -1 threads=2",
		}
		if !slices.Equal(got, want) {
			t.Errorf("placements:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, line := range []string{"asleep 1 UNAVAILABLE model 'asleep' has no instance that may be scheduled", "none 1 UNAVAILABLE "} {
			if !strings.Contains(index(r), line) {
				t.Errorf("index lacks %q:\n%s", line, index(r))
			}
		}
	})
}

func TestR7EveryInstanceIsWarmedBeforeItServes(t *testing.T) {
	sample := func(text string) string { return "model_warmup { name: \"s\" " + text + " }\n" }
	input := func(text string) string {
		return fmt.Sprintf(`inputs { key: "IN" value { data_type: TYPE_INT32 %s } }`, text)
	}
	root := write(t, files{
		"good/config.pbtxt": witnessModel + "instance_group { count: 2 kind: KIND_CPU }\n" +
			sample("batch_size: 2 "+input("dims: [ 1 ] zero_data: true")) + sample("batch_size: 1 count: 2 "+input(`dims: [ 1 ] input_data_file: "seven"`)) +
			sample("batch_size: 0 "+input("dims: [ 1 ] zero_data: true")),
		"good/warmup/seven": "\x07\x00\x00\x00more", "good/1/keep": "",
		"fails/config.pbtxt": witnessModel + parameter("execute", "fail") + sample("batch_size: 1 "+input("dims: [ 1 ] random_data: true")), "fails/1/keep": "",
		"short/config.pbtxt": witnessModel + sample("batch_size: 1 "+input(`dims: [ 1 ] input_data_file: "short"`)), "short/warmup/short": "x", "short/1/keep": "",
		"open/config.pbtxt": witnessModel + sample("batch_size: 1 "+input("dims: [ -1 ] zero_data: true")), "open/1/keep": "",
		"away/config.pbtxt": witnessModel + sample("batch_size: 1 "+input(`dims: [ 1 ] input_data_file: "../config.pbtxt"`)), "away/1/keep": "",
		"huge/config.pbtxt": witnessModel + sample("batch_size: 1 "+input("dims: [ 4611686018427387904, 4 ] zero_data: true")), "huge/1/keep": "",
		"other/config.pbtxt": witnessModel + sample(`batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 dims: 1 zero_data: true } }`), "other/1/keep": "",
		"wide/config.pbtxt": witnessModel + sample("batch_size: 1 "+input("dims: [ 2 ] zero_data: true")), "wide/1/keep": "",
		"none/config.pbtxt": witnessModel + sample("batch_size: 1"), "none/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		w := new(witness)
		var log bytes.Buffer
		r := serve(t, repository.Config{
			Roots: []string{root}, Backends: withWitness(w), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		synctest.Wait()
		if want := "model 'good' instance good_0_1 is running warmup sample 's'"; !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
		got := index(r)
		for _, want := range []string{
			"good 1 READY", "fails 1 UNAVAILABLE failed to run warmup sample 's': not today",
			"short 1 UNAVAILABLE warmup setting expects 4 bytes, but the data provided from short only has 1 bytes",
			"open 1 UNAVAILABLE warmup setting expects all variable-size dimensions are specified for input 'IN'",
			"away 1 UNAVAILABLE warmup file '../config.pbtxt' must be inside the model's warmup directory",
			"huge 1 UNAVAILABLE warmup sample 's', input 'IN': shape",
			"other 1 UNAVAILABLE failed to run warmup sample 's': inference input 'IN' data-type is 'FP32', but model 'other' expects 'INT32'",
			"wide 1 UNAVAILABLE failed to run warmup sample 's': unexpected shape for input 'IN' for model 'wide'. Expected [-1,1], got [1,2].",
			"none 1 UNAVAILABLE failed to run warmup sample 's': expected 1 inputs but got 0 inputs for model 'none'.",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("index lacks %q:\n%s", want, got)
			}
		}
		seen := strings.Split(w.take(), "; ")
		for _, one := range []string{"good_0_0", "good_0_1"} {
			zero, seven := one+" IN[1,1]00000000", one+" IN[1,1]07000000"
			its := slices.DeleteFunc(slices.Clone(seen), func(line string) bool { return !strings.HasPrefix(line, one) })
			if !slices.Equal(its, []string{zero, zero, seven, seven}) {
				t.Errorf("instance %s was warmed with %q", one, its)
			}
		}
		s, err := r.Statistics("good", 0)
		if err != nil || s[0].GetExecutionCount() != 0 {
			t.Errorf("warming up is counted: %v %v", s, err)
		}
		resp, err := infer.Do(t.Context(), r, &infer.Request{Model: "good", Inputs: []tensor.Tensor{numbers("IN", true, 3)}})
		if err != nil {
			t.Fatal(err)
		}
		resp.Release()
	})
}

func TestR7AWarmUpEndsWithTheServer(t *testing.T) {
	root := write(t, files{
		"a/config.pbtxt": identityModel + parameter("execute_delay_ms", "10") + `model_warmup { name: "s" batch_size: 1 count: 4294967295
			inputs { key: "INPUT0" value { data_type: TYPE_INT32 dims: 1 zero_data: true } } }`, "a/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r, err := repository.New(repository.Config{Roots: []string{root}, Backends: backends()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := r.Run(ctx, time.Minute); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("it ended after %v: %v", time.Since(began), err)
		}
	})
}

func TestX1WhatFailedAltogetherIsNoExecution(t *testing.T) {
	root := write(t, files{"a/config.pbtxt": witnessModel + parameter("execute", "fail"), "a/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withWitness(new(witness))})
		if _, err := infer.Do(t.Context(), r, &infer.Request{Model: "a", Inputs: []tensor.Tensor{numbers("IN", true, 3)}}); err == nil {
			t.Fatal("it did not fail")
		}
		synctest.Wait()
		s, err := r.Statistics("a", 0)
		if err != nil || s[0].GetInferenceStats().GetFail().GetCount() != 1 || s[0].GetExecutionCount() != 0 || len(s[0].GetBatchStats()) != 0 {
			t.Errorf("got %v %v", s, err)
		}
	})
}

// asked tells what it was set to.
type asked struct {
	backend.Backend
	settings map[string]string
}

func (a *asked) Complete(ctx context.Context, m *backend.Model) error {
	a.settings = m.Settings
	return a.Backend.Complete(ctx, m)
}

func TestX9SettingsOfEveryBackendAndOfOne(t *testing.T) {
	root := write(t, files{"m/config.pbtxt": echoModel, "m/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		b := withEcho()
		a := &asked{Backend: b["echo"]}
		b["echo"] = a
		serve(t, repository.Config{Roots: []string{root}, Backends: b, Settings: map[string]map[string]string{
			"": {"x": "all", "y": "all"}, "echo": {"y": "own"}, "other": {"z": "other"},
		}})
		if want := map[string]string{"x": "all", "y": "own"}; !maps.Equal(a.settings, want) {
			t.Errorf("the backend was set to %v, want %v", a.settings, want)
		}
	})
}

func TestR2AMistypedParameterIsTold(t *testing.T) {
	var log bytes.Buffer
	serve(t, repository.Config{
		Roots: []string{write(t, files{"late/config.pbtxt": `backend: "identity" max_batch_size: 1
			input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }
			instance_group { count: 2 }
			parameters { key: "execute_dely_ms" value { string_value: "5" } }
			parameters { key: "creation_delay_sec" value { string_value: "0" } }
			parameters { key: "queue_budget_ms" value { string_value: "5" } }`, "late/1/keep": ""})},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	got := log.String()
	if strings.Count(got, "has no effect") != 1 || !strings.Contains(got, `model=late version=1 parameter=execute_dely_ms backend=identity known="[creation_delay_sec execute_delay_ms `) {
		t.Errorf("the log says %s", got)
	}
}
