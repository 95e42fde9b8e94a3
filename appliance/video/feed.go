package video

import (
	"sync"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
)

// feed is one stream with those who look at it. Hub.mu guards it.
type feed struct {
	hub         *Hub
	viewers     map[*viewer]struct{}
	idle        interface{ Stop() bool } // ends the feed; nil while somebody looks
	description *ingestv1.StreamDescription
	described   bool                   // the viewers have it
	group       []*ingestv1.AccessUnit // since the newest keyframe, for who comes next
	bytes       int
}

// maxGroup bounds the group of pictures kept for who comes next; in a longer one they wait for its end.
const maxGroup = 8 << 20

// reset forgets the group.
func (f *feed) reset() {
	clear(f.group)
	f.group, f.bytes = f.group[:0], 0
}

func (f *feed) add(u *ingestv1.AccessUnit) {
	size := sizeOf(u)
	switch {
	case u.GetKeyframe():
		f.reset()
		fallthrough
	case len(f.group) > 0 && f.bytes+size <= maxGroup:
		f.group, f.bytes = append(f.group, u), f.bytes+size
	default:
		f.reset()
	}
	var d *ingestv1.StreamDescription
	if !f.described {
		d, f.described = f.description, true
	}
	for v := range f.viewers {
		f.hub.dropped.Add(v.put(d, u))
	}
}

// end tells every viewer that nothing follows.
func (f *feed) end(why error) {
	for v := range f.viewers {
		v.mu.Lock()
		v.err = why
		v.mu.Unlock()
		v.wake()
	}
}

func sizeOf(u *ingestv1.AccessUnit) int {
	n := 0
	for _, b := range u.GetUnits() {
		n += len(b)
	}
	return n
}

// item is a unit, with the description that goes before it where there is one.
type item struct {
	description *ingestv1.StreamDescription
	unit        *ingestv1.AccessUnit
}

// viewer holds what waits for one who looks.
type viewer struct {
	limit int
	came  chan struct{} // one token: something came

	mu          sync.Mutex // guards everything below
	queue       []item
	bytes       int
	waiting     bool                        // for a keyframe
	lost        bool                        // the next unit follows a gap
	description *ingestv1.StreamDescription // goes before the next unit
	err         error
}

// put adds a unit; the number of units left out is returned.
func (v *viewer) put(d *ingestv1.StreamDescription, u *ingestv1.AccessUnit) (dropped int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if d != nil {
		v.description = d
	}
	size := sizeOf(u)
	if v.bytes > 0 && v.bytes+size > v.limit {
		// Who is this far behind wants to see now, not then.
		for _, i := range v.queue {
			if i.description != nil && v.description == nil {
				v.description = i.description
			}
		}
		dropped = int64(len(v.queue))
		v.queue, v.bytes, v.waiting, v.lost = nil, 0, true, true
	}
	if v.waiting && !u.GetKeyframe() {
		if v.lost {
			dropped++
		}
		return dropped
	}
	if v.lost && !u.GetDiscontinuity() {
		u = proto.CloneOf(u)
		u.Discontinuity = true
	}
	v.queue = append(v.queue, item{v.description, u})
	v.bytes += size
	v.waiting, v.lost, v.description = false, false, nil
	v.wake()
	return dropped
}

func (v *viewer) wake() {
	select {
	case v.came <- struct{}{}:
	default:
	}
}

// take returns what waits.
func (v *viewer) take() ([]item, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	items := v.queue
	v.queue, v.bytes = nil, 0
	return items, v.err
}
