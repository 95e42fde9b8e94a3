// Package capture finds out when a picture was seen, from the camera's clock when it can be believed,
// else from when its packets arrived.
package capture

import (
	"time"

	"github.com/vedette/vedette/ingest"
)

// Limits.
const (
	// A picture this much later or earlier than the stream's own time says has lost its relation
	// to it: the stream's clock was set.
	maxJump = 5 * time.Second
	// As has one this much before the latest, or one with more pictures before it that are shown later than there are in streams,
	// though standards allow for 16, or than there were in this one, by a few.
	maxBack                 = 2 * time.Second
	maxReorder, moreReorder = 8, 3
	orderKnown              = 32 // from so many pictures on
	// How fast the estimate follows media time that runs slower than ours, as a fraction of time: also that of cameras
	// which count 30 pictures a second and take 29.97.
	drift = 1500e-6
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
	pace    pace
	// offset is receive time minus media time of the quickest unit, slowly forgotten.
	offset time.Duration
	last   time.Duration // mono of the last unit
	order  order
	known  time.Duration // media time of the latest unit Witness was told of
	// arrival of the last unit, where there is nothing else to go by.
	arrival ingest.Ticks
	reports reports
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
	// Ticks is media time that passes as time does; the unit's own unless that counts wrong.
	Ticks ingest.Ticks
	// Jumped: media time and arrival have come apart; a new stream epoch is due, with the clock that Next
	// returns. The other fields say nothing.
	Jumped bool
}

func wallNS(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }

// Next returns the clock of the epoch after one whose time jumped. It knows what was learned of the camera's timestamps.
func (c *Clock) Next() Clock { return Clock{pace: c.pace.next()} }

// Witness lets a unit say how long units take that is to be stamped later: of units that come in a burst, the last was
// waited for least.
func (c *Clock) Witness(ticks ingest.Ticks, at ingest.Instant) {
	media := c.pace.time(ticks.Duration())
	delay := at.Mono - media
	if !c.started {
		c.started = true
		c.offset, c.last, c.known = delay, at.Mono, media
		c.wallMinusMono = wallNS(at.Wall) - at.Mono
	}
	c.offset, c.known = min(c.offset, delay), max(c.known, media)
	c.applied = c.offset + c.wallMinusMono
}

// Unit stamps an access unit.
func (c *Clock) Unit(ticks ingest.Ticks, at ingest.Instant) Stamp {
	if !c.started {
		c.Witness(ticks, at)
	}
	received := at.Mono + c.wallMinusMono
	if c.pace.lost {
		c.arrival = max(ingest.TicksOf(at.Mono), c.arrival+1)
		return Stamp{Capture: wallOf(received, at.Wall), Quality: ingest.TimeEstimated, Ticks: c.arrival}
	}
	media := c.pace.time(ticks.Duration())
	delay := at.Mono - media
	if jump := delay - c.offset; jump > maxJump && media > c.known || jump < -maxJump || c.order.back(media) || c.pace.still(ticks.Duration(), at.Mono) {
		c.pace.jumped(at.Mono)
		return Stamp{Jumped: true}
	}
	if c.pace.crawls(ticks.Duration(), at.Mono) {
		return Stamp{Jumped: true}
	}
	passed := max(at.Mono-c.last, 0)
	c.last = at.Mono
	c.offset = min(c.offset+time.Duration(float64(passed)*drift), delay)
	if c.pace.witness(ticks.Duration(), at.Mono, c.offset) {
		// From here on media time is counted another way; a report has to be in that way, too.
		c.reports.forget()
		c.order, c.offset = order{}, delay
	}

	// No picture is taken after it arrived, whatever a clock that is ahead says: followed past the
	// estimate, it would leave every picture the time of its arrival, with the network's jitter.
	target, quality := c.offset+c.wallMinusMono, ingest.TimeEstimated
	if report, ok := c.reports.at(at.Mono); ok && report <= target+maxDisagreement {
		target, quality = min(target, report), ingest.TimeSenderReport
	}
	// Towards the target, never so fast that time runs backwards between pictures.
	step := time.Duration(float64(passed) * slew)
	c.applied += min(max(target-c.applied, -step), step)
	got := media + c.applied
	if got > received { // never in the future
		got = received
		c.applied = min(c.applied, target)
	}
	if c.pace.used() {
		ticks = ingest.TicksOf(media)
	}
	return Stamp{Capture: wallOf(got, at.Wall), Quality: quality, Ticks: ticks}
}

// wallOf makes a capture time. The two clocks cannot be read at once; a few nanoseconds must not look like the future.
func wallOf(got time.Duration, now time.Time) time.Time {
	if wall := wallNS(now); got > wall && got-wall < time.Millisecond {
		got = wall
	}
	return time.Unix(0, int64(got))
}

// Report takes a sender report.
func (c *Clock) Report(r ingest.SenderReport) {
	switch {
	case !c.started:
	case c.pace.lost:
		c.reports.last, c.reports.off = r.Received, r.NTP.Sub(r.Received.Wall)
	default:
		media := c.pace.time(r.Ticks.Duration())
		c.reports.take(wallNS(r.NTP)-media, wallNS(r.NTP)-(media+c.offset+c.wallMinusMono), r.Received)
	}
}

// Reports says whether sender reports arrive, and how far the camera's clock is from the box's by them; 0 where they do not
// fit each other.
func (c *Clock) Reports() (arrive bool, offset time.Duration) {
	if c.reports.wander {
		return true, 0
	}
	return !c.reports.last.Wall.IsZero(), c.reports.off
}

// order knows the media times of those units that show latest.
type order struct {
	latest [maxReorder + 1]time.Duration // the first known of them, the latest first
	known  int
	units  int
	deep   int // most units that came before one and show later
}

// back reports whether a unit comes too late in the order of decoding to be one that is shown before others.
func (o *order) back(media time.Duration) bool {
	at := 0
	for at < o.known && o.latest[at] > media {
		at++
	}
	most := maxReorder
	if o.units++; o.units > orderKnown {
		most = min(most, o.deep+moreReorder)
	}
	if at > most || at > 0 && media < o.latest[0]-maxBack {
		return true
	}
	o.deep = max(o.deep, at)
	if at < o.known && o.latest[at] == media { // another part of the same picture
		return false
	}
	copy(o.latest[at+1:], o.latest[at:])
	o.latest[at], o.known = media, min(o.known+1, len(o.latest))
	return false
}
