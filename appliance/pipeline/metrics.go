package pipeline

import "github.com/prometheus/client_golang/prometheus"

// metrics are counted per camera.
type metrics struct {
	analysed  *prometheus.CounterVec
	dropped   *prometheus.CounterVec
	inference *prometheus.HistogramVec
	committed *prometheus.HistogramVec
	pictures  *prometheus.CounterVec
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
	}
	m.pictures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "vedette_pictures_missed_total", Help: "Pictures of tracks and events that could not be taken or written.",
	}, []string{"camera"})
	if r != nil {
		r.MustRegister(m.analysed, m.dropped, m.inference, m.committed, m.pictures)
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
}
