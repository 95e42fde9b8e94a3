package shm

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// region is one piece of shared memory. users counts the registry and every lease; the last one closes it.
type region struct {
	status   Status
	fd       int
	mapped   []byte // the whole of it, where it cannot shrink
	readOnly bool
	users    atomic.Int64
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
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, unable
	}
	if size == 0 || offset > uint64(st.Size) || size > uint64(st.Size)-offset {
		_ = unix.Close(fd)
		return nil, infer.Errorf(infer.InvalidArgument, "failed to register shared memory region '%s': invalid args", name)
	}
	r := &region{fd: fd, status: Status{Name: name, Key: key, Offset: offset, ByteSize: size}}
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
	r := &region{fd: dup, mapped: mem, readOnly: true, status: Status{Name: name, ByteSize: size}}
	r.users.Store(1)
	return r, nil
}

func (r *region) read(dst []byte, offset uint64) error {
	for done := 0; done < len(dst); {
		n, err := unix.Pread(r.fd, dst[done:], int64(r.status.Offset+offset)+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return r.lost(err)
		}
		done += n
	}
	return nil
}

// write never makes the object longer again: what its owner cut off is an error, as it is for read.
func (r *region) write(src []byte, offset uint64) error {
	at := int64(r.status.Offset + offset)
	var st unix.Stat_t
	if err := unix.Fstat(r.fd, &st); err != nil {
		return r.lost(err)
	}
	if at+int64(len(src)) > st.Size {
		return r.lost(io.ErrUnexpectedEOF)
	}
	for done := 0; done < len(src); {
		n, err := unix.Pwrite(r.fd, src[done:], at+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return r.lost(err)
		}
		done += n
	}
	return nil
}

func (r *region) lost(err error) error {
	return infer.Errorf(infer.InvalidArgument, "shared memory region '%s' is shorter than it was when it was registered: %v", r.status.Name, err)
}

func (r *region) release() {
	if r.users.Add(-1) > 0 {
		return
	}
	if r.mapped != nil {
		_ = unix.Munmap(r.mapped)
	}
	_ = unix.Close(r.fd)
}

// Mapping is a region's memory in the way api/frame reads it.
type Mapping []byte

// Bytes returns the whole mapping.
func (m Mapping) Bytes() []byte { return m }

// LoadUint64 reads eight bytes at once; offset is a multiple of 8.
func (m Mapping) LoadUint64(offset int) uint64 {
	return atomic.LoadUint64(&tensor.View[uint64](m[offset : offset+8])[0])
}
