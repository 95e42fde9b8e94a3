package stream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/vedette/vedette/api/frame"
	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/internal/mmap"
)

// watch is one request and what it has open.
type watch struct {
	instance *instance
	job      *backend.Job
	camera   string   // its name at the sidecar
	address  *url.URL // of a camera of our own; nil: it is in the sidecar's list
	pictures bool
	// rate, most and width are the request's parameters.
	rate, most, width float64

	link    *link
	memory  *mmap.Memory
	frames  *frame.Reader
	epoch   string
	follow  *sequence // nil: none is open
	seen    bool      // a frame came
	given   float64   // answers
	asked   uint64    // pictures
	next    int64     // when the next frame of a camera of the list is due, by capture
	later   []message // said while something else was waited for
	waiting waiting
}

// waiting counts answers that the client has not taken yet.
type waiting struct {
	mu    sync.Mutex
	count int
	fewer chan struct{} // one slot
}

// maxWaiting is how many answers may wait for the client before frames are passed over.
const maxWaiting = 8

// poll is how often a request is asked whether it was cancelled.
const poll = 50 * time.Millisecond

var errEnd = errors.New("the stream has ended")

// run answers until the camera, the client or the server is done with it.
func (w *watch) run(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(w.instance.life, func() { //nolint:contextcheck // the model's life beside the request's
		cancel(infer.Errorf(infer.Unavailable, "model '%s' is going away: ask again", w.instance.model.Name))
	})
	var polling sync.WaitGroup
	polling.Go(func() {
		t := time.NewTicker(poll)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			if w.job.Cancelled() {
				e := infer.Errorf(infer.Cancelled, "request was cancelled")
				e.Reason = infer.ReasonCanceled
				cancel(e)
			}
		}
	})
	err := w.work(ctx)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.Canceled):
		err = infer.Errorf(infer.Unavailable, "the server is stopping")
	case cause != nil:
		err = cause
	}
	stop()
	cancel(nil)
	polling.Wait() // nobody looks at the job after its answer
	if err == nil || errors.Is(err, errEnd) {
		w.job.Finish()
		return
	}
	w.job.Fail(err)
}

func (w *watch) work(ctx context.Context) error {
	l, err := w.instance.backend.connect(ctx)
	if err != nil {
		return err
	}
	w.link = l
	w.waiting.fewer = make(chan struct{}, 1)
	defer func() {
		w.close(ctx)
		l.drain()
	}()
	w.begin()
	for m := range l.messages {
		w.later = append(w.later, m)
		for len(w.later) > 0 {
			m, w.later = w.later[0], w.later[1:]
			if err := w.handle(ctx, m); err != nil {
				return err
			}
		}
	}
	return w.ended()
}

func (w *watch) ended() error {
	return infer.Errorf(infer.Unavailable, "the connection to the ingest sidecar ended: %v", w.link.err)
}

// begin asks for the camera and its frames.
func (w *watch) begin() {
	leases := uint32(2)
	if w.address != nil {
		w.camera = "stream-" + rand.Text()
		camera := &ingestv1.Camera{Name: w.camera, AnalysisRate: w.rate, PreRollBytes: -1}
		u := *w.address
		camera.Username = u.User.Username()
		camera.Password, _ = u.User.Password()
		u.User = nil
		camera.Address = u.String()
		if u.Scheme == "file" {
			camera.File = &ingestv1.FilePlayback{FullSpeed: true}
			leases = 0 // a file waits for its readers
		}
		w.link.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_OpenCamera{OpenCamera: &ingestv1.OpenCamera{Camera: camera}}})
	} else {
		// The answer tells whether there is such a camera; watching one that may come later is no fault.
		w.link.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_GetPicture{GetPicture: &ingestv1.GetPicture{
			Source: &ingestv1.GetPicture_Camera{Camera: w.camera}, MaxWidth: 16,
		}}})
	}
	w.link.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_WatchFrames{WatchFrames: &ingestv1.WatchFrames{Camera: w.camera, MaxLeases: leases}}})
}

