package v2grpc_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/v2grpc"
)

type bidi = grpc.BidiStreamingClient[inference.ModelInferRequest, inference.ModelStreamInferResponse]

func open(t *testing.T, s *server) bidi {
	t.Helper()
	stream, err := s.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func send(t *testing.T, stream bidi, reqs ...*inference.ModelInferRequest) {
	t.Helper()
	for _, r := range reqs {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
}

func recv(t *testing.T, stream bidi) *inference.ModelStreamInferResponse {
	t.Helper()
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func named(model, id string) *inference.ModelInferRequest {
	r := request(1)
	r.ModelName, r.Id = model, id
	return r
}

func repeat(n uint32, id string, wantEnd bool) *inference.ModelInferRequest {
	r := &inference.ModelInferRequest{
		ModelName: "repeat", Id: id,
		Inputs:           []*inference.ModelInferRequest_InferInputTensor{{Name: "N", Datatype: "INT32", Shape: []int64{1}}},
		RawInputContents: [][]byte{binary.LittleEndian.AppendUint32(nil, n)},
	}
	if wantEnd {
		r.Parameters = params{"triton_enable_empty_final_response": yes(true)}
	}
	return r
}

func final(r *inference.ModelStreamInferResponse) bool {
	return r.GetInferResponse().GetParameters()["triton_final_response"].GetBoolParam()
}

func TestP12OrdinaryResponsesComeInRequestOrder(t *testing.T) {
	s := serve(t, nil)
	s.models.held["first"] = make(chan struct{})
	stream := open(t, s)
	send(t, stream, named("hold", "first"), named("echo", "second"), repeat(1, "decoupled", false), named("echo", "third"))
	if got := recv(t, stream).GetInferResponse().GetId(); got != "decoupled" {
		t.Errorf("%q came before the decoupled response", got)
	}
	close(s.models.held["first"])
	for _, want := range []string{"first", "second", "third"} {
		r := recv(t, stream)
		if r.GetInferResponse().GetId() != want || !final(r) {
			t.Errorf("got %v, want %s", r, want)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end", err)
	}
}

func TestX1TimeOfARequestBeginsWhenItIsThere(t *testing.T) {
	s := serve(t, nil)
	stream := open(t, s)
	for range 2 {
		before := time.Now()
		send(t, stream, named("echo", "x"))
		recv(t, stream)
		if got := s.models.last().Received; got.Before(before) {
			t.Errorf("received %v before it was sent", before.Sub(got))
		}
	}
}

func TestP12DecoupledEndIsSentOnlyWhenAskedFor(t *testing.T) {
	s := serve(t, nil)
	stream := open(t, s)
	send(t, stream, repeat(2, "quiet", false), repeat(0, "none", false), repeat(1, "told", true))
	for _, want := range []struct {
		id      string
		outputs int
		final   bool
	}{{"quiet", 1, false}, {"quiet", 1, false}, {"told", 1, false}, {"told", 0, true}} {
		r := recv(t, stream)
		got := r.GetInferResponse()
		if got.GetId() != want.id || len(got.GetOutputs()) != want.outputs || final(r) != want.final || got.GetModelName() != "repeat" {
			t.Errorf("got %v, want %v", r, want)
		}
	}
}

func TestP12ErrorsDoNotCloseTheStream(t *testing.T) {
	s := serve(t, nil)
	stream := open(t, s)
	send(t, stream, named("x", "bad"), named("fail", "worse"), named("echo", "good"))
	for _, want := range []struct{ id, text string }{
		{"bad", "Request for unknown model: 'x' is not found"},
		{"worse", "Exceeds maximum queue size"},
		{"good", ""},
	} {
		r := recv(t, stream)
		if r.GetErrorMessage() != want.text || r.GetInferResponse().GetId() != want.id {
			t.Errorf("got %v, want %v", r, want)
		}
	}
}

func TestP12FirstErrorEndsAStrictStream(t *testing.T) {
	s := serve(t, nil)
	stream, err := s.ModelStreamInfer(metadata.AppendToOutgoingContext(t.Context(), "triton_grpc_error", "true"))
	if err != nil {
		t.Fatal(err)
	}
	send(t, stream, named("echo", "good"), named("x", "bad"))
	recv(t, stream)
	_, err = stream.Recv()
	wantStatus(t, err, codes.NotFound, "Request for unknown model: 'x' is not found")
}

func TestP19CancelledStreamCancelsItsRequests(t *testing.T) {
	s := serve(t, nil)
	s.models.held["h"] = make(chan struct{})
	stream := open(t, s)
	send(t, stream, named("echo", "a"), named("hold", "h"))
	recv(t, stream)
	if err := s.stop(); err != nil { // the client's connection goes first; returns when every request has ended
		t.Error(err)
	}
}

func TestP12ManyRequestsAreBoundedNotLost(t *testing.T) {
	s := serve(t, nil)
	stream := open(t, s)
	const n = 5000
	go func() {
		for i := range n {
			if err := stream.Send(named("echo", fmt.Sprint(i))); err != nil {
				return
			}
		}
		_ = stream.CloseSend()
	}()
	for i := range n {
		if got := recv(t, stream).GetInferResponse().GetId(); got != fmt.Sprint(i) {
			t.Fatalf("response %d is %s", i, got)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestP12AClientMayReadWhenItHasSentEverything(t *testing.T) {
	s := serve(t, nil)
	stream := open(t, s)
	const n = 64 // far more than fits the windows of the connection
	for i := range n {
		r := request(1)
		r.Id, r.Inputs[0].Shape, r.RawInputContents = fmt.Sprint(i), []int64{1, 64 << 10}, [][]byte{make([]byte, 256<<10)}
		send(t, stream, r)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if got := recv(t, stream).GetInferResponse().GetId(); got != fmt.Sprint(i) {
			t.Fatalf("response %d is %s", i, got)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestP12LargeRequestsAreBoundedNotLost(t *testing.T) {
	s := serve(t, func(cfg *v2grpc.Config) { cfg.MaxStreamBytes = 1 << 20 })
	stream := open(t, s)
	const n = 8
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
		s.models.held[ids[i]] = make(chan struct{})
	}
	sent := make(chan error, 1)
	go func() {
		for _, id := range ids {
			r := named("hold", id)
			r.Inputs[0].Shape, r.RawInputContents = []int64{1, 100 << 10}, [][]byte{make([]byte, 400<<10)}
			if id == ids[n-1] { // larger than all that may wait
				r.Inputs[0].Shape, r.RawInputContents = []int64{1, 600 << 10}, [][]byte{make([]byte, 2400<<10)}
			}
			if err := stream.Send(r); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	for i, id := range ids {
		s.models.waitFor(t, i+1)
		close(s.models.held[id])
		if got := recv(t, stream).GetInferResponse().GetId(); got != id {
			t.Fatalf("response %d is %s", i, got)
		}
		// 400 KiB each: two fit, and a third only when the first was answered. The one that is read waits outside.
		if most, seen := min(i+3, n), s.models.count(); seen > most {
			t.Errorf("after %d answers the server took %d requests", i+1, seen)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestStoppingServerEndsIdleStreamsAtOnce(t *testing.T) {
	s := serve(t, nil)
	stream := open(t, s)
	send(t, stream, named("echo", "a"))
	recv(t, stream)
	s.cancel()
	_, err := stream.Recv()
	wantStatus(t, err, codes.Unavailable, "GRPC server is shutting down and has stopped accepting new requests.")
}
