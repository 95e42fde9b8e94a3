package square_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/backend/square"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestX7Conformance(t *testing.T) {
	cfg, err := modelconfig.Parse([]byte(`input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } model_transaction_policy { decoupled: true }`))
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Run(t, backendtest.Case{
		Backend: square.Backend{},
		Model:   &backend.Model{Name: "m", Version: 1, Config: cfg},
		Inputs: func(i int) []tensor.Tensor {
			return []tensor.Tensor{
				{Name: "IN", DataType: tensor.Int32, Shape: []int64{1}, Data: tensor.AsBytes([]int32{int32(i)})},
			}
		},
		Check: func(t *testing.T, i int, responses []*infer.Response) {
			t.Helper()
			if len(responses) != i {
				t.Errorf("request %d: %d responses", i, len(responses))
			}
		},
	})
}
