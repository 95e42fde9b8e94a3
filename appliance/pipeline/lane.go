package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/api/frame"
	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/ingestclient"
)

// The causes frames are dropped for, besides those that ingest counts.
const (
	dropBusy        = "busy"        // a newer frame came while inference was at work on this camera's
	dropNoTurn      = "no_turn"     // a newer frame came while it waited for its turn among the cameras
	dropShed        = "shed"        // the camera's analysis is given up, the box being overloaded
	dropStale       = "stale"       // older than the staleness budget when its turn came
	dropInference   = "infer_error" // inference answered with an error, or not at all
	dropOverwritten = "overwritten" // its slot was given to a newer frame while it was read
	dropOffline     = "no_inference"
	dropEpoch       = "epoch_ended"
	dropPaused      = "paused"
)

// depth is how many frames may be in flight: one of a live camera, so that the next is always the freshest.
func (a Analysing) depth() int {
	if a.EveryFrame {
		return 4
	}
	return 1
}

// lane takes the frames of one camera through inference. One goroutine owns it; others reach it through its inbox.
type lane struct {
	p      *Pipeline
	camera string
	logger *slog.Logger
	inbox

	shots    *shots
	clips    *clips
	settings Analysing
	// everyFrame is settings.EveryFrame, for whoever announces frames.
	everyFrame atomic.Bool
	// turns are the pipeline's whose sequence is open; nil: none is.
	turns atomic.Pointer[turns]
	// inLine: a frame waits for its turn.
	inLine atomic.Bool
	// analysed and lost are frames since the lane began; lost are those the box could not follow with.
	analysed, lost atomic.Int64
	limited        limited
	gap            gap
	epoch          *epoch
	deferred       []message // epochs that end or begin once the frames before them are analysed
	seq            *sequence
	opened         int       // sequences opened, for the reason of the next
	retryAt        time.Time // no sequence is opened before
	backoff        time.Duration
	reopen         string // why the next sequence is opened

	state  Analysis
	drops  map[string]int64
	recent rate
	dirty  bool
}

// epoch is the slots of one stream epoch.
type epoch struct {
	name   string
	file   *os.File
	layout frame.Layout
	size   uint64
	start  time.Time // capture time of its first frame
}

func newLane(p *Pipeline, camera string, s Analysing, by limited) *lane {
	l := &lane{
		p: p, camera: camera, logger: p.cfg.Logger.With(slog.String("camera", camera)), inbox: newInbox(), settings: s, limited: by,
		drops: map[string]int64{}, reopen: "STREAM_OPENED",
	}
	l.shots, l.clips = newShots(p, camera, l.logger), newClips(p, camera, l.logger)
	l.everyFrame.Store(s.EveryFrame)
	return l
}

