// Package mmap shares memory between processes by descriptor: memory that cannot change its size
// under a reader, and reads that survive memory that can.
//
// Create makes a memfd sealed against shrinking, growing and any further writable mapping, so that
// whoever receives its descriptor can read it without a guard and cannot write it. Open maps
// such a descriptor and refuses one that lacks the seals. MapGuarded maps a file that its owner may still cut
// short: whoever touches what is gone finds zeros and a mark instead of the end of the process.
package mmap

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrUnsealed says: the memory could be truncated by its owner while it is being read.
var ErrUnsealed = errors.New("shared memory is not sealed against shrinking and growing")

// Memory is a mapping. Bytes and the loads and stores may be used by any number of goroutines
// until Close; whoever calls Close knows that nobody uses them any more.
type Memory struct {
	data     []byte
	file     *os.File
	writable bool
}

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// Create makes a sealed memfd of size bytes, zeroed, and maps it for writing. The name is what
// /proc shows.
func Create(name string, size int) (*Memory, error) {
	if size < 1 {
		return nil, fmt.Errorf("create memfd %q: size %d is not positive", name, size)
	}
	fd, err := memfd(name)
	if err != nil {
		return nil, fmt.Errorf("create memfd %q: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	m, err := initialise(file, size)
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("create memfd %q of %d bytes: %w", name, size, err)
	}
	return m, nil
}

// memfd asks for memory that can never be executed, which kernels before 6.3 do not know.
func memfd(name string) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		return unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	return fd, err
}

func initialise(file *os.File, size int) (*Memory, error) {
	if err := file.Truncate(int64(size)); err != nil {
		return nil, err
	}
	data, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	// The mapping above stays writable; no other can follow.
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals|unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL); err != nil {
		_ = unix.Munmap(data)
		return nil, fmt.Errorf("seal: %w", err)
	}
	return &Memory{data: data, file: file, writable: true}, nil
}

// Open maps a received descriptor for reading and keeps file until Close; on an error the caller
// still owns it. The error is ErrUnsealed when the memory lacks its seals.
func Open(file *os.File) (*Memory, error) {
	got, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w (%w)", file.Name(), ErrUnsealed, err)
	}
	if got&seals != seals {
		return nil, fmt.Errorf("map %s: %w", file.Name(), ErrUnsealed)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", file.Name(), err)
	}
	if info.Size() < 1 || info.Size() != int64(int(info.Size())) {
		return nil, fmt.Errorf("map %s: size %d cannot be mapped", file.Name(), info.Size())
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", file.Name(), err)
	}
	return &Memory{data: data, file: file}, nil
}

// Bytes returns the whole mapping. Writing to memory that was opened, not created, is a fault.
func (m *Memory) Bytes() []byte { return m.data }

// File returns the descriptor, to be passed on; it stays the memory's own.
func (m *Memory) File() *os.File { return m.file }

// LoadUint64 reads eight bytes at once, with acquire order; offset is a multiple of 8.
func (m *Memory) LoadUint64(offset int) uint64 {
	return m.word(offset).Load()
}

// StoreUint64 writes eight bytes at once, with release order; offset is a multiple of 8.
func (m *Memory) StoreUint64(offset int, v uint64) {
	m.word(offset).Store(v)
}

func (m *Memory) word(offset int) *atomic.Uint64 {
	b := m.data[offset : offset+8]
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b)))
}

// Close unmaps the memory and closes its descriptor. Nothing may use it any more. A second Close
// does nothing.
func (m *Memory) Close() error {
	if m.data == nil {
		return nil
	}
	err := errors.Join(unix.Munmap(m.data), m.file.Close())
	m.data = nil
	return err
}
