package capture

import (
	"time"

	"github.com/vedette/vedette/ingest"
)

const (
	// What comes this much earlier than media time says comes in a burst, as does what comes sooner after its predecessor.
	burstPace = 10 * time.Millisecond
	// So many units in a row at their own pace end the burst; one may only be a pause in it.
	burstPaced = 2
)

// Burst finds the end of what a server sends at once when a session begins: the pictures that it keeps since the last
// keyframe. The zero value is ready.
type Burst struct {
	begun bool
	least time.Duration // arrival less media time of the quickest unit
	last  time.Duration // mono of the last
	paced int           // of the last came at their own pace
}

// Over takes the session's next unit and reports whether it and the one before it came at their own pace.
func (b *Burst) Over(ticks ingest.Ticks, mono time.Duration) bool {
	delay := mono - ticks.Duration()
	switch {
	case !b.begun:
		b.begun, b.least = true, delay
	case delay > b.least-burstPace && mono-b.last >= burstPace:
		b.paced++
	default:
		b.paced = 0
	}
	b.least, b.last = min(b.least, delay), mono
	return b.paced >= burstPaced
}
