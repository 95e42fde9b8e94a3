// Package ensemble serves a graph of models as if it were one model: a tensor
// that one step makes is what another step waits for.
//
// Steps are ordinary requests through the door of the server, so each model's
// own scheduler batches them with whatever else it has. What the steps of one
// sequence must not lose is order: a request with a correlation id takes a
// ticket for every step with state when it is admitted, and these steps run in
// the order of the tickets.
package ensemble

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// Config says what an ensemble is made of.
type Config struct {
	// Model is the normalised configuration with ensemble_scheduling. New sets
	// its transaction policy to decoupled if a step is.
	Model *inference.ModelConfig
	// Lookup describes the models of the steps.
	Lookup func(name string, version int64) (*infer.ModelInfo, error)
	// Inferer runs the steps. With a method SubmitWaiting it can do so on the
	// goroutine of a caller that waits.
	Inferer infer.Inferer
}

// Ensemble is a graph ready to run. It is an infer.Inferer for requests that
// have been validated against the ensemble's own inputs and outputs.
type Ensemble struct {
	name      string
	submit    submit
	inline    submit // for a caller that waits
	batched   bool   // tensors have a batch dimension
	decoupled bool
	limit     int // responses of a decoupled step under way; 0: no limit

	tensors []string // by number
	inputs  map[string]int
	outputs []output
	steps   []step
	// dispensable are the tensors that every step can do without.
	dispensable []bool

	flights sync.Pool
	tickets tickets
}

// submit is how a step is handed to its model.
type submit func(context.Context, *infer.Request, func(infer.Reply)) error

// driver is an Inferer that can run a request on the goroutine of a caller that
// waits anyway.
type driver interface {
	SubmitWaiting(ctx context.Context, req *infer.Request, reply func(infer.Reply)) error
}

// output is an output of the ensemble and the tensor it is.
type output struct {
	name   string
	tensor int
	dims   []int64
}

// step is one model of the graph.
type step struct {
	model     string
	version   int64
	batched   bool
	stateful  bool
	decoupled bool
	inputs    []binding
	outputs   []binding
	// source is the decoupled step it is behind, -1 if none: it runs once for
	// each response of that one.
	source int
	// feeds are the outputs of the ensemble that depend on the step.
	feeds []int
	info  *infer.ModelInfo
}

// binding joins a tensor of the graph to an input or output of a model.
type binding struct {
	port   string
	tensor int
	dims   []int64 // of an input, without the batch
}

// New checks the graph and prepares it.
func New(cfg Config) (*Ensemble, error) {
	e := &Ensemble{
		name: cfg.Model.GetName(), submit: cfg.Inferer.Submit, inline: cfg.Inferer.Submit, batched: cfg.Model.GetMaxBatchSize() > 0,
		limit: int(cfg.Model.GetEnsembleScheduling().GetMaxInflightRequests()), inputs: make(map[string]int),
	}
	if d, ok := cfg.Inferer.(driver); ok {
		e.inline = d.SubmitWaiting
	}
	infos, err := check(cfg)
	if err != nil {
		return nil, err
	}
	for _, in := range cfg.Model.GetInput() {
		e.inputs[in.GetName()] = e.number(in.GetName())
	}
	for i, s := range cfg.Model.GetEnsembleScheduling().GetStep() {
		st := step{
			model: s.GetModelName(), version: s.GetModelVersion(), info: infos[i],
			batched: infos[i].Config.GetMaxBatchSize() > 0, decoupled: infos[i].Decoupled,
			stateful: infos[i].Config.GetSequenceBatching() != nil,
		}
		st.inputs = e.bindings(s.GetInputMap())
		for k := range st.inputs {
			st.inputs[k].dims = configured(infos[i].Config, st.inputs[k].port).GetDims()
		}
		st.outputs = e.bindings(s.GetOutputMap())
		e.decoupled = e.decoupled || st.decoupled
		e.steps = append(e.steps, st)
	}
	for _, out := range cfg.Model.GetOutput() {
		e.outputs = append(e.outputs, output{out.GetName(), e.number(out.GetName()), inner(out.GetDims(), out.GetReshape())})
	}
	for i := range e.outputs {
		e.trace(i)
	}
	e.dispense()
	if err := e.sources(); err != nil {
		return nil, err
	}
	if e.decoupled {
		cfg.Model.ModelTransactionPolicy = &inference.ModelTransactionPolicy{Decoupled: true}
	}
	return e, nil
}

