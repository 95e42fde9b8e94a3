package v2grpc

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/race"
)

// FuzzParseAgreesWithProtobuf compares the hand-written parser with the library's on anything.
func FuzzParseAgreesWithProtobuf(f *testing.F) {
	seed := &inference.ModelInferRequest{
		ModelName: "m", ModelVersion: "1", Id: "id",
		Parameters: map[string]*inference.InferParameter{
			"a": {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: true}},
			"b": {ParameterChoice: &inference.InferParameter_DoubleParam{DoubleParam: -1.5}},
			"c": {ParameterChoice: &inference.InferParameter_StringParam{StringParam: "x"}},
			"d": {},
		},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{
			{Name: "x", Datatype: "FP32", Shape: []int64{1, -1}, Contents: &inference.InferTensorContents{Fp32Contents: []float32{1, 2}}},
			{Name: "y", Datatype: "BYTES", Contents: &inference.InferTensorContents{BytesContents: [][]byte{[]byte("q")}}},
		},
		Outputs:          []*inference.ModelInferRequest_InferRequestedOutputTensor{{Name: "o"}},
		RawInputContents: [][]byte{{1, 2, 3}, {}},
	}
	b, err := proto.Marshal(seed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x2a, 0x04, 0x1a, 0x02, 0x80, 0x01})
	f.Add([]byte{0x0a, 0x01, 0xff})
	f.Fuzz(func(t *testing.T, msg []byte) {
		s := New(Config{})
		c := s.newCall()
		defer c.free()
		err := codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(msg)}, c)
		var want inference.ModelInferRequest
		wantErr := proto.Unmarshal(msg, &want)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("got %v, protobuf says %v", err, wantErr)
		}
		if err == nil {
			compare(t, c, &want)
		}
	})
}

func compare(t *testing.T, c *call, want *inference.ModelInferRequest) {
	t.Helper()
	if c.model != want.GetModelName() || c.version != want.GetModelVersion() || c.id != want.GetId() {
		t.Fatalf("got %q %q %q, want %v", c.model, c.version, c.id, want)
	}
	compareParams(t, c.params, want.GetParameters())
	if len(c.inputs) != len(want.GetInputs()) || len(c.outputs) != len(want.GetOutputs()) || !slices.EqualFunc(c.raw, want.GetRawInputContents(), bytes.Equal) {
		t.Fatalf("got %d inputs, %d outputs, %d raw, want %v", len(c.inputs), len(c.outputs), len(c.raw), want)
	}
	for i, in := range c.inputs {
		w := want.GetInputs()[i]
		if in.name != w.GetName() || in.datatype != w.GetDatatype() || !slices.Equal(in.shape, w.GetShape()) || in.hasContents != (w.Contents != nil) {
			t.Fatalf("input %d: got %+v, want %v", i, in, w)
		}
		compareParams(t, c.allParams[in.params[0]:in.params[1]], w.GetParameters())
		compareContents(t, in.contents, w.GetContents())
	}
	for i, out := range c.outputs {
		w := want.GetOutputs()[i]
		if out.name != w.GetName() {
			t.Fatalf("output %d: got %+v, want %v", i, out, w)
		}
		compareParams(t, c.allParams[out.params[0]:out.params[1]], w.GetParameters())
	}
}

func compareParams(t *testing.T, got []param, want map[string]*inference.InferParameter) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d parameters, want %d", len(got), len(want))
	}
	for _, p := range got {
		var v any
		switch c := want[p.key].GetParameterChoice().(type) {
		case *inference.InferParameter_BoolParam:
			v = c.BoolParam
		case *inference.InferParameter_Int64Param:
			v = c.Int64Param
		case *inference.InferParameter_StringParam:
			v = c.StringParam
		case *inference.InferParameter_DoubleParam:
			v = math.Float64bits(c.DoubleParam)
		case *inference.InferParameter_Uint64Param:
			v = c.Uint64Param
		}
		value := p.value()
		if d, ok := value.(float64); ok {
			value = math.Float64bits(d)
		}
		if value != v {
			t.Fatalf("parameter %q: got %v, want %v", p.key, value, v)
		}
	}
}

func compareContents(t *testing.T, got []byte, want *inference.InferTensorContents) {
	t.Helper()
	n := len(want.GetBoolContents()) + len(want.GetIntContents()) + len(want.GetInt64Contents()) + len(want.GetUintContents()) +
		len(want.GetUint64Contents()) + len(want.GetFp32Contents()) + len(want.GetFp64Contents()) + len(want.GetBytesContents())
	if size := contentSize(got, tensor.Uint8); size != n {
		t.Fatalf("got %d elements, want %d", size, n)
	}
	if f := want.GetFp32Contents(); len(f) == n && n > 0 {
		b := make([]byte, contentSize(got, tensor.FP32))
		putContents(b, got, tensor.FP32)
		if !bytes.Equal(b, tensor.AsBytes(f)) {
			t.Fatalf("got %v, want %v", b, f)
		}
	}
	if e := want.GetBytesContents(); len(e) == n && n > 0 {
		b := make([]byte, contentSize(got, tensor.Bytes))
		putContents(b, got, tensor.Bytes)
		i := 0
		for v, err := range tensor.Elements(b) {
			if err != nil || !bytes.Equal(v, e[i]) {
				t.Fatalf("element %d: got %q, want %q, %v", i, v, e[i], err)
			}
			i++
		}
	}
}

func TestWarmParseAllocatesNothingThatGrows(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's pools forget; the run without it counts")
	}
	msg, err := proto.Marshal(&inference.ModelInferRequest{
		ModelName: "m", Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{1, 4}}},
		RawInputContents: [][]byte{make([]byte, 1<<16)},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Pool: new(tensor.Pool)})
	data := mem.BufferSlice{mem.SliceBuffer(msg[:100]), mem.SliceBuffer(msg[100:])}
	n := testing.AllocsPerRun(100, func() {
		c := s.newCall()
		if err := (codec{}).Unmarshal(data, c); err != nil {
			t.Fatal(err)
		}
		c.free()
	})
	if n > 1 {
		t.Errorf("%v allocations a request", n)
	}
}
