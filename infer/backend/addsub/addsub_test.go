package addsub

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestX7Conformance(t *testing.T) {
	cfg, err := modelconfig.Parse([]byte(`max_batch_size: 4 input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ 1 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 1 ] } ]`))
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Run(t, backendtest.Case{
		Backend: new(Backend),
		Model:   &backend.Model{Name: "m", Version: 1, Config: cfg},
		Inputs: func(i int) []tensor.Tensor {
			return []tensor.Tensor{
				{Name: "INPUT0", DataType: tensor.FP32, Shape: []int64{1, 1}, Data: tensor.AsBytes([]float32{float32(i)})},
				{Name: "INPUT1", DataType: tensor.FP32, Shape: []int64{1, 1}, Data: tensor.AsBytes([]float32{2})},
			}
		},
		Check: func(t *testing.T, i int, responses []*infer.Response) {
			t.Helper()
			if got := tensor.View[float32](responses[0].Output("OUTPUT1").Data)[0]; len(responses) != 1 || got != float32(i-2) {
				t.Errorf("request %d: %d responses, value %v", i, len(responses), got)
			}
		},
	})
}

func TestAPassiveInstanceSubtractsForTheOthers(t *testing.T) {
	b, m := new(Backend), &backend.Model{Name: "m"}
	open := func(index int, passive bool) *instance {
		in, err := b.NewInstance(t.Context(), m, backend.Placement{Index: index, Passive: passive})
		if err != nil {
			t.Fatal(err)
		}
		i, _ := in.(*instance)
		return i
	}
	active, helper := open(0, false), open(0, true)
	ask := func() {
		o := &backendtest.Owner{}
		numbers := func(name string, v ...int32) tensor.Tensor {
			return tensor.Tensor{Name: name, DataType: tensor.Int32, Shape: []int64{int64(len(v))}, Data: tensor.AsBytes(v)}
		}
		active.Execute(t.Context(), []*backend.Job{{Request: &infer.Request{}, Owner: o, Batch: 1, Inputs: []tensor.Tensor{numbers("INPUT0", 5, 7), numbers("INPUT1", 2, 9)}}})
		sum, difference := tensor.View[int32](o.Response.Output("OUTPUT0").Data), tensor.View[int32](o.Response.Output("OUTPUT1").Data)
		if !slices.Equal(sum, []int32{7, 16}) || !slices.Equal(difference, []int32{3, -2}) {
			t.Errorf("got %v and %v", sum, difference)
		}
	}
	ask()
	if helper.subtracted != 1 || active.subtracted != 0 {
		t.Errorf("the passive instance subtracted %d times, the active one %d times", helper.subtracted, active.subtracted)
	}
	if err := helper.Close(); err != nil {
		t.Error(err)
	}
	ask()
	if active.subtracted != 1 {
		t.Error("alone it does not subtract itself")
	}
	if err := active.Close(); err != nil || len(b.helpers) != 0 {
		t.Error(err, b.helpers)
	}
}
