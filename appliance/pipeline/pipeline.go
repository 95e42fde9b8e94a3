// Package pipeline takes frames from the ingest sidecar through the inference sidecar into the store. It is the only
// place where frames, tensors, tracks and history meet; of the frames it sees notices, never pixels.
//
// Every camera has a lane of its own, so that a slow, dead or bursty one moves no other; whose frame goes to inference
// next, package collect decides. Frames of live cameras are dropped, oldest first and counted by cause, when inference
// cannot follow, and package ladder decides what is done when that lasts. Sequences are durable rows, opened before the
// first frame and closed after the last.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/appliance/pipeline/ladder"
	"github.com/vedette/vedette/store"
)

// Config is how a Pipeline is made. Store, the sockets and Observer are required.
type Config struct {
	Store *store.Store
	// IngestSocket is the ingest sidecar's socket.
	IngestSocket string
	// InferSocket and InferDoor are the inference sidecar's private sockets: requests, and memory by descriptor.
	InferSocket, InferDoor string
	// Models is the model repository, where label files are; empty: classes without names in their model's
	// configuration are called class-0, class-1, ...
	Models string
	// Observer is told what becomes of the cameras.
	Observer Observer
	// Rules turn what is seen into events, which are kept with it; nil: there are none.
	Rules Rules
	// Retry is the pause before a sidecar is looked for again; 0: 100 ms.
	Retry time.Duration
	// AnswerTimeout is how long inference may take for a frame; 0: 5 s.
	AnswerTimeout time.Duration
	// Silence is how long a sidecar may say nothing before it is taken for stopped; 0: 3 s. Ingest says something every
	// second, inference is asked three times as often as this.
	Silence time.Duration
	// RestartInference starts the inference sidecar anew, as the last step when it does not answer; nil: it is asked to
	// end, and whoever runs it starts it again.
	RestartInference func(reason string)
	// RestartIngest starts the ingest sidecar anew when it stays silent for four times as long as that; nil: whoever runs it
	// watches it.
	RestartIngest func(reason string)
	// Balance is how often the load is looked at; 0: 1 s.
	Balance time.Duration
	// Ladder says how the box acts when there is more to analyse than it can.
	Ladder ladder.Config
	// Frames is told of every committed frame and must not block; nil: nobody is.
	Frames func(Timed)
	// Report is how often the observer is told what a lane does; 0: 1 s.
	Report time.Duration
	// Metrics, nil: not registered.
	Metrics prometheus.Registerer
	// Logger, nil: discarded.
	Logger *slog.Logger
	// Now, nil: time.Now.
	Now func() time.Time
}

// Observer is told what becomes of the cameras. Its methods are called from many goroutines and must not block.
type Observer interface {
	// Stream passes on what the ingest sidecar says of a camera, with its newest counters (nil: none yet); the observer
	// must not change them.
	Stream(camera string, s *ingestv1.CameraStatus, n *ingestv1.Counters)
	// Online says that the ingest sidecar is connected and will report streams.
	Online()
	// Upgrading says that the ingest sidecar answers and speaks another contract.
	Upgrading()
	// Offline says that the ingest sidecar is gone, and with it what was known of streams.
	Offline()
	// Silent says that the ingest sidecar is connected and does not answer: what is known of streams is old. Online or
	// Offline ends it.
	Silent()
	// Analysis says what a camera's lane does. The observer must not change a.Drops.
	Analysis(camera string, a Analysis)
}

// Rules turn what is seen into events. Frames of one camera come in order; those of several come at once.
type Rules interface {
	// Seen returns the events a frame gives rise to; ended are the tracks that ended with it. It keeps neither.
	Seen(f *store.Frame, ended []store.Track) []store.Event
	// Closed returns the events the end of a camera's sequence gives rise to.
	Closed(camera string, sequence int64, at time.Time) []store.Event
}

// Analysis is what a camera's lane does.
type Analysis struct {
	// Sequence is the open one; 0: none.
	Sequence int64
	// Frames analysed, and frames dropped by cause, since the appliance started.
	Frames int64
	Drops  map[string]int64
	// Rate of analysed frames a second, over the last seconds.
	Rate float64
	// LastFrame is the capture time of the newest analysed frame.
	LastFrame time.Time
	// Limited is the rate the camera is held to while the box is overloaded; 0: what it asks for.
	Limited float64
	// Reason and Message say why analysis stands still; empty when it runs.
	Reason, Message string
}

// Camera is what is wanted of one camera.
type Camera struct {
	// Ingest is what the ingest sidecar is told; its name is the camera's id.
	Ingest *ingestv1.Camera
	// UID tells a camera from an earlier one of the same name.
	UID string
	// Since is when it was registered: of equals, the camera registered last is given up first.
	Since time.Time
	Analysing
}

