// Package tracker follows objects from frame to frame: it gives every object
// seen by a detector an identity that lasts while the object stays in view.
//
// It has two modes. Conformance repeats the published ByteTrack algorithm to
// the last digit, frame by frame. Default, the mode of the product, is driven
// by elapsed time, so that irregular and low frame rates, gaps and held
// sequences cost as few identities as possible.
//
// The package is pure: time is an argument, nothing here reads a clock, starts
// a goroutine or does I/O. A Tracker belongs to one sequence and to one
// goroutine at a time.
//
// Boxes are in pixels of the decoded frame: x to the right, y down, X2 and Y2
// exclusive. Times are capture times since the sequence opened.
package tracker

import (
	"time"
)

// Box is an upright rectangle in pixels of the decoded frame.
type Box struct {
	X1, Y1, X2, Y2 float64
}

// Width is X2-X1 in pixels.
func (b Box) Width() float64 { return b.X2 - b.X1 }

// Height is Y2-Y1 in pixels.
func (b Box) Height() float64 { return b.Y2 - b.Y1 }

// Detection is what a detector saw in one frame.
//
// A detection with a coordinate or score that is not finite, or without a
// positive width and height, is ignored and counted in Stats.
type Detection struct {
	Box
	Score float64 // 0..1
	Class int
}

// State says how well a track is supported at the moment it is reported.
type State int8

// The states of a track.
const (
	Tentative State = iota // seen, but not often enough to be reported
	Tracked                // matched by a detection in this frame
	Lost                   // not matched, but it may come back
)

// String is the state's name in lower case.
func (s State) String() string {
	switch s {
	case Tentative:
		return "tentative"
	case Tracked:
		return "tracked"
	case Lost:
		return "lost"
	}
	return "unknown"
}

// Track is one object followed within one sequence.
type Track struct {
	ID int64 // from 1, unique within the sequence, never reused
	Box
	Score     float64 // of the last matched detection
	Class     int     // of the track's best-supported detections
	State     State
	Start     time.Duration // when the object was first seen
	Last      time.Duration // when the object was last seen
	Age       time.Duration // from first seen until now; never negative
	Detection int           // index in Update's dets of the match, -1 if none
}

// EndReason says why a track came to its end.
type EndReason int8

// The reasons for which a track ends.
const (
	EndLost      EndReason = iota // not seen for longer than the lost time
	EndDuplicate                  // it followed the same object as another track
	EndGap                        // no frame at all for longer than a track survives
	EndClosed                     // the sequence was closed
)

// String is the reason's name in lower case.
func (r EndReason) String() string {
	switch r {
	case EndLost:
		return "lost"
	case EndDuplicate:
		return "duplicate"
	case EndGap:
		return "gap"
	case EndClosed:
		return "closed"
	}
	return "unknown"
}

// Ended is a track that will not be reported again. Only tracks that were
// reported at least once end; what was never reported disappears in silence.
type Ended struct {
	Track
	Reason EndReason
	At     time.Duration // when the end was decided
}

// Stats counts what the tracker met since it was made.
type Stats struct {
	Frames    int64 // calls of Update
	Holds     int64 // calls of Hold
	Invalid   int64 // detections ignored: not finite or without area
	Excess    int64 // detections ignored: beyond Config.MaxDetections
	Backwards int64 // calls whose time lay before the time of the call before
	Tracks    int64 // identities given
}

// engine is one way of following objects. Times given to it never go back.
type engine interface {
	update(at time.Duration, dets []observation, out []Track) []Track
	hold(at time.Duration)
	closeAll(at time.Duration)
	drainEnded(out []Ended) []Ended
	snapshot(w *writer)
	restore(r *reader)
	identities() int64
}

// observation is a valid detection, with its place in the caller's slice and
// its class group.
type observation struct {
	Box
	score float64
	class int
	group int
	index int
}

// Tracker follows the objects of one sequence. Its memory is bounded by the
// largest number of objects alive at once, whatever the length of the sequence.
type Tracker struct {
	cfg    Config
	groups map[int]int
	engine engine

	seen  bool
	given time.Duration // time of the last call, as the caller gave it
	now   time.Duration // same, on a line that never goes back
	stats Stats

	dets  []observation
	order []int32
	out   []Track
	ended []Ended
}

// New makes a tracker for one sequence. The error names every bad setting.
func New(cfg Config) (*Tracker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Tracker{cfg: cfg, groups: cfg.groupTable()}
	t.engine = newEngine(cfg)
	return t, nil
}

func newEngine(cfg Config) engine {
	if cfg.Mode == Conformance {
		return newByteTrack(cfg.ByteTrack)
	}
	return newElapsed(cfg.tuning, cfg.ReportLost)
}

// Update takes what the detector saw in the frame captured at the given time
// and returns the tracks matched in it; also the lost ones if the Config asks
// for them. An empty frame must be told too.
// The slice is valid until the next call.
//
// A time equal to the one before is a second look at the same instant. A time
// before it is counted and taken as the same instant; time then runs on from
// there, so that a step of the clock costs one frame's motion and no track.
func (t *Tracker) Update(at time.Duration, dets []Detection) []Track {
	now := t.advance(at)
	t.stats.Frames++
	t.admit(dets)
	t.out = t.engine.update(now, t.dets, t.out[:0])
	t.collect(at, now)
	for i := range t.out {
		t.relate(&t.out[i], at, now)
	}
	return t.out
}

// Hold tells that time passed while nothing was looked at: the camera was
// gated, or a frame was lost on its way. The time that a lost track may stay
// lost does not run while a sequence is held.
func (t *Tracker) Hold(at time.Duration) {
	now := t.advance(at)
	t.stats.Holds++
	t.engine.hold(now)
	t.collect(at, now)
}

// Close ends every track: Ended then returns them with reason EndClosed.
// The tracker may go on afterwards with new tracks.
func (t *Tracker) Close(at time.Duration) {
	now := t.advance(at)
	t.engine.closeAll(now)
	t.collect(at, now)
}

// Ended returns the tracks that came to their end in the last call of Update,
// Hold or Close. The slice is valid until the next call.
func (t *Tracker) Ended() []Ended { return t.ended }

// Stats returns the counts so far.
func (t *Tracker) Stats() Stats {
	s := t.stats
	s.Tracks = t.engine.identities()
	return s
}

func (t *Tracker) collect(at, now time.Duration) {
	t.ended = t.engine.drainEnded(t.ended[:0])
	for i := range t.ended {
		t.relate(&t.ended[i].Track, at, now)
		t.ended[i].At = at
	}
}

// relate turns the engine's times into the caller's: both differ when the
// caller's clock went back.
func (t *Tracker) relate(tr *Track, at, now time.Duration) {
	tr.Age = now - tr.Start
	tr.Start += at - now
	tr.Last += at - now
}

// advance maps the caller's time onto a line that never goes back.
func (t *Tracker) advance(at time.Duration) time.Duration {
	switch {
	case !t.seen:
		t.seen, t.now = true, at
	case at < t.given:
		t.stats.Backwards++
	case at-t.given < 0 || t.now+(at-t.given) < t.now:
		// The difference does not fit: no clock gives such times.
		t.stats.Backwards++
	default:
		t.now += at - t.given
	}
	t.given = at
	return t.now
}
