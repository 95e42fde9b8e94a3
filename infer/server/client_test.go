package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

func plain(data []byte) v2client.Input {
	return v2client.Input{Tensor: tensor.Tensor{Name: "INPUT0", DataType: tensor.FP32, Shape: []int64{1, int64(len(data) / 4)}, Data: data}}
}

func TestClientsAgreeOnEveryWay(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()), "--allow-client-shm=true")
	data := tensor.AsBytes([]float32{1, -2.5, float32(math.Inf(1))})
	g, err := v2client.New(r.at("gRPC"), v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	h := v2client.NewHTTP("http://"+r.at("HTTP"), v2client.Config{})
	defer func() { _ = h.Close() }()
	req := &v2client.Request{Model: "plain", ID: "q", Inputs: []v2client.Input{plain(data)}}
	a, err := g.Infer(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := h.Infer(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, resp := range []*v2client.Response{a, b} {
		out := resp.Output("OUTPUT0")
		if resp.ID != "q" || resp.Model != "plain" || out == nil || out.DataType != tensor.FP32 || !bytes.Equal(out.Data, data) {
			t.Errorf("got %+v", resp)
		}
	}
	req.Model = "none"
	if _, err := h.Infer(t.Context(), req); err == nil || err.Error() != "Request for unknown model: 'none' is not found" {
		t.Errorf("got %v", err)
	}
}

func TestClientStreamsASequence(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()))
	g, err := v2client.New(r.at("gRPC"), v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	s, err := g.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one := v2client.Input{Tensor: tensor.Tensor{Name: "INPUT", DataType: tensor.Int32, Shape: []int64{1, 1}, Data: []byte{1, 0, 0, 0}}}
	for i, start := range []bool{true, false} {
		if err := s.SendRequest(&v2client.Request{Model: "sum", Sequence: "camera", Start: start, Inputs: []v2client.Input{one}}); err != nil {
			t.Fatal(err)
		}
		resp, err := s.Next()
		if err != nil || !resp.Final || int(tensor.View[int32](resp.Outputs[0].Data)[0]) != i+1 {
			t.Errorf("got %+v, %v", resp, err)
		}
	}
	if err := s.SendRequest(&v2client.Request{Model: "none", ID: "bad"}); err != nil {
		t.Fatal(err)
	}
	var fault *v2client.AnswerError
	if _, err := s.Next(); !errors.As(err, &fault) || fault.ID != "bad" {
		t.Errorf("got %v", err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

func TestPoolOfSharedMemory(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()), "--allow-client-shm=true")
	g, err := v2client.New(r.at("gRPC"), v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	pool, err := v2client.NewPool(t.Context(), g, 2, 100)
	if err != nil {
		t.Fatal(err)
	}
	var slots [2]*v2client.Slot
	for i := range slots {
		if slots[i], err = pool.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		copy(slots[i].Bytes, tensor.AsBytes([]float32{float32(i), 7}))
	}
	for i, s := range slots {
		in := s.Input("INPUT0", tensor.FP32, []int64{1, 2}, 8)
		resp, err := g.Infer(t.Context(), &v2client.Request{
			Model: "plain", Inputs: []v2client.Input{in}, Outputs: []v2client.Output{{Name: "OUTPUT0", Place: s.Place(64, 8)}},
		})
		if err != nil || len(resp.Outputs[0].Data) != 0 {
			t.Fatal(resp, err)
		}
		if got := tensor.Float32s(s.Bytes[64:72]); got[0] != float32(i) || got[1] != 7 {
			t.Errorf("slot %d: got %v", i, got)
		}
	}
	if err := pool.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "2 slots are still borrowed") {
		t.Errorf("got %v", err)
	}
	// A server that was started anew has forgotten the memory.
	if _, err := g.SystemSharedMemoryUnregister(t.Context(), &inference.SystemSharedMemoryUnregisterRequest{}); err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		_, err := g.Infer(t.Context(), &v2client.Request{Model: "plain", Inputs: []v2client.Input{slots[1].Input("INPUT0", tensor.FP32, []int64{1, 2}, 8)}})
		return err
	}
	if err := ask(); err == nil || !strings.Contains(err.Error(), "Unable to find shared memory region") {
		t.Errorf("got %v", err)
	}
	if err := pool.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
	full, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pool.Get(full); !errors.Is(err, context.Canceled) {
		t.Errorf("a third of two slots: %v", err)
	}
	for _, s := range slots {
		s.Release()
	}
	if err := pool.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := v2client.NewPool(t.Context(), g, 1<<40, 1<<40); err == nil {
		t.Error("a pool larger than memory was made")
	}
}

// Answers lie in memory that is used again: what one reads before it gives its answer back is never another's.
func TestClientsGiveMemoryOfAnswersBack(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()))
	g, err := v2client.New(r.at("gRPC"), v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	h := v2client.NewHTTP("http://"+r.at("HTTP"), v2client.Config{})
	defer func() { _ = h.Close() }()
	s, err := g.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stream := func(_ context.Context, req *v2client.Request) (*v2client.Response, error) {
		if err := s.SendRequest(req); err != nil {
			return nil, err
		}
		return s.Next()
	}
	for name, ask := range map[string]func(context.Context, *v2client.Request) (*v2client.Response, error){"gRPC": g.Infer, "HTTP": h.Infer, "stream": stream} {
		t.Run(name, func(t *testing.T) {
			var kept *v2client.Response // across the others
			for i := range 60 {
				data := bytes.Repeat([]byte{byte(i), 1, 2, 3}, 1+997*(i%7))
				resp, err := ask(t.Context(), &v2client.Request{Model: "plain", Inputs: []v2client.Input{plain(data)}})
				if err != nil {
					t.Fatal(err)
				}
				if out := resp.Output("OUTPUT0"); out == nil || !bytes.Equal(out.Data, data) {
					t.Fatalf("answer %d is another", i)
				}
				if kept == nil {
					kept = resp
					continue
				}
				if resp.Release(); len(resp.Outputs[0].Data) > 0 {
					t.Fatal("what was given back can be read")
				}
			}
			if !bytes.Equal(kept.Outputs[0].Data, []byte{0, 1, 2, 3}) {
				t.Errorf("what was kept is %v now", kept.Outputs[0].Data)
			}
		})
	}
}
