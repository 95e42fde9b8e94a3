package store

import (
	"context"
	"sync"
	"time"
)

// Commit is one committed window, as subscribers see it. Its slices are shared: read only.
type Commit struct {
	Seq    uint64 // grows by one a window, and never falls, also across restarts (a restart leaves a hole)
	Time   time.Time
	Missed uint64 // windows that this subscriber was too slow to see, just before this one; at least that many after a restart
	Batch
}

// backlog keeps the newest windows in a ring, so that publishing costs the same for any number of subscribers and a
// slow one holds up nobody.
type backlog struct {
	mu     sync.Mutex
	ring   []Commit
	weight int64         // of what is kept
	next   uint64        // sequence number of the next window
	first  uint64        // sequence number of the oldest window kept
	news   chan struct{} // closed at the next window
	closed bool
}

// backlogWeight bounds the objects, tracks and events in the backlog: some 10 MB.
const backlogWeight = 100_000

func newBacklog(size int, next uint64) *backlog {
	return &backlog{ring: make([]Commit, size), next: next, first: next, news: make(chan struct{})}
}

func (l *backlog) publish(c Commit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Seq = l.next
	l.next++
	l.weight += c.weight()
	for l.first < c.Seq && (l.next-l.first > uint64(len(l.ring)) || l.weight > backlogWeight) {
		old := &l.ring[l.first%uint64(len(l.ring))]
		l.weight -= old.weight()
		*old = Commit{}
		l.first++
	}
	l.ring[c.Seq%uint64(len(l.ring))] = c
	close(l.news)
	l.news = make(chan struct{})
}

func (l *backlog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.news)
	}
}

// at gives window number seq or, when that is no more, the oldest kept after it. Otherwise the channel tells when to
// ask again.
func (l *backlog) at(seq uint64) (c Commit, ok, closed bool, news <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq = max(seq, l.first)
	if seq < l.next {
		return l.ring[seq%uint64(len(l.ring))], true, false, nil
	}
	return Commit{}, false, l.closed, l.news
}

// Subscription reads committed windows in commit order. It has no goroutine and needs no closing; one goroutine may
// use it at a time.
type Subscription struct {
	log  *backlog
	next uint64
}

// Subscribe starts after the window with sequence number after (0: from now on). Windows that are no longer in the
// backlog are reported as Missed by the first Next. It waits until the store is ready.
func (s *Store) Subscribe(after uint64) *Subscription {
	select {
	case <-s.ready:
	case <-s.stopped:
		if s.log == nil { // it never began
			return &Subscription{log: &backlog{closed: true}}
		}
	}
	next := after + 1
	s.log.mu.Lock()
	if after == 0 || next > s.log.next {
		next = s.log.next
	}
	s.log.mu.Unlock()
	return &Subscription{log: s.log, next: next}
}

// Seen is the window after which Next goes on; a later Subscribe may begin there.
func (u *Subscription) Seen() uint64 { return u.next - 1 }

// Next waits for the next committed window. It returns ErrClosed when the store has stopped and all was read.
func (u *Subscription) Next(ctx context.Context) (Commit, error) {
	for {
		c, ok, closed, news := u.log.at(u.next)
		switch {
		case ok:
			c.Missed = c.Seq - u.next
			u.next = c.Seq + 1
			return c, nil
		case closed:
			return Commit{}, ErrClosed
		}
		select {
		case <-news:
		case <-ctx.Done():
			return Commit{}, ctx.Err()
		}
	}
}
