package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// listen opens a TCP address.
func listen(ctx context.Context, address, flag string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("listen at %s: another program has this port: stop it, or choose another port with %s: %w", address, flag, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", address, err)
	}
	return ln, nil
}

// listenUnix opens a Unix socket for its owner only. One that nobody listens on any more is replaced.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", path)
	if errors.Is(err, unix.EADDRINUSE) {
		var d net.Dialer
		if conn, dialErr := d.DialContext(ctx, "unix", path); dialErr == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("listen at %s: another process serves it: %w", path, err)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("replace the dead socket %s: %w", path, err)
		}
		ln, err = lc.Listen(ctx, "unix", path)
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		_ = ln.Close()
		return nil, fmt.Errorf("close %s to strangers: %w", path, err)
	}
	return ln, nil
}
