package v2grpc_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/trace"
	"github.com/vedette/vedette/infer/v2grpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type server struct {
	inference.GRPCInferenceServiceClient
	models *models
	conn   *grpc.ClientConn
	cancel context.CancelFunc // tells the server to stop, and waits for nothing
	stop   func() error
}

// serve starts a server on a socket of its own and a client of it.
func serve(t *testing.T, change func(*v2grpc.Config)) *server {
	t.Helper()
	m := &models{held: make(map[string]chan struct{})}
	cfg := v2grpc.Config{Inferer: m, Catalog: m, Pool: &m.pool, StopTimeout: time.Minute}
	if change != nil {
		change(&cfg)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- v2grpc.New(cfg).Run(ctx, ln) }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{GRPCInferenceServiceClient: inference.NewGRPCInferenceServiceClient(conn), models: m, conn: conn, cancel: cancel}
	s.stop = func() error {
		_ = conn.Close()
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if n := m.pool.Lent(); n != 0 {
			t.Errorf("%d buffers were not released", n)
		}
	})
	s.stop = sync1(s.stop)
	return s
}

func sync1(f func() error) func() error {
	var done bool
	var err error
	return func() error {
		if !done {
			done, err = true, f()
		}
		return err
	}
}

func wantStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != code || st.Message() != text {
		t.Errorf("got %s %q, want %s %q", st.Code(), st.Message(), code, text)
	}
}

func str(s string) *inference.InferParameter {
	return &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: s}}
}

func num(n int64) *inference.InferParameter {
	return &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: n}}
}

func yes(b bool) *inference.InferParameter {
	return &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: b}}
}

type params = map[string]*inference.InferParameter

func request(data ...byte) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName: "echo", Id: "1",
		Inputs: []*inference.ModelInferRequest_InferInputTensor{
			{Name: "IN", Datatype: "UINT8", Shape: []int64{int64(len(data))}},
		},
		RawInputContents: [][]byte{data},
	}
}