func configured(cfg *inference.ModelConfig, input string) *inference.ModelInput {
	for _, in := range cfg.GetInput() {
		if in.GetName() == input {
			return in
		}
	}
	return nil // cannot be: check looked
}

// dispense finds the tensors that nobody misses: all who read one have it as an
// optional input, and the answer does not have it.
func (e *Ensemble) dispense() {
	e.dispensable = make([]bool, len(e.tensors))
	for i := range e.dispensable {
		e.dispensable[i] = true
	}
	for i := range e.steps {
		for _, b := range e.steps[i].inputs {
			if !configured(e.steps[i].info.Config, b.port).GetOptional() {
				e.dispensable[b.tensor] = false
			}
		}
	}
	for _, o := range e.outputs {
		e.dispensable[o.tensor] = false
	}
}

// number is the place of a tensor, made if need be.
func (e *Ensemble) number(name string) int {
	if i := slices.Index(e.tensors, name); i >= 0 {
		return i
	}
	e.tensors = append(e.tensors, name)
	return len(e.tensors) - 1
}

func (e *Ensemble) bindings(ports map[string]string) []binding {
	var out []binding
	for port, name := range ports {
		out = append(out, binding{port: port, tensor: e.number(name)})
	}
	slices.SortFunc(out, func(a, b binding) int { return strings.Compare(a.port, b.port) })
	return out
}

// trace notes the steps that an output of the ensemble needs.
func (e *Ensemble) trace(out int) {
	need := []int{e.outputs[out].tensor}
	for len(need) > 0 {
		t := need[0]
		need = need[1:]
		for i := range e.steps {
			s := &e.steps[i]
			makes := slices.ContainsFunc(s.outputs, func(b binding) bool { return b.tensor == t })
			if !makes || slices.Contains(s.feeds, out) {
				continue
			}
			s.feeds = append(s.feeds, out)
			for _, b := range s.inputs {
				need = append(need, b.tensor)
			}
		}
	}
}

// sources finds for every step the decoupled one that it is behind. A chain of
// them counts by its last; two side by side cannot be joined, since nothing
// says which responses belong together.
func (e *Ensemble) sources() error {
	made := make([]int, len(e.tensors)) // by which decoupled step, -1: none
	for i := range made {
		made[i] = -1
	}
	for i := range e.steps {
		e.steps[i].source = -1
	}
	for range e.steps { // a path has no more steps than there are
		for i := range e.steps {
			s := &e.steps[i]
			for _, b := range s.inputs {
				m := made[b.tensor]
				switch {
				case m < 0 || m == s.source:
				case s.source < 0 || e.behind(m, s.source):
					s.source = m
				case !e.behind(s.source, m):
					return fmt.Errorf("in ensemble %s, step of model '%s' receives inputs originated from different decoupled models: '%s' and '%s'",
						e.name, s.model, e.steps[m].model, e.steps[s.source].model)
				}
			}
			for _, b := range s.outputs {
				made[b.tensor] = s.source
				if s.decoupled {
					made[b.tensor] = i
				}
			}
		}
	}
	return nil
}

// behind tells whether step a comes after the decoupled step b.
func (e *Ensemble) behind(a, b int) bool {
	for n := 0; a >= 0 && n <= len(e.steps); n++ {
		if a = e.steps[a].source; a == b {
			return true
		}
	}
	return false
}

// Stale tells whether a step's model is not the one that the graph was checked
// with.
func (e *Ensemble) Stale(lookup func(name string, version int64) (*infer.ModelInfo, error)) bool {
	return slices.ContainsFunc(e.steps, func(s step) bool {
		now, err := lookup(s.model, s.version)
		return err == nil && now.Config != s.info.Config
	})
}

// Submit implements infer.Inferer.
func (e *Ensemble) Submit(ctx context.Context, req *infer.Request, reply func(infer.Reply)) error {
	f := e.newFlight(ctx, req, reply)
	f.admit() //nolint:contextcheck // the flight carries it
	return nil
}

// SubmitWaiting is Submit for a caller that waits for the answer: steps run on
// its goroutine where their models are idle.
func (e *Ensemble) SubmitWaiting(ctx context.Context, req *infer.Request, reply func(infer.Reply)) error {
	if e.decoupled {
		return e.Submit(ctx, req, reply)
	}
	f := e.newFlight(ctx, req, reply)
	f.drive() //nolint:contextcheck // the flight carries it
	return nil
}
