package vitals

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// Version names one version of a model.
type Version struct{ Model, Version string }

// Inference is what the metrics of the inference sidecar say that its API does not. The zero value knows nothing.
type Inference struct {
	Models map[Version]ModelState
	gpus   []*vedettev1.GpuSample
	// goroutines of the sidecar; nil: not told.
	goroutines *int64
}

// ModelState is what a version of a model does now.
type ModelState struct {
	// Pending requests wait to be executed.
	Pending int64
	// Providers are where its instances really run.
	Providers []string
}

// scrape reads the metrics at an address. It tells whether there was anything to read.
func scrape(ctx context.Context, address string) (Inference, bool) {
	if address == "" {
		return Inference{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return Inference{}, false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Inference{}, false // the processes' state says why
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return Inference{}, false
	}
	return read(io.LimitReader(resp.Body, 8<<20))
}

func read(r io.Reader) (Inference, bool) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return Inference{}, false
	}
	out := Inference{Models: map[Version]ModelState{}}
	for _, m := range families["nv_inference_pending_request_count"].GetMetric() {
		v := Version{label(m, "model"), label(m, "version")}
		s := out.Models[v]
		s.Pending = int64(m.GetGauge().GetValue())
		out.Models[v] = s
	}
	for _, m := range families["vedette_instance_provider"].GetMetric() {
		v := Version{label(m, "model"), label(m, "version")}
		s := out.Models[v]
		if p := label(m, "provider"); m.GetGauge().GetValue() == 1 && !slices.Contains(s.Providers, p) {
			s.Providers = append(s.Providers, p)
			slices.Sort(s.Providers)
		}
		out.Models[v] = s
	}
	if m := families["go_goroutines"].GetMetric(); len(m) == 1 {
		n := int64(m[0].GetGauge().GetValue())
		out.goroutines = &n
	}
	gpus := map[string]*vedettev1.GpuSample{}
	each := func(family string, set func(g *vedettev1.GpuSample, v float64)) {
		for _, m := range families[family].GetMetric() {
			uuid := label(m, "gpu_uuid")
			if gpus[uuid] == nil {
				gpus[uuid] = &vedettev1.GpuSample{Name: uuid}
				out.gpus = append(out.gpus, gpus[uuid])
			}
			set(gpus[uuid], m.GetGauge().GetValue())
		}
	}
	each("nv_gpu_utilization", func(g *vedettev1.GpuSample, v float64) { g.Utilization = v })
	each("nv_gpu_memory_used_bytes", func(g *vedettev1.GpuSample, v float64) { g.MemoryUsedBytes = int64(v) })
	each("nv_gpu_memory_total_bytes", func(g *vedettev1.GpuSample, v float64) { g.MemoryTotalBytes = int64(v) })
	slices.SortFunc(out.gpus, func(a, b *vedettev1.GpuSample) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, true
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