func TestP11RawTensorsComeBackInOneEntryAnOutput(t *testing.T) {
	s := serve(t, nil)
	for _, size := range []int{0, 1, 1000, 5000, 3 << 20} {
		big := bytes.Repeat([]byte{7}, size)
		req := &inference.ModelInferRequest{
			ModelName: "echo", Id: "abc",
			Inputs: []*inference.ModelInferRequest_InferInputTensor{
				{Name: "A", Datatype: "UINT8", Shape: []int64{int64(size)}},
				{Name: "B", Datatype: "INT32", Shape: []int64{1, 1}},
			},
			RawInputContents: [][]byte{big, {1, 2, 3, 4}},
		}
		resp, err := s.ModelInfer(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetModelName() != "echo" || resp.GetModelVersion() != "3" || resp.GetId() != "abc" {
			t.Errorf("got %q %q %q", resp.GetModelName(), resp.GetModelVersion(), resp.GetId())
		}
		raw := resp.GetRawOutputContents()
		if len(raw) != 2 || !bytes.Equal(raw[0], big) || !bytes.Equal(raw[1], []byte{1, 2, 3, 4}) {
			t.Errorf("%d bytes: wrong tensors", size)
		}
		out := resp.GetOutputs()
		if len(out) != 2 || out[0].GetName() != "A" || out[0].GetDatatype() != "UINT8" || len(out[1].GetShape()) != 2 || out[0].GetContents() != nil {
			t.Errorf("got %v", out)
		}
	}
}

func TestP11LargeTensorsReachTheModelAligned(t *testing.T) {
	s := serve(t, nil)
	for extra := range 9 {
		req := request(make([]byte, 1<<20)...)
		req.Id = strings.Repeat("x", extra)
		if _, err := s.ModelInfer(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		data := s.models.last().Inputs[0].Data
		if !tensor.SameMemory(tensor.AsBytes(tensor.View[uint64](data)), data) {
			t.Errorf("with an id of %d bytes the tensor is not aligned", extra)
		}
	}
}

func TestP11TypedContents(t *testing.T) {
	s := serve(t, nil)
	for _, c := range []struct {
		datatype string
		contents *inference.InferTensorContents
		want     []byte
	}{
		{"BOOL", &inference.InferTensorContents{BoolContents: []bool{true, false}}, []byte{1, 0}},
		{"INT8", &inference.InferTensorContents{IntContents: []int32{-1, 2}}, []byte{255, 2}},
		{"INT16", &inference.InferTensorContents{IntContents: []int32{-2}}, []byte{254, 255}},
		{"INT32", &inference.InferTensorContents{IntContents: []int32{-2}}, []byte{254, 255, 255, 255}},
		{"INT64", &inference.InferTensorContents{Int64Contents: []int64{-2}}, []byte{254, 255, 255, 255, 255, 255, 255, 255}},
		{"UINT8", &inference.InferTensorContents{UintContents: []uint32{200}}, []byte{200}},
		{"UINT16", &inference.InferTensorContents{UintContents: []uint32{258}}, []byte{2, 1}},
		{"UINT32", &inference.InferTensorContents{UintContents: []uint32{258}}, []byte{2, 1, 0, 0}},
		{"UINT64", &inference.InferTensorContents{Uint64Contents: []uint64{1}}, []byte{1, 0, 0, 0, 0, 0, 0, 0}},
		{"FP32", &inference.InferTensorContents{Fp32Contents: []float32{1}}, []byte{0, 0, 0x80, 0x3f}},
		{"FP64", &inference.InferTensorContents{Fp64Contents: []float64{1}}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
		{"BYTES", &inference.InferTensorContents{BytesContents: [][]byte{[]byte("ab"), {}}}, []byte{2, 0, 0, 0, 'a', 'b', 0, 0, 0, 0}},
	} {
		t.Run(c.datatype, func(t *testing.T) {
			resp, err := s.ModelInfer(t.Context(), &inference.ModelInferRequest{
				ModelName: "echo",
				Inputs:    []*inference.ModelInferRequest_InferInputTensor{{Name: "A", Datatype: c.datatype, Shape: []int64{2}, Contents: c.contents}},
			})
			if err != nil || !bytes.Equal(resp.GetRawOutputContents()[0], c.want) {
				t.Errorf("got %v, %v", resp.GetRawOutputContents(), err)
			}
		})
	}
}

func TestP2AStatusFitsItsHeader(t *testing.T) {
	s := serve(t, nil)
	for _, name := range []string{strings.Repeat("x", 100_000), strings.Repeat("☃", 10_000)} {
		_, err := s.ModelInfer(t.Context(), &inference.ModelInferRequest{ModelName: name})
		st := status.Convert(err)
		if st.Code() != codes.NotFound || !strings.HasPrefix(st.Message(), "Request for unknown model: '"+name[:30]) || len(st.Message()) > 2100 || !utf8.ValidString(st.Message()) {
			t.Errorf("got %s, %d bytes: %.200s", st.Code(), len(st.Message()), st.Message())
		}
	}
}

func TestP11RequestsThatAreRefused(t *testing.T) {
	s := serve(t, nil)
	with := func(change func(*inference.ModelInferRequest)) *inference.ModelInferRequest {
		r := request(1)
		change(r)
		return r
	}
	for _, c := range []struct {
		name string
		req  *inference.ModelInferRequest
		code codes.Code
		text string
	}{
		{"an unknown model", with(func(r *inference.ModelInferRequest) { r.ModelName = "x" }), codes.NotFound, "Request for unknown model: 'x' is not found"},
		{"an unknown version", with(func(r *inference.ModelInferRequest) { r.ModelVersion = "9" }), codes.NotFound, "Request for unknown model: 'echo' version 9 is not found"},
		{
			"a version that is no number", with(func(r *inference.ModelInferRequest) { r.ModelVersion = "x" }), codes.InvalidArgument,
			"failed to get model version from specified version string 'x' (details: stoll), version should be an integral value > 0",
		},
		{
			"a version below one", with(func(r *inference.ModelInferRequest) { r.ModelVersion = "0" }), codes.InvalidArgument,
			"invalid model version specified '0' , version should be an integral value > 0",
		},
		{"a decoupled model", with(func(r *inference.ModelInferRequest) { r.ModelName = "repeat" }), codes.Unimplemented, "ModelInfer RPC doesn't support models with decoupled transaction policy"},
		{"raw and typed data together", with(func(r *inference.ModelInferRequest) {
			r.Inputs[0].Contents = &inference.InferTensorContents{UintContents: []uint32{1}}
		}), codes.InvalidArgument, "contents field must not be specified when using raw_input_contents for 'IN' for model 'echo'"},
		{"no data", with(func(r *inference.ModelInferRequest) { r.RawInputContents = nil }), codes.InvalidArgument, "unable to find data for input tensor 'IN' for model 'echo' in request."},
		{"data in the wrong field", with(func(r *inference.ModelInferRequest) {
			r.RawInputContents, r.Inputs[0].Datatype = nil, "INT32"
			r.Inputs[0].Contents = &inference.InferTensorContents{Fp32Contents: []float32{1}}
		}), codes.InvalidArgument, "unexpected explicit tensor data for input tensor 'IN' for model 'echo' of type 'FP32', expected datatype 'INT32'"},
		{"an unknown type", with(func(r *inference.ModelInferRequest) { r.Inputs[0].Datatype = "FP8" }), codes.InvalidArgument, "invalid datatype 'FP8' for input 'IN' for model 'echo'"},
		{"a sequence id that is a bool", with(func(r *inference.ModelInferRequest) { r.Parameters = params{"sequence_id": yes(true)} }), codes.InvalidArgument, "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."},
		{"a sequence id that is too long", with(func(r *inference.ModelInferRequest) {
			r.Parameters = params{"sequence_id": str(strings.Repeat("x", 129))}
		}), codes.Unimplemented, "string correlation ID cannot be longer than 128 characters"},
		{"a start that is a number", with(func(r *inference.ModelInferRequest) { r.Parameters = params{"sequence_start": num(1)} }), codes.InvalidArgument, "invalid value type for 'sequence_start' parameter, expected bool_param."},
		{"a priority that is a string", with(func(r *inference.ModelInferRequest) { r.Parameters = params{"priority": str("1")} }), codes.InvalidArgument, "invalid value type for 'priority' parameter, expected int64_param or uint64_param."},
		{"a priority below zero", with(func(r *inference.ModelInferRequest) { r.Parameters = params{"priority": num(-1)} }), codes.InvalidArgument, "invalid value for 'priority', expected value >= 0."},
		{"a time-out that is a string", with(func(r *inference.ModelInferRequest) { r.Parameters = params{"timeout": str("1")} }), codes.InvalidArgument, "invalid value type for 'timeout' parameter, expected int64_param."},
		{"a reserved parameter", with(func(r *inference.ModelInferRequest) { r.Parameters = params{"triton_x": num(1)} }), codes.InvalidArgument, "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."},
		{"shared memory", with(func(r *inference.ModelInferRequest) {
			r.Inputs[0].Parameters = params{"shared_memory_region": str("r"), "shared_memory_byte_size": num(1)}
		}), codes.NotFound, "Unable to find shared memory region: 'r'"},
		{"a region that is a number", with(func(r *inference.ModelInferRequest) {
			r.Inputs[0].Parameters = params{"shared_memory_region": num(1)}
		}), codes.InvalidArgument, "invalid value type for 'shared_memory_region' parameter for tensor 'IN', expected string_param."},
		{"a model that fails", with(func(r *inference.ModelInferRequest) { r.ModelName = "fail" }), codes.Unavailable, "Exceeds maximum queue size"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.ModelInfer(t.Context(), c.req)
			wantStatus(t, err, c.code, c.text)
		})
	}
}

func TestP14ParametersReachTheModelAndComeBack(t *testing.T) {
	s := serve(t, func(c *v2grpc.Config) { c.Scope = "public" })
	req := request(1)
	req.Parameters = params{
		"sequence_id": num(42), "sequence_start": yes(true), "sequence_end": yes(true), "priority": num(2), "timeout": num(1500),
		"s": str("x"), "n": num(-3), "b": yes(true),
		"d": {ParameterChoice: &inference.InferParameter_DoubleParam{DoubleParam: 0.5}},
	}
	resp, err := s.ModelInfer(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	got := s.models.last()
	if got.Correlation != (infer.CorrelationID{Num: 42}) || !got.SequenceStart || !got.SequenceEnd || got.Priority != 2 ||
		got.Timeout != 1500*time.Microsecond || got.Scope != "public" || got.ID != "1" || got.Received.IsZero() {
		t.Errorf("got %+v", got)
	}
	p := resp.GetParameters()
	if len(p) != 4 || p["s"].GetStringParam() != "x" || p["n"].GetInt64Param() != -3 || !p["b"].GetBoolParam() || p["d"].GetDoubleParam() != 0.5 {
		t.Errorf("got %v", p)
	}
}

func TestP15ClassificationIsAskedForByOutput(t *testing.T) {
	s := serve(t, nil)
	req := request(1)
	req.Outputs = []*inference.ModelInferRequest_InferRequestedOutputTensor{{Name: "IN", Parameters: params{"classification": num(3)}}}
	if _, err := s.ModelInfer(t.Context(), req); err != nil || s.models.last().Outputs[0].Classes != 3 {
		t.Errorf("got %+v, %v", s.models.last().Outputs, err)
	}
	req.Outputs[0].Parameters["classification"] = num(-1)
	if _, err := s.ModelInfer(t.Context(), req); status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v", err)
	}
}

func TestP14MatchingHeadersBecomeParameters(t *testing.T) {
	s := serve(t, func(c *v2grpc.Config) { c.ForwardHeaders = regexp.MustCompile(`^(?:my_.*|priority)$`) })
	ctx := metadata.AppendToOutgoingContext(t.Context(), "my_header", "v", "other", "w")
	if _, err := s.ModelInfer(ctx, request(1)); err != nil {
		t.Fatal(err)
	}
	if p := s.models.last().Parameters; len(p) != 1 || p["my_header"] != "v" {
		t.Errorf("got %v", p)
	}
	_, err := s.ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "priority", "1"), request(1))
	wantStatus(t, err, codes.InvalidArgument, "Header 'priority' is reserved for Triton usage and cannot be forwarded.")
}

