package sidecar_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/camera"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

var (
	faults       = flag.Int("faults", 0, "faulty cameras to try in TestFaultyCamerasRecover; 0: one of each fault")
	faultsAtOnce = flag.Int("faults-at-once", 64, "how many of them at the same time")
)

// fiftieth are the default deadlines at 1/50 of their length.
func fiftieth() (camera.Deadlines, camera.Backoff) {
	const ms = time.Millisecond
	deadlines := camera.Deadlines{
		Dial: 100 * ms, Answer: 100 * ms, FirstPacket: 100 * ms, FirstKeyframe: 400 * ms, FirstFrame: 100 * ms,
		Packets: 100 * ms, AccessUnits: 200 * ms, Keyframes: 2400 * ms, Frames: 200 * ms,
	}
	return deadlines, camera.Backoff{Base: 20 * ms, Max: 600 * ms, Slow: 6 * time.Second, Busy: 300 * ms}
}

// ward is a sidecar with many faulty cameras.
type ward struct {
	t      *testing.T
	client *ingestclient.Client

	mu       sync.Mutex // guards everything below
	revision uint64
	cameras  map[string]*ingestv1.Camera
	patients map[string]*patient
}

// patient is one faulty camera as the sidecar tells of it.
type patient struct {
	frames chan *ingestv1.FrameNotice
	status chan *ingestv1.CameraStatus
}

func newWard(t *testing.T, deadlines camera.Deadlines, backoff camera.Backoff) *ward {
	t.Helper()
	w := &ward{t: t, cameras: map[string]*ingestv1.Camera{}, patients: map[string]*patient{}}
	cfg := sidecar.Config{Socket: filepath.Join(t.TempDir(), "ingest.sock"), Dials: 64, Deadlines: deadlines, Backoff: backoff}
	run(t, sidecar.New(cfg).Run)
	w.client = ingestclient.New(ingestclient.Config{Socket: cfg.Socket, Program: "test", Retry: 10 * time.Millisecond, Handler: ingestclient.Handler{
		SlotsOpened: func(_ *ingestv1.SlotsOpened, f *os.File) { _ = f.Close() },
		Frame: func(f ingestclient.Frame) {
			f.Release()
			if p := w.patient(f.GetCamera()); p != nil {
				put(p.frames, f.FrameNotice)
			}
		},
		Camera: func(s *ingestv1.CameraStatus) {
			if p := w.patient(s.GetCamera()); p != nil {
				put(p.status, s)
			}
		},
	}})
	run(t, w.client.Run)
	if err := w.client.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.client.WatchFrames(&ingestv1.WatchFrames{})
	return w
}

func (w *ward) patient(name string) *patient {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.patients[name]
}

// admit puts a camera on the list, discharge takes it off.
func (w *ward) admit(c *ingestv1.Camera) *patient {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &patient{frames: make(chan *ingestv1.FrameNotice, 100), status: make(chan *ingestv1.CameraStatus, 100)}
	w.cameras[c.GetName()], w.patients[c.GetName()] = c, p
	w.setLocked()
	return p
}

func (w *ward) discharge(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.cameras, name)
	w.setLocked()
}

func (w *ward) setLocked() {
	w.revision++
	w.client.SetCameras(&ingestv1.SetCameras{Revision: w.revision, Cameras: slices.Collect(maps.Values(w.cameras))})
}

// wait takes what comes until something fits; false after the patience of a loaded machine.
func wait[T any](ch chan T, fits func(T) bool) bool {
	const patience = time.Minute
	deadline := time.After(patience)
	for {
		select {
		case v := <-ch:
			if fits(v) {
				return true
			}
		case <-deadline:
			return false
		}
	}
}

// outcome of one faulty camera.
type outcome struct {
	fault     string
	lost      string // what never came; empty: it recovered
	sessions  int    // left open on the camera
	recovered time.Duration
}

