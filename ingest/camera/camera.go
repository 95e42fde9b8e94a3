// Package camera keeps one camera alive: it connects, watches every step and every stall, waits
// between attempts, decodes, and announces frames. One camera's failure is its own.
package camera

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/decode"
	"github.com/vedette/vedette/ingest/framebus"
	"github.com/vedette/vedette/internal/av"
)

// State is a camera's place in its life.
type State int

// The states.
const (
	Connecting State = iota + 1
	Streaming
	Stalled
	BackingOff
	Quarantined
	Disabled
	Finished
)

// String names the state for logs.
func (s State) String() string {
	return [...]string{"unknown", "connecting", "streaming", "stalled", "backoff", "quarantined", "disabled", "finished"}[max(0, min(int(s), 7))]
}

// Status is what there is to say about a camera now.
type Status struct {
	State State
	Stage ingest.Stage
	// Err is why, in bad states.
	Err         *ingest.Error
	Since       time.Time
	NextAttempt time.Time
	// Attempts since the last frame.
	Attempts int
	Epoch    *ingest.Epoch
	Stream   ingest.Stream
	Applied  Applied
}

// Applied is what a change of settings cost.
type Applied int

// The costs.
const (
	Hot Applied = iota + 1
	Resequenced
	Reconnected
)

// Config of a Camera.
type Config struct {
	Camera    ingest.Camera
	Deadlines Deadlines
	Backoff   Backoff
	// Source makes the camera's source; required.
	Source func(ingest.Camera, Deadlines) ingest.Source
	// Bus takes the frames; required. The camera does not close it.
	Bus *framebus.Bus
	// Mint makes stream epochs; required.
	Mint *Mint
	// OnStatus is called at every change, by one goroutine at a time; it must not block.
	OnStatus func(Status)
	// Coded: the access units are all that is wanted; nothing is decoded.
	Coded bool
	// Dials bounds the connections being set up on this box; nil: no bound.
	Dials chan struct{}
	// Decodes bounds the decoders working at the same time; nil: no bound.
	Decodes *decode.Budget
	// FileThreads decode pictures of full-speed files at once; 0: 1.
	FileThreads int
	// Engine opens decoders; nil: libavcodec's.
	Engine func(name string, cfg av.DecoderConfig) (decode.Engine, error)
	// QueueBytes bounds what waits to be decoded; 0: 8 MiB.
	QueueBytes int
	Logger     *slog.Logger // nil: discard
}

// Camera is one camera. Run it once.
type Camera struct {
	cfg     Config
	updates chan ingest.Camera // newest only
	units   units

	mu      sync.Mutex // guards everything below
	status  Status
	decoder *decode.Decoder // of the running session
	session *session        // the running one
	current ingest.Camera   // settings in force
	adopted uint64          // times they have changed
	totals  Counts          // of ended sessions, and what the sessions count here
	frame   time.Duration   // mono of the newest frame; 0: none yet
	meter   meter           // of the running session
	gate    GateState
	chosen  [2]string // the decoder in use, and why not the first
}

// Counts are totals since the camera was added.
type Counts struct {
	Packets, Bytes, PacketsLost, PacketsBad uint64
	AccessUnits, Keyframes                  uint64
	Decode                                  decode.Counts
	Reconnects, SlowWatcher                 uint64
	// Abandoned decoders did not return from a picture.
	Abandoned uint64
	// Gated frames were held back by the motion gate.
	Gated uint64
	// FrameAge is how long ago the newest frame was received; negative: none yet.
	FrameAge time.Duration
}

// New returns a camera that does nothing until Run.
func New(cfg Config) *Camera {
	cfg.Deadlines, cfg.Backoff = cfg.Deadlines.withDefaults(), cfg.Backoff.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.OnStatus == nil {
		cfg.OnStatus = func(Status) {}
	}
	cfg.Logger = cfg.Logger.With(slog.String("camera", cfg.Camera.Name))
	c := &Camera{cfg: cfg, updates: make(chan ingest.Camera, 1), current: cfg.Camera}
	c.units.setLimit(cfg.Camera.PreRollBytes)
	return c
}

// Update changes the settings; the newest wins. What it cost is in the Status that follows.
func (c *Camera) Update(want ingest.Camera) {
	for {
		select {
		case c.updates <- want:
			return
		default:
		}
		select {
		case <-c.updates:
		default:
		}
	}
}

