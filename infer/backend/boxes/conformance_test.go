package boxes

import (
	"log/slog"
	"testing"

	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/tensor"
)

func TestX7Conformance(t *testing.T) {
	heads := append(exports()["yolox"].heads, double)
	backendtest.Run(t, backendtest.Case{
		Backend: New(), Model: &backend.Model{Name: "boxes", Config: configFor(t, heads), Logger: slog.New(slog.DiscardHandler)},
		Inputs: func(int) []tensor.Tensor { return heads },
	})
}
