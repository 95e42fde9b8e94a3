package shm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func object(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantError(t *testing.T, err error, code infer.Code, text string) {
	t.Helper()
	if err == nil || err.Error() != text || infer.CodeOf(err) != code {
		t.Errorf("got %v (code %d), want %q (code %d)", err, infer.CodeOf(err), text, code)
	}
}

func TestX3DisabledRegistryRefusesClients(t *testing.T) {
	const text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
	r := shm.New(shm.Config{})
	wantError(t, r.Register("a", "/a", 0, 1), infer.Unsupported, text)
	wantError(t, r.Unregister(""), infer.Unsupported, text)
	_, err := r.Status("")
	wantError(t, err, infer.Unsupported, text)
}

func TestX3RegisterChecksWhatItIsTold(t *testing.T) {
	dir := t.TempDir()
	object(t, dir, "obj", make([]byte, 100))
	object(t, dir, "triton_python_backend_shm_region_1", make([]byte, 100))
	if err := os.Symlink(filepath.Join(dir, "obj"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := shm.New(shm.Config{AllowNamed: true, Dir: dir})
	defer r.Drop("")
	if err := r.Register("taken", "/obj", 0, 100); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, region, key string
		offset, size      uint64
		code              infer.Code
		text              string
	}{
		{"a name twice", "taken", "/obj", 0, 100, infer.AlreadyExists, "shared memory region 'taken' already in manager"},
		{"no key", "r", "", 0, 100, infer.InvalidArgument, "Shared memory register request has no 'key' field"},
		{"no name", "", "/obj", 0, 100, infer.InvalidArgument, "shared memory region name must not be empty"},
		{"an object that is not there", "r", "/none", 0, 1, infer.Internal, "Unable to open shared memory region: '/none'"},
		{"a path out of the directory", "r", "/../obj", 0, 1, infer.Internal, "Unable to open shared memory region: '/../obj'"},
		{"the directory itself", "r", "/..", 0, 1, infer.Internal, "Unable to open shared memory region: '/..'"},
		{"a symbolic link", "r", "/link", 0, 1, infer.Internal, "Unable to open shared memory region: '/link'"},
		{"a pipe", "r", "/fifo", 0, 1, infer.Internal, "Unable to open shared memory region: '/fifo'"},
		{"more than there is", "r", "/obj", 1, 100, infer.InvalidArgument, "failed to register shared memory region 'r': invalid args"},
		{"an offset that overflows", "r", "/obj", 1<<64 - 1, 2, infer.InvalidArgument, "failed to register shared memory region 'r': invalid args"},
		{
			"a reserved key", "r", "/triton_python_backend_shm_region_1", 0, 1, infer.InvalidArgument,
			"cannot register shared memory region 'r': key '/triton_python_backend_shm_region_1' begins with the reserved prefix 'triton_python_backend_shm_region_'",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantError(t, r.Register(c.region, c.key, c.offset, c.size), c.code, c.text)
		})
	}
}

func TestX3UseWithinTheRegionOnly(t *testing.T) {
	dir := t.TempDir()
	object(t, dir, "obj", []byte("0123456789"))
	r := shm.New(shm.Config{AllowNamed: true, Dir: dir})
	defer r.Drop("")
	if err := r.Register("r", "obj", 2, 6); err != nil {
		t.Fatal(err)
	}
	l, err := r.Input("r", 1, 5)
	if err != nil || string(l.Bytes) != "34567" {
		t.Fatalf("got %q, %v", l.Bytes, err)
	}
	l.Release()
	_, err = r.Input("x", 0, 1)
	wantError(t, err, infer.NotFound, "Unable to find shared memory region: 'x'")
	_, err = r.Input("r", 6, 1)
	wantError(t, err, infer.InvalidArgument, "Invalid offset for shared memory region: 'r'")
	_, err = r.Input("r", 1, 6)
	wantError(t, err, infer.InvalidArgument, "Invalid offset + byte size for shared memory region: 'r'")
	_, err = r.Input("r", 1, 1<<64-1)
	wantError(t, err, infer.InvalidArgument, "Invalid offset + byte size for shared memory region: 'r'")
}

func TestX3RegionsAreUsedInPlace(t *testing.T) {
	dir := t.TempDir()
	path := object(t, dir, "obj", []byte("0123456789"))
	pool := new(tensor.Pool)
	r := shm.New(shm.Config{AllowNamed: true, Dir: dir, Pool: pool})
	defer r.Drop("")
	if err := r.Register("r", "obj", 2, 6); err != nil {
		t.Fatal(err)
	}
	in, err := r.Input("r", 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	out, err := r.Output("r", 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Release()
	copy(out.Bytes, "abc")
	if got, _ := os.ReadFile(path); string(got) != "012abc6789" {
		t.Errorf("the object holds %q", got)
	}
	if string(in.Bytes) != "abc67" || !in.Lends(in.Bytes[4:]) || in.Lends([]byte("abc67")) || pool.Total() != 0 {
		t.Errorf("the input is %q, and %d bytes were copied", in.Bytes, pool.Total())
	}
	stable, err := r.Stable("r", 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer stable.Release()
	copy(out.Bytes, "xyz")
	if string(stable.Bytes) != "abc67" || stable.Lends(stable.Bytes) || in.Intact() != nil || out.Intact() != nil || stable.Intact() != nil {
		t.Errorf("what should be stable is %q", stable.Bytes)
	}
}

func TestX3TruncatedRegionIsAnErrorNotACrash(t *testing.T) {
	const text = "shared memory region 'r' is shorter than it was when it was registered, or its file system is full: unregister it and register it anew"
	dir := t.TempDir()
	path := object(t, dir, "obj", make([]byte, 8192))
	pool := new(tensor.Pool)
	r := shm.New(shm.Config{AllowNamed: true, Dir: dir, Pool: pool})
	defer r.Drop("")
	register := func() {
		t.Helper()
		if err := r.Register("r", "obj", 0, 8192); err != nil {
			t.Fatal(err)
		}
	}
	register()
	in, err := r.Input("r", 0, 8192)
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Output("r", 0, 8192)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if in.Bytes[8000] != 0 {
		t.Error("what is gone is not zero")
	}
	out.Bytes[8000] = 1
	wantError(t, in.Intact(), infer.InvalidArgument, text)
	wantError(t, out.Intact(), infer.InvalidArgument, text)
	if st, _ := os.Stat(path); st.Size() != 10 {
		t.Errorf("the object grew to %d bytes again", st.Size())
	}
	for name, lend := range map[string]func(string, uint64, uint64) (*shm.Lease, error){"input": r.Input, "output": r.Output, "stable": r.Stable} {
		_, err := lend("r", 0, 1)
		t.Log(name)
		wantError(t, err, infer.InvalidArgument, text)
	}
	// Grown again it is still lost: its pages are no longer the client's. Registered anew it is whole.
	if err := os.Truncate(path, 8192); err != nil {
		t.Fatal(err)
	}
	_, err = r.Input("r", 0, 1)
	wantError(t, err, infer.InvalidArgument, text)
	in.Release()
	out.Release()
	r.Drop("r")
	register()
	again, err := r.Input("r", 0, 8192)
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
	if n := pool.Lent(); n != 0 {
		t.Errorf("%d buffers were not released", n)
	}
}

func TestX3UnregisterWhileInUseKeepsTheMemory(t *testing.T) {
	r := shm.New(shm.Config{AllowNamed: true})
	fd := memfd(t, []byte("frame"), unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	if err := r.Adopt("r", fd, 5); err != nil {
		t.Fatal(err)
	}
	l, err := r.Input("r", 0, 5)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Unregister("r"); err != nil {
		t.Fatal(err)
	}
	if string(l.Bytes) != "frame" {
		t.Errorf("got %q", l.Bytes)
	}
	l.Release()
	_, err = r.Status("r")
	wantError(t, err, infer.NotFound, "Unable to find system shared memory region: 'r'")
	if err := r.Unregister("r"); err != nil {
		t.Errorf("unregister of an unknown name: %v", err)
	}
}

func TestX3StatusListsRegionsByName(t *testing.T) {
	dir := t.TempDir()
	object(t, dir, "obj", make([]byte, 100))
	r := shm.New(shm.Config{AllowNamed: true, Dir: dir})
	defer r.Drop("")
	for _, name := range []string{"b", "a"} {
		if err := r.Register(name, "/obj", 4, 8); err != nil {
			t.Fatal(err)
		}
	}
	all, err := r.Status("")
	if err != nil || len(all) != 2 || all[0] != (shm.Status{Name: "a", Key: "/obj", Offset: 4, ByteSize: 8}) || all[1].Name != "b" {
		t.Errorf("got %+v, %v", all, err)
	}
}

func memfd(t *testing.T, data []byte, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("frames", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.Write(fd, data); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestSealedMemoryIsReadInPlace(t *testing.T) {
	pool := new(tensor.Pool)
	r := shm.New(shm.Config{Pool: pool})
	data := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 1024)
	if err := r.Adopt("frames", memfd(t, data, unix.F_SEAL_SHRINK), uint64(len(data))); err != nil {
		t.Fatal(err)
	}
	defer r.Drop("")
	a, err := r.Input("frames", 8, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Release()
	b, err := r.Input("frames", 8, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if !tensor.SameMemory(a.Bytes, b.Bytes) || pool.Lent() != 0 {
		t.Error("the bytes were copied")
	}
	if m, off, ok := a.Frame(); !ok || off != 8 || m.LoadUint64(8) != 0x0807060504030201 {
		t.Error("the mapping cannot be read")
	}
	if _, err := r.Output("frames", 0, 8); infer.CodeOf(err) != infer.InvalidArgument {
		t.Errorf("writing into frames: got %v", err)
	}
}

func TestMemoryThatCanShrinkIsRefused(t *testing.T) {
	r := shm.New(shm.Config{})
	err := r.Adopt("frames", memfd(t, make([]byte, 64), unix.F_SEAL_GROW), 64)
	wantError(t, err, infer.InvalidArgument,
		"failed to register shared memory region 'frames': the descriptor is not a memfd sealed against shrinking")
}

type caller struct{ *net.UnixConn }

func (c caller) order(t *testing.T, msg string, fds ...int) string {
	t.Helper()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix([]byte(msg), oob, nil); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1024)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	var a shm.Answer
	if err := json.Unmarshal(buf[:n], &a); err != nil {
		t.Fatal(err)
	}
	return a.Error
}

func TestDoorTakesMemoryUntilItsConnectionEnds(t *testing.T) {
	r := shm.New(shm.Config{AllowNamed: true})
	path := filepath.Join(t.TempDir(), "door")
	ln, err := shm.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shm.Listen(path); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a second listener: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- shm.NewDoor(r, nil).Run(ctx, ln) }()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := caller{conn}
	fd := memfd(t, make([]byte, 64), unix.F_SEAL_SHRINK)
	for _, s := range []struct {
		name, msg string
		fds       []int
		want      string
	}{
		{"a region", `{"region":"cam","byte_size":64}`, []int{fd}, ""},
		{"no descriptor", `{"region":"x","byte_size":64}`, nil, `region "x" came with 0 descriptors, not one`},
		{"two descriptors", `{"region":"x","byte_size":64}`, []int{fd, fd}, `region "x" came with 2 descriptors, not one`},
		{"too large a size", `{"region":"x","byte_size":65}`, []int{fd}, "failed to register shared memory region 'x': invalid args"},
		{"not an order", `nonsense`, []int{fd}, "message is not an order: invalid character 'o' in literal null (expecting 'u')"},
		{"somebody else's region", `{"region":"y","drop":true}`, nil, `region "y" was not registered on this connection`},
	} {
		if got := c.order(t, s.msg, s.fds...); got != s.want {
			t.Errorf("%s: got %q, want %q", s.name, got, s.want)
		}
	}
	if _, err := r.Status("cam"); err != nil {
		t.Error(err)
	}
	if got := c.order(t, `{"region":"cam","drop":true}`); got != "" {
		t.Error(got)
	}
	if _, err := r.Status("cam"); err == nil {
		t.Error("the region is still there after its drop")
	}
	if got := c.order(t, `{"region":"cam","byte_size":64}`, fd); got != "" {
		t.Error(got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if all, _ := r.Status(""); len(all) != 0 {
		t.Errorf("left behind: %+v", all)
	}
	if _, err := shm.Listen(path); err != nil {
		t.Errorf("the socket cannot be opened again: %v", err)
	}
}

func FuzzLeaseStaysWithinItsRegion(f *testing.F) {
	f.Add(uint64(0), uint64(1))
	f.Add(uint64(6), uint64(0))
	f.Add(uint64(1<<64-1), uint64(2))
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "obj"), []byte("0123456789"), 0o600); err != nil {
		f.Fatal(err)
	}
	r := shm.New(shm.Config{AllowNamed: true, Dir: dir})
	if err := r.Register("r", "obj", 2, 6); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, offset, size uint64) {
		l, err := r.Input("r", offset, size)
		fits := offset <= 6 && size <= 6-offset
		if fits != (err == nil) {
			t.Fatalf("offset %d, size %d: %v", offset, size, err)
		}
		if err == nil {
			if string(l.Bytes) != "234567"[offset:offset+size] {
				t.Fatalf("got %q", l.Bytes)
			}
			l.Release()
		}
	})
}

func TestDoorEndsWhenItIsAskedToAndSaysWhy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "door")
	ln, err := shm.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- shm.NewDoor(shm.New(shm.Config{}), nil).Run(t.Context(), ln) }()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(`{"restart":"model detector hangs"}`)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, shm.ErrRestart) || !strings.Contains(err.Error(), "model detector hangs") {
		t.Errorf("Run returned %v", err)
	}
}
