package rtsp

import (
	"bytes"
	"regexp"
	"strconv"

	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/sdpunmarshaler"
)

var (
	// Their clock is 90 kHz (RFC 6184, section 5.1; RFC 7798, section 4.1; AV1's RTP payload, section 4.1), and the library
	// reads no other.
	videoMap = regexp.MustCompile(`(?im)^(a=rtpmap:\s*(\d+)\s+(?:H264|H265|AV1|JPEG))\b(?:/(\d+))?[^\r\n]*`)
	// What they tell of a stream, it tells itself.
	parameters = regexp.MustCompile(`(?im)^a=fmtp:.*(?:\n|$)`)
)

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
// the whole: tracks that are not video, and, where the rest still cannot be read, the video's parameters. A description
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
	video = videoMap.ReplaceAll(video, []byte("$1/90000"))
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
