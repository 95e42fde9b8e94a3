package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/internal/fmp4"
	"github.com/vedette/vedette/store"
)

// clips keeps the video around events of one camera, as the camera sent it. Events that follow each other closely share
// a clip, which grows with them up to maxClip.
type clips struct {
	p      *Pipeline
	camera string
	logger *slog.Logger
	// life ends when the camera's lane does: clips that wait for their end are cut short then.
	life context.Context //nolint:containedctx // ends what start began
	stop context.CancelFunc
	jobs sync.WaitGroup

	mu  sync.Mutex // guards job and what is in it
	job *clip
}

// clip is one that is being written.
type clip struct {
	from, to time.Time
	events   []clipEvent
}

// clipEvent is an event on its way to the disk.
type clipEvent struct {
	event     *store.Event
	committed <-chan struct{} // closed when the event has its number
}

const (
	maxClip      = 2 * time.Minute
	maxClipBytes = 256 << 20
	// maxFindTime is how much longer a clip gets for what was found late.
	maxFindTime = 10 * time.Second
	// clipSlack is how much longer than its own time a clip is waited for.
	clipSlack = 15 * time.Second
)

func newClips(p *Pipeline, camera string, logger *slog.Logger) *clips {
	c := &clips{p: p, camera: camera, logger: logger}
	c.life, c.stop = context.WithCancel(context.Background())
	return c
}

// close cuts clips short and waits until they are on disk.
func (c *clips) close() {
	c.stop()
	c.jobs.Wait()
}

// keep has the video around events kept: around of it before what they tell of and after they were found. They are of one frame.
func (c *clips) keep(events []store.Event, committed <-chan struct{}, around time.Duration) {
	from, to := events[0].Time, events[0].Time.Add(around)
	for i := range events {
		if since := sinceOf(&events[i]); since.Before(from) {
			from = since
		}
	}
	from = from.Add(-around)
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.job
	if j == nil || from.Before(j.from) || from.After(j.to) || to.Sub(j.from) > max(maxClip, 2*around) || c.p.cfg.Store.MediaDir(events[0].Time) != c.p.cfg.Store.MediaDir(j.events[0].event.Time) {
		j = &clip{from: from, to: to}
		c.job = j
		c.jobs.Go(func() { c.write(j) })
	}
	j.to = to
	for i := range events {
		j.events = append(j.events, clipEvent{event: &events[i], committed: committed})
	}
}

// sinceOf is when what an event tells of happened: some are found seconds later, when a track is given up.
func sinceOf(e *store.Event) time.Time {
	var a struct{ Since time.Time }
	if json.Unmarshal(e.Payload, &a) != nil || a.Since.IsZero() {
		return e.Time
	}
	if earliest := e.Time.Add(-maxFindTime); a.Since.Before(earliest) {
		return earliest
	}
	return a.Since
}

// write writes a clip to its end and names it in the rows of its events.
func (c *clips) write(j *clip) {
	c.mu.Lock()
	first := j.events[0].event
	file := fmt.Sprintf("%s/event-%d.mp4", c.camera, j.from.UnixMilli())
	c.mu.Unlock()
	out, err := c.p.cfg.Store.CreateMedia(first.Time, file)
	if err != nil {
		c.missed(err)
		c.finish(j)
		return
	}
	w := &clipWriter{mp4: fmp4.NewWriter(out)}
	err = c.record(j, w)
	events := c.finish(j)
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errClipEnds) { // what came before is kept
		c.missed(err)
	}
	if err := w.mp4.Close(); err != nil || w.last.IsZero() {
		out.Abort()
		return
	}
	if err := out.Commit(); err != nil {
		c.missed(err)
		return
	}
	var b store.Batch
	for _, e := range events {
		<-e.committed
		if e.event.Seq == 0 { // it could not be kept
			continue
		}
		b.Media = append(b.Media, store.Media{
			Event: e.event.Seq, Camera: c.camera, Time: e.event.Time, Kind: store.Clip, File: file, Start: w.first, End: w.last,
		})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.life), commitTimeout)
	defer cancel()
	if _, err := c.p.cfg.Store.Append(ctx, b); err != nil && !errors.Is(err, store.ErrClosed) {
		c.missed(err)
	}
}

// record follows the coded stream until the clip's end, which moves while events come.
func (c *clips) record(j *clip, w *clipWriter) error {
	c.mu.Lock()
	from, to := j.from, j.to
	c.mu.Unlock()
	for {
		ctx, cancel := context.WithTimeout(c.life, time.Until(to)+clipSlack)
		err := c.p.AccessUnits(ctx, c.camera, from, to, w.take)
		cancel()
		if err != nil {
			return err
		}
		c.mu.Lock()
		from = to
		if to = j.to; from.Equal(to) {
			c.closeLocked(j)
		}
		c.mu.Unlock()
		if from.Equal(to) {
			return nil
		}
	}
}

// finish takes no further events into a clip and returns those it has.
func (c *clips) finish(j *clip) []clipEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked(j)
	return j.events
}

func (c *clips) closeLocked(j *clip) {
	if c.job == j {
		c.job = nil
	}
}

func (c *clips) missed(err error) {
	c.p.metrics.pictures.WithLabelValues(c.camera).Inc()
	c.logger.Warn("a clip is missing or cut short", slog.Any("err", err))
}

// clipWriter packs what comes, once, until its format changes.
type clipWriter struct {
	mp4         *fmp4.Writer
	codec       fmp4.Codec
	epoch       string
	number      uint64
	bytes       int
	first, last time.Time
}

var (
	errClipEnds = errors.New("the stream's format changed, or the clip is as long as a clip may be")
	errMasked   = errors.New("the camera has privacy masks, which its video does not show: it is not kept")
)

func (w *clipWriter) take(d *ingestv1.StreamDescription, u *ingestv1.AccessUnit) error {
	if d != nil {
		codec, ok := map[ingestv1.Codec]fmp4.Codec{
			ingestv1.Codec_CODEC_H264: fmp4.H264, ingestv1.Codec_CODEC_H265: fmp4.H265, ingestv1.Codec_CODEC_AV1: fmp4.AV1,
		}[d.GetCodec()]
		switch {
		case d.GetMasked():
			return errMasked
		case !ok:
			return fmt.Errorf("%w: %s", fmp4.ErrCodec, d.GetCodec())
		}
		w.codec = codec
	}
	again := u.GetStreamEpoch() == w.epoch && u.GetNumber() <= w.number && !w.first.IsZero()
	if u == nil || again {
		return nil
	}
	for _, part := range u.GetUnits() {
		w.bytes += len(part)
	}
	if w.bytes > maxClipBytes {
		return errClipEnds
	}
	at := time.Unix(0, u.GetCaptureTimeNs())
	err := w.mp4.Add(w.codec, fmp4.Unit{
		Units: u.GetUnits(), Key: u.GetKeyframe(), Ticks: u.GetRtpTicks(), Capture: at, Gap: u.GetDiscontinuity() || u.GetStreamEpoch() != w.epoch,
	})
	if errors.Is(err, fmp4.ErrFormatChanged) {
		return errClipEnds
	}
	if err != nil {
		return err
	}
	w.epoch, w.number = u.GetStreamEpoch(), u.GetNumber()
	if w.first.IsZero() && u.GetKeyframe() {
		w.first = at
	}
	if !w.first.IsZero() {
		w.last = at
	}
	return nil
}
