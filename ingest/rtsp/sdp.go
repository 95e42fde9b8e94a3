package rtsp

import (
	"bytes"
	"regexp"

	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/sdpunmarshaler"
)

var (
	// Their clock is 90 kHz whatever a camera writes (RFC 6184, section 5.1; RFC 7798, section 4.1; AV1's RTP payload, section 4.1).
	videoMap = regexp.MustCompile(`(?im)^(a=rtpmap:\s*\d+\s+(?:H264|H265|AV1))\b[^\r\n]*`)
	// What they tell of a stream, it tells itself.
	parameters = regexp.MustCompile(`(?im)^a=fmtp:.*(?:\n|$)`)
)

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
