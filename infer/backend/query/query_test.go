package query_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/backend/query"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const config = `input { name: "INPUT" data_type: TYPE_UINT8 dims: [ -1 ] }
output [ { name: "OUTPUT0" data_type: TYPE_UINT8 dims: [ -1 ] }, { name: "OUTPUT1" data_type: TYPE_UINT8 dims: [ -1 ] } ]
`

func model(t *testing.T, extra string) *backend.Model {
	t.Helper()
	cfg, err := modelconfig.Parse([]byte(config + extra))
	if err != nil {
		t.Fatal(err)
	}
	return &backend.Model{Name: "query", Version: 1, Config: cfg}
}

func TestX7Conformance(t *testing.T) {
	backendtest.Run(t, backendtest.Case{
		Backend: query.Backend{},
		Model:   model(t, `parameters { key: "byte_size" value { string_value: "4" } }`),
		Inputs: func(int) []tensor.Tensor {
			return []tensor.Tensor{{Name: "INPUT", DataType: tensor.Uint8, Shape: []int64{1}, Data: []byte{0}}}
		},
		Check: func(t *testing.T, i int, responses []*infer.Response) {
			t.Helper()
			if out := responses[0].Output("OUTPUT1"); string(out.Data) != "\x00\x00\x00\x00" {
				t.Errorf("request %d: %q", i, out.Data)
			}
		},
	})
}

// asker receives the answer to one job.
type asker struct {
	backend.Owner
	err error
}

func (a *asker) Fail(_ *backend.Job, err error) { a.err = err }

func TestX7ItTellsWhereOutputsGo(t *testing.T) {
	in, err := query.Backend{}.NewInstance(t.Context(), model(t, ""), backend.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	a := new(asker)
	in.Execute(t.Context(), []*backend.Job{{Request: new(infer.Request), Batch: 1, Owner: a}})
	if a.err == nil || a.err.Error() != "OUTPUT0 CPU 0; OUTPUT1 CPU 0; " || infer.CodeOf(a.err) != infer.Unknown {
		t.Errorf("answer %v", a.err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	for _, size := range []string{"-1", "x", "9999999999"} {
		m := model(t, `parameters { key: "byte_size" value { string_value: "`+size+`" } }`)
		if _, err := (query.Backend{}).NewInstance(t.Context(), m, backend.Placement{}); err == nil {
			t.Errorf("size %s is taken", size)
		}
	}
}
