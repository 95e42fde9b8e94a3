// Package jpegs reads a camera that sends JPEG after JPEG over HTTP (multipart/x-mixed-replace).
package jpegs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/icholy/digest"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/rtsp"
	"github.com/vedette/vedette/internal/address"
)

// Config of a Source.
type Config struct {
	Camera ingest.Camera
	// DialTimeout bounds the TCP and TLS handshakes, AnswerTimeout the wait for the headers of the answer; 0: 5 s each.
	DialTimeout, AnswerTimeout time.Duration
	// Now reads both clocks; nil: the box's.
	Now func() ingest.Instant
}

// Source is one connection to one camera.
type Source struct{ cfg Config }

// New dials nothing; the camera's settings have been checked (ingest.Camera.Check).
func New(cfg Config) *Source {
	if cfg.DialTimeout <= 0 {
		cfg.DialTimeout = 5 * time.Second
	}
	if cfg.AnswerTimeout <= 0 {
		cfg.AnswerTimeout = 5 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = ingest.Now
	}
	return &Source{cfg: cfg}
}

// maxPicture bounds one JPEG.
const maxPicture = 16 << 20

// Run reads until ctx ends (nil) or the connection fails (an *ingest.Error).
func (s *Source) Run(ctx context.Context, sink ingest.Sink) error {
	err := s.run(ctx, sink)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // asked to stop
	}
	return err
}

func (s *Source) run(ctx context.Context, sink ingest.Sink) error {
	c := s.cfg.Camera
	trust, err := rtsp.Trust(c)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DialContext:     (&net.Dialer{Timeout: s.cfg.DialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig: trust, TLSHandshakeTimeout: s.cfg.DialTimeout, ResponseHeaderTimeout: s.cfg.AnswerTimeout, DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	resp, err := s.ask(ctx, transport)
	if err != nil {
		return s.fault(ingest.StageDial, reasonOf(err), err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is lost with it
	sink.Reached(ingest.StageDial)
	if reason := reasonOfStatus(resp.StatusCode); reason != 0 {
		return s.fault(ingest.StageDescribe, reason, fmt.Errorf("the camera answered %s", resp.Status))
	}
	kind, parameters, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/x-mixed-replace" || parameters["boundary"] == "" {
		return s.fault(ingest.StageDescribe, ingest.ReasonCodecUnsupported, fmt.Errorf("the camera answers with %q, not with a stream of JPEGs (multipart/x-mixed-replace)", kind))
	}
	sink.Reached(ingest.StageDescribe)
	sink.Reached(ingest.StageSetup)
	// Some cameras name the boundary with the dashes that go before it.
	parts := multipart.NewReader(resp.Body, strings.TrimPrefix(parameters["boundary"], "--"))
	for first := true; ; first = false {
		part, err := parts.NextRawPart()
		if err != nil {
			return s.fault(ingest.StagePackets, ingest.ReasonDisconnected, err)
		}
		picture, err := io.ReadAll(io.LimitReader(part, maxPicture+1))
		switch {
		case err != nil:
			return s.fault(ingest.StagePackets, ingest.ReasonDisconnected, err)
		case len(picture) > maxPicture:
			return s.fault(ingest.StagePackets, ingest.ReasonProtocol, fmt.Errorf("a picture of more than %d MiB", maxPicture>>20))
		case len(picture) < 4 || picture[0] != 0xFF || picture[1] != 0xD8: // no JPEG
			sink.Packets(1, uint64(len(picture)), 0, 1)
			continue
		}
		if first {
			sink.Reached(ingest.StageFirstPacket)
			sink.Stream(ingest.Stream{Codec: ingest.MJPEG, Transport: ingest.TransportTCP, Live: true})
		}
		now := s.cfg.Now()
		sink.Packets(1, uint64(len(picture)), 0, 0)
		sink.AccessUnit(ingest.AccessUnit{Data: picture, Ticks: ingest.TicksOf(now.Mono), Received: now, Keyframe: true})
	}
}

// ask sends the request, and again as the camera wants its credentials.
func (s *Source) ask(ctx context.Context, transport *http.Transport) (*http.Response, error) {
	c := s.cfg.Camera
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.Fill(c.Address, c.Username, c.Password), nil)
	if err != nil {
		return nil, errors.New("the address cannot be read")
	}
	req.Header.Set("User-Agent", "vedette")
	client := &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > 3 || r.URL.Host != via[0].URL.Host { // credentials are for this camera alone
			return errors.New("the camera sends us elsewhere")
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || c.Username == "" {
		return resp, err
	}
	_ = resp.Body.Close()
	if strings.Contains(strings.ToLower(strings.Join(resp.Header.Values("WWW-Authenticate"), " ")), "digest") {
		client.Transport = &digest.Transport{Username: c.Username, Password: c.Password, Transport: transport}
	} else {
		req.SetBasicAuth(c.Username, c.Password)
	}
	return client.Do(req)
}

// fault is typed and names the camera's host; an *url.Error would repeat the whole address.
func (s *Source) fault(stage ingest.Stage, reason ingest.Reason, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	host := ""
	if u, perr := url.Parse(s.cfg.Camera.Address); perr == nil {
		host = u.Host
	}
	return &ingest.Error{Reason: reason, Stage: stage, Err: fmt.Errorf("read the pictures of %s: %w", host, err)}
}

func reasonOf(err error) ingest.Reason {
	if rtsp.IsCertificate(err) {
		return ingest.ReasonTLSCert
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return ingest.ReasonTimeout
	}
	return ingest.ReasonUnreachable
}

func reasonOfStatus(code int) ingest.Reason {
	switch code {
	case http.StatusOK:
		return 0
	case http.StatusUnauthorized, http.StatusForbidden:
		return ingest.ReasonAuthFailed
	case http.StatusNotFound:
		return ingest.ReasonNotFound
	case http.StatusServiceUnavailable:
		return ingest.ReasonCameraBusy
	default:
		return ingest.ReasonProtocol
	}
}
