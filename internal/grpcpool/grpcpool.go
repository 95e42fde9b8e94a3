// Package grpcpool lends grpc-go the memory of its messages.
//
// grpc-go's own pools clear every buffer they lend, which costs as much again as to copy a message of some megabytes into it.
// Whoever takes a buffer here fills it.
package grpcpool

import (
	"math/bits"
	"sync"
)

// Size classes are powers of two, from what is large enough for mem.NewBuffer to give it back to the largest message.
const (
	minClass = 11
	maxClass = 31
)

// Pool is a mem.BufferPool whose buffers have arbitrary content. The zero value is ready; safe for concurrent use.
type Pool struct {
	classes [maxClass + 1]sync.Pool // of *[]byte, each with at least the capacity of its class
}

// Get lends n bytes of arbitrary content.
func (p *Pool) Get(n int) *[]byte {
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	if class > maxClass {
		b := make([]byte, n)
		return &b
	}
	if b, ok := p.classes[class].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, 1<<class)
	return &b
}

// Put takes back a buffer, or the end of one that was cut at its front.
func (p *Pool) Put(b *[]byte) {
	if class := bits.Len(uint(cap(*b))) - 1; class >= minClass && class <= maxClass {
		p.classes[class].Put(b)
	}
}
