package repeat_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/backend/repeat"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestX7Conformance(t *testing.T) {
	cfg, err := modelconfig.Parse([]byte(`input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] }, { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ] model_transaction_policy { decoupled: true }`))
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Run(t, backendtest.Case{
		Backend: repeat.Backend{},
		Model:   &backend.Model{Name: "m", Version: 1, Config: cfg},
		Inputs: func(i int) []tensor.Tensor {
			return []tensor.Tensor{
				{Name: "IN", DataType: tensor.Int32, Shape: []int64{3}, Data: tensor.AsBytes([]int32{7, 8, int32(i)})},
				{Name: "DELAY", DataType: tensor.Uint32, Shape: []int64{3}, Data: tensor.AsBytes([]uint32{1, 0, 2})},
				{Name: "WAIT", DataType: tensor.Uint32, Shape: []int64{1}, Data: tensor.AsBytes([]uint32{0})},
			}
		},
		Check: func(t *testing.T, i int, responses []*infer.Response) {
			t.Helper()
			if len(responses) != 3 || tensor.View[int32](responses[2].Output("OUT").Data)[0] != int32(i) {
				t.Errorf("request %d: %d responses", i, len(responses))
			}
		},
	})
}
