package repository_test

import (
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
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), RateLimit: true, Resources: map[string]int{"R": 4}})
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
