package camera

import (
	"context"
	"errors"
	"image"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/capture"
	"github.com/vedette/vedette/ingest/decode"
	"github.com/vedette/vedette/ingest/framebus"
	"github.com/vedette/vedette/internal/av"
)

// session is one connection of a camera, or one pass over a file. Its owner is the goroutine in
// run; the source's and the decoder's goroutines call the methods below it.
type session struct {
	c        *Camera
	attempts int
	file     bool
	decoder  *decode.Decoder
	units    *handoff      // files: straight to the decoder
	wake     chan struct{} // something the owner should look at
	dialled  sync.Once
	// burst: the frame before this one was held back; patience is when waiting for slots ends. The decoder's goroutine alone
	// uses them.
	burst    bool
	patience time.Time

	order sync.Mutex // of units: taken before mu
	early *early     // guarded by order; nil: what comes is handed on

	mu       sync.Mutex // guards everything below
	progress progress
	clock    capture.Clock
	epoch    *ingest.Epoch
	reason   ingest.EpochReason // of the next epoch; 0: none is due
	number   uint64             // of the next access unit
	stream   ingest.Stream
	masks    []ingest.Mask
	blanker  *framebus.Blanker // for masks and the size below
	blankFor image.Point
	gate     *gate     // nil: none is wanted
	opened   time.Time // files: capture time of the beginning
	origin   ingest.Ticks
}

func newSession(c *Camera, settings ingest.Camera, attempts int, reason ingest.EpochReason) *session {
	s := &session{
		c: c, attempts: attempts, file: strings.HasPrefix(settings.Address, "file:"), wake: make(chan struct{}, 1),
		units: newHandoff(), reason: reason, masks: settings.Masks, opened: settings.StartTime,
		progress: progress{deadlines: c.cfg.Deadlines, start: ingest.Now().Mono},
	}
	cfg := decode.Config{
		Rate: settings.AnalysisRate, QueueBytes: c.cfg.QueueBytes, Budget: c.cfg.Decodes,
		Decoders: settings.Decoders, Open: c.cfg.Engine, Chosen: c.choose,
	}
	if s.file && settings.FullSpeed {
		cfg.Threads, cfg.Throughput = c.cfg.FileThreads, true
	}
	if !s.file {
		s.early = &early{}
	}
	s.gate = newGate(settings)
	cfg.Still, cfg.Ahead = s.still, s.ahead
	s.decoder = decode.New(cfg, s)
	return s
}

// run holds the session until it fails, the settings change or ctx ends.
func (s *session) run(ctx context.Context) ending {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unblock := context.AfterFunc(ctx, s.units.stop)
	defer unblock()
	s.c.mu.Lock()
	settings := s.c.current
	s.c.decoder, s.c.session, s.c.meter = s.decoder, s, meter{}
	s.c.mu.Unlock()

	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.c.cfg.Source(settings, s.c.cfg.Deadlines).Run(ctx, s)
		s.units.end()
		// The end of a connection is an EOF as well, and not the end of the material.
		if !s.file || !errors.Is(err, io.EOF) {
			cancel(orDisconnected(err))
		}
	})
	decoding := make(chan struct{})
	//nolint:gocritic // a decoder that hangs in C cannot be waited for; see abandon
	go func() {
		defer close(decoding)
		if !s.file {
			cancel(s.decoder.Run(ctx))
			return
		}
		if err := s.decoder.All(ctx, s.units.take); err != nil {
			cancel(err)
			return
		}
		cancel(errFinished)
	}()
	s.watch(ctx, cancel)
	wg.Wait()
	s.forget()
	s.await(decoding)

	s.c.mu.Lock()
	s.c.decoder, s.c.session, s.c.meter, s.c.gate = nil, nil, meter{}, GateAbsent
	s.c.totals.Decode = s.c.totals.Decode.Add(s.decoder.Counts())
	s.c.mu.Unlock()
	s.mu.Lock()
	streamed := s.progress.streaming()
	s.mu.Unlock()
	s.c.cfg.Bus.CloseSlots()
	cause := context.Cause(ctx)
	return ending{
		err: ingest.AsError(cause), streamed: streamed,
		restart: errors.Is(cause, errUpdated), finished: errors.Is(cause, errFinished),
	}
}

// await waits for the decoder, but not for ever: one that hangs in a driver is left behind, counted, without its
// place among the decoders that work.
func (s *session) await(decoding <-chan struct{}) {
	t := time.NewTimer(s.c.cfg.Deadlines.Frames)
	defer t.Stop()
	select {
	case <-decoding:
		return
	case <-t.C:
	}
	s.decoder.Abandon()
	s.c.mu.Lock()
	s.c.totals.Abandoned++
	s.c.mu.Unlock()
	s.c.cfg.Logger.Error("the decoder hangs and was abandoned; what it holds is lost until the process ends")
}

