package rtsp

import (
	"bytes"
	"encoding/base64"
	"image"
	"regexp"
	"strconv"
	"strings"

	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/sdpunmarshaler"
)

var (
	// Their clock is 90 kHz (RFC 6184, section 5.1; RFC 7798, section 4.1; AV1's RTP payload, section 4.1), and the library
	// reads no other.
	videoMap = regexp.MustCompile(`(?im)^(a=rtpmap:\s*(\d+)\s+(?:H264|H265|AV1|JPEG))\b(?:/(\d+))?[^\r\n]*`)
	// What they tell of a stream, it tells itself.
	parameters = regexp.MustCompile(`(?im)^a=fmtp:.*(?:\n|$)`)
	// Section 8.1 of RFC 6184, section 7.1 of RFC 7798.
	sprop = regexp.MustCompile(`(?i)\bsprop-(?:parameter-sets|vps|sps|pps)\s*=\s*([^;\r\n]*);?`)
	// The sides of JPEGs that are larger than their packets can say (section 3.1 of RFC 2435), as GStreamer and cameras write them.
	dimensions = regexp.MustCompile(`(?im)^a=(?:x-dimensions:\s*(\d+)\s*,\s*(\d+)|framesize:\s*\d+\s+(\d+)-(\d+))`)
)

// said is what a description says of video that the library does not hand on.
type said struct {
	clock int         // how many ticks a second it counts; 0: nothing that can be
	sets  [][]byte    // all parameter sets; the library knows one of a kind
	size  image.Point // 0: nothing
}

// read returns what a description says of its video, by payload type; where two tracks have the same one, of the first.
func read(sdp []byte) map[uint8]said {
	all := map[uint8]said{}
	for i, section := range bytes.Split(append([]byte{'\n'}, sdp...), []byte("\nm=")) {
		media, lines, _ := bytes.Cut(section, []byte{'\n'})
		fields := bytes.Fields(media)
		if i == 0 || len(fields) < 4 || string(fields[0]) != "video" {
			continue
		}
		size := sizeOf(lines)
		for _, text := range fields[3:] {
			kind, err := strconv.ParseUint(string(text), 10, 8)
			if _, known := all[uint8(kind)]; known || err != nil {
				continue
			}
			all[uint8(kind)] = said{clockOf(lines, text), setsOf(lines, text), size}
		}
	}
	return all
}

// clockOf: other readers believe it, so a camera that says something else than 90000 means it.
func clockOf(lines, kind []byte) int {
	for _, m := range videoMap.FindAllSubmatch(lines, -1) {
		if rate, err := strconv.Atoi(string(m[3])); bytes.Equal(m[2], kind) && err == nil && rate >= 1000 && rate <= 10_000_000 {
			return rate
		}
	}
	return 0
}

func setsOf(lines, kind []byte) [][]byte {
	var sets [][]byte
	for _, line := range parameters.FindAll(lines, -1) {
		_, line, _ = bytes.Cut(line, []byte{':'})
		line = bytes.TrimLeft(line, " ")
		if rest := bytes.TrimPrefix(line, kind); len(rest) == len(line) || !bytes.HasPrefix(rest, []byte{' '}) {
			continue
		}
		for _, m := range sprop.FindAllSubmatch(line, -1) {
			for text := range strings.SplitSeq(string(m[1]), ",") {
				u, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(text), "="))
				// Some begin with a start code.
				if u = bytes.TrimPrefix(u, []byte{0, 0, 0, 1}); err == nil && len(u) > 0 {
					sets = append(sets, u)
				}
			}
		}
	}
	return sets
}

func sizeOf(lines []byte) image.Point {
	m := dimensions.FindSubmatch(lines)
	if m == nil {
		return image.Point{}
	}
	x, _ := strconv.ParseUint(string(m[1])+string(m[3]), 10, 16) // beyond is what no JPEG is
	y, _ := strconv.ParseUint(string(m[2])+string(m[4]), 10, 16)
	return image.Pt(int(x), int(y))
}

// mend takes out of a description what nobody here reads and cameras often get wrong, for which the library would refuse
// the whole: tracks that are not video, parameter sets (see read), and, where the rest still cannot be read, the video's parameters. A description
// that this does not help is returned as it is.
func mend(sdp []byte) []byte {
	var video []byte
	found, keep := false, true
	for line := range bytes.Lines(sdp) {
		if bytes.HasPrefix(line, []byte("m=")) {
			keep = bytes.HasPrefix(line, []byte("m=video "))
			found = found || keep
		}
		// A group is of tracks that may be gone.
		if keep && !bytes.HasPrefix(line, []byte("a=group:")) {
			video = append(video, line...)
		}
	}
	if !found {
		return sdp
	}
	video = sprop.ReplaceAll(videoMap.ReplaceAll(video, []byte("$1/90000")), nil)
	if readable(video) {
		return video
	}
	if plain := parameters.ReplaceAll(video, nil); readable(plain) {
		return plain
	}
	return sdp
}

func readable(sdp []byte) bool {
	parsed, err := sdpunmarshaler.Unmarshal(sdp)
	return err == nil && new(description.Session).Unmarshal2(parsed) == nil
}
