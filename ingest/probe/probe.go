// Package probe looks at a camera once, before anybody relies on it, and says what it delivers
// and what will make trouble.
package probe

import (
	"context"
	"errors"
	"fmt"
	"image"
	"sync"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/capture"
	"github.com/vedette/vedette/ingest/decode"
	"github.com/vedette/vedette/internal/av"
)

// Config of a probe.
type Config struct {
	// Source of the camera, and the transport that it asks for. Required.
	Source    ingest.Source
	Transport ingest.Transport
	// Watch is how long to look after the first frame; 0: 5 s.
	Watch time.Duration
	// FirstFrame is how long it may take to come; 0: 30 s.
	FirstFrame time.Duration
	// Decoders in order of preference, and how they are opened, as decode.Config has them.
	Decoders []string
	Open     func(name string, cfg av.DecoderConfig) (decode.Engine, error)
	// Hung is how long a decoder that hangs is waited for at the end; 0: 10 s.
	Hung time.Duration
}

// Result is what was seen.
type Result struct {
	Stream ingest.Stream
	// Rate in pictures a second, BitRate in bits a second, GOP in pictures; 0: not seen long enough.
	Rate, BitRate float64
	GOP           int
	// Reports: the camera sends its time; ClockOffset is that time minus the box's.
	Reports     bool
	ClockOffset time.Duration
	// FirstFrame is the time from dialling to the first picture, Picture that picture as JPEG.
	FirstFrame time.Duration
	Picture    []byte
	Warnings   []Warning
	// Decoder is the one that made the picture, Fallback why a preferred one did not; empty: it is the first.
	Decoder, Fallback string
	// Err is why there is no stream, Stage where it ended.
	Err   *ingest.Error
	Stage ingest.Stage
}

// Kind of a warning.
type Kind int

// The kinds; the wire contract says what each means.
const (
	LongGOP Kind = iota + 1
	VariableGOP
	LargeFrame
	H265Software
	NoSenderReports
	ClockOffset
	PacketLoss
	BFrames
)

// Warning is something that works, but not well.
type Warning struct {
	Kind    Kind
	Message string
}

// burstMost is how long the burst with which a session may begin is waited for.
const burstMost = time.Second

// look is one probe under way; it is the source's sink and the decoder's output.
type look struct {
	decoder *decode.Decoder
	first   chan struct{} // closed at the first frame that is whole

	shown, whole bool // there was a frame, and one that was whole; the decoder's goroutine alone uses them

	mu         sync.Mutex // guards everything below
	began      time.Duration
	result     Result
	clock      capture.Clock
	stage      ingest.Stage
	epoch      *ingest.Epoch
	units      int
	burst      capture.Burst
	opened     time.Duration // mono of the first unit
	paced      int           // units since firstUnit, from the end of the burst on, and their bytes
	bytes      int
	over       bool
	firstUnit  time.Duration
	lastUnit   time.Duration
	sinceKey   int
	gops       []int
	lastTicks  ingest.Ticks
	lost, sent uint64
	reordered  bool
}

