package tensor

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Size classes are powers of two from 256 B to 1 GiB; what is larger is not
// kept.
const (
	minClass = 8
	maxClass = 30
)

// Pool lends buffers by size class, so that a request costs no allocation that
// grows with its tensors. The zero value is ready; a pool is shared by
// everything of one server and is safe for concurrent use.
type Pool struct {
	classes [maxClass + 1]sync.Pool
	lent    atomic.Int64
	total   atomic.Int64 // bytes ever lent
}

// Buffer is lent memory. Bytes has the length asked for and arbitrary content.
type Buffer struct {
	Bytes []byte
	pool  *Pool
	class int8
}

// Get lends n bytes. The caller owns them until Release. A nil pool allocates.
func (p *Pool) Get(n int) *Buffer {
	class := minClass
	if n > 1<<minClass {
		class = bits.Len(uint(n - 1))
	}
	if p == nil || class > maxClass {
		if p != nil {
			p.total.Add(int64(n))
		}
		return &Buffer{Bytes: AsBytes(make([]uint64, (n+7)/8))[:n], class: -1}
	}
	p.lent.Add(1)
	p.total.Add(int64(n))
	if b, ok := p.classes[class].Get().(*Buffer); ok {
		b.Bytes = b.Bytes[:n]
		b.pool = p
		return b
	}
	// Words keep the memory aligned for every element type, here and above.
	b := &Buffer{Bytes: AsBytes(make([]uint64, 1<<class/8))[:n], pool: p, class: int8(class)}
	return b
}

// Release gives the memory back, exactly once; neither Bytes nor any view of it
// may be used afterwards.
func (b *Buffer) Release() {
	p := b.pool
	if p == nil {
		if b.class >= 0 {
			panic("tensor: buffer released twice")
		}
		return
	}
	b.pool = nil
	p.lent.Add(-1)
	b.Bytes = b.Bytes[:cap(b.Bytes)]
	p.classes[b.class].Put(b)
}

// Lent is the number of buffers not yet released, for tests and gauges.
func (p *Pool) Lent() int64 { return p.lent.Load() }

// Total is the number of bytes ever lent, so that a test can tell that something was not copied.
func (p *Pool) Total() int64 { return p.total.Load() }
