package mmap

// #include "guard.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrTooMany says: as many guarded mappings are open as the guard can watch.
var ErrTooMany = errors.New("too many guarded mappings are open")

// Guarded is a mapping of a file whose owner may cut it short at any moment. A process that touches mapped
// memory behind the end of its file gets SIGBUS and dies of it; here the touched page and all behind it become
// zeros of our own instead, for Go and C alike, and the mapping is lost: whoever used it asks Lost afterwards
// and takes nothing for true that came out of it. Writes to what is lost reach nobody.
//
// Any number of goroutines may use it until Close; whoever calls Close knows that nobody does any more.
type Guarded struct {
	pages []byte // whole pages
	data  []byte // the part that was asked for
	slot  int
}

// guard hands out the slots of the table in C.
//
//nolint:gochecknoglobals // a signal handler is the process's
var guard struct {
	mu    sync.Mutex
	once  sync.Once
	err   error
	free  []int // slots given back
	fresh int   // slots from here on have never been used
}

// MapGuarded maps size bytes of file from offset on, for reading and writing. The descriptor may be closed
// afterwards. The part must lie within the file.
func MapGuarded(file *os.File, offset, size int64) (*Guarded, error) {
	guard.once.Do(func() {
		if e := C.guard_install(); e != 0 {
			guard.err = fmt.Errorf("handle SIGBUS: %w", unix.Errno(e))
		}
	})
	if guard.err != nil {
		return nil, guard.err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", file.Name(), err)
	}
	if offset < 0 || size < 1 || offset > info.Size() || size > info.Size()-offset || size != int64(int(size)) {
		return nil, fmt.Errorf("map %s: %d bytes from %d on do not lie within its %d", file.Name(), size, offset, info.Size())
	}
	before := offset % int64(os.Getpagesize())
	pages, err := unix.Mmap(int(file.Fd()), offset-before, int(before+size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", file.Name(), err)
	}
	g := &Guarded{pages: pages, data: pages[before : before+size : before+size]}
	if !g.watch() {
		_ = unix.Munmap(pages)
		return nil, fmt.Errorf("map %s: %w: %d", file.Name(), ErrTooMany, C.guard_slots)
	}
	return g, nil
}

// watch enters the pages into the table, if it has a slot left.
func (g *Guarded) watch() bool {
	guard.mu.Lock()
	defer guard.mu.Unlock()
	switch n := len(guard.free); {
	case n > 0:
		g.slot = guard.free[n-1]
		guard.free = guard.free[:n-1]
	case guard.fresh < C.guard_slots:
		g.slot = guard.fresh
		guard.fresh++
	default:
		return false
	}
	page := os.Getpagesize()
	size := (len(g.pages) + page - 1) / page * page
	C.guard_add(C.int(g.slot), C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(g.pages)))), C.size_t(size))
	return true
}

// Bytes returns the part that was mapped.
func (g *Guarded) Bytes() []byte { return g.data }

// Lost tells whether a touched part turned out to be gone. It stays so.
func (g *Guarded) Lost() bool { return C.guard_lost(C.int(g.slot)) != 0 }

// Close unmaps the memory. Nothing may use it any more. A second Close does nothing.
func (g *Guarded) Close() error {
	if g.pages == nil {
		return nil
	}
	C.guard_remove(C.int(g.slot))
	err := unix.Munmap(g.pages)
	guard.mu.Lock()
	guard.free = append(guard.free, g.slot)
	guard.mu.Unlock()
	g.pages, g.data = nil, nil
	return err
}
