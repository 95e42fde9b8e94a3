package v2http_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/trace"
	"github.com/vedette/vedette/infer/v2http"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type server struct {
	models *models
	url    string
	client http.Client
	stop   func() error
}

// serve starts a server on a socket of its own.
func serve(t *testing.T, change func(*v2http.Config)) *server {
	t.Helper()
	m := &models{held: make(map[string]chan struct{})}
	cfg := v2http.Config{Inferer: m, Catalog: m, Pool: &m.pool, StopTimeout: time.Minute}
	if change != nil {
		change(&cfg)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- v2http.New(cfg).Run(ctx, ln) }()
	transport := &http.Transport{DisableCompression: true}
	s := &server{models: m, url: "http://" + ln.Addr().String(), client: http.Client{Transport: transport}}
	stopped := false
	s.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		transport.CloseIdleConnections()
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
	return s
}

type answer struct {
	status int
	body   string
	header http.Header
}

func (s *server) do(t *testing.T, method, path, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, string(b), resp.Header}
}

func (a answer) want(t *testing.T, status int, body string) {
	t.Helper()
	if a.status != status || strings.TrimSpace(a.body) != body {
		t.Errorf("got %d %s\nwant %d %s", a.status, a.body, status, body)
	}
}

func (a answer) wantError(t *testing.T, status int, text string) {
	t.Helper()
	var e struct{ Error string }
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status != status || e.Error != text || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %s\nwant %d %s", a.status, a.body, status, text)
	}
}

const inferPath = "/v2/models/echo/infer"

func TestP1RoutesAndMethods(t *testing.T) {
	s := serve(t, nil)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/", 404},
		{"GET", "/v2x", 404},
		{"GET", "/v2/", 200},
		{"GET", "/v2/health", 404},
		{"POST", "/v2/health/live", 405},
		{"GET", "/v2/models", 404},
		{"GET", "/v2/models/echo/infer", 405},
		{"POST", "/v2/models/echo", 405},
		{"GET", "/v2/models/echo/versions/x/ready", 404},
		{"GET", "/v2/models/echo/versions/3/ready", 200},
		{"GET", "/v2/models/echo/versions/3/", 404},
		{"GET", "/v2/models/echo/none", 404},
		{"GET", "/v2/models/..%2Fecho", 404},
		{"GET", "/v2/repository/index", 405},
		{"POST", "/v2/repository/index/x", 404},
		{"POST", "/v2/systemsharedmemory/status", 405},
		{"POST", "/v2/systemsharedmemory/region/r/x", 404},
		{"GET", "/v2/trace", 404},
		{"GET", "/v2/logging/x", 404},
	} {
		if got := s.do(t, c.method, c.path, ""); got.status != c.status {
			t.Errorf("%s %s: got %d, want %d", c.method, c.path, got.status, c.status)
		}
	}
	s.do(t, "POST", "/v2/health/live", "").wantError(t, 405, "Method Not Allowed")
	s.do(t, "GET", "/nowhere", "").wantError(t, 404, "Not Found")
}

func TestP3Health(t *testing.T) {
	s := serve(t, nil)
	s.do(t, "GET", "/v2/health/live", "").want(t, 200, `{"live":true}`)
	s.do(t, "GET", "/v2/health/ready", "").want(t, 200, `{"ready":true}`)
	s.do(t, "GET", "/v2/models/echo/ready", "").want(t, 200, `{"name":"echo","ready":true}`)
	s.do(t, "GET", "/v2/models/x/ready", "").wantError(t, 404, "Request for unknown model: 'x' is not found")
	s.do(t, "GET", "/v2/models/echo/versions/0/ready", "").wantError(t, 400, "invalid model version specified '0' , version should be an integral value > 0")
	s.do(t, "GET", "/v2/models/echo/versions/99999999999999999999/ready", "").wantError(t, 400,
		"failed to get model version from specified version string '99999999999999999999' (details: stoll), version should be an integral value > 0")
	s.models.stopped = true
	s.do(t, "GET", "/v2/health/ready", "").want(t, 400, `{"ready":false}`)
}

func TestP4AndP5Metadata(t *testing.T) {
	s := serve(t, nil)
	s.do(t, "GET", "/v2", "").want(t, 200, `{"name":"triton","version":"1","extensions":["sequence"]}`)
	s.do(t, "GET", "/v2/models/echo", "").want(t, 200,
		`{"name":"echo","versions":["2","3"],"platform":"test","inputs":[{"name":"IN","datatype":"FP32","shape":[-1,4]}],"outputs":[{"name":"OUT","datatype":"FP32","shape":[-1,4]}]}`)
	if got := s.do(t, "GET", "/v2/models/echo/versions/3", ""); !strings.Contains(got.body, `"versions":["3"]`) {
		t.Error(got.body)
	}
}