// Analysing is how a camera's frames are analysed.
type Analysing struct {
	// Pipeline is the ensemble frames go to; empty: "pipeline".
	Pipeline string
	Paused   bool
	// EveryFrame: none is dropped for being late, and up to four are in flight.
	EveryFrame bool
	// Priority, when negative or positive, is below or above that of other cameras.
	Priority int
	// Staleness is how old a live frame may be when its analysis begins; 0: 1 s.
	Staleness time.Duration
	// NoPictures: none of tracks and events are kept.
	NoPictures bool
	// Clip is how much video is kept before and after each event of a rule; 0: none.
	Clip time.Duration
}

// DefaultPipeline is the ensemble of cameras that name none.
const DefaultPipeline = "pipeline"

func (a Analysing) withDefaults() Analysing {
	if a.Pipeline == "" {
		a.Pipeline = DefaultPipeline
	}
	if a.Staleness <= 0 {
		a.Staleness = time.Second
	}
	return a
}

// errCameraRemoved is why a lane ends before the pipeline does.
var errCameraRemoved = errors.New("the camera was removed or disabled")

// Pipeline runs the lanes of all cameras.
type Pipeline struct {
	cfg     Config
	metrics *metrics
	timings *timings
	ingest  *ingestLink
	running sync.WaitGroup // the lanes

	mu        sync.Mutex // guards what follows
	wanted    []Camera
	wantedNew chan struct{} // one token: wanted has changed
	lanes     map[string]*running
	session   *session // nil: inference is not there
	changed   chan struct{}
	inferErr  error                         // why it is not
	inferred  time.Time                     // when the session last answered
	counters  map[string]*ingestv1.Counters // by camera
	turns     map[string]*turns             // by pipeline
	load      Load
	recovery  recovery
	streams   map[string]*ingestv1.CameraStatus
}

// running is a lane and what it takes to stop it.
type running struct {
	lane   *lane
	uid    string
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// New returns a pipeline that Run starts.
func New(cfg Config) *Pipeline {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Retry <= 0 {
		cfg.Retry = 100 * time.Millisecond
	}
	if cfg.Report <= 0 {
		cfg.Report = time.Second
	}
	if cfg.AnswerTimeout <= 0 {
		cfg.AnswerTimeout = 5 * time.Second
	}
	if cfg.Silence <= 0 {
		cfg.Silence = 3 * time.Second
	}
	if cfg.Balance <= 0 {
		cfg.Balance = time.Second
	}
	p := &Pipeline{
		cfg: cfg, metrics: newMetrics(cfg.Metrics), timings: newTimings(), turns: map[string]*turns{}, wantedNew: make(chan struct{}, 1), lanes: map[string]*running{},
		changed: make(chan struct{}), inferErr: errors.New("the inference sidecar has not answered yet"), counters: map[string]*ingestv1.Counters{}, streams: map[string]*ingestv1.CameraStatus{},
	}
	p.ingest = newIngestLink(p)
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister((*ingestMetrics)(p))
	}
	return p
}

// SetCameras replaces the list of wanted cameras. Run brings it about.
func (p *Pipeline) SetCameras(cameras []Camera) {
	p.mu.Lock()
	p.wanted = cameras
	p.mu.Unlock()
	select {
	case p.wantedNew <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, then closes every sequence.
func (p *Pipeline) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	// The links outlive the lanes, which close their sequences through them.
	linkCtx, stopLinks := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLinks()
	inference := &inferenceLink{
		socket: p.cfg.InferSocket, doorSocket: p.cfg.InferDoor, modelDir: p.cfg.Models, retry: p.cfg.Retry, logger: p.cfg.Logger,
		opened: func(s *session) { p.setSession(s, nil) }, closed: func(err error) { p.setSession(nil, err) },
		alive: p.alive, ask: p.cfg.Silence / 3, silent: p.restartInference, patience: p.cfg.AnswerTimeout,
	}
	g.Go(func() error { return inference.serve(linkCtx) })
	g.Go(func() error { return p.ingest.client.Run(linkCtx) })
	g.Go(func() error { return p.ingest.listen(linkCtx) })
	g.Go(func() error { return p.measure(ctx) })
	g.Go(func() error { return p.balance(ctx) })
	g.Go(func() error {
		defer stopLinks()
		p.keepLanes(ctx)
		return nil
	})
	return g.Wait()
}

// keepLanes brings the lanes in line with what is wanted, and ends them all when ctx does.
func (p *Pipeline) keepLanes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			p.running.Wait()
			return
		case <-p.wantedNew:
			p.reconcile(ctx)
			p.ingest.cameras()
		}
	}
}

