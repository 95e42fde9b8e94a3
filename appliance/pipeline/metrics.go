package pipeline

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vedette/vedette/appliance/pipeline/ladder"
)

// metrics are counted per camera.
type metrics struct {
	analysed  *prometheus.CounterVec
	dropped   *prometheus.CounterVec
	inference *prometheus.HistogramVec
	committed *prometheus.HistogramVec
	pictures  *prometheus.CounterVec
	stage     *prometheus.HistogramVec
	level     prometheus.Gauge
	rate      prometheus.Gauge
	shed      prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	buckets := []float64{.005, .01, .02, .03, .05, .075, .1, .15, .2, .3, .5, .75, 1, 2, 5}
	m := &metrics{
		analysed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vedette_frames_analysed_total", Help: "Frames that went through the pipeline.",
		}, []string{"camera"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vedette_frames_dropped_total", Help: "Frames that were announced but not analysed, by cause.",
		}, []string{"camera", "cause"}),
		inference: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "vedette_inference_seconds", Help: "From sending a frame to inference until its tracks were back.", Buckets: buckets,
		}, []string{"camera"}),
		committed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "vedette_frame_committed_seconds", Help: "From a frame's arrival until what was seen in it was committed.", Buckets: buckets,
		}, []string{"camera"}),
		stage: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "vedette_frame_stage_seconds", Help: "How long frames stay in each stage on their way from capture to commit.", Buckets: stageBuckets(),
		}, []string{"camera", "stage"}),
		level: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "vedette_load_level", Help: "Step of the degradation ladder: 0 normal, 1 rates reduced, 2 frames grow stale, 3 cameras shed.",
		}),
		rate: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "vedette_load_limited_fps", Help: "Analysed frames a second no camera exceeds while the box is overloaded; 0: no limit.",
		}),
		shed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "vedette_load_shed_cameras", Help: "Cameras whose analysis is given up while the box is overloaded.",
		}),
	}
	m.pictures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "vedette_pictures_missed_total", Help: "Pictures of tracks and events that could not be taken or written.",
	}, []string{"camera"})
	if r != nil {
		r.MustRegister(m.analysed, m.dropped, m.inference, m.committed, m.pictures, m.stage, m.level, m.rate, m.shed)
	}
	return m
}

// forget removes the series of a camera that is gone.
func (m *metrics) forget(camera string) {
	labels := prometheus.Labels{"camera": camera}
	m.analysed.DeletePartialMatch(labels)
	m.dropped.DeletePartialMatch(labels)
	m.inference.DeletePartialMatch(labels)
	m.committed.DeletePartialMatch(labels)
	m.pictures.DeletePartialMatch(labels)
	m.stage.DeletePartialMatch(labels)
}

// stageBuckets are few: there is a histogram for every camera and stage.
func stageBuckets() []float64 { return []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2} }

// stages observes where a frame's time went.
func (m *metrics) stages(f *Timed) {
	last := time.Duration(0)
	for _, s := range f.Stamps {
		m.stage.WithLabelValues(f.Camera, s.Stage).Observe((s.End - last).Seconds())
		last = s.End
	}
}

func (m *metrics) setLoad(d ladder.Decision) {
	m.level.Set(float64(d.Level))
	m.rate.Set(d.Rate)
	m.shed.Set(float64(len(d.Shed)))
}
