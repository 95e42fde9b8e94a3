// Package vitals measures what the box spends (processor, memory, disk, GPU) and what its cameras do, every few
// seconds, and remembers the last half hour for plots. Nothing of it is kept on disk: Prometheus is for that.
package vitals

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

// Config is how a Recorder is made. Dir, Store and Cameras are required.
type Config struct {
	// Dir is on the file system whose room is told.
	Dir string
	// Processes gives the process ids of the box's programs by name; nil: none.
	Processes func() map[string]int
	// Store tells its size and its queue.
	Store interface{ Stats() store.Stats }
	// Cameras gives every camera with its status.
	Cameras func() []*vedettev1.Camera
	// Metrics holds the appliance's histograms; nil: no stages.
	Metrics prometheus.Gatherer
	// InferMetrics is the address (host:port) of the inference sidecar's metrics; empty: what it would tell is unknown.
	InferMetrics string
	// Every is the time between samples, 0: 5 s; Keep how many are remembered, 0: 360.
	Every time.Duration
	Keep  int
}

// Recorder takes the samples. Safe for concurrent use.
type Recorder struct {
	cfg    Config
	spent  *spent
	stages *stages

	mu        sync.Mutex // guards what follows
	moments   []moment   // oldest first
	inference Inference
}

// moment is one sample of everything.
type moment struct {
	box     *vedettev1.BoxSample // never changed after it is made
	cameras []camera
}

type camera struct {
	name                        string
	received, analysed, dropped float64 // pictures a second
}

// New returns a recorder that Run starts.
func New(cfg Config) *Recorder {
	if cfg.Every <= 0 {
		cfg.Every = 5 * time.Second
	}
	if cfg.Keep <= 0 {
		cfg.Keep = 360
	}
	return &Recorder{cfg: cfg, spent: newSpent(cfg.Processes), stages: &stages{metrics: cfg.Metrics}}
}

// Run takes samples until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Every)
	defer tick.Stop()
	drops := map[string]int64{}
	last := time.Now()
	for {
		now := time.Now()
		r.sample(ctx, now, now.Sub(last), drops)
		last = now
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (r *Recorder) sample(ctx context.Context, now time.Time, since time.Duration, drops map[string]int64) {
	st := r.cfg.Store.Stats()
	box := &vedettev1.BoxSample{
		Time: timestamppb.New(now), StoreBytes: st.Bytes, PendingCommits: int64(st.Queued), Stages: r.stages.since(),
	}
	r.spent.measure(box)
	var fs unix.Statfs_t
	if err := unix.Statfs(r.cfg.Dir, &fs); err == nil {
		box.DiskFreeBytes, box.DiskTotalBytes = int64(fs.Bavail)*fs.Bsize, int64(fs.Blocks)*fs.Bsize
	}
	inference, known := scrape(ctx, r.cfg.InferMetrics)
	if known {
		pending := int64(0)
		for _, m := range inference.Models {
			pending += m.Pending
		}
		box.PendingRequests, box.Gpus = &pending, inference.gpus
	}
	for _, p := range box.GetProcesses() {
		switch p.GetName() {
		case "vedette":
			own := int64(runtime.NumGoroutine())
			p.Goroutines = &own
		case "vedette-infer":
			p.Goroutines = inference.goroutines
		}
	}
	m := moment{box: box}
	for _, c := range r.cfg.Cameras() {
		total := int64(0)
		for _, n := range c.GetStatus().GetDrops() {
			total += n
		}
		seen := camera{name: c.GetName(), received: c.GetStatus().GetReceivedFps(), analysed: c.GetStatus().GetAnalysedFps()}
		if before, ok := drops[c.GetName()]; ok && since > 0 && total > before {
			seen.dropped = float64(total-before) / since.Seconds()
		}
		drops[c.GetName()] = total
		m.cameras = append(m.cameras, seen)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inference = inference
	r.moments = append(r.moments, m)
	if over := len(r.moments) - r.cfg.Keep; over > 0 {
		r.moments = slices.Delete(r.moments, 0, over)
	}
}

// Latest returns the newest sample, which must not be changed; nil before the first.
func (r *Recorder) Latest() *vedettev1.BoxSample {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.moments) == 0 {
		return nil
	}
	return r.moments[len(r.moments)-1].box
}

// Inference returns what the inference sidecar's metrics said last.
func (r *Recorder) Inference() Inference {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inference
}

// History returns the samples from start on: of the box, and of the named cameras (none: of all).
func (r *Recorder) History(start time.Time, cameras []string) *vedettev1.GetHistoryResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &vedettev1.GetHistoryResponse{}
	for _, m := range r.moments {
		if m.box.GetTime().AsTime().Before(start) {
			continue
		}
		h.Box = append(h.Box, m.box)
		for _, c := range m.cameras {
			if len(cameras) == 0 || slices.Contains(cameras, c.name) {
				h.Cameras = append(h.Cameras, &vedettev1.CameraSample{
					Camera: c.name, Time: m.box.GetTime(), ReceivedFps: c.received, AnalysedFps: c.analysed, DroppedFps: c.dropped,
				})
			}
		}
	}
	return h
}
