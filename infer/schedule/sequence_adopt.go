package schedule

import (
	"container/heap"
	"time"
)

// open are the sequences that had a request executed and may get more.
func (q *sequencer) open() []*Sequence {
	var out []*Sequence
	for _, slots := range q.slots {
		for _, s := range slots {
			if r := s.run; r != nil && !r.ended && r.started != nil && r.started == r.newest {
				out = append(out, r.started)
			}
		}
	}
	return out
}

// adopt gives a sequence a slot of the instance it had, or of any where that
// one has none. Its place in the batch may be another, so models that remember
// by place cannot be continued this way.
func (q *sequencer) adopt(now time.Time, s *Sequence) bool {
	if q.live[s.Key] != nil || len(q.free) == 0 {
		return false
	}
	place := 0
	for i, f := range q.free {
		if f.instance == s.Instance {
			place = i
			break
		}
	}
	sl, _ := heap.Remove(&q.free, place).(*slot)
	r := &run{key: s.Key, slot: sl, newest: s, started: s, opened: now, last: now}
	sl.run = r
	s.Instance = sl.instance
	q.live[s.Key] = r
	q.watch(now)
	return true
}