const (
	holdInterval = 500 * time.Millisecond // between unobserved ticks
	closeTimeout = time.Second
	minBackoff   = 200 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// run works until ctx ends, then closes what is open.
func (l *lane) run(ctx context.Context) {
	beat := time.NewTicker(holdInterval / 2)
	defer beat.Stop()
	report := time.NewTicker(l.p.cfg.Report)
	defer report.Stop()
	go l.shots.run(context.WithoutCancel(ctx)) // the last rows are written when ctx has ended
	defer l.shots.close()
	defer l.clips.close()
	defer l.end(ctx)
	for {
		session, changed := l.p.currentSession()
		// One at a time: whoever waits for an answer while handling one finds it among the others.
		for m, ok := l.takeMessage(); ok; m, ok = l.takeMessage() {
			if isEpoch(m) && (len(l.deferred) > 0 || l.unfinished(session)) {
				l.deferred = append(l.deferred, m)
				continue
			}
			l.handle(ctx, m)
		}
		l.advance(ctx, session)
		for len(l.deferred) > 0 && !l.unfinished(session) {
			m := l.deferred[0]
			l.deferred = l.deferred[1:]
			l.handle(ctx, m)
			l.advance(ctx, session)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-l.wake:
		case <-beat.C:
			l.hold(ctx)
		case <-report.C:
			l.report()
		}
	}
}

func isEpoch(m message) bool {
	switch m.(type) {
	case epochOpened, epochClosed:
		return true
	}
	return false
}

// unfinished tells whether frames of the open stream epoch still have to be analysed: of recorded material none is
// dropped because the next pass, or the end, is already known.
func (l *lane) unfinished(s *session) bool {
	if !l.settings.EveryFrame || l.settings.Paused || l.epoch == nil || l.seq == nil || l.seq.session != s {
		return false
	}
	return len(l.seq.flight) > 0 || l.nextEpoch() == l.epoch.name
}

// end closes the sequence and gives everything back.
func (l *lane) end(ctx context.Context) {
	reason := "STOPPED"
	if cause := context.Cause(ctx); errors.Is(cause, errCameraRemoved) {
		reason = "CAMERA_REMOVED"
	}
	l.closeSequence(ctx, reason)
	l.closeEpoch()
	messages, notices := l.refuse()
	for _, m := range append(l.deferred, messages...) {
		if o, ok := m.(epochOpened); ok {
			_ = o.file.Close()
		}
	}
	l.release(notices...)
}

func (l *lane) handle(ctx context.Context, m message) {
	switch m := m.(type) {
	case epochOpened:
		if l.epoch != nil && l.epoch.name == m.slots.GetStreamEpoch() { // it was told while the lane was being opened
			_ = m.file.Close()
			return
		}
		l.closeSequence(ctx, reasonOf(m.slots.GetReason()))
		l.closeEpoch()
		l.openEpoch(m)
	case epochClosed:
		if l.epoch != nil && (m.epoch == "" || m.epoch == l.epoch.name) {
			l.closeSequence(ctx, m.reason)
			l.closeEpoch()
		}
	case settingsChanged:
		if m.settings.Pipeline != l.settings.Pipeline {
			l.closeSequence(ctx, "MODEL_CHANGED")
		}
		if m.settings.Paused && !l.settings.Paused {
			l.closeSequence(ctx, "PAUSED")
		}
		l.settings, l.retryAt, l.backoff = m.settings, time.Time{}, 0
		l.everyFrame.Store(m.settings.EveryFrame)
		if l.seq != nil {
			l.turns.Load().put(l, l.seq.model.limits)
		}
	case limited:
		if m.shed && !l.limited.shed {
			l.closeSequence(ctx, "SHED")
		}
		l.limited, l.dirty = m, true
	case dropped:
		l.drop(m.cause)
	case answered:
		if l.seq != nil && l.seq.stream == m.stream {
			l.answer(ctx, m.answer)
		}
	case streamEnded:
		if l.seq != nil && l.seq.stream == m.stream {
			l.lose(ctx, m.err)
		}
	}
}

func reasonOf(r ingestv1.EpochReason) string {
	text := strings.TrimPrefix(r.String(), "EPOCH_REASON_")
	if text == "FIRST" || text == "UNSPECIFIED" {
		return "STREAM_OPENED"
	}
	return text
}

func (l *lane) openEpoch(m epochOpened) {
	slots := m.slots
	layout := frame.Layout{Slots: int(slots.GetSlotCount()), SlotBytes: int(slots.GetSlotBytes())}
	l.epoch = &epoch{
		name: slots.GetStreamEpoch(), file: m.file, layout: layout, size: uint64(layout.Size()), start: time.Unix(0, slots.GetCaptureTimeNs()),
	}
	l.reopen, l.retryAt, l.backoff = reasonOf(slots.GetReason()), time.Time{}, 0
}

func (l *lane) closeEpoch() {
	if l.epoch == nil {
		return
	}
	_ = l.epoch.file.Close()
	l.epoch = nil
}

// advance opens a sequence where one is missing and sends frames while there is room.
func (l *lane) advance(ctx context.Context, s *session) {
	if l.seq != nil && l.seq.session != s {
		l.lose(ctx, errInferenceGone)
	}
	switch {
	case l.settings.Paused:
		l.stand("PAUSED", "analysis of this camera is paused")
		l.dropAll(dropPaused)
		return
	case l.limited.shed:
		l.stand("SHED", shedMessage)
		l.dropAll(dropShed)
		return
	case l.epoch == nil:
		l.dropAll(dropEpoch)
		return
	case s == nil:
		reason, message := l.p.inferenceState()
		l.stand(reason, message)
		l.dropAll(dropOffline)
		return
	}
	if l.seq == nil {
		if l.p.cfg.Now().Before(l.retryAt) {
			l.dropAll(dropOffline)
			return
		}
		if err := l.openSequence(ctx, s); err != nil {
			if ctx.Err() == nil {
				l.later(err)
			}
			return
		}
	}
	l.send(ctx)
}

// send sends frames while the lane has its turn.
func (l *lane) send(ctx context.Context) {
	t, turn := l.turns.Load(), false
	defer func() {
		if turn {
			t.done(l, 0)
		}
	}()
	for len(l.seq.flight) < l.settings.depth() && !l.seq.ticking() {
		next := l.nextEpoch()
		if next == "" || (len(l.deferred) > 0 && next != l.epoch.name) { // there is none, or its slots are not open yet
			l.inLine.Store(false)
			t.leave(l)
			return
		}
		if !turn {
			turn = t.take(l)
			l.inLine.Store(!turn)
		}
		if !turn {
			return
		}
		n, ok := l.takeNotice()
		if !ok || l.refused(n) {
			continue
		}
		if err := l.seq.sendFrame(n, l.epoch, l.p.cfg.Now()); err != nil {
			l.release(n)
			l.drop(dropInference)
			l.lose(ctx, err)
			return
		}
		turn = false // the answer gives it back
	}
}

// refused drops a frame that must not be analysed and says so.
func (l *lane) refused(n ingestclient.Frame) bool {
	if n.GetStreamEpoch() != l.epoch.name {
		l.drop(dropEpoch)
		l.release(n)
		return true
	}
	if l.settings.EveryFrame || n.GetHeld() {
		return false
	}
	if age := monotonic() - n.GetReceiveMonotonicNs(); age > int64(l.settings.Staleness) {
		l.drop(dropStale)
		l.release(n)
		return true
	}
	return false
}

// monotonic is the machine's CLOCK_MONOTONIC in nanoseconds, the clock of receive_monotonic_ns.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano()
}