func TestP17CompressedRequestsAndResponses(t *testing.T) {
	for _, compress := range []bool{false, true} {
		s := serve(t, func(c *v2grpc.Config) { c.Compress = compress })
		data := make([]byte, 1<<17)
		for _, encoding := range []string{gzip.Name, "deflate"} {
			for range 2 { // the second call gets the memory of the first
				resp, err := s.ModelInfer(t.Context(), request(data...), grpc.UseCompressor(encoding))
				if err != nil || !bytes.Equal(resp.GetRawOutputContents()[0], data) {
					t.Error("compress", compress, encoding, err)
				}
			}
		}
	}
}

func TestP18RestrictedCallsNeedTheirHeader(t *testing.T) {
	s := serve(t, func(c *v2grpc.Config) {
		c.Restricted = []v2grpc.Restriction{{APIs: []string{"inference", "model-repository"}, Header: "key", Value: "secret"}}
	})
	const text = "This protocol is restricted, expecting header 'triton-grpc-protocol-key'"
	_, err := s.ModelInfer(t.Context(), request(1))
	wantStatus(t, err, codes.Unavailable, text)
	_, err = s.ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "triton-grpc-protocol-key", "wrong"), request(1))
	wantStatus(t, err, codes.Unavailable, text)
	_, err = s.RepositoryIndex(t.Context(), &inference.RepositoryIndexRequest{})
	wantStatus(t, err, codes.Unavailable, text)
	stream, err := s.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantStatus(t, err, codes.Unavailable, text)
	if _, err := s.ServerLive(t.Context(), &inference.ServerLiveRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := s.ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "triton-grpc-protocol-key", "secret"), request(1)); err != nil {
		t.Error(err)
	}
}

