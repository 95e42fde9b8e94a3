package rtsp

import (
	"bytes"
	"encoding/base64"
	"image"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/sdpunmarshaler"
)

var (
	// Their clock is 90 kHz (RFC 6184, section 5.1; RFC 7798, section 4.1; AV1's RTP payload, section 4.1), and the library
	// reads no other.
	videoMap = regexp.MustCompile(`(?im)^a=rtpmap:\s*(\d+)\s+(H264|H265|AV1|JPEG)\b(?:/(\d+))?[^\r\n]*`)
	maps     = regexp.MustCompile(`(?im)^a=rtpmap:\s*(\d+)\s`)
	of       = regexp.MustCompile(`^[mac]=\S`) // lines that say something of media
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
		if rate, err := strconv.Atoi(string(m[3])); bytes.Equal(m[1], kind) && err == nil && rate >= 1000 && rate <= 10_000_000 {
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

// mend leaves of a description what the library needs of it: where it stands, and the tracks that are video, without their
// parameter sets (see read), payload types that nothing tells of and, where the rest still cannot be read, parameters. For
// what nobody here reads and cameras often get wrong, the library would refuse the whole. A description that this does not
// help is returned as it is.
func mend(sdp []byte) []byte {
	const blank = " \t\r\n\x00"
	video := []byte("v=0\r\ns=-\r\nt=0 0\r\n")
	found, keep := false, true
	for line := range bytes.Lines(sdp) {
		line = sprop.ReplaceAll(videoMap.ReplaceAll(bytes.TrimRight(line, blank), []byte("a=rtpmap:$1 $2/90000")), nil)
		line = bytes.TrimRight(line, blank)
		if bytes.HasPrefix(line, []byte("m=")) {
			if keep = bytes.HasPrefix(line, []byte("m=video ")); keep {
				found = true
				line = known(line, sdp)
			}
		}
		// A group is of tracks that may be gone.
		if keep && of.Match(line) && !bytes.HasPrefix(line, []byte("a=group:")) {
			video = append(append(video, line...), "\r\n"...)
		}
	}
	if !found {
		return sdp
	}
	if readable(video) {
		return video
	}
	if plain := parameters.ReplaceAll(video, nil); readable(plain) {
		return plain
	}
	return sdp
}

// known takes those dynamic payload types (RFC 3551, section 6) out of a media line that the description does not map.
func known(media, sdp []byte) []byte {
	fields := bytes.Fields(media)
	kinds := slices.DeleteFunc(slices.Clone(fields[min(3, len(fields)):]), func(kind []byte) bool {
		n, err := strconv.ParseUint(string(kind), 10, 8)
		return err == nil && n >= 96 && !slices.ContainsFunc(maps.FindAllSubmatch(sdp, -1), func(m [][]byte) bool { return bytes.Equal(m[1], kind) })
	})
	if len(kinds) == 0 {
		return media
	}
	return bytes.Join(append(fields[:3], kinds...), []byte{' '})
}

func readable(sdp []byte) bool {
	parsed, err := sdpunmarshaler.Unmarshal(sdp)
	return err == nil && new(description.Session).Unmarshal2(parsed) == nil
}
