package server_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ort "github.com/yalue/onnxruntime_go"
	"google.golang.org/grpc"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

var (
	measuring = flag.Bool("measure", false, "measure against bare echoes and print one line per measure")
	only      = flag.String("only", "", "of the measures those this `pattern` matches, as infer_http_binary_16")
)

// bare is what gRPC alone can do: it returns the tensors it gets.
type bare struct {
	inference.UnimplementedGRPCInferenceServiceServer
}

func echo(req *inference.ModelInferRequest) *inference.ModelInferResponse {
	in := req.GetInputs()[0]
	return &inference.ModelInferResponse{
		ModelName: req.GetModelName(), ModelVersion: "1", Id: req.GetId(),
		Outputs:           []*inference.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT0", Datatype: in.GetDatatype(), Shape: in.GetShape()}},
		RawOutputContents: req.GetRawInputContents(),
	}
}

func (bare) ModelInfer(_ context.Context, req *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	return echo(req), nil
}

func (bare) ModelStreamInfer(s grpc.BidiStreamingServer[inference.ModelInferRequest, inference.ModelStreamInferResponse]) error {
	for {
		req, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		resp := echo(req)
		resp.Parameters = map[string]*inference.InferParameter{ // what every answer of a stream carries
			"triton_final_response": {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: true}},
		}
		if err := s.Send(&inference.ModelStreamInferResponse{InferResponse: resp}); err != nil {
			return err
		}
	}
}

func bareGRPC(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 30))
	inference.RegisterGRPCInferenceServiceServer(srv, bare{})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func bareHTTP(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}), ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// rate runs call from so many clients for a while and returns calls per second, and how long each took.
func rate(t testing.TB, clients int, window time.Duration, call func(client int) error) (float64, []time.Duration) {
	t.Helper()
	var wg sync.WaitGroup
	times := make([][]time.Duration, clients)
	begin := time.Now()
	for c := range clients {
		wg.Go(func() {
			for now := time.Now(); now.Sub(begin) < window; {
				if err := call(c); err != nil {
					t.Error(err)
					return
				}
				end := time.Now()
				times[c] = append(times[c], end.Sub(now))
				now = end
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	all := slices.Concat(times...)
	return float64(len(all)) / took.Seconds(), all
}

// against measures two calls in short rounds that follow each other, so that whatever else the machine does
// falls on both, and prints the medians of the rounds' ratios: of the rates and of the p99 latencies, whose budget leaves
// room for what else the machine did. Which one begins alternates.
func against(t *testing.T, measure string, budget float64, clients int, ours, theirs func(client int) error) {
	t.Helper()
	if !regexp.MustCompile(*only).MatchString(measure + "_" + strconv.Itoa(clients)) {
		return
	}
	rounds, window := 31, 60*time.Millisecond
	if strings.Contains(measure, "yolox") {
		window = 400 * time.Millisecond // so long that many calls end in one
	}
	rate(t, clients, 4*window, ours)
	rate(t, clients, 4*window, theirs)
	var ratios, absolute, tails []float64
	for i := range rounds {
		var a, b float64
		var at, bt []time.Duration
		if i%2 == 0 {
			a, at = rate(t, clients, window, ours)
		}
		b, bt = rate(t, clients, window, theirs)
		if i%2 != 0 {
			a, at = rate(t, clients, window, ours)
		}
		ratios, absolute = append(ratios, a/b), append(absolute, a)
		tails = append(tails, float64(percentile(at))/float64(percentile(bt)))
	}
	slices.Sort(ratios)
	slices.Sort(absolute)
	slices.Sort(tails)
	verdict := "ok"
	if ratios[rounds/2] < budget {
		verdict = "over"
	}
	_, _ = fmt.Fprintf(os.Stdout, "%s_%d %.3f ratio >=%.2f %s\n", measure, clients, ratios[rounds/2], budget, verdict)
	_, _ = fmt.Fprintf(os.Stdout, "%s_%d_rate %.0f calls/s - ok\n", measure, clients, absolute[rounds/2])
	p99 := tails[rounds/2]
	verdict = "ok"
	limit := max(1.1, 1.1/budget) // no worse, or as much as fewer calls a second are allowed
	if p99 > limit {
		verdict = "over"
	}
	_, _ = fmt.Fprintf(os.Stdout, "%s_%d_p99 %.3f ratio <=%.2f %s\n", measure, clients, p99, limit, verdict)
}

// percentile is the 99th.
func percentile(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)*99/100]
}

func tensorRequest(model, input string, data []byte) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName: model, Id: "1",
		Inputs:           []*inference.ModelInferRequest_InferInputTensor{{Name: input, Datatype: "FP32", Shape: []int64{1, int64(len(data) / 4)}}},
		RawInputContents: [][]byte{data},
	}
}

