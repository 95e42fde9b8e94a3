package metrics

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vedette/vedette/infer/stats"
)

// Quantiles are what summaries tell (summary_quantiles): the quantile to the error it may have.
type Quantiles map[float64]float64

// DefaultQuantiles are the reference server's.
func DefaultQuantiles() Quantiles {
	return Quantiles{0.5: 0.05, 0.9: 0.01, 0.95: 0.001, 0.99: 0.001, 0.999: 0.001}
}

// leastFault is the smallest error of a quantile: with none, every duration of the last minute would have to be kept.
const leastFault = 1e-4

// ParseQuantiles reads quantile:error,quantile:error.
func ParseQuantiles(s string) (Quantiles, error) {
	q := make(Quantiles)
	for pair := range strings.SplitSeq(s, ",") {
		left, right, ok := strings.Cut(pair, ":")
		if parts := strings.SplitN(right, ".", 3); len(parts) == 3 {
			right = parts[0] + "." + parts[1] // the reference server reads 0.0.1 like this, and its suites rely on it
		}
		quantile, err := strconv.ParseFloat(left, 64)
		fault, err2 := strconv.ParseFloat(right, 64)
		if !ok || err != nil || err2 != nil || !(quantile >= 0 && quantile <= 1) || !(fault >= 0 && fault <= 1) {
			return nil, fmt.Errorf("%q is not quantile:error, both within 0 and 1", pair)
		}
		q[quantile] = max(fault, leastFault)
	}
	return q, nil
}

// Summaries makes the summaries of a model version (summary_latencies=true): percentiles over the last minute, of the
// model that the snapshot names.
func (q Quantiles) Summaries(of stats.Snapshot) *stats.Summaries {
	if q == nil {
		return nil
	}
	l := labels(&of)
	summary := func(name, help string) stats.Observer {
		return prometheus.NewSummary(prometheus.SummaryOpts{
			Name: name, Help: help, ConstLabels: l, Objectives: q, MaxAge: time.Minute, AgeBuckets: 5,
		})
	}
	s := &stats.Summaries{
		Request:       summary("nv_inference_request_summary_us", "Summary of inference request duration in microseconds (includes cached requests)"),
		Queue:         summary("nv_inference_queue_summary_us", "Summary of inference queuing duration in microseconds (includes cached requests)"),
		ComputeInput:  summary("nv_inference_compute_input_summary_us", "Summary of compute input duration in microseconds (does not include cached requests)"),
		ComputeInfer:  summary("nv_inference_compute_infer_summary_us", "Summary of compute inference duration in microseconds (does not include cached requests)"),
		ComputeOutput: summary("nv_inference_compute_output_summary_us", "Summary of inference compute output duration in microseconds (does not include cached requests)"),
	}
	if of.Cached {
		s.CacheHit = summary("nv_cache_hit_summary_per_model", "Summary of cache hit duration per model, in microseconds")
		s.CacheMiss = summary("nv_cache_miss_summary_per_model", "Summary of cache miss (insert+lookup) duration per model, in microseconds")
	}
	return s
}

func collectSummaries(ch chan<- prometheus.Metric, s *stats.Summaries) {
	if s == nil {
		return
	}
	for _, o := range []stats.Observer{s.Request, s.Queue, s.ComputeInput, s.ComputeInfer, s.ComputeOutput, s.CacheHit, s.CacheMiss} {
		if m, ok := o.(prometheus.Metric); ok {
			ch <- m
		}
	}
}
