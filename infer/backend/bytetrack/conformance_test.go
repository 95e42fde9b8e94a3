package bytetrack_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/backend/bytetrack"
	"github.com/vedette/vedette/infer/tensor"
)

func TestX7Conformance(t *testing.T) {
	backendtest.Run(t, backendtest.Case{
		Backend: bytetrack.New(),
		Model:   &backend.Model{Name: "tracker", Config: &inference.ModelConfig{}, Logger: slog.New(slog.DiscardHandler)},
		Inputs: func(i int) []tensor.Tensor {
			return []tensor.Tensor{boxesTensor(walker(i)), timeTensor(time.Duration(i) * time.Second)}
		},
	})
}
