package rtsp

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// farewell is a connection that is closed only after the camera has answered TEARDOWN, or had time to. The library
// closes it right after the request: the media still on their way would then reset the connection, and the camera,
// which may never see the request, would keep the session until its own timeout. Many cameras have one or two.
type farewell struct {
	net.Conn
	patience time.Duration

	leaving atomic.Bool
	heard   atomic.Bool
	closing sync.Once
	err     error
}

// Write is part of net.Conn.
func (f *farewell) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte("TEARDOWN ")) {
		f.leaving.Store(true)
	}
	return f.Conn.Write(b)
}

// Read is part of net.Conn. The library's reader and Close may read side by side.
func (f *farewell) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if f.leaving.Load() && (err != nil || bytes.Contains(b[:n], []byte("RTSP/1.0 "))) {
		f.heard.Store(true)
		_ = f.SetReadDeadline(time.Unix(1, 0)) // whoever else reads
	}
	return n, err
}

// Close is part of net.Conn.
func (f *farewell) Close() error {
	f.closing.Do(func() {
		if f.leaving.Load() {
			_ = f.SetReadDeadline(time.Now().Add(f.patience))
			for b := make([]byte, 16<<10); !f.heard.Load(); {
				if _, err := f.Read(b); err != nil {
					break
				}
			}
		}
		f.err = f.Conn.Close()
	})
	return f.err
}