// Run looks at the camera; nothing is kept of it.
func Run(ctx context.Context, cfg Config) Result {
	if cfg.Watch <= 0 {
		cfg.Watch = 5 * time.Second
	}
	if cfg.FirstFrame <= 0 {
		cfg.FirstFrame = 30 * time.Second
	}
	if cfg.Hung <= 0 {
		cfg.Hung = 10 * time.Second
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &look{first: make(chan struct{}), began: ingest.Now().Mono, epoch: &ingest.Epoch{ID: "probe"}}
	l.decoder = decode.New(decode.Config{Decoders: cfg.Decoders, Open: cfg.Open, Chosen: l.chosen}, l)
	var wg sync.WaitGroup
	wg.Go(func() {
		err := cfg.Source.Run(ctx, l)
		if err == nil {
			err = errors.New("the session ended")
		}
		cancel(err)
	})
	decoding := make(chan struct{})
	//nolint:gocritic // a decoder that hangs in C cannot be waited for
	go func() {
		defer close(decoding)
		if err := l.decoder.Run(ctx); err != nil {
			cancel(err)
		}
	}()
	l.watch(ctx, cfg)
	ended := context.Cause(ctx)
	cancel(nil)
	wg.Wait()
	t := time.NewTimer(cfg.Hung)
	defer t.Stop()
	select {
	case <-decoding:
	case <-t.C:
		l.decoder.Abandon()
	}
	return l.judge(ended, cfg.Transport)
}

// chosen is told which decoder is used.
func (l *look) chosen(name, fallback string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result.Decoder, l.result.Fallback = name, fallback
}

// watch returns when enough has been seen or nothing more will come.
func (l *look) watch(ctx context.Context, cfg Config) {
	t := time.NewTimer(cfg.FirstFrame)
	defer t.Stop()
	select {
	case <-l.first:
		t.Reset(cfg.Watch)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	case <-t.C:
	case <-ctx.Done():
	}
}

// Reached is part of ingest.Sink.
func (l *look) Reached(s ingest.Stage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage = s
}

// Stream is part of ingest.Sink.
func (l *look) Stream(s ingest.Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result.Stream = s
}

// SenderReport is part of ingest.Sink.
func (l *look) SenderReport(r ingest.SenderReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock.Report(r)
}

// Packets is part of ingest.Sink.
func (l *look) Packets(received, _, lost, bad uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent += received + lost
	l.lost += lost + bad
}

// AccessUnit is part of ingest.Sink.
func (l *look) AccessUnit(au ingest.AccessUnit) {
	l.mu.Lock()
	if l.units == 0 {
		l.epoch.Origin = au.Ticks
	} else if au.Ticks < l.lastTicks {
		l.reordered = true
	}
	l.units++
	if !l.over {
		if l.units == 1 {
			l.opened = au.Received.Mono
		}
		l.over = l.burst.Over(au.Ticks, au.Received.Mono) || au.Received.Mono-l.opened > burstMost
		l.firstUnit, l.paced, l.bytes = au.Received.Mono, 0, 0
	}
	l.paced++
	l.bytes += len(au.Data)
	l.lastUnit, l.lastTicks = au.Received.Mono, au.Ticks
	if au.Keyframe {
		if l.sinceKey > 0 {
			l.gops = append(l.gops, l.sinceKey)
		}
		l.sinceKey = 0
		l.stage = max(l.stage, ingest.StageFirstKeyframe)
	}
	if l.sinceKey > 0 || au.Keyframe {
		l.sinceKey++
	}
	stamp := l.clock.Unit(au.Ticks, au.Received)
	if stamp.Jumped {
		l.clock = l.clock.Next()
		stamp = l.clock.Unit(au.Ticks, au.Received)
	}
	codec := l.result.Stream.Codec
	l.mu.Unlock()
	select {
	case <-l.first: // one picture is enough
		return
	default:
	}
	l.decoder.Push(decode.Unit{AccessUnit: au, Epoch: l.epoch, Codec: codec, Stamp: decode.Stamp{Capture: stamp.Capture, Quality: stamp.Quality}})
}

// Decoded is part of decode.Output.
func (l *look) Decoded(ingest.Frame) {}

// Skipped is part of decode.Output.
func (l *look) Skipped() {}

// FormatChanged is part of decode.Output.
func (l *look) FormatChanged(old *ingest.Epoch, _ image.Point) *ingest.Epoch {
	return &ingest.Epoch{ID: "probe", Origin: old.Origin}
}

// Frame is part of decode.Output. A picture that is not whole is shown only where none follows that is.
func (l *look) Frame(_ context.Context, f ingest.Frame, p *av.Picture) {
	if l.whole || l.shown && f.Tainted {
		return
	}
	l.shown, l.whole = true, !f.Tainted
	took := ingest.Now().Mono
	pixels := make([]byte, f.Size.X*f.Size.Y+2*((f.Size.X+1)/2)*((f.Size.Y+1)/2)+64)
	var jpeg []byte
	if p.I420(pixels) == nil {
		// A camera without a picture is still a camera.
		jpeg, _, _ = av.JPEG(av.Still{Pixels: pixels, Width: f.Size.X, Height: f.Size.Y, FullRange: f.FullRange, Matrix: av.Matrix(f.Matrix)}, image.Rectangle{}, 1280, 0)
	}
	l.mu.Lock()
	l.stage = ingest.StageFirstFrame
	l.result.FirstFrame, l.result.Picture = took-l.began, jpeg
	l.result.Stream.Width, l.result.Stream.Height = f.Size.X, f.Size.Y
	l.mu.Unlock()
	if !f.Tainted {
		close(l.first)
	}
}

// judge writes down what was seen; the goroutines are gone, but for that of a decoder that hangs.
func (l *look) judge(ended error, t ingest.Transport) Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.result
	if r.FirstFrame == 0 {
		if e := ingest.AsError(ended); e != nil && !errors.Is(ended, context.Canceled) {
			r.Err, r.Stage = e, e.Stage
			return r
		}
		r.Stage = l.stage + 1
		r.Err = ingest.Overdue(r.Stage, t)
		if failed := l.decoder.Counts().Errors; r.Stage == ingest.StageFirstFrame && failed > 0 {
			r.Err = ingest.Undecodable(failed)
		}
		return r
	}
	if d := (l.lastUnit - l.firstUnit).Seconds(); d > 0.5 {
		r.Rate = float64(l.paced-1) / d
		r.BitRate = float64(l.bytes) * 8 / d
	}
	shortest, longest := 0, l.sinceKey
	for _, g := range l.gops {
		if shortest == 0 || g < shortest {
			shortest = g
		}
		longest = max(longest, g)
	}
	r.GOP = longest
	r.Reports, r.ClockOffset = l.clock.Reports()
	r.Warnings = l.warnings(r, shortest, longest)
	return r
}

