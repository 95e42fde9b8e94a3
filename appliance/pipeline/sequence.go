package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/store"
	"github.com/vedette/vedette/tracker"
)

// sequence is an open correlation id: a durable row, a stream to the sidecar, and the tracks followed in it.
type sequence struct {
	id      int64
	session *session
	stream  *stream
	model   *model
	region  string
	base    time.Time // capture time that TIME counts from

	flight   []flight // frames sent and not answered, in order
	tick     string   // id of the tick that is under way; empty: none
	tickSent time.Time
	lastTime time.Duration // TIME of the last request
	lastSent time.Time
	failures int // frames in a row that failed

	observed time.Duration // how long frames were seen in it
	lastSeen time.Duration // TIME of the last answered frame
	tracks   map[int64]*following
}

// flight is a frame on its way.
type flight struct {
	id     string
	notice ingestclient.Frame
	at     time.Duration
	sent   time.Time
	mono   int64 // sent, on the machine's monotonic clock
}

// following is a track that is open.
type following struct {
	track    store.Track
	observed time.Duration // sequence.observed when it was last seen
	sent     time.Time     // capture time at which it was last written
	step     time.Duration // between points of its path
}

const (
	maxFailures   = 3
	lostAfter     = 3 * time.Second // of observed time, after which a track that is not reported has ended
	trackInterval = time.Second     // between two writings of an open track
	pathStep      = 200 * time.Millisecond
	maxPath       = 256
)

// openSequence makes the row, hands the memory over and opens the tracker's sequence. Nothing of the camera is
// analysed before that is answered.
func (l *lane) openSequence(ctx context.Context, s *session) error {
	m, err := s.model(ctx, l.settings.Pipeline)
	if err != nil {
		return err
	}
	now := l.p.cfg.Now()
	q := &sequence{session: s, model: m, base: l.epoch.start, tracks: map[int64]*following{}, lastSent: now}
	q.id, err = l.p.cfg.Store.OpenSequence(ctx, store.Sequence{
		Camera: l.camera, StreamEpoch: l.epoch.name, Model: m.name, ModelVersion: m.version, OpenReason: l.reopen, OpenedAt: now,
	})
	if err != nil {
		return fmt.Errorf("open a sequence: %w", err)
	}
	if err := l.begin(ctx, q); err != nil {
		l.closeRow(ctx, q.id, "OPEN_FAILED")
		return err
	}
	l.seq, l.backoff, l.opened = q, 0, l.opened+1
	t := l.p.turnsOf(m.name)
	t.put(l, m.limits)
	l.turns.Store(t)
	l.stand("", "")
	l.dirty = true
	l.logger.Info("sequence opened", slog.Int64("sequence", q.id), slog.String("reason", l.reopen))
	l.p.event(ctx, l.camera, "sequence_opened", now, map[string]string{"sequence": sequenceText(q.id), "reason": l.reopen, "model": m.name})
	return nil
}

func (l *lane) begin(ctx context.Context, q *sequence) error {
	q.region = fmt.Sprintf("%s/%d", l.camera, q.id)
	if err := q.session.adopt(q.region, l.epoch.file, l.epoch.size); err != nil {
		return err
	}
	started := make(chan message, 1) // the first message of the stream answers START
	first := true
	var err error
	q.stream, err = q.session.open(ctx, func(m message) bool {
		if first {
			first = false
			started <- m
			return true
		}
		return l.put(m)
	})
	if err != nil {
		q.session.drop(q.region)
		return err
	}
	if _, err = q.stream.send(q.model.tick(q.id, 0, true, false)); err == nil {
		err = awaitStart(ctx, started, l.p.cfg.AnswerTimeout)
	}
	if err != nil {
		if errors.Is(err, errNoAnswer) {
			l.p.noAnswer(ctx, q.session, q.model)
		}
		q.stream.close()
		q.session.drop(q.region)
		return fmt.Errorf("open sequence %d: %w", q.id, err)
	}
	return nil
}

// awaitStart waits a little longer when ctx ends meanwhile: a sequence the tracker knows must be closed there.
func awaitStart(ctx context.Context, started <-chan message, limit time.Duration) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	stopping := context.AfterFunc(ctx, func() { timeout.Reset(closeTimeout) })
	defer stopping()
	select {
	case m := <-started:
		switch m := m.(type) {
		case answered:
			return m.answer.err
		case streamEnded:
			return m.err
		}
		return errInferenceGone
	case <-timeout.C:
		return fmt.Errorf("%w within %s", errNoAnswer, limit)
	}
}

