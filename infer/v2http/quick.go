package v2http

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A connection on which a model was asked is likely to bring the same call again, and net/http spends more on one than
// the model does. So after the first inference the connection is taken over: calls of exactly that form are read and
// answered here. Whatever else comes, down to an unusual header, goes back to net/http with the connection, until
// the next inference.

const (
	// quickBuffer holds a call's header, which must come in one piece, and a small body.
	quickBuffer = 16 << 10
	// writeTogether is the size up to which an answer is put together; beyond, tensors are written from where they are.
	writeTogether = 32 << 10
	// drainLimit is how much of a body that nobody read is read, so that the connection can be used again.
	drainLimit = 256 << 10
	// watchAfter is how long an inference takes before somebody looks whether its client is still there.
	watchAfter = 2 * time.Millisecond
	// lingerTime is how long a client may go on sending what nobody reads, so that it gets to see why.
	lingerTime  = 500 * time.Millisecond
	idleTimeout = 5 * time.Minute
)

// quick holds the connections that were taken over.
type quick struct {
	back feed // to net/http

	mu    sync.Mutex // guards what follows
	conns map[*quickConn]struct{}
	ended bool
	wg    sync.WaitGroup
}

// takeOver keeps the connection of a call that was just answered.
func (s *Server) takeOver(w http.ResponseWriter, req *http.Request) {
	if _, able := w.(http.Hijacker); !able || s.quick == nil || s.cfg.ForwardHeaders != nil || len(s.cfg.Restricted) > 0 {
		return
	}
	// Nothing is gained where the next call goes back at once.
	if !plainCall([]byte(req.URL.EscapedPath())) || req.URL.RawQuery != "" || req.URL.ForceQuery {
		return
	}
	for key := range req.Header {
		if headerKind([]byte(key)) == unusualHeader {
			return
		}
	}
	// The whole body must have been read: a decoder may leave something.
	if req.ProtoMajor != 1 || req.ProtoMinor != 1 || req.Close || req.ContentLength < 0 || req.Header["Content-Encoding"] != nil {
		return
	}
	control := http.NewResponseController(w)
	if control.Flush() != nil {
		return
	}
	conn, rw, err := control.Hijack()
	if err != nil {
		return
	}
	c := &quickConn{server: s, buf: make([]byte, quickBuffer)}
	ahead, err := rw.Peek(rw.Reader.Buffered())
	if err != nil || len(ahead) > len(c.buf) {
		_ = conn.Close()
		return
	}
	c.end = copy(c.buf, ahead)
	if p, ok := conn.(*prefixed); ok && len(p.ahead) == 0 {
		conn = p.Conn
	}
	c.conn = conn
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.req = (&http.Request{
		Method: http.MethodPost, URL: &url.URL{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: (*quickBody)(c), RemoteAddr: conn.RemoteAddr().String(),
	}).WithContext(ctx) //nolint:contextcheck // it is of all calls of the connection, not of the one that was just answered
	c.out.header = http.Header{}
	c.watched = make(chan struct{}, 1) // a watcher never waits for the one that joins it
	c.timer = time.AfterFunc(time.Hour, c.watch)
	c.timer.Stop()
	if !s.quick.add(c) {
		cancel()
		_ = conn.Close()
	}
}

// add lets a connection be served; false when the server stops.
func (q *quick) add(c *quickConn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return false
	}
	q.conns[c] = struct{}{}
	q.wg.Go(func() {
		c.serve()
		q.mu.Lock()
		delete(q.conns, c)
		q.mu.Unlock()
	})
	return true
}

// stop closes the connections, those with a call under way when that is answered or ctx ends.
func (q *quick) stop(ctx context.Context) {
	q.mu.Lock()
	q.ended = true
	for c := range q.conns {
		c.stop(false)
	}
	q.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.wg.Wait()
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	q.mu.Lock()
	for c := range q.conns {
		c.stop(true)
	}
	q.mu.Unlock()
	<-done
}

