// Package file reads a video file as if it were a camera, in real time or as fast as it is read.
package file

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/bitstream"
	"github.com/vedette/vedette/internal/av"
)

// Config of a source.
type Config struct {
	// Path of the file.
	Path string
	// FullSpeed reads as fast as the sink takes; otherwise in real time.
	FullSpeed bool
	// Now reads both clocks; nil: the box's.
	Now func() ingest.Instant
}

// Source is one pass over a file.
type Source struct{ cfg Config }

// New opens nothing.
func New(cfg Config) *Source {
	if cfg.Now == nil {
		cfg.Now = ingest.Now
	}
	return &Source{cfg: cfg}
}

// Run reads the file to its end and returns io.EOF; nil when ctx ended before.
func (s *Source) Run(ctx context.Context, sink ingest.Sink) error {
	d, err := av.OpenFile(s.cfg.Path)
	if err != nil {
		return typed(err)
	}
	defer d.Close()
	codec := codecOf(d.Codec)
	for stage := ingest.StageDial; stage <= ingest.StageFirstPacket; stage++ {
		sink.Reached(stage)
	}
	a := bitstream.NewAssembler(codec)
	announced := false
	var p av.Packet
	start := time.Duration(-1)
	for ctx.Err() == nil {
		err := d.Read(&p)
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		if err != nil {
			return &ingest.Error{Reason: ingest.ReasonDecode, Stage: ingest.StagePackets, Err: err}
		}
		sink.Packets(1, uint64(len(p.Data)), 0, 0)
		data, key, changed := a.Assemble(split(codec, p.Data))
		if len(data) == 0 {
			continue
		}
		if changed || !announced {
			announced = true
			stream := a.Stream()
			if stream.Width == 0 {
				stream.Width, stream.Height = d.Width, d.Height
			}
			sink.Stream(stream)
		}
		now := s.cfg.Now()
		if start < 0 {
			start = now.Mono - p.DTS
		}
		if !s.cfg.FullSpeed && !pause(ctx, start+p.DTS-now.Mono) {
			return nil
		}
		sink.AccessUnit(ingest.AccessUnit{
			Data: data, Ticks: ingest.TicksOf(p.PTS), Received: s.cfg.Now(), Keyframe: key || (p.Key && codec != ingest.H264 && codec != ingest.H265),
		})
	}
	return nil
}

// split cuts a packet into what the assembler takes.
func split(c ingest.Codec, data []byte) [][]byte {
	if c == ingest.H264 || c == ingest.H265 {
		return bitstream.Units(data)
	}
	return [][]byte{data}
}

// pause waits for d; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func typed(err error) error {
	reason := ingest.ReasonDecode
	switch {
	case errors.Is(err, fs.ErrNotExist):
		reason = ingest.ReasonNotFound
	case errors.Is(err, fs.ErrPermission):
		reason = ingest.ReasonInvalidConfig
	case errors.Is(err, av.ErrUnsupported):
		reason = ingest.ReasonCodecUnsupported
	}
	return &ingest.Error{Reason: reason, Stage: ingest.StageDial, Err: err}
}

func codecOf(c av.Codec) ingest.Codec {
	switch c {
	case av.H264:
		return ingest.H264
	case av.H265:
		return ingest.H265
	case av.MJPEG:
		return ingest.MJPEG
	case av.AV1:
		return ingest.AV1
	default:
		return 0
	}
}