// try lets a camera fail, mends it and waits for whole pictures.
func (w *ward) try(name string, f rtsptest.Fault, clips map[string]*rtsptest.Clip) outcome {
	o := outcome{fault: f.Name}
	cam := f.Start(w.t, clips[f.Codec])
	defer cam.Close()
	settings := &ingestv1.Camera{Name: name, Address: cam.Address()}
	if f.UDP {
		settings.Transport = ingestv1.Transport_TRANSPORT_UDP
	}
	p := w.admit(settings)
	defer func() {
		w.discharge(name)
		if !wait(p.status, (*ingestv1.CameraStatus).GetRemoved) {
			o.lost = cmp.Or(o.lost, "removal")
		}
	}()
	if f.Late && !wait(p.frames, func(*ingestv1.FrameNotice) bool { return true }) {
		o.lost = "first frame"
		return o
	}
	cam.Fail()
	if f.Hard {
		if !wait(p.status, func(s *ingestv1.CameraStatus) bool { return s.GetError() != nil }) {
			o.lost = "fault"
			return o
		}
	} else {
		<-cam.Struck()
	}
	cam.Heal()
	healed := time.Now()
	if !wait(p.frames, func(n *ingestv1.FrameNotice) bool {
		return n.GetKeyframe() && !n.GetTainted() && n.GetReceiveTimeNs() > healed.UnixNano()
	}) {
		o.lost = "frame after the fault"
	}
	o.recovered = time.Since(healed)
	w.discharge(name)
	// TEARDOWN is waited for; a camera that gets none holds the session for a minute.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		if o.sessions = cam.OpenSessions(); o.sessions == 0 {
			break
		}
	}
	return o
}

// TestFaultyCamerasRecover is the short form of `make faults`: every fault once, all at once, deadlines fifty times
// shorter than a product's.
func TestFaultyCamerasRecover(t *testing.T) {
	kinds := rtsptest.Faults()
	n := *faults
	if n <= 0 {
		n = len(kinds)
	}
	clips := rtsptest.FaultClips(t)
	deadlines, backoff := fiftieth()
	w := newWard(t, deadlines, backoff)
	// One camera first, so that what is made once per process is not taken for a leak.
	w.try("first", kinds[0], clips)
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	outcomes, begun := make([]outcome, n), time.Now()
	var wg sync.WaitGroup
	places := make(chan struct{}, *faultsAtOnce)
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			outcomes[i] = w.try(fmt.Sprintf("camera %d", i), kinds[i%len(kinds)], clips)
		})
	}
	wg.Wait()
	recovered, sessions, slowest := 0, 0, time.Duration(0)
	for i, o := range outcomes {
		if o.lost != "" || o.sessions > 0 {
			t.Errorf("camera %d, %s: never came: %q; %d sessions left open", i, o.fault, o.lost, o.sessions)
		}
		if o.lost == "" {
			recovered++
		}
		sessions += o.sessions
		slowest = max(slowest, o.recovered)
	}
	// What ended is given a moment to be gone.
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline) && (runtime.NumGoroutine() > goroutines || descriptors(t) > files); {
		runtime.Gosched()
	}
	count := func(what string, v float64, unit, relation string, budget float64) {
		if *faults > 0 {
			say(what, v, unit, relation, budget)
		}
	}
	count("faults.tried", float64(n), "cameras", ">=", float64(*faults))
	count("faults.recovered", float64(recovered), "cameras", ">=", float64(n))
	count("faults.time", time.Since(begun).Seconds(), "s", "<=", max(900*float64(n)/1000, 60))
	count("faults.slowest_recovery", slowest.Seconds(), "s", "<=", 60)
	count("faults.leaked_sessions", float64(sessions), "sessions", "<=", 0)
	leakedRoutines, leakedFiles := runtime.NumGoroutine()-goroutines, descriptors(t)-files
	count("faults.leaked_goroutines", float64(max(leakedRoutines, 0)), "goroutines", "<=", 0)
	count("faults.leaked_descriptors", float64(max(leakedFiles, 0)), "descriptors", "<=", 0)
	if leakedRoutines > 0 || leakedFiles > 0 {
		t.Errorf("%d goroutines and %d descriptors more than before", leakedRoutines, leakedFiles)
	}
}
