package ingest

import (
	"errors"
	"fmt"
)

// Reason is the type of a fault.
type Reason int

// The reasons; the wire contract says what each means.
const (
	ReasonUnreachable Reason = iota + 1
	ReasonTimeout
	ReasonAuthFailed
	ReasonNotFound
	ReasonTLSCert
	ReasonTLSHandshake
	ReasonCodecUnsupported
	ReasonTransportRefused
	ReasonCameraBusy
	ReasonProtocol
	ReasonDisconnected
	ReasonStalled
	ReasonDecode
	ReasonInvalidConfig
	ReasonResource
	ReasonGone
	ReasonInternal
)

// String returns the reason's wire name without its prefix.
func (r Reason) String() string {
	names := [...]string{
		"UNSPECIFIED", "UNREACHABLE", "TIMEOUT", "AUTH_FAILED", "NOT_FOUND", "TLS_CERT", "TLS_HANDSHAKE", "CODEC_UNSUPPORTED",
		"TRANSPORT_REFUSED", "CAMERA_BUSY", "PROTOCOL", "DISCONNECTED", "STALLED", "DECODE", "INVALID_CONFIG", "RESOURCE", "GONE", "INTERNAL",
	}
	if r < 0 || int(r) >= len(names) {
		return fmt.Sprintf("REASON_%d", int(r))
	}
	return names[r]
}

// Hint is what a person can do about it; empty when nothing in general.
func (r Reason) Hint() string {
	switch r {
	case ReasonUnreachable:
		return "check that the camera is powered, the host name and port are right, and this box can reach its network"
	case ReasonTimeout:
		return "the camera answers too slowly or not at all: check its network and whether another client keeps it busy"
	case ReasonAuthFailed:
		return "check user name and password, and that the user may view this stream; the next attempts come slowly so that the camera does not lock the account"
	case ReasonNotFound:
		return "check the path: a camera's manual names its streams, a file's path is absolute and readable by vedette-ingest"
	case ReasonTLSCert:
		return "give the camera's CA certificate or the SHA-256 of its certificate, or correct the host name"
	case ReasonTLSHandshake:
		return "check that the port speaks TLS (rtsps usually 322) and which TLS versions the camera allows"
	case ReasonCodecUnsupported:
		return "set the camera's stream to H.264 or H.265"
	case ReasonTransportRefused:
		return "choose another transport (TCP works with nearly every camera)"
	case ReasonCameraBusy:
		return "the camera has no free session, or is not ready yet: close other viewers or raise its limit"
	case ReasonProtocol:
		return "check that the port belongs to the camera's RTSP service"
	case ReasonInvalidConfig:
		return "correct the camera's settings"
	case ReasonResource:
		return "this box is out of file descriptors, memory or ports: see its limits"
	case ReasonDecode:
		return "check the stream with another player; if it plays there, lower its profile or turn off smart coding"
	case ReasonStalled:
		return "the camera is connected but sends nothing usable: restart it, or look for a firmware update"
	default:
		return ""
	}
}

// Error is a typed fault. Its text is free of credentials.
type Error struct {
	Reason Reason
	// Stage is where it happened; 0: outside a session.
	Stage Stage
	// Err says what was attempted, on what, and why it failed.
	Err error
}

// Error returns the text with its reason in front.
func (e *Error) Error() string { return e.Reason.String() + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Overdue says that nothing came at a stage of a session, by the transport that was asked for, within its time.
func Overdue(stage Stage, t Transport) *Error {
	e := &Error{Reason: ReasonTimeout, Stage: stage, Err: fmt.Errorf("nothing came at stage %q within its time", stage)}
	if stage >= StageFirstPacket {
		e.Reason = ReasonStalled
	}
	if stage == StageFirstPacket && (t == TransportUDP || t == TransportMulticast) {
		e.Err = fmt.Errorf("the camera was asked for %s and no packet came: a firewall or router on the way may drop them; read the camera over TCP", t)
	}
	return e
}

// Undecodable says that pictures came in a session, and not one of so many that were tried could be decoded.
func Undecodable(failed uint64) *Error {
	return &Error{
		Reason: ReasonDecode, Stage: StageFirstFrame,
		Err: fmt.Errorf("coded pictures come, and none of %d could be decoded: the stream is damaged or lacks its parameter sets (SPS, PPS)", failed),
	}
}

// AsError returns err as a typed fault; an untyped one is INTERNAL, nil stays nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Reason: ReasonInternal, Err: err}
}
