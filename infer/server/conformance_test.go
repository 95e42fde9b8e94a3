package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/server"
	"github.com/vedette/vedette/infer/server/flags"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
)

func TestMain(m *testing.M) {
	if arguments := os.Getenv(asServer); arguments != "" {
		if err := runAsServer(arguments); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func fetch(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestBothFrontendsServeTheSameModels(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()))
	url := "http://" + r.at("HTTP")
	if code, body := fetch(t, "GET", url+"/v2/health/ready", ""); code != 200 {
		t.Fatal(code, body)
	}
	code, body := fetch(t, "POST", url+"/v2/models/chain/infer", `{"id":"x","inputs":[{"name":"IN","shape":[1,2],"datatype":"FP32","data":[1,2.5]}]}`)
	if code != 200 || body != `{"id":"x","model_name":"chain","model_version":"1","outputs":[{"name":"OUT","datatype":"FP32","shape":[1,2],"data":[1.0,2.5]}]}` {
		t.Error(code, body)
	}
	client := dial(t, r.at("gRPC"))
	resp, err := client.ModelInfer(t.Context(), tensorRequest("chain", "IN", []byte{0, 0, 128, 63}))
	if err != nil || !bytes.Equal(resp.GetRawOutputContents()[0], []byte{0, 0, 128, 63}) || resp.GetOutputs()[0].GetName() != "OUT" {
		t.Error(resp, err)
	}
	if code, body = fetch(t, "GET", "http://"+r.at("metrics")+"/metrics", ""); code != 200 || !strings.Contains(body, `nv_inference_count{model="chain",version="1"} 2`) {
		t.Error(code, body)
	}
	code, body = fetch(t, "GET", url+"/v2/models/chain/stats", "")
	var stats struct {
		ModelStats []struct {
			InferenceCount int `json:"inference_count"`
		} `json:"model_stats"`
	}
	if err := json.Unmarshal([]byte(body), &stats); err != nil || code != 200 || stats.ModelStats[0].InferenceCount != 2 {
		t.Error(code, body, err)
	}
}

func TestP13ValidationTextsReachTheClient(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()))
	client := dial(t, r.at("gRPC"))
	req := tensorRequest("plain", "WRONG", make([]byte, 4))
	req.Id = ""
	_, err := client.ModelInfer(t.Context(), req)
	if st := status.Convert(err); st.Code() != codes.InvalidArgument || !strings.HasPrefix(st.Message(), "[request id: <id_unknown>] ") {
		t.Error(err)
	}
	req = sequenceRequest(0, 1) // no START
	_, err = client.ModelInfer(t.Context(), req)
	const text = "inference request for sequence 1 to model 'sum' must specify the START flag on the first request of the sequence"
	if st := status.Convert(err); st.Code() != codes.InvalidArgument || st.Message() != text {
		t.Error(err)
	}
}

