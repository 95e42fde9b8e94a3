package pipeline

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
)

// ingestMetrics shows what the ingest sidecar last said of every camera. Every counter of its contract is a metric, so
// that none is forgotten.
type ingestMetrics Pipeline

// ingestCounters is a metric for each counter, by its field.
var ingestCounters = func() map[protoreflect.Name]*prometheus.Desc { //nolint:gochecknoglobals // a table made from the contract
	all := map[protoreflect.Name]*prometheus.Desc{}
	fields := (&ingestv1.Counters{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Kind() == protoreflect.Uint64Kind {
			all[f.Name()] = prometheus.NewDesc("vedette_ingest_"+string(f.Name())+"_total",
				strings.ReplaceAll(string(f.Name()), "_", " ")+", as counted by the ingest sidecar since it started.", []string{"camera"}, nil)
		}
	}
	return all
}()

//nolint:gochecknoglobals // descriptions never change
var (
	frameAge      = prometheus.NewDesc("vedette_ingest_frame_age_seconds", "Age of the newest decoded picture.", []string{"camera"}, nil)
	cameraState   = prometheus.NewDesc("vedette_camera_state", "1 for the state the camera is in.", []string{"camera", "state"}, nil)
	cameraDecoder = prometheus.NewDesc("vedette_camera_decoder_info", "1 for the decoder in use; fallback is yes when a preferred one could not be.", []string{"camera", "codec", "decoder", "fallback"}, nil)
	cameraGOP     = prometheus.NewDesc("vedette_camera_gop_frames", "Pictures from keyframe to keyframe, as last seen.", []string{"camera"}, nil)
	cameraRate    = prometheus.NewDesc("vedette_camera_frame_rate", "Pictures a second that arrive.", []string{"camera"}, nil)
	cameraBits    = prometheus.NewDesc("vedette_camera_bits_per_second", "Bits a second that arrive.", []string{"camera"}, nil)
	cameraClock   = prometheus.NewDesc("vedette_camera_clock_offset_seconds", "The camera's clock minus the box's, where sender reports tell.", []string{"camera"}, nil)
	cameraGate    = prometheus.NewDesc("vedette_camera_gate_open", "1 while the motion gate lets frames pass.", []string{"camera"}, nil)
	cameraAlone   = prometheus.NewDesc("vedette_camera_isolated", "1 when the camera has a process of its own.", []string{"camera"}, nil)
)

// Describe is part of prometheus.Collector.
func (m *ingestMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range ingestCounters {
		ch <- d
	}
	for _, d := range []*prometheus.Desc{frameAge, cameraState, cameraDecoder, cameraGOP, cameraRate, cameraBits, cameraClock, cameraGate, cameraAlone} {
		ch <- d
	}
}

// Collect is part of prometheus.Collector.
func (m *ingestMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for name, c := range m.counters {
		fields := c.ProtoReflect()
		for field, d := range ingestCounters {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(fields.Get(fields.Descriptor().Fields().ByName(field)).Uint()), name)
		}
		if age := c.GetFrameAgeNs(); age >= 0 {
			gauge(frameAge, float64(age)/1e9, name)
		}
	}
	for name, s := range m.streams {
		gauge(cameraState, 1, name, strings.TrimPrefix(s.GetState().String(), "CAMERA_STATE_"))
		gauge(cameraAlone, number(s.GetIsolated()), name)
		if g := s.GetGate(); g != ingestv1.GateState_GATE_STATE_UNSPECIFIED {
			gauge(cameraGate, number(g != ingestv1.GateState_GATE_STATE_CLOSED), name)
		}
		d := s.GetStream()
		if d == nil {
			continue
		}
		fallback := "no"
		if d.GetDecoderFallback() != "" {
			fallback = "yes"
		}
		gauge(cameraDecoder, 1, name, strings.TrimPrefix(d.GetCodec().String(), "CODEC_"), d.GetDecoder(), fallback)
		gauge(cameraGOP, float64(d.GetGop()), name)
		gauge(cameraRate, d.GetRate(), name)
		gauge(cameraBits, d.GetBitRate(), name)
		if d.GetSenderReports() {
			gauge(cameraClock, float64(d.GetClockOffsetNs())/1e9, name)
		}
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
