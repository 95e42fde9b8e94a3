// Package capture finds out when a picture was seen, from the camera's clock when it can be believed,
// else from when its packets arrived.
package capture

import (
	"time"

	"github.com/vedette/vedette/ingest"
)

// Limits of belief.
const (
	// A sender report that puts pictures this far from their arrival is not believed: the camera's
	// clock is wrong (1970, another time zone, another year).
	maxSkew = 2 * time.Second
	// Two sender reports must agree this well before they are used.
	maxDisagreement = 100 * time.Millisecond
	// A picture this much later or earlier than the stream's own time says has lost its relation
	// to it: the stream's clock was set.
	maxJump = 5 * time.Second
	// How fast the estimate follows the camera's clock drifting slower than ours, as a fraction of
	// time. Crystals stay within 100 ppm, bad cameras within 500.
	drift = 500e-6
	// How fast the capture clock moves to another source of time; below 1, so that it
	// never runs backwards.
	slew = 0.05
)

// Clock gives capture times for one stream epoch. The zero value is ready. It has no clock of its own:
// every call brings the time. Not safe for concurrent use.
//
// Without sender reports it is a min-delay estimator: the packet that took least time on its way is
// the best witness of when its picture was taken; the others are placed by their media time
// relative to it. The answer is early by the least delay of the network and the encoder, which
// nobody outside the camera can know.
type Clock struct {
	started bool
	// offset is receive time minus media time of the quickest unit, slowly forgotten.
	offset time.Duration
	last   time.Duration // mono of the last unit
	// report is the camera's clock minus media time.
	report    time.Duration
	reported  time.Time // wall of the last report
	believed  bool
	agreeing  int
	cameraOff time.Duration
	// applied is capture wall time minus media time as used last.
	applied time.Duration
	// wallMinusMono is fixed when the epoch begins, so that a step of the box's clock does not tear
	// one epoch's capture times apart.
	wallMinusMono time.Duration
}

// Stamp is what is known of a unit's time.
type Stamp struct {
	Capture time.Time
	Quality ingest.TimeQuality
	// Jumped: media time and arrival have come apart; a new stream epoch is due, with a fresh
	// Clock. The other fields say nothing.
	Jumped bool
}

func wallNS(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }

// Unit stamps an access unit.
func (c *Clock) Unit(ticks ingest.Ticks, at ingest.Instant) Stamp {
	media := ticks.Duration()
	delay := at.Mono - media
	if !c.started {
		c.started = true
		c.offset, c.last = delay, at.Mono
		c.wallMinusMono = wallNS(at.Wall) - at.Mono
		c.applied = c.offset + c.wallMinusMono
	}
	if jump := delay - c.offset; jump > maxJump || jump < -maxJump {
		return Stamp{Jumped: true}
	}
	passed := max(at.Mono-c.last, 0)
	c.last = at.Mono
	c.offset = min(c.offset+time.Duration(float64(passed)*drift), delay)

	// No picture is taken after it arrived, whatever a clock that is ahead says: followed past the
	// estimate, it would leave every picture the time of its arrival, with the network's jitter.
	target, quality := c.offset+c.wallMinusMono, ingest.TimeEstimated
	if c.believed && c.report <= target+maxDisagreement {
		target, quality = min(target, c.report), ingest.TimeSenderReport
	}
	// Towards the target, never so fast that time runs backwards between pictures.
	step := time.Duration(float64(passed) * slew)
	c.applied += min(max(target-c.applied, -step), step)
	received := at.Mono + c.wallMinusMono
	got := media + c.applied
	if got > received { // never in the future
		got = received
		c.applied = min(c.applied, target)
	}
	// The two clocks cannot be read at once; a few nanoseconds must not look like the future.
	if wall := wallNS(at.Wall); got > wall && got-wall < time.Millisecond {
		got = wall
	}
	return Stamp{Capture: time.Unix(0, int64(got)), Quality: quality}
}

// Report takes a sender report.
func (c *Clock) Report(r ingest.SenderReport) {
	if !c.started {
		return
	}
	media := r.Ticks.Duration()
	got := wallNS(r.NTP) - media
	c.cameraOff = wallNS(r.NTP) - (media + c.offset + c.wallMinusMono)
	agree := maxDisagreement
	if !c.reported.IsZero() {
		agree += time.Duration(float64(r.Received.Wall.Sub(c.reported).Abs()) * drift)
	}
	d := (got - c.report).Abs()
	if c.reported.IsZero() || d > agree {
		c.agreeing = 0
	}
	c.agreeing++
	c.report, c.reported = got, r.Received.Wall
	c.believed = c.agreeing >= 2 && c.cameraOff.Abs() <= maxSkew
}

// Reports says whether sender reports arrive, and how far the camera's clock is from the box's by them.
func (c *Clock) Reports() (arrive bool, offset time.Duration) {
	return !c.reported.IsZero(), c.cameraOff
}