func (q *sequence) ticking() bool { return q.tick != "" }

// overdue tells whether an answer has been waited for too long.
func (q *sequence) overdue(now time.Time, limit time.Duration) bool {
	if q.ticking() && now.Sub(q.tickSent) > limit {
		return true
	}
	return len(q.flight) > 0 && now.Sub(q.flight[0].sent) > limit
}

func (q *sequence) sendFrame(n ingestclient.Frame, e *epoch, now time.Time) error {
	at := time.Unix(0, n.GetCaptureTimeNs()).Sub(q.base)
	mono := monotonic()
	id, err := q.stream.send(q.model.frame(q.region, e.layout, n, q.id, at))
	if err != nil {
		return err
	}
	q.flight = append(q.flight, flight{id: id, notice: n, at: at, sent: now, mono: mono})
	q.lastTime, q.lastSent = at, now
	return nil
}

// sendTick says that time passes. It stays half an interval behind, so that the next frame does not lie before it.
func (q *sequence) sendTick(now time.Time) error {
	at := q.lastTime + now.Sub(q.lastSent) - holdInterval/2
	id, err := q.stream.send(q.model.tick(q.id, at, false, false))
	if err != nil {
		return err
	}
	q.tick, q.tickSent, q.lastTime, q.lastSent = id, now, at, now
	return nil
}

// answer takes what came back for the oldest request.
func (l *lane) answer(ctx context.Context, a answer) {
	q := l.seq
	if q.ticking() && a.id == q.tick {
		q.tick = ""
		if a.err != nil {
			l.lose(ctx, a.err)
		}
		return
	}
	if len(q.flight) == 0 || q.flight[0].id != a.id {
		l.lose(ctx, fmt.Errorf("inference answered request %q out of turn", a.id))
		return
	}
	f := q.flight[0]
	q.flight = q.flight[1:]
	now := l.p.cfg.Now()
	took := now.Sub(f.sent)
	if a.err != nil {
		took = 0
	}
	l.turns.Load().done(l, took)
	if a.err != nil {
		l.release(f.notice)
		l.failed(ctx, a.err)
		return
	}
	q.failures = 0
	l.p.answered()
	l.recent.add(now)
	l.analysed.Add(1)
	l.state.Frames++
	l.state.LastFrame = time.Unix(0, f.notice.GetCaptureTimeNs())
	l.dirty = true
	l.p.metrics.analysed.WithLabelValues(l.camera).Inc()
	l.p.metrics.inference.WithLabelValues(l.camera).Observe(now.Sub(f.sent).Seconds())
	l.closeGap(ctx, q.id, l.state.LastFrame)
	l.p.timings.await(q.timed(l.camera, f.notice, f.mono, a.steps))
	l.record(ctx, f, a.tracks)
}

// failed counts a frame that inference could not do. One is no harm: the sequence passes it as unobserved.
func (l *lane) failed(ctx context.Context, err error) {
	q := l.seq
	if strings.Contains(err.Error(), "FRAME_OVERWRITTEN") {
		l.drop(dropOverwritten)
		return
	}
	l.drop(dropInference)
	q.failures++
	if q.failures < maxFailures {
		return
	}
	l.lose(ctx, err)
	l.later(err)
}

