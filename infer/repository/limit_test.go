package repository_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

func TestS13ResourcesBoundWhatRunsAtOnce(t *testing.T) {
	group := `instance_group { count: 2 kind: KIND_CPU rate_limiter { resources { name: "R" count: 2 } priority: %P } }`
	slow := echoModel + parameter("delay", "10ms")
	root := write(t, files{
		"a/config.pbtxt": slow + strings.ReplaceAll(group, "%P", "1"), "a/1/keep": "",
		"b/config.pbtxt": slow + strings.ReplaceAll(group, "%P", "2"), "b/1/keep": "",
		"c/config.pbtxt": slow + `instance_group { rate_limiter { resources { name: "R" count: 9 } } }`, "c/1/keep": "",
		"free/config.pbtxt": slow, "free/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), RateLimit: true, Resources: []repository.Resource{{Name: "R", Count: 4, Device: -1}}})
		want := `c 1 UNAVAILABLE Resource count for "R" is limited to 4 which will prevent scheduling of one or more model instances, the minimum required count is 9`
		if got := index(r); !strings.Contains(got, want) {
			t.Errorf("index:\n%s", got)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				if err := ask(t, r, []string{"a", "b"}[i%2]); err != nil {
					t.Error(err)
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				if err := ask(t, r, "free"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// Four instances could run at once, resources are for two.
		if took := time.Since(start); took != 60*time.Millisecond {
			t.Errorf("12 executions of 10 ms, two at a time, took %v", took)
		}
	})
}

func TestS13ResourcesAreOfDevices(t *testing.T) {
	group := func(resources string) string {
		return echoModel + `instance_group { kind: KIND_CPU rate_limiter { resources [ ` + resources + ` ] } }`
	}
	limited := `Resource count for "%s" is limited to %d which will prevent scheduling of one or more model instances, the minimum required count is %d`
	twofold := `Resource "R" is present as both global and device-specific resource in the model configuration.`
	local, global := `{ name: "R" count: 4 }`, `{ name: "R" global: true count: 2 }`
	for name, c := range map[string]struct {
		resources []repository.Resource
		groups    string
		want      string // why the model does not load
	}{
		"what nobody names is as much as it takes":   {nil, local, ""},
		"CPUs are device 0":                          {[]repository.Resource{{Name: "R", Count: 4}}, local, ""},
		"what another device has does not help":      {[]repository.Resource{{Name: "R", Count: 9, Device: 1}}, local, fmt.Sprintf(limited, "R", 0, 4)},
		"what is not named is not there":             {[]repository.Resource{{Name: "S", Count: 9, Device: -1}}, local, fmt.Sprintf(limited, "R", 0, 4)},
		"global resources are those of any device":   {[]repository.Resource{{Name: "R", Count: 2, Device: 7}}, global, ""},
		"a resource is of devices or of the machine": {nil, local + "," + global, twofold},
	} {
		t.Run(name, func(t *testing.T) {
			root := write(t, files{"m/config.pbtxt": group(c.groups), "m/1/keep": ""})
			synctest.Test(t, func(t *testing.T) {
				r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), RateLimit: true, Resources: c.resources})
				want := "m 1 READY"
				if c.want != "" {
					want = "m 1 UNAVAILABLE " + c.want
				}
				if got := index(r); got != want {
					t.Errorf("index: %s", got)
				}
			})
		})
	}
}

