package appliance

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vedette/vedette/appliance/doctor"
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
