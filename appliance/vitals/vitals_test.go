package vitals

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const inferenceMetrics = `# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="detector",version="1"} 3
nv_inference_pending_request_count{model="tracker",version="1"} 2
# TYPE vedette_instance_provider gauge
vedette_instance_provider{instance="detector_0",model="detector",provider="cuda",version="1"} 1
vedette_instance_provider{instance="detector_1",model="detector",provider="cpu",version="1"} 1
# TYPE go_goroutines gauge
go_goroutines 41
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.62
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 1e+09
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 8e+09
`

type size int64

func (s size) Stats() store.Stats { return store.Stats{Bytes: int64(s), Queued: 7} }

func TestSamplesTellOfTheBoxItsProcessesAndItsCameras(t *testing.T) {
	infer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(inferenceMetrics)) }))
	defer infer.Close()
	metrics := prometheus.NewRegistry()
	stages := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: stageFamily, Buckets: []float64{.01, .1, 1}}, []string{"camera", "stage"})
	metrics.MustRegister(stages)
	drops := int64(0)
	r := New(Config{
		Dir: t.TempDir(), Store: size(1234), Metrics: metrics, InferMetrics: strings.TrimPrefix(infer.URL, "http://"), Keep: 3,
		Processes: func() map[string]int {
			return map[string]int{"vedette": os.Getpid(), "vedette-infer": os.Getppid(), "vedette-ingest": 0}
		},
		Cameras: func() []*vedettev1.Camera {
			drops += 10
			return []*vedettev1.Camera{{Name: "cameras/door", Status: &vedettev1.CameraStatus{ReceivedFps: 15, AnalysedFps: 5, Drops: map[string]int64{"busy": drops}}}, {Name: "cameras/gate"}}
		},
	})
	if r.Latest() != nil {
		t.Error("a sample before the first")
	}
	seen := map[string]int64{}
	begin := time.Now()
	for i := range 5 {
		stages.WithLabelValues("door", "infer").Observe(0.05)
		r.sample(t.Context(), begin.Add(time.Duration(i)*time.Second), 2*time.Second, seen)
	}
	s := r.Latest()
	if s.GetProcessors() < 1 || s.GetMemoryTotalBytes() <= s.GetMemoryBytes() || s.GetDiskTotalBytes() < s.GetDiskFreeBytes() || s.GetDiskFreeBytes() <= 0 || s.GetStoreBytes() != 1234 || s.GetPendingCommits() != 7 {
		t.Errorf("box: %v", s)
	}
	if p := s.GetProcesses(); len(p) != 2 || p[0].GetResidentBytes() < 1<<20 || p[0].GetGoroutines() < 1 || p[1].GetGoroutines() != 41 {
		t.Errorf("processes: %v", s.GetProcesses())
	}
	if s.GetPendingRequests() != 5 || len(s.GetGpus()) != 1 || s.GetGpus()[0].GetUtilization() != 0.62 || s.GetGpus()[0].GetMemoryTotalBytes() != 8e9 {
		t.Errorf("inference: %d waiting, GPUs %v", s.GetPendingRequests(), s.GetGpus())
	}
	if st := s.GetStages(); len(st) != 1 || st[0].GetFrames() != 1 || math.Abs(st[0].GetMeanSeconds()-0.05) > 1e-9 || st[0].GetP99Seconds() != 0.1 {
		t.Errorf("stages: %v", st)
	}
	if p := r.Inference().Models[Version{"detector", "1"}]; p.Pending != 3 || !slices.Equal(p.Providers, []string{"cpu", "cuda"}) {
		t.Errorf("detector: %+v", p)
	}
	h := r.History(begin.Add(3*time.Second), []string{"cameras/door"})
	if len(h.GetBox()) != 2 || len(h.GetCameras()) != 2 {
		t.Fatalf("%d samples of the box and %d of the camera from the fourth on", len(h.GetBox()), len(h.GetCameras()))
	}
	if c := h.GetCameras()[1]; c.GetCamera() != "cameras/door" || c.GetReceivedFps() != 15 || c.GetAnalysedFps() != 5 || c.GetDroppedFps() != 5 {
		t.Errorf("camera: %v", c)
	}
	if h := r.History(time.Time{}, nil); len(h.GetBox()) != 3 || len(h.GetCameras()) != 6 {
		t.Errorf("%d samples of the box and %d of cameras are kept, want 3 and 6", len(h.GetBox()), len(h.GetCameras()))
	}
}

func TestWhatTheSidecarDoesNotTellIsNotKnown(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer broken.Close()
	for name, address := range map[string]string{"no address": "", "nobody there": "127.0.0.1:1", "no metrics": strings.TrimPrefix(broken.URL, "http://")} {
		if got, known := scrape(t.Context(), address); known {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestRunStopsAtOnce(t *testing.T) {
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		r := New(Config{Dir: t.TempDir(), Store: size(0), Cameras: func() []*vedettev1.Camera {
			cancel()
			return nil
		}})
		if err := r.Run(ctx); err != nil || r.Latest() == nil {
			t.Errorf("%v, sample %v", err, r.Latest())
		}
	}
}