// Run keeps the camera until ctx ends and returns nil.
func (c *Camera) Run(ctx context.Context) error {
	attempts, epoch := 0, ingest.EpochFirst
	defer c.cfg.Bus.CloseSlots()
	for ctx.Err() == nil {
		if c.settings().Disabled {
			c.cfg.Bus.CloseSlots()
			c.set(Status{State: Disabled})
			if c.idle(ctx, nil) {
				attempts, epoch = 0, ingest.EpochSettingsChanged
			}
			continue
		}
		attempts++
		end := c.attempt(ctx, attempts, epoch)
		epoch = ingest.EpochReconnected
		switch {
		case ctx.Err() != nil:
			return nil
		case end.restart:
			attempts, epoch = 0, ingest.EpochSettingsChanged
			c.settle(ctx)
			continue
		case end.finished && c.settings().Loop:
			attempts, epoch = 0, ingest.EpochRewound
			continue
		case end.finished:
			c.set(Status{State: Finished})
			if c.idle(ctx, nil) {
				attempts, epoch = 0, ingest.EpochSettingsChanged
			}
			continue
		}
		if end.streamed {
			attempts = 1
		}
		if c.wait(ctx, attempts, end.err) {
			attempts, epoch = 0, ingest.EpochSettingsChanged
		}
	}
	return nil
}

