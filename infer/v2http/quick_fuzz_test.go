package v2http

import (
	"bufio"
	"bytes"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"testing"
)

// FuzzCallHeader: what is read without net/http is read by net/http too, and means the same.
func FuzzCallHeader(f *testing.F) {
	const call = "POST /v2/models/m/infer HTTP/1.1\r\nHost: x:1\r\n"
	for _, lines := range []string{
		"Content-Length: 12\r\n", "content-length:  0 \r\nUser-Agent: me (it's)\r\n", "Content-Length: 1\r\nAccept-Encoding: gzip;q=0.5, deflate\r\n",
		"Content-Length: 1\r\nInference-Header-Content-Length: 1\r\nConnection: Keep-Alive\r\n", "Content-Length: 1\r\nContent-Encoding: gzip\r\nX: \r\n",
		"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 1\r\nContent-Length: 1\r\n", "Content-Length: 1\r\nA: b\r\n c\r\n", "Content-Length: 1\r\nHost: y\r\n",
	} {
		f.Add([]byte(call + lines + "\r\n"))
	}
	f.Add([]byte("POST /v2/models/m/versions/12/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		c := &quickConn{server: New(Config{}), req: &http.Request{URL: &url.URL{}, Header: http.Header{}}}
		if !bytes.HasSuffix(head, []byte("\r\n\r\n")) || !c.parse(head) {
			return
		}
		r := bufio.NewReader(bytes.NewReader(head))
		want, err := http.ReadRequest(r)
		if err != nil {
			t.Fatalf("%q is no request: %v", head, err)
		}
		if r.Buffered() > 0 {
			t.Fatalf("%q is more than a request", head)
		}
		if want.URL.EscapedPath() != c.req.URL.EscapedPath() || want.ContentLength != c.req.ContentLength || len(want.TransferEncoding) > 0 || want.Close || want.Host == "" {
			t.Errorf("%q: got %v of %d bytes, want %v of %d", head, c.req.URL, c.req.ContentLength, want.URL, want.ContentLength)
		}
		for _, key := range []string{headerLength, "Accept-Encoding", "Content-Encoding"} {
			if !slices.Equal(want.Header[key], c.req.Header[key]) {
				t.Errorf("%q: %s is %q, want %q", head, key, c.req.Header[key], want.Header[key])
			}
		}
		if keys := slices.Collect(maps.Keys(c.req.Header)); len(keys) > 3 {
			t.Errorf("%q: kept %v", head, keys)
		}
	})
}
