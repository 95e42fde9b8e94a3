package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Box is a rectangle in the frame, 0..1 of its width and height, X1 <= X2 and Y1 <= Y2. It is kept with 16 bits
// a coordinate: what comes back is at most 1/131070 off, and coordinates outside the frame are clipped to it.
type Box struct {
	X1, Y1, X2, Y2 float32
}

// TrackID names a track for ever: its sequence, and its number within it. Local 0 is no track.
type TrackID struct {
	Sequence, Local int64
}

// String prints the public form, "SEQUENCE-LOCAL".
func (id TrackID) String() string {
	return strconv.FormatInt(id.Sequence, 10) + "-" + strconv.FormatInt(id.Local, 10)
}

// ParseTrackID reads the public form "SEQUENCE-LOCAL"; the error is an ErrInvalid.
func ParseTrackID(s string) (TrackID, error) {
	a, b, ok := strings.Cut(s, "-")
	seq, err1 := strconv.ParseInt(a, 10, 64)
	local, err2 := strconv.ParseInt(b, 10, 64)
	id := TrackID{Sequence: seq, Local: local}
	if !ok || err1 != nil || err2 != nil || seq <= 0 || local <= 0 || id.String() != s {
		return TrackID{}, fmt.Errorf("track id %q: %w: want SEQUENCE-LOCAL, two positive numbers", s, ErrInvalid)
	}
	return id, nil
}

// Object is what the detector and the tracker said about one thing in one frame.
type Object struct {
	Local int64   // the track within the frame's sequence; 0 when it belongs to none
	Class string  // name of the class; kept once a file
	Score float32 // 0..1, kept in thousandths
	Box   Box
}

// Frame is all the objects of one analysed frame, as they are written. A frame without objects leaves no trace.
type Frame struct {
	Sequence    int64
	Camera      string
	CaptureTime time.Time // chooses the day; kept in microseconds
	ReceiveTime time.Time // zero: the capture time
	Number      int64     // of the frame in its stream epoch
	Objects     []Object
}

// Detection is one object of one frame, as it is read.
type Detection struct {
	Sequence    int64
	Camera      string
	CaptureTime time.Time
	ReceiveTime time.Time
	Frame       int64 // number of the frame in its stream epoch
	Object
}

// TrackState tells whether a track goes on.
type TrackState int8

// The states of a track. The zero value in a Query means either.
const (
	TrackAny TrackState = iota
	TrackActive
	TrackEnded
)

// Point is where a track's box centre was, 0..1 of the frame.
type Point struct {
	Time time.Time
	X, Y float32
}

// Track is one object followed within one sequence. A track is written whole, each time it is sent: send it when it
// opens, about once a second while it goes on, and when it ends. Within one commit window the last one sent wins.
type Track struct {
	ID         TrackID
	Camera     string
	Class      string
	Start      time.Time // capture time of the first detection: chooses the day, and must never change
	End        time.Time // capture time of the last detection
	State      TrackState
	EndReason  string // why it ended: "lost", "sequence closed", "CRASH", ...
	Score      float32
	Box        Box    // last box
	Detections int64  // how many the track has had
	Picture    string // file of its best shot within MediaDir(Start); "": none
	// Path is where it went, oldest first. Nil when writing keeps the path stored before. More than 256 points are
	// thinned evenly. Lists leave it nil; GetTrack fills it.
	Path []Point
}

// Event is something that happened.
type Event struct {
	Seq     int64 // given by the store at commit, in commit order, never reused
	Camera  string
	Type    string
	Time    time.Time // chooses the day; kept in microseconds
	Track   TrackID   // zero: none
	Payload []byte    // opaque to the store
	Media   []Media   // what is kept of it; ListEvents and GetEvent fill it
}

// Batch is what one caller wants written at once. The store keeps its slices until they are committed and hands them
// to subscribers afterwards: the caller must not touch them any more.
type Batch struct {
	Frames []Frame
	Tracks []Track
	Events []Event
	Media  []Media
}

// Query selects and orders history. Empty fields select everything.
type Query struct {
	Cameras     []string
	Classes     []string            // detections and tracks
	Types       []string            // events
	Payload     map[string][]string // events: whose payload, a JSON object, has one of these values under each of these keys
	Start, End  time.Time
	MinScore    float32       // detections and tracks
	MinDuration time.Duration // tracks
	State       TrackState    // tracks
	Sequence    int64         // 0: any
	Track       TrackID       // detections and events of one track; zero: any
	Received    bool          // detections: Start and End are by receive time; the order is not
	Ascending   bool          // oldest first; otherwise newest first
	PageSize    int           // 0: 50; at most 1000 (10 000 for detections)
	PageToken   string        // from the page before, of the same query

	Actor, Action, Resource, Outcome string // audit; empty: any
}
