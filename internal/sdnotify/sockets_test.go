package sdnotify_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vedette/vedette/internal/sdnotify"
)

// served is this test as the program that systemd starts: it answers one connection at the socket named http, twice
// over, and prints what became of the environment.
const served = "TEST_SERVED_SOCKETS"

func TestServedProcess(t *testing.T) {
	if os.Getenv(served) == "" {
		t.Skip("started by TestSocketsAreTakenFromWhoeverOpenedThem")
	}
	sockets := sdnotify.InheritedSockets()
	for range 2 {
		ln, err := sockets.Listen("http")
		if err != nil || ln == nil {
			t.Fatalf("%v, %v", ln, err)
		}
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "LISTEN_FDS=%q\n", os.Getenv("LISTEN_FDS"))
		_ = conn.Close()
		_ = ln.Close()
	}
	if ln, err := sockets.Listen("grpc"); ln != nil || err != nil {
		t.Errorf("a socket that nobody passed: %v, %v", ln, err)
	}
	if ln, err := sockets.Listen("local"); ln != nil || err == nil || !strings.Contains(err.Error(), "not a TCP port") {
		t.Errorf("a socket that is not TCP's: %v, %v", ln, err)
	}
}

func TestSocketsAreTakenFromWhoeverOpenedThem(t *testing.T) {
	var lc net.ListenConfig
	tcp, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	local, err := lc.Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for _, ln := range []interface{ File() (*os.File, error) }{tcp.(*net.TCPListener), local.(*net.UnixListener)} {
		f, err := ln.File()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		files = append(files, f)
	}
	address := tcp.Addr().String()
	_ = tcp.Close() // the files keep the sockets

	// The number of the process has to be in its environment, so a shell becomes it.
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run '^TestServedProcess$'`, os.Args[0])
	cmd.Env = append(os.Environ(), served+"=1", "LISTEN_FDS=2", "LISTEN_FDNAMES=http:local")
	cmd.ExtraFiles = files
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first waits in the socket until the process is there
		if got := ask(t.Context(), t, address); got != "LISTEN_FDS=\"\"\n" {
			t.Errorf("the process answers %q", got)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	_ = local.Close()
}

func ask(ctx context.Context, t *testing.T, address string) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}
