package onnxruntime

import (
	"sync"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/infer/backend"
)

// lookEvery is how often a run is looked at that takes long.
const lookEvery = 100 * time.Millisecond

// watch ends runs whose every caller has gone: ONNX Runtime stops between two nodes of the graph when it is told to. The
// zero value is ready. It serves one run at a time.
type watch struct {
	options *ort.RunOptions // nil before the first run
	timer   *time.Timer

	mu         sync.Mutex     // guards what follows
	jobs       []*backend.Job // of the run that is on; nil: none is
	terminated bool
}

// run runs a session on the jobs' tensors.
func (w *watch) run(jobs []*backend.Job, s *session, in, out []ort.Value) error {
	if w.options == nil {
		o, err := ort.NewRunOptions()
		if err != nil {
			return err
		}
		w.options, w.timer = o, time.AfterFunc(time.Hour, w.look)
	}
	w.mu.Lock()
	w.jobs = jobs
	w.mu.Unlock()
	w.timer.Reset(lookEvery)
	err := s.run.RunWithOptions(in, out, w.options)
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = nil
	if w.terminated {
		w.terminated = false
		if unset := w.options.UnsetTerminate(); err == nil {
			err = unset
		}
	}
	return err
}

// look terminates the run when nobody waits for it any more.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jobs == nil {
		return
	}
	for _, j := range w.jobs {
		if !j.Null && !j.Cancelled() {
			w.timer.Reset(lookEvery)
			return
		}
	}
	w.terminated = w.options.Terminate() == nil
}

func (w *watch) close() {
	if w.options != nil {
		w.timer.Stop()
		_ = w.options.Destroy() // frees memory, cannot fail
	}
}
