// Package ingest holds the words of getting pictures out of cameras: the camera as it is wanted, the
// access unit as it arrives, the frame as it is announced, and what can go wrong on the way.
//
// The sub-packages are the mechanisms: rtsp and file deliver access units, capture finds out
// when they were seen, decode makes pictures of them, framebus hands the pictures to other processes,
// camera keeps one camera alive, sidecar serves them all on a socket, client is the other end of it.
package ingest

import (
	"context"
	"fmt"
	"image"
	"time"

	"github.com/vedette/vedette/api/frame"
)

// Camera is a camera as it is wanted.
type Camera struct {
	// Name is unique and opaque.
	Name string
	// Address is rtsp://…, rtsps://…, http://…, https://…, v4l2:… or file:…, free of credentials, whose places
	// among its parameters are {username} and {password}.
	Address string
	// MainAddress is a second stream of the same camera, rtsp://… or rtsps://…, that is not analysed; empty: none.
	// KeepMain keeps it connected though nobody looks.
	MainAddress string
	KeepMain    bool
	// Username and Password may hold any characters. Neither is ever printed (see String).
	Username, Password string
	Transport          Transport
	// AnalysisRate is frames a second by capture time; 0: every frame.
	AnalysisRate float64
	Disabled     bool
	// Slots is the number of frame slots; 0: 5.
	Slots int
	// CA are certificates (PEM) to trust besides the system's.
	CA string
	// CertificateSHA256 is the one certificate accepted, in hex; empty: whatever is trusted.
	CertificateSHA256 string
	// Masks are polygons blanked in every frame and picture, in 0 … 1 of width and height.
	Masks []Mask
	// FullSpeed, Loop and StartTime are for file: addresses: as fast as frames are released, again at the end,
	// and the capture time of the first frame (zero: when it was opened).
	FullSpeed, Loop bool
	StartTime       time.Time
	// PreRollBytes are kept of access units; 0: 8 MiB, negative: none.
	PreRollBytes int64
	// Decoders in order of preference ("software", "vaapi", "cuda", …); empty: software.
	Decoders []string
	// Gate holds back frames of still scenes; nil: no gate.
	Gate *Gate
	// Isolated: the camera wants a process of its own.
	Isolated bool
	// Asked is another number than before when an operator asks for an attempt: it is made now, if one waits.
	Asked uint64
	// Version is another one with every change, also of what is not here.
	Version string
}

// Gate are the settings of a motion gate.
type Gate struct {
	// Threshold is the share of changed area that opens it; 0: 0.002.
	Threshold float64
	// Hold keeps it open after the last motion; 0: 2 s.
	Hold time.Duration
	// Recheck lets a frame pass at least this often; 0: 10 s.
	Recheck time.Duration
	// Ignore are areas whose motion does not count.
	Ignore []Mask
}

// Mask is a polygon; points in 0 … 1 of width and height.
type Mask []Point

// Point is a place in a picture, 0 … 1 of width and height.
type Point struct{ X, Y float64 }

// String names the camera; never its credentials.
func (c Camera) String() string { return fmt.Sprintf("camera %q", c.Name) }

// GoString keeps %#v from printing credentials.
func (c Camera) GoString() string { return c.String() }

// Transport is how RTP travels.
type Transport int

// The transports.
const (
	TransportAuto Transport = iota
	TransportTCP
	TransportUDP
	TransportMulticast
)

// String returns the transport's usual name.
func (t Transport) String() string {
	switch t {
	case TransportTCP:
		return "TCP"
	case TransportUDP:
		return "UDP"
	case TransportMulticast:
		return "multicast"
	default:
		return "any transport"
	}
}

// Codec of a coded stream.
type Codec int

// The codecs.
const (
	H264 Codec = iota + 1
	H265
	MJPEG
	AV1
)

// String returns the codec's usual name.
func (c Codec) String() string {
	switch c {
	case H264:
		return "H.264"
	case H265:
		return "H.265"
	case MJPEG:
		return "MJPEG"
	case AV1:
		return "AV1"
	default:
		return fmt.Sprintf("codec %d", int(c))
	}
}

// Ticks is media time in units of 1/90000 s.
type Ticks int64

// Duration converts media time.
func (t Ticks) Duration() time.Duration {
	const rate = 90000
	return time.Duration(t/rate)*time.Second + time.Duration(t%rate)*time.Second/rate
}

// TicksOf converts to media time, rounding down.
func TicksOf(d time.Duration) Ticks {
	const rate = 90000
	return Ticks(d/time.Second)*rate + Ticks(d%time.Second*rate/time.Second)
}

// Instant is one moment by both clocks: Mono, CLOCK_MONOTONIC since boot, for differences; Wall, the
// box's clock, for people.
type Instant struct {
	Mono time.Duration
	Wall time.Time
}

// Stream describes what a source delivers, before its first access unit and after every change.
type Stream struct {
	Codec     Codec
	Transport Transport
	// Width and Height as the parameter sets say; 0: not known before decoding.
	Width, Height int
	// Profile and level as text; may be empty.
	Profile string
	// Live: the pictures show now and come by themselves. A file's wait until they are wanted.
	Live bool
	// RTCP travels beside it, in whose sender reports a camera tells its time.
	RTCP bool
}

