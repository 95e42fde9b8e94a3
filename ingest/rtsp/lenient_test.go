package rtsp_test

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/rtsp"
	"github.com/vedette/vedette/internal/rtsptest"
)

// between stands before a camera and puts its answers another way. It returns the address to ask.
func between(t *testing.T, camera string, change func(request, answer string) string) string {
	t.Helper()
	u, err := url.Parse(camera)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	relay := func(c net.Conn) {
		defer func() { _ = c.Close() }()
		d, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Error(err)
			return
		}
		var mu sync.Mutex
		var request string
		wg.Go(func() {
			defer func() { _ = d.Close() }()
			for b := make([]byte, 64<<10); ; {
				n, err := c.Read(b)
				if err != nil {
					return
				}
				mu.Lock()
				request = string(b[:n])
				mu.Unlock()
				if _, err := d.Write(b[:n]); err != nil {
					return
				}
			}
		})
		for b := make([]byte, 64<<10); ; {
			n, err := d.Read(b)
			if err != nil {
				return
			}
			said := b[:n]
			if bytes.HasPrefix(said, []byte("RTSP/1.0 ")) {
				end := bytes.Index(said, []byte("\r\n\r\n")) + 4
				mu.Lock()
				said = append([]byte(change(request, string(said[:end]))), said[end:]...)
				mu.Unlock()
			}
			if _, err := c.Write(said); err != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { relay(c) })
		}
	})
	return strings.Replace(camera, u.Host, ln.Addr().String(), 1)
}

func TestAnswersAreReadHoweverTheyAreWritten(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, GOP: 5})
	replace := func(from ...string) func(_, answer string) string {
		return func(_, answer string) string { return strings.NewReplacer(from...).Replace(answer) }
	}
	// header puts something else in a header's place, or takes it out.
	header := func(name, line string) func(_, answer string) string {
		return func(_, answer string) string {
			var out strings.Builder
			for l := range strings.Lines(answer) {
				if strings.HasPrefix(l, name+":") {
					l = line
				}
				out.WriteString(l)
			}
			return out.String()
		}
	}
	twice := func(name string) func(_, answer string) string {
		return func(_, answer string) string {
			var out strings.Builder
			for l := range strings.Lines(answer) {
				out.WriteString(l)
				if strings.HasPrefix(l, name+":") {
					out.WriteString(l)
				}
			}
			return out.String()
		}
	}
	options := func(status string) func(request, answer string) string {
		return func(request, answer string) string {
			if strings.HasPrefix(request, "OPTIONS") {
				return strings.Replace(answer, "200 OK", status, 1)
			}
			return answer
		}
	}
	for name, c := range map[string]struct {
		change func(request, answer string) string
		udp    bool
	}{
		"lines that end by LF":                   {change: replace("\r\n", "\n")},
		"lines that go on in the next":           {change: replace("Server: ", "Server:\r\n\t", "\r\n\r\n", "\r\nX-Note: a\r\n b\r\n\r\n")},
		"names in small letters":                 {change: replace("CSeq", "cseq", "Content-Length", "content-length", "Transport", "transport")},
		"another version":                        {change: replace("RTSP/1.0", "RTSP/2.0")},
		"a blank behind the length":              {change: replace("\r\n\r\n", " \r\n\r\n", "Content-Length", "Content-Length ")},
		"the length twice":                       {change: twice("Content-Length")},
		"another success":                        {change: replace("200 OK", "250 Low on Storage Space")},
		"no content type":                        {change: header("Content-Type", "")},
		"the content type in capitals":           {change: header("Content-Type", "Content-Type: Application/SDP; charset=utf-8\r\n")},
		"OPTIONS that are not understood":        {change: options("501 Not Implemented")},
		"OPTIONS without a session":              {change: options("454 Session Not Found")},
		"no transport":                           {change: header("Transport", "")},
		"no transport by UDP":                    {change: header("Transport", ""), udp: true},
		"transport twice":                        {change: header("Transport", "Transport: RTP/AVP/TCP;interleaved=0-1\r\nTransport: RTP/AVP/TCP\r\n")},
		"transport with blanks":                  {change: header("Transport", "Transport: RTP/AVP/TCP; unicast; interleaved = 0 - 1\r\n")},
		"transport in small letters":             {change: header("Transport", "Transport: rtp/avp/tcp;unicast;interleaved=0-1\r\n")},
		"no channels":                            {change: header("Transport", "Transport: RTP/AVP/TCP;unicast\r\n")},
		"channels that do not follow each other": {change: header("Transport", "Transport: RTP/AVP/TCP;unicast;interleaved=0-0\r\n")},
		"no ports":                               {change: header("Transport", "Transport: RTP/AVP;unicast\r\n"), udp: true},
		"ports that are none":                    {change: header("Transport", "Transport: RTP/AVP;unicast;server_port=0-0\r\n"), udp: true},
		"an address behind a translation":        {change: header("Transport", "Transport: RTP/AVP;unicast;source=10.3.3.3\r\n"), udp: true},
	} {
		t.Run(name, func(t *testing.T) {
			cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, UDP: c.udp})
			camera := ingest.Camera{Name: "door", Address: between(t, cam.Address(), c.change)}
			if c.udp {
				camera.Transport = ingest.TransportUDP
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if err := rtsp.New(rtsp.Config{Camera: camera}).Run(ctx, &viewer{end: cancel}); err != nil || ctx.Err() == nil {
				t.Errorf("it ended without a picture: %v", err)
			}
		})
	}
}
