package v2http_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/infer/v2http"
)

// wire is a connection that is spoken to byte by byte.
type wire struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func (s *server) wire(t *testing.T) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &wire{t, conn, bufio.NewReader(conn)}
}

func (w *wire) send(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w.conn, text); err != nil {
		w.t.Fatal(err)
	}
}

// answer reads one response and prints it without what changes from one to the next.
func (w *wire) answer(method string) string {
	w.t.Helper()
	resp, err := http.ReadResponse(w.r, &http.Request{Method: method})
	if err != nil {
		w.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Date") == "" {
		w.t.Error("an answer without a date")
	}
	resp.Header.Del("Date")
	return fmt.Sprintf("%s %d %v %v %q", resp.Status, resp.ContentLength, resp.Header, resp.Close, body)
}

const body = `{"inputs":[{"name":"IN","shape":[2],"datatype":"INT32","data":[1,2]}]}`

// post is an inference with these further header lines, each with its line end.
func post(model, body, lines string) string {
	return "POST /v2/models/" + model + "/infer HTTP/1.1\r\nHost: x\r\n" + lines + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

func TestP1ConnectionsThatAreTakenOverAnswerTheSame(t *testing.T) {
	s := serve(t, nil)
	binary := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"IN","shape":[2],"datatype":"INT32","parameters":{"binary_data_size":8}}]}`
	large := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"IN","shape":[100000],"datatype":"FP32","parameters":{"binary_data_size":400000}}]}`
	for _, c := range []struct{ name, method, request string }{
		{"JSON", "POST", post("echo", body, "")},
		{"binary", "POST", post("echo", binary+"12345678", "Inference-Header-Content-Length: "+strconv.Itoa(len(binary))+"\r\n")},
		{"a large tensor", "POST", post("echo", large+strings.Repeat("abcd", 100000), "inference-header-content-length: "+strconv.Itoa(len(large))+"\r\n")},
		{"a compressed answer", "POST", post("echo", body, "Accept-Encoding: gzip\r\n")},
		{"headers nobody reads", "POST", post("echo", body, "User-Agent: me/1.0 (it's \"I\")\r\nX-Empty:\r\nConnection: keep-alive\r\n")},
		{"an error of the model", "POST", post("fail", body, "")},
		{"an unknown model", "POST", post("none", body, "")},
		{"no JSON", "POST", post("echo", "{", "")},
		{"no body", "POST", post("echo", "", "")},
		{"a decoder that is not there", "POST", post("echo", body, "Content-Encoding: br\r\n")},
		{"an escaped name", "POST", post("ec%68o", body, "")},
		{"a version", "POST", post("echo/versions/3", body, "")},
		{"a version that is not there", "POST", post("echo/versions/4", body, "")},
		{"a version that is none", "POST", post("echo/versions/0", body, "")},
		{"two versions", "POST", post("echo/versions/3/versions/3", body, "")},
		{"chunks", "POST", "POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + strconv.FormatInt(int64(len(body)), 16) + "\r\n" + body + "\r\n0\r\n\r\n"},
		{"the last call", "POST", post("echo", body, "Connection: close\r\n")},
		{"an older protocol", "POST", strings.Replace(post("echo", body, ""), "HTTP/1.1", "HTTP/1.0", 1)},
		{"another call", "GET", "GET /v2/models/echo HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"a head", "HEAD", "HEAD /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"no host", "POST", strings.Replace(post("echo", body, ""), "Host: x\r\n", "", 1)},
		{"two hosts", "POST", post("echo", body, "Host: y\r\n")},
		{"two lengths", "POST", post("echo", body, "Content-Length: 1\r\n")},
		{"a length and chunks", "POST", post("echo", "0\r\n\r\n", "Transfer-Encoding: chunked\r\n")},
		{"a length that is none", "POST", strings.Replace(post("echo", body, ""), "Content-Length: ", "Content-Length: +", 1)},
		{"a header that is none", "POST", post("echo", body, "a b: c\r\n")},
		{"a folded header", "POST", post("echo", body, "A: b\r\n c\r\n")},
		{"a great header", "POST", post("echo", body, "A: "+strings.Repeat("b", 60000)+"\r\n")},
		{"a bare line end", "POST", post("echo", body, "A: b\nC: d\r\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := s.wire(t)
			first.send(c.request)
			want := first.answer(c.method)
			again := s.wire(t)
			for range 2 {
				again.send(post("echo", body, ""))
				again.answer("POST")
			}
			again.send(c.request)
			if got := again.answer(c.method); got != want {
				t.Errorf("net/http answered\n%s\nand then\n%s", want, got)
			}
			if strings.Contains(want, " true ") { // it was the last of its connection
				return
			}
			again.send(post("echo", body, ""))
			if got := again.answer("POST"); !strings.Contains(got, `\"data\":[1,2]`) {
				t.Errorf("afterwards it answered %s", got)
			}
		})
	}
}

