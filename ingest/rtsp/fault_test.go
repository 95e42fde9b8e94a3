package rtsp

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"

	"github.com/vedette/vedette/ingest"
)

func TestErrorsAreTypedByWhatTheyAre(t *testing.T) {
	status := func(c base.StatusCode) error { return liberrors.ErrClientBadStatusCode{Code: c} }
	for name, c := range map[string]struct {
		err  error
		want ingest.Reason
	}{
		"401":                  {status(base.StatusUnauthorized), ingest.ReasonAuthFailed},
		"403":                  {status(base.StatusForbidden), ingest.ReasonAuthFailed},
		"404":                  {status(base.StatusNotFound), ingest.ReasonNotFound},
		"400":                  {status(base.StatusBadRequest), ingest.ReasonNotFound},
		"453":                  {status(base.StatusNotEnoughBandwidth), ingest.ReasonCameraBusy},
		"461":                  {status(base.StatusUnsupportedTransport), ingest.ReasonTransportRefused},
		"500":                  {status(base.StatusInternalServerError), ingest.ReasonProtocol},
		"no descriptors":       {&net.OpError{Op: "dial", Err: syscall.EMFILE}, ingest.ReasonResource},
		"refused":              {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, ingest.ReasonUnreachable},
		"unknown name":         {&net.DNSError{}, ingest.ReasonUnreachable},
		"reset":                {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, ingest.ReasonDisconnected},
		"ended":                {io.EOF, ingest.ReasonDisconnected},
		"no answer":            {liberrors.ErrClientRequestTimedOut{}, ingest.ReasonTimeout},
		"no answer to dial":    {context.DeadlineExceeded, ingest.ReasonTimeout},
		"another pin":          {&handshakeError{errPin}, ingest.ReasonTLSCert},
		"no TLS":               {&handshakeError{errors.New("first record does not look like TLS")}, ingest.ReasonTLSHandshake},
		"something unheard of": {errors.New("gibberish"), ingest.ReasonProtocol},
	} {
		if got := reasonOf(c.err); got != c.want {
			t.Errorf("%s: reason %v, want %v", name, got, c.want)
		}
	}
}

func TestWhatTheSystemSaysIsExplained(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "listen", Err: syscall.EADDRINUSE}, "another program of this box has the UDP port"},
		{io.EOF, "ask for the streams of 192.0.2.1: the camera closed the connection"},
	} {
		if err := typed(c.err, ingest.StageDescribe, ingest.Camera{Address: "rtsp://192.0.2.1/x"}); !strings.Contains(err.Error(), c.want) {
			t.Error(err)
		}
	}
}

func TestShortSecretsAreBlankedWhereTheyAreWords(t *testing.T) {
	c := ingest.Camera{Username: "u", Password: "a1"}
	for text, want := range map[string]string{
		"401 Unauthorized by the camera's user":  "401 Unauthorized by the camera's user",
		"rtsp://u:a1@host/x":                     "rtsp://***:***@host/x",
		"u":                                      "***",
		"user u, password a1. \"a1\" u":          "user ***, password ***. \"***\" ***",
		"über u: ua1 a1u a12 ua":                 "über ***: ua1 a1u a12 ua",
		`Digest username="u", realm="u of a1 u"`: `Digest username="***", realm="*** of *** ***"`,
	} {
		if got := redact(text, c); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
	// Letters beside each other, and one that is no letter.
	if got := redact("p% p% %p", ingest.Camera{Username: "x", Password: "p%"}); got != "*** *** %p" {
		t.Errorf("%q", got)
	}
}

func FuzzRedactedTextHoldsNoSecret(f *testing.F) {
	f.Add("rtsp://admin:s3cret%20pw@cam/x: no", "admin", "s3cret pw")
	f.Add("p%40ss p@ss p%40ss", "root", "p@ss")
	f.Fuzz(func(t *testing.T, text, user, password string) {
		if len(password) < 4 || len(user) < 4 || strings.Contains("***", password) || strings.Contains(password, "*") || strings.Contains(user, "*") {
			t.Skip()
		}
		got := redact(text, ingest.Camera{Username: user, Password: password})
		if strings.Contains(got, password) || strings.Contains(got, user) {
			t.Errorf("%q still shows %q or %q", got, user, password)
		}
	})
}

func TestNTPTimesOfBothErasAreRead(t *testing.T) {
	for _, want := range []time.Time{
		time.Date(1990, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 11, 21, 6, 0, 0, 500_000_000, time.UTC), time.Date(2040, 6, 1, 0, 0, 0, 0, time.UTC),
	} {
		v := uint64(want.Unix()+2208988800)&(1<<32-1)<<32 | uint64(want.Nanosecond())<<32/1e9
		if got := ntpTime(v); got.Sub(want).Abs() > time.Microsecond {
			t.Errorf("%v was read as %v", want, got.UTC())
		}
	}
}

func TestRTPTimeIsUnwrapped(t *testing.T) {
	var u unwrapper
	start := ^uint32(0) - 4000 // wraps at the second picture
	for i := range 10 {
		if got := u.ticks(start+uint32(i)*3600, 90000); got != ingest.Ticks(i*3600) {
			t.Errorf("picture %d is at %d", i, got)
		}
	}
	if got := u.ticks(start+8*3600, 90000); got != 8*3600 {
		t.Errorf("a picture shown earlier is at %d", got)
	}
	if got := u.peek(start+20*3600, 90000); got != 20*3600 {
		t.Errorf("a report ahead is at %d", got)
	}
	var slow unwrapper
	slow.ticks(0, 8000)
	if got := slow.ticks(8000, 8000); got != 90000 {
		t.Errorf("a second of an 8 kHz clock is %d ticks", got)
	}
}
