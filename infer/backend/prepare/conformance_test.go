package prepare

import (
	"log/slog"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/tensor"
)

func TestX7Conformance(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		prefix []int64
	}{
		"without a batch dimension": {yolox, nil}, "with one": {"max_batch_size: 1 " + yolox, []int64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &inference.ModelConfig{}
			if err := prototext.Unmarshal([]byte(c.config), cfg); err != nil {
				t.Fatal(err)
			}
			backendtest.Run(t, backendtest.Case{
				Backend: New(), Model: &backend.Model{Name: "prepare", Config: cfg, Logger: slog.New(slog.DiscardHandler)},
				Inputs: func(i int) []tensor.Tensor {
					info := frame.Info{Format: frame.NV12, Width: 32 + 2*i, Height: 24}
					pix, values := make([]byte, info.Format.Size(info.Width, info.Height)), info.Values()
					shape := func(n int) []int64 { return append(append([]int64(nil), c.prefix...), int64(n)) }
					return []tensor.Tensor{
						{Name: "FRAME", DataType: tensor.Uint8, Shape: shape(len(pix)), Data: pix},
						{Name: "FRAME_INFO", DataType: tensor.Int64, Shape: shape(frame.InfoLen), Data: tensor.AsBytes(values[:])},
					}
				},
			})
		})
	}
}