func TestP12SequencesOverAStreamAddUp(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()))
	stream, err := dial(t, r.at("gRPC")).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := stream.Send(sequenceRequest(6, i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		m, err := stream.Recv()
		if err != nil || m.GetErrorMessage() != "" {
			t.Fatal(m, err)
		}
		if got := binary.LittleEndian.Uint32(m.GetInferResponse().GetRawOutputContents()[0]); got != uint32(i+1) {
			t.Fatalf("response %d is %d", i, got)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestSequencesOfOneListenerAreUnknownToAnother(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "private.sock")
	r := start(t, "--model-repository", repository(t, testModels()), "--private-socket", socket)
	private, public := dial(t, "unix://"+socket), dial(t, r.at("gRPC"))
	if _, err := private.ModelInfer(t.Context(), sequenceRequest(0, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := public.ModelInfer(t.Context(), sequenceRequest(0, 1)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the public listener continued a private sequence: %v", err)
	}
	if _, err := private.ModelInfer(t.Context(), sequenceRequest(0, 1)); err != nil {
		t.Error(err)
	}
	_, body := fetch(t, "GET", "http://"+r.at("HTTP")+"/v2/sequences", "")
	if strings.Contains(body, `"model"`) {
		t.Errorf("the public listener lists a private sequence: %s", body)
	}
}

// slots is a camera's memory with one frame in slot 1.
func slots(t *testing.T) (fd int, mem []byte, layout frame.Layout) {
	t.Helper()
	layout, err := frame.LayoutFor(5, frame.I420, 8, 8)
	if err != nil {
		t.Fatal(err)
	}
	if fd, err = unix.MemfdCreate("frames", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Ftruncate(fd, int64(layout.Size())); err != nil {
		t.Fatal(err)
	}
	if mem, err = unix.Mmap(fd, 0, layout.Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	if err := frame.PutLayout(mem, layout); err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(mem[layout.HeaderOffset(1):], 4)
	for i := range 96 {
		mem[layout.PixelOffset(1)+i] = byte(i)
	}
	return fd, mem, layout
}

// slowEnsemble prepares a frame and goes on when "hold" has a second request.
const slowEnsemble = `platform: "ensemble" max_batch_size: 1
input [ { name: "FRAME" data_type: TYPE_UINT8 dims: [ -1 ] }, { name: "FRAME_INFO" data_type: TYPE_INT64 dims: [ 8 ] } ]
output { name: "OUT" data_type: TYPE_FP32 dims: [ 6 ] }
ensemble_scheduling { step [
 { model_name: "prepare" model_version: -1 input_map [ { key: "FRAME" value: "FRAME" }, { key: "FRAME_INFO" value: "FRAME_INFO" } ]
   output_map { key: "GEOMETRY" value: "geometry" } },
 { model_name: "hold" model_version: -1 input_map { key: "INPUT0" value: "geometry" } output_map { key: "OUTPUT0" value: "OUT" } } ] }`

const holdModel = `backend: "identity" max_batch_size: 2
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 6 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 6 ] }
dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 600000000 }`

func TestFramesAreReadInPlaceAndCheckedAfterwards(t *testing.T) {
	dir := t.TempDir()
	socket, memory := filepath.Join(dir, "private.sock"), filepath.Join(dir, "memory.sock")
	r := start(t, "--model-repository", filepath.Join("..", "..", "models"), "--model-repository", repository(t, map[string]string{
		"hold/config.pbtxt": holdModel, "hold/1/keep": "", "slow/config.pbtxt": slowEnsemble, "slow/1/keep": "",
	}), "--model-control-mode=explicit", "--load-model=slow", "--private-socket", socket, "--memory-socket", memory)
	fd, mem, layout := slots(t)
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: memory, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	order, err := json.Marshal(shm.Order{Region: "cam", ByteSize: uint64(layout.Size())})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.WriteMsgUnix(order, unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 100)
	if n, err := conn.Read(answer); err != nil || string(answer[:n]) != "{}" {
		t.Fatalf("%s, %v", answer[:n], err)
	}
	client := dial(t, "unix://"+socket)
	ask := func(model string, generation uint64, slot int) (*inference.ModelInferResponse, error) {
		info := frame.Info{Format: frame.I420, Width: 8, Height: 8, Generation: generation, Slot: slot}.Values()
		str := func(s string) *inference.InferParameter {
			return &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: s}}
		}
		num := func(n int) *inference.InferParameter {
			return &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(n)}}
		}
		return client.ModelInfer(t.Context(), &inference.ModelInferRequest{
			ModelName: model,
			Inputs: []*inference.ModelInferRequest_InferInputTensor{
				{Name: "FRAME", Datatype: "UINT8", Shape: []int64{1, 96}, Parameters: map[string]*inference.InferParameter{
					"shared_memory_region": str("cam"), "shared_memory_offset": num(layout.PixelOffset(1)), "shared_memory_byte_size": num(96),
				}},
				{Name: "FRAME_INFO", Datatype: "INT64", Shape: []int64{1, 8}},
			},
			RawInputContents: [][]byte{tensor.AsBytes(info[:])},
		})
	}
	resp, err := ask("prepare", 4, 1)
	if err != nil || len(resp.GetRawOutputContents()) != 2 {
		t.Fatal(err)
	}
	if _, err = ask("prepare", 4, 2); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a frame in another slot: %v", err)
	}
	// A frame that was read may go, however long the rest takes.
	slow := make(chan error, 1)
	go func() {
		_, err := ask("slow", 4, 1)
		slow <- err
	}()
	for deadline := time.Now().Add(time.Minute); ; {
		if _, body := fetch(t, "GET", "http://"+r.at("metrics")+"/metrics", ""); strings.Contains(body, `nv_inference_pending_request_count{model="hold",version="1"} 1`) {
			break
		}
		select {
		case err := <-slow:
			t.Fatalf("the ensemble did not wait for its second step: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("the frame never comes to the second step")
		}
	}
	binary.LittleEndian.PutUint64(mem[layout.HeaderOffset(1):], 6)
	if _, err = ask("prepare", 4, 1); !strings.Contains(status.Convert(err).Message(), "FRAME_OVERWRITTEN") {
		t.Errorf("an overwritten frame: %v", err)
	}
	six := []float32{1, 2, 3, 4, 5, 6}
	if _, err := client.ModelInfer(t.Context(), &inference.ModelInferRequest{
		ModelName:        "hold",
		Inputs:           []*inference.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "FP32", Shape: []int64{1, 6}}},
		RawInputContents: [][]byte{tensor.AsBytes(six)},
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-slow; err != nil {
		t.Errorf("a frame that was overwritten after it was read: %v", err)
	}
}

func TestTypedErrorsAtStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	good := repository(t, testModels())
	bad := repository(t, map[string]string{"x/config.pbtxt": `backend: "none-such"`, "x/1/keep": ""})
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"a port that is taken", []string{"--model-repository", good, "--http-address", "127.0.0.1", "--http-port", port, "--allow-grpc=false", "--allow-metrics=false"}, "another program has this port: stop it, or choose another port with --http-port"},
		{"a repository that is not there", []string{"--model-repository", filepath.Join(good, "none"), "--http-address=127.0.0.1", "--http-port=0", "--allow-grpc=false", "--allow-metrics=false"}, "none"},
		{"a model that does not load", []string{"--model-repository", bad, "--http-address=127.0.0.1", "--http-port=0", "--allow-grpc=false", "--allow-metrics=false"}, "none-such"},
		{"nothing to serve", []string{"--model-repository", good, "--allow-http=false", "--allow-grpc=false", "--allow-metrics=false"}, "every listener is switched off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, _, _, err := flags.Parse(c.args, func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			s, err := server.New(cfg)
			if err == nil {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err = s.Run(ctx)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
}

func TestStartAndStopTenTimes(t *testing.T) {
	dir := repository(t, testModels())
	for range 10 {
		t.Run("", func(t *testing.T) { start(t, "--model-repository", dir) })
	}
}

// pythonClient speaks to the server with stubs made from our protos by another implementation.
const pythonClient = `
import sys
import grpc
from inference import grpc_service_pb2 as pb
channel = grpc.insecure_channel(sys.argv[1])
def call(name, request, response):
    return channel.unary_unary('/inference.GRPCInferenceService/' + name,
        request_serializer=lambda m: m.SerializeToString(), response_deserializer=response.FromString)(request)
assert call('ServerLive', pb.ServerLiveRequest(), pb.ServerLiveResponse).live
assert call('ServerMetadata', pb.ServerMetadataRequest(), pb.ServerMetadataResponse).name == 'triton'
config = call('ModelConfig', pb.ModelConfigRequest(name='plain'), pb.ModelConfigResponse).config
assert config.max_batch_size == 8, config
def request(model, name, datatype, shape, raw, **parameters):
    r = pb.ModelInferRequest(model_name=model, id='py')
    r.inputs.add(name=name, datatype=datatype, shape=shape)
    r.raw_input_contents.append(raw)
    for k, v in parameters.items():
        if isinstance(v, bool): r.parameters[k].bool_param = v
        else: r.parameters[k].int64_param = v
    return r
r = call('ModelInfer', request('plain', 'INPUT0', 'FP32', [1, 2], b'\x00\x00\x80\x3f\x00\x00\x00\x40'), pb.ModelInferResponse)
assert r.id == 'py' and r.outputs[0].name == 'OUTPUT0' and r.raw_output_contents[0] == b'\x00\x00\x80\x3f\x00\x00\x00\x40', r
def sequence():
    for i in range(5):
        yield request('sum', 'INPUT', 'INT32', [1, 1], b'\x02\x00\x00\x00', sequence_id=77, sequence_start=i == 0, sequence_end=i == 4)
stream = channel.stream_stream('/inference.GRPCInferenceService/ModelStreamInfer',
    request_serializer=lambda m: m.SerializeToString(), response_deserializer=pb.ModelStreamInferResponse.FromString)
got = [int.from_bytes(m.infer_response.raw_output_contents[0], 'little') for m in stream(sequence())]
assert got == [2, 4, 6, 8, 10], got
try:
    call('ModelInfer', request('none', 'INPUT0', 'FP32', [1, 1], b'\x00' * 4), pb.ModelInferResponse)
    raise SystemExit('an unknown model was answered')
except grpc.RpcError as e:
    assert e.code() == grpc.StatusCode.NOT_FOUND and e.details() == "Request for unknown model: 'none' is not found", e
print('ok')
`

func TestP2AClientInAnotherLanguage(t *testing.T) {
	const python = "/usr/bin/python3"
	if err := exec.CommandContext(t.Context(), python, "-c", "import grpc, google.protobuf").Run(); err != nil {
		t.Skip("python3-grpcio is not installed:", err)
	}
	protoc, err := exec.LookPath("protoc")
	if err != nil {
		t.Skip("protobuf-compiler is not installed:", err)
	}
	dir := t.TempDir()
	api := filepath.Join("..", "..", "api")
	out, err := exec.CommandContext(t.Context(), protoc, "-I", api, "--python_out", dir,
		filepath.Join(api, "inference", "grpc_service.proto"), filepath.Join(api, "inference", "model_config.proto")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := start(t, "--model-repository", repository(t, testModels()))
	cmd := exec.CommandContext(t.Context(), python, "-c", pythonClient, r.at("gRPC"))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
	if out, err = cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("%v\n%s", err, out)
	}
}

// realData is where real models and videos are.
func realData() string {
	if dir := os.Getenv("VEDETTE_TEST_DATA"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", "..", "shared", "data")
}

func TestYOLOXThroughBothFrontends(t *testing.T) {
	model, err := os.ReadFile(filepath.Join(realData(), "models", "yolox_nano.onnx"))
	if err != nil {
		t.Skip("no test data:", err)
	}
	if _, err := os.Stat(library()); err != nil {
		t.Skip("no ONNX Runtime:", err)
	}
	r := start(t, "--model-repository", repository(t, map[string]string{"yolox/1/model.onnx": string(model)}))
	client := dial(t, r.at("gRPC"))
	meta, err := client.ModelMetadata(t.Context(), &inference.ModelMetadataRequest{Name: "yolox"})
	if err != nil {
		t.Fatal(err)
	}
	in := meta.GetInputs()[0]
	if in.GetDatatype() != "FP32" || fmt.Sprint(in.GetShape()) != "[1 3 416 416]" || meta.GetPlatform() != "onnxruntime_onnx" {
		t.Fatal(meta)
	}
	pixels := make([]byte, 3*416*416*4)
	req := tensorRequest("yolox", in.GetName(), pixels)
	req.Inputs[0].Shape = in.GetShape()
	resp, err := client.ModelInfer(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	header := fmt.Sprintf(`{"parameters":{"binary_data_output":true},"inputs":[{"name":%q,"shape":[1,3,416,416],"datatype":"FP32","parameters":{"binary_data_size":%d}}]}`, in.GetName(), len(pixels))
	hreq, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.at("HTTP")+"/v2/models/yolox/infer", io.MultiReader(strings.NewReader(header), bytes.NewReader(pixels)))
	if err != nil {
		t.Fatal(err)
	}
	hreq.Header.Set("Inference-Header-Content-Length", fmt.Sprint(len(header)))
	hreq.Close = true
	hresp, err := http.DefaultClient.Do(hreq)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hresp.Body.Close() }()
	body, err := io.ReadAll(hresp.Body)
	if err != nil || hresp.StatusCode != http.StatusOK || !bytes.HasSuffix(body, resp.GetRawOutputContents()[0]) || len(resp.GetRawOutputContents()[0]) != 3549*85*4 {
		t.Errorf("got %d, %d bytes, %v", hresp.StatusCode, len(body), err)
	}
}
