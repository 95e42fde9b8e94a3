package repository_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

func TestP13RequestsAreRefusedWithTheMessagesClientsMatch(t *testing.T) {
	root := write(t, files{
		"m/config.pbtxt": `backend: "echo" max_batch_size: 4
input [ { name: "A" data_type: TYPE_INT32 dims: [ 2 ] }, { name: "B" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 2 ] } ]`,
		"m/1/keep": "",
		"o/config.pbtxt": `backend: "echo"
input [ { name: "A" data_type: TYPE_INT32 dims: [ 2 ] }, { name: "B" data_type: TYPE_INT32 dims: [ 2 ] optional: true } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 2 ] } ]`,
		"o/1/keep": "",
	})
	a := tensor.Tensor{Name: "A", DataType: tensor.Int32, Shape: []int64{1, 2}, Data: make([]byte, 8)}
	b := tensor.Tensor{Name: "B", DataType: tensor.Bytes, Shape: []int64{1, 1}, Data: tensor.EncodeStrings("x")}
	with := func(t tensor.Tensor, f func(*tensor.Tensor)) tensor.Tensor { f(&t); return t }
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho()})
		if err := r.Loaded(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name string
			req  infer.Request
			want string
			code infer.Code
		}{
			{"an unknown model", infer.Request{Model: "x"}, "Request for unknown model: 'x' is not found", infer.NotFound},
			{"an unknown version", infer.Request{Model: "m", Version: 9}, "Request for unknown model: 'm' version 9 is not found", infer.NotFound},
			{
				"an unknown output",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{a, b}, Outputs: []infer.OutputSpec{{Name: "NO"}}},
				"[request id: <id_unknown>] unexpected inference output 'NO' for model 'm'", infer.InvalidArgument,
			},
			{
				"an output twice",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{a, b}, Outputs: []infer.OutputSpec{{Name: "OUT"}, {Name: "OUT"}}},
				"[request id: <id_unknown>] output 'OUT' already exists in request. Duplicate output name 'OUT' is not allowed in a request", infer.InvalidArgument,
			},
			{
				"a missing input",
				infer.Request{ID: "7", Model: "m", Inputs: []tensor.Tensor{a}},
				"[request id: 7] expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['A'], but missing required input(s) ['B']. Please provide all required input(s).",
				infer.InvalidArgument,
			},
			{
				"no input where some are optional",
				infer.Request{ID: "7", Model: "o"},
				"[request id: 7] expected number of inputs between 1 and 2 but got 0 inputs for model 'o'. Got input(s) [], but missing required input(s) ['A']. Please provide all required input(s).",
				infer.InvalidArgument,
			},
			{
				"an input twice",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{a, a}},
				"[request id: <id_unknown>] input 'A' already exists in request", infer.InvalidArgument,
			},
			{
				"an unknown input",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{a, with(b, func(t *tensor.Tensor) { t.Name = "C" })}},
				"[request id: <id_unknown>] unexpected inference input 'C' for model 'm'", infer.InvalidArgument,
			},
			{
				"another batch size",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{a, with(b, func(t *tensor.Tensor) { t.Shape = []int64{2, 1} })}},
				"[request id: <id_unknown>] input 'B' batch size does not match other inputs for 'm'", infer.InvalidArgument,
			},
			{
				"no batch dimension",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{with(a, func(t *tensor.Tensor) { t.Shape = nil }), b}},
				"[request id: <id_unknown>] input 'A' has no shape but model requires batch dimension for 'm'", infer.InvalidArgument,
			},
			{
				"a batch too large",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{
					with(a, func(t *tensor.Tensor) { t.Shape, t.Data = []int64{5, 2}, make([]byte, 40) }),
					with(b, func(t *tensor.Tensor) { t.Shape = []int64{5, 1} }),
				}},
				"[request id: <id_unknown>] inference request batch-size must be <= 4 for 'm'", infer.InvalidArgument,
			},
			{
				"another type",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{with(a, func(t *tensor.Tensor) { t.DataType = tensor.FP32 }), b}},
				"[request id: <id_unknown>] inference input 'A' data-type is 'FP32', but model 'm' expects 'INT32'", infer.InvalidArgument,
			},
			{
				"another shape",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{with(a, func(t *tensor.Tensor) { t.Shape = []int64{1, 3} }), b}},
				"[request id: <id_unknown>] unexpected shape for input 'A' for model 'm'. Expected [-1,2], got [1,3]. NOTE: Setting a non-zero max_batch_size",
				infer.InvalidArgument,
			},
			{
				"a negative dimension",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{a, with(b, func(t *tensor.Tensor) { t.Shape = []int64{1, -1} })}},
				"[request id: <id_unknown>] All input dimensions should be specified for input 'B' for model 'm', got [1,-1]", infer.InvalidArgument,
			},
			{
				"a negative batch dimension",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{a, with(b, func(t *tensor.Tensor) { t.Shape = []int64{-1, 1} })}},
				"[request id: <id_unknown>] All input dimensions should be specified for input 'B' for model 'm', got [-1,1]", infer.InvalidArgument,
			},
			{
				"too few bytes",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{with(a, func(t *tensor.Tensor) { t.Data = t.Data[:4] }), b}},
				"[request id: <id_unknown>] input byte size mismatch for input 'A' for model 'm'. Expected 8, got 4", infer.InvalidArgument,
			},
			{
				"too few strings",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{a, with(b, func(t *tensor.Tensor) { t.Data = nil })}},
				"[request id: <id_unknown>] expected 1 string elements for inference input 'B' for model 'm', got 0", infer.InvalidArgument,
			},
			{
				"a cut length",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{a, with(b, func(t *tensor.Tensor) { t.Data = []byte{1} })}},
				"[request id: <id_unknown>] incomplete string length indicator for inference input 'B' for model 'm'", infer.InvalidArgument,
			},
			{
				"a cut string",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{a, with(b, func(t *tensor.Tensor) { t.Data = []byte{9, 0, 0, 0, 1} })}},
				"[request id: <id_unknown>] incomplete string data for inference input 'B' for model 'm'", infer.InvalidArgument,
			},
			{
				"too many strings",
				infer.Request{Model: "m", Inputs: []tensor.Tensor{a, with(b, func(t *tensor.Tensor) { t.Data = tensor.EncodeStrings("a", "b") })}},
				"[request id: <id_unknown>] unexpected number of string elements 2 for inference input 'B' for model 'm', expecting 1", infer.InvalidArgument,
			},
		} {
			resp, err := infer.Do(t.Context(), r, &c.req)
			if err == nil {
				t.Errorf("%s: was answered", c.name)
				resp.Release()
				continue
			}
			if !strings.HasPrefix(err.Error(), c.want) || infer.CodeOf(err) != c.code {
				t.Errorf("%s:\n got %q (%v)\nwant %q (%v)", c.name, err, infer.CodeOf(err), c.want, c.code)
			}
		}
	})
}
