package decode

import (
	"errors"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/internal/av"
)

// Engine decodes one stream; *av.Decoder says what its methods do.
type Engine interface {
	Send(data []byte, pts int64) error
	Receive(p *av.Picture) (bool, error)
	Drain()
	SetSkipNonReference(on bool)
	Close()
}

// Software is the name of the decoder every machine has.
const Software = "software"

// openEngine opens a decoder by name: Software or an acceleration of libavutil's.
func openEngine(name string, cfg av.DecoderConfig) (Engine, error) {
	if name != Software {
		cfg.Hardware, cfg.Threads, cfg.FrameThreads = name, 1, false
	}
	d, err := av.NewDecoder(cfg)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// maxFailures in a row, without a picture in between, are the decoder's fault and not the stream's. The last of
// the list is kept whatever it does: there is nothing after it.
const maxFailures = 8

// choice is the place in the list of decoders.
type choice struct {
	list     []string
	at       int
	failures int    // in a row
	reason   string // why the first is not used; empty: it is
	retry    time.Duration
	retryAt  time.Duration // mono
}

func newChoice(list []string, retry time.Duration) choice {
	if len(list) == 0 {
		list = []string{Software}
	}
	if retry <= 0 {
		retry = 10 * time.Minute
	}
	return choice{list: list, retry: retry}
}

func (c *choice) name() string { return c.list[c.at] }

// failed moves on to the next decoder; false when there is none.
func (c *choice) failed(err error, mono time.Duration) bool {
	if c.at+1 >= len(c.list) {
		return false
	}
	if c.at == 0 {
		c.retryAt = mono + c.retry
	}
	c.reason = c.name() + ": " + err.Error()
	c.at, c.failures = c.at+1, 0
	return true
}

// due reports whether it is time to try the first decoder again, and goes back to it.
func (c *choice) due(mono time.Duration) bool {
	if c.at == 0 || mono < c.retryAt {
		return false
	}
	c.at, c.failures, c.reason = 0, 0, ""
	return true
}

// open opens a decoder for a codec, the next of the list where one cannot be had.
func (w *worker) open(c ingest.Codec) error {
	if w.dec != nil {
		w.dec.Close()
		w.dec = nil
	}
	for {
		dec, err := w.d.cfg.Open(w.choice.name(), av.DecoderConfig{Codec: codecOf(c), Threads: w.d.cfg.Threads, FrameThreads: w.d.cfg.Throughput})
		if err == nil {
			w.dec, w.codec, w.synced = metered{dec, &w.d.cpu}, c, false
			clear(w.pending)
			w.d.cfg.Chosen(w.choice.name(), w.choice.reason)
			return nil
		}
		if w.choice.failed(err, ingest.Now().Mono) {
			w.d.counts.fallbacks.Add(1)
			continue
		}
		reason := ingest.ReasonDecode
		if errors.Is(err, av.ErrUnsupported) {
			reason = ingest.ReasonCodecUnsupported
		}
		return &ingest.Error{Reason: reason, Stage: ingest.StageFirstFrame, Err: err}
	}
}

// fault counts what the decoder could not do; one that can do nothing any more is replaced by the next.
func (w *worker) fault(err error) {
	w.d.counts.errors.Add(1)
	w.tainted = true
	if w.choice.failures++; w.choice.failures < maxFailures || !w.choice.failed(err, ingest.Now().Mono) {
		return
	}
	w.d.counts.fallbacks.Add(1)
	w.dec.Close()
	w.dec = nil // the next unit opens the next
}
