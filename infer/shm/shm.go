// Package shm lets clients hand tensors over in shared memory instead of in messages.
//
// A client makes a POSIX shared memory object, registers a part of it under a name, and from then on its
// requests say "region R, offset, size" where the bytes would have stood. The appliance's own listener takes
// sealed memory by descriptor instead, and nobody else can name what was given there: a Registry belongs to
// one listener.
//
// Tensors are read and written where they lie, no matter who made the memory. A client that keeps its object may
// cut it short at any moment; then the requests that use it fail, and nothing else does (see mmap.Guarded).
// It may also write while a model reads: numbers change under the model, which is the client's own loss, but
// strings, whose lengths are checked before they are used, are copied first.
package shm

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// reservedPrefix names the regions of Triton's Python backend; clients may not touch them.
const reservedPrefix = "triton_python_backend_shm_region_"

// Config says how a Registry behaves; the zero value refuses clients' named regions.
type Config struct {
	// AllowNamed lets clients register POSIX objects by name.
	AllowNamed bool
	// Pool lends the memory for what cannot be used in place; nil allocates.
	Pool *tensor.Pool
	// Dir is where POSIX objects are; empty means /dev/shm.
	Dir string
}

// Registry holds the regions of one listener. Safe for concurrent use.
type Registry struct {
	cfg Config

	mu      sync.Mutex
	regions map[string]*region
}

// Status is what a client may know of a region.
type Status struct {
	Name     string
	Key      string
	Offset   uint64
	ByteSize uint64
}

// New makes an empty registry.
func New(cfg Config) *Registry {
	if cfg.Dir == "" {
		cfg.Dir = "/dev/shm"
	}
	return &Registry{cfg: cfg, regions: make(map[string]*region)}
}