// quickConn is one connection. Only its own goroutine touches it, but for the watcher and stop.
type quickConn struct {
	server *Server
	conn   net.Conn
	cancel context.CancelFunc // of the context of all its calls: a client that goes takes them all along

	buf        []byte
	begin, end int   // of buf what was received and not used
	left       int64 // of the call's body not received
	req        *http.Request
	names      [3][1]string // the values of its headers
	out        quickWriter
	deadline   time.Time // for the next call to come; zero: none is set

	timer   *time.Timer
	armed   bool          // the timer will ring, or rang
	watched chan struct{} // the watcher has ended

	mu    sync.Mutex // guards what follows
	busy  bool
	ended bool
}

// stop ends the connection now, or when the call under way is answered.
func (c *quickConn) stop(now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if now || !c.busy {
		c.cancel()
		_ = c.conn.Close()
	}
}

// enter tells whether a call may begin; leave whether another one may follow.
func (c *quickConn) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = true
	return !c.ended
}

func (c *quickConn) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	return !c.ended
}

// serve answers call after call until the client goes or asks for something else.
func (c *quickConn) serve() {
	keep := false // the connection lives on
	defer func() {
		if p := recover(); p != nil {
			c.server.cfg.Logger.Error("panic while a call was answered", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
		c.cancel()
		if !keep {
			_ = c.conn.Close()
		}
	}()
	for {
		head, err := c.await()
		if err != nil || !c.enter() {
			return
		}
		if head == 0 || !c.parse(c.buf[c.begin:c.begin+head]) {
			keep = c.handBack()
			return
		}
		c.begin += head
		again, err := c.answer()
		if !c.leave() || err != nil || !again {
			return
		}
	}
}

// await waits for a call and returns the length of its header; 0: it is not here in one piece.
func (c *quickConn) await() (head int, err error) {
	if c.begin == c.end {
		c.begin, c.end = 0, 0
		// Not for every call: it is a bound on idleness, and may be some seconds off.
		if now := time.Now(); c.deadline.Sub(now) < idleTimeout-10*time.Second {
			c.deadline = now.Add(idleTimeout)
			if err := c.conn.SetReadDeadline(c.deadline); err != nil {
				return 0, err
			}
		}
		n, err := c.conn.Read(c.buf)
		c.end = n
		if n == 0 && err != nil {
			return 0, err
		}
	}
	const empty = "\r\n\r\n"
	at := bytes.Index(c.buf[c.begin:c.end], []byte(empty))
	if at < 0 {
		return 0, nil
	}
	return at + len(empty), nil
}

// answer serves the call whose header was parsed.
func (c *quickConn) answer() (again bool, err error) {
	c.out.reset(c)
	if c.left == 0 {
		c.arm()
	} else if !c.deadline.IsZero() && int64(c.end-c.begin) < c.left {
		c.deadline = time.Time{} // a body may take its time
		if err := c.conn.SetReadDeadline(c.deadline); err != nil {
			return false, err
		}
	}
	c.server.ServeHTTP(&c.out, c.req)
	if err := c.join(); err != nil {
		return false, err
	}
	again = c.left <= drainLimit && !c.server.stopping.Load()
	if err := c.out.finish(again); err != nil {
		return false, err
	}
	if again && c.left > 0 {
		_, err = io.CopyN(io.Discard, (*quickBody)(c), c.left)
		err = errors.Join(err, c.join())
	}
	if !again {
		c.linger()
	}
	return again, err
}

// linger lets the client read why nobody reads what it sends.
func (c *quickConn) linger() {
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil && c.conn.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.Copy(io.Discard, c.conn)
	}
}

// handBack gives the connection to net/http, with what was received and not used.
func (c *quickConn) handBack() bool {
	if c.conn.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	return c.server.quick.back.give(&prefixed{Conn: c.conn, ahead: bytes.Clone(c.buf[c.begin:c.end])})
}

// arm has somebody look after the client when the call takes long. All of the call was received.
func (c *quickConn) arm() {
	if c.begin == c.end {
		c.begin, c.end = 0, 0
		c.armed = true
		c.timer.Reset(watchAfter)
	}
}

// watch reads while a call is under way: an error is a client that went away, a byte is its next call.
func (c *quickConn) watch() {
	n, err := c.conn.Read(c.buf[:1])
	c.end = n
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.cancel()
	}
	c.watched <- struct{}{}
}