// choose is told which decoder works.
func (c *Camera) choose(name, fallback string) {
	c.mu.Lock()
	before := c.chosen
	c.chosen = [2]string{name, fallback}
	c.mu.Unlock()
	if fallback != "" && before != [2]string{name, fallback} {
		c.cfg.Logger.Warn("a preferred decoder is not used", slog.String("decoder", name), slog.String("why", fallback))
	}
}

func orDisconnected(err error) error {
	if err != nil {
		return err
	}
	return &ingest.Error{Reason: ingest.ReasonDisconnected, Err: errors.New("the session ended")}
}

// watch is the owner's loop: deadlines, news from the session, new settings.
func (s *session) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	streaming, shown := false, (*ingest.Epoch)(nil)
	for {
		select {
		case <-ctx.Done():
			return
		case want := <-s.c.updates:
			s.update(want, cancel)
		case <-s.wake:
		case <-timer.C:
		}
		s.mu.Lock()
		stage, at := s.progress.waiting()
		now, epoch, stream := s.progress.streaming(), s.epoch, s.stream
		dialled := s.progress.reached[ingest.StageSetup] != 0
		s.mu.Unlock()
		if dialled {
			s.releaseDial()
		}
		if now && (!streaming || epoch != shown) {
			streaming, shown = true, epoch
			s.c.set(Status{State: Streaming, Epoch: epoch, Stream: stream})
		}
		if s.file {
			continue // a file is as slow as its readers
		}
		left := at - ingest.Now().Mono
		if left > 0 {
			timer.Reset(left)
			continue
		}
		err := ingest.Overdue(stage, s.c.settings().Transport)
		if failed := s.decoder.Counts().Errors; stage == ingest.StageFirstFrame && failed > 0 {
			err = ingest.Undecodable(failed)
		}
		if streaming {
			s.c.set(Status{State: Stalled, Stage: stage, Err: err, Epoch: epoch})
		}
		cancel(err)
		return
	}
}

// update applies new settings, as gently as they allow.
func (s *session) update(want ingest.Camera, cancel context.CancelCauseFunc) {
	before := s.c.settings()
	c := cost(before, want)
	s.c.adopt(want)
	if !sameGate(before, want) {
		s.mu.Lock()
		s.gate = newGate(want)
		s.mu.Unlock()
	}
	switch c {
	case Reconnected:
		s.c.mu.Lock()
		s.c.status.Applied = c // told with the next state
		s.c.mu.Unlock()
		cancel(errUpdated)
		return
	case Resequenced:
		s.mu.Lock()
		s.masks, s.blanker = want.Masks, nil
		s.reason = ingest.EpochSettingsChanged
		s.mu.Unlock()
	default:
	}
	s.c.applied(c)
}

func (s *session) reanchor() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Next()
	if s.epoch != nil {
		s.reason = ingest.EpochClockAnchored
	}
}

func (s *session) releaseDial() {
	if s.c.cfg.Dials != nil {
		s.dialled.Do(func() { <-s.c.cfg.Dials })
	}
}

func (s *session) news() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Reached is part of ingest.Sink.
func (s *session) Reached(stage ingest.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.reach(stage, ingest.Now().Mono)
	s.news()
}

// Stream is part of ingest.Sink.
func (s *session) Stream(d ingest.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != nil && (d.Width != s.stream.Width || d.Height != s.stream.Height || d.Codec != s.stream.Codec) {
		s.reason = ingest.EpochFormatChanged
	}
	s.stream = d
}

// SenderReport is part of ingest.Sink.
func (s *session) SenderReport(r ingest.SenderReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.Report(r)
}

