package sidecar

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/crash"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/wire"
	"github.com/vedette/vedette/internal/child"
)

// Worker says how to start the process of an isolated camera: a sidecar that serves socket, gives out leases from
// firstLease on and writes its crashes beside the socket.
type Worker func(socket string, firstLease uint64) (program string, args []string)

// leasesPerWorker tells by a lease whose it is.
const leasesPerWorker = 1 << 40

// crashesBefore is how often a stream may bring the shared process down before its camera is given its own.
const crashesBefore = 2

// worker is the process of one isolated camera: another sidecar with a list of one.
type worker struct {
	s      *Sidecar
	name   string
	number uint64 // of its leases
	why    string // nobody asked for it; empty: somebody did
	socket string

	replaced ingestv1.Applied // as the entry's

	process *child.Child
	client  *ingestclient.Client
	over    chan struct{} // closed when it is not started again

	mu     sync.Mutex // guards everything below
	want   ingest.Camera
	status *ingestv1.CameraStatus
	counts *ingestv1.Counters
}

func newWorker(s *Sidecar, number uint64, why string, want *ingestv1.Camera, revision uint64, replaced ingestv1.Applied) *worker {
	w := &worker{s: s, name: want.GetName(), number: number, why: why, socket: s.besides(number), replaced: replaced, over: make(chan struct{})}
	w.status = &ingestv1.CameraStatus{Camera: w.name, State: ingestv1.CameraState_CAMERA_STATE_CONNECTING, Revision: revision}
	program, args := s.cfg.Worker(w.socket, number*leasesPerWorker)
	w.process = child.New(child.Config{
		Name: "vedette-ingest of camera " + w.name, Path: program, Args: args, Output: s.cfg.WorkerOutput, Logger: s.cfg.Logger,
		// The service manager hears of the shared process alone.
		Env: []string{"NOTIFY_SOCKET=", "WATCHDOG_USEC="},
	})
	w.client = ingestclient.New(ingestclient.Config{Socket: w.socket, Program: s.cfg.Program, Handler: ingestclient.Handler{
		State: w.state, Camera: w.camera, Counters: w.counters, Frame: ingestclient.Frame.Release,
		SlotsOpened: func(_ *ingestv1.SlotsOpened, f *os.File) { _ = f.Close() },
	}})
	w.update(want, revision)
	return w
}

// run keeps the process until ctx ends.
func (w *worker) run(ctx context.Context) {
	defer close(w.over)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.process.Run(ctx); err != nil {
			w.s.cfg.Logger.Error("an isolated camera has no process", slog.String("camera", w.name), slog.Any("err", err))
			w.tell(&ingestv1.CameraStatus{State: ingestv1.CameraState_CAMERA_STATE_QUARANTINED, Error: wire.Fault(&ingest.Error{Reason: ingest.ReasonInternal, Err: err})})
		}
	})
	wg.Go(func() { _ = w.client.Run(ctx) })
	wg.Wait()
	_ = os.Remove(w.socket)
	_ = os.Remove(crashFile(w.socket))
}

// update passes new settings on.
func (w *worker) update(want *ingestv1.Camera, revision uint64) {
	w.mu.Lock()
	w.want = wire.Camera(want)
	w.mu.Unlock()
	own := proto.CloneOf(want)
	own.Isolation = ingestv1.Isolation_ISOLATION_UNSPECIFIED
	w.client.SetCameras(&ingestv1.SetCameras{Revision: revision, Cameras: []*ingestv1.Camera{own}})
}

// reads reports whether the process reads what a camera has.
func (w *worker) reads(c ingest.Camera) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return reads(w.want, c)
}

// state follows the connection to the process: without one, the camera is down.
func (w *worker) state(s ingestclient.State, _ *ingestv1.Hello, _ error) {
	if s != ingestclient.Disconnected {
		return
	}
	why := "its process has ended"
	if r, err := crash.Read(crashFile(w.socket)); err == nil && r != nil {
		why = "its stream crashed its own process: " + r.Text
	}
	w.tell(&ingestv1.CameraStatus{
		State: ingestv1.CameraState_CAMERA_STATE_BACKOFF,
		Error: wire.Fault(&ingest.Error{Reason: ingest.ReasonInternal, Err: errors.New(why)}),
	})
}

func (w *worker) camera(m *ingestv1.CameraStatus) {
	if m.GetCamera() == w.name && !m.GetRemoved() {
		w.tell(proto.CloneOf(m))
	}
}

// tell keeps a status and passes it on.
func (w *worker) tell(m *ingestv1.CameraStatus) {
	m.Camera, m.Isolated, m.IsolationReason, m.Applied = w.name, true, w.why, cmp.Or(m.GetApplied(), w.replaced)
	w.mu.Lock()
	if m.GetRevision() == 0 {
		m.Revision, m.SinceTimeNs = w.status.GetRevision(), ingest.Now().Wall.UnixNano()
	}
	w.status = m
	w.mu.Unlock()
	if e := w.s.entry(w.name); e != nil && e.worker == w {
		w.s.broadcast(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_CameraStatus{CameraStatus: m}})
	}
}

func (w *worker) counters(m *ingestv1.Counters) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts = m
}

// now returns the newest status and counters (nil: none have come).
func (w *worker) now() (*ingestv1.CameraStatus, *ingestv1.Counters) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status, w.counts
}
