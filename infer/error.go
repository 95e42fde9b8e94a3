package infer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Error is a refusal or failure with the class clients branch on. Message is
// part of the wire contract where clients match it.
type Error struct {
	Code    Code
	Message string
	// Reason says for statistics why a request ended; zero follows the code.
	Reason Reason
}

// Errorf makes an *Error.
func Errorf(code Code, format string, args ...any) *Error {
	if len(args) == 0 {
		return &Error{Code: code, Message: format}
	}
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error is the message as clients see it.
func (e *Error) Error() string { return e.Message }

// Code is the class of an error.
type Code uint8

// The classes of the v2 protocol's reference server.
const (
	Internal Code = iota
	NotFound
	InvalidArgument
	Unavailable
	Unsupported
	AlreadyExists
	Cancelled
	Unknown
)

// HTTP is the status a frontend answers with.
func (c Code) HTTP() int {
	switch c {
	case NotFound:
		return http.StatusNotFound
	case InvalidArgument, AlreadyExists, Cancelled, Unknown:
		return http.StatusBadRequest
	case Unavailable:
		return http.StatusServiceUnavailable
	case Unsupported:
		return http.StatusNotImplemented
	case Internal:
	}
	return http.StatusInternalServerError
}

// GRPC is the status code number of gRPC (google.golang.org/grpc/codes).
func (c Code) GRPC() uint32 {
	switch c {
	case Cancelled:
		return 1
	case Unknown:
		return 2
	case InvalidArgument:
		return 3
	case NotFound:
		return 5
	case AlreadyExists:
		return 6
	case Unsupported:
		return 12
	case Unavailable:
		return 14
	case Internal:
	}
	return 13
}

// CodeOf classifies any error: an *Error anywhere in its chain says it itself,
// a cancelled context is Cancelled, what nobody classified is Internal.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if errors.Is(err, context.Canceled) {
		return Cancelled
	}
	return Internal
}

// Reason is why a request failed, as statistics and metrics count it.
type Reason uint8

// The reasons of the reference server's failure counter.
const (
	ReasonOther Reason = iota
	ReasonRejected
	ReasonCanceled
	ReasonBackend
)

// String is the label value of the failure counter.
func (r Reason) String() string {
	switch r {
	case ReasonRejected:
		return "REJECTED"
	case ReasonCanceled:
		return "CANCELED"
	case ReasonBackend:
		return "BACKEND"
	case ReasonOther:
	}
	return "OTHER"
}

// ReasonOf reads the reason an error carries.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok && e.Reason != ReasonOther {
		return e.Reason
	}
	if CodeOf(err) == Cancelled {
		return ReasonCanceled
	}
	return ReasonOther
}