// Register makes a part of the POSIX object key known as name.
func (r *Registry) Register(name, key string, offset, size uint64) error {
	if err := r.allowed(); err != nil {
		return err
	}
	switch {
	case name == "":
		return infer.Errorf(infer.InvalidArgument, "shared memory region name must not be empty")
	case key == "":
		return infer.Errorf(infer.InvalidArgument, "Shared memory register request has no 'key' field")
	case strings.HasPrefix(strings.TrimPrefix(key, "/"), reservedPrefix):
		return infer.Errorf(infer.InvalidArgument,
			"cannot register shared memory region '%s': key '%s' begins with the reserved prefix '%s'", name, key, reservedPrefix)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.regions[name] != nil {
		return infer.Errorf(infer.AlreadyExists, "shared memory region '%s' already in manager", name)
	}
	reg, err := openNamed(r.cfg.Dir, name, key, offset, size)
	if err != nil {
		return err
	}
	r.regions[name] = reg
	return nil
}

// Adopt makes memory that came by descriptor known as name. It duplicates the descriptor. Memory that is not
// sealed against shrinking is refused: it is read in place.
func (r *Registry) Adopt(name string, fd int, size uint64) error {
	if name == "" {
		return infer.Errorf(infer.InvalidArgument, "shared memory region name must not be empty")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.regions[name] != nil {
		return infer.Errorf(infer.AlreadyExists, "shared memory region '%s' already in manager", name)
	}
	reg, err := adopt(name, fd, size)
	if err != nil {
		return err
	}
	r.regions[name] = reg
	return nil
}

// Unregister forgets a region, or all of them when name is empty. Memory in use by a request goes when that
// ends. An unknown name is no error.
func (r *Registry) Unregister(name string) error {
	if err := r.allowed(); err != nil {
		return err
	}
	r.Drop(name)
	return nil
}

// Drop is Unregister for the owner of the listener, whom nothing is refused.
func (r *Registry) Drop(name string) {
	r.mu.Lock()
	var gone []*region
	if name == "" {
		for _, reg := range r.regions {
			gone = append(gone, reg)
		}
		clear(r.regions)
	} else if reg := r.regions[name]; reg != nil {
		gone = append(gone, reg)
		delete(r.regions, name)
	}
	r.mu.Unlock()
	for _, reg := range gone {
		reg.release()
	}
}

// Status describes one region, or all of them by name when name is empty.
func (r *Registry) Status(name string) ([]Status, error) {
	if err := r.allowed(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if name != "" {
		reg := r.regions[name]
		if reg == nil {
			return nil, infer.Errorf(infer.NotFound, "Unable to find system shared memory region: '%s'", name)
		}
		return []Status{reg.status}, nil
	}
	all := make([]Status, 0, len(r.regions))
	for _, reg := range r.regions {
		all = append(all, reg.status)
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Input lends size bytes of a region to be read in place. The caller releases the lease, and asks Intact
// before it believes in what came of the bytes.
func (r *Registry) Input(name string, offset, size uint64) (*Lease, error) {
	return r.lease(name, offset, size)
}

// Stable is Input for bytes that must not change while they are read: a copy, unless the region is sealed.
func (r *Registry) Stable(name string, offset, size uint64) (*Lease, error) {
	l, err := r.lease(name, offset, size)
	if err != nil || l.region.sealed != nil {
		return l, err
	}
	l.buf = r.cfg.Pool.Get(int(size))
	copy(l.buf.Bytes, l.Bytes)
	l.Bytes = l.buf.Bytes
	if err := l.Intact(); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// Output lends size bytes to be written in place. The caller releases the lease, and asks Intact when it has
// written.
func (r *Registry) Output(name string, offset, size uint64) (*Lease, error) {
	l, err := r.lease(name, offset, size)
	if err != nil {
		return nil, err
	}
	if l.region.sealed != nil {
		l.Release()
		return nil, infer.Errorf(infer.InvalidArgument, "shared memory region '%s' cannot be written", name)
	}
	return l, nil
}

func (r *Registry) lease(name string, offset, size uint64) (*Lease, error) {
	r.mu.Lock()
	reg := r.regions[name]
	if reg != nil {
		reg.users.Add(1)
	}
	r.mu.Unlock()
	if reg == nil {
		return nil, infer.Errorf(infer.NotFound, "Unable to find shared memory region: '%s'", name)
	}
	l := &Lease{region: reg, offset: offset}
	total := reg.status.ByteSize
	switch {
	case offset >= total && (offset > total || size > 0):
		l.Release()
		return nil, infer.Errorf(infer.InvalidArgument, "Invalid offset for shared memory region: '%s'", name)
	case size > total-offset:
		l.Release()
		return nil, infer.Errorf(infer.InvalidArgument, "Invalid offset + byte size for shared memory region: '%s'", name)
	}
	if err := reg.whole(); err != nil {
		l.Release()
		return nil, err
	}
	l.Bytes = reg.bytes()[offset : offset+size : offset+size]
	return l, nil
}

func (r *Registry) allowed() error {
	if r.cfg.AllowNamed {
		return nil
	}
	return infer.Errorf(infer.Unsupported,
		"Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.")
}

// Lease is the use of a part of a region by one request.
type Lease struct {
	// Bytes are the region's own, or Stable's copy.
	Bytes []byte

	region *region
	offset uint64
	buf    *tensor.Buffer
}

// Intact tells whether all that was read and written through the region so far was really there. Nil is
// allowed, and intact.
func (l *Lease) Intact() error {
	if l == nil {
		return nil
	}
	return l.region.intact()
}

// Lends tells whether data is a part of the region itself, which its owner may change until the release.
func (l *Lease) Lends(data []byte) bool {
	return l != nil && l.buf == nil && l.region.guarded != nil && tensor.Within(data, l.Bytes)
}

// Frame returns the memory of the whole region and the lease's offset in it when the region came by
// descriptor, and false otherwise.
func (l *Lease) Frame() (m Mapping, offset uint64, ok bool) {
	if l.region.sealed == nil {
		return nil, 0, false
	}
	return Mapping(l.region.sealed), l.offset, true
}

// Release ends the use, exactly once. Nil is allowed.
func (l *Lease) Release() {
	if l == nil {
		return
	}
	if l.buf != nil {
		l.buf.Release()
		l.buf = nil
	}
	l.Bytes = nil
	l.region.release()
}
