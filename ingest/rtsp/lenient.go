package rtsp

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
)

var (
	profile     = regexp.MustCompile(`(?i)^RTP/S?AVPF?(?:/(?:UDP|TCP))?$`)
	serverPorts = regexp.MustCompile(`^[1-9]\d*(?:-\d+)?$`)
)

// lenient puts an answer the way the library reads it, where what it says is plain all the same.
func lenient(asked *base.Request, r *base.Response, camera net.IP) {
	if r.StatusCode/100 == 2 || asked.Method == base.Options && notUnderstood(r.StatusCode) {
		r.StatusCode = base.StatusOK
	}
	switch {
	case r.StatusCode != base.StatusOK:
	case asked.Method == base.Describe && bytes.Contains(r.Body, []byte("m=")):
		r.Header["Content-Type"] = base.HeaderValue{"application/sdp"}
	case asked.Method == base.Setup:
		chosen := append(slices.Clone(r.Header["Transport"]), asked.Header["Transport"]...)[0]
		r.Header["Transport"] = base.HeaderValue{transport(chosen, camera)}
	}
}

// notUnderstood: cameras that do not know OPTIONS may well know the rest.
func notUnderstood(c base.StatusCode) bool {
	return slices.Contains([]base.StatusCode{
		base.StatusBadRequest, base.StatusMethodNotAllowed, base.StatusSessionNotFound, base.StatusMethodNotValidInThisState,
		base.StatusNotImplemented, base.StatusOptionNotSupported,
	}, c)
}

// transport writes a Transport header (RFC 2326, section 12.39) as the library reads it: without blanks, its names in their
// usual case, with two channels that follow each other, those that were asked for where it names none, and without what cannot
// be meant.
func transport(header string, camera net.IP) string {
	var parts []string
	tcp, channel := false, 0 // of the one track that is set up
	for part := range strings.SplitSeq(header, ";") {
		name, value, hasValue := strings.Cut(strings.TrimSpace(part), "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		lower := strings.ToLower(name)
		switch {
		case profile.MatchString(name):
			name = strings.Replace(strings.ToUpper(name), "AVPF", "AVP", 1)
			tcp = tcp || strings.HasSuffix(name, "/TCP")
		case lower == "interleaved":
			first, _, _ := strings.Cut(value, "-")
			if n, err := strconv.ParseUint(strings.TrimSpace(first), 10, 8); err == nil && n < 255 {
				channel = int(n)
			}
			continue
		case lower == "server_port" && !serverPorts.MatchString(value), lower == "source" && astray(value, camera):
			continue
		default:
			name = lower
		}
		if hasValue {
			name += "=" + value
		}
		parts = append(parts, name)
	}
	if tcp {
		parts = append(parts, fmt.Sprintf("interleaved=%d-%d", channel, channel+1))
	}
	return strings.Join(parts, ";")
}

// astray reports whether nothing can come here from the address that a camera gives as its own: it is behind a translation
// of addresses.
func astray(source string, camera net.IP) bool {
	ip := net.ParseIP(source)
	if ip == nil || camera == nil || ip.Equal(camera) {
		return false
	}
	return ip.IsUnspecified() || ip.IsLoopback() || ip.IsPrivate() && !camera.IsPrivate()
}

// tidy is a connection with a camera whose messages the library may not read as they come: with lines that end by LF alone,
// which receivers are to take too (RFC 2326, section 4), or that go on in the next (RFC 2616, section 2.2), with another
// version, with blanks about a length or with two. Where messages need none of this, media pass untouched.
type tidy struct {
	net.Conn

	mu    sync.Mutex // guards everything below
	r     *bufio.Reader
	odd   bool   // a message needed it
	plain bool   // media have begun, and none has
	out   []byte // read and not handed on yet
	body  int    // bytes that come behind a header, or are a packet
}

const maxLine, maxHeader = 8 << 10, 64 << 10

// Read is part of net.Conn.
func (t *tidy) Read(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.r == nil {
		t.r = bufio.NewReaderSize(t.Conn, maxLine)
	}
	var err error
	for len(t.out) == 0 && !t.plain && err == nil {
		err = t.next()
	}
	switch {
	case len(t.out) > 0:
		n := copy(b, t.out)
		t.out = t.out[n:]
		return n, nil
	case err != nil:
		return 0, err
	case t.r.Buffered() > 0:
		return t.r.Read(b)
	}
	return t.Conn.Read(b)
}

// next reads a header, or some of a body or packet.
func (t *tidy) next() error {
	if t.body == 0 {
		head, err := t.r.Peek(1)
		if err != nil {
			return err
		}
		if head[0] != base.InterleavedFrameMagicByte {
			return t.header()
		}
		if t.plain = !t.odd; t.plain {
			return nil
		}
		if head, err = t.r.Peek(4); err != nil {
			return err
		}
		t.body = 4 + int(head[2])<<8 + int(head[3])
	}
	t.out = make([]byte, min(t.body, maxLine))
	n, err := t.r.Read(t.out)
	t.out, t.body = t.out[:n], t.body-n
	return err
}

// header reads one, and what is behind it.
func (t *tidy) header() error {
	var raw []byte
	for {
		line, err := t.r.ReadSlice('\n')
		raw = append(raw, line...)
		if err != nil || len(raw) > maxHeader { // it is none
			t.out = raw
			return err
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			break
		}
	}
	t.out, t.body = tidied(raw)
	t.odd = t.odd || !bytes.Equal(t.out, raw)
	return nil
}

// tidied returns a header as the library reads it, and how many bytes of a body follow.
func tidied(raw []byte) (header []byte, body int) {
	var lines [][]byte
	length := -1
	for line := range bytes.Lines(raw) {
		if line = bytes.TrimRight(line, " \t\r\n"); len(line) == 0 {
			continue
		}
		if n := len(lines); n > 1 && (line[0] == ' ' || line[0] == '\t') {
			lines[n-1] = append(append(lines[n-1], ' '), bytes.TrimSpace(line)...)
			continue
		}
		if name, value, ok := strings.Cut(string(line), ":"); ok && len(lines) > 0 && strings.EqualFold(strings.TrimSpace(name), "Content-Length") {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31)
			if length >= 0 || err != nil {
				continue
			}
			length = int(n)
			line = fmt.Appendf(nil, "Content-Length: %d", n)
		}
		lines = append(lines, bytes.Clone(line))
	}
	if len(lines) == 0 {
		return []byte("\r\n"), 0
	}
	if version := []byte("RTSP/1.0 "); bytes.HasPrefix(lines[0], []byte("RTSP/")) && !bytes.HasPrefix(lines[0], version) {
		_, rest, _ := bytes.Cut(lines[0], []byte{' '})
		lines[0] = append(version, rest...)
	}
	return append(bytes.Join(lines, []byte("\r\n")), "\r\n\r\n"...), max(length, 0)
}