func TestP11StoppingServerTellsWhoeverComes(t *testing.T) {
	s := serve(t, nil)
	hold := make(chan struct{})
	s.models.held["last"] = hold
	if _, err := s.ModelInfer(t.Context(), request(1)); err != nil {
		t.Fatal(err)
	}
	req := request(1)
	req.ModelName, req.Id = "hold", "last"
	answered := make(chan error, 1)
	go func() {
		_, err := s.ModelInfer(context.WithoutCancel(t.Context()), req)
		answered <- err
	}()
	for s.models.last().ID != "last" {
		time.Sleep(time.Millisecond)
	}
	s.cancel()
	const text = "GRPC server is shutting down and has stopped accepting new requests."
	for {
		_, err := s.ModelInfer(t.Context(), request(1)) // taken as long as the server has not heard of it
		if err != nil {
			wantStatus(t, err, codes.Unavailable, text)
			break
		}
	}
	_, err := s.ServerLive(t.Context(), &inference.ServerLiveRequest{})
	wantStatus(t, err, codes.Unavailable, text)
	close(hold)
	if err := <-answered; err != nil {
		t.Errorf("the call under way: %v", err)
	}
}

func TestP19CancelledCallReachesTheModel(t *testing.T) {
	s := serve(t, nil)
	req := request(1)
	req.ModelName, req.Id = "hold", "h"
	s.models.held["h"] = make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	// Whichever end sees the deadline first tells.
	if _, err := s.ModelInfer(ctx, req); status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
	if err := s.stop(); err != nil { // returns only when the handler has
		t.Error(err)
	}
}

