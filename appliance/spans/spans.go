// Package spans sends frames' ways to an OpenTelemetry collector: a span for each sampled frame, from its capture to its
// commit, with a span for every stage in it. Frames are looked at after they are committed, so that nothing waits for it.
package spans

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/vedette/vedette/appliance/pipeline"
)

// Config says where spans go.
type Config struct {
	// Endpoint is the collector's OTLP receiver over gRPC: http://host:4317, or https:// over TLS. Required.
	Endpoint string
	// Ratio of frames that are sent, 0 to 1; 0: one in a hundred.
	Ratio float64
	// Version of the program, and Box, its name.
	Version, Box string
}

const standardRatio = 0.01

// Sender sends frames.
type Sender struct {
	provider *trace.TracerProvider
	tracer   api.Tracer
}

// New returns a sender. A collector that does not answer is no error: spans are dropped then.
func New(ctx context.Context, cfg Config) (*Sender, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("%q is no address of an OTLP receiver: write http://host:4317, or https:// for TLS", cfg.Endpoint)
	}
	if cfg.Ratio < 0 || cfg.Ratio > 1 {
		return nil, errors.New("the ratio of frames that are traced is not within 0 and 1")
	}
	if cfg.Ratio == 0 {
		cfg.Ratio = standardRatio
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(cfg.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("reach the OTLP receiver: %w", err)
	}
	provider := trace.NewTracerProvider(
		trace.WithSampler(trace.TraceIDRatioBased(cfg.Ratio)), trace.WithBatcher(exporter),
		trace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "vedette"), attribute.String("service.version", cfg.Version), attribute.String("host.name", cfg.Box),
		)),
	)
	return &Sender{provider: provider, tracer: provider.Tracer("github.com/vedette/vedette/appliance/pipeline")}, nil
}

// Frame sends a frame if it is sampled. It does not block.
func (s *Sender) Frame(f pipeline.Timed) {
	if len(f.Stamps) == 0 {
		return
	}
	ctx, root := s.tracer.Start(context.Background(), "frame", api.WithTimestamp(f.Capture), api.WithNewRoot(), api.WithAttributes(
		attribute.String("vedette.camera", f.Camera), attribute.Int64("vedette.sequence", f.Sequence), attribute.Int64("vedette.frame", f.Number),
	))
	if root.IsRecording() {
		begin := time.Duration(0)
		for _, st := range f.Stamps {
			_, span := s.tracer.Start(ctx, st.Stage, api.WithTimestamp(f.Capture.Add(begin)))
			span.End(api.WithTimestamp(f.Capture.Add(st.End)))
			begin = st.End
		}
	}
	root.End(api.WithTimestamp(f.Capture.Add(f.Stamps[len(f.Stamps)-1].End)))
}

// Close sends what waits, for as long as ctx allows.
func (s *Sender) Close(ctx context.Context) error { return s.provider.Shutdown(ctx) }
