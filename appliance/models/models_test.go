package models_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/api/inference"
	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/appliance/models"
	"github.com/vedette/vedette/appliance/vitals"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sidecar answers as vedette-infer does with a detector that is loaded and a model that is broken.
type sidecar struct {
	inference.UnimplementedGRPCInferenceServiceServer
	loaded, unloaded chan string
}

func (*sidecar) RepositoryIndex(context.Context, *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	return &inference.RepositoryIndexResponse{Models: []*inference.RepositoryIndexResponse_ModelIndex{
		{Name: "detector", Version: "1", State: "READY"},
		{Name: "broken", Version: "1", State: "UNAVAILABLE", Reason: "no model.onnx"},
		{Name: "asleep"},
		{Name: "train", Reason: "it has neither a configuration nor a version"},
	}}, nil
}

func (*sidecar) ModelStatistics(context.Context, *inference.ModelStatisticsRequest) (*inference.ModelStatisticsResponse, error) {
	d := func(n, ns uint64) *inference.StatisticDuration { return &inference.StatisticDuration{Count: n, Ns: ns} }
	return &inference.ModelStatisticsResponse{ModelStats: []*inference.ModelStatistics{{
		Name: "detector", Version: "1", LastInference: 1700000000000, InferenceCount: 30, ExecutionCount: 10,
		InferenceStats: &inference.InferStatistics{Success: d(20, 20e6), Fail: d(2, 0), Queue: d(20, 2e6), ComputeInfer: d(20, 16e6)},
		BatchStats:     []*inference.InferBatchStatistics{{BatchSize: 4, ComputeInfer: d(5, 10e6)}, {BatchSize: 1, ComputeInfer: d(10, 10e6)}},
	}}}, nil
}

func (*sidecar) ModelConfig(_ context.Context, r *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	return &inference.ModelConfigResponse{Config: &inference.ModelConfig{
		Name: r.GetName(), Backend: "onnxruntime", MaxBatchSize: 8, SchedulingChoice: &inference.ModelConfig_DynamicBatching{DynamicBatching: &inference.ModelDynamicBatching{}},
	}}, nil
}

func (s *sidecar) RepositoryModelLoad(_ context.Context, r *inference.RepositoryModelLoadRequest) (*inference.RepositoryModelLoadResponse, error) {
	if r.GetModelName() == "broken" {
		return nil, status.Error(codes.Internal, "no model.onnx")
	}
	s.loaded <- r.GetModelName()
	return &inference.RepositoryModelLoadResponse{}, nil
}

func (s *sidecar) RepositoryModelUnload(_ context.Context, r *inference.RepositoryModelUnloadRequest) (*inference.RepositoryModelUnloadResponse, error) {
	s.unloaded <- r.GetModelName()
	return &inference.RepositoryModelUnloadResponse{}, nil
}

func service(t *testing.T, s *sidecar) *models.Service {
	t.Helper()
	path := filepath.Join(t.TempDir(), "infer.sock")
	if s != nil {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer()
		inference.RegisterGRPCInferenceServiceServer(g, s)
		served := make(chan error, 1)
		go func() { served <- g.Serve(l) }()
		t.Cleanup(func() {
			g.Stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return models.New(conn, func() vitals.Inference {
		return vitals.Inference{Models: map[vitals.Version]vitals.ModelState{{Model: "detector", Version: "1"}: {Pending: 4, Providers: []string{"cpu"}}}}
	})
}

func TestModelsAreListedWithWhatTheyDid(t *testing.T) {
	list, err := service(t, &sidecar{}).ListModels(t.Context(), &vedettev1.ListModelsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.GetModels()) != 3 {
		t.Fatalf("got %v", list)
	}
	asleep, broken, d := list.GetModels()[0], list.GetModels()[1], list.GetModels()[2]
	if asleep.GetName() != "models/asleep" || asleep.GetState() != "" || broken.GetReason() != "no model.onnx" {
		t.Errorf("asleep %v, broken %v", asleep, broken)
	}
	if d.GetBackend() != "onnxruntime" || d.GetScheduling() != "dynamic" || d.GetMaxBatchSize() != 8 || d.GetPendingRequests() != 4 || len(d.GetEffectiveProviders()) != 1 {
		t.Errorf("detector: %v", d)
	}
	if d.GetSuccesses() != 20 || d.GetFailures() != 2 || d.GetMean().AsDuration() != time.Millisecond || d.GetMeanQueue().AsDuration() != 100*time.Microsecond || d.GetMeanInput() != nil {
		t.Errorf("detector's numbers: %v", d)
	}
	if b := d.GetBatches(); len(b) != 2 || b[0].GetSize() != 1 || b[1].GetCount() != 5 || b[1].GetMeanCompute().AsDuration() != 2*time.Millisecond {
		t.Errorf("detector's batches: %v", b)
	}
}

func TestModelsAreLoadedAndUnloaded(t *testing.T) {
	box := &sidecar{loaded: make(chan string, 1), unloaded: make(chan string, 1)}
	s := service(t, box)
	if _, err := s.LoadModel(t.Context(), &vedettev1.LoadModelRequest{Name: "models/detector"}); err != nil || <-box.loaded != "detector" {
		t.Errorf("load: %v", err)
	}
	if _, err := s.UnloadModel(t.Context(), &vedettev1.UnloadModelRequest{Name: "models/detector"}); err != nil || <-box.unloaded != "detector" {
		t.Errorf("unload: %v", err)
	}
	reason := func(err error) string {
		if r, ok := errors.AsType[*api.ReasonError](err); ok {
			return r.Reason
		}
		return ""
	}
	_, err := s.LoadModel(t.Context(), &vedettev1.LoadModelRequest{Name: "models/broken"})
	if reason(err) != "MODEL_REFUSED" {
		t.Errorf("a model that does not load: %v", err)
	}
	for _, name := range []string{"", "detector", "models/", "models/a/b"} {
		if _, err := s.LoadModel(t.Context(), &vedettev1.LoadModelRequest{Name: name}); reason(err) != "INVALID_ARGUMENT" {
			t.Errorf("load %q: %v", name, err)
		}
		if _, err := s.UnloadModel(t.Context(), &vedettev1.UnloadModelRequest{Name: name}); reason(err) != "INVALID_ARGUMENT" {
			t.Errorf("unload %q: %v", name, err)
		}
	}
	if _, err := service(t, nil).ListModels(t.Context(), &vedettev1.ListModelsRequest{}); reason(err) != "INFERENCE_UNAVAILABLE" {
		t.Errorf("without a sidecar: %v", err)
	}
}
