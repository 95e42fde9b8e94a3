package stats

import (
	"strconv"

	"github.com/vedette/vedette/api/inference"
)

// Proto is the snapshot as the statistics extension answers it.
func (s Snapshot) Proto() *inference.ModelStatistics {
	out := &inference.ModelStatistics{
		Name:           s.Name,
		Version:        strconv.FormatInt(s.Version, 10),
		InferenceCount: s.Inferences,
		ExecutionCount: s.Executions,
		InferenceStats: &inference.InferStatistics{
			Success: s.Success.proto(), Fail: s.Fail.proto(), Queue: s.Queue.proto(),
			ComputeInput: s.ComputeInput.proto(), ComputeInfer: s.ComputeInfer.proto(), ComputeOutput: s.ComputeOutput.proto(),
			CacheHit: s.CacheHit.proto(), CacheMiss: s.CacheMiss.proto(),
		},
	}
	if !s.LastInference.IsZero() {
		out.LastInference = uint64(s.LastInference.UnixMilli())
	}
	for _, b := range s.Batches {
		out.BatchStats = append(out.BatchStats, &inference.InferBatchStatistics{
			BatchSize:    uint64(b.Size),
			ComputeInput: b.ComputeInput.proto(), ComputeInfer: b.ComputeInfer.proto(), ComputeOutput: b.ComputeOutput.proto(),
		})
	}
	for i, r := range s.Responses {
		if out.ResponseStats == nil {
			out.ResponseStats = make(map[string]*inference.InferResponseStatistics)
		}
		out.ResponseStats[strconv.Itoa(i)] = &inference.InferResponseStatistics{
			ComputeInfer: r.ComputeInfer.proto(), ComputeOutput: r.ComputeOutput.proto(),
			Success: r.Success.proto(), Fail: r.Fail.proto(), EmptyResponse: r.Empty.proto(), Cancel: r.Cancel.proto(),
		}
	}
	for _, m := range s.Memory {
		out.MemoryUsage = append(out.MemoryUsage, &inference.MemoryUsage{Type: m.Type, Id: m.ID, ByteSize: m.Size})
	}
	return out
}

func (d Duration) proto() *inference.StatisticDuration {
	return &inference.StatisticDuration{Count: d.Count, Ns: uint64(max(d.Total, 0))}
}