func TestP2AndP3HealthAndMetadata(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	if r, err := s.ServerLive(ctx, &inference.ServerLiveRequest{}); err != nil || !r.GetLive() {
		t.Error(r, err)
	}
	if r, err := s.ServerReady(ctx, &inference.ServerReadyRequest{}); err != nil || !r.GetReady() {
		t.Error(r, err)
	}
	if r, err := s.ModelReady(ctx, &inference.ModelReadyRequest{Name: "echo"}); err != nil || !r.GetReady() {
		t.Error(r, err)
	}
	_, err := s.ModelReady(ctx, &inference.ModelReadyRequest{Name: "x"})
	wantStatus(t, err, codes.NotFound, "Request for unknown model: 'x' is not found")
	if r, err := s.ServerMetadata(ctx, &inference.ServerMetadataRequest{}); err != nil || r.GetName() != "triton" {
		t.Error(r, err)
	}
	r, err := s.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: "echo", Version: "3"})
	if err != nil || len(r.GetVersions()) != 1 || r.GetInputs()[0].GetDatatype() != "FP32" || r.GetInputs()[0].GetShape()[0] != -1 {
		t.Error(r, err)
	}
	if r, err := s.ModelConfig(ctx, &inference.ModelConfigRequest{Name: "echo"}); err != nil || r.GetConfig().GetMaxBatchSize() != 8 {
		t.Error(r, err)
	}
	if r, err := s.ModelStatistics(ctx, &inference.ModelStatisticsRequest{}); err != nil || r.GetModelStats()[0].GetInferenceCount() != 7 {
		t.Error(r, err)
	}
	health := grpc_health_v1.NewHealthClient(s.conn)
	if r, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil || r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Error(r, err)
	}
	if _, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "x"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

