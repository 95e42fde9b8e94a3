package unixmsg_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/internal/unixmsg"
)

// pair returns two ends of a connection.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]*net.UnixConn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends[0], ends[1]
}

func TestMessagesAndFilesArriveTogether(t *testing.T) {
	ca, cb := pair(t)
	a, b := unixmsg.New(ca), unixmsg.New(cb)
	big := bytes.Repeat([]byte("frame"), 1<<20)
	var files []*os.File
	for i := range 3 {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if _, err := f.WriteString(string(rune('a' + i))); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	var g errgroup.Group
	g.Go(func() error {
		return errors.Join(
			a.Send([]byte("one"), files[0]),
			a.Send(nil),
			a.Send(big, files[1], files[2]),
			a.Send([]byte("last")),
			a.Close(),
		)
	})
	for _, want := range []struct {
		payload []byte
		files   string
	}{{[]byte("one"), "a"}, {nil, ""}, {big, "bc"}, {[]byte("last"), ""}} {
		p, fs, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p, want.payload) {
			t.Errorf("got %d bytes, want %d", len(p), len(want.payload))
		}
		var got []byte
		for _, f := range fs {
			one := make([]byte, 1)
			if _, err := f.ReadAt(one, 0); err != nil {
				t.Fatal(err)
			}
			got = append(got, one...)
			_ = f.Close()
		}
		if string(got) != want.files {
			t.Errorf("got files %q, want %q", got, want.files)
		}
	}
	if _, _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func TestAWrongHeaderIsRefused(t *testing.T) {
	for name, raw := range map[string][]byte{
		"a payload beyond the limit":        {0xFF, 0xFF, 0xFF, 0x7F, 0, 0, 0, 0},
		"more files than allowed":           {0, 0, 0, 0, 200, 0, 0, 0},
		"files announced that did not come": {0, 0, 0, 0, 1, 0, 0, 0},
		"a header cut short":                {1, 0, 0},
		"a payload cut short":               {9, 0, 0, 0, 0, 0, 0, 0, 'x'},
	} {
		t.Run(name, func(t *testing.T) {
			ca, cb := pair(t)
			if _, err := ca.Write(raw); err != nil {
				t.Fatal(err)
			}
			_ = ca.Close()
			if p, _, err := unixmsg.New(cb).Receive(); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("got %q, %v", p, err)
			}
		})
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c', 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		ca, cb := pair(t)
		if len(raw) > 16<<10 {
			return
		}
		if _, err := ca.Write(raw); err != nil {
			t.Fatal(err)
		}
		_ = ca.Close()
		c, read := unixmsg.New(cb), 0
		for {
			p, files, err := c.Receive()
			if err != nil {
				break
			}
			if len(files) != 0 {
				t.Fatal("files out of nowhere")
			}
			read += 8 + len(p)
			if read > len(raw) {
				t.Fatalf("%d bytes out of %d", read, len(raw))
			}
		}
	})
}
