package camera

import (
	"testing"
	"time"

	"github.com/vedette/vedette/ingest"
)

// fill adds units of 1000 bytes, one each second, every fifth a keyframe, from a number on.
func fill(u *units, from, n int) {
	for i := from; i < from+n; i++ {
		u.add(Coded{Number: uint64(i), Capture: time.Unix(int64(i), 0), Unit: ingest.AccessUnit{Data: make([]byte, 1000), Keyframe: i%5 == 0}})
	}
}

func TestTheRingKeepsWholeGroupsWithinItsBounds(t *testing.T) {
	var u units
	u.setLimit(12_000)
	fill(&u, 0, 23)
	if u.bytes > 12_000 || !u.ring[0].Unit.Keyframe || u.ring[0].Number != 15 || int64(len(u.ring))*1000 != u.bytes {
		t.Errorf("%d bytes from unit %d on", u.bytes, u.ring[0].Number)
	}
	u.setLimit(0) // 30 s
	fill(&u, 23, 100)
	if first := u.ring[0].Number; first != 90 {
		t.Errorf("the ring begins with unit %d, want 90: the last keyframe at least 30 s before 122", first)
	}
	u.setLimit(-1)
	if _, kept := u.from(time.Unix(0, 0)); kept || len(u.ring) > 0 || u.bytes != 0 {
		t.Errorf("%d units are kept by a ring that is off", len(u.ring))
	}
}

func TestAReaderOfTheRingLosesOnlyWhatTheRingLost(t *testing.T) {
	var u units
	u.setLimit(12_000)
	fill(&u, 0, 10)
	place, kept := u.from(time.Unix(7, 0))
	c, behind, _ := u.next(place)
	if !kept || c == nil || c.Number != 5 || c.Unit.Lost {
		t.Fatalf("from second 7: %v", c)
	}
	if place, _ := u.from(time.Unix(-7, 0)); place != 0 {
		t.Errorf("before the beginning: place %d, want the oldest", place)
	}
	fill(&u, 10, 30)
	c, behind, _ = u.next(behind)
	if c == nil || c.Number != 30 || !c.Unit.Lost || !c.Unit.Keyframe {
		t.Fatalf("after the ring went on: %+v", c)
	}
	for range 9 {
		if c, behind, _ = u.next(behind); c == nil || c.Unit.Lost {
			t.Fatalf("%+v", c)
		}
	}
	c, behind, more := u.next(behind)
	if c != nil {
		t.Fatalf("%+v has not come yet", c)
	}
	fill(&u, 40, 1)
	select {
	case <-more:
	default:
		t.Error("nobody is told of a new unit")
	}
	if c, _, _ = u.next(behind); c == nil || c.Number != 40 {
		t.Errorf("%+v", c)
	}
}