func unary(t testing.TB, target string, req *inference.ModelInferRequest) func(int) error {
	return unaries(t, target, []*inference.ModelInferRequest{req})
}

// unaries asks with a request of each client's own.
func unaries(t testing.TB, target string, reqs []*inference.ModelInferRequest) func(int) error {
	client := dial(t, target)
	return func(c int) error {
		_, err := client.ModelInfer(context.Background(), reqs[c%len(reqs)])
		return err
	}
}

// sharedRequests are requests of plain whose tensors of size bytes come from shared memory and go there, each in a
// place of its own.
func sharedRequests(t *testing.T, target string, clients, size int) []*inference.ModelInferRequest {
	t.Helper()
	client, err := v2client.New(target, v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := v2client.NewPool(t.Context(), client, clients, 2*size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(pool.Close(context.Background()), client.Close()) })
	var out []*inference.ModelInferRequest
	for range clients {
		slot, err := pool.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(slot.Release)
		place := func(p v2client.Place) map[string]*inference.InferParameter {
			number := func(n int) *inference.InferParameter {
				return &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(n)}}
			}
			return map[string]*inference.InferParameter{
				"shared_memory_region": {ParameterChoice: &inference.InferParameter_StringParam{StringParam: p.Region}},
				"shared_memory_offset": number(p.Offset), "shared_memory_byte_size": number(p.Size),
			}
		}
		req := tensorRequest("plain", "INPUT0", make([]byte, size))
		req.RawInputContents = nil
		req.Inputs[0].Parameters = place(slot.Place(0, size))
		req.Outputs = []*inference.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT0", Parameters: place(slot.Place(size, size))}}
		out = append(out, req)
	}
	return out
}

func streaming(t testing.TB, target string, clients int, req func(client, i int) *inference.ModelInferRequest) func(int) error {
	t.Helper()
	client := dial(t, target)
	type bidi = grpc.BidiStreamingClient[inference.ModelInferRequest, inference.ModelStreamInferResponse]
	streams, counts := make([]bidi, clients), make([]int, clients)
	for i := range streams {
		s, err := client.ModelStreamInfer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		streams[i] = s
	}
	return func(c int) error {
		if err := streams[c].Send(req(c, counts[c])); err != nil {
			return err
		}
		counts[c]++
		r, err := streams[c].Recv()
		if err == nil && r.GetErrorMessage() != "" {
			err = fmt.Errorf("answer: %s", r.GetErrorMessage())
		}
		return err
	}
}

func httpCall(t testing.TB, address, path string, body []byte, jsonLength int) func(int) error {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	return func(int) error {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+address+path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Inference-Header-Content-Length", strconv.Itoa(jsonLength))
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %s", resp.Status)
		}
		return err
	}
}

func sequenceRequest(c, i int) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName: "sum", Id: "1",
		Parameters: map[string]*inference.InferParameter{
			"sequence_id":    {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(c + 1)}},
			"sequence_start": {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: i%100 == 0}},
			"sequence_end":   {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: i%100 == 99}},
		},
		Inputs:           []*inference.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "INT32", Shape: []int64{1, 1}}},
		RawInputContents: [][]byte{{1, 0, 0, 0}},
	}
}

// TestMeasure measures what DESIGN's table of budgets says of the server, each against what the bare library
// does with the same messages in the same run.
func TestMeasure(t *testing.T) {
	if !*measuring {
		t.Skip("-args -measure measures; it takes a minute")
	}
	r := start(t, "--model-repository", repository(t, testModels()), "--allow-client-shm=true")
	echoGRPC, echoHTTP := bareGRPC(t), bareHTTP(t)
	small := make([]byte, 64)
	for _, clients := range []int{1, 4, 16, 64} {
		req := tensorRequest("plain", "INPUT0", small)
		against(t, "infer_grpc_unary", 0.95, clients, unary(t, r.at("gRPC"), req), unary(t, echoGRPC, req))
		against(t, "infer_http_binary", 0.90, clients, httpBinary(t, r.at("HTTP"), small), httpBinary(t, echoHTTP, small))
		each := func(int, int) *inference.ModelInferRequest { return req }
		against(t, "infer_stream", 0.90, clients, streaming(t, r.at("gRPC"), clients, each), streaming(t, echoGRPC, clients, each))
		shared := sharedRequests(t, r.at("gRPC"), clients, len(small))
		against(t, "infer_shared_memory", 0.90, clients, unaries(t, r.at("gRPC"), shared), unaries(t, echoGRPC, shared))
	}
	large := tensorRequest("plain", "INPUT0", make([]byte, 6<<20))
	against(t, "infer_grpc_6mb", 0.80, 4, unary(t, r.at("gRPC"), large), unary(t, echoGRPC, large))
	shared := sharedRequests(t, r.at("gRPC"), 4, 6<<20)
	against(t, "infer_shared_memory_6mb", 1, 4, unaries(t, r.at("gRPC"), shared), unary(t, echoGRPC, large))
	against(t, "infer_http_6mb", 0.80, 4, httpBinary(t, r.at("HTTP"), make([]byte, 6<<20)), httpBinary(t, echoHTTP, make([]byte, 6<<20)))
	for _, clients := range []int{1, 4} {
		against(t, "infer_sequence_stream", 0.90, clients, streaming(t, r.at("gRPC"), clients, sequenceRequest), streaming(t, echoGRPC, clients, sequenceRequest))
	}
	against(t, "infer_ensemble_of_two", 0.80, 4, unary(t, r.at("gRPC"), tensorRequest("chain", "IN", small)), unary(t, r.at("gRPC"), tensorRequest("plain", "INPUT0", small)))
	measureModel(t)
}

