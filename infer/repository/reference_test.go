package repository_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend/iterative"
	"github.com/vedette/vedette/infer/backend/square"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

// stream submits a request to a decoupled model and tells what came.
func stream(t *testing.T, r *repository.Repository, req *infer.Request, output string) (got []string) {
	t.Helper()
	end := make(chan struct{})
	if err := r.Submit(t.Context(), req, func(rep infer.Reply) {
		switch {
		case rep.Response != nil:
			got = append(got, fmt.Sprint(ints(t, rep.Response, output)[0]))
			rep.Response.Release()
		case rep.Err != nil:
			got = append(got, rep.Err.Error())
		}
		if rep.Final {
			close(end)
		}
	}); err != nil {
		t.Fatal(err)
	}
	<-end
	return got
}

const squareModel = `backend: "square" input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
model_transaction_policy { decoupled: %t }
`

func TestX1AndX7ResponsesThatFailOrAreEmptyAreCountedByPlace(t *testing.T) {
	root := write(t, files{
		"s/config.pbtxt": fmt.Sprintf(squareModel, true) + parameter("CUSTOM_INFER_DELAY_NS", "400000000") + parameter("CUSTOM_OUTPUT_DELAY_NS", "200000000") +
			parameter("CUSTOM_FAIL_COUNT", "2") + parameter("CUSTOM_EMPTY_COUNT", "1"), "s/1/keep": "",
		"e/config.pbtxt": `platform: "ensemble" input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
ensemble_scheduling { step { model_name: "s" input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } }`, "e/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		b := references()
		b["square"] = square.Backend{}
		r := serve(t, repository.Config{Roots: []string{root}, Backends: b})
		type counts struct{ succeeded, failed, empty uint64 }
		var want []counts
		for _, n := range []int{4, 6, 3} {
			var answers []string
			for i := range n {
				if i == len(want) {
					want = append(want, counts{})
				}
				switch w := &want[i]; {
				case i < n-3:
					w.succeeded++
					answers = append(answers, fmt.Sprint(n))
				case i < n-1:
					w.failed++
					answers = append(answers, "simulated failure")
				default:
					w.empty++
				}
			}
			if got := stream(t, r, &infer.Request{Model: "s", Inputs: []tensor.Tensor{numbers("IN", false, int32(n))}}, "OUT"); fmt.Sprint(got) != fmt.Sprint(answers) {
				t.Errorf("%d: answered %q", n, got)
			}
		}
		s, err := r.Statistics("s", 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(s[0].GetResponseStats()) != len(want) {
			t.Errorf("statistics of %d responses, want %d", len(s[0].GetResponseStats()), len(want))
		}
		const compute, output = uint64(400 * time.Millisecond), uint64(200 * time.Millisecond)
		for i, w := range want {
			st := s[0].GetResponseStats()[fmt.Sprint(i)]
			sent := w.succeeded + w.failed
			for name, c := range map[string]struct {
				got         interface{ GetCount() uint64 }
				ns          uint64
				count, each uint64
			}{
				"compute_infer":  {st.GetComputeInfer(), st.GetComputeInfer().GetNs(), sent + w.empty, compute},
				"compute_output": {st.GetComputeOutput(), st.GetComputeOutput().GetNs(), sent, output},
				"success":        {st.GetSuccess(), st.GetSuccess().GetNs(), w.succeeded, compute + output},
				"fail":           {st.GetFail(), st.GetFail().GetNs(), w.failed, compute + output},
				"empty_response": {st.GetEmptyResponse(), st.GetEmptyResponse().GetNs(), w.empty, compute},
			} {
				if c.got.GetCount() != c.count || c.ns != c.count*c.each {
					t.Errorf("response %d: %s is %d in %d ns, want %d of %d ns", i, name, c.got.GetCount(), c.ns, c.count, c.each)
				}
			}
		}
		got := stream(t, r, &infer.Request{Model: "e", Inputs: []tensor.Tensor{numbers("IN", false, 4)}}, "OUT")
		if len(got) == 0 || got[len(got)-1] != "in ensemble 'e', simulated failure" {
			t.Errorf("an ensemble made of a response that failed %q", got)
		}
	})
}

func TestS12AndX7ReferenceModelsNeedNotBeDecoupled(t *testing.T) {
	root := write(t, files{
		"s/config.pbtxt": fmt.Sprintf(squareModel, false), "s/1/keep": "",
		"r/config.pbtxt": `backend: "repeat"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] }, { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]`, "r/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		b := references()
		b["square"] = square.Backend{}
		r := serve(t, repository.Config{Roots: []string{root}, Backends: b})
		u32 := func(name string, v ...uint32) tensor.Tensor {
			return tensor.Tensor{Name: name, DataType: tensor.Uint32, Shape: []int64{int64(len(v))}, Data: tensor.AsBytes(v)}
		}
		for _, c := range []struct {
			model  string
			inputs []tensor.Tensor
			want   string // of OUT, or the error
		}{
			{"s", []tensor.Tensor{numbers("IN", false, 1)}, "1"},
			{"s", []tensor.Tensor{numbers("IN", false, 3)}, "expected a single response, got 3"},
			{"r", []tensor.Tensor{numbers("IN", false, 7), u32("DELAY", 1), u32("WAIT", 1)}, "7"},
			{"r", []tensor.Tensor{numbers("IN", false, 7, 8), u32("DELAY", 1, 1), u32("WAIT", 1)}, "expected a single response, got 2"},
			{"r", []tensor.Tensor{numbers("IN", false, 7), u32("DELAY", 1, 1), u32("WAIT", 1)}, "expected IN and DELAY shape to match, got [1] and [2]"},
		} {
			resp, err := infer.Do(t.Context(), r, &infer.Request{Model: c.model, Inputs: c.inputs})
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprint(ints(t, resp, "OUT")[0])
				resp.Release()
			}
			if got != c.want {
				t.Errorf("%s answered %q, want %q", c.model, got, c.want)
			}
		}
	})
}

