//go:build !race

package repository_test

import (
	"testing"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

// The way of a request costs no allocation once pools are warm. (The race detector
// empties pools at random.)
func TestRequestsCostNoAllocation(t *testing.T) {
	r := serve(t, repository.Config{Roots: []string{write(t, benchModels)}})
	for _, model := range []string{"plain", "two"} {
		req := &infer.Request{Model: model, Inputs: []tensor.Tensor{numbers("INPUT0", true, 1)}}
		n := testing.AllocsPerRun(2000, func() {
			resp, err := infer.Await(t.Context(), r, req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Release()
		})
		// The collector may empty a pool once in a while.
		if n >= 1 {
			t.Errorf("%s: %v allocations a request", model, n)
		}
	}
}
