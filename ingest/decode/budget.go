package decode

import (
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/ingest"
)

// hung is how long no place of a budget changes hands until whoever holds them is taken to hang.
const hung = time.Second

// Budget bounds how many decoders work at the same time.
type Budget struct {
	places chan struct{}
	moved  atomic.Int64 // mono of the last place taken or given back
}

// NewBudget returns a budget of so many places.
func NewBudget(places int) *Budget {
	return &Budget{places: make(chan struct{}, places)}
}

// Places is how many decoders may work at the same time.
func (b *Budget) Places() int { return cap(b.places) }

// take waits for a place. It goes without, and returns false, where those who have them all hang: they must not stop the
// others.
func (b *Budget) take() bool {
	select {
	case b.places <- struct{}{}:
		b.move()
		return true
	default:
	}
	t := time.NewTicker(hung / 10)
	defer t.Stop()
	for {
		select {
		case b.places <- struct{}{}:
			b.move()
			return true
		case <-t.C:
			if ingest.Now().Mono-time.Duration(b.moved.Load()) > hung {
				return false
			}
		}
	}
}

func (b *Budget) give() {
	<-b.places
	b.move()
}

func (b *Budget) move() { b.moved.Store(int64(ingest.Now().Mono)) }
