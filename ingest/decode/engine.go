package decode

import (
	"errors"
	"path/filepath"
	"slices"
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

// Auto stands for the accelerators this machine has, then Software.
const Auto = "auto"

// accelerators in the order Auto prefers them: the name people know, libavutil's or, for V4L2, the ending of libavcodec's
// decoders, and the device that must be there.
var accelerators = []struct{ name, libav, device string }{ //nolint:gochecknoglobals // a table
	{"nvdec", "cuda", "/dev/nvidia[0-9]*"},
	{"vaapi", "vaapi", "/dev/dri/renderD*"},
	// The stateful codecs of Raspberry Pi and others; cameras are /dev/video0 and up.
	{"v4l2", "v4l2m2m", "/dev/video1[0-9]"},
}

// expand writes out what Auto stands for, by the devices below root.
func expand(list []string, root string) []string {
	var all []string
	add := func(name string) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for _, name := range list {
		if name != Auto {
			add(name)
			continue
		}
		for _, a := range accelerators {
			if found, err := filepath.Glob(root + a.device); err == nil && len(found) > 0 {
				add(a.name)
			}
		}
		add(Software)
	}
	return all
}

// openEngine opens a decoder by name: Software, one of accelerators, or another acceleration of libavutil's.
func openEngine(name string, cfg av.DecoderConfig) (Engine, error) {
	if name != Software {
		cfg.Hardware, cfg.Threads, cfg.FrameThreads = name, 1, false
	}
	for _, a := range accelerators {
		if a.name == name {
			cfg.Hardware = a.libav
		}
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
	if list = expand(list, ""); len(list) == 0 {
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
