package appliance

import (
	"bytes"
	"context"
	"io"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/doctor"
	"github.com/vedette/vedette/appliance/support"
)

// findings tells what the doctor finds as metrics, so that alerts can be made of it.
type findings struct {
	cfg  doctor.Config
	desc *prometheus.Desc

	mu   sync.Mutex
	last []doctor.Finding
	at   time.Time
}

// findingsAge is how old findings may be: looking costs some system calls.
const findingsAge = time.Minute

func newFindings(cfg doctor.Config) *findings {
	return &findings{cfg: cfg, desc: prometheus.NewDesc("vedette_doctor_severity",
		"What vedette doctor finds, by check: 0 all is well, 1 a warning, 2 a fault.", []string{"check"}, nil)}
}

// Describe implements prometheus.Collector.
func (f *findings) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc }

// Collect implements prometheus.Collector.
func (f *findings) Collect(ch chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.at) > findingsAge {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		f.last, f.at = doctor.Check(ctx, f.cfg), now
		cancel()
	}
	worst := map[string]float64{}
	for _, x := range f.last {
		v := map[doctor.Severity]float64{doctor.Warning: 1, doctor.Error: 2}[x.Severity]
		worst[x.Check] = max(worst[x.Check], v)
	}
	for check, v := range worst {
		ch <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, v, check)
	}
}

// doctorConfig is what the doctor looks at: what this appliance uses.
func (a *Appliance) doctorConfig() doctor.Config {
	cfg := doctor.Config{DataDir: a.cfg.DataDir, Models: a.cfg.Models, Library: a.cfg.Library, Running: true, Pressure: a.store.Pressure, Sinks: a.sinks.Failing}
	if a.cfg.IngestProgram != "" {
		cfg.Programs = filepath.Dir(a.cfg.IngestProgram)
	}
	return cfg
}

// examine tells what the doctor finds now.
func (a *Appliance) examine(ctx context.Context) (list []*vedettev1.Finding) {
	for _, f := range doctor.Check(ctx, a.doctorConfig()) {
		list = append(list, &vedettev1.Finding{Check: f.Check, Message: f.Message, Advice: f.Advice, Severity: map[doctor.Severity]vedettev1.Severity{
			doctor.OK: vedettev1.Severity_SEVERITY_OK, doctor.Warning: vedettev1.Severity_SEVERITY_WARNING, doctor.Error: vedettev1.Severity_SEVERITY_ERROR,
		}[f.Severity]})
	}
	return list
}

// bundle writes a support bundle.
func (a *Appliance) bundle(ctx context.Context, w io.Writer) error {
	return support.Write(ctx, w, support.Config{
		Version: a.cfg.Version, DataDir: a.cfg.DataDir, Settings: a.cfg.Settings, Log: a.cfg.Log, Metrics: a.metricsText,
		Doctor: func(ctx context.Context) []doctor.Finding { return doctor.Check(ctx, a.doctorConfig()) },
		System: func(context.Context) (proto.Message, error) { return a.system(), nil },
		Cameras: func(context.Context) (proto.Message, error) {
			list, _ := a.cameras.List("", math.MaxInt)
			return &vedettev1.ListCamerasResponse{Cameras: list}, nil
		},
	})
}

// metricsText is what /metrics answers.
func (a *Appliance) metricsText() ([]byte, error) {
	families, err := a.metrics.Gather()
	var out bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), err
}
