package repository_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

// ledger checks on the model's side what schedulers promise about sequences:
// one request at a time, in order, START first, END last, each ended once.
type ledger struct{ t *testing.T }

func (l ledger) Complete(context.Context, *backend.Model) error { return nil }

func (l ledger) NewInstance(context.Context, *backend.Model, backend.Placement) (backend.Instance, error) {
	return &ledgerInstance{t: l.t, last: map[uint64]int32{}}, nil
}

type ledgerInstance struct {
	t    *testing.T
	last map[uint64]int32
	busy bool
}

func (l *ledgerInstance) Execute(_ context.Context, jobs []*backend.Job) {
	if l.busy {
		l.t.Error("two executions of one instance at once")
	}
	l.busy = true
	time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
	for _, j := range jobs {
		r := j.NewResponse()
		if !j.Null {
			n := tensor.View[int32](j.Input("INPUT").Data)[0]
			last, known := l.last[j.Sequence]
			if j.Start == known || n != last+1 {
				l.t.Errorf("sequence %d: request %d (start %v) after %d (known %v)", j.Sequence, n, j.Start, last, known)
			}
			l.last[j.Sequence] = n
		}
		copy(r.Add("OUTPUT", tensor.Int32, j.Input("INPUT").Shape, 4), j.Input("INPUT").Data)
		j.Respond(r)
	}
	l.busy = false
}

func (l *ledgerInstance) EndSequence(sequence uint64, cause backend.Cause) {
	if _, known := l.last[sequence]; !known {
		l.t.Errorf("sequence %d, of which nothing was seen, ended: %s", sequence, cause)
	}
	delete(l.last, sequence)
}

func (l *ledgerInstance) Close() error {
	if len(l.last) > 0 {
		l.t.Errorf("%d sequences never ended", len(l.last))
	}
	return nil
}

func TestS4SequencesAtRandomKeepTheirPromises(t *testing.T) {
	model := `backend: "ledger" max_batch_size: 3 instance_group { count: 2 kind: KIND_CPU }
input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
sequence_batching { max_sequence_idle_microseconds: 60000000 %s }`
	strategies := map[string]string{
		"direct": "direct { }", "delayed": "direct { max_queue_delay_microseconds: 3000 minimum_slot_utilization: 0.7 }",
		"oldest": "oldest { max_candidate_sequences: 4 }", "patient": "oldest { max_candidate_sequences: 4 max_queue_delay_microseconds: 3000 }",
	}
	f := files{}
	for name, s := range strategies {
		f[name+"/config.pbtxt"], f[name+"/1/keep"] = fmt.Sprintf(model, s), ""
	}
	root := write(t, f)
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: map[string]backend.Backend{"ledger": ledger{t}}})
		var wg, late sync.WaitGroup
		for name := range strategies {
			for client := range 12 {
				wg.Go(func() {
					for range 15 {
						randomSequence(t, r, &late, name, uint64(client+1))
					}
				})
			}
		}
		wg.Wait()
		late.Wait()
		if list := r.Sequences(); len(list) != 0 {
			t.Errorf("%d sequences are open: %+v", len(list), list)
		}
	})
}

// randomSequence sends a sequence without waiting for answers.
func randomSequence(t *testing.T, r *repository.Repository, late *sync.WaitGroup, model string, id uint64) {
	n := 1 + rand.IntN(6)
	var wg sync.WaitGroup
	for i := range n {
		req := &infer.Request{
			Model: model, Correlation: infer.CorrelationID{Num: id}, SequenceStart: i == 0, SequenceEnd: i == n-1,
			Inputs: []tensor.Tensor{numbers("INPUT", true, int32(i+1))},
		}
		wg.Add(1)
		err := r.Submit(t.Context(), req, func(rep infer.Reply) {
			if rep.Err != nil {
				t.Errorf("%s: request %d of sequence %d failed: %v", model, i, id, rep.Err)
			} else if got := ints(t, rep.Response, "OUTPUT")[0]; got != int32(i+1) {
				t.Errorf("%s: request %d of sequence %d got the answer of %d", model, i, id, got)
			}
			rep.Response.Release()
			wg.Done()
		})
		if err != nil {
			t.Errorf("%s: request %d of sequence %d was refused: %v", model, i, id, err)
			wg.Done()
		}
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
	}
	if rand.IntN(2) == 0 {
		wg.Wait()
	} else {
		late.Go(wg.Wait) // the next sequence may come under the same id before
	}
}
