package repository_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

var benchModels = files{
	"plain/config.pbtxt":  identityModel,
	"plain/1/keep":        "",
	"two/config.pbtxt":    identityModel + "instance_group { count: 2 kind: KIND_CPU }",
	"two/1/keep":          "",
	"oldest/config.pbtxt": fmt.Sprintf(sequenceModel, "oldest { max_candidate_sequences: 64 }"),
	"oldest/1/keep":       "",
	"direct/config.pbtxt": fmt.Sprintf(sequenceModel, "direct { }"),
	"direct/1/keep":       "",
	"chain/config.pbtxt": `platform: "ensemble" max_batch_size: 8
input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }
ensemble_scheduling { step [
  { model_name: "plain" input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "mid" } },
  { model_name: "two" input_map { key: "INPUT0" value: "mid" } output_map { key: "OUTPUT0" value: "OUT" } } ] }`,
	"chain/1/keep": "",
}

func BenchmarkDo(b *testing.B) {
	r := serve(b, repository.Config{Roots: []string{write(b, benchModels)}})
	for _, c := range []struct {
		model, input string
		seq          bool
	}{{"plain", "INPUT0", false}, {"two", "INPUT0", false}, {"direct", "INPUT", true}, {"oldest", "INPUT", true}, {"chain", "IN", false}} {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/clients=%d", c.model, clients), func(b *testing.B) {
				b.ReportAllocs()
				var wg sync.WaitGroup
				for k := range clients {
					wg.Go(func() {
						req := &infer.Request{Model: c.model, Inputs: []tensor.Tensor{numbers(c.input, true, 1)}}
						if c.seq {
							req.Correlation.Num = uint64(k + 1)
						}
						n := b.N / clients
						for i := range n {
							req.SequenceStart, req.SequenceEnd = c.seq && i == 0, c.seq && i == n-1
							resp, err := infer.Await(b.Context(), r, req)
							if err != nil {
								b.Error(err)
								return
							}
							resp.Release()
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

func BenchmarkSubmit(b *testing.B) {
	r := serve(b, repository.Config{Roots: []string{write(b, benchModels)}})
	req := &infer.Request{Model: "plain", Inputs: []tensor.Tensor{numbers("INPUT0", true, 1)}}
	b.ReportAllocs()
	done := make(chan struct{}, 1)
	reply := func(rep infer.Reply) {
		rep.Response.Release()
		done <- struct{}{}
	}
	for b.Loop() {
		if err := r.Submit(b.Context(), req, reply); err != nil {
			b.Fatal(err)
		}
		<-done
	}
}
