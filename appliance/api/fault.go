package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/store"
)

// domain is the domain of every ErrorInfo.
const domain = "vedette"

// ReasonError is an error with a reason a client can branch on, for callers of this package to return.
type ReasonError struct {
	Code codes.Code
	// Reason is a word in capitals: AUTH_FAILED.
	Reason string
	// Message says what was attempted and why it failed; Hint what to do about it.
	Message, Hint string
	// Metadata are facts a program can use; may be nil.
	Metadata map[string]string
}

// Error implements error.
func (f *ReasonError) Error() string {
	if f.Hint == "" {
		return f.Message
	}
	return f.Message + " (" + f.Hint + ")"
}

// invalid is a fault of one field of a request.
func invalid(field, format string, args ...any) error {
	return &cameras.InvalidError{Violations: []cameras.Violation{{Field: field, Description: fmt.Sprintf(format, args...)}}}
}

// toStatus turns any error into what a client may see: one table. An error it does not know is
// INTERNAL, logged and not shown.
func toStatus(ctx context.Context, logger *slog.Logger, err error) error {
	var bad *cameras.InvalidError
	var conflict *store.ConflictError
	var fault *ReasonError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fault):
		return withInfo(fault.Code, &errdetails.ErrorInfo{Reason: fault.Reason, Domain: domain, Metadata: fault.Metadata}, fault.Error())
	case errors.As(err, &bad):
		violations := make([]*errdetails.BadRequest_FieldViolation, len(bad.Violations))
		for i, v := range bad.Violations {
			violations[i] = &errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Description}
		}
		return detailed(codes.InvalidArgument, "INVALID_ARGUMENT", bad.Error(), &errdetails.BadRequest{FieldViolations: violations})
	case errors.As(err, &conflict):
		return detailed(codes.Aborted, "ETAG_MISMATCH", conflict.Error())
	case errors.Is(err, store.ErrNotFound):
		return detailed(codes.NotFound, "NOT_FOUND", err.Error())
	case errors.Is(err, store.ErrExists):
		return detailed(codes.AlreadyExists, "ALREADY_EXISTS", err.Error())
	case errors.Is(err, store.ErrPageToken):
		return detailed(codes.InvalidArgument, "PAGE_TOKEN_INVALID", err.Error(),
			&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "page_token", Description: err.Error()}}})
	case errors.Is(err, store.ErrInvalid):
		return detailed(codes.InvalidArgument, "INVALID_ARGUMENT", err.Error())
	case errors.Is(err, store.ErrDiskFull):
		return detailed(codes.ResourceExhausted, "DISK_FULL", err.Error())
	case errors.Is(err, store.ErrClosed):
		return detailed(codes.Unavailable, "NOT_RUNNING", err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return detailed(codes.DeadlineExceeded, "TIMEOUT", "the deadline of the request passed")
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the request was cancelled")
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	logger.ErrorContext(ctx, "request failed unexpectedly", slog.Any("err", err))
	return detailed(codes.Internal, "INTERNAL", "something went wrong inside the box; its log says more")
}

func detailed(code codes.Code, reason, message string, more ...protoadapt.MessageV1) error {
	return withInfo(code, &errdetails.ErrorInfo{Reason: reason, Domain: domain}, message, more...)
}

func withInfo(code codes.Code, info *errdetails.ErrorInfo, message string, more ...protoadapt.MessageV1) error {
	s := status.New(code, message)
	details := append([]protoadapt.MessageV1{info}, more...)
	if d, err := s.WithDetails(details...); err == nil {
		s = d
	}
	return s.Err()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
