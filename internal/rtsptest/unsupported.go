package rtsptest

import (
	"testing"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
)

// StartUnsupported serves a description of a codec nobody decodes and returns the address.
func StartUnsupported(tb testing.TB) string {
	tb.Helper()
	sdp := "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 VP9/90000\r\na=control:trackID=0\r\n"
	clip := Render(tb, ClipConfig{Width: 64, Height: 64, Frames: 2})
	return Start(tb, Config{Clip: clip, Request: func(m base.Method, _ <-chan struct{}) *base.Response {
		if m != base.Describe {
			return nil
		}
		return &base.Response{StatusCode: base.StatusOK, Header: base.Header{"Content-Type": {"application/sdp"}}, Body: []byte(sdp)}
	}}).Address()
}