func TestP2HealthIsWatchedUntilTheServerStops(t *testing.T) {
	s := serve(t, nil)
	health := grpc_health_v1.NewHealthClient(s.conn)
	known, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := known.Recv(); err != nil || r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatal(r, err)
	}
	if r, err := unknown.Recv(); err != nil || r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN {
		t.Fatal(r, err)
	}
	s.cancel()
	if r, err := known.Recv(); err != nil || r.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Fatal(r, err)
	}
	if _, err := known.Recv(); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

func TestR4AndR5RepositoryCalls(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	if r, err := s.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{}); err != nil || len(r.GetModels()) != 2 || r.GetModels()[1].GetReason() != "no file" {
		t.Error(r, err)
	}
	if r, err := s.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{Ready: true}); err != nil || len(r.GetModels()) != 1 {
		t.Error(r, err)
	}
	_, err := s.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{RepositoryName: "x"})
	wantStatus(t, err, codes.Unimplemented, "'repository_name' specification is not supported")
	type repoParams = map[string]*inference.ModelRepositoryParameter
	text := &inference.ModelRepositoryParameter{ParameterChoice: &inference.ModelRepositoryParameter_StringParam{StringParam: "{}"}}
	raw := &inference.ModelRepositoryParameter{ParameterChoice: &inference.ModelRepositoryParameter_BytesParam{BytesParam: []byte("x")}}
	load := func(p repoParams) error {
		_, err := s.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: "new", Parameters: p})
		return err
	}
	if err := load(repoParams{"config": text, "file:1/model.onnx": raw}); err != nil {
		t.Error(err)
	}
	if o := s.models.loaded["new"]; o.Config != "{}" || string(o.Files["1/model.onnx"]) != "x" {
		t.Errorf("got %+v", o)
	}
	wantStatus(t, load(repoParams{"config": raw}), codes.InvalidArgument, "invalid value type for load parameter 'config', expected string_param.")
	wantStatus(t, load(repoParams{"file:x": text}), codes.InvalidArgument, "invalid value type for load parameter 'file:x', expected bytes_param.")
	wantStatus(t, load(repoParams{"x": text}), codes.InvalidArgument, "unrecognized load parameter 'x'.")
	if _, err := s.RepositoryModelUnload(ctx, &inference.RepositoryModelUnloadRequest{ModelName: "new"}); err != nil || len(s.models.loaded) != 0 {
		t.Error(err, s.models.loaded)
	}
}

func TestX3TensorsInSharedMemory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "obj")
	if err := os.WriteFile(path, []byte("abcdefgh--------"), 0o600); err != nil {
		t.Fatal(err)
	}
	regions := shm.New(shm.Config{AllowNamed: true, Dir: dir})
	s := serve(t, func(c *v2grpc.Config) { c.Regions = regions })
	defer regions.Drop("")
	ctx := t.Context()
	if _, err := s.SystemSharedMemoryRegister(ctx, &inference.SystemSharedMemoryRegisterRequest{Name: "r", Key: "/obj", ByteSize: 16}); err != nil {
		t.Fatal(err)
	}
	req := &inference.ModelInferRequest{
		ModelName: "echo",
		Inputs: []*inference.ModelInferRequest_InferInputTensor{
			{Name: "A", Datatype: "UINT8", Shape: []int64{4}, Parameters: params{"shared_memory_region": str("r"), "shared_memory_offset": num(2), "shared_memory_byte_size": num(4)}},
			{Name: "B", Datatype: "UINT8", Shape: []int64{1}},
		},
		RawInputContents: [][]byte{{9}}, // the input in shared memory has none
		Outputs: []*inference.ModelInferRequest_InferRequestedOutputTensor{
			{Name: "A", Parameters: params{"shared_memory_region": str("r"), "shared_memory_offset": num(8), "shared_memory_byte_size": num(6)}},
			{Name: "B"},
		},
	}
	resp, err := s.ModelInfer(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	raw := resp.GetRawOutputContents()
	if len(raw) != 2 || len(raw[0]) != 0 || !bytes.Equal(raw[1], []byte{9}) || len(resp.GetOutputs()[0].GetParameters()) != 0 {
		t.Errorf("got %v", resp)
	}
	if got, _ := os.ReadFile(path); string(got) != "abcdefghcdef----" {
		t.Errorf("got %q", got)
	}
	req.Outputs[0].Parameters["shared_memory_byte_size"] = num(3)
	_, err = s.ModelInfer(ctx, req)
	wantStatus(t, err, codes.Internal, "shared memory size specified with the request for output 'A' (3 bytes) should be at least 4 bytes to hold the results")
	st, err := s.SystemSharedMemoryStatus(ctx, &inference.SystemSharedMemoryStatusRequest{})
	if err != nil || st.GetRegions()["r"].GetByteSize() != 16 {
		t.Error(st, err)
	}
	if _, err := s.SystemSharedMemoryUnregister(ctx, &inference.SystemSharedMemoryUnregisterRequest{Name: "r"}); err != nil {
		t.Error(err)
	}
	_, err = s.SystemSharedMemoryStatus(ctx, &inference.SystemSharedMemoryStatusRequest{Name: "r"})
	wantStatus(t, err, codes.NotFound, "Unable to find system shared memory region: 'r'")
}

