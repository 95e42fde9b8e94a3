// Package decode turns one camera's access units into frames: it decodes them, chooses those to be
// analysed before anything is copied, and marks those that damage has reached.
package decode

import (
	"context"
	"errors"
	"image"
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/internal/av"
)

// Stamp is a unit's capture time.
type Stamp struct {
	Capture time.Time
	Quality ingest.TimeQuality
}

// Output takes decoded frames. Called by the decoding goroutine alone.
type Output interface {
	// Decoded is told of every decoded picture, chosen or not.
	Decoded(f ingest.Frame)
	// Skipped says that a unit was not decoded because its picture would not be chosen.
	Skipped()
	// Frame is given the chosen ones. The picture is valid until it returns.
	Frame(ctx context.Context, f ingest.Frame, p *av.Picture)
	// FormatChanged says that pictures have another size than the epoch they came in with began with,
	// and returns the epoch they belong to from now on.
	FormatChanged(old *ingest.Epoch, size image.Point) *ingest.Epoch
}

// Config of a Decoder.
type Config struct {
	// Rate of frames chosen, by capture time; 0: every one.
	Rate float64
	// QueueBytes bounds the units waiting to be decoded; 0: 8 MiB.
	QueueBytes int
	// Threads for one picture; 0: 1.
	Threads int
	// Throughput uses the threads for several pictures at once, which holds pictures back: files.
	Throughput bool
	// Decoders in order of preference: Software and names of libavutil's accelerations; empty: Software.
	Decoders []string
	// Retry is how long to do without a preferred decoder that failed; 0: 10 min.
	Retry time.Duration
	// Open opens a decoder by its name; nil: libavcodec's.
	Open func(name string, cfg av.DecoderConfig) (Engine, error)
	// Chosen is told which decoder is used and why not the first; nil: nobody is. Called by the decoding goroutine.
	Chosen func(name, fallback string)
	// Still reports whether nothing moves in what was decoded last, and how long to go by the sizes of coded pictures
	// alone; nil: everything is decoded. Called by the decoding goroutine.
	Still func() (recheck time.Duration, still bool)
	// Ahead is shown a keyframe's picture before its frame, which may never come. It reports whether nothing moves there either,
	// and whether the frame is due all the same. Where something moves, the frames before it come first. Required with Still;
	// called by the decoding goroutine.
	Ahead func(e *ingest.Epoch, capture time.Time, p *av.Picture) (calm, due bool)
	// Budget bounds how many decoders work at the same time on this box; nil: no bound.
	Budget *Budget
}

// Counts of what happened, as totals.
type Counts struct {
	Late, NoKeyframe, Decoded, Tainted, Errors, Unsampled, Fallbacks uint64
	// Still units would have been analysed, but were not even decoded: nothing moved.
	Still uint64
	// CPU is the processor time spent in decoding, on the decoder's own thread.
	CPU time.Duration
}

// Add returns the sum of both.
func (c Counts) Add(o Counts) Counts {
	return Counts{
		Late: c.Late + o.Late, NoKeyframe: c.NoKeyframe + o.NoKeyframe, Decoded: c.Decoded + o.Decoded,
		Tainted: c.Tainted + o.Tainted, Errors: c.Errors + o.Errors, Unsampled: c.Unsampled + o.Unsampled, Fallbacks: c.Fallbacks + o.Fallbacks, Still: c.Still + o.Still,
		CPU: c.CPU + o.CPU,
	}
}

// Decoder decodes one camera.
type Decoder struct {
	cfg   Config
	out   Output
	queue *queue

	rate   atomic.Pointer[float64] // a new rate to apply, or nil
	counts struct {
		noKeyframe, decoded, tainted, errors, unsampled, fallbacks, still atomic.Uint64
	}
	cpu    atomic.Int64 // of Counts.CPU
	latest latest
	held   atomic.Bool  // a place of the budget
	asked  atomic.Int64 // mono when somebody last wanted the newest picture
}

// New returns a decoder; Run makes it work.
func New(cfg Config, out Output) *Decoder {
	if cfg.QueueBytes <= 0 {
		cfg.QueueBytes = 8 << 20
	}
	if cfg.Open == nil {
		cfg.Open = openEngine
	}
	if cfg.Chosen == nil {
		cfg.Chosen = func(string, string) {}
	}
	return &Decoder{cfg: cfg, out: out, queue: newQueue(cfg.QueueBytes)}
}

// Push hands over a unit; it never waits. When decoding cannot follow, in bytes or in time, units are dropped
// up to the next keyframe and counted.
func (d *Decoder) Push(u Unit) { d.queue.push(u) }