func TestP6ConfigHasNumbersWhereTritonHasThem(t *testing.T) {
	s := serve(t, nil)
	s.models.config = &inference.ModelConfig{
		Name: "echo", MaxBatchSize: 0,
		Input:         []*inference.ModelInput{{Name: "5", DataType: inference.DataType_TYPE_FP32, Dims: []int64{-1, 3}}},
		InstanceGroup: []*inference.ModelInstanceGroup{{Name: "7", Kind: inference.ModelInstanceGroup_KIND_CPU, Count: 2}},
		SchedulingChoice: &inference.ModelConfig_DynamicBatching{DynamicBatching: &inference.ModelDynamicBatching{
			MaxQueueDelayMicroseconds: 100,
			PriorityQueuePolicy:       map[uint64]*inference.ModelQueuePolicy{3: {DefaultTimeoutMicroseconds: 9}},
		}},
		ModelWarmup: []*inference.ModelWarmup{{Inputs: map[string]*inference.ModelWarmup_Input{"5": {Dims: []int64{8}}}}},
		Parameters:  map[string]*inference.ModelParameter{"k": {StringValue: "12"}},
	}
	got := s.do(t, "GET", "/v2/models/echo/config", "")
	for _, want := range []string{
		`"max_batch_size":0`, `"default_model_filename":""`, `"data_type":"TYPE_FP32"`, `"dims":[-1,3]`, `"name":"5"`, `"name":"7"`,
		`"kind":"KIND_CPU"`, `"max_queue_delay_microseconds":100`, `"priority_queue_policy":{"3":{`, `"default_timeout_microseconds":9`,
		`"dims":[8]`, `"string_value":"12"`,
	} {
		if !strings.Contains(got.body, want) {
			t.Errorf("%s is not in %s", want, got.body)
		}
	}
	if strings.Contains(got.body, "sequence_batching") || !json.Valid([]byte(got.body)) || got.header.Get("Content-Type") != "application/json" {
		t.Error(got.body)
	}
}