// later remembers why no sequence could be opened and when to try again.
func (l *lane) later(err error) {
	l.backoff = min(max(2*l.backoff, minBackoff), maxBackoff)
	if errors.Is(err, errModelLoading) { // that ends by itself, and soon
		l.backoff = minBackoff
	}
	l.retryAt = l.p.cfg.Now().Add(l.backoff)
	if l.state.Message != err.Error() {
		l.logger.Warn("analysis stands still", slog.Any("err", err))
	}
	l.stand(reasonOfError(err), err.Error())
	l.dropAll(dropOffline)
}

// reasonOfError is the word for a fault of inference.
func reasonOfError(err error) string {
	switch {
	case errors.Is(err, errModelNotReady):
		return "MODEL_NOT_READY"
	case errors.Is(err, errModelUnsuitable):
		return "MODEL_UNSUITABLE"
	case errors.Is(err, errInferenceGone):
		return "INFERENCE_UNAVAILABLE"
	}
	return "INFERENCE_ERROR"
}

// lose gives the sequence up without the sidecar's help: it is gone, or of no use.
func (l *lane) lose(ctx context.Context, err error) {
	reason := "INFERENCE_ERROR"
	switch {
	case errors.Is(err, errNoAnswer):
		reason = "INFERENCE_HUNG"
	case l.seq.session.ctx.Err() != nil || errors.Is(err, errInferenceGone):
		reason = "INFERENCE_RESTARTED"
	}
	l.gap.open(reason, l.state.LastFrame)
	l.logger.Warn("sequence lost", slog.Int64("sequence", l.seq.id), slog.String("reason", reason), slog.Any("err", err))
	for range l.seq.flight {
		l.drop(dropInference)
	}
	l.abandon(ctx, reason)
	l.reopen = reason
}

