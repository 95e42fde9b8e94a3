package server

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	quietFor = time.Minute
	// notWorth is what is left to the runtime, which takes minutes for it.
	notWorth = 64 << 20
)

// giveBack returns to the system what a burst of requests has left in pools and in the heap, once a minute went by without
// a request: a small machine has other uses for it.
func (s *Server) giveBack(ctx context.Context) error {
	tick := time.NewTicker(quietFor)
	defer tick.Stop()
	var k idle
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			var requests uint64
			for _, m := range s.repo.Counters() {
				requests += m.Success.Count + m.Fail.Count + uint64(m.Pending)
			}
			k.look(requests)
		}
	}
}

// idle remembers what was seen at the last look.
type idle struct {
	requests uint64
	kept     uint64 // what was in use after memory was given back
}

func (k *idle) look(requests uint64) {
	quiet := requests == k.requests
	k.requests = requests
	if !quiet || heapInUse() < k.kept+notWorth {
		return
	}
	debug.FreeOSMemory()
	debug.FreeOSMemory() // what is in pools survives one collection
	k.kept = heapInUse()
}

// heapInUse is what the Go heap has of the system's memory.
func heapInUse() uint64 {
	parts := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(parts)
	var sum uint64
	for _, p := range parts {
		sum += p.Value.Uint64()
	}
	return sum
}
