package rtsp

import (
	"bytes"
	"encoding/base64"
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
	spropLine = regexp.MustCompile(`(?im)^a=fmtp:\s*(\d+)\b(.*sprop-.*)$`)
	sprop     = regexp.MustCompile(`(?i)\bsprop-(?:parameter-sets|vps|sps|pps)\s*=\s*([^;\r\n]*);?`)
)

// sets returns the parameter sets of a description's video by payload type, all of them: the library knows one of a kind.
// Where two tracks have the same payload type, they are the first one's.
func sets(sdp []byte) map[uint8][][]byte {
	found := map[uint8][][]byte{}
	for _, line := range spropLine.FindAllSubmatch(sdp, -1) {
		kind, err := strconv.ParseUint(string(line[1]), 10, 8)
		if _, first := found[uint8(kind)]; err != nil || first {
			continue
		}
		for _, m := range sprop.FindAllSubmatch(line[2], -1) {
			for text := range strings.SplitSeq(string(m[1]), ",") {
				u, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(text), "="))
				// Some begin with a start code.
				if u = bytes.TrimPrefix(u, []byte{0, 0, 0, 1}); err == nil && len(u) > 0 {
					found[uint8(kind)] = append(found[uint8(kind)], u)
				}
			}
		}
	}
	return found
}

// clocks returns how many ticks a second the clocks of a description's video count, by payload type, as it says: other readers
// believe it, so a camera that says something else than 90000 means it.
func clocks(sdp []byte) map[uint8]int {
	rates := map[uint8]int{}
	for _, m := range videoMap.FindAllSubmatch(sdp, -1) {
		kind, err := strconv.ParseUint(string(m[2]), 10, 8)
		rate, wrong := strconv.Atoi(string(m[3]))
		if err == nil && wrong == nil && rate >= 1000 && rate <= 10_000_000 {
			rates[uint8(kind)] = rate
		}
	}
	return rates
}

// mend takes out of a description what nobody here reads and cameras often get wrong, for which the library would refuse
// the whole: tracks that are not video, parameter sets (see sets), and, where the rest still cannot be read, the video's parameters. A description
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
