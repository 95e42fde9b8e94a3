package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// receiver is a collector of OpenTelemetry.
type receiver struct {
	mu    sync.Mutex
	spans []*tracev1.Span
	from  []string // resources
	came  chan struct{}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var m collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &m)
	}
	if err != nil || req.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(req.URL.Path, err), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	for _, rs := range m.GetResourceSpans() {
		for _, a := range rs.GetResource().GetAttributes() {
			r.from = append(r.from, a.GetKey()+"="+a.GetValue().GetStringValue())
		}
		for _, ss := range rs.GetScopeSpans() {
			r.spans = append(r.spans, ss.GetSpans()...)
		}
	}
	r.mu.Unlock()
	r.came <- struct{}{}
}

// tree waits for a trace of so many spans and writes it down: each span behind its parent, with its events.
func (r *receiver) tree(t *testing.T, trace string, spans int) []string {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		r.mu.Lock()
		var own []*tracev1.Span
		for _, s := range r.spans {
			if fmt.Sprintf("%x", s.GetTraceId()) == trace {
				own = append(own, s)
			}
		}
		r.mu.Unlock()
		if len(own) >= spans {
			return describe(own)
		}
		select {
		case <-r.came:
		case <-deadline:
			t.Fatalf("%d spans of %d came", len(own), spans)
		}
	}
}

func describe(spans []*tracev1.Span) (tree []string) {
	path := func(s *tracev1.Span) string {
		p := s.GetName()
		for {
			k := slices.IndexFunc(spans, func(o *tracev1.Span) bool { return string(o.GetSpanId()) == string(s.GetParentSpanId()) })
			if k < 0 {
				return fmt.Sprintf("%x/%s", s.GetParentSpanId(), p)
			}
			s = spans[k]
			p = s.GetName() + "/" + p
		}
	}
	for _, s := range spans {
		line := path(s)
		for _, e := range s.GetEvents() {
			line += " " + e.GetName()
			if e.GetTimeUnixNano() < s.GetStartTimeUnixNano() || e.GetTimeUnixNano() > s.GetEndTimeUnixNano() {
				line += " (outside)"
			}
		}
		for _, a := range s.GetAttributes() {
			if a.GetKey() == "triton.model_name" || a.GetKey() == "triton.request_id" {
				line += " " + a.GetKey() + "=" + a.GetValue().GetStringValue()
			}
		}
		tree = append(tree, line)
	}
	slices.Sort(tree)
	return tree
}

func TestX5TracesCanBeSpansOfOpenTelemetry(t *testing.T) {
	sink := &receiver{came: make(chan struct{}, 100)}
	collects := httptest.NewServer(sink)
	defer collects.Close()
	r := start(t, "--model-repository", repository(t, testModels()), "--trace-config", "mode=opentelemetry", "--trace-config", "level=TIMESTAMPS", "--trace-config", "rate=1",
		"--trace-config", "opentelemetry,url="+strings.TrimPrefix(collects.URL, "http://")+"/v1/traces",
		"--trace-config", "opentelemetry,resource=box=seven", "--trace-config", "opentelemetry,bsp_schedule_delay=10")
	if _, body := fetch(t, "GET", "http://"+r.at("HTTP")+"/v2/trace/setting", ""); !strings.Contains(body, `"trace_mode":"opentelemetry"`) {
		t.Error(body)
	}
	const one, two = "0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"
	parent := func(trace string) string { return "00-" + trace + "-b7ad6b7169203331-01" }

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.at("HTTP")+"/v2/models/chain/infer",
		strings.NewReader(`{"id":"q","inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[7]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", parent(one))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	const stations = " REQUEST_START QUEUE_START INFER_RESPONSE_COMPLETE REQUEST_END triton.model_name="
	const compute = "/compute COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END"
	want := []string{
		"b7ad6b7169203331/InferRequest HTTP_RECV_START HTTP_RECV_END HTTP_SEND_START HTTP_SEND_END",
		"b7ad6b7169203331/InferRequest/chain" + stations + "chain triton.request_id=q",
		"b7ad6b7169203331/InferRequest/chain/plain" + stations + "plain triton.request_id=q",
		"b7ad6b7169203331/InferRequest/chain/plain" + compute,
		"b7ad6b7169203331/InferRequest/chain/plain2" + stations + "plain2 triton.request_id=q",
		"b7ad6b7169203331/InferRequest/chain/plain2" + compute,
	}
	slices.Sort(want)
	if got := sink.tree(t, one, len(want)); !slices.Equal(got, want) {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	client := dial(t, r.at("gRPC"))
	if _, err := client.ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent(two)), tensorRequest("plain", "INPUT0", []byte{1, 0, 0, 0})); err != nil {
		t.Fatal(err)
	}
	want = []string{
		"b7ad6b7169203331/InferRequest GRPC_WAITREAD_START GRPC_WAITREAD_END GRPC_SEND_START GRPC_SEND_END",
		"b7ad6b7169203331/InferRequest/plain" + stations + "plain triton.request_id=1",
		"b7ad6b7169203331/InferRequest/plain" + compute,
	}
	slices.Sort(want)
	if got := sink.tree(t, two, len(want)); !slices.Equal(got, want) {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	for _, want := range []string{"service.name=triton-inference-server", "box=seven"} {
		if !slices.Contains(sink.from, want) {
			t.Errorf("no resource %s in %q", want, sink.from)
		}
	}
}
