// Package unixmsg carries messages and open files between processes of one machine.
//
// A message on the stream is eight bytes of header (payload length and number of descriptors,
// 32 bits each, little-endian), then the payload; the descriptors travel as SCM_RIGHTS with
// the header's bytes.
package unixmsg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Limits of one message.
const (
	MaxPayload = 64 << 20
	MaxFiles   = 16
)

const headerLen = 8

// Conn sends and receives messages. Any number of goroutines may Send; one at a time may Receive.
type Conn struct {
	conn *net.UnixConn

	sending sync.Mutex // one message at a time on the wire
	out     []byte     // guarded by sending

	in    []byte // received and not yet handed out
	start int    // where the next message begins in in
	oob   []byte
	files []*os.File // received, waiting for the message they belong to
}

// New wraps a stream connection. The Conn closes it.
func New(conn *net.UnixConn) *Conn {
	return &Conn{conn: conn, oob: make([]byte, unix.CmsgSpace(4*MaxFiles))}
}

// Send writes one message; it blocks while the other side does not read. Files are duplicated
// by the kernel and stay the caller's. After an error the connection is of no more use.
func (c *Conn) Send(payload []byte, files ...*os.File) error {
	if len(payload) > MaxPayload || len(files) > MaxFiles {
		return fmt.Errorf("send message of %d bytes with %d files: at most %d and %d", len(payload), len(files), MaxPayload, MaxFiles)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	c.out = binary.LittleEndian.AppendUint32(c.out[:0], uint32(len(payload)))
	c.out = binary.LittleEndian.AppendUint32(c.out, uint32(len(files)))
	// One write for all but the largest messages.
	head := min(len(payload), 32<<10)
	c.out = append(c.out, payload[:head]...)
	sent := 0
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		n, _, err := c.conn.WriteMsgUnix(c.out, unix.UnixRights(fds...), nil)
		if err != nil {
			return fmt.Errorf("send message with %d files: %w", len(files), err)
		}
		sent = n
	}
	if _, err := c.conn.Write(c.out[sent:]); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	if head < len(payload) {
		if _, err := c.conn.Write(payload[head:]); err != nil {
			return fmt.Errorf("send message: %w", err)
		}
	}
	return nil
}

// Receive reads one message. The payload is valid until the next Receive; the files are
// the caller's to close. The error is io.EOF when the other side closed between two messages.
func (c *Conn) Receive() ([]byte, []*os.File, error) {
	if err := c.fill(headerLen); err != nil {
		if errors.Is(err, io.EOF) && len(c.in) == c.start {
			return nil, nil, io.EOF
		}
		return nil, nil, fmt.Errorf("receive message: %w", unexpected(err))
	}
	n := binary.LittleEndian.Uint32(c.in[c.start:])
	files := binary.LittleEndian.Uint32(c.in[c.start+4:])
	if n > MaxPayload || files > MaxFiles {
		return nil, nil, fmt.Errorf("receive message of %d bytes with %d files: at most %d and %d", n, files, MaxPayload, MaxFiles)
	}
	if err := c.fill(headerLen + int(n)); err != nil {
		return nil, nil, fmt.Errorf("receive message of %d bytes: %w", n, unexpected(err))
	}
	// Descriptors come with the first bytes of their message, so they are here by now.
	if int(files) > len(c.files) {
		return nil, nil, fmt.Errorf("receive message: %d files announced, %d came", files, len(c.files))
	}
	got := c.files[:files:files]
	c.files = c.files[files:]
	payload := c.in[c.start+headerLen : c.start+headerLen+int(n)]
	c.start += headerLen + int(n)
	return payload, got, nil
}

// unexpected keeps an end within a message apart from one between two.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fill reads until n bytes lie at c.start. The bytes of the message before are given up.
func (c *Conn) fill(n int) error {
	if len(c.in)-c.start >= n {
		return nil
	}
	if c.start > 0 {
		c.in = c.in[:copy(c.in, c.in[c.start:])]
		c.start = 0
	}
	// A huge message must not keep its buffer for ever.
	if cap(c.in) > 1<<20 && n <= 64<<10 && len(c.in) <= 64<<10 {
		c.in = append(make([]byte, 0, 64<<10), c.in...)
	}
	for len(c.in) < n {
		// Grow with what arrives, not with what is announced.
		if room := min(max(n, 64<<10)-len(c.in), max(len(c.in), 64<<10)); cap(c.in)-len(c.in) < room {
			c.in = append(make([]byte, 0, len(c.in)+room), c.in...)
		}
		k, oobn, flags, _, err := c.conn.ReadMsgUnix(c.in[len(c.in):cap(c.in)], c.oob)
		if err == nil && flags&unix.MSG_CTRUNC != 0 {
			err = errors.New("descriptors were cut off: this process may have too many open files")
		}
		if oobn > 0 {
			err = errors.Join(err, c.keepFiles(c.oob[:oobn]))
		}
		c.in = c.in[:len(c.in)+max(k, 0)]
		if err != nil {
			return err
		}
		if k == 0 {
			return io.EOF
		}
	}
	return nil
}

func (c *Conn) keepFiles(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // not descriptors
		}
		for _, fd := range fds {
			c.files = append(c.files, os.NewFile(uintptr(fd), "received"))
		}
	}
	if len(c.files) > 4*MaxFiles {
		return fmt.Errorf("%d files came without a message", len(c.files))
	}
	return nil
}

// Close ends the connection and both sides' blocked calls.
func (c *Conn) Close() error { return c.conn.Close() }

// Discard closes files that came without their message; to be called by the receiver when it has
// stopped receiving.
func (c *Conn) Discard() {
	for _, f := range c.files {
		_ = f.Close()
	}
	c.files = nil
}
