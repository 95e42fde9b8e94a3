// Package models serves the models of the inference sidecar to operators: what is in the repository, how each model
// is doing, and loading and unloading.
package models

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vedette/vedette/api/inference"
	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/appliance/vitals"
)

const prefix = "models/"

// Service implements vedettev1.ModelServiceServer over the v2 protocol.
type Service struct {
	vedettev1.UnimplementedModelServiceServer
	infer inference.GRPCInferenceServiceClient
	state func() vitals.Inference
}

// New returns a service that asks the inference sidecar behind conn; state adds what its metrics say.
func New(conn grpc.ClientConnInterface, state func() vitals.Inference) *Service {
	return &Service{infer: inference.NewGRPCInferenceServiceClient(conn), state: state}
}

// ListModels implements vedettev1.ModelServiceServer.
func (s *Service) ListModels(ctx context.Context, _ *vedettev1.ListModelsRequest) (*vedettev1.ListModelsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	index, err := s.infer.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{})
	if err != nil {
		return nil, fault("list the models", err)
	}
	statistics, err := s.infer.ModelStatistics(ctx, &inference.ModelStatisticsRequest{})
	if err != nil {
		return nil, fault("read the models' statistics", err)
	}
	known := map[vitals.Version]*inference.ModelStatistics{}
	for _, st := range statistics.GetModelStats() {
		known[vitals.Version{Model: st.GetName(), Version: st.GetVersion()}] = st
	}
	now := s.state()
	resp := &vedettev1.ListModelsResponse{}
	for _, entry := range index.GetModels() {
		if entry.GetState() == "" && entry.GetReason() != "" {
			continue // a folder in the repository that is no model
		}
		m := &vedettev1.Model{Name: prefix + entry.GetName(), Version: entry.GetVersion(), State: entry.GetState(), Reason: entry.GetReason()}
		v := vitals.Version{Model: entry.GetName(), Version: entry.GetVersion()}
		if m.GetState() == "READY" {
			// A model that is unloaded between the two questions is shown without its configuration.
			if c, err := s.infer.ModelConfig(ctx, &inference.ModelConfigRequest{Name: v.Model, Version: v.Version}); err == nil {
				configured(m, c.GetConfig())
			}
		}
		if st := known[v]; st != nil {
			counted(m, st)
		}
		m.PendingRequests, m.EffectiveProviders = now.Models[v].Pending, now.Models[v].Providers
		resp.Models = append(resp.Models, m)
	}
	slices.SortFunc(resp.Models, func(a, b *vedettev1.Model) int {
		return strings.Compare(a.GetName()+"\x00"+a.GetVersion(), b.GetName()+"\x00"+b.GetVersion())
	})
	return resp, nil
}

func configured(m *vedettev1.Model, c *inference.ModelConfig) {
	m.Backend, m.MaxBatchSize, m.Scheduling = c.GetBackend(), c.GetMaxBatchSize(), "none"
	m.Description = c.GetParameters()["description"].GetStringValue()
	switch {
	case c.GetEnsembleScheduling() != nil:
		m.Backend, m.Scheduling = "ensemble", "ensemble"
	case c.GetSequenceBatching() != nil:
		m.Scheduling = "sequence"
	case c.GetDynamicBatching() != nil:
		m.Scheduling = "dynamic"
	}
	for _, a := range c.GetOptimization().GetExecutionAccelerators().GetGpuExecutionAccelerator() {
		m.WantedProviders = append(m.WantedProviders, a.GetName())
	}
}

func counted(m *vedettev1.Model, st *inference.ModelStatistics) {
	if ms := st.GetLastInference(); ms > 0 {
		m.LastInferenceTime = timestamppb.New(time.UnixMilli(int64(ms)))
	}
	sums := st.GetInferenceStats()
	m.Successes, m.Failures = int64(sums.GetSuccess().GetCount()), int64(sums.GetFail().GetCount())
	m.Inferences, m.Executions = int64(st.GetInferenceCount()), int64(st.GetExecutionCount())
	m.Mean, m.MeanQueue = mean(sums.GetSuccess()), mean(sums.GetQueue())
	m.MeanInput, m.MeanCompute, m.MeanOutput = mean(sums.GetComputeInput()), mean(sums.GetComputeInfer()), mean(sums.GetComputeOutput())
	for _, b := range st.GetBatchStats() {
		m.Batches = append(m.Batches, &vedettev1.BatchCount{
			Size: int64(b.GetBatchSize()), Count: int64(b.GetComputeInfer().GetCount()), MeanCompute: mean(b.GetComputeInfer()),
		})
	}
	slices.SortFunc(m.Batches, func(a, b *vedettev1.BatchCount) int { return int(a.GetSize() - b.GetSize()) })
}

// mean is nil when there is nothing to take it of.
func mean(d *inference.StatisticDuration) *durationpb.Duration {
	if d.GetCount() == 0 {
		return nil
	}
	return durationpb.New(time.Duration(d.GetNs() / d.GetCount()))
}

// LoadModel implements vedettev1.ModelServiceServer.
func (s *Service) LoadModel(ctx context.Context, req *vedettev1.LoadModelRequest) (*vedettev1.LoadModelResponse, error) {
	name, err := id(req.GetName())
	if err != nil {
		return nil, err
	}
	if _, err := s.infer.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: name}); err != nil {
		return nil, fault("load "+req.GetName(), err)
	}
	return &vedettev1.LoadModelResponse{}, nil
}

// UnloadModel implements vedettev1.ModelServiceServer.
func (s *Service) UnloadModel(ctx context.Context, req *vedettev1.UnloadModelRequest) (*vedettev1.UnloadModelResponse, error) {
	name, err := id(req.GetName())
	if err != nil {
		return nil, err
	}
	if _, err := s.infer.RepositoryModelUnload(ctx, &inference.RepositoryModelUnloadRequest{ModelName: name}); err != nil {
		return nil, fault("unload "+req.GetName(), err)
	}
	return &vedettev1.UnloadModelResponse{}, nil
}

func id(name string) (string, error) {
	short, ok := strings.CutPrefix(name, prefix)
	if !ok || short == "" || strings.Contains(short, "/") {
		return "", &api.ReasonError{Code: codes.InvalidArgument, Reason: "INVALID_ARGUMENT", Message: fmt.Sprintf("name: %q is not models/{model}", name)}
	}
	return short, nil
}

// fault passes on what the sidecar says: it is written for operators.
func fault(what string, err error) error {
	st := status.Convert(err)
	switch st.Code() {
	case codes.Unavailable:
		if strings.Contains(st.Message(), "connection error") || strings.Contains(st.Message(), "error reading from server") {
			return &api.ReasonError{
				Code: codes.Unavailable, Reason: "INFERENCE_UNAVAILABLE", Message: what + ": the inference sidecar is not connected",
				Hint: "it is started again by itself; if this lasts, its log says why",
			}
		}
		return &api.ReasonError{Code: codes.FailedPrecondition, Reason: "MODEL_REFUSED", Message: what + ": " + st.Message()}
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.Internal, codes.Unimplemented, codes.Unknown:
		return &api.ReasonError{Code: codes.FailedPrecondition, Reason: "MODEL_REFUSED", Message: what + ": " + st.Message()}
	default:
		return err
	}
}