// httpBinary asks plain over HTTP with the tensor behind the JSON.
func httpBinary(t testing.TB, address string, data []byte) func(int) error {
	header := fmt.Sprintf(`{"parameters":{"binary_data_output":true},"inputs":[{"name":"INPUT0","shape":[1,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}]}`, len(data)/4, len(data))
	return httpCall(t, address, "/v2/models/plain/infer", append([]byte(header), data...), len(header))
}

// measureModel compares YOLOX-nano with as many bare sessions of ONNX Runtime, its tensors in shared memory and in
// messages.
func measureModel(t *testing.T) {
	graph, err := os.ReadFile(filepath.Join(realData(), "models", "yolox_nano.onnx"))
	if err != nil {
		t.Log("no test data:", err)
		return
	}
	const clients, sessions = 4, 2
	dir := repository(t, map[string]string{
		"yolox/1/model.onnx": string(graph), "yolox/config.pbtxt": fmt.Sprintf(`platform: "onnxruntime_onnx" max_batch_size: 0
instance_group [ { kind: KIND_CPU count: %d } ] parameters { key: "intra_op_thread_count" value { string_value: "1" } }`, sessions),
	})
	r := start(t, "--model-repository", dir, "--allow-client-shm=true")
	options, err := ort.NewSessionOptions()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = options.Destroy() }()
	if err := options.SetIntraOpNumThreads(1); err != nil {
		t.Fatal(err)
	}
	type bareSession struct {
		run  *ort.DynamicAdvancedSession
		x, y *ort.Tensor[float32]
	}
	free := make(chan bareSession, sessions)
	for range sessions {
		var b bareSession
		if b.run, err = ort.NewDynamicAdvancedSessionWithONNXData(graph, []string{"images"}, []string{"output"}, options); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.run.Destroy() }()
		if b.x, err = ort.NewEmptyTensor[float32]([]int64{1, 3, 416, 416}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.x.Destroy() }()
		if b.y, err = ort.NewEmptyTensor[float32]([]int64{1, 3549, 85}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.y.Destroy() }()
		free <- b
	}
	bare := func(int) error {
		b := <-free
		defer func() { free <- b }()
		return b.run.Run([]ort.Value{b.x}, []ort.Value{b.y})
	}
	g, err := v2client.New(r.at("gRPC"), v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	const in, out = 3 * 416 * 416 * 4, 3549 * 85 * 4
	pool, err := v2client.NewPool(t.Context(), g, clients, in+out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close(context.WithoutCancel(t.Context())) }()
	shared := func(int) error {
		slot, err := pool.Get(t.Context())
		if err != nil {
			return err
		}
		defer slot.Release()
		_, err = g.Infer(t.Context(), &v2client.Request{
			Model: "yolox", Inputs: []v2client.Input{slot.Input("images", tensor.FP32, []int64{1, 3, 416, 416}, in)},
			Outputs: []v2client.Output{{Name: "output", Place: slot.Place(in, out)}},
		})
		return err
	}
	sent := &v2client.Request{Model: "yolox", InPlace: true, Inputs: []v2client.Input{{Tensor: tensor.Tensor{Name: "images", DataType: tensor.FP32, Shape: []int64{1, 3, 416, 416}, Data: make([]byte, in)}}}}
	against(t, "infer_yolox_shared_memory", 0.95, clients, shared, bare)
	against(t, "infer_yolox_grpc", 0.80, clients, func(int) error {
		resp, err := g.Infer(t.Context(), sent)
		if err == nil {
			resp.Release()
		}
		return err
	}, bare)
}
