// Package file reads a video file, or the files of a folder by name, as if they were a camera, in real time or as fast
// as they are read.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/bitstream"
	"github.com/vedette/vedette/internal/av"
	"github.com/vedette/vedette/internal/pause"
)

// Config of a source.
type Config struct {
	// Path of a file, or of a folder whose video files are read by name, one after the other; others in it are left out.
	Path string
	// FullSpeed reads as fast as the sink takes; otherwise in real time.
	FullSpeed bool
	// Now reads both clocks; nil: the box's.
	Now    func() ingest.Instant
	Logger *slog.Logger // nil: discard
}

// Source is one pass over a file.
type Source struct{ cfg Config }

// New opens nothing.
func New(cfg Config) *Source {
	if cfg.Now == nil {
		cfg.Now = ingest.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{cfg: cfg}
}

// Run reads to the end and returns io.EOF; nil when ctx ended before. A file that cannot be read, or not to its end, is
// passed over, counted and logged; its error is returned when there is no other.
func (s *Source) Run(ctx context.Context, sink ingest.Sink) error {
	paths, err := files(s.cfg.Path)
	if err != nil {
		return typed(err)
	}
	p := pass{cfg: s.cfg, sink: sink, start: -1}
	var first error
	for _, path := range paths {
		err := p.file(ctx, path)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // asked to stop
		}
		if err != nil {
			// What was read before it was analysed, and would be again if all began anew.
			sink.Packets(0, 0, 0, 1)
			s.cfg.Logger.Warn("a file, or the rest of it, is passed over", slog.Any("err", err))
			first = cmp.Or(first, err)
		}
	}
	if first != nil && !p.announced {
		return first
	}
	return io.EOF
}

// files lists what is read of a path.
func files(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path) // by name
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		switch strings.ToLower(filepath.Ext(e.Name())) {
		case ".mp4", ".mov", ".m4v", ".mkv", ".webm", ".ts", ".m2ts", ".avi", ".3gp", ".h264", ".264", ".h265", ".265", ".hevc", ".mjpeg", ".mjpg", ".ivf", ".obu":
			list = append(list, filepath.Join(path, e.Name()))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no video file in the folder %s: %w", path, fs.ErrNotExist)
	}
	return list, nil
}

// pass is one way through the files.
type pass struct {
	cfg       Config
	sink      ingest.Sink
	start     time.Duration // mono of media time 0; negative: not known yet
	base, end time.Duration // media time at which the file begins, and the next one may
	announced bool
}

// file reads one file to its end.
func (p *pass) file(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return typed(err)
	}
	if !info.Mode().IsRegular() {
		return typed(fmt.Errorf("open %s: %w", path, errNoFile))
	}
	d, err := av.OpenFile(path)
	if err != nil {
		return typed(err)
	}
	defer d.Close()
	if d.Turn != 0 {
		p.cfg.Logger.Warn("a file asks players to turn its pictures; they are analysed as they are coded (ffmpeg -i IN OUT turns them for good)",
			slog.String("file", path), slog.Int("degrees_clockwise", d.Turn))
	}
	codec := codecOf(d.Codec)
	if !p.announced {
		for stage := ingest.StageDial; stage <= ingest.StageFirstPacket; stage++ {
			p.sink.Reached(stage)
		}
	}
	a := bitstream.NewAssembler(codec)
	first := true
	step := 40 * time.Millisecond
	if d.Rate > 0 {
		step = time.Duration(float64(time.Second) / d.Rate)
	}
	p.base = p.end
	var packet av.Packet
	for ctx.Err() == nil {
		err := d.Read(&packet)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &ingest.Error{Reason: ingest.ReasonDecode, Stage: ingest.StagePackets, Err: fmt.Errorf("read %s: %w", path, err)}
		}
		p.sink.Packets(1, uint64(len(packet.Data)), 0, 0)
		data, key, changed := a.Assemble(split(codec, packet.Data))
		if len(data) == 0 {
			continue
		}
		if changed || first {
			first, p.announced = false, true
			stream := a.Stream()
			if stream.Width == 0 {
				stream.Width, stream.Height = d.Width, d.Height
			}
			p.sink.Stream(stream)
		}
		dts, pts := p.base+packet.DTS, p.base+packet.PTS
		p.end = max(p.end, max(dts, pts)+step)
		now := p.cfg.Now()
		if p.start < 0 {
			p.start = max(now.Mono-dts, 0)
		}
		if !p.cfg.FullSpeed && !pause.For(ctx, p.start+dts-now.Mono) {
			return nil
		}
		p.sink.AccessUnit(ingest.AccessUnit{
			Data: data, Ticks: ingest.TicksOf(pts), Received: p.cfg.Now(), Keyframe: key || (packet.Key && codec != ingest.H264 && codec != ingest.H265), Recovery: a.Recovery(),
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

// errNoFile: whoever opens a FIFO waits until somebody writes into it.
var errNoFile = errors.New("this is a folder, a device, a socket or a FIFO, and no file")

func typed(err error) error {
	reason := ingest.ReasonDecode
	switch {
	case errors.Is(err, fs.ErrNotExist):
		reason = ingest.ReasonNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, errNoFile):
		reason = ingest.ReasonInvalidConfig
	case errors.Is(err, av.ErrNoDemuxer):
		reason = ingest.ReasonInternal
	case errors.Is(err, av.ErrNoVideo):
		reason = ingest.ReasonCodecUnsupported
	default:
		err = fmt.Errorf("%w: this is no video file, or not a whole one", err)
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