func TestP7JSONInference(t *testing.T) {
	s := serve(t, func(c *v2http.Config) { c.Scope = "public" })
	for _, c := range []struct{ name, request, want string }{
		{
			"flat numbers", `{"id":"a\"b","inputs":[{"name":"A","shape":[2],"datatype":"INT32","data":[1,-2]}]}`,
			`{"id":"a\"b","model_name":"echo","model_version":"3","outputs":[{"name":"A","datatype":"INT32","shape":[2],"data":[1,-2]}]}`,
		},
		{
			"nested numbers, members in another order", `{"inputs":[{"data":[[1,2],[3,4.5]],"datatype":"FP32","shape":[2,2],"name":"A"}]}`,
			`{"model_name":"echo","model_version":"3","outputs":[{"name":"A","datatype":"FP32","shape":[2,2],"data":[1.0,2.0,3.0,4.5]}]}`,
		},
		{
			"a float is printed as a double", `{"inputs":[{"name":"A","shape":[3],"datatype":"FP32","data":[0.1,1e30,-0.0]}]}`,
			`{"model_name":"echo","model_version":"3","outputs":[{"name":"A","datatype":"FP32","shape":[3],"data":[0.10000000149011612,1.0000000150474662e+30,-0.0]}]}`,
		},
		{
			"strings and escapes", `{"inputs":[{"name":"A","shape":[1,3],"datatype":"BYTES","data":["a\nb","","\u00e9\ud83d\ude00"]}]}`,
			`{"model_name":"echo","model_version":"3","outputs":[{"name":"A","datatype":"BYTES","shape":[1,3],"data":["a\nb","","é😀"]}]}`,
		},
		{
			"truths", `{"inputs":[{"name":"A","shape":[2],"datatype":"BOOL","data":[true,false]}]}`,
			`{"model_name":"echo","model_version":"3","outputs":[{"name":"A","datatype":"BOOL","shape":[2],"data":[true,false]}]}`,
		},
		{
			"the widest integers", `{"inputs":[{"name":"A","shape":[1],"datatype":"UINT64","data":[18446744073709551615]},{"name":"B","shape":[1],"datatype":"INT64","data":[-9223372036854775808]},{"name":"C","shape":[1],"datatype":"INT8","data":[-128]}]}`,
			`{"model_name":"echo","model_version":"3","outputs":[{"name":"A","datatype":"UINT64","shape":[1],"data":[18446744073709551615]},{"name":"B","datatype":"INT64","shape":[1],"data":[-9223372036854775808]},{"name":"C","datatype":"INT8","shape":[1],"data":[-128]}]}`,
		},
		{
			"NaN and infinities", `{"inputs":[{"name":"A","shape":[5],"datatype":"FP32","data":[NaN,Infinity,-Infinity,Inf,-Inf]}]}`,
			`{"model_name":"echo","model_version":"3","outputs":[{"name":"A","datatype":"FP32","shape":[5],"data":[NaN,Infinity,-Infinity,Infinity,-Infinity]}]}`,
		},
		{
			"only what was asked for", `{"inputs":[{"name":"A","shape":[1],"datatype":"INT32","data":[1]},{"name":"B","shape":[1],"datatype":"INT32","data":[2]}],"outputs":[{"name":"B"}]}`,
			`{"model_name":"echo","model_version":"3","outputs":[{"name":"B","datatype":"INT32","shape":[1],"data":[2]}]}`,
		},
		{
			"no elements", `{"inputs":[{"name":"A","shape":[0,4],"datatype":"FP64","data":[]}]}`,
			`{"model_name":"echo","model_version":"3","outputs":[{"name":"A","datatype":"FP64","shape":[0,4],"data":[]}]}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := s.do(t, "POST", inferPath, c.request)
			got.want(t, 200, c.want)
			if got.header.Get("Content-Type") != "application/json" || got.header.Get("Content-Length") != fmt.Sprint(len(c.want)) {
				t.Error(got.header)
			}
		})
	}
}

func in(rest string) string { return `{"inputs":[{"name":"A",` + rest + `}]}` }

func TestP7RequestsThatAreRefused(t *testing.T) {
	s := serve(t, nil)
	const json400 = "failed to parse the request JSON buffer: "
	for _, c := range []struct {
		name, body string
		status     int
		text       string
	}{
		{"nothing", ``, 400, json400 + "The document is empty. at 0"},
		{"no JSON", `{"inputs"`, 400, json400 + "Missing a colon after a name of object member. at 9"},
		{"two documents", `{} {}`, 400, json400 + "The document root must not be followed by other values. at 3"},
		{"inputs that are none", `{"inputs":{}}`, 400, "Unable to parse 'inputs': attempt to access JSON non-array as array"},
		{"outputs that are none", `{"inputs":[],"outputs":null}`, 400, "Unable to parse 'outputs': attempt to access JSON non-array as array"},
		{"parameters that are none", `{"inputs":[],"parameters":[1]}`, 400, "Unable to parse 'parameters': attempt to access JSON non-object as object"},
		{"a shape that is none", in(`"shape":5,"datatype":"FP32","data":[1]`), 400, "Unable to parse 'shape': attempt to access JSON non-array as array"},
		{"a shape of lists", in(`"shape":[[1]],"datatype":"FP32","data":[1]`), 400, "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"},
		{"a list for a request", `[]`, 400, "Unable to parse 'request': attempt to access JSON non-object as object"},
		{"an input that is none", `{"inputs":[1]}`, 400, "Unable to parse 'inputs': attempt to access JSON non-object as object"},
		{"a name that is none", `{"inputs":[{"name":1}]}`, 400, "Unable to parse 'name': attempt to access JSON non-string as string"},
		{"parameters of an input that are none", in(`"shape":[1],"datatype":"FP32","data":[1],"parameters":3`), 400, "Unable to parse 'parameters': attempt to access JSON non-object as object"},
		{"an output that is none", `{"inputs":[],"outputs":["A"]}`, 400, "Unable to parse 'outputs': attempt to access JSON non-object as object"},
		{"a shape that is no JSON", in(`"shape":x,"datatype":"FP32","data":[1]`), 400, json400 + "Invalid value. at 31"},
		{"an open list", `{"inputs":[`, 400, json400 + "Invalid value. at 11"},
		{"a fault within data", in(`"shape":[1],"datatype":"FP32","data":[1.]`), 400, json400 + "Miss fraction part in number. at 63"},
		{"nesting beyond measure", `{"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, 400, json400 + "JSON nesting depth exceeds maximum allowed limit (100) at 104"},
		{"too many elements", in(`"shape":[1],"datatype":"FP32","data":[1,2]`), 400, "Unable to parse 'data': Shape does not match true shape of 'data' field"},
		{"too few elements", in(`"shape":[3],"datatype":"FP32","data":[1,2]`), 400, "Unable to parse 'data': Shape does not match true shape of 'data' field"},
		{"a shape beyond the limit", in(`"shape":[99999999999],"datatype":"FP32","data":[1,2]`), 400, "JSON input 'A' has a byte_size (399999999996 bytes) that exceeds the maximum allowed value of 67108864 bytes. Use --http-max-input-size to increase the limit."},
		{"more elements than there are numbers", in(`"shape":[16,1152921504606846978],"datatype":"FP32","data":[1]`), 400, "invalid shape for input 'A': shape [16,1152921504606846978] causes total element count to exceed maximum size of 9223372036854775807"},
		{"more bytes than there are numbers", in(`"shape":[4,1152921504606846978],"datatype":"FP32","data":[1]`), 400, "byte size overflow for input 'A': element count (4611686018427387912) * data type size (4) exceeds maximum allowed size (9223372036854775807)"},
		{"a dimension beyond measure", in(`"shape":[9223372036854775808],"datatype":"FP32","data":[1]`), 400, "invalid shape for input 'A': shape [-9223372036854775808] contains one or more invalid dimensions"},
		{"a negative shape", in(`"shape":[-1],"datatype":"FP32","data":[1,2]`), 400, "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"},
		{"a shape of fractions", in(`"shape":[1.5],"datatype":"FP32","data":[1,2]`), 400, "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"},
		{"an input without a name", `{"inputs":[{"shape":[1],"datatype":"FP32","data":[1]}]}`, 400, "Unable to parse 'name': attempt to access non-existing object member 'name'"},
		{"an input without a shape", in(`"datatype":"FP32","data":[1]`), 400, "Unable to parse 'shape': attempt to access non-existing object member 'shape'"},
		{"an input without a type", in(`"shape":[1],"data":[1]`), 400, "Unable to parse 'datatype': attempt to access non-existing object member 'datatype'"},
		{"an output without a name", `{"inputs":[],"outputs":[{}]}`, 400, "Unable to parse 'name': attempt to access non-existing object member 'name'"},
		{"a class and a region", `{"inputs":[],"outputs":[{"name":"A","parameters":{"classification":1,"shared_memory_region":"r"}}]}`, 400, "Output can't set both 'shared_memory_region' and 'classification'"},
		{"binary data and a region", `{"inputs":[],"outputs":[{"name":"A","parameters":{"binary_data":true,"shared_memory_region":"r"}}]}`, 400, "Output can't set both 'shared_memory_region' and 'binary_data'"},
		{"a sequence id that is neither number nor string", `{"parameters":{"sequence_id":1.5},"inputs":[]}`, 400, "Unable to parse 'sequence_id': attempt to access JSON non-string as string"},
		{"half floats", in(`"shape":[1],"datatype":"FP16","data":[1]`), 400, "receiving FP16 data via JSON is not supported. Please use the binary data format for input A"},
		{"an unknown type", in(`"shape":[1],"datatype":"FP8","data":[1]`), 400, "invalid datatype 'FP8' for input 'A' for model 'echo'"},
		{"a number out of range", in(`"shape":[1],"datatype":"UINT8","data":[256]`), 400, "Unable to parse 'data': a value is not within the range of UINT8"},
		{"a fraction for an integer", in(`"shape":[1],"datatype":"INT32","data":[1.5]`), 400, "Unable to parse 'data': attempt to access JSON non-integer as integer"},
		{"a number beyond numbers", in(`"shape":[1],"datatype":"UINT64","data":[18446744073709551616]`), 400, "Unable to parse 'data': a value is not within the range of UINT64"},
		{"no data", in(`"shape":[1],"datatype":"FP32"`), 400, "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But no field is set"},
		{
			"data twice", in(`"shape":[1],"datatype":"FP32","data":[1],"parameters":{"binary_data_size":4}`), 400,
			"Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But set 'data' 'binary_data_size'",
		},
		{"binary data without the header", in(`"shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}`), 400, "must specify valid 'Infer-Header-Content-Length' in request header and 'binary_data_size' when passing inputs in binary data format"},
		{"an unknown region", in(`"shape":[1],"datatype":"FP32","parameters":{"shared_memory_region":"R","shared_memory_byte_size":4}`), 404, "Unable to find shared memory region: 'R'"},
		{"a reserved parameter", `{"parameters":{"triton_x":1},"inputs":[]}`, 400, "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."},
		{"a sequence id that is too long", `{"parameters":{"sequence_id":"` + strings.Repeat("x", 129) + `"},"inputs":[]}`, 501, "string correlation ID cannot be longer than 128 characters"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.do(t, "POST", inferPath, c.body).wantError(t, c.status, c.text)
		})
	}
	s.do(t, "POST", "/v2/models/repeat/infer", "{}").wantError(t, 501, "HTTP end point doesn't support models with decoupled transaction policy")
	s.do(t, "POST", "/v2/models/x/infer", "{}").wantError(t, 404, "Request for unknown model: 'x' is not found")
	s.do(t, "POST", "/v2/models/fail/infer", in(`"shape":[1],"datatype":"FP32","data":[1]`)).wantError(t, 503, "Exceeds maximum queue size")
}

func TestP8BinaryTensors(t *testing.T) {
	s := serve(t, nil)
	header := `{"inputs":[{"name":"A","shape":[2],"datatype":"FP16","parameters":{"binary_data_size":4}},{"name":"J","shape":[1],"datatype":"INT32","data":[7]},{"name":"B","shape":[3],"datatype":"UINT8","parameters":{"binary_data_size":3}}],` +
		`"outputs":[{"name":"B","parameters":{"binary_data":true}},{"name":"A","parameters":{"binary_data":true}},{"name":"J"}]}`
	length := fmt.Sprint(len(header))
	got := s.do(t, "POST", inferPath, header+"abcdefg", "Inference-Header-Content-Length", length)
	want := `{"model_name":"echo","model_version":"3","outputs":[{"name":"A","datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4}},{"name":"J","datatype":"INT32","shape":[1],"data":[7]},{"name":"B","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}]}`
	got.want(t, 200, want+"abcdefg")
	if got.header.Get("Inference-Header-Content-Length") != fmt.Sprint(len(want)) || got.header.Get("Content-Type") != "application/octet-stream" {
		t.Error(got.header)
	}
	for _, c := range []struct{ name, body, length, text string }{
		{"too long a header", header, "10000", fmt.Sprintf("inference header size should be in range (0, %d), got: 10000", len(header))},
		{"a negative header", header, "-1", fmt.Sprintf("inference header size should be in range (0, %d), got: -1", len(header))},
		{"a header that is no number", header, "x", fmt.Sprintf("inference header size should be in range (0, %d), got: x", len(header))},
		{"too short a tail", header + "abcdef", length, "unexpected size for input 'B', expecting 1 additional bytes for model 'echo'"},
		{"too long a tail", header + "abcdefgh", length, "unexpected additional input data for model 'echo'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.do(t, "POST", inferPath, c.body, "Inference-Header-Content-Length", c.length).wantError(t, 400, c.text)
		})
	}
}

func TestP8LargeTensorsAreAlignedAndComeBackWhole(t *testing.T) {
	s := serve(t, nil)
	data := strings.Repeat("0123456789abcdef", 1<<16)
	for extra := range 9 {
		header := `{"id":"` + strings.Repeat("x", extra) + `","parameters":{"binary_data_output":true},"inputs":[{"name":"A","shape":[1048576],"datatype":"UINT8","parameters":{"binary_data_size":1048576}}]}`
		got := s.do(t, "POST", inferPath, header+data, "Inference-Header-Content-Length", fmt.Sprint(len(header)))
		if got.status != 200 || !strings.HasSuffix(got.body, data) {
			t.Fatalf("got %d, %d bytes", got.status, len(got.body))
		}
		d := s.models.last().Inputs[0].Data
		if !tensor.SameMemory(tensor.AsBytes(tensor.View[uint64](d)), d) {
			t.Errorf("with an id of %d bytes the tensor is not aligned", extra)
		}
	}
}

func TestP10RawBinaryRequest(t *testing.T) {
	s := serve(t, nil)
	got := s.do(t, "POST", inferPath, "all of it", "Inference-Header-Content-Length", "0")
	if got.status != 200 || string(s.models.last().Raw) != "all of it" || s.models.last().Inputs != nil {
		t.Errorf("got %d, %+v", got.status, s.models.last())
	}
}

func TestP14ParametersReachTheModelAndComeBack(t *testing.T) {
	s := serve(t, func(c *v2http.Config) { c.Scope = "public" })
	got := s.do(t, "POST", inferPath, `{"id":"q","parameters":{"sequence_id":18446744073709551615,"sequence_start":true,"sequence_end":true,"priority":2,"timeout":1500,"s":"x"},"inputs":[]}`)
	got.want(t, 200, `{"id":"q","model_name":"echo","model_version":"3","parameters":{"s":"x"},"outputs":[]}`)
	r := s.models.last()
	if r.Correlation != (infer.CorrelationID{Num: 1<<64 - 1}) || !r.SequenceStart || !r.SequenceEnd || r.Priority != 2 || r.Timeout != 1500*time.Microsecond || r.Scope != "public" {
		t.Errorf("got %+v", r)
	}
	s.do(t, "POST", inferPath, `{"parameters":{"sequence_id":"5","n":-1,"f":0.5,"b":true},"inputs":[]}`)
	if r := s.models.last(); r.Correlation != (infer.CorrelationID{Str: "5"}) || r.Parameters["n"] != int64(-1) || r.Parameters["f"] != 0.5 || r.Parameters["b"] != true {
		t.Errorf("got %+v", r)
	}
	s.do(t, "POST", inferPath, `{"parameters":{"x":[1]},"inputs":[]}`).wantError(t, 400, "parameter 'x' has invalid type. It should be either 'int', 'bool', 'string', or 'double'.")
}

func TestP14MatchingHeadersBecomeParameters(t *testing.T) {
	s := serve(t, func(c *v2http.Config) { c.ForwardHeaders = regexp.MustCompile(`^(?i:my_.*|triton_.*)$`) })
	s.do(t, "POST", inferPath, `{"inputs":[]}`, "my_header_1", "v", "Other", "w")
	if p := s.models.last().Parameters; len(p) != 1 || p["my_header_1"] != "v" {
		t.Errorf("got %v", p)
	}
	s.do(t, "POST", inferPath, `{"inputs":[]}`, "triton_my", "v").wantError(t, 400, "Header 'triton_my' is reserved for Triton usage and cannot be forwarded.")
}

func TestP15ClassificationIsAskedForByOutput(t *testing.T) {
	s := serve(t, nil)
	s.do(t, "POST", inferPath, `{"inputs":[],"outputs":[{"name":"A","parameters":{"classification":2}}]}`)
	if got := s.models.last().Outputs[0].Classes; got != 2 {
		t.Errorf("got %d", got)
	}
	if got := s.do(t, "POST", inferPath, `{"inputs":[],"outputs":[{"name":"A","parameters":{"classification":2,"shared_memory_region":"r"}}]}`); got.status != 400 {
		t.Error(got)
	}
}

func TestP17Compression(t *testing.T) {
	s := serve(t, func(c *v2http.Config) { c.MaxInputSize = 100_000 })
	body := in(`"shape":[1],"datatype":"INT32","data":[7]`)
	const want = `{"model_name":"echo","model_version":"3","outputs":[{"name":"A","datatype":"INT32","shape":[1],"data":[7]}]}`
	var z, d bytes.Buffer
	gz := gzip.NewWriter(&z)
	_, _ = gz.Write([]byte(body))
	_ = gz.Close()
	zl := zlib.NewWriter(&d)
	_, _ = zl.Write([]byte(body))
	_ = zl.Close()
	s.do(t, "POST", inferPath, z.String(), "Content-Encoding", "gzip").want(t, 200, want)
	s.do(t, "POST", inferPath, d.String(), "Content-Encoding", "deflate").want(t, 200, want)
	s.do(t, "POST", inferPath, body, "Content-Encoding", "identity").want(t, 200, want)
	got := s.do(t, "POST", inferPath, body, "Content-Encoding", "br")
	got.wantError(t, 501, "Unsupported compression type")
	if got.header.Get("Accept-Encoding") != "gzip, deflate" {
		t.Error(got.header)
	}
	for _, c := range []struct{ accept, encoding string }{
		{"gzip", "gzip"}, {"deflate, gzip", "deflate"}, {"deflate;q=0.5, gzip;q=0.8", "gzip"}, {"br, *", ""}, {"identity, gzip;q=0.9", ""}, {"gzip;q=0", ""},
	} {
		got := s.do(t, "POST", inferPath, body, "Accept-Encoding", c.accept)
		if got.header.Get("Content-Encoding") != c.encoding {
			t.Errorf("%s: got %q", c.accept, got.header.Get("Content-Encoding"))
		}
		var r io.Reader = strings.NewReader(got.body)
		switch c.encoding {
		case "gzip":
			r, _ = gzip.NewReader(r)
		case "deflate":
			r, _ = zlib.NewReader(r)
		}
		if text, err := io.ReadAll(r); err != nil || string(text) != want {
			t.Errorf("%s: got %q, %v", c.accept, text, err)
		}
	}
}

func TestP17DecompressionBombIsCutOff(t *testing.T) {
	s := serve(t, func(c *v2http.Config) { c.MaxInputSize = 100_000 })
	var z bytes.Buffer
	gz := gzip.NewWriter(&z)
	_, _ = gz.Write(make([]byte, 10<<20))
	_ = gz.Close()
	s.do(t, "POST", inferPath, z.String(), "Content-Encoding", "gzip").wantError(t, 400,
		"Decompressed data size exceeds the maximum allowed value of 100000 bytes. Use --http-max-input-size to increase the limit.")
	s.do(t, "POST", "/v2/repository/index", z.String(), "Content-Encoding", "gzip").wantError(t, 400, "Unsupported content-encoding, only 'identity' is supported.")
	s.do(t, "POST", inferPath, `{"x":"`+strings.Repeat("x", 100_000)+`"}`).wantError(t, 400,
		"Request JSON size of 100008 bytes exceeds the maximum allowed value of 100000 bytes. Use --http-max-input-size to increase the limit.")
}

func TestP18RestrictedCallsNeedTheirHeader(t *testing.T) {
	s := serve(t, func(c *v2http.Config) {
		c.Restricted = []v2http.Restriction{{APIs: []string{"inference", "health"}, Header: "key", Value: "secret"}}
	})
	const text = "This API is restricted, expecting header 'key'"
	s.do(t, "GET", "/v2/health/live", "").wantError(t, 403, text)
	s.do(t, "POST", inferPath, `{"inputs":[]}`, "key", "wrong").wantError(t, 403, text)
	if got := s.do(t, "POST", inferPath, `{"inputs":[]}`, "key", "secret"); got.status != 200 {
		t.Error(got)
	}
	if got := s.do(t, "GET", "/v2", ""); got.status != 200 {
		t.Error(got)
	}
}

func TestP19DisconnectReachesTheModel(t *testing.T) {
	s := serve(t, nil)
	s.models.held["h"] = make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v2/models/hold/infer", strings.NewReader(`{"id":"h","inputs":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := s.client.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Error("the request was answered")
	}
	if err := s.stop(); err != nil { // returns only when the handler has
		t.Error(err)
	}
}

func TestR4AndR5RepositoryCalls(t *testing.T) {
	s := serve(t, nil)
	s.do(t, "POST", "/v2/repository/index", "").want(t, 200, `[{"name":"echo","version":"3","state":"READY"},{"name":"broken","version":"1","state":"UNAVAILABLE","reason":"no file"}]`)
	s.do(t, "POST", "/v2/repository/index", `{"ready":true}`).want(t, 200, `[{"name":"echo","version":"3","state":"READY"}]`)
	s.do(t, "POST", "/v2/repository/index", `[]`).wantError(t, 400, "Unable to parse 'request': attempt to access JSON non-object as object")
	s.do(t, "POST", "/v2/repository/index", `{"ready":1}`).wantError(t, 400, "Invalid value for 'ready': expected a boolean")
	s.do(t, "POST", "/v2/repository/index", `{"ready":true} x`).wantError(t, 400, "failed to parse the request JSON buffer: The document root must not be followed by other values. at 15")
	s.do(t, "POST", "/v2/repository/models/m%FF/load", ``).wantError(t, 404, "Not Found")
	s.do(t, "POST", "/v2/repository/other/index", "").wantError(t, 501, "'repository_name' specification is not supported")
	s.do(t, "POST", "/v2/repository/models/new/load", `{"parameters":{"config":"{}","file:1/model.onnx":"eHl6"}}`).want(t, 200, "")
	if o := s.models.loaded["new"]; o.Config != "{}" || string(o.Files["1/model.onnx"]) != "xyz" {
		t.Errorf("got %+v", o)
	}
	s.do(t, "POST", "/v2/repository/models/new/load", `{"parameters":{"x":1}}`).wantError(t, 400, "Unrecognized load parameter 'x' with type 'number'")
	s.do(t, "POST", "/v2/repository/models/broken/load", "").wantError(t, 400, "load failed for model 'broken': no file")
	s.do(t, "POST", "/v2/repository/models/new/unload", `{"parameters":{"unload_dependents":true}}`).want(t, 200, "")
	if len(s.models.loaded) != 0 {
		t.Error(s.models.loaded)
	}
}

func TestX1Statistics(t *testing.T) {
	s := serve(t, nil)
	for _, path := range []string{"/v2/models/stats", "/v2/models/echo/stats", "/v2/models/echo/versions/3/stats"} {
		got := s.do(t, "GET", path, "")
		if got.status != 200 || !strings.HasPrefix(got.body, `{"model_stats":[{"name":"echo","version":"3","last_inference":0,"inference_count":7,`) {
			t.Error(got.body)
		}
	}
	s.do(t, "GET", "/v2/models/x/stats", "").wantError(t, 400, "requested model 'x' is not available")
}

func TestX3SharedMemory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "obj")
	if err := os.WriteFile(path, []byte("abcdefgh--------"), 0o600); err != nil {
		t.Fatal(err)
	}
	regions := shm.New(shm.Config{AllowNamed: true, Dir: dir})
	defer regions.Drop("")
	s := serve(t, func(c *v2http.Config) { c.Regions = regions })
	const base = "/v2/systemsharedmemory"
	s.do(t, "POST", base+"/region/r/register", `{"byte_size":16}`).wantError(t, 400, "Shared memory register request has no 'key' field")
	s.do(t, "POST", base+"/region/r/register", `{"key":"/obj"}`).wantError(t, 400, "Shared memory register request has no 'byte_size' field")
	s.do(t, "POST", base+"/region/r/register", `{"key":"/obj","byte_size":-1}`).wantError(t, 400, "Unable to parse 'byte_size': attempt to access JSON non-unsigned-integer as unsigned-integer")
	s.do(t, "POST", base+"/region/r/register", `{"key":"/obj","byte_size":16}`).want(t, 200, "")
	s.do(t, "POST", base+"/region/r/register", `{"key":"/obj","byte_size":16}`).wantError(t, 400, "shared memory region 'r' already in manager")
	s.do(t, "GET", base+"/status", "").want(t, 200, `[{"name":"r","key":"/obj","offset":0,"byte_size":16}]`)
	s.do(t, "GET", base+"/region/x/status", "").wantError(t, 404, "Unable to find system shared memory region: 'x'")
	use := `{"inputs":[{"name":"A","shape":[4],"datatype":"UINT8","parameters":{"shared_memory_region":"r","shared_memory_offset":2,"shared_memory_byte_size":4}}],` +
		`"outputs":[{"name":"A","parameters":{"shared_memory_region":"r","shared_memory_offset":8,"shared_memory_byte_size":%d}}]}`
	s.do(t, "POST", inferPath, fmt.Sprintf(use, 4)).want(t, 200, `{"model_name":"echo","model_version":"3","outputs":[{"name":"A","datatype":"UINT8","shape":[4]}]}`)
	if got, _ := os.ReadFile(path); string(got) != "abcdefghcdef----" {
		t.Errorf("got %q", got)
	}
	s.do(t, "POST", inferPath, fmt.Sprintf(use, 3)).wantError(t, 500, "shared memory size specified with the request for output 'A' (3 bytes) should be at least 4 bytes to hold the results")
	s.do(t, "POST", base+"/unregister", "").want(t, 200, "")
	s.do(t, "GET", base+"/status", "").want(t, 200, `[]`)
}

