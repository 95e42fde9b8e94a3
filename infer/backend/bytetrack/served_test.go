package bytetrack_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/server"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

// TestTheShippedRepositoryServesFrames starts the sidecar on models/ and goes a frame's whole way through the
// ensemble, the sequence opened and closed beside it.
func TestTheShippedRepositoryServesFrames(t *testing.T) {
	address, ready := make(chan string, 1), make(chan struct{})
	s, err := server.New(server.Config{
		Repository:  repository.Config{Roots: []string{filepath.Join("..", "..", "..", "models")}},
		ONNXRuntime: library(t), GRPC: "127.0.0.1:0",
		Ready: func() error { close(ready); return nil }, Listening: func(_ string, at net.Addr) { address <- at.String() },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	c, err := v2client.New(<-address, v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	ask := func(req *v2client.Request) *v2client.Response {
		t.Helper()
		req.Sequence = uint64(77)
		r, err := c.Infer(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	int64s := func(name string, v ...int64) v2client.Input {
		return v2client.Input{Tensor: tensor.Tensor{Name: name, DataType: tensor.Int64, Shape: []int64{1, int64(len(v))}, Data: tensor.AsBytes(v)}}
	}
	tick := func(at time.Duration, start, end bool) *v2client.Response {
		return ask(&v2client.Request{Model: "tracker", Start: start, End: end, Inputs: []v2client.Input{
			{Tensor: tensor.Tensor{Name: "BOXES", DataType: tensor.FP32, Shape: []int64{1, 0, 6}}},
			int64s("TIME", int64(at)),
			{Tensor: tensor.Tensor{Name: "OBSERVED", DataType: tensor.Bool, Shape: []int64{1, 1}, Data: []byte{0}}},
		}})
	}
	if o := tick(0, true, false).Output("TRACKS"); o == nil || !slices.Equal(o.Shape, []int64{1, 0, 8}) {
		t.Fatalf("opening answers %v", o)
	}
	info := frame.Info{Format: frame.I420, Width: 640, Height: 360}
	pixels, values := make([]byte, info.Format.Size(640, 360)), info.Values()
	for i := range 3 {
		r := ask(&v2client.Request{Model: "pipeline", Inputs: []v2client.Input{
			{Tensor: tensor.Tensor{Name: "FRAME", DataType: tensor.Uint8, Shape: []int64{1, int64(len(pixels))}, Data: pixels}},
			int64s("FRAME_INFO", values[:]...), int64s("TIME", int64(i+1)*int64(100*time.Millisecond)),
		}})
		for _, name := range []string{"BOXES", "TRACKS", "TRACK_ID"} {
			if r.Output(name) == nil {
				t.Errorf("frame %d has no %s", i, name)
			}
		}
	}
	tick(time.Second, false, true)
}
