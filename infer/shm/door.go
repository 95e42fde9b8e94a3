package shm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxOrder bounds one message at the door.
const maxOrder = 4096

// Order is a message at the door, JSON in one packet: a name and a size with a descriptor beside it
// registers a region, Drop forgets one. Every order is answered, but for Restart, which ends Run: whoever uses the
// process finds that it hangs, and says why.
type Order struct {
	Region   string `json:"region"`
	ByteSize uint64 `json:"byte_size,omitempty"`
	Drop     bool   `json:"drop,omitempty"`
	Restart  string `json:"restart,omitempty"`
}

// ErrRestart is what Run returns when it was asked to end.
var ErrRestart = errors.New("asked to start again")

// Answer follows every Order.
type Answer struct {
	Error string `json:"error,omitempty"`
}

// Door takes sealed memory by descriptor over a Unix socket of packets. The regions of a connection are
// dropped when it ends, so that a dead process leaves none behind.
type Door struct {
	regions *Registry
	logger  *slog.Logger
	restart chan string // the first reason
}

// NewDoor makes the door to a registry. A nil logger discards.
func NewDoor(regions *Registry, logger *slog.Logger) *Door {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Door{regions: regions, logger: logger, restart: make(chan string, 1)}
}

// Listen opens the socket of a door, for its owner and group; an old one that nobody listens on any more is
// replaced.
func Listen(path string) (*net.UnixListener, error) {
	ln, err := listen(path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

func listen(path string) (*net.UnixListener, error) {
	addr := &net.UnixAddr{Name: path, Net: "unixpacket"}
	ln, err := net.ListenUnix("unixpacket", addr)
	if !errors.Is(err, unix.EADDRINUSE) {
		return ln, err
	}
	if conn, dialErr := net.DialUnix("unixpacket", nil, addr); dialErr == nil {
		_ = conn.Close()
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.ListenUnix("unixpacket", addr)
}

// Run serves connections of ln until ctx ends, and closes it.
func (d *Door) Run(ctx context.Context, ln *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	for {
		conn, err := ln.AcceptUnix()
		if err != nil {
			select {
			case reason := <-d.restart:
				return fmt.Errorf("%w: %s", ErrRestart, reason)
			default:
			}
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept at %s: %w", ln.Addr(), err)
		}
		wg.Go(func() { d.serve(ctx, conn, cancel) })
	}
}

func (d *Door) serve(ctx context.Context, conn *net.UnixConn, end func()) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	held := make(map[string]bool)
	defer func() {
		for name := range held {
			d.regions.Drop(name)
		}
	}()
	msg, oob := make([]byte, maxOrder), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, flags, _, err := conn.ReadMsgUnix(msg, oob)
		if err != nil || n == 0 {
			return
		}
		fds := descriptors(oob[:oobn])
		var a Answer
		if err := d.obey(held, msg[:n], flags, fds, end); err != nil {
			a.Error = err.Error()
			d.logger.WarnContext(ctx, "memory refused at the door", slog.Any("err", err))
		}
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		out, err := json.Marshal(a)
		if err != nil {
			return
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func (d *Door) obey(held map[string]bool, msg []byte, flags int, fds []int, end func()) error {
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return fmt.Errorf("message of more than %d bytes or more than one descriptor", maxOrder)
	}
	var o Order
	if err := json.Unmarshal(msg, &o); err != nil {
		return fmt.Errorf("message is not an order: %w", err)
	}
	if o.Restart != "" {
		select {
		case d.restart <- o.Restart:
		default:
		}
		end()
		return nil
	}
	if o.Drop {
		if !held[o.Region] {
			return fmt.Errorf("region %q was not registered on this connection", o.Region)
		}
		delete(held, o.Region)
		d.regions.Drop(o.Region)
		return nil
	}
	if len(fds) != 1 {
		return fmt.Errorf("region %q came with %d descriptors, not one", o.Region, len(fds))
	}
	if err := d.regions.Adopt(o.Region, fds[0], o.ByteSize); err != nil {
		return err
	}
	held[o.Region] = true
	return nil
}

func descriptors(oob []byte) []int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var all []int
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}