func TestS9OnlyIterativeSequencesAreExecutedAgain(t *testing.T) {
	model := `backend: "iterative_sequence" max_batch_size: 1
input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
model_transaction_policy { decoupled: true } `
	root := write(t, files{
		"direct/config.pbtxt": model + "sequence_batching { direct { } }", "direct/1/keep": "",
		"oldest/config.pbtxt": model + "sequence_batching { oldest { max_candidate_sequences: 2 } }", "oldest/1/keep": "",
		"dynamic/config.pbtxt": model + "dynamic_batching { }", "dynamic/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		b := references()
		b["iterative_sequence"] = iterative.Backend{}
		r := serve(t, repository.Config{Roots: []string{root}, Backends: b})
		for _, m := range []string{"direct", "oldest", "dynamic"} {
			req := &infer.Request{Model: m, Inputs: []tensor.Tensor{numbers("INPUT", true, 2)}}
			if m != "dynamic" {
				req.Correlation, req.SequenceStart, req.SequenceEnd = infer.CorrelationID{Num: 1}, true, true
			}
			if got := stream(t, r, req, "OUTPUT"); len(got) != 1 || !strings.Contains(got[0], "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE") {
				t.Errorf("%s answered %q", m, got)
			}
		}
	})
}

func TestX7IdentityTellsWhatClientsAreTestedWith(t *testing.T) {
	model := strings.ReplaceAll(identityModel, "max_batch_size: 8", "max_batch_size: 0")
	root := write(t, files{
		"m/config.pbtxt": model + parameter("creation_delay_sec", "3") + parameter("execute_delay_ms", "10"), "m/1/keep": "",
		"f/config.pbtxt": strings.ReplaceAll(model, `output { name: "OUTPUT0" data_type: TYPE_INT32`, `output { name: "OUTPUT0" data_type: TYPE_FP32`), "f/1/keep": "",
		"without/config.pbtxt": model + parameter("response_parameters", "false"), "without/1/keep": "",
		"what/config.pbtxt": model + parameter("response_parameters", "x"), "what/1/keep": "",
		"n/config.pbtxt": strings.ReplaceAll(model, `"OUTPUT0"`, `"OUTPUT1"`), "n/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := serve(t, repository.Config{Roots: []string{root}})
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("loading took %v", took)
		}
		for _, want := range []string{
			"f 1 UNAVAILABLE expected input and output datatype to match, got TYPE_INT32 and TYPE_FP32",
			"n 1 UNAVAILABLE expected input and output indices to match",
			`what 1 UNAVAILABLE identity model 'what': parameter 'response_parameters' is "x", neither true nor false`,
		} {
			if got := index(r); !strings.Contains(got, want) {
				t.Errorf("index without %q:\n%s", want, got)
			}
		}
		start = time.Now()
		resp, err := infer.Do(t.Context(), r, &infer.Request{Model: "m", Inputs: []tensor.Tensor{numbers("INPUT0", false, 1)}})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Release()
		if p := resp.Parameters; p["param0"] != "an example string parameter" || p["param1"] != int64(42) || p["param2"] != false || p["param3"] != 123.123 {
			t.Errorf("parameters %v", p)
		}
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("an execution took %v", took)
		}
		without, err := infer.Do(t.Context(), r, &infer.Request{Model: "without", Inputs: []tensor.Tensor{numbers("INPUT0", false, 1)}})
		if err != nil {
			t.Fatal(err)
		}
		defer without.Release()
		if len(without.Parameters) > 0 {
			t.Errorf("parameters %v", without.Parameters)
		}
	})
}

func TestS14WhatCannotBeCachedIsTold(t *testing.T) {
	root := write(t, files{
		"large/config.pbtxt": echoModel + "response_cache { enable: true }", "large/1/keep": "",
		"d/config.pbtxt": fmt.Sprintf(squareModel, true) + "response_cache { enable: true }", "d/1/keep": "",
		"s/config.pbtxt": fmt.Sprintf(squareModel, true), "s/1/keep": "",
		"e/config.pbtxt": `platform: "ensemble" input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
ensemble_scheduling { step { model_name: "s" input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } } response_cache { enable: true }`, "e/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := withEcho()
		b["square"] = square.Backend{}
		r := serve(t, repository.Config{Roots: []string{root}, Backends: b, CacheBytes: 10, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for _, want := range []string{
			"d 1 UNAVAILABLE Response cache does not currently support model 'd' with 'decoupled' transaction policy",
			"e 1 UNAVAILABLE Response cache does not currently support ensemble 'e' with model 's' of 'decoupled' transaction policy",
		} {
			if got := index(r); !strings.Contains(got, want) {
				t.Errorf("index without %q:\n%s", want, got)
			}
		}
		for range 2 {
			if err := ask(t, r, "large"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		s, err := r.Statistics("large", 1)
		if err != nil {
			t.Fatal(err)
		}
		if st := s[0].GetInferenceStats(); st.GetCacheMiss().GetCount() != 2 || st.GetCacheHit().GetCount() != 0 {
			t.Errorf("statistics %v", st)
		}
		if n := strings.Count(log.String(), "failed to insert key into the response cache"); n != 1 {
			t.Errorf("told %d times:\n%s", n, log.String())
		}
	})
}