// record hands what was seen in a frame to the store, and its lease to who takes pictures.
func (l *lane) record(ctx context.Context, f flight, tracks []tracker.Track) {
	q, n := l.seq, f.notice
	capture := time.Unix(0, n.GetCaptureTimeNs()).UTC()
	if d := f.at - q.lastSeen; d > 0 && q.lastSeen > 0 {
		q.observed += min(d, time.Second)
	}
	q.lastSeen = f.at
	fr := store.Frame{
		Sequence: q.id, Camera: l.camera, CaptureTime: capture, ReceiveTime: time.Unix(0, n.GetReceiveTimeNs()).UTC(), Number: int64(n.GetNumber()),
	}
	var batch store.Batch
	w, h := float64(n.GetWidth()), float64(n.GetHeight())
	for i := range tracks {
		t := &tracks[i]
		if t.State != tracker.Tracked {
			continue
		}
		o := store.Object{
			Local: t.ID, Class: q.model.class(t.Class), Score: float32(t.Score),
			Box: store.Box{X1: share(t.X1, w), Y1: share(t.Y1, h), X2: share(t.X2, w), Y2: share(t.Y2, h)},
		}
		fr.Objects = append(fr.Objects, o)
		if w := q.follow(o, t, l.camera, capture); w != nil {
			w.Picture = l.shots.file(w.ID)
			batch.Tracks = append(batch.Tracks, *w)
		}
	}
	ended := q.lost()
	batch.Tracks = append(batch.Tracks, l.shots.finish(ended, nil)...)
	if rules := l.p.cfg.Rules; rules != nil {
		batch.Events = rules.Seen(&fr, ended)
	}
	batch.Frames = []store.Frame{fr}
	committed, err := l.p.cfg.Store.Append(ctx, batch)
	if err != nil && ctx.Err() == nil {
		l.logger.Error("what was seen could not be kept", slog.Any("err", err))
	}
	if err != nil {
		l.release(n)
		return
	}
	var numbered chan struct{}
	if len(batch.Events) > 0 && (l.settings.Clip > 0 || !l.settings.NoPictures) {
		numbered = make(chan struct{})
		go func() {
			defer close(numbered)
			if err := <-committed; err != nil { // otherwise the events have their numbers
				l.logger.Error("what was seen could not be kept", slog.Any("err", err))
			}
		}()
	}
	if len(batch.Events) > 0 && l.settings.Clip > 0 {
		l.clips.keep(batch.Events, numbered, l.settings.Clip) //nolint:contextcheck // a clip ends with the lane, not with this call
	}
	if l.settings.NoPictures {
		l.release(n)
		return
	}
	l.shots.look(ctx, n, &fr, q.tracks, batch.Events, numbered)
}

// share is a coordinate as a fraction of the picture.
func share(v, whole float64) float32 { return float32(min(max(v/whole, 0), 1)) }

// follow notes that a track was seen, and returns the track when it is time to write it.
func (q *sequence) follow(o store.Object, t *tracker.Track, camera string, capture time.Time) *store.Track {
	f := q.tracks[o.Local]
	opened := f == nil
	if opened {
		f = &following{step: pathStep, track: store.Track{
			ID: store.TrackID{Sequence: q.id, Local: o.Local}, Camera: camera, Start: capture.Add(-t.Age).Truncate(time.Microsecond), State: store.TrackActive,
		}}
		q.tracks[o.Local] = f
	}
	tr := &f.track
	tr.Class, tr.Score, tr.Box, tr.End = o.Class, max(tr.Score, o.Score), o.Box, capture
	tr.Detections++
	f.observed = q.observed
	if n := len(tr.Path); n == 0 || capture.Sub(tr.Path[n-1].Time) >= f.step {
		tr.Path = append(tr.Path, store.Point{Time: capture, X: (o.Box.X1 + o.Box.X2) / 2, Y: (o.Box.Y1 + o.Box.Y2) / 2})
		f.thin()
	}
	if !opened && capture.Sub(f.sent) < trackInterval {
		return nil
	}
	f.sent = capture
	return f.copy()
}

// thin keeps every other point of a path that has grown too long.
func (f *following) thin() {
	p := f.track.Path
	if len(p) <= maxPath {
		return
	}
	kept := make([]store.Point, 0, maxPath)
	for i := 0; i < len(p); i += 2 {
		kept = append(kept, p[i])
	}
	f.track.Path = kept
	f.step *= 2
}

// copy is the track as it is now, for the store to keep.
func (f *following) copy() *store.Track {
	t := f.track
	t.Path = append([]store.Point(nil), t.Path...)
	return &t
}

// lost returns the tracks that have not been seen for so long that they have ended.
func (q *sequence) lost() []store.Track {
	var ended []store.Track
	for id, f := range q.tracks {
		if q.observed-f.observed <= lostAfter {
			continue
		}
		delete(q.tracks, id)
		t := f.copy()
		t.State, t.EndReason = store.TrackEnded, "LOST"
		ended = append(ended, *t)
	}
	return ended
}

// finish waits for what is in flight.
func (l *lane) finish(ctx context.Context) {
	if !l.underWay() {
		return
	}
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	for {
		l.settle(ctx)
		if !l.underWay() {
			return
		}
		select {
		case <-l.wake:
		case <-timeout.C:
			return
		}
	}
}

// underWay tells whether an answer is still to come.
func (l *lane) underWay() bool { return l.seq != nil && (len(l.seq.flight) > 0 || l.seq.ticking()) }

// settle handles the answers among the waiting messages and leaves the others in their order.
func (l *lane) settle(ctx context.Context) {
	var others []message
	for _, m := range l.takeMessages() {
		switch m.(type) {
		case answered, streamEnded:
			l.handle(ctx, m)
		default:
			others = append(others, m)
		}
	}
	if len(others) == 0 {
		return
	}
	l.mu.Lock()
	l.messages = append(others, l.messages...)
	l.mu.Unlock()
}

