package api

import (
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// errBeat says that a heartbeat is due.
var errBeat = errors.New("a heartbeat is due")

// pulse is when a stream's heartbeats are due, however much happens.
type pulse struct {
	every time.Duration
	due   time.Time
}

// errStopping is the end of every stream when the appliance stops.
var errStopping = &ReasonError{Code: codes.Unavailable, Reason: "STOPPING", Message: "the appliance is stopping", Hint: "connect again and pass the last resume token"}

// until returns a context that also ends, with errStopping as its cause, when stopping does.
func until(ctx, stopping context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(stopping, func() { cancel(errStopping) })
	return ctx, func() {
		release()
		cancel(context.Canceled)
	}
}

// nextWithin waits for next until ctx ends (its cause is returned) or a heartbeat is due (errBeat).
func nextWithin[T any](ctx context.Context, p *pulse, next func(context.Context) (T, error)) (v T, err error) {
	within, cancel := context.WithDeadlineCause(ctx, p.due, errBeat)
	defer cancel()
	if err = within.Err(); err == nil {
		v, err = next(within)
	}
	if err != nil && within.Err() != nil {
		err = context.Cause(within)
	}
	if errors.Is(err, errBeat) {
		p.due = time.Now().Add(p.every)
	}
	return v, err
}

// resumeToken names the last window of history a watch has seen.
func resumeToken(seq uint64) string {
	return base64.RawURLEncoding.EncodeToString([]byte("w1:" + strconv.FormatUint(seq, 10)))
}

func parseResumeToken(token string) (uint64, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if text, ok := strings.CutPrefix(string(b), "w1:"); err == nil && ok {
		if seq, err := strconv.ParseUint(text, 10, 64); err == nil {
			return seq, nil
		}
	}
	return 0, invalid("resume_token", "is none that this box gave out")
}