func TestX3DisabledByDefault(t *testing.T) {
	s := serve(t, nil)
	const text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
	s.do(t, "GET", "/v2/systemsharedmemory/status", "").wantError(t, 501, text)
	s.do(t, "POST", "/v2/cudasharedmemory/region/R/register", "{}").wantError(t, 501, text)
}

func TestX4CudaMemoryIsRefusedWithoutGPU(t *testing.T) {
	s := serve(t, func(c *v2http.Config) { c.Regions = shm.New(shm.Config{AllowNamed: true}) })
	s.do(t, "POST", "/v2/cudasharedmemory/region/R/register", `{}`).wantError(t, 400, "failed to register CUDA shared memory region: 'R', GPUs not supported")
	s.do(t, "GET", "/v2/cudasharedmemory/status", "").want(t, 200, "[]")
	s.do(t, "POST", "/v2/cudasharedmemory/unregister", "").want(t, 200, "")
}

func TestX5AndX6TraceAndLogSettings(t *testing.T) {
	logs := logging{"log_info": true, "log_verbose_level": uint32(0), "log_file": ""}
	s := serve(t, func(c *v2http.Config) { c.Trace, c.Log = trace.New(trace.Config{}), logs })
	s.do(t, "GET", "/v2/trace/setting", "").want(t, 200, `{"log_frequency":"0","trace_count":"-1","trace_file":"","trace_level":["OFF"],"trace_mode":"triton","trace_rate":"1000"}`)
	s.do(t, "POST", "/v2/models/m/trace/setting", `{"trace_rate":"5","trace_level":["TIMESTAMPS","TENSORS"]}`).want(t, 200,
		`{"log_frequency":"0","trace_count":"-1","trace_file":"","trace_level":["TIMESTAMPS","TENSORS"],"trace_mode":"triton","trace_rate":"5"}`)
	if got := s.do(t, "POST", "/v2/models/m/trace/setting", `{"trace_rate":null}`); !strings.Contains(got.body, `"trace_rate":"1000"`) {
		t.Error(got)
	}
	s.do(t, "POST", "/v2/trace/setting", `{"trace_file":"x"}`).wantError(t, 501, "trace file location can not be updated through network protocol")
	s.do(t, "POST", "/v2/logging", `{"log_verbose_level":2}`).want(t, 200, `{"log_file":"","log_info":true,"log_verbose_level":2}`)
	s.do(t, "POST", "/v2/logging", `{"log_file":"x"}`).wantError(t, 501, "log file location can not be updated through network protocol")
}

func TestStartAndStopTenTimes(t *testing.T) {
	for range 10 {
		s := serve(t, nil)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
}