// closeSequence ends the open sequence: END to the tracker, then the row. Tracks that are open end with it. It is
// bounded by time, and done also when ctx has ended.
func (l *lane) closeSequence(ctx context.Context, reason string) {
	ctx = context.WithoutCancel(ctx)
	l.finish(ctx) // END must not overtake them
	q := l.seq
	if q == nil {
		return
	}
	if q.session.ctx.Err() == nil {
		at := q.lastTime + max(l.p.cfg.Now().Sub(q.lastSent), 0)
		id, err := q.stream.send(q.model.tick(q.id, at, false, true))
		if err == nil {
			err = l.awaitAnswer(ctx, id)
		}
		if err != nil {
			l.logger.Warn("sequence could not be closed in the tracker", slog.Int64("sequence", q.id), slog.Any("err", err))
		}
	}
	if l.seq == q { // not lost meanwhile
		l.abandon(ctx, reason)
	}
}

// awaitAnswer handles answers until that to id has come.
func (l *lane) awaitAnswer(ctx context.Context, id string) error {
	q := l.seq
	q.tick, q.tickSent = id, l.p.cfg.Now()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	for {
		l.settle(ctx)
		if l.seq != q || !q.ticking() {
			return nil
		}
		select {
		case <-l.wake:
		case <-timeout.C:
			return errors.New("no answer in time")
		}
	}
}

// abandon forgets the open sequence and closes its row.
func (l *lane) abandon(ctx context.Context, reason string) {
	q := l.seq
	l.seq, l.dirty = nil, true
	l.turns.Swap(nil).remove(l)
	l.inLine.Store(false)
	for _, f := range q.flight {
		l.release(f.notice)
	}
	q.stream.close()
	if q.session.ctx.Err() == nil {
		q.session.drop(q.region)
	}
	l.leaveRules(ctx, q)
	l.keepPictures(q)
	l.closeRow(ctx, q.id, reason)
}

// keepPictures has the pictures of what is still followed written, and waits for it: with the sequence its tracks end.
func (l *lane) keepPictures(q *sequence) {
	open := make([]store.Track, 0, len(q.tracks))
	for _, f := range q.tracks {
		open = append(open, *f.copy())
	}
	reached := make(chan struct{})
	l.shots.finish(open, reached)
	timeout := time.NewTimer(shotTimeout)
	defer timeout.Stop()
	select {
	case <-reached:
	case <-timeout.C:
		l.logger.Warn("the last pictures of a sequence are late", slog.Int64("sequence", q.id))
	}
}

// leaveRules keeps what the end of a sequence means to the rules: whoever was in a zone is no longer known to be.
func (l *lane) leaveRules(ctx context.Context, q *sequence) {
	if l.p.cfg.Rules == nil {
		return
	}
	events := l.p.cfg.Rules.Closed(l.camera, q.id, q.base.Add(q.lastSeen))
	if len(events) == 0 {
		return
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if _, err := l.p.cfg.Store.Append(wait, store.Batch{Events: events}); err != nil {
		l.logger.Error("events could not be kept", slog.Int("count", len(events)), slog.Any("err", err))
	}
}

func (l *lane) closeRow(ctx context.Context, id int64, reason string) {
	if ctx.Err() != nil { // the row must be closed all the same
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
	}
	now := l.p.cfg.Now()
	if err := l.p.cfg.Store.CloseSequence(ctx, id, reason, now); err != nil {
		l.logger.Error("sequence could not be closed in the store", slog.Int64("sequence", id), slog.Any("err", err))
		return
	}
	l.logger.Info("sequence closed", slog.Int64("sequence", id), slog.String("reason", reason))
	l.p.event(ctx, l.camera, "sequence_closed", now, map[string]string{"sequence": sequenceText(id), "reason": reason})
}

func sequenceText(id int64) string { return strconv.FormatInt(id, 10) }

// event writes an event; it waits for room, since events are never lost, also when ctx has ended.
func (p *Pipeline) event(ctx context.Context, camera, kind string, at time.Time, attributes map[string]string) {
	payload, err := json.Marshal(attributes)
	if err == nil {
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_, err = p.cfg.Store.Append(wait, store.Batch{Events: []store.Event{{Camera: camera, Type: kind, Time: at, Payload: payload}}})
	}
	if err != nil {
		p.cfg.Logger.Error("event could not be kept", slog.String("type", kind), slog.String("camera", camera), slog.Any("err", err))
	}
}
