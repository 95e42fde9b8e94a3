package shm

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/mmap"
)

// region is one piece of shared memory. users counts the registry and every lease; the last one closes it.
type region struct {
	status  Status
	file    *os.File
	sealed  []byte        // the whole of it, where it cannot shrink; it is only read
	guarded *mmap.Guarded // otherwise
	users   atomic.Int64
}

func openNamed(dir, name, key string, offset, size uint64) (*region, error) {
	unable := infer.Errorf(infer.Internal, "Unable to open shared memory region: '%s'", key)
	file := strings.TrimPrefix(key, "/")
	if file == "" || file == "." || file == ".." || strings.ContainsAny(file, "/\x00") {
		return nil, unable
	}
	fd, err := unix.Open(filepath.Join(dir, file), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, unable
	}
	f := os.NewFile(uintptr(fd), key)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = f.Close()
		return nil, unable
	}
	if size == 0 || offset > uint64(st.Size) || size > uint64(st.Size)-offset {
		_ = f.Close()
		return nil, infer.Errorf(infer.InvalidArgument, "failed to register shared memory region '%s': invalid args", name)
	}
	guarded, err := mmap.MapGuarded(f, int64(offset), int64(size))
	if err != nil {
		_ = f.Close()
		return nil, infer.Errorf(infer.Internal, "failed to register shared memory region '%s': %v", name, err)
	}
	r := &region{file: f, guarded: guarded, status: Status{Name: name, Key: key, Offset: offset, ByteSize: size}}
	r.users.Store(1)
	return r, nil
}

func adopt(name string, fd int, size uint64) (*region, error) {
	refuse := func(why string) error {
		return infer.Errorf(infer.InvalidArgument, "failed to register shared memory region '%s': %s", name, why)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, refuse("the descriptor is not a memfd sealed against shrinking")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || size == 0 || size > uint64(st.Size) {
		return nil, refuse("invalid args")
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, refuse(err.Error())
	}
	mem, err := unix.Mmap(dup, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(dup)
		return nil, refuse(err.Error())
	}
	r := &region{file: os.NewFile(uintptr(dup), name), sealed: mem, status: Status{Name: name, ByteSize: size}}
	r.users.Store(1)
	return r, nil
}

func (r *region) bytes() []byte {
	if r.sealed != nil {
		return r.sealed
	}
	return r.guarded.Bytes()
}

// intact is nil as long as nothing of the region was missing when it was touched.
func (r *region) intact() error {
	if r.guarded == nil || !r.guarded.Lost() {
		return nil
	}
	return r.lost()
}

// whole is nil when the object is still as long as it was.
func (r *region) whole() error {
	if r.guarded == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(r.file.Fd()), &st); err != nil || uint64(st.Size) < r.status.Offset+r.status.ByteSize {
		return r.lost()
	}
	return r.intact()
}

func (r *region) lost() error {
	return infer.Errorf(infer.InvalidArgument,
		"shared memory region '%s' is shorter than it was when it was registered, or its file system is full: unregister it and register it anew", r.status.Name)
}

func (r *region) release() {
	if r.users.Add(-1) > 0 {
		return
	}
	if r.guarded != nil {
		_ = r.guarded.Close()
	} else {
		_ = unix.Munmap(r.sealed)
	}
	_ = r.file.Close()
}

// Mapping is a region's memory in the way api/frame reads it.
type Mapping []byte

// Bytes returns the whole mapping.
func (m Mapping) Bytes() []byte { return m }

// LoadUint64 reads eight bytes at once; offset is a multiple of 8.
func (m Mapping) LoadUint64(offset int) uint64 {
	return atomic.LoadUint64(&tensor.View[uint64](m[offset : offset+8])[0])
}