func TestS13AnInstanceOfPriorityTwoGetsHalfTheChances(t *testing.T) {
	model := echoModel + parameter("delay", "10ms") + `instance_group { count: 1 kind: KIND_CPU rate_limiter { resources { name: "R" count: 1 } priority: %P } }`
	root := write(t, files{
		"a/config.pbtxt": strings.ReplaceAll(model, "%P", "1"), "a/1/keep": "",
		"b/config.pbtxt": strings.ReplaceAll(model, "%P", "2"), "b/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), RateLimit: true})
		var wg sync.WaitGroup
		var mu sync.Mutex
		var order []byte
		for _, m := range []string{"a", "b"} {
			for range 60 {
				wg.Go(func() {
					err := ask(t, r, m)
					mu.Lock()
					defer mu.Unlock()
					order = append(order, m[0])
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		// While both have something to do: until the last of a.
		both := order[:bytes.LastIndexByte(order, 'a')+1]
		if b := bytes.Count(both, []byte("b")); b < 29 || b > 31 {
			t.Errorf("%d executions of priority 2 beside 60 of priority 1: %s", b, order)
		}
	})
}

func TestS14AnotherModelAnswersAnew(t *testing.T) {
	root := write(t, files{
		"a/config.pbtxt": echoModel + parameter("delay", "10ms") + "response_cache { enable: true }", "a/1/keep": "",
		"e/config.pbtxt": `platform: "ensemble" input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }
ensemble_scheduling { step { model_name: "b" input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } } response_cache { enable: true }`, "e/1/keep": "",
		"b/config.pbtxt": echoModel + parameter("delay", "10ms"), "b/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), CacheBytes: 10000, Mode: repository.ModeExplicit, Startup: []string{"a", "e"}})
		ask := func(model string, want time.Duration) {
			t.Helper()
			start := time.Now()
			resp, err := infer.Do(t.Context(), r, &infer.Request{Model: model, Inputs: []tensor.Tensor{numbers("IN", false, 1)}})
			if err != nil {
				t.Fatal(err)
			}
			resp.Release()
			if took := time.Since(start); took != want {
				t.Errorf("%s took %v, want %v", model, took, want)
			}
		}
		for _, model := range []string{"a", "e"} {
			ask(model, 10*time.Millisecond)
			ask(model, 0)
		}
		for _, model := range []string{"a", "b"} {
			if err := os.WriteFile(filepath.Join(root, model, "config.pbtxt"), []byte(echoModel+parameter("delay", "20ms")+"response_cache { enable: true }"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := r.Load(t.Context(), model, infer.LoadOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, model := range []string{"a", "e"} {
			ask(model, 20*time.Millisecond)
			ask(model, 0)
		}
	})
}

func TestS14WhoChangesSharedMemoryFoolsNobody(t *testing.T) {
	root := write(t, files{"a/config.pbtxt": echoModel + parameter("delay", "10ms") + "response_cache { enable: true }", "a/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), CacheBytes: 1000})
		mine := []int32{1}
		in := numbers("IN", false, 1)
		in.Data = tensor.AsBytes(mine)
		answered := make(chan infer.Reply, 1)
		for _, req := range []*infer.Request{
			{Model: "a", Inputs: []tensor.Tensor{in}, Shared: true}, {Model: "a", Inputs: []tensor.Tensor{numbers("IN", false, 1)}},
		} {
			if err := r.Submit(t.Context(), req, func(r infer.Reply) { answered <- r }); err != nil {
				t.Fatal(err)
			}
			mine[0] = 666
			a := <-answered
			if a.Err != nil {
				t.Fatal(a.Err)
			}
			if got := ints(t, a.Response, "OUT")[0]; got != 1 {
				t.Errorf("1 was answered with %d", got)
			}
			a.Response.Release()
		}
	})
}

func TestS14EqualRequestsAreAnsweredFromTheCache(t *testing.T) {
	root := write(t, files{
		"a/config.pbtxt": echoModel + parameter("delay", "10ms") + "response_cache { enable: true }", "a/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), CacheBytes: 1000})
		once := func(v int32, want time.Duration) {
			t.Helper()
			start := time.Now()
			resp, err := infer.Do(t.Context(), r, &infer.Request{ID: "x", Model: "a", Inputs: []tensor.Tensor{numbers("IN", false, v)}})
			if err != nil {
				t.Fatal(err)
			}
			if got := ints(t, resp, "OUT")[0]; got != v || resp.ID != "x" {
				t.Errorf("answer %d to %d", got, v)
			}
			if took := time.Since(start); took != want {
				t.Errorf("request %d took %v, want %v", v, took, want)
			}
			resp.Release()
		}
		once(1, 10*time.Millisecond)
		once(1, 0)
		once(2, 10*time.Millisecond)
		once(1, 0)
		for v := range int32(5) {
			once(10+v, 10*time.Millisecond)
		}
		once(1, 10*time.Millisecond) // gave way to newer ones
		synctest.Wait()
		s, err := r.Statistics("a", 1)
		if err != nil {
			t.Fatal(err)
		}
		st := s[0].GetInferenceStats()
		if st.GetCacheHit().GetCount() != 2 || st.GetCacheMiss().GetCount() != 8 || st.GetSuccess().GetCount() != 10 || s[0].GetInferenceCount() != 8 {
			t.Errorf("statistics %v", s[0])
		}
	})
}