// hold tells the tracker that time passes although nothing was seen, and gives up on answers that never come.
func (l *lane) hold(ctx context.Context) {
	if l.seq == nil {
		return
	}
	now := l.p.cfg.Now()
	if l.seq.overdue(now, l.p.cfg.AnswerTimeout) {
		s, m := l.seq.session, l.seq.model
		l.lose(ctx, fmt.Errorf("%w within %s", errNoAnswer, l.p.cfg.AnswerTimeout))
		l.p.noAnswer(ctx, s, m)
		return
	}
	if len(l.seq.flight) == 0 && !l.seq.ticking() && now.Sub(l.seq.lastSent) >= holdInterval {
		if err := l.seq.sendTick(now); err != nil {
			l.lose(ctx, err)
		}
	}
}

// stand notes why analysis stands still.
func (l *lane) stand(reason, message string) {
	if l.state.Reason != reason || l.state.Message != message {
		l.state.Reason, l.state.Message, l.dirty = reason, message, true
	}
}

func (l *lane) drop(cause string) {
	l.drops[cause]++
	if cause == dropNoTurn || cause == dropStale {
		l.lost.Add(1)
	}
	l.dirty = true
	l.p.metrics.dropped.WithLabelValues(l.camera, cause).Inc()
}

func (l *lane) dropAll(cause string) {
	for _, n := range l.takeNotices() {
		l.drop(cause)
		l.release(n)
	}
}

// release ends the leases of frames.
func (l *lane) release(frames ...ingestclient.Frame) {
	for _, f := range frames {
		f.Release()
	}
}

// report tells the registry what the lane is doing, when that changed.
func (l *lane) report() {
	fps := l.recent.perSecond(l.p.cfg.Now())
	if !l.dirty && fps == l.state.Rate {
		return
	}
	l.dirty = false
	l.state.Rate = fps
	l.state.Sequence = 0
	if l.seq != nil {
		l.state.Sequence = l.seq.id
	}
	l.state.Limited = l.limited.rate
	if l.settings.EveryFrame || l.limited.shed {
		l.state.Limited = 0
	}
	l.state.Drops = l.p.dropsOf(l.camera, l.drops)
	l.p.cfg.Observer.Analysis(l.camera, l.state)
}

// rate counts over the last five seconds of a clock that goes on; when it goes back, the counting begins anew.
type rate struct {
	counts [5]int
	began  time.Time
	second int64 // since began
}

// roll goes on to the second of now, and tells how much of it has passed.
func (r *rate) roll(now time.Time) time.Duration {
	passed := now.Sub(r.began)
	if r.began.IsZero() || passed < time.Duration(r.second)*time.Second {
		*r, passed = rate{began: now}, 0
	}
	s := int64(passed / time.Second)
	for n := min(s-r.second, int64(len(r.counts))); n > 0; n-- {
		r.counts[(s-n+1)%int64(len(r.counts))] = 0
	}
	r.second = s
	return passed - time.Duration(s)*time.Second
}

func (r *rate) add(now time.Time) {
	r.roll(now)
	r.counts[r.second%int64(len(r.counts))]++
}

func (r *rate) perSecond(now time.Time) float64 {
	if r.began.IsZero() {
		return 0
	}
	// The current second is not over yet.
	span := r.roll(now).Seconds() + float64(min(r.second, int64(len(r.counts)-1)))
	total := 0
	for _, n := range r.counts {
		total += n
	}
	if span < 0.5 {
		return 0
	}
	return float64(int(10*float64(total)/span+0.5)) / 10
}
