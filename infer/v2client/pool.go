package v2client

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
)

// Pool is shared memory that a client and a server on one machine both see, divided into a ring of slots of equal
// size. A slot is borrowed, filled with tensors, named in a request instead of being sent, and given back when the
// answer, which may be in the slot too, has been read. The slot that was given back first is lent first. Neither
// side copies anything. Safe for concurrent use.
type Pool struct {
	server Registrar
	name   string
	file   string
	mem    []byte
	size   int
	free   chan int // the slots nobody has
}

// Slot is a borrowed part of a Pool.
type Slot struct {
	// Bytes is the shared memory itself; nil after Release.
	Bytes []byte

	pool  *Pool
	index int
}

// page is what slots are aligned to.
const page = 4096

// NewPool makes shared memory of so many slots of at least size bytes, and registers it with the server. The
// server must run on this machine and allow it.
func NewPool(ctx context.Context, server Registrar, slots, size int) (*Pool, error) {
	if slots < 1 || size < 1 || size > math.MaxInt-page || (size+page)/page > math.MaxInt/page/slots {
		return nil, fmt.Errorf("make a pool of %d slots of %d bytes: both must be at least 1, and fit memory", slots, size)
	}
	size = (size + page - 1) / page * page
	name := "vedette-" + rand.Text()
	p := &Pool{server: server, name: name, file: filepath.Join("/dev/shm", name), size: size, free: make(chan int, slots)}
	if err := p.create(slots * size); err != nil {
		return nil, fmt.Errorf("make shared memory %s: %w", p.file, err)
	}
	if err := p.Register(ctx); err != nil {
		p.remove()
		return nil, err
	}
	for i := range slots {
		p.free <- i
	}
	return p, nil
}

// Register makes the memory known to the server once more, after the server was started anew; requests then fail with
// "Unable to find shared memory region".
func (p *Pool) Register(ctx context.Context) error {
	_, err := p.server.SystemSharedMemoryRegister(ctx, &inference.SystemSharedMemoryRegisterRequest{
		Name: p.name, Key: "/" + p.name, ByteSize: uint64(len(p.mem)),
	})
	if err != nil {
		return fmt.Errorf("register shared memory: %w", err)
	}
	return nil
}

func (p *Pool) create(size int) error {
	f, err := os.OpenFile(p.file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	// All of it now, so that too little of it is an error here and no fault when it is written.
	if err = unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err == nil {
		p.mem, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = os.Remove(p.file)
	}
	return err
}

func (p *Pool) remove() {
	_ = unix.Munmap(p.mem)
	_ = os.Remove(p.file)
}

// Get borrows a slot; it waits for one until ctx ends.
func (p *Pool) Get(ctx context.Context) (*Slot, error) {
	select {
	case i := <-p.free:
		at := i * p.size
		return &Slot{Bytes: p.mem[at : at+p.size : at+p.size], pool: p, index: i}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a slot of shared memory: %w", context.Cause(ctx))
	}
}

// Close takes the memory back from the server and frees it. While slots are borrowed it is an error and changes
// nothing.
func (p *Pool) Close(ctx context.Context) error {
	if n := cap(p.free) - len(p.free); n > 0 {
		return fmt.Errorf("free shared memory: %d slots are still borrowed", n)
	}
	for range cap(p.free) {
		<-p.free // nobody gets one any more
	}
	defer p.remove()
	_, err := p.server.SystemSharedMemoryUnregister(ctx, &inference.SystemSharedMemoryUnregisterRequest{Name: p.name})
	return err
}

// Place is size bytes of the slot at offset, for an Input or an Output.
func (s *Slot) Place(offset, size int) Place {
	return Place{Region: s.pool.name, Offset: s.index*s.pool.size + offset, Size: size}
}

// Input names the first bytes of the slot as a tensor.
func (s *Slot) Input(name string, t tensor.DataType, shape []int64, size int) Input {
	return Input{Tensor: tensor.Tensor{Name: name, DataType: t, Shape: shape, Data: s.Bytes[:size]}, Place: s.Place(0, size)}
}

// Release gives the slot back, exactly once.
func (s *Slot) Release() {
	if s.Bytes == nil {
		panic("v2client: slot released twice")
	}
	s.Bytes = nil
	s.pool.free <- s.index
}
