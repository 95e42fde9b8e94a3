package camera

import (
	"math/rand/v2"
	"time"

	"github.com/vedette/vedette/ingest"
)

// Deadlines of the steps of a session, and of what must go on once it runs. Zero fields get the defaults
// in brackets.
type Deadlines struct {
	Dial          time.Duration // TCP and TLS [5 s]
	Answer        time.Duration // each answer to a request [5 s]
	FirstPacket   time.Duration // after PLAY [5 s]
	FirstKeyframe time.Duration // after the first packet [20 s]
	FirstFrame    time.Duration // after the first keyframe [5 s]
	Packets       time.Duration // between packets [5 s]
	AccessUnits   time.Duration // between access units [10 s]
	Keyframes     time.Duration // between keyframes [120 s]
	Frames        time.Duration // between decoded frames [10 s]
}

func (d Deadlines) withDefaults() Deadlines {
	for _, f := range []struct {
		v  *time.Duration
		by time.Duration
	}{
		{&d.Dial, 5 * time.Second},
		{&d.Answer, 5 * time.Second},
		{&d.FirstPacket, 5 * time.Second},
		{&d.FirstKeyframe, 20 * time.Second},
		{&d.FirstFrame, 5 * time.Second},
		{&d.Packets, 5 * time.Second},
		{&d.AccessUnits, 10 * time.Second},
		{&d.Keyframes, 120 * time.Second},
		{&d.Frames, 10 * time.Second},
	} {
		if *f.v <= 0 {
			*f.v = f.by
		}
	}
	return d
}

// Backoff between attempts. Zero fields get the defaults in brackets.
type Backoff struct {
	Base time.Duration // of the exponential [1 s]
	Max  time.Duration // of one wait [30 s]
	// Slow is the wait after what only a person can mend, refused credentials above all, and after
	// Budget attempts in vain [5 min].
	Slow time.Duration
	// Busy is the least wait after a camera had no session to give: its own timeout for dead ones [15 s].
	Busy time.Duration
	// Budget is the number of attempts without a frame until the camera is quarantined [20].
	Budget int
}

func (b Backoff) withDefaults() Backoff {
	if b.Base <= 0 {
		b.Base = time.Second
	}
	if b.Max <= 0 {
		b.Max = 30 * time.Second
	}
	if b.Slow <= 0 {
		b.Slow = 5 * time.Minute
	}
	if b.Busy <= 0 {
		b.Busy = 15 * time.Second
	}
	if b.Budget <= 0 {
		b.Budget = 20
	}
	return b
}

// next says how long to wait after the given number of attempts without a frame, and whether that
// is quarantine. Full jitter: cameras that lost their power together do not come back together.
func (b Backoff) next(attempts int, reason ingest.Reason, random func() float64) (wait time.Duration, quarantine bool) {
	switch reason {
	case ingest.ReasonAuthFailed, ingest.ReasonCodecUnsupported, ingest.ReasonInvalidConfig, ingest.ReasonTLSCert:
		return b.Slow*3/4 + time.Duration(random()*float64(b.Slow)/2), true
	default:
	}
	if attempts >= b.Budget {
		return b.Slow*3/4 + time.Duration(random()*float64(b.Slow)/2), true
	}
	ceiling := b.Max
	if n := max(attempts-1, 0); n < 20 && b.Base<<n < b.Max {
		ceiling = b.Base << n
	}
	wait = b.Base/10 + time.Duration(random()*float64(ceiling))
	if reason == ingest.ReasonCameraBusy {
		wait += b.Busy
	}
	return wait, false
}

func uniform() float64 { return rand.Float64() } //nolint:gosec // jitter is no secret

// progress knows what a session has reached and when the next step is overdue.
type progress struct {
	deadlines Deadlines
	start     time.Duration
	reached   [ingest.StageFrames + 1]time.Duration // mono; 0: not yet
}

func (p *progress) reach(s ingest.Stage, mono time.Duration) {
	if s > 0 && int(s) < len(p.reached) {
		p.reached[s] = max(mono, 1)
	}
}

// waiting returns the stage that is awaited and when it is overdue.
func (p *progress) waiting() (ingest.Stage, time.Duration) {
	d := p.deadlines
	last := p.start
	for s, by := range [...]time.Duration{
		// OPTIONS and DESCRIBE, then SETUP and PLAY, are two answers each.
		ingest.StageDial:          d.Dial + d.Dial/2,
		ingest.StageDescribe:      2 * d.Answer,
		ingest.StageSetup:         2 * d.Answer,
		ingest.StageFirstPacket:   d.FirstPacket,
		ingest.StageFirstKeyframe: d.FirstKeyframe,
		ingest.StageFirstFrame:    d.FirstFrame,
	} {
		if s == 0 {
			continue
		}
		if p.reached[s] == 0 {
			return ingest.Stage(s), last + by
		}
		last = p.reached[s]
	}
	stage, at := ingest.StagePackets, p.reached[ingest.StagePackets]+d.Packets
	for s, by := range map[ingest.Stage]time.Duration{
		ingest.StageAccessUnits: d.AccessUnits, ingest.StageKeyframes: d.Keyframes, ingest.StageFrames: d.Frames,
	} {
		if t := p.reached[s] + by; t < at {
			stage, at = s, t
		}
	}
	return stage, at
}

// streaming reports whether frames have come.
func (p *progress) streaming() bool { return p.reached[ingest.StageFirstFrame] != 0 }