// join ends the watcher.
func (c *quickConn) join() error {
	if !c.armed {
		return nil
	}
	c.armed = false
	if c.timer.Stop() {
		return nil
	}
	if err := c.conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	<-c.watched
	c.deadline = time.Time{}
	return c.conn.SetReadDeadline(c.deadline)
}

// parse reads the header of an inference, with its final empty line. It takes only what leaves no doubt; false is for
// net/http to judge.
func (c *quickConn) parse(head []byte) bool {
	line, rest, ok := bytes.Cut(head, []byte("\r\n"))
	path, ok2 := bytes.CutPrefix(line, []byte("POST "))
	path, ok3 := bytes.CutSuffix(path, []byte(" HTTP/1.1"))
	if !ok || !ok2 || !ok3 || !plainCall(path) {
		return false
	}
	h := c.req.Header
	clear(h)
	hosts, length := 0, int64(-1)
	for {
		line, rest, ok = bytes.Cut(rest, []byte("\r\n"))
		if !ok {
			return false
		}
		if len(line) == 0 {
			break
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(name) == 0 {
			return false
		}
		for _, b := range name {
			if !plainByte(b) || b == '.' {
				return false
			}
		}
		value = bytes.Trim(value, " \t")
		for _, b := range value {
			if b < ' ' || b >= 0x7f {
				return false
			}
		}
		switch kind := headerKind(name); kind {
		case otherHeader:
		case unusualHeader:
			return false
		case hostHeader:
			if hosts++; len(value) == 0 || bytes.ContainsAny(value, " /\\@,\"<>{}|^`%") {
				return false
			}
		case connectionHeader:
			if !strings.EqualFold(string(value), "keep-alive") {
				return false
			}
		case lengthHeader:
			if length >= 0 || len(value) == 0 || len(value) > 18 || !digits(string(value)) {
				return false
			}
			length, _ = strconv.ParseInt(string(value), 10, 64)
		default:
			key := kind.key()
			if h[key] != nil {
				return false
			}
			c.names[kind][0] = c.server.names.Get(value)
			h[key] = c.names[kind][:]
		}
	}
	if hosts != 1 || length < 0 || len(rest) > 0 {
		return false
	}
	c.req.URL.Path = c.server.names.Get(path)
	c.req.ContentLength, c.left = length, length
	return true
}

// plainCall tells whether a path is that of an inference, and leaves no doubt about the model.
func plainCall(path []byte) bool {
	model, ok := bytes.CutPrefix(path, []byte("/v2/models/"))
	model, ok2 := bytes.CutSuffix(model, []byte("/infer"))
	if !ok || !ok2 {
		return false
	}
	model, version, versioned := bytes.Cut(model, []byte("/versions/"))
	if versioned && (len(version) == 0 || !digits(string(version))) || len(model) == 0 || model[0] == '.' {
		return false
	}
	for _, b := range model {
		if !plainByte(b) {
			return false
		}
	}
	return true
}

// plainByte is what names hold that need no thought.
func plainByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_' || b == '.'
}

// kind is what a header is to parse: the first ones are kept for the call.
type kind int

const (
	inferenceHeader kind = iota
	acceptHeader
	encodingHeader
	lengthHeader
	hostHeader
	connectionHeader
	unusualHeader
	otherHeader
)

func (k kind) key() string {
	switch k {
	case inferenceHeader:
		return headerLength
	case acceptHeader:
		return "Accept-Encoding"
	default:
		return "Content-Encoding"
	}
}

func headerKind(name []byte) kind {
	var room [len(headerLength)]byte
	if len(name) > len(room) {
		return otherHeader
	}
	lower := room[:len(name)]
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	switch string(lower) {
	case "inference-header-content-length":
		return inferenceHeader
	case "accept-encoding":
		return acceptHeader
	case "content-encoding":
		return encodingHeader
	case "content-length":
		return lengthHeader
	case "host":
		return hostHeader
	case "connection":
		return connectionHeader
	case "transfer-encoding", "expect", "upgrade", "trailer", "te", "keep-alive", "proxy-connection":
		return unusualHeader
	}
	return otherHeader
}

