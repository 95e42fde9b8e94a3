// Package rtsptest is a camera for tests: a clip made on the spot, served over real RTSP in the test's own
// process, with every fault a test asks for.
package rtsptest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/av1"
)

// ClipConfig says what to render.
type ClipConfig struct {
	// Codec is "h264" (empty), "h265", "av1" or "mjpeg".
	Codec string
	// Width and Height; 0: 320×240.
	Width, Height int
	// Rate in pictures a second; 0: 25.
	Rate int
	// Frames; 0: 50.
	Frames int
	// GOP is the distance of keyframes; 0: 25.
	GOP int
	// BFrames between two others.
	BFrames int
	// Source is an ffmpeg filter; empty: a moving test picture.
	Source string
	// Extra arguments for ffmpeg, before the output.
	Extra []string
}

// Unit is one access unit of a clip, in decoding order.
type Unit struct {
	// NALUs without start codes, delimiters left out; for AV1 OBUs without sizes, for MJPEG one JPEG.
	NALUs [][]byte
	// PTS in 90 kHz ticks, from 0.
	PTS int64
	Key bool
}

// Clip is a rendered clip.
type Clip struct {
	ClipConfig

	Units []Unit
	// Sets are the parameter sets: (VPS,) SPS, PPS.
	Sets [][]byte
	// Other is what the camera plays after Switch: as many pictures at the same rate, with keyframes at the same places.
	Other *Clip
}

