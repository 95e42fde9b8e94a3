package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
)

// ModelCost is how long the model of a pipeline that takes the time takes, on the provider where it really runs.
type ModelCost struct {
	Model, Provider string
	Instances       int
	// Batches by size: 1, 4 and 8, as far as the model takes them.
	Batches []BatchCost
}

// BatchCost is how long a batch takes.
type BatchCost struct {
	Size int
	Took time.Duration
}

const reckonRuns = 6 // of each batch size; the first does not count

// MeasureModel runs the model of a pipeline on empty pictures. It takes some seconds and competes with the cameras.
func (p *Pipeline) MeasureModel(ctx context.Context, pipeline string) (ModelCost, error) {
	s, _ := p.currentSession()
	if s == nil {
		return ModelCost{}, errors.Join(errInferenceGone, p.Inference())
	}
	m, err := s.model(ctx, Analysing{Pipeline: pipeline}.withDefaults().Pipeline)
	if err != nil {
		return ModelCost{}, err
	}
	if m.detector == "" {
		return ModelCost{}, fmt.Errorf("measure pipeline %q: %w: it has no step whose batches could be timed", m.name, errModelUnsuitable)
	}
	config, err := s.config(ctx, m.detector)
	if err != nil {
		return ModelCost{}, err
	}
	cost := ModelCost{Model: m.detector}
	for _, g := range config.GetInstanceGroup() {
		cost.Instances += int(max(g.GetCount(), 1))
	}
	for _, size := range []int{1, 4, 8} {
		if size > 1 && size > int(config.GetMaxBatchSize()) {
			break
		}
		took, err := s.reckon(ctx, config, size)
		if err != nil {
			return cost, fmt.Errorf("measure model %q with a batch of %d: %w", m.detector, size, err)
		}
		cost.Batches = append(cost.Batches, BatchCost{Size: size, Took: took})
	}
	cost.Provider, err = s.provider(ctx, m.detector) // now, when it has run
	return cost, err
}

// Detector names the model of a pipeline that takes the time, and where its instances really run: "cpu", "cuda", or
// several where they differ, as "cuda+cpu".
func (p *Pipeline) Detector(ctx context.Context, pipeline string) (model, provider string, err error) {
	s, _ := p.currentSession()
	if s == nil {
		return "", "", errors.Join(errInferenceGone, p.Inference())
	}
	m, err := s.model(ctx, pipeline)
	if err != nil {
		return "", "", err
	}
	if m.detector == "" {
		return "", "", fmt.Errorf("pipeline %q: %w: it has no step of its own that takes the time", m.name, errModelUnsuitable)
	}
	provider, err = s.provider(ctx, m.detector)
	return m.detector, provider, err
}

// provider asks where a model's instances run.
func (s *session) provider(ctx context.Context, model string) (string, error) {
	meta, err := s.client.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: model})
	if err != nil {
		return "", fmt.Errorf("metadata of model %q: %w", model, err)
	}
	var all []string
	for _, in := range meta.GetInstances() {
		first, _, _ := strings.Cut(in.GetProvider(), ",") // the processor stands behind every accelerator
		if first != "" && !slices.Contains(all, first) {
			all = append(all, first)
		}
	}
	if len(all) == 0 {
		return "cpu", nil // a model that cannot tell has no accelerator
	}
	slices.Sort(all)
	slices.Reverse(all) // the processor last
	return strings.Join(all, "+"), nil
}

// reckon runs batches one after the other and takes the time from the model's own statistics.
func (s *session) reckon(ctx context.Context, config *inference.ModelConfig, size int) (time.Duration, error) {
	req := &inference.ModelInferRequest{ModelName: config.GetName()}
	for _, in := range config.GetInput() {
		name := strings.TrimPrefix(in.GetDataType().String(), "TYPE_")
		var shape []int64
		if config.GetMaxBatchSize() > 0 {
			shape = append(shape, int64(size))
		}
		for _, d := range in.GetDims() {
			if d < 0 {
				d = 640 // a picture whose size the model leaves open
			}
			shape = append(shape, d)
		}
		n, err := tensor.ElementCount(shape)
		if err != nil {
			return 0, err
		}
		dt, err := tensor.Parse(name)
		if err != nil {
			return 0, err
		}
		req.Inputs = append(req.Inputs, input(in.GetName(), name, shape...))
		req.RawInputContents = append(req.RawInputContents, make([]byte, int(n)*dt.Size()))
	}
	var before, after *inference.StatisticDuration
	for run := range reckonRuns {
		if run == 1 {
			var err error
			if before, err = s.computed(ctx, config.GetName(), size); err != nil {
				return 0, err
			}
		}
		if _, err := s.client.ModelInfer(ctx, req); err != nil {
			return 0, err
		}
	}
	after, err := s.computed(ctx, config.GetName(), size)
	if err != nil {
		return 0, err
	}
	n := after.GetCount() - before.GetCount()
	if n == 0 {
		return 0, errors.New("the model's statistics do not count batches of that size")
	}
	return time.Duration((after.GetNs() - before.GetNs()) / n), nil
}

// computed is what the statistics say of a batch size.
func (s *session) computed(ctx context.Context, name string, size int) (*inference.StatisticDuration, error) {
	r, err := s.client.ModelStatistics(ctx, &inference.ModelStatisticsRequest{Name: name})
	if err != nil {
		return nil, err
	}
	sum := &inference.StatisticDuration{}
	for _, m := range r.GetModelStats() {
		for _, b := range m.GetBatchStats() {
			if b.GetBatchSize() == uint64(size) {
				sum.Count += b.GetComputeInfer().GetCount()
				sum.Ns += b.GetComputeInfer().GetNs()
			}
		}
	}
	return sum, nil
}
