package rtsp

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"

	"github.com/vedette/vedette/ingest"
)

// handshakeError marks what TLS said.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS handshake: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// errPin: the camera showed another certificate than the one it was to show.
var errPin = errors.New("the camera's certificate is not the one with the given SHA-256")

// typed gives an error its reason, the camera's address and a text without credentials.
func typed(err error, stage ingest.Stage, c ingest.Camera) error {
	if err == nil {
		return &ingest.Error{Reason: ingest.ReasonDisconnected, Stage: stage, Err: errors.New("the session ended")}
	}
	if e, ok := errors.AsType[*ingest.Error](err); ok {
		if e.Stage == 0 {
			e.Stage = stage
		}
		return e
	}
	host := c.Address
	if u, perr := url.Parse(c.Address); perr == nil {
		host = u.Host
	}
	return &ingest.Error{Reason: reasonOf(err), Stage: stage, Err: &redacted{
		err:  err,
		text: redact(fmt.Sprintf("%s %s: %s", verb(stage), host, describe(err)), c),
	}}
}

// verb says what was attempted at a stage.
func verb(s ingest.Stage) string {
	switch s {
	case ingest.StageDial:
		return "connect to"
	case ingest.StageDescribe:
		return "ask for the streams of"
	case ingest.StageSetup:
		return "open the stream of"
	default:
		return "read the stream of"
	}
}

func describe(err error) string {
	if e, ok := errors.AsType[liberrors.ErrClientBadStatusCode](err); ok {
		if e.Code >= base.StatusMovedPermanently && e.Code <= base.StatusUseProxy {
			return fmt.Sprintf("the camera answered %d %s, without saying where, or more than %d times: use the address its stream has in the end", e.Code, e.Message, maxRedirects)
		}
		return fmt.Sprintf("the camera answered %d %s", e.Code, e.Message)
	}
	if errors.Is(err, syscall.EADDRINUSE) { // of multicast the camera chooses the port
		return "another program of this box has the UDP port of the camera's multicast (ss -lunp names it): stop it, or read the camera over TCP: " + err.Error()
	}
	if errors.Is(err, io.EOF) {
		return "the camera closed the connection"
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		return e.Err.Error()
	}
	return err.Error()
}

// reasonOf is the one table from the library's errors to ours.
func reasonOf(err error) ingest.Reason {
	if e, ok := errors.AsType[liberrors.ErrClientBadStatusCode](err); ok {
		return reasonOfStatus(e.Code)
	}
	if _, ok := errors.AsType[liberrors.ErrClientAuthSetup](err); ok {
		return ingest.ReasonAuthFailed
	}
	if _, ok := errors.AsType[*handshakeError](err); ok {
		return reasonOfTLS(err)
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EADDRINUSE) {
		return ingest.ReasonResource
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return ingest.ReasonUnreachable
	}
	var timeout net.Error
	switch {
	case is[liberrors.ErrClientRequestTimedOut](err), is[liberrors.ErrClientTCPTimeout](err), is[liberrors.ErrClientUDPTimeout](err):
		return ingest.ReasonTimeout
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return ingest.ReasonTimeout
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ingest.ReasonDisconnected
	case is[*net.OpError](err):
		return ingest.ReasonUnreachable
	case is[liberrors.ErrClientUDPPortsZero](err), is[liberrors.ErrClientUDPPortsNotConsecutive](err), is[liberrors.ErrClientServerPortsNotProvided](err),
		is[liberrors.ErrClientServerRequestedTCP](err), is[liberrors.ErrClientServerRequestedUDP](err), is[liberrors.ErrClientTransportHeaderInvalidDelivery](err),
		is[liberrors.ErrClientTransportHeaderNoDestination](err), is[liberrors.ErrClientTransportHeaderNoPorts](err), is[liberrors.ErrClientH264PacketizationMode0](err):
		return ingest.ReasonTransportRefused
	default:
		return ingest.ReasonProtocol
	}
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

func reasonOfStatus(code base.StatusCode) ingest.Reason {
	switch code {
	case base.StatusUnauthorized, base.StatusForbidden:
		return ingest.ReasonAuthFailed
	case base.StatusNotFound, base.StatusGone, base.StatusBadRequest:
		// Several makers answer 400 to a path they do not know.
		return ingest.ReasonNotFound
	case base.StatusNotEnoughBandwidth, base.StatusServiceUnavailable:
		return ingest.ReasonCameraBusy
	case base.StatusUnsupportedTransport:
		return ingest.ReasonTransportRefused
	default:
		return ingest.ReasonProtocol
	}
}

func reasonOfTLS(err error) ingest.Reason {
	if errors.Is(err, errPin) || is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) ||
		is[x509.HostnameError](err) || is[x509.CertificateInvalidError](err) {
		return ingest.ReasonTLSCert
	}
	return ingest.ReasonTLSHandshake
}

// IsCertificate reports whether an error says that a camera's certificate was refused.
func IsCertificate(err error) bool { return reasonOfTLS(err) == ingest.ReasonTLSCert }

// Trust says which certificates a camera may show.
func Trust(c ingest.Camera) (*tls.Config, error) {
	invalid := func(text string) error {
		return &ingest.Error{Reason: ingest.ReasonInvalidConfig, Err: errors.New(text)}
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CertificateSHA256 != "" {
		want, err := hex.DecodeString(strings.ReplaceAll(c.CertificateSHA256, ":", ""))
		if err != nil || len(want) != sha256.Size {
			return nil, invalid("certificate_sha256: not 64 hexadecimal digits")
		}
		cfg.InsecureSkipVerify = true // the pin below replaces every other check
		cfg.VerifyConnection = func(s tls.ConnectionState) error {
			got := sha256.Sum256(s.PeerCertificates[0].Raw)
			if subtle.ConstantTimeCompare(got[:], want) != 1 {
				return errPin
			}
			return nil
		}
		return cfg, nil
	}
	if c.CA != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM([]byte(c.CA)) {
			return nil, invalid("ca_pem: holds no certificate")
		}
		cfg.RootCAs = pool
	}
	return cfg, nil
}

// redacted is an error whose text has lost its secrets; the cause stays for errors.Is and As.
type redacted struct {
	err  error
	text string
}

func (r *redacted) Error() string { return r.text }
func (r *redacted) Unwrap() error { return r.err }

// redact takes the camera's credentials out of a text, plain or encoded.
func redact(text string, c ingest.Camera) string {
	for _, secret := range []string{c.Password, c.Username} {
		if secret == "" {
			continue
		}
		for _, form := range []string{url.UserPassword("", secret).String()[1:], url.QueryEscape(secret), url.PathEscape(secret), secret} {
			text = hide(text, form)
		}
	}
	return text
}

// hide blanks a secret. One of three letters and less is blanked where it is a word: in the middle of others it tells nobody anything,
// and every text would be riddled.
func hide(text, secret string) string {
	const short = 3
	if utf8.RuneCountInString(secret) > short {
		return strings.ReplaceAll(text, secret, "***")
	}
	var b strings.Builder
	for {
		i := strings.Index(text, secret)
		if i < 0 {
			return b.String() + text
		}
		b.WriteString(text[:i])
		before, _ := utf8.DecodeLastRuneInString(b.String())
		after, _ := utf8.DecodeRuneInString(text[i+len(secret):])
		if isWord(before) || isWord(after) {
			b.WriteString(secret)
		} else {
			b.WriteString("***")
		}
		text = text[i+len(secret):]
	}
}

func isWord(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }
