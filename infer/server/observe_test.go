package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vedette/vedette/api/inference"
)

// traced is one object of a trace file.
type traced struct {
	ID        uint64 `json:"id"`
	Model     string `json:"model_name"`
	Version   int64  `json:"model_version"`
	Request   string `json:"request_id"`
	Parent    uint64 `json:"parent_id"`
	Activity  string `json:"activity"`
	Timestamp []struct {
		Name string `json:"name"`
		NS   int64  `json:"ns"`
	} `json:"timestamps"`
	Tensor struct {
		Name, Data, Shape, Dtype string
	} `json:"tensor"`
}

func readTraces(t *testing.T, path string) []traced {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []traced
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return out
}

func names(list []traced, id uint64) (out []string) {
	last := int64(0)
	for _, x := range list {
		for _, s := range x.Timestamp {
			if x.ID == id && s.NS >= last {
				out = append(out, s.Name)
				last = s.NS
			}
		}
	}
	return out
}

func TestX5TraceFilesHoldRequestsAndTheStepsOfEnsembles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.json")
	r := start(t, "--model-repository", repository(t, testModels()),
		"--trace-config=level=TIMESTAMPS", "--trace-config=rate=1", "--trace-config=triton,file="+file, "--trace-config=triton,log-frequency=2")
	url := "http://" + r.at("HTTP")
	body := `{"id":"x","inputs":[{"name":"IN","shape":[1,2],"datatype":"FP32","data":[1,2.5]}]}`
	if code, answer := fetch(t, "POST", url+"/v2/models/chain/infer", body); code != 200 {
		t.Fatal(code, answer)
	}
	client := dial(t, r.at("gRPC"))
	if code, answer := fetch(t, "POST", url+"/v2/models/plain/trace/setting", `{"trace_level":["TENSORS"]}`); code != 200 {
		t.Fatal(code, answer)
	}
	for range 2 {
		req := tensorRequest("plain", "INPUT0", []byte{0, 0, 128, 63})
		req.Parameters = map[string]*inference.InferParameter{"mine": {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: 1}}}
		if _, err := client.ModelInfer(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	r.stop()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	r.done <- nil // for the cleanup

	first := readTraces(t, file+".0")
	root := first[0]
	if root.Model != "chain" || root.Version != 1 || root.Request != "x" || root.Parent != 0 {
		t.Errorf("got %+v", root)
	}
	want := []string{
		"HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "QUEUE_START",
		"INFER_RESPONSE_COMPLETE", "REQUEST_END", "HTTP_SEND_START", "HTTP_SEND_END",
	}
	if got := names(first, root.ID); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	var steps []string
	for _, x := range first {
		if x.Parent == root.ID {
			steps = append(steps, x.Model)
			if got := names(first, x.ID); !slices.Equal(got, []string{
				"REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END",
				"INFER_RESPONSE_COMPLETE", "REQUEST_END",
			}) {
				t.Errorf("step %s: got %q", x.Model, got)
			}
		}
	}
	if !slices.Equal(steps, []string{"plain", "plain2"}) {
		t.Errorf("got the steps %q", steps)
	}
	// The second request to plain was the third trace, which begins the second file.
	second := readTraces(t, file+".1")
	if second[0].Model != "plain" || len(second) != 3 {
		t.Fatalf("got %+v", second)
	}
	for i, activity := range []string{"TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_OUTPUT"} {
		if x := second[i+1]; x.Activity != activity || x.Tensor.Data != "1" || x.Tensor.Shape != "1,1" || x.Tensor.Dtype != "FP32" {
			t.Errorf("got %+v", x)
		}
	}
}

func TestInstancesTellWhereTheyRun(t *testing.T) {
	model, err := os.ReadFile(filepath.Join("..", "backend", "onnxruntime", "testdata", "addsub.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, "--model-repository", repository(t, map[string]string{
		"add/1/model.onnx": string(model), "add/config.pbtxt": `backend: "onnxruntime" parameters { key: "queue_budget_ms" value { string_value: "20" } }`,
		"plain/config.pbtxt": identityModel, "plain/1/keep": "",
	}))
	if _, body := fetch(t, "GET", "http://"+r.at("HTTP")+"/v2/models/add/instances", ""); !strings.Contains(body, `"provider":"cpu"`) || !strings.Contains(body, `"version":"1"`) {
		t.Error(body)
	}
	if _, body := fetch(t, "GET", "http://"+r.at("HTTP")+"/v2/models/plain/instances", ""); body != `{"instances":[]}` {
		t.Error(body)
	}
	if _, body := fetch(t, "GET", "http://"+r.at("HTTP")+"/v2/models/add/stats", ""); !strings.Contains(body, fmt.Sprintf(`"memory_usage":[{"type":"CPU","id":0,"byte_size":%d}]`, 2*len(model))) {
		t.Error(body)
	}
	meta, err := dial(t, r.at("gRPC")).ModelMetadata(t.Context(), &inference.ModelMetadataRequest{Name: "add"})
	if err != nil || len(meta.GetInstances()) != 2 || meta.GetInstances()[0].GetProvider() != "cpu" || meta.GetInstances()[0].GetName() != "add_0" {
		t.Errorf("got %v, %v", meta, err)
	}
	_, body := fetch(t, "GET", "http://"+r.at("metrics")+"/metrics", "")
	for _, want := range []string{
		`vedette_instance_provider{instance="add_0",model="add",provider="cpu",version="1"} 1`, `vedette_instance_fallbacks_total{instance="add_0",model="add",version="1"} 0`,
		`vedette_inference_queue_budget_seconds{model="add",version="1"} 0.02`, `vedette_inference_queue_budget_ratio{model="add",version="1"} 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not told in\n%s", want, body)
		}
	}
}
