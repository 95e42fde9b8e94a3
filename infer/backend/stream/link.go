package stream

import (
	"context"
	"fmt"
	"net"
	"os"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/internal/unixmsg"
)

// link is one connection to the ingest sidecar. Leases, and a camera opened for it alone, end with it.
type link struct {
	conn *unixmsg.Conn
	// messages come in order; the channel ends with the connection, and err then says why.
	messages chan message
	err      error
}

// message is what the sidecar said, with the descriptor that came along.
type message struct {
	*ingestv1.FromIngest

	file *os.File
}

func (m message) close() {
	if m.file != nil {
		_ = m.file.Close()
	}
}

// connect greets the sidecar. The end of ctx ends the connection.
func (b *Backend) connect(ctx context.Context) (*link, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "unix", b.cfg.Socket)
	if err != nil {
		return nil, infer.Errorf(infer.Unavailable, "the ingest sidecar does not answer: %v", err)
	}
	unix, ok := raw.(*net.UnixConn)
	if !ok {
		return nil, infer.Errorf(infer.Internal, "%s is no Unix socket", b.cfg.Socket) // cannot be
	}
	l := &link{conn: unixmsg.New(unix), messages: make(chan message)}
	context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_Hello{Hello: &ingestv1.Hello{Contract: ingestv1.Contract(), Program: b.cfg.Program}}})
	go l.read() // ends with the connection, and drain waits for it
	m, ok := <-l.messages
	if hello := m.GetHello(); !ok || hello.GetContract() != ingestv1.Contract() {
		m.close()
		_ = l.conn.Close()
		l.drain()
		if !ok {
			return nil, infer.Errorf(infer.Unavailable, "the ingest sidecar does not answer: %v", l.err)
		}
		return nil, infer.Errorf(infer.Unavailable, "the ingest sidecar is of another version (%s): one of the two is being upgraded", hello.GetProgram())
	}
	return l, nil
}

// send says something. A fault of the connection shows where it is read.
func (l *link) send(m *ingestv1.ToIngest) {
	b, err := proto.Marshal(m)
	if err == nil {
		err = l.conn.Send(b)
	}
	if err != nil {
		_ = l.conn.Close()
	}
}

func (l *link) read() {
	defer close(l.messages)
	defer l.conn.Discard()
	for {
		payload, files, err := l.conn.Receive()
		if err != nil {
			l.err = err
			return
		}
		m := message{FromIngest: new(ingestv1.FromIngest)}
		for i, f := range files {
			if i == 0 {
				m.file = f
			} else {
				_ = f.Close() // no message has two
			}
		}
		if err := proto.Unmarshal(payload, m.FromIngest); err != nil {
			m.close()
			l.err = fmt.Errorf("message from the ingest sidecar: %w", err)
			_ = l.conn.Close()
			return
		}
		l.messages <- m
	}
}

// drain ends the connection and waits until nothing of it is left.
func (l *link) drain() {
	_ = l.conn.Close()
	for m := range l.messages {
		m.close()
	}
}
