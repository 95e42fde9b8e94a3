package identity_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/backend/identity"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestX7Conformance(t *testing.T) {
	cfg, err := modelconfig.Parse([]byte(`max_batch_size: 4 input { name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] }`))
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Run(t, backendtest.Case{
		Backend: identity.New(),
		Model:   &backend.Model{Name: "m", Version: 1, Config: cfg},
		Inputs: func(i int) []tensor.Tensor {
			return []tensor.Tensor{
				{Name: "INPUT0", DataType: tensor.Int32, Shape: []int64{1, 1}, Data: tensor.AsBytes([]int32{int32(i)})},
			}
		},
		Check: func(t *testing.T, i int, responses []*infer.Response) {
			t.Helper()
			if got := tensor.View[int32](responses[0].Output("OUTPUT0").Data)[0]; len(responses) != 1 || got != int32(i) {
				t.Errorf("request %d: %d responses, value %v", i, len(responses), got)
			}
		},
	})
}
