package v2client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
)

// Describer tells of models. Client and HTTP are two; the options are those of gRPC, HTTP knows none.
type Describer interface {
	ModelReady(ctx context.Context, req *inference.ModelReadyRequest, opts ...grpc.CallOption) (*inference.ModelReadyResponse, error)
	ModelMetadata(ctx context.Context, req *inference.ModelMetadataRequest, opts ...grpc.CallOption) (*inference.ModelMetadataResponse, error)
	ModelConfig(ctx context.Context, req *inference.ModelConfigRequest, opts ...grpc.CallOption) (*inference.ModelConfigResponse, error)
	ModelStatistics(ctx context.Context, req *inference.ModelStatisticsRequest, opts ...grpc.CallOption) (*inference.ModelStatisticsResponse, error)
}

// Registrar makes shared memory known to a server. Client and HTTP are two.
type Registrar interface {
	SystemSharedMemoryRegister(ctx context.Context, req *inference.SystemSharedMemoryRegisterRequest, opts ...grpc.CallOption) (*inference.SystemSharedMemoryRegisterResponse, error)
	SystemSharedMemoryUnregister(ctx context.Context, req *inference.SystemSharedMemoryUnregisterRequest, opts ...grpc.CallOption) (*inference.SystemSharedMemoryUnregisterResponse, error)
}

// Tracer changes the trace settings of a model, or of the server when none is named. Client and HTTP are two.
type Tracer interface {
	TraceSetting(ctx context.Context, req *inference.TraceSettingRequest, opts ...grpc.CallOption) (*inference.TraceSettingResponse, error)
}

var (
	_ interface {
		Describer
		Registrar
		Tracer
	} = (*Client)(nil)
	_ interface {
		Describer
		Registrar
		Tracer
	} = (*HTTP)(nil)
)

// maxDescription bounds what a server tells of its models.
const maxDescription = 64 << 20

// ask makes a small call; nil for send is GET, else it is posted as JSON. An answer that is an error is a *StatusError.
func (h *HTTP) ask(ctx context.Context, send any, into proto.Message, path ...string) error {
	address, err := url.JoinPath(h.base, path...)
	if err != nil {
		return err
	}
	method, body := http.MethodGet, []byte(nil)
	if send != nil {
		method = http.MethodPost
		if body, err = json.Marshal(send); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	h.decorate(req)
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDescription))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return statusError(resp, text)
	}
	if into == nil {
		return nil
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, into); err != nil {
		return fmt.Errorf("read the answer to %s: %w", address, err)
	}
	return nil
}

func modelPath(model, version string, of ...string) []string {
	path := []string{"v2", "models", url.PathEscape(model)}
	if version != "" {
		path = append(path, "versions", url.PathEscape(version))
	}
	return append(path, of...)
}

// ModelReady tells whether a model can serve; one the server does not know is not an error.
func (h *HTTP) ModelReady(ctx context.Context, req *inference.ModelReadyRequest, _ ...grpc.CallOption) (*inference.ModelReadyResponse, error) {
	err := h.ask(ctx, nil, nil, modelPath(req.GetName(), req.GetVersion(), "ready")...)
	if _, ok := err.(*StatusError); ok { //nolint:errorlint // made by ask and not wrapped
		return &inference.ModelReadyResponse{}, nil
	}
	return &inference.ModelReadyResponse{Ready: err == nil}, err
}

// ModelMetadata tells a model's inputs and outputs.
func (h *HTTP) ModelMetadata(ctx context.Context, req *inference.ModelMetadataRequest, _ ...grpc.CallOption) (*inference.ModelMetadataResponse, error) {
	r := new(inference.ModelMetadataResponse)
	return r, h.ask(ctx, nil, r, modelPath(req.GetName(), req.GetVersion())...)
}

// ModelConfig tells a model's configuration.
func (h *HTTP) ModelConfig(ctx context.Context, req *inference.ModelConfigRequest, _ ...grpc.CallOption) (*inference.ModelConfigResponse, error) {
	c := new(inference.ModelConfig)
	return &inference.ModelConfigResponse{Config: c}, h.ask(ctx, nil, c, modelPath(req.GetName(), req.GetVersion(), "config")...)
}

// ModelStatistics tells what a model has done.
func (h *HTTP) ModelStatistics(ctx context.Context, req *inference.ModelStatisticsRequest, _ ...grpc.CallOption) (*inference.ModelStatisticsResponse, error) {
	r := new(inference.ModelStatisticsResponse)
	return r, h.ask(ctx, nil, r, modelPath(req.GetName(), req.GetVersion(), "stats")...)
}

// SystemSharedMemoryRegister makes shared memory known to the server.
func (h *HTTP) SystemSharedMemoryRegister(ctx context.Context, req *inference.SystemSharedMemoryRegisterRequest, _ ...grpc.CallOption) (*inference.SystemSharedMemoryRegisterResponse, error) {
	err := h.ask(ctx, map[string]any{"key": req.GetKey(), "offset": req.GetOffset(), "byte_size": req.GetByteSize()}, nil,
		"v2", "systemsharedmemory", "region", url.PathEscape(req.GetName()), "register")
	return &inference.SystemSharedMemoryRegisterResponse{}, err
}

// SystemSharedMemoryUnregister takes it back.
func (h *HTTP) SystemSharedMemoryUnregister(ctx context.Context, req *inference.SystemSharedMemoryUnregisterRequest, _ ...grpc.CallOption) (*inference.SystemSharedMemoryUnregisterResponse, error) {
	err := h.ask(ctx, struct{}{}, nil, "v2", "systemsharedmemory", "region", url.PathEscape(req.GetName()), "unregister")
	return &inference.SystemSharedMemoryUnregisterResponse{}, err
}

// TraceSetting changes trace settings; one without a value is cleared. What is then in force is not told.
func (h *HTTP) TraceSetting(ctx context.Context, req *inference.TraceSettingRequest, _ ...grpc.CallOption) (*inference.TraceSettingResponse, error) {
	send := make(map[string]any, len(req.GetSettings()))
	for name, v := range req.GetSettings() {
		switch list := v.GetValue(); {
		case len(list) == 0:
			send[name] = nil
		case name == "trace_level":
			send[name] = list
		default:
			send[name] = list[0]
		}
	}
	path := []string{"v2"}
	if req.GetModelName() != "" {
		path = modelPath(req.GetModelName(), "")
	}
	return &inference.TraceSettingResponse{}, h.ask(ctx, send, nil, append(path, "trace", "setting")...)
}