func TestP1CallsInARowAreAnsweredInARow(t *testing.T) {
	s := serve(t, nil)
	w := s.wire(t)
	var all strings.Builder
	for i := range 40 {
		all.WriteString(post("echo", fmt.Sprintf(`{"id":"%d",%s`, i, body[1:]), ""))
		if i%7 == 3 {
			all.WriteString("GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
		}
	}
	w.send(all.String())
	for i := range 40 {
		if got := w.answer("POST"); !strings.Contains(got, fmt.Sprintf(`{\"id\":\"%d\",`, i)) {
			t.Fatalf("the answer to call %d is %s", i, got)
		}
		if i%7 == 3 {
			w.answer("GET")
		}
	}
}

func TestP1ACallMayComeInPieces(t *testing.T) {
	s := serve(t, nil)
	for at := range len(post("echo", body, "")) {
		w := s.wire(t)
		w.send(post("echo", body, ""))
		w.answer("POST")
		text := post("echo", body, "")
		w.send(text[:at])
		w.send(text[at:])
		if got := w.answer("POST"); !strings.Contains(got, `\"data\":[1,2]`) {
			t.Fatalf("in two pieces, the first of %d bytes: %s", at, got)
		}
		_ = w.conn.Close()
	}
}

func TestP19AClientThatGoesCancelsItsLaterCallsToo(t *testing.T) {
	cancelled := make(chan struct{})
	s := serve(t, nil)
	s.models.held["gone"] = make(chan struct{})
	w := s.wire(t)
	w.send(post("echo", body, ""))
	w.answer("POST")
	w.send(post("hold", `{"id":"gone",`+body[1:], ""))
	for s.models.last().ID != "gone" {
		time.Sleep(time.Millisecond)
	}
	if err := w.conn.Close(); err != nil {
		t.Fatal(err)
	}
	go func() { // serve's clean-up finds buffers of calls that still run
		defer close(cancelled)
		for s.models.pool.Lent() > 0 {
			time.Sleep(time.Millisecond)
		}
	}()
	select {
	case <-cancelled:
	case <-time.After(20 * time.Second):
		t.Error("the call of a client that has gone goes on")
	}
}

func TestP1ALongCallKeepsItsConnection(t *testing.T) {
	s := serve(t, nil)
	w := s.wire(t)
	w.send(post("echo", body, ""))
	w.answer("POST")
	for i := range 3 {
		id := strconv.Itoa(i)
		hold := make(chan struct{})
		s.models.mu.Lock()
		s.models.held[id] = hold
		s.models.mu.Unlock()
		w.send(post("hold", `{"id":"`+id+`",`+body[1:], ""))
		time.Sleep(10 * time.Millisecond) // until somebody watches, most of the time; nothing depends on it
		if i == 2 {
			w.send(post("echo", body, "")) // the next call while it is watched
		}
		close(hold)
		if got := w.answer("POST"); !strings.Contains(got, `\"id\":\"`+id) {
			t.Fatalf("got %s", got)
		}
	}
	if got := w.answer("POST"); !strings.Contains(got, `\"data\":[1,2]`) {
		t.Errorf("got %s", got)
	}
}

func TestP1WhatNobodyReadsEndsTheConnectionGently(t *testing.T) {
	s := serve(t, func(c *v2http.Config) { c.MaxBodySize = 1 << 20 })
	w := s.wire(t)
	w.send(post("echo", body, ""))
	w.answer("POST")
	w.send("POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n" + strings.Repeat(" ", 100000))
	if got := w.answer("POST"); !strings.HasPrefix(got, "400 Bad Request") || !strings.Contains(got, "exceeds the maximum allowed value of 1048576 bytes") || !strings.Contains(got, "true") {
		t.Errorf("got %s", got)
	}
	if _, err := w.r.ReadByte(); err != io.EOF {
		t.Errorf("then the connection ended with %v", err)
	}
}

func TestP3StoppingLetsLaterCallsEnd(t *testing.T) {
	s := serve(t, nil)
	hold := make(chan struct{})
	s.models.held["last"] = hold
	idle, busy := s.wire(t), s.wire(t)
	for _, w := range []*wire{idle, busy} {
		w.send(post("echo", body, ""))
		w.answer("POST")
	}
	busy.send(post("hold", `{"id":"last",`+body[1:], ""))
	for s.models.last().ID != "last" {
		time.Sleep(time.Millisecond)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	if _, err := idle.r.ReadByte(); err == nil {
		t.Error("an idle connection of a server that stops says something")
	}
	for path, method := range map[string]string{"/v2/health/live": "GET", "/v2/models/echo/infer": "POST"} {
		late := s.wire(t)
		late.send(method + " " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		if got := late.answer(method); !strings.HasPrefix(got, "503") || !strings.Contains(got, "Server exiting") {
			t.Errorf("%s %s of a server that stops: %s", method, path, got)
		}
	}
	close(hold)
	if got := busy.answer("POST"); !strings.Contains(got, `\"id\":\"last\"`) || !strings.Contains(got, " true ") {
		t.Errorf("got %s", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestP1ConnectionsWithTLSAreTakenOverToo(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	certificates := certified.TLS.Certificates
	certified.Close()
	s := serve(t, func(c *v2http.Config) { c.TLS = &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12} })
	w := s.wire(t)
	secured := tls.Client(w.conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // the certificate is the test's
	w.conn, w.r = secured, bufio.NewReader(secured)
	hold := make(chan struct{})
	s.models.held["long"] = hold
	for range 3 {
		w.send(post("echo", body, ""))
		if got := w.answer("POST"); !strings.Contains(got, `\"data\":[1,2]`) {
			t.Fatalf("got %s", got)
		}
	}
	w.send(post("hold", `{"id":"long",`+body[1:], ""))
	time.AfterFunc(10*time.Millisecond, func() { close(hold) })
	w.answer("POST")
	large := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"IN","shape":[100000],"datatype":"FP32","parameters":{"binary_data_size":400000}}]}`
	w.send(post("echo", large+strings.Repeat("abcd", 100000), "Inference-Header-Content-Length: "+strconv.Itoa(len(large))+"\r\n"))
	if got := w.answer("POST"); strings.Count(got, "abcd") != 100000 {
		t.Errorf("a large tensor came back with %d of its elements", strings.Count(got, "abcd"))
	}
	w.send("GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := w.answer("GET"); !strings.HasPrefix(got, "200") {
		t.Errorf("got %s", got)
	}
}

func TestP18WhatNeedsHeadersIsNotTakenOver(t *testing.T) {
	for name, change := range map[string]func(*v2http.Config){
		"restricted": func(c *v2http.Config) {
			c.Restricted = []v2http.Restriction{{APIs: []string{"inference"}, Header: "key", Value: "v"}}
		},
		"forwarded": func(c *v2http.Config) { c.ForwardHeaders = regexp.MustCompile("^Key$") },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, change)
			w := s.wire(t)
			for range 2 {
				w.send(post("echo", body, "key: v\r\n"))
				w.answer("POST")
			}
			w.send(post("echo", body, ""))
			if got := w.answer("POST"); name == "restricted" && !strings.HasPrefix(got, "403") {
				t.Errorf("got %s", got)
			}
			if name == "forwarded" && s.models.seen[1].Parameters["key"] != "v" {
				t.Errorf("got %v", s.models.seen[1].Parameters)
			}
		})
	}
}