func TestX4CudaMemoryIsRefusedWithoutGPU(t *testing.T) {
	s := serve(t, func(c *v2grpc.Config) { c.Regions = shm.New(shm.Config{AllowNamed: true}) })
	ctx := t.Context()
	_, err := s.CudaSharedMemoryRegister(ctx, &inference.CudaSharedMemoryRegisterRequest{Name: "R"})
	wantStatus(t, err, codes.InvalidArgument, "failed to register CUDA shared memory region: 'R', GPUs not supported")
	if r, err := s.CudaSharedMemoryStatus(ctx, &inference.CudaSharedMemoryStatusRequest{}); err != nil || len(r.GetRegions()) != 0 {
		t.Error(r, err)
	}
	if _, err := s.CudaSharedMemoryUnregister(ctx, &inference.CudaSharedMemoryUnregisterRequest{}); err != nil {
		t.Error(err)
	}
}

func TestX5AndX6TraceAndLogSettings(t *testing.T) {
	logs := logging{"log_info": true, "log_verbose_level": uint32(0), "log_format": "default", "log_file": ""}
	s := serve(t, func(c *v2grpc.Config) { c.Trace, c.Log = trace.New(trace.Config{}), logs })
	ctx := t.Context()
	tr, err := s.TraceSetting(ctx, &inference.TraceSettingRequest{
		ModelName: "m", Settings: map[string]*inference.TraceSettingRequest_SettingValue{"trace_rate": {Value: []string{"7"}}},
	})
	if err != nil || tr.GetSettings()["trace_rate"].GetValue()[0] != "7" || tr.GetSettings()["trace_level"].GetValue()[0] != "OFF" {
		t.Error(tr, err)
	}
	type value = inference.LogSettingsRequest_SettingValue
	lr, err := s.LogSettings(ctx, &inference.LogSettingsRequest{Settings: map[string]*value{
		"log_verbose_level": {ParameterChoice: &inference.LogSettingsRequest_SettingValue_Uint32Param{Uint32Param: 2}},
	}})
	if err != nil || lr.GetSettings()["log_verbose_level"].GetUint32Param() != 2 || !lr.GetSettings()["log_info"].GetBoolParam() {
		t.Error(lr, err)
	}
	_, err = s.LogSettings(ctx, &inference.LogSettingsRequest{Settings: map[string]*value{
		"log_file": {ParameterChoice: &inference.LogSettingsRequest_SettingValue_StringParam{StringParam: "x"}},
	}})
	wantStatus(t, err, codes.Unimplemented, "log file location can not be updated through network protocol")
}

func TestStartAndStopTenTimes(t *testing.T) {
	for range 10 {
		s := serve(t, nil)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
}