// Render makes a clip with the ffmpeg of this machine.
func Render(tb testing.TB, cfg ClipConfig) *Clip {
	tb.Helper()
	cfg.Codec = or(cfg.Codec, "h264")
	cfg.Width, cfg.Height = or(cfg.Width, 320), or(cfg.Height, 240)
	cfg.Rate, cfg.Frames, cfg.GOP = or(cfg.Rate, 25), or(cfg.Frames, 50), or(cfg.GOP, 25)
	cfg.Source = or(cfg.Source, "testsrc2")
	separator := "="
	if strings.Contains(cfg.Source, "=") {
		separator = ":"
	}
	args := []string{
		"-nostdin", "-loglevel", "error", "-f", "lavfi",
		"-i", fmt.Sprintf("%s%ssize=%dx%d:rate=%d", cfg.Source, separator, cfg.Width, cfg.Height, cfg.Rate),
		"-frames:v", strconv.Itoa(cfg.Frames), "-pix_fmt", "yuv420p", "-threads", "1",
	}
	common := fmt.Sprintf("keyint=%d:min-keyint=%d:scenecut=0:bframes=%d:b-adapt=0:aud=1", cfg.GOP, cfg.GOP, cfg.BFrames)
	switch cfg.Codec {
	case "h264":
		args = append(args, "-c:v", "libx264", "-preset", "ultrafast", "-x264-params", common+":b-pyramid=none:open-gop=0", "-f", "h264")
	case "h265":
		args = append(args, "-c:v", "libx265", "-preset", "ultrafast", "-x265-params", common+":log-level=none:open-gop=0:repeat-headers=1:b-pyramid=0", "-f", "hevc")
	case "av1":
		args = append(args, "-c:v", "libaom-av1", "-cpu-used", "8", "-usage", "realtime", "-lag-in-frames", "0", "-g", strconv.Itoa(cfg.GOP), "-b:v", "500k", "-f", "obu")
	case "mjpeg":
		args = append(args, "-c:v", "mjpeg", "-q:v", "5", "-huffman", "default", "-pix_fmt", "yuvj420p", "-f", "mjpeg")
	default:
		tb.Fatalf("render: codec %q", cfg.Codec)
	}
	args = append(args, cfg.Extra...)
	cmd := exec.CommandContext(tb.Context(), "ffmpeg", append(args, "-")...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		tb.Fatalf("render: %v: %s", err, errs.String())
	}
	c := &Clip{ClipConfig: cfg}
	switch cfg.Codec {
	case "mjpeg":
		c.cutJPEG(out.Bytes())
	case "av1":
		if err := c.cutOBUs(out.Bytes()); err != nil {
			tb.Fatalf("render: %v", err)
		}
	default:
		c.cutAnnexB(out.Bytes())
	}
	c.time()
	if len(c.Units) != cfg.Frames {
		tb.Fatalf("render: %d access units of %d frames", len(c.Units), cfg.Frames)
	}
	return c
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// cutAnnexB begins a unit at every access unit delimiter.
func (c *Clip) cutAnnexB(b []byte) {
	hevc := c.Codec == "h265"
	if hevc {
		c.Sets = make([][]byte, 3)
	} else {
		c.Sets = make([][]byte, 2)
	}
	for n := range bytes.SplitSeq(b, []byte{0, 0, 1}) {
		n = bytes.TrimRight(n, "\x00")
		if len(n) == 0 {
			continue
		}
		kind := n[0] & 0x1F
		delimiter, set, key := kind == 9, int(kind)-7, kind == 5
		if hevc {
			kind = n[0] >> 1 & 0x3F
			delimiter, set, key = kind == 35, int(kind)-32, kind >= 16 && kind <= 21
		}
		if delimiter {
			c.Units = append(c.Units, Unit{})
			continue
		}
		if set >= 0 && set < len(c.Sets) {
			c.Sets[set] = n
		}
		u := &c.Units[len(c.Units)-1]
		u.NALUs = append(u.NALUs, n)
		u.Key = u.Key || key
	}
}

// cutOBUs begins a unit at every temporal delimiter.
func (c *Clip) cutOBUs(b []byte) error {
	var all av1.Bitstream
	if err := all.Unmarshal(b); err != nil {
		return err
	}
	for _, o := range all {
		const sequenceHeader, temporalDelimiter = 1, 2
		kind := o[0] >> 3 & 0xF
		if kind == temporalDelimiter {
			c.Units = append(c.Units, Unit{})
			continue
		}
		u := &c.Units[len(c.Units)-1]
		u.NALUs = append(u.NALUs, o)
		u.Key = u.Key || kind == sequenceHeader
	}
	return nil
}

func (c *Clip) cutJPEG(b []byte) {
	for len(b) > 0 {
		n := len(b)
		if i := bytes.Index(b, []byte{0xFF, 0xD9}); i >= 0 {
			n = i + 2
		}
		c.Units = append(c.Units, Unit{NALUs: [][]byte{b[:n]}, Key: true})
		b = b[n:]
	}
}

// Delivered is a unit as ingest hands it on: keyframes with their parameter sets, AV1 as one temporal unit.
func (c *Clip) Delivered(u Unit) [][]byte {
	switch {
	case c.Codec == "av1":
		return [][]byte{temporalUnit(u.NALUs)}
	case u.Key:
		return append(append([][]byte{}, c.Sets...), u.NALUs...)
	default:
		return u.NALUs
	}
}

// temporalUnit gives OBUs their sizes, behind a delimiter.
func temporalUnit(obus [][]byte) []byte {
	b := []byte{2<<3 | 2, 0}
	for _, o := range obus {
		b = binary.AppendUvarint(append(b, o[0]|2), uint64(len(o)-1))
		b = append(b, o[1:]...)
	}
	return b
}

// time gives every unit its place: with B-frames, a picture is sent before the BFrames shown before it.
func (c *Clip) time() {
	step := int64(90000 / c.Rate)
	for start := 0; start < len(c.Units); {
		end := start + 1
		for end < len(c.Units) && !c.Units[end].Key {
			end++
		}
		// Within a group: I, then runs of (P, B, B …). A short last run has fewer B.
		c.Units[start].PTS = int64(start) * step
		for i := start + 1; i < end; {
			run := min(c.BFrames, end-i-1)
			c.Units[i].PTS = int64(i+run) * step
			for b := range run {
				c.Units[i+1+b].PTS = int64(i+b) * step
			}
			i += run + 1
		}
		start = end
	}
}

// Duration of the clip in 90 kHz ticks.
func (c *Clip) Duration() int64 { return int64(len(c.Units)) * int64(90000/c.Rate) }
