package v2grpc

import (
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// The groups of calls a restriction can close.
const (
	apiHealth          = "health"
	apiMetadata        = "metadata"
	apiInference       = "inference"
	apiSharedMemory    = "shared-memory"
	apiModelConfig     = "model-config"
	apiModelRepository = "model-repository"
	apiStatistics      = "statistics"
	apiTrace           = "trace"
	apiLogging         = "logging"
)

// ServerLive answers whenever the process does.
func (s *Server) ServerLive(ctx context.Context, _ *inference.ServerLiveRequest) (*inference.ServerLiveResponse, error) {
	if err := s.admit(ctx, apiHealth); err != nil {
		return nil, err
	}
	return &inference.ServerLiveResponse{Live: true}, nil
}

// ServerReady tells whether the server can serve.
func (s *Server) ServerReady(ctx context.Context, _ *inference.ServerReadyRequest) (*inference.ServerReadyResponse, error) {
	if err := s.admit(ctx, apiHealth); err != nil {
		return nil, err
	}
	return &inference.ServerReadyResponse{Ready: s.cfg.Catalog.Ready(ctx)}, nil
}

// ModelReady tells whether a model can serve.
func (s *Server) ModelReady(ctx context.Context, req *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	if err := s.admit(ctx, apiHealth); err != nil {
		return nil, err
	}
	version, err := parseVersion(req.GetVersion())
	if err != nil {
		return nil, statusOf(err)
	}
	ready, err := s.cfg.Catalog.ModelReady(req.GetName(), version)
	if err != nil {
		return nil, statusOf(err)
	}
	return &inference.ModelReadyResponse{Ready: ready}, nil
}

// Check is grpc.health.v1: the server and its one service have the same health.
func (s *Server) Check(ctx context.Context, req *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if err := s.admit(ctx, apiHealth); err != nil {
		return nil, err
	}
	state := s.healthOf(ctx, req.GetService())
	if state == grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", req.GetService())
	}
	return &grpc_health_v1.HealthCheckResponse{Status: state}, nil
}

func (s *Server) healthOf(ctx context.Context, service string) grpc_health_v1.HealthCheckResponse_ServingStatus {
	switch service {
	case "", inference.GRPCInferenceService_ServiceDesc.ServiceName:
	default:
		return grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN
	}
	if s.stopping.Load() || !s.cfg.Catalog.Ready(ctx) {
		return grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_SERVING
}

// watchInterval is how often Watch looks.
const watchInterval = 200 * time.Millisecond

// Watch is grpc.health.v1: it tells the health at once and whenever it changes, until the server stops.
func (s *Server) Watch(req *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	ctx := stream.Context()
	if err := s.admit(ctx, apiHealth); err != nil {
		return err
	}
	look := time.NewTicker(watchInterval)
	defer look.Stop()
	told := grpc_health_v1.HealthCheckResponse_UNKNOWN
	for {
		if state := s.healthOf(ctx, req.GetService()); state != told {
			told = state
			if err := stream.Send(&grpc_health_v1.HealthCheckResponse{Status: state}); err != nil {
				return err
			}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-s.quit:
			if told != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
				_ = stream.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING})
			}
			return status.Error(codes.Unavailable, "Server exiting")
		}
	}
}

// ServerMetadata describes the server.
func (s *Server) ServerMetadata(ctx context.Context, _ *inference.ServerMetadataRequest) (*inference.ServerMetadataResponse, error) {
	if err := s.admit(ctx, apiMetadata); err != nil {
		return nil, err
	}
	info := s.cfg.Catalog.Server()
	return &inference.ServerMetadataResponse{Name: info.Name, Version: info.Version, Extensions: info.Extensions}, nil
}

// ModelMetadata describes a model.
func (s *Server) ModelMetadata(ctx context.Context, req *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	if err := s.admit(ctx, apiMetadata); err != nil {
		return nil, err
	}
	m, err := s.model(req.GetName(), req.GetVersion())
	if err != nil {
		return nil, statusOf(err)
	}
	resp := &inference.ModelMetadataResponse{
		Name: m.Name, Versions: m.Versions, Platform: m.Platform,
		Inputs: tensorMetadata(m.Inputs), Outputs: tensorMetadata(m.Outputs),
	}
	if req.GetVersion() != "" {
		resp.Versions = []string{strconv.FormatInt(m.Version, 10)}
	}
	if s.cfg.Instances != nil {
		resp.Instances = slices.DeleteFunc(s.cfg.Instances(m.Name), func(in *inference.ModelMetadataResponse_InstanceMetadata) bool {
			return !slices.Contains(resp.GetVersions(), in.GetVersion())
		})
	}
	return resp, nil
}

