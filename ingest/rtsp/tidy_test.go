package rtsp

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/iotest"
)

// piped is a connection one can only read from.
type piped struct {
	net.Conn
	r io.Reader
}

func (p piped) Read(b []byte) (int, error) { return p.r.Read(b) }

// FuzzTidy reads what a camera sends, in pieces of whatever size: packets and bodies come through untouched, and a header that
// is tidy stays as it is.
func FuzzTidy(f *testing.F) {
	f.Add([]byte("OK"), []byte("v=0\n\nm=video"), []byte("$\x00\r\n\n"), true)
	f.Add([]byte("y\r\n z\r\n\tw"), []byte{}, bytes.Repeat([]byte{10}, 9000), false)
	f.Add([]byte("y\r\n\r\nRTSP/2.0 200 OK"), []byte("$"), []byte{}, false)
	f.Fuzz(func(t *testing.T, value, body, media []byte, bare bool) {
		if len(media) > 1<<16-1 || len(value) > maxLine || bytes.Contains(bytes.ToLower(value), []byte("content-length")) {
			return
		}
		value = bytes.ReplaceAll(value, []byte("\n"), nil)
		header := fmt.Appendf(nil, "RTSP/1.0 200 OK\r\nContent-Length: %d\r\nX: %s\r\n\r\n", len(body), value)
		if bare {
			header = bytes.ReplaceAll(header, []byte("\r\n"), []byte("\n"))
		}
		packet := append([]byte{'$', 0, byte(len(media) >> 8), byte(len(media))}, media...)
		neat, length := tidied(header)
		if again, _ := tidied(neat); length != len(body) || !bytes.Equal(again, neat) {
			t.Fatalf("a body of %d; %q", length, again)
		}
		sent := bytes.Join([][]byte{header, body, packet, header, body, packet}, nil)
		want := bytes.Join([][]byte{neat, body, packet, neat, body, packet}, nil)
		for _, r := range []io.Reader{bytes.NewReader(sent), iotest.HalfReader(bytes.NewReader(sent)), iotest.OneByteReader(bytes.NewReader(sent))} {
			if got, err := io.ReadAll(&tidy{Conn: piped{r: r}}); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%q came as %q, %v", sent, got, err)
			}
		}
	})
}
