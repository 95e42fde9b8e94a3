package vitals

import (
	"maps"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// stageFamily is the histogram of a frame's stages, by camera and stage.
const stageFamily = "vedette_frame_stage_seconds"

// stages sums the histograms of all cameras and tells what was added since the last call.
type stages struct {
	metrics prometheus.Gatherer
	last    map[string]*histogram
}

// histogram has cumulative counts by upper bound.
type histogram struct {
	count  uint64
	sum    float64
	bounds map[float64]uint64
}

func (s *stages) since() []*vedettev1.StageSample {
	if s.metrics == nil {
		return nil
	}
	families, err := s.metrics.Gather()
	if err != nil {
		return nil
	}
	now := map[string]*histogram{}
	for _, f := range families {
		if f.GetName() != stageFamily {
			continue
		}
		for _, m := range f.GetMetric() {
			add(now, label(m, "stage"), m.GetHistogram())
		}
	}
	var list []*vedettev1.StageSample
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if sample := now[name].minus(s.last[name]); sample != nil {
			sample.Stage = name
			list = append(list, sample)
		}
	}
	s.last = now
	return list
}

func add(to map[string]*histogram, name string, h *dto.Histogram) {
	sum := to[name]
	if sum == nil {
		sum = &histogram{bounds: map[float64]uint64{}}
		to[name] = sum
	}
	sum.count += h.GetSampleCount()
	sum.sum += h.GetSampleSum()
	for _, b := range h.GetBucket() {
		sum.bounds[b.GetUpperBound()] += b.GetCumulativeCount()
	}
}

// minus tells what was added since before (nil: all); nil when nothing was, or a camera and its counts are gone.
func (h *histogram) minus(before *histogram) *vedettev1.StageSample {
	if before == nil {
		before = &histogram{}
	}
	if h.count <= before.count || h.sum < before.sum {
		return nil
	}
	n := h.count - before.count
	sample := &vedettev1.StageSample{Frames: int64(n), MeanSeconds: (h.sum - before.sum) / float64(n)}
	for _, bound := range slices.Sorted(maps.Keys(h.bounds)) {
		if math.IsInf(bound, 1) {
			break
		}
		sample.P99Seconds = bound
		if float64(h.bounds[bound]-before.bounds[bound]) >= 0.99*float64(n) {
			break
		}
	}
	return sample
}
