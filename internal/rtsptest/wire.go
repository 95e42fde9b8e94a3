package rtsptest

import (
	"bytes"
	"net"
	"regexp"
	"sync"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
)

// line is a client's connection to a camera whose answers go astray.
type line struct {
	net.Conn
	c      *Faulty
	answer func(l *line, b []byte) (int, error) // writes an answer while the fault lasts; nil: as it is
	deaf   bool                                 // does not hear TEARDOWN
	closed chan struct{}
	once   sync.Once
}

func answers(answer func(l *line, b []byte) (int, error)) func(*Config, *Faulty) {
	return func(cfg *Config, c *Faulty) {
		cfg.Conn = func(conn net.Conn) net.Conn {
			return &line{Conn: conn, c: c, answer: answer, closed: make(chan struct{})}
		}
	}
}

// deaf hears no TEARDOWN, and has no place for another session for a while after one.
func deaf(cfg *Config, c *Faulty) {
	cfg.Conn = func(conn net.Conn) net.Conn { return &line{Conn: conn, c: c, deaf: true, closed: make(chan struct{})} }
	cfg.Request = func(m base.Method, _ <-chan struct{}) *base.Response {
		if m == base.Setup && time.Since(time.Unix(0, c.unheard.Load())) < 300*time.Millisecond {
			return &base.Response{StatusCode: base.StatusNotEnoughBandwidth}
		}
		return nil
	}
}

// Write is part of net.Conn.
func (l *line) Write(b []byte) (int, error) {
	if l.answer != nil && l.c.on.Load() && bytes.HasPrefix(b, []byte("RTSP/1.0")) {
		return l.answer(l, b)
	}
	return l.Conn.Write(b)
}

// Read is part of net.Conn.
func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	for l.deaf && l.c.on.Load() && err == nil && bytes.Contains(b[:n], []byte("TEARDOWN ")) {
		l.c.unheard.Store(time.Now().UnixNano())
		n, err = l.Conn.Read(b)
	}
	return n, err
}

// Close is part of net.Conn.
func (l *line) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}

// silent says nothing until it is healed.
func silent(l *line, b []byte) (int, error) {
	select {
	case <-l.c.healed:
		return l.Conn.Write(b)
	case <-l.closed:
		return 0, net.ErrClosed
	}
}

var sequenceNumber = regexp.MustCompile(`CSeq: \d+`)

// otherNumber answers with another sequence number than the request's.
func otherNumber(l *line, b []byte) (int, error) {
	if _, err := l.Conn.Write(sequenceNumber.ReplaceAll(b, []byte("CSeq: 4711"))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// drip sends a byte at a time, faster than any deadline between two of them.
func drip(l *line, b []byte) (int, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := range b {
		select {
		case <-tick.C:
		case <-l.c.healed:
			n, err := l.Conn.Write(b[i:])
			return i + n, err
		case <-l.closed:
			return i, net.ErrClosed
		}
		if _, err := l.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// large makes datagrams larger than any network takes in one piece.
type large struct {
	*net.UDPConn
	c *Faulty
}

// WriteTo is part of net.PacketConn.
func (l large) WriteTo(b []byte, to net.Addr) (int, error) {
	if !l.c.on.Load() {
		return l.UDPConn.WriteTo(b, to)
	}
	// Zeros after a NAL unit belong to nothing.
	if _, err := l.UDPConn.WriteTo(append(bytes.Clone(b), make([]byte, 2000)...), to); err != nil {
		return 0, err
	}
	return len(b), nil
}

// lost sends nothing, as if a firewall were on the way.
type lost struct {
	*net.UDPConn
	c *Faulty
}

// WriteTo is part of net.PacketConn.
func (l lost) WriteTo(b []byte, to net.Addr) (int, error) {
	if l.c.on.Load() {
		return len(b), nil
	}
	return l.UDPConn.WriteTo(b, to)
}

func firewall(cfg *Config, c *Faulty) {
	cfg.UDP = true
	cfg.Datagrams = func(p net.PacketConn) net.PacketConn { return lost{p.(*net.UDPConn), c} }
}

func oversize(cfg *Config, c *Faulty) {
	cfg.UDP = true
	cfg.Datagrams = func(p net.PacketConn) net.PacketConn { return large{p.(*net.UDPConn), c} }
}
