package ensemble_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/ensemble"
	"github.com/vedette/vedette/infer/tensor"
)

// straight runs what a waiting caller brings at once, and what others bring
// when the test says so.
type straight struct {
	log    []string
	depth  int
	parked []func()
	fail   string // a model that fails
}

func (s *straight) Submit(_ context.Context, req *infer.Request, reply func(infer.Reply)) error {
	s.log = append(s.log, "elsewhere "+req.Model)
	s.parked = append(s.parked, func() { s.answer(req, reply) })
	return nil
}

func (s *straight) SubmitWaiting(_ context.Context, req *infer.Request, reply func(infer.Reply)) error {
	s.log = append(s.log, fmt.Sprint("here ", req.Model, " ", s.depth))
	s.depth++
	defer func() { s.depth-- }()
	if req.Model == s.fail {
		return infer.Errorf(infer.Unavailable, "no room")
	}
	s.answer(req, reply)
	return nil
}

func (s *straight) answer(req *infer.Request, reply func(infer.Reply)) {
	r := infer.NewResponse(nil, nil)
	r.AddView("OUT", tensor.Int32, req.Inputs[0].Shape, req.Inputs[0].Data)
	reply(infer.Reply{Response: r, Final: true})
}

// diamond opens an ensemble of a, then b and c side by side, then d.
func diamond(t *testing.T, s *straight) *ensemble.Ensemble {
	t.Helper()
	d := &door{t: t, models: map[string]*infer.ModelInfo{}}
	var steps []string
	for _, f := range []string{"a A x", "b x y", "c x z", "d y,z B"} {
		p := strings.Fields(f)
		var ports, maps string
		for i, in := range strings.Split(p[1], ",") {
			ports += fmt.Sprintf(` input { name: "I%d" data_type: TYPE_INT32 dims: [ 1 ] }`, i)
			maps += fmt.Sprintf(` input_map { key: "I%d" value: %q }`, i, in)
		}
		d.model(fmt.Sprintf(`name: %q %s output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }`, p[0], ports))
		steps = append(steps, fmt.Sprintf(`step { model_name: %q %s output_map { key: "OUT" value: %q } }`, p[0], maps, p[2]))
	}
	cfg := new(inference.ModelConfig)
	text := `name: "e" platform: "ensemble" input { name: "A" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "B" data_type: TYPE_INT32 dims: [ 1 ] }
ensemble_scheduling { ` + strings.Join(steps, "\n") + " }"
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	e, err := ensemble.New(ensemble.Config{Model: cfg, Lookup: d.lookup, Inferer: s})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func one() *infer.Request {
	return &infer.Request{Inputs: []tensor.Tensor{{Name: "A", DataType: tensor.Int32, Shape: []int64{1}, Data: make([]byte, 4)}}}
}

func TestS11ACallerThatWaitsRunsTheStepsItself(t *testing.T) {
	s := new(straight)
	e := diamond(t, s)
	for range 3 { // flights are used again
		got := make(chan string, 1)
		if err := e.SubmitWaiting(t.Context(), one(), func(r infer.Reply) {
			got <- fmt.Sprint(r.Err, " ", len(r.Response.Outputs))
			r.Response.Release()
		}); err != nil {
			t.Fatal(err)
		}
		// Of two steps side by side the caller runs one, and waits for no other.
		expect(t, "steps", strings.Join(s.log, "; "), "here a 0; elsewhere b; here c 0")
		s.parked[0]()
		s.parked[1]()
		expect(t, "steps", strings.Join(s.log, "; "), "here a 0; elsewhere b; here c 0; elsewhere d")
		expect(t, "outcome", <-got, "<nil> 1")
		s.log, s.parked = nil, nil
	}
}

func TestS11AStepRefusedToACallerThatWaitsEndsTheRequest(t *testing.T) {
	s := &straight{fail: "c"}
	e := diamond(t, s)
	got := make(chan error, 1)
	if err := e.SubmitWaiting(t.Context(), one(), func(r infer.Reply) { got <- r.Err }); err != nil {
		t.Fatal(err)
	}
	s.parked[0]()
	if err := <-got; infer.CodeOf(err) != infer.Unavailable || err.Error() != "in ensemble 'e', no room" {
		t.Errorf("outcome %v", err)
	}
	expect(t, "steps", strings.Join(s.log, "; "), "here a 0; elsewhere b; here c 0")
}