// AccessUnit is one coded picture.
type AccessUnit struct {
	// Data holds the NAL units, each after a start code of four bytes (H.264, H.265), one temporal unit of
	// OBUs with their sizes (AV1), or one JPEG. It is never written again and may be kept. Keyframes
	// carry their parameter sets.
	Data []byte
	// Ticks is presentation time, unwrapped, from an arbitrary origin.
	Ticks Ticks
	// Received is when its last packet arrived.
	Received Instant
	// Keyframe: decoding can begin here. Recovery is how many units later what it gives is right, where it is not at once
	// (a picture that is refreshed bit by bit, without keyframes in the strict sense).
	Keyframe bool
	Recovery int
	// Lost: units before it are missing. Damaged: parts of it are missing.
	Lost, Damaged bool
}

// SenderReport relates media time to the camera's clock.
type SenderReport struct {
	Ticks    Ticks
	NTP      time.Time
	Received Instant
}

// Sink takes what a source delivers. Its methods are called by one goroutine at a time and do not block,
// except AccessUnit of a source that is not live: it waits until the unit is wanted or
// the sink's owner stops.
type Sink interface {
	// Reached says that a step was done.
	Reached(Stage)
	Stream(Stream)
	AccessUnit(AccessUnit)
	SenderReport(SenderReport)
	// Packets counts what arrived and what never did.
	Packets(received, bytes, lost, bad uint64)
}

// Source is one session with a camera or one pass over a file.
type Source interface {
	// Run delivers until ctx ends (nil), the material ends (io.EOF) or it fails (an *Error). It
	// leaves nothing behind: no session on the camera, no goroutine.
	Run(ctx context.Context, sink Sink) error
}

// Stage is a step of getting pictures.
type Stage int

// The stages, in the order of a session.
const (
	StageDial Stage = iota + 1
	StageDescribe
	StageSetup
	StageFirstPacket
	StageFirstKeyframe
	StageFirstFrame
	// The stages below are those that can stop again.
	StagePackets
	StageAccessUnits
	StageKeyframes
	StageFrames
)

// String names the stage for logs.
func (s Stage) String() string {
	switch s {
	case StageDial:
		return "dial"
	case StageDescribe:
		return "describe"
	case StageSetup:
		return "setup"
	case StageFirstPacket:
		return "first packet"
	case StageFirstKeyframe:
		return "first keyframe"
	case StageFirstFrame:
		return "first frame"
	case StagePackets:
		return "packets"
	case StageAccessUnits:
		return "access units"
	case StageKeyframes:
		return "keyframes"
	case StageFrames:
		return "frames"
	default:
		return "start"
	}
}

// TimeQuality is how a capture time was found.
type TimeQuality int

// The qualities.
const (
	TimeSenderReport TimeQuality = iota + 1
	TimeEstimated
	TimeFile
)

// EpochReason is why a stream epoch began.
type EpochReason int

// The reasons.
const (
	EpochFirst EpochReason = iota + 1
	EpochReconnected
	EpochFormatChanged
	EpochClockAnchored
	EpochRewound
	EpochSettingsChanged
)

// Epoch is an unbroken run of one camera's stream. It is shared by pointer and never changes.
type Epoch struct {
	// ID is unique for ever: the box's boot, the sidecar's start, a counter.
	ID     string
	Reason EpochReason
	// Origin is the media time the epoch counts from.
	Origin Ticks
}

// Frame is what is known of one decoded picture, without its pixels.
type Frame struct {
	Epoch *Epoch
	// Number counts decoded pictures of the epoch, from 0.
	Number   uint64
	Capture  time.Time
	Quality  TimeQuality
	Received Instant
	// Decoded is when the decoder gave it out, on the clock of Received.Mono.
	Decoded time.Duration
	// Ticks is media time since the epoch began.
	Ticks    Ticks
	Size     image.Point
	Keyframe bool
	// Tainted: decoded from damaged or missing references.
	Tainted bool
	// FullRange: values from 0 to 255 instead of 16 to 235.
	FullRange bool
	// Matrix is how its colours became YUV.
	Matrix Matrix
	// Recheck: announced although the motion gate is closed.
	Recheck bool
	// Held: it waited, undecoded, for the motion gate to open, and is late on purpose.
	Held bool
}

// Matrix is how colours became YUV, by its number in H.264 and H.265 (table E-5).
type Matrix int

// The matrices.
const (
	BT601  Matrix = 0 // also where nothing is said
	BT709  Matrix = 1
	BT2020 Matrix = 9
)

// Flags tell what a reader of its slot should know.
func (f Frame) Flags() frame.Flags {
	var v frame.Flags
	if f.Tainted {
		v |= frame.Tainted
	}
	if f.Keyframe {
		v |= frame.Keyframe
	}
	if f.FullRange {
		v |= frame.FullRange
	}
	switch f.Matrix {
	case BT709:
		v |= frame.BT709
	case BT2020:
		v |= frame.BT2020
	default:
	}
	return v
}
