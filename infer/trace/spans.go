package trace

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// SpansConfig says where traces go that are spans of OpenTelemetry.
type SpansConfig struct {
	// URL is the collector's OTLP receiver over HTTP; without a scheme it is http. Empty: http://localhost:4318/v1/traces.
	URL string
	// Resource are attributes of the server besides service.name, which is triton-inference-server unless it is among them.
	Resource map[string]string
	// MaxQueue spans wait for their batch of MaxBatch, for Delay at most; 0: 2048, 512, 5 s. What is beyond is dropped.
	MaxQueue, MaxBatch int
	Delay              time.Duration
}

// Spans sends traces to a collector: a span for each request, in it one for its model, in that one for the execution, and
// for each step of an ensemble.
type Spans struct {
	provider *trace.TracerProvider
	tracer   api.Tracer
}

// NewSpans returns a sender. A collector that does not answer is no error: spans are dropped then.
func NewSpans(ctx context.Context, cfg SpansConfig) (*Spans, error) {
	to := cfg.URL
	if to == "" {
		to = "http://localhost:4318/v1/traces"
	}
	if !strings.Contains(to, "://") {
		to = "http://" + to
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no address of an OTLP receiver: write http://host:4318/v1/traces", cfg.URL)
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to))
	if err != nil {
		return nil, fmt.Errorf("reach the OTLP receiver: %w", err)
	}
	attributes := []attribute.KeyValue{attribute.String("service.name", "triton-inference-server")}
	for k, v := range cfg.Resource {
		attributes = append(attributes, attribute.String(k, v))
	}
	batch := func(o *trace.BatchSpanProcessorOptions) {
		if cfg.MaxQueue > 0 {
			o.MaxQueueSize = cfg.MaxQueue
		}
		if cfg.MaxBatch > 0 {
			o.MaxExportBatchSize = cfg.MaxBatch
		}
		if cfg.Delay > 0 {
			o.BatchTimeout = cfg.Delay
		}
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter, batch), trace.WithSampler(trace.AlwaysSample()),
		trace.WithResource(resource.NewSchemaless(attributes...)))
	return &Spans{provider, provider.Tracer("triton-server")}, nil
}

// Close sends what waits, for as long as ctx allows.
func (s *Spans) Close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	return s.provider.Shutdown(ctx)
}

type parentKey struct{}

// WithParent notes the span that a request belongs to as its client wrote it, in the header traceparent of W3C Trace Context.
func WithParent(ctx context.Context, header string) context.Context {
	if header == "" {
		return ctx
	}
	return context.WithValue(ctx, parentKey{}, header)
}

// parent is a context with the span that a request belongs to, if it told of one.
func parent(ctx context.Context) context.Context {
	header, ok := ctx.Value(parentKey{}).(string)
	if !ok {
		if v := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(v) > 0 {
			header = v[0]
		}
	}
	return propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": header})
}

// send makes the spans of a trace: its first record is the request's, the others are those of its steps.
func (s *Spans) send(ctx context.Context, records []record) {
	r := &records[0]
	frontend := func(name string) bool { return strings.HasPrefix(name, "HTTP_") || strings.HasPrefix(name, "GRPC_") }
	ctx, end := s.span(ctx, "InferRequest", r.Stamps, frontend)
	defer end()
	s.model(ctx, r, frontend, func(ctx context.Context) {
		for i := range records[1:] {
			s.model(ctx, &records[1+i], frontend, nil)
		}
	})
}

func (s *Spans) model(ctx context.Context, r *record, frontend func(string) bool, inside func(context.Context)) {
	compute := func(name string) bool { return strings.HasPrefix(name, "COMPUTE_") }
	attributes := []attribute.KeyValue{
		attribute.String("triton.model_name", r.Model), attribute.Int64("triton.model_version", r.Version),
		attribute.Int64("triton.trace_id", int64(r.ID)), attribute.Int64("triton.trace_parent_id", int64(r.Parent)),
	}
	if r.Request != "" {
		attributes = append(attributes, attribute.String("triton.request_id", r.Request))
	}
	own := slices.DeleteFunc(slices.Clone(r.Stamps), func(st stamp) bool { return frontend(st.Name) })
	ctx, end := s.span(ctx, r.Model, own, func(name string) bool { return !compute(name) }, attributes...)
	defer end()
	if run := slices.DeleteFunc(own, func(st stamp) bool { return !compute(st.Name) }); len(run) > 0 {
		_, end := s.span(ctx, "compute", run, compute)
		end()
	}
	if inside != nil {
		inside(ctx)
	}
}

// span opens a span from the first stamp to the last, with those as events that are its own.
func (s *Spans) span(ctx context.Context, name string, stamps []stamp, own func(string) bool, attributes ...attribute.KeyValue) (inner context.Context, end func()) {
	if len(stamps) == 0 {
		return ctx, func() {}
	}
	first, last := stamps[0].NS, stamps[0].NS
	for _, st := range stamps {
		first, last = min(first, st.NS), max(last, st.NS)
	}
	inner, span := s.tracer.Start(ctx, name, api.WithTimestamp(time.Unix(0, first)), api.WithAttributes(attributes...))
	for _, st := range stamps {
		if own(st.Name) {
			span.AddEvent(st.Name, api.WithTimestamp(time.Unix(0, st.NS)))
		}
	}
	return inner, func() { span.End(api.WithTimestamp(time.Unix(0, last))) }
}