func (l *look) warnings(r Result, shortest, longest int) []Warning {
	var w []Warning
	warn := func(k Kind, format string, args ...any) { w = append(w, Warning{k, fmt.Sprintf(format, args...)}) }
	if r.Rate > 0 && float64(longest)/r.Rate > 4 {
		warn(LongGOP, "%.0f s and more between keyframes: set the camera's I-frame interval to 1 or 2 s and turn its smart coding (H.264+, H.265+) off", float64(longest)/r.Rate)
	}
	if len(l.gops) > 1 && longest > shortest*3/2 {
		warn(VariableGOP, "between %d and %d pictures from keyframe to keyframe: turn the camera's smart coding (H.264+, H.265+) off", shortest, longest)
	}
	if r.Stream.Width*r.Stream.Height > 1920*1088 {
		warn(LargeFrame, "%d×%d pixels: use the camera's sub stream for analysis", r.Stream.Width, r.Stream.Height)
	}
	if r.Stream.Codec == ingest.H265 && r.Decoder == decode.Software {
		warn(H265Software, "H.265 is decoded in software, which costs about twice what H.264 does: choose H.264, or an accelerator where this box has one")
	}
	if r.Stream.RTCP && !r.Reports {
		warn(NoSenderReports, "the camera sends no RTCP sender reports: capture times are estimated from arrival")
	}
	if r.ClockOffset.Abs() > time.Second {
		warn(ClockOffset, "the camera's clock is off by %v: give it an NTP server", r.ClockOffset.Round(time.Millisecond))
	}
	if l.sent > 0 && l.lost > 0 {
		warn(PacketLoss, "%d of %d packets were lost or damaged", l.lost, l.sent)
	}
	if l.reordered {
		warn(BFrames, "pictures are sent out of order (B-frames), which delays every one of them: choose the Baseline or Main profile without B-frames")
	}
	return w
}