// settle gives the camera a moment to notice that the session before has ended: many have room for one.
func (c *Camera) settle(ctx context.Context) {
	t := time.NewTimer(min(c.cfg.Backoff.Base, 100*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// wait stays in BACKOFF or QUARANTINED; true when settings changed meanwhile.
func (c *Camera) wait(ctx context.Context, attempts int, fault *ingest.Error) bool {
	pause, quarantine := c.cfg.Backoff.next(attempts, fault.Reason, uniform)
	s := Status{State: BackingOff, Stage: fault.Stage, Err: fault, Attempts: attempts, NextAttempt: time.Now().Add(pause)}
	if quarantine {
		s.State = Quarantined
	}
	c.set(s)
	t := time.NewTimer(pause)
	defer t.Stop()
	return c.idle(ctx, t.C)
}

// idle waits for settings that call for an attempt (true), the timer or the end.
func (c *Camera) idle(ctx context.Context, timer <-chan time.Time) bool {
	for {
		select {
		case want := <-c.updates:
			before := c.settings()
			c.adopt(want)
			if cost(before, want) != Reconnected && before.Asked == want.Asked {
				c.applied(cost(before, want))
				continue // the wait goes on
			}
			c.applied(Reconnected)
			return true
		case <-timer:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func (c *Camera) settings() ingest.Camera {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// adopt makes settings current, and those that can change in flight take effect.
func (c *Camera) adopt(want ingest.Camera) {
	c.units.setLimit(want.PreRollBytes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = want
	c.adopted++
	if c.decoder != nil {
		c.decoder.SetRate(want.AnalysisRate)
	}
}

// applied tells what a change has cost; 0: what the one before it did.
func (c *Camera) applied(a Applied) {
	c.mu.Lock()
	s := c.status
	c.mu.Unlock()
	s.Applied = a
	c.set(s)
}

// set publishes a status.
func (c *Camera) set(s Status) {
	c.mu.Lock()
	changed := c.status.State != s.State
	if changed || s.Since.IsZero() {
		s.Since = time.Now()
		if !changed {
			s.Since = c.status.Since
		}
	}
	if s.Applied == 0 {
		s.Applied = c.status.Applied
	}
	if s.Stream == (ingest.Stream{}) {
		s.Stream = c.status.Stream
	}
	c.status = s
	c.mu.Unlock()
	if changed {
		log := c.cfg.Logger.Info
		attrs := []any{slog.String("state", s.State.String())}
		if s.Err != nil {
			log = c.cfg.Logger.Warn
			attrs = append(attrs, slog.String("stage", s.Stage.String()), slog.Any("err", s.Err))
		}
		if !s.NextAttempt.IsZero() {
			attrs = append(attrs, slog.Duration("wait", time.Until(s.NextAttempt).Round(time.Millisecond)))
		}
		log("camera state changed", attrs...)
	}
	c.cfg.OnStatus(s)
}

// Status returns the newest status.
func (c *Camera) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Measured returns what the stream turned out to be, as far as the running session has seen.
func (c *Camera) Measured() Measured {
	c.mu.Lock()
	s, m := c.session, c.meter.measured(ingest.Now().Mono)
	m.Gate, m.Decoder, m.DecoderFallback = c.gate, c.chosen[0], c.chosen[1]
	c.mu.Unlock()
	if s != nil && !s.file {
		s.mu.Lock()
		m.SenderReports, m.ClockOffset = s.clock.Reports()
		s.mu.Unlock()
	}
	return m
}

// Reanchor sets capture times anew by the box's clock, in a new stream epoch: the clock was set.
func (c *Camera) Reanchor() {
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	if s != nil && !s.file {
		s.reanchor()
	}
}

// WatchUnits begins handing access units to w, from the pre-roll ring if it reaches back.
func (c *Camera) WatchUnits(w UnitWatcher, preRoll time.Duration) { c.units.watch(w, preRoll) }

// UnwatchUnits stops it.
func (c *Camera) UnwatchUnits(w UnitWatcher) { c.units.unwatch(w) }

// UnitsFrom returns where the pre-roll ring holds the last keyframe at or before a capture time, or the oldest it
// has; false when the camera keeps no access units.
func (c *Camera) UnitsFrom(at time.Time) (place uint64, kept bool) { return c.units.from(at) }

// NextUnit returns the unit at a place of the ring and the place behind it; a unit behind units that were lost says so.
// A nil unit says that it has not come yet: more is closed when it has.
func (c *Camera) NextUnit(place uint64) (unit *Coded, behind uint64, more <-chan struct{}) {
	return c.units.next(place)
}

// LatestFrame tells which picture Latest would copy, and by which settings, counted from 1: the same picture looks
// otherwise when the masks have changed.
func (c *Camera) LatestFrame() (f ingest.Frame, settings uint64, err error) {
	c.mu.Lock()
	d, settings := c.decoder, c.adopted+1
	c.mu.Unlock()
	if d == nil {
		return ingest.Frame{}, 0, decode.ErrNoPicture
	}
	f, err = d.LatestFrame()
	return f, settings, err
}

// Settings counts the settings there have been, from 1.
func (c *Camera) Settings() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.adopted + 1
}

// Latest copies the newest decoded picture, masked, as tight I420.
func (c *Camera) Latest() (ingest.Frame, []byte, error) {
	c.mu.Lock()
	d, masks := c.decoder, c.current.Masks
	c.mu.Unlock()
	if d == nil {
		return ingest.Frame{}, nil, decode.ErrNoPicture
	}
	f, pixels, err := d.Latest()
	if err == nil && len(masks) > 0 {
		framebus.NewBlanker(masks, f.Size).Blank(pixels)
	}
	return f, pixels, err
}

// Counts returns the totals so far.
func (c *Camera) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.totals
	if c.decoder != nil {
		n.Decode = n.Decode.Add(c.decoder.Counts())
	}
	n.SlowWatcher = c.units.droppedCount()
	n.FrameAge = -1
	if c.frame > 0 {
		n.FrameAge = ingest.Now().Mono - c.frame
	}
	return n
}

// cost says what changing the settings takes; 0: they are the same.
func cost(before, want ingest.Camera) Applied {
	type connection struct {
		address, user, password, ca, pin string
		transport                        ingest.Transport
		fullSpeed, loop                  bool
		start                            time.Time
		disabled                         bool
		slots                            int
		decoders                         string
	}
	of := func(c ingest.Camera) connection {
		return connection{c.Address, c.Username, c.Password, c.CA, c.CertificateSHA256, c.Transport, c.FullSpeed, c.Loop, c.StartTime, c.Disabled, c.Slots, strings.Join(c.Decoders, ",")}
	}
	switch {
	case reflect.DeepEqual(before, want):
		return 0
	case of(before) != of(want):
		return Reconnected
	case !equalMasks(before.Masks, want.Masks):
		return Resequenced
	default:
		return Hot
	}
}

func equalMasks(a, b []ingest.Mask) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if len(a[i]) != len(b[i]) {
			return false
		}
		for j := range a[i] {
			if a[i][j] != b[i][j] {
				return false
			}
		}
	}
	return true
}

// ending is how an attempt ended.
type ending struct {
	err      *ingest.Error
	streamed bool // frames came
	restart  bool // the settings changed
	finished bool // the file is at its end
}

// attempt holds one session.
func (c *Camera) attempt(ctx context.Context, attempts int, reason ingest.EpochReason) ending {
	settings := c.settings()
	c.set(Status{State: Connecting, Stage: ingest.StageDial, Attempts: attempts, Err: c.lastFault(attempts)})
	if c.cfg.Dials != nil {
		select {
		case c.cfg.Dials <- struct{}{}:
		case <-ctx.Done():
			return ending{}
		}
	}
	s := newSession(c, settings, attempts, reason)
	defer s.releaseDial()
	if attempts > 1 {
		c.mu.Lock()
		c.totals.Reconnects++
		c.mu.Unlock()
	}
	return s.run(ctx)
}

// lastFault keeps the reason of the last failure on display while the next attempt runs.
func (c *Camera) lastFault(attempts int) *ingest.Error {
	if attempts <= 1 {
		return nil
	}
	return c.Status().Err
}

var (
	errUpdated  = errors.New("the camera's settings were changed")
	errFinished = errors.New("the material is at its end") // and no io.EOF, with which connections end too
)
