package schedule

import (
	"container/heap"
	"slices"
	"time"
)

// grow adds an instance; the backlog moves in.
func (q *sequencer) grow(now time.Time) {
	q.ending = append(q.ending, nil)
	slots := q.addSlots()
	q.strategy.grow()
	for _, s := range slots {
		q.admit(now, s)
	}
}

// shrink closes the slots of an instance to newcomers.
func (q *sequencer) shrink(instance int) {
	q.leaving[instance] = true
	q.free = slices.DeleteFunc(q.free, func(s *slot) bool { return s.instance == instance })
	heap.Init(&q.free)
}

// vacant tells whether an instance has no sequence and nothing to be told.
func (q *sequencer) vacant(instance int) bool {
	return len(q.ending[instance]) == 0 && !slices.ContainsFunc(q.slots[instance], func(s *slot) bool { return s.run != nil || s.inflight > 0 })
}