// SetRate changes Config.Rate from the next frame on.
func (d *Decoder) SetRate(rate float64) { d.rate.Store(&rate) }

// Counts returns the totals so far.
func (d *Decoder) Counts() Counts {
	return Counts{
		Late: d.queue.dropped(), NoKeyframe: d.counts.noKeyframe.Load(), Decoded: d.counts.decoded.Load(),
		Tainted: d.counts.tainted.Load(), Errors: d.counts.errors.Load(), Unsampled: d.counts.unsampled.Load(),
		Fallbacks: d.counts.fallbacks.Load(), Still: d.counts.still.Load(), CPU: time.Duration(d.cpu.Load()),
	}
}

// Run decodes what is pushed until ctx ends (nil) or no decoder can be opened (an *ingest.Error).
func (d *Decoder) Run(ctx context.Context) error {
	w := d.worker()
	defer w.close()
	for {
		u, err := d.queue.pop(ctx)
		if err != nil {
			return nil
		}
		if err := w.unit(ctx, u); err != nil {
			return err
		}
	}
}

// All decodes the units next returns, waiting for each frame to be taken, until next says
// io.EOF, and then what the decoder held back: files.
func (d *Decoder) All(ctx context.Context, next func() (Unit, error)) error {
	w := d.worker()
	defer w.close()
	for ctx.Err() == nil {
		u, err := next()
		if errors.Is(err, io.EOF) {
			return w.drain(ctx)
		}
		if err != nil {
			return err
		}
		if err := w.unit(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// hold takes a place of the budget.
func (d *Decoder) hold() {
	if d.cfg.Budget != nil && d.cfg.Budget.take() {
		d.held.Store(true)
	}
}

func (d *Decoder) letGo() {
	if d.held.Swap(false) {
		d.cfg.Budget.give()
	}
}

// Abandon takes back what a decoder holds that does not return: its place of the budget. Its Run ends if it
// ever does, without calling its Output again.
func (d *Decoder) Abandon() { d.letGo() }

func (d *Decoder) worker() *worker {
	return &worker{d: d, sampler: newSampler(d.cfg.Rate), choice: newChoice(d.cfg.Decoders, d.cfg.Retry), pending: map[int64]pending{}}
}

// worker is what one run holds.
type worker struct {
	d       *Decoder
	dec     Engine
	choice  choice
	codec   ingest.Codec
	sampler sampler
	groups  groups
	still   still
	fresh   time.Time // capture of the newest keyframe decoded while others are skipped
	synced  bool      // a keyframe has been sent since the decoder was opened
	tainted bool
	mending int          // units after which pictures are right again; 0: they are, or it is not known
	right   ingest.Ticks // pictures shown before that refer to what was tainted

	next    int64
	pending map[int64]pending // units sent and not yet come back as pictures
	picture av.Picture

	epoch  *ingest.Epoch // of the frames going out
	from   *ingest.Epoch // the units' epoch that epoch replaces, when the format changed
	size   image.Point
	number uint64
	last   time.Time // capture of the frame before
}

type pending struct {
	unit    Unit
	tainted bool
}

func (w *worker) close() {
	if w.dec != nil {
		w.dec.Close()
	}
	w.picture.Close()
	w.d.latest.close()
}

// unit decodes a unit, unless it may wait.
func (w *worker) unit(ctx context.Context, u Unit) error {
	if waits, err := w.holds(ctx, &u); waits || err != nil {
		return err
	}
	return w.decode(ctx, u)
}

func (w *worker) decode(ctx context.Context, u Unit) error {
	if r := w.d.rate.Swap(nil); r != nil {
		w.sampler = newSampler(*r)
	}
	if w.dec == nil || u.Codec != w.codec || (u.Keyframe && w.choice.due(ingest.Now().Mono)) {
		if err := w.open(u.Codec); err != nil {
			return err
		}
	}
	if w.skips(u) {
		w.d.counts.unsampled.Add(1)
		w.d.out.Skipped()
		return nil
	}
	switch {
	case u.Keyframe:
		w.keyframe(u)
	case !w.synced:
		w.d.counts.noKeyframe.Add(1)
		return nil
	default:
		w.between(u)
	}
	w.dec.SetSkipNonReference(!u.Keyframe && !w.wanted(u))
	pts := w.next
	w.next++
	data := u.Data
	u.Data = nil
	w.pending[pts] = pending{u, w.tainted || u.Ticks < w.right}
	w.d.hold()
	err := w.dec.Send(data, pts)
	w.d.letGo()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // asked to stop, perhaps long after everybody else has gone
	}
	if err != nil {
		if w.fault(err); w.dec == nil {
			return nil
		}
	}
	return w.receive(ctx)
}

// keyframe notes what a unit that decoding can begin with means for those after it.
func (w *worker) keyframe(u Unit) {
	wrong := !w.synced || w.tainted || u.Lost
	w.synced, w.right = true, math.MinInt64
	if u.Recovery > 0 {
		if wrong && w.mending == 0 || u.Lost || u.Damaged {
			w.mending = u.Recovery
		}
		w.tainted = wrong || u.Damaged
		return
	}
	if wrong {
		w.right = u.Ticks
	}
	w.tainted, w.mending = u.Damaged, 0
}

// between notes what any other unit means.
func (w *worker) between(u Unit) {
	if u.Ticks > w.right { // those shown before the keyframe are over
		w.right = math.MinInt64
	}
	if u.Lost || u.Damaged {
		w.tainted, w.mending = true, 0
		return
	}
	if w.mending > 0 {
		if w.mending--; w.mending == 0 {
			w.tainted = false
		}
	}
}

func codecOf(c ingest.Codec) av.Codec {
	switch c {
	case ingest.H264:
		return av.H264
	case ingest.H265:
		return av.H265
	case ingest.MJPEG:
		return av.MJPEG
	case ingest.AV1:
		return av.AV1
	default:
		return 0
	}
}

func (w *worker) drain(ctx context.Context) error {
	w.forget()
	if w.dec == nil {
		return nil
	}
	return w.finish(ctx)
}

// finish takes what the decoder held back, and closes it.
func (w *worker) finish(ctx context.Context) error {
	w.dec.Drain()
	err := w.receive(ctx)
	if w.dec != nil {
		w.dec.Close()
		w.dec = nil
	}
	return err
}

func (w *worker) receive(ctx context.Context) error {
	for {
		ok, err := w.dec.Receive(&w.picture)
		if errors.Is(err, io.EOF) || (!ok && err == nil) {
			return nil
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // asked to stop
		}
		if err != nil {
			w.fault(err)
			return nil // counted; the next keyframe heals it
		}
		w.choice.failures = 0
		w.deliver(ctx)
	}
}

// maxPending bounds the memory of units that never come back as pictures (damaged, skipped, or
// fields of one picture). No codec reorders further.
const maxPending = 64

func (w *worker) deliver(ctx context.Context) {
	p, ok := w.pending[w.picture.PTS]
	delete(w.pending, w.picture.PTS)
	if len(w.pending) > maxPending {
		for pts := range w.pending {
			if pts < w.next-maxPending {
				delete(w.pending, pts)
			}
		}
	}
	if !ok {
		return // a second picture of one unit: it has no time of its own
	}
	f := w.frame(p)
	w.d.counts.decoded.Add(1)
	if f.Tainted {
		w.d.counts.tainted.Add(1)
	}
	w.d.out.Decoded(f)
	if w.sampler.take(f.Capture) {
		w.d.out.Frame(ctx, f, &w.picture)
	} else {
		w.d.counts.unsampled.Add(1)
	}
	w.d.latest.put(f, &w.picture)
}

// frame gives the picture its place in its epoch.
func (w *worker) frame(p pending) ingest.Frame {
	u, size := p.unit, image.Pt(w.picture.Width, w.picture.Height)
	e := u.Epoch
	if e == w.from {
		e = w.epoch // the units' epoch was replaced on the way
	}
	if e != w.epoch {
		w.epoch, w.from, w.size, w.number, w.last = e, nil, size, 0, time.Time{}
	} else if size != w.size {
		w.from = u.Epoch
		w.epoch, w.size, w.number = w.d.out.FormatChanged(e, size), size, 0
	}
	// Where there is only arrival to go by, pictures that come out of order would go back in time.
	if !u.Stamp.Capture.After(w.last) {
		u.Stamp.Capture = w.last.Add(time.Microsecond)
	}
	w.last = u.Stamp.Capture
	f := ingest.Frame{
		Epoch: w.epoch, Number: w.number, Capture: u.Stamp.Capture, Quality: u.Stamp.Quality, Received: u.Received, Decoded: ingest.Now().Mono,
		Ticks: u.Ticks - w.epoch.Origin, Size: size, Keyframe: u.Keyframe, Held: u.Held,
		Tainted: p.tainted || w.picture.Corrupt, FullRange: w.picture.FullRange, Matrix: ingest.Matrix(w.picture.Matrix),
	}
	w.number++
	return f
}