// Packets is part of ingest.Sink.
func (s *session) Packets(received, bytes, lost, bad uint64) {
	if received > 0 {
		s.mu.Lock()
		s.progress.reach(ingest.StagePackets, ingest.Now().Mono)
		s.mu.Unlock()
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	t := &s.c.totals
	t.Packets += received
	t.Bytes += bytes
	t.PacketsLost += lost
	t.PacketsBad += bad
}

// deliver hands a unit on; s.order is held.
func (s *session) deliver(au ingest.AccessUnit) {
	s.mu.Lock()
	u := s.stampLocked(au)
	stream, number, masked := s.stream, s.number, len(s.masks) > 0
	begun := s.progress.reached[ingest.StageFirstKeyframe] != 0
	s.number++
	s.mu.Unlock()

	s.c.mu.Lock()
	s.c.totals.AccessUnits++
	if au.Keyframe {
		s.c.totals.Keyframes++
	}
	s.c.meter.add(au.Received.Mono, len(au.Data), au.Keyframe)
	s.c.mu.Unlock()
	coded := Coded{Epoch: u.Epoch, Number: number, Unit: u.AccessUnit, Capture: u.Stamp.Capture, Stream: stream, Masked: masked}
	coded.Unit.Ticks -= u.Epoch.Origin
	if begun { // what comes before refers to what this session never sent
		s.c.units.add(coded)
	}
	if s.c.cfg.Coded {
		return
	}
	if !s.file {
		s.decoder.Push(u)
		return
	}
	s.units.put(u)
}

// stampLocked gives a unit its epoch and capture time.
func (s *session) stampLocked(au ingest.AccessUnit) decode.Unit {
	mono := au.Received.Mono
	s.progress.reach(ingest.StageAccessUnits, mono)
	if au.Keyframe {
		if s.progress.reached[ingest.StageFirstKeyframe] == 0 {
			s.progress.reach(ingest.StageFirstKeyframe, mono)
			s.news()
		}
		s.progress.reach(ingest.StageKeyframes, mono)
		if s.c.cfg.Coded && !s.progress.streaming() {
			s.progress.reach(ingest.StageFirstFrame, mono)
			s.news()
		}
	}
	if s.c.cfg.Coded {
		s.progress.reach(ingest.StageFrames, mono)
	}
	var stamp decode.Stamp
	if s.file {
		if s.opened.IsZero() {
			s.opened, s.origin = au.Received.Wall, au.Ticks
		}
		stamp = decode.Stamp{Capture: s.opened.Add((au.Ticks - s.origin).Duration()), Quality: ingest.TimeFile}
	} else {
		t := s.clock.Unit(au.Ticks, au.Received)
		if t.Jumped {
			s.clock, s.reason = s.clock.Next(), ingest.EpochClockAnchored
			t = s.clock.Unit(au.Ticks, au.Received)
		}
		stamp, au.Ticks = decode.Stamp{Capture: t.Capture, Quality: t.Quality}, t.Ticks
	}
	if s.reason != 0 {
		s.epoch, s.reason, s.number = s.c.cfg.Mint.New(s.reason, au.Ticks), 0, 0
		s.news()
	}
	return decode.Unit{AccessUnit: au, Epoch: s.epoch, Stamp: stamp, Codec: s.stream.Codec}
}

// Decoded is part of decode.Output.
func (s *session) Decoded(f ingest.Frame) {
	mono := ingest.Now().Mono
	s.c.mu.Lock()
	s.c.frame = mono
	s.c.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress.reached[ingest.StageFirstFrame] == 0 {
		if s.stream.Width == 0 {
			s.stream.Width, s.stream.Height = f.Size.X, f.Size.Y
		}
		for _, stage := range []ingest.Stage{ingest.StageFirstFrame, ingest.StagePackets, ingest.StageAccessUnits, ingest.StageKeyframes} {
			s.progress.reach(stage, max(mono, s.progress.reached[stage]))
		}
		s.news()
	}
	s.progress.reach(ingest.StageFrames, mono)
}

// Skipped is part of decode.Output: nothing is wrong with a stream that is not decoded on purpose.
func (s *session) Skipped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.reach(ingest.StageFrames, ingest.Now().Mono)
}

// FormatChanged is part of decode.Output.
func (s *session) FormatChanged(old *ingest.Epoch, size image.Point) *ingest.Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.c.cfg.Mint.New(ingest.EpochFormatChanged, old.Origin)
	if s.epoch == old {
		s.epoch = e
		s.stream.Width, s.stream.Height = size.X, size.Y
		s.news()
	}
	return e
}

// Frame is part of decode.Output.
func (s *session) Frame(ctx context.Context, f ingest.Frame, p *av.Picture) {
	bus := s.c.cfg.Bus
	if !s.pass(&f, p) {
		return
	}
	if e, _ := bus.Epoch(); e != f.Epoch {
		if err := bus.Open(f.Epoch, f.Size, f.Capture); err != nil {
			s.c.cfg.Logger.Error("no slots for this stream", slog.Any("err", err))
			return
		}
	}
	if s.file && bus.WaitFree(ctx) != nil {
		return
	}
	if !s.file && f.Held {
		s.awaitSlot(ctx)
	}
	s.burst = s.burst && f.Held
	// ErrNoSlot is counted by the bus; a picture that cannot be converted is counted as undecodable.
	_ = bus.Publish(f, func(dst []byte) error {
		if err := p.I420(dst); err != nil {
			return err
		}
		s.blank(dst, f.Size)
		return nil
	})
}

// heldPatience bounds how long pictures that a closed gate held back wait for slots, all that come at once together: others
// wait to be decoded meanwhile.
const heldPatience = 400 * time.Millisecond

// awaitSlot lets pictures that come at once not be lost for want of slots.
func (s *session) awaitSlot(ctx context.Context) {
	if !s.burst {
		s.burst, s.patience = true, time.Now().Add(heldPatience)
	}
	ctx, cancel := context.WithDeadline(ctx, s.patience)
	defer cancel()
	_ = s.c.cfg.Bus.WaitFree(ctx) // without one it is counted as lost
}

// blank paints the privacy masks.
func (s *session) blank(pixels []byte, size image.Point) {
	s.mu.Lock()
	if s.blanker == nil || s.blankFor != size {
		s.blanker, s.blankFor = framebus.NewBlanker(s.masks, size), size
	}
	b := s.blanker
	s.mu.Unlock()
	b.Blank(pixels)
}
