package grpcpool_test

import (
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/vedette/vedette/internal/grpcpool"
	"github.com/vedette/vedette/internal/race"
)

var _ mem.BufferPool = (*grpcpool.Pool)(nil)

// FuzzBuffersHaveTheSizeAskedFor lends and takes back buffers of any sizes, some of them cut at their front.
func FuzzBuffersHaveTheSizeAskedFor(f *testing.F) {
	f.Add(0, 16384, 5)
	f.Add(1023, 1024, 0)
	f.Add(1025, 2048, 1)
	f.Add(1<<17, 1<<17-1, 1<<16)
	f.Fuzz(func(t *testing.T, first, second, cut int) {
		const largest = 1 << 18
		first, second = first&(largest-1), second&(largest-1)
		var p grpcpool.Pool
		for range 3 {
			a, b := p.Get(first), p.Get(second)
			if len(*a) != first || len(*b) != second {
				t.Fatalf("asked for %d and %d bytes and got %d and %d", first, second, len(*a), len(*b))
			}
			for i := range *a {
				(*a)[i] = 1
			}
			for i := range *b {
				(*b)[i] = 2
			}
			for i, v := range *a {
				if v != 1 {
					t.Fatalf("byte %d of one buffer is shared with the other", i)
				}
			}
			if n := len(*a); n > 0 {
				*a = (*a)[(cut&(largest-1))%n:]
			}
			p.Put(a)
			p.Put(b)
		}
	})
}

func TestMemoryIsLentAgain(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's sync.Pool drops what it is given")
	}
	var p grpcpool.Pool
	p.Put(p.Get(2_000_000))
	if n := testing.AllocsPerRun(100, func() { p.Put(p.Get(2_000_000)) }); n > 0.5 {
		t.Errorf("%v allocations for each buffer lent", n)
	}
}
