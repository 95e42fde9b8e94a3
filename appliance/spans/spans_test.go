package spans_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/vedette/vedette/appliance/pipeline"
	"github.com/vedette/vedette/appliance/spans"
)

// receiver is an OTLP collector.
type receiver struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []*tracev1.Span
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			r.spans = append(r.spans, ss.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func collect(t *testing.T) (*receiver, string) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, server := &receiver{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(ln) })
	t.Cleanup(func() {
		server.Stop()
		wg.Wait()
	})
	return r, "http://" + ln.Addr().String()
}

func TestAFrameArrivesAtTheCollectorStageByStage(t *testing.T) {
	r, address := collect(t)
	s, err := spans.New(t.Context(), spans.Config{Endpoint: address, Ratio: 1, Version: "1", Box: "box"})
	if err != nil {
		t.Fatal(err)
	}
	capture := time.Unix(1000, 0)
	s.Frame(pipeline.Timed{Camera: "door", Sequence: 7, Number: 9, Capture: capture, Stamps: []pipeline.Stamp{
		{Stage: "receive", End: time.Millisecond}, {Stage: "decode", End: 3 * time.Millisecond}, {Stage: "commit", End: 10 * time.Millisecond},
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	by := map[string]*tracev1.Span{}
	for _, span := range r.spans {
		by[span.GetName()] = span
	}
	if len(r.spans) != 4 || by["frame"] == nil || by["decode"] == nil {
		t.Fatalf("%d spans: %v", len(r.spans), by)
	}
	if f, d := by["frame"], by["decode"]; string(d.GetParentSpanId()) != string(f.GetSpanId()) || string(d.GetTraceId()) != string(f.GetTraceId()) ||
		d.GetStartTimeUnixNano() != uint64(capture.UnixNano()+1e6) || d.GetEndTimeUnixNano() != uint64(capture.UnixNano()+3e6) ||
		f.GetEndTimeUnixNano()-f.GetStartTimeUnixNano() != 10e6 {
		t.Errorf("frame %v\ndecode %v", f, d)
	}
}

func TestBadSettingsAreRefusedWithWhatToWrite(t *testing.T) {
	for _, cfg := range []spans.Config{{Endpoint: "collector:4317"}, {Endpoint: ""}, {Endpoint: "ftp://x"}, {Endpoint: "http://x:1", Ratio: 2}} {
		if _, err := spans.New(t.Context(), cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

func TestAMissingCollectorHoldsUpNothing(t *testing.T) {
	s, err := spans.New(t.Context(), spans.Config{Endpoint: "http://127.0.0.1:1", Ratio: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 5000 {
		s.Frame(pipeline.Timed{Camera: "door", Capture: time.Unix(1, 0), Stamps: []pipeline.Stamp{{Stage: "commit", End: 1}}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = s.Close(ctx)
}
