package onnxruntime

import (
	"testing"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/tensor"
)

func TestX7Conformance(t *testing.T) {
	for name, config := range map[string]string{"batching": "", "one at a time": "max_batch_size: 1"} {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, backendtest.Case{
				Backend: New(Config{Library: library(t)}), Model: model(t, "addsub", config),
				Inputs: func(i int) []tensor.Tensor {
					return []tensor.Tensor{floats("A", []int64{1, 4}, float32(i), 1, 2, 3), floats("B", []int64{1, 4}, 1, 1, 1, 1)}
				},
				Check: func(t *testing.T, i int, responses []*infer.Response) {
					if o := responses[0].Output("SUM"); o != nil {
						want(t, responses[0], "SUM", []int64{1, 4}, float32(i)+1, 2, 3, 4)
					}
				},
			})
		})
	}
}