// handle deals with one message. Its error is the end; errEnd is a good one.
func (w *watch) handle(ctx context.Context, m message) error {
	defer m.close()
	switch x := m.GetMessage().(type) {
	case *ingestv1.FromIngest_CameraStatus:
		if x.CameraStatus.GetCamera() == w.camera {
			return w.state(x.CameraStatus)
		}
	case *ingestv1.FromIngest_Picture:
		if e := x.Picture.GetError(); e.GetReason() == ingestv1.ErrorReason_ERROR_REASON_NOT_FOUND {
			return infer.Errorf(infer.NotFound, "no camera '%s' that model '%s' may watch", w.camera, w.instance.model.Name)
		}
	case *ingestv1.FromIngest_SlotsOpened:
		w.endSequence(ctx)
		w.unmap()
		if m.file == nil {
			return infer.Errorf(infer.Internal, "the ingest sidecar announced frames without their memory")
		}
		memory, err := mmap.Open(m.file)
		if err != nil {
			return infer.Errorf(infer.Internal, "frames of camera '%s': %v", w.camera, err)
		}
		w.memory, m.file = memory, nil // which keeps the descriptor
		if w.frames, err = frame.NewReader(memory); err != nil {
			return infer.Errorf(infer.Internal, "frames of camera '%s': %v", w.camera, err)
		}
		w.epoch = x.SlotsOpened.GetStreamEpoch()
	case *ingestv1.FromIngest_FrameNotice:
		return w.notice(ctx, x.FrameNotice)
	}
	return nil
}

// state ends the request when the camera will give nothing more, or gives nothing to begin with.
func (w *watch) state(s *ingestv1.CameraStatus) error {
	why := s.GetError()
	switch s.GetState() {
	case ingestv1.CameraState_CAMERA_STATE_FINISHED:
		return errEnd
	case ingestv1.CameraState_CAMERA_STATE_QUARANTINED:
	case ingestv1.CameraState_CAMERA_STATE_BACKOFF:
		if w.seen || w.address == nil {
			return nil // it comes back
		}
	default:
		if !s.GetRemoved() {
			return nil
		}
		if why == nil {
			return infer.Errorf(infer.Unavailable, "camera '%s' was removed", w.camera)
		}
	}
	code := infer.Unavailable
	switch why.GetReason() {
	case ingestv1.ErrorReason_ERROR_REASON_NOT_FOUND:
		code = infer.NotFound
	case ingestv1.ErrorReason_ERROR_REASON_INVALID_CONFIG, ingestv1.ErrorReason_ERROR_REASON_AUTH_FAILED, ingestv1.ErrorReason_ERROR_REASON_CODEC_UNSUPPORTED:
		code = infer.InvalidArgument
	default:
	}
	name := w.camera
	if w.address != nil {
		name = cmp.Or(w.address.Host, w.address.Path)
	}
	return infer.Errorf(code, "camera '%s': %s: %s", name, why.GetReason().String()[len("ERROR_REASON_"):], why.GetMessage())
}

// notice answers one frame, and ends its lease.
func (w *watch) notice(ctx context.Context, n *ingestv1.FrameNotice) error {
	defer w.link.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_ReleaseLease{ReleaseLease: &ingestv1.ReleaseLease{LeaseIds: []uint64{n.GetLeaseId()}}}})
	if n.GetStreamEpoch() != w.epoch || w.frames == nil {
		return nil
	}
	w.seen = true
	if !w.due(n.GetCaptureTimeNs()) || !w.room(ctx) {
		return nil
	}
	err := w.analyse(ctx, n)
	if errors.Is(err, frame.ErrOverwritten) {
		return nil // too late for this one: the next is newer
	}
	if err == nil && w.most > 0 && w.given >= w.most {
		return errEnd
	}
	return err
}

// due samples a camera of the list, which has a rate of its own; one of ours is sampled where it is decoded.
func (w *watch) due(captured int64) bool {
	if w.rate == 0 || w.address != nil {
		return true
	}
	if captured < w.next {
		return false
	}
	interval := int64(float64(time.Second) / w.rate)
	w.next = max(w.next, captured-interval) + interval
	return true
}

// room waits until the client has taken enough of what it was given.
func (w *watch) room(ctx context.Context) bool {
	for {
		w.waiting.mu.Lock()
		few := w.waiting.count < maxWaiting
		w.waiting.mu.Unlock()
		if few {
			return true
		}
		select {
		case <-w.waiting.fewer:
		case <-ctx.Done():
			return false
		}
	}
}

func (w *watch) taken() {
	w.waiting.mu.Lock()
	w.waiting.count--
	w.waiting.mu.Unlock()
	select {
	case w.waiting.fewer <- struct{}{}:
	default:
	}
}

// close ends the sequence and lets go of the frames.
func (w *watch) close(ctx context.Context) {
	w.endSequence(ctx)
	w.unmap()
	for _, m := range w.later {
		m.close()
	}
}

func (w *watch) unmap() {
	if w.memory != nil {
		_ = w.memory.Close()
		w.memory, w.frames, w.epoch = nil, nil, ""
	}
}