func (p *Pipeline) reconcile(ctx context.Context) {
	p.mu.Lock()
	wanted := map[string]Camera{}
	for _, c := range p.wanted {
		if !c.Ingest.GetDisabled() {
			wanted[c.Ingest.GetName()] = c
		}
	}
	var ending []*running
	for id, r := range p.lanes {
		if c, ok := wanted[id]; !ok || c.UID != r.uid {
			r.cancel(errCameraRemoved)
			ending = append(ending, r)
		}
	}
	p.mu.Unlock()
	for _, r := range ending {
		<-r.done
	}
	var opened []*lane
	defer func() {
		for _, l := range opened {
			p.ingest.slots.offer(l, wanted[l.camera].Ingest.GetAddress())
		}
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range ending {
		delete(p.lanes, r.lane.camera)
		delete(p.counters, r.lane.camera)
		delete(p.streams, r.lane.camera)
		p.metrics.forget(r.lane.camera)
		p.timings.forget(r.lane.camera)
	}
	for id, c := range wanted {
		settings := c.withDefaults()
		if r := p.lanes[id]; r != nil {
			r.lane.put(settingsChanged{settings: settings})
			continue
		}
		laneCtx, cancel := context.WithCancelCause(ctx)
		r := &running{lane: newLane(p, id, settings, limited{p.load.Rate, slices.Contains(p.load.Shed, id)}), uid: c.UID, cancel: cancel, done: make(chan struct{})}
		p.lanes[id] = r
		opened = append(opened, r.lane)
		p.running.Go(func() {
			defer close(r.done)
			r.lane.run(laneCtx)
		})
	}
}

// address is where a camera is to be found by what is wanted now.
func (p *Pipeline) address(camera string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.wanted {
		if p.wanted[i].Ingest.GetName() == camera {
			return p.wanted[i].Ingest.GetAddress()
		}
	}
	return ""
}

func (p *Pipeline) lane(camera string) *lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.lanes[camera]; r != nil {
		return r.lane
	}
	return nil
}

func (p *Pipeline) setSession(s *session, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had := p.session != nil
	p.session, p.inferErr, p.inferred = s, err, time.Now()
	if s != nil || had {
		close(p.changed)
		p.changed = make(chan struct{})
	}
	if had && s == nil {
		p.cfg.Logger.Warn("inference lost", slog.Any("err", err))
	}
}

// currentSession returns the session (nil: none) and a channel that is closed when there is another.
func (p *Pipeline) currentSession() (*session, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session, p.changed
}

// inferenceState is why analysis stands still when there is no session.
func (p *Pipeline) inferenceState() (reason, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inferErr == nil {
		return "", ""
	}
	return "INFERENCE_UNAVAILABLE", p.inferErr.Error()
}

// Inference returns nil when the inference sidecar answers, and otherwise why it does not.
func (p *Pipeline) Inference() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inferErr != nil {
		return p.inferErr
	}
	return p.silent(time.Since(p.inferred))
}

// alive notes that the inference sidecar answers.
func (p *Pipeline) alive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inferred = time.Now()
}

// Ingest returns nil when the ingest sidecar answers, and otherwise why it does not.
func (p *Pipeline) Ingest() error { return p.ingest.fault() }

// dropsOf adds what ingest dropped of a camera to what its lane did.
func (p *Pipeline) dropsOf(camera string, lane map[string]int64) map[string]int64 {
	all := maps.Clone(lane)
	p.mu.Lock()
	c := p.counters[camera]
	p.mu.Unlock()
	for cause, n := range map[string]uint64{
		"no_slot": c.GetDroppedNoSlot(), "no_lease": c.GetDroppedNoLease(), "decode_late": c.GetDroppedDecodeLate(), "no_keyframe": c.GetDroppedNoKeyframe(),
	} {
		if n > 0 {
			all[cause] += int64(n)
		}
	}
	return all
}

// measure observes how long frames take from their arrival to their commit.
func (p *Pipeline) measure(ctx context.Context) error {
	sub := p.cfg.Store.Subscribe(0)
	for ctx.Err() == nil {
		c, err := sub.Next(ctx)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("follow the store's commits: %w", err)
		}
		for i := range c.Frames {
			f := &c.Frames[i]
			p.metrics.committed.WithLabelValues(f.Camera).Observe(c.Time.Sub(f.ReceiveTime).Seconds())
			if t, ok := p.timings.committed(f.Sequence, f.Number, c.Time); ok {
				p.metrics.stages(&t)
				if p.cfg.Frames != nil {
					p.cfg.Frames(t)
				}
			}
		}
	}
	return nil
}

func fastReconnect() grpc.ConnectParams {
	return grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: time.Second}
}
