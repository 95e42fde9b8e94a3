package mmap_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/internal/mmap"
)

func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func TestAReaderSeesWhatTheOwnerWrites(t *testing.T) {
	m, err := mmap.Create("test", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	r, err := mmap.Open(dup(t, m.File()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	m.StoreUint64(128, 1<<63|5)
	m.Bytes()[8191] = 7
	if r.LoadUint64(128) != 1<<63|5 || r.Bytes()[8191] != 7 || len(r.Bytes()) != 8192 {
		t.Error("the reader's mapping shows something else")
	}
}

func TestAReceiverCanNeitherResizeNorWrite(t *testing.T) {
	m, err := mmap.Create("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	f := dup(t, m.File())
	defer func() { _ = f.Close() }()
	if err := f.Truncate(0); err == nil {
		t.Error("the memory could be truncated")
	}
	if err := f.Truncate(1 << 20); err == nil {
		t.Error("the memory could be grown")
	}
	if _, err := f.WriteAt([]byte{1}, 0); err == nil {
		t.Error("the memory could be written through the descriptor")
	}
	if b, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		_ = unix.Munmap(b)
		t.Error("the memory could be mapped for writing")
	}
}

func TestMemoryThatCanShrinkIsRefused(t *testing.T) {
	fd, err := unix.MemfdCreate("open", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	memory := os.NewFile(uintptr(fd), "open")
	defer func() { _ = memory.Close() }()
	if err := memory.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	plain, err := os.CreateTemp(t.TempDir(), "file")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	for name, f := range map[string]*os.File{"a memfd without seals": memory, "an ordinary file": plain} {
		t.Run(name, func(t *testing.T) {
			if _, err := mmap.Open(f); !errors.Is(err, mmap.ErrUnsealed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAnEmptySizeIsRefused(t *testing.T) {
	if _, err := mmap.Create("test", 0); err == nil {
		t.Error("memory of no bytes was created")
	}
}
