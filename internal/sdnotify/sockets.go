package sdnotify

import (
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
)

// Sockets are listening sockets that systemd opened for a process (socket activation), by their FileDescriptorName=.
// They stay open for as long as the process lives.
type Sockets map[string]*os.File

// InheritedSockets are those of this process. Call it once, early: it removes systemd's word of them from the
// environment, so that no child takes them for its own.
func InheritedSockets() Sockets {
	sockets := Sockets{}
	for _, f := range activation.Files(true) {
		if _, twice := sockets[f.Name()]; twice {
			_ = f.Close() // of two with one name the first is used
			continue
		}
		sockets[f.Name()] = f
	}
	return sockets
}

// Listen returns a listener on the socket of that name, which must be one of TCP; nil: there is none. The caller closes
// it, and may ask for another one after that.
func (s Sockets) Listen(name string) (net.Listener, error) {
	f, ok := s[name]
	if !ok {
		return nil, nil //nolint:nilnil // no socket is no error
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("the socket %q that systemd passed cannot be listened on: %w (a socket unit for it has ListenStream= and Accept=no)", name, err)
	}
	if _, ok := ln.(*net.TCPListener); !ok {
		_ = ln.Close()
		return nil, fmt.Errorf("the socket %q that systemd passed is at %s, not a TCP port: its unit has ListenStream=ADDRESS:PORT", name, ln.Addr())
	}
	return ln, nil
}