// quickBody is the body of the call under way.
type quickBody quickConn

// Read reads from the buffer, then from the connection straight into p.
func (b *quickBody) Read(p []byte) (int, error) {
	c := (*quickConn)(b)
	if c.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	var n int
	var err error
	if c.begin < c.end {
		n = copy(p, c.buf[c.begin:c.end])
		c.begin += n
	} else if n, err = c.conn.Read(p); errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if c.left -= int64(n); c.left == 0 {
		err = nil
		c.arm()
	}
	return n, err
}

// Close does nothing: what is left is the connection's to read.
func (b *quickBody) Close() error { return nil }

// quickWriter puts an answer together.
type quickWriter struct {
	conn   *quickConn
	header http.Header
	status int
	sent   bool   // the header was
	body   []byte // what was written and not sent
	head   []byte // memory of the header
	err    error
}

func (w *quickWriter) reset(c *quickConn) {
	clear(w.header)
	if cap(w.body) > 1<<20 {
		w.body = nil // one huge answer must not stay for ever
	}
	*w = quickWriter{conn: c, header: w.header, body: w.body[:0], head: w.head[:0]}
}

// Header implements http.ResponseWriter.
func (w *quickWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *quickWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter: what is large leaves at once, from where it is.
func (w *quickWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if len(w.body)+len(p) <= writeTogether || len(w.header["Content-Length"]) == 0 {
		w.body = append(w.body, p...)
		return len(p), nil
	}
	pieces := net.Buffers{w.body, p}
	if !w.sent {
		pieces = net.Buffers{w.start(true), w.body, p}
	}
	_, w.err = pieces.WriteTo(w.conn.conn)
	w.body = w.body[:0]
	return len(p), w.err
}

// start makes the header.
func (w *quickWriter) start(again bool) []byte {
	w.sent = true
	if w.status == 0 {
		w.status = http.StatusOK
	}
	b := append(w.head[:0], "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(w.status), 10)
	b = append(append(b, ' '), http.StatusText(w.status)...)
	b = append(time.Now().UTC().AppendFormat(append(b, "\r\nDate: "...), http.TimeFormat), "\r\n"...)
	for key, values := range w.header {
		for _, v := range values {
			b = append(append(append(append(b, key...), ": "...), v...), "\r\n"...)
		}
	}
	if len(w.header["Content-Length"]) == 0 {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(len(w.body)), 10), "\r\n"...)
	}
	if !again {
		b = append(b, "Connection: close\r\n"...)
	}
	w.head = append(b, "\r\n"...)
	return w.head
}

// finish sends what was not, in one write.
func (w *quickWriter) finish(again bool) error {
	switch {
	case w.err != nil:
		return w.err
	case !w.sent:
		w.head = append(w.start(again), w.body...)
		_, w.err = w.conn.conn.Write(w.head)
	case len(w.body) > 0:
		_, w.err = w.conn.conn.Write(w.body)
	}
	if cap(w.head) > 2*writeTogether {
		w.head = nil
	}
	return w.err
}

// feed is a listener of connections that come back.
type feed struct {
	address net.Addr
	conns   chan net.Conn
	done    chan struct{}
	close   func()
}

func newFeed(address net.Addr) feed {
	done := make(chan struct{})
	return feed{address: address, conns: make(chan net.Conn), done: done, close: sync.OnceFunc(func() { close(done) })}
}

func (f feed) give(c net.Conn) bool {
	select {
	case f.conns <- c:
		return true
	case <-f.done:
		return false
	}
}

// Accept implements net.Listener.
func (f feed) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (f feed) Close() error {
	f.close()
	return nil
}

// Addr implements net.Listener.
func (f feed) Addr() net.Addr { return f.address }

// prefixed is a connection of which something was read already.
type prefixed struct {
	net.Conn

	ahead []byte
}

// Read implements net.Conn.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.ahead) > 0 {
		n := copy(b, p.ahead)
		p.ahead = p.ahead[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// CloseWrite lets net/http end a connection the gentle way.
func (p *prefixed) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
