package capture

import "time"

// Limits of the pace.
const (
	// The first witnesses stand for a second each; when there are this many, every two become one, until they cover a
	// quarter of an hour.
	window     = time.Second
	windows    = 64
	mostWindow = 16 * time.Second
	// fewest witnesses that tell a pace.
	fewest = 4
	// By so much media time must come apart from arrival for another pace to be measured, and, once it is known that it
	// does, to be corrected.
	apart  = 300 * time.Millisecond
	adrift = 100 * time.Millisecond
	// Timestamps that count this many times too fast or too slow tell no time.
	maxPace = 100
	// As do those that jump again within patience of the last time, for the third time.
	patience = 10 * time.Second
	maxJumps = 3
	// As do those that stand still for longer.
	maxStill = time.Second
	// Pictures that come this much closer to each other in media time than they arrive, and closer than those of any camera, do
	// not come late: media time is counted too slowly. So much is seen of them first.
	crawl, leastStep, crawlFor, crawlUnits = 3, 10 * time.Millisecond, time.Second, 8
)

// pace is how a camera's timestamps count, which need not be in seconds: some count pictures at a rate that is not theirs,
// some by a clock that is not the one they declare, and some do not count at all. What is wrong is believed only when media
// time has come apart from arrival by as much as a jump, evenly: a network that chokes for seconds looks the same.
type pace struct {
	// extra is what media time is multiplied by, less 1, from the media time since on, which is at.
	extra     float64
	since, at time.Duration
	// lost: it tells no time.
	lost bool

	seen     []witness // of the last windows
	window   time.Duration
	anchor   time.Duration
	anchored bool

	media, stood time.Duration // of the last unit, and when it was first seen; stood is 0 before the first
	first        witness       // the first unit, and
	units        int           // how many came since
	jumps        int
	jump         time.Duration // when it last jumped
}

// witness is the quickest unit of its window.
type witness struct{ began, media, mono time.Duration }

// used reports whether media time is not its own measure.
func (p *pace) used() bool { return p.extra != 0 || p.at != p.since }

// time makes real time of media time.
func (p *pace) time(media time.Duration) time.Duration {
	if !p.used() {
		return media
	}
	d := media - p.since
	return p.at + d + time.Duration(float64(d)*p.extra)
}

// still reports whether timestamps have not changed for too long, and says so to next.
func (p *pace) still(media, mono time.Duration) bool {
	if media != p.media || p.stood == 0 {
		p.media, p.stood = media, mono
		return false
	}
	p.lost = mono-p.stood > maxStill
	return p.lost
}

// crawls reports whether media time counts so slowly that the first pictures tell, and takes their pace.
func (p *pace) crawls(media, mono time.Duration) bool {
	if p.units++; p.units == 1 {
		p.first = witness{mono, media, mono}
	}
	took, came := mono-p.first.mono, media-p.first.media
	if p.units <= crawlUnits || took < crawlFor || took > 2*crawlFor || p.used() || came <= 0 || came >= leastStep*time.Duration(p.units-1) || took < crawl*came || took > maxPace*came {
		return false
	}
	p.set(slope(p.first, witness{mono, media, mono})-1, media)
	return true
}

// witness takes a unit, and the delay of the quickest. It reports whether the pace has changed: media time runs ahead, or is
// known to be wrong and measured better now.
func (p *pace) witness(media, mono, offset time.Duration) bool {
	if !p.anchored {
		p.anchored, p.anchor, p.window = true, offset, window
	}
	if n := len(p.seen); n > 0 && mono-p.seen[n-1].began < p.window {
		p.seen[n-1].quicker(p, witness{mono, media, mono})
		return false
	}
	if len(p.seen) == windows && p.window < mostWindow {
		for i := range windows / 2 {
			p.seen[i] = p.seen[2*i]
			p.seen[i].quicker(p, p.seen[2*i+1])
		}
		p.seen, p.window = p.seen[:windows/2], 2*p.window
	}
	if len(p.seen) == windows {
		p.seen = append(p.seen[:0], p.seen[1:]...)
	}
	p.seen = append(p.seen, witness{mono, media, mono})
	ahead := p.anchor-offset > maxJump
	if p.extra == 0 && !ahead {
		return false
	}
	least := apart
	if p.extra != 0 {
		least = adrift
	}
	extra, ok := p.measure(least)
	if ahead {
		p.anchor = offset
	}
	if ok {
		p.set(extra, media)
	}
	return ok
}

// quicker takes another witness's place where that took longer.
func (w *witness) quicker(p *pace, other witness) {
	if other.mono-p.time(other.media) < w.mono-p.time(w.media) {
		w.media, w.mono = other.media, other.mono
	}
}

// measure tells by how much real time passes while media time does, less 1, over as long as that is even; false when it is
// not, or media time and arrival have come apart by less.
func (p *pace) measure(least time.Duration) (extra float64, ok bool) {
	if len(p.seen) == 0 {
		return 0, false
	}
	seen := p.seen[:len(p.seen)-1] // the last window has just begun
	for ; len(seen) >= fewest; seen = seen[len(seen)/2:] {
		first, middle, last := seen[0], seen[len(seen)/2], seen[len(seen)-1]
		if first.media >= middle.media || middle.media >= last.media {
			continue
		}
		whole, one, two := slope(first, last), slope(first, middle), slope(middle, last)
		off := whole - 1 - p.extra
		came := time.Duration(off * float64(last.media-first.media))
		if came.Abs() >= least && max(one, two)-min(one, two) <= max(off, -off)/2 && whole < maxPace && whole > 1./maxPace {
			return whole - 1, true
		}
	}
	return 0, false
}

func slope(a, b witness) float64 { return float64(b.mono-a.mono) / float64(b.media-a.media) }

// set changes the pace from a unit on.
func (p *pace) set(extra float64, media time.Duration) {
	p.at, p.since, p.extra = p.time(media), media, extra
	p.seen, p.window = p.seen[:0], window
}

// jumped learns from a jump.
func (p *pace) jumped(mono time.Duration) {
	if extra, ok := p.measure(apart); ok {
		p.set(extra, p.media)
		return
	}
	if p.jumps == 0 || mono-p.jump > patience {
		p.jumps = 0
	}
	p.jumps, p.jump = p.jumps+1, mono
	p.lost = p.lost || p.jumps >= maxJumps
}

// next is the pace of the epoch after a jump.
func (p *pace) next() pace {
	return pace{extra: p.extra, since: p.since, at: p.at, lost: p.lost, jumps: p.jumps, jump: p.jump}
}