func tensorMetadata(list []infer.TensorInfo) []*inference.ModelMetadataResponse_TensorMetadata {
	out := make([]*inference.ModelMetadataResponse_TensorMetadata, len(list))
	for i, t := range list {
		out[i] = &inference.ModelMetadataResponse_TensorMetadata{Name: t.Name, Datatype: t.DataType.String(), Shape: t.Shape}
	}
	return out
}

// ModelConfig returns the configuration in force.
func (s *Server) ModelConfig(ctx context.Context, req *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	if err := s.admit(ctx, apiModelConfig); err != nil {
		return nil, err
	}
	m, err := s.model(req.GetName(), req.GetVersion())
	if err != nil {
		return nil, statusOf(err)
	}
	return &inference.ModelConfigResponse{Config: m.Config}, nil
}

func (s *Server) model(name, version string) (*infer.ModelInfo, error) {
	v, err := parseVersion(version)
	if err != nil {
		return nil, err
	}
	return s.cfg.Catalog.Model(name, v)
}

// ModelStatistics returns the counters of models.
func (s *Server) ModelStatistics(ctx context.Context, req *inference.ModelStatisticsRequest) (*inference.ModelStatisticsResponse, error) {
	if err := s.admit(ctx, apiStatistics); err != nil {
		return nil, err
	}
	version, err := parseVersion(req.GetVersion())
	if err != nil {
		return nil, statusOf(err)
	}
	stats, err := s.cfg.Catalog.Statistics(req.GetName(), version)
	if err != nil {
		return nil, statusOf(err)
	}
	return &inference.ModelStatisticsResponse{ModelStats: stats}, nil
}

// TraceSetting changes and returns what is traced.
func (s *Server) TraceSetting(ctx context.Context, req *inference.TraceSettingRequest) (*inference.TraceSettingResponse, error) {
	if err := s.admit(ctx, apiTrace); err != nil {
		return nil, err
	}
	if s.cfg.Trace == nil {
		return nil, status.Error(codes.Unimplemented, "the server does not support tracing")
	}
	changes := make(map[string][]string, len(req.GetSettings()))
	for k, v := range req.GetSettings() {
		changes[k] = v.GetValue()
	}
	now, err := s.cfg.Trace.Update(req.GetModelName(), changes)
	if err != nil {
		return nil, statusOf(err)
	}
	resp := &inference.TraceSettingResponse{Settings: make(map[string]*inference.TraceSettingResponse_SettingValue, len(now))}
	for k, v := range now {
		resp.Settings[k] = &inference.TraceSettingResponse_SettingValue{Value: v}
	}
	return resp, nil
}

// LogSettings changes and returns what is logged.
func (s *Server) LogSettings(ctx context.Context, req *inference.LogSettingsRequest) (*inference.LogSettingsResponse, error) {
	if err := s.admit(ctx, apiLogging); err != nil {
		return nil, err
	}
	if s.cfg.Log == nil {
		return nil, status.Error(codes.Unimplemented, "the server does not support changes of its log")
	}
	if len(req.GetSettings()) > 0 {
		changes := make(map[string]any, len(req.GetSettings()))
		for k, v := range req.GetSettings() {
			switch c := v.GetParameterChoice().(type) {
			case *inference.LogSettingsRequest_SettingValue_BoolParam:
				changes[k] = c.BoolParam
			case *inference.LogSettingsRequest_SettingValue_Uint32Param:
				changes[k] = c.Uint32Param
			case *inference.LogSettingsRequest_SettingValue_StringParam:
				changes[k] = c.StringParam
			}
		}
		if err := s.cfg.Log.Update(changes); err != nil {
			return nil, statusOf(err)
		}
	}
	resp := &inference.LogSettingsResponse{Settings: make(map[string]*inference.LogSettingsResponse_SettingValue)}
	for k, v := range s.cfg.Log.Settings() {
		value := new(inference.LogSettingsResponse_SettingValue)
		switch v := v.(type) {
		case bool:
			value.ParameterChoice = &inference.LogSettingsResponse_SettingValue_BoolParam{BoolParam: v}
		case uint32:
			value.ParameterChoice = &inference.LogSettingsResponse_SettingValue_Uint32Param{Uint32Param: v}
		case string:
			value.ParameterChoice = &inference.LogSettingsResponse_SettingValue_StringParam{StringParam: v}
		}
		resp.Settings[k] = value
	}
	return resp, nil
}
