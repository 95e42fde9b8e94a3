// Package jpegs reads a camera that sends JPEG after JPEG over HTTP: as the parts of one answer (multipart/x-mixed-replace),
// one behind the other, or one for each request.
package jpegs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/icholy/digest"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/rtsp"
	"github.com/vedette/vedette/internal/address"
	"github.com/vedette/vedette/internal/pause"
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

// pace is the least time from one question to the next where a camera gives one picture for each.
const pace = 200 * time.Millisecond

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
	d, err := s.dialogue(ctx, transport)
	if err != nil {
		return s.fault(ingest.StageDial, ingest.ReasonInvalidConfig, err)
	}
	p := pictures{sink: sink, now: s.cfg.Now}
	for {
		asked := s.cfg.Now().Mono
		single, err := s.answer(d, &p)
		if !single {
			return err
		}
		if !pause.For(ctx, asked+pace-s.cfg.Now().Mono) {
			return nil
		}
	}
}

// answer reads one answer to its end; single: it is a picture's, and the next one is to be asked for.
func (s *Source) answer(d *dialogue, p *pictures) (single bool, err error) {
	resp, err := d.ask()
	if err != nil {
		return false, s.fault(ingest.StageDial, reasonOf(err), err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is lost with it
	p.reached(ingest.StageDial)
	if reason := reasonOfStatus(resp.StatusCode); reason != 0 {
		return false, s.fault(ingest.StageDescribe, reason, fmt.Errorf("the camera answered %s", resp.Status))
	}
	// What the answer says of its parts, the boundary above all, is wrong so often that nothing but the pictures is believed.
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	if reason := reasonOfKind(kind); reason != 0 {
		return false, s.fault(ingest.StageDescribe, reason, fmt.Errorf("the camera answers with %q, and not with JPEGs: look up its address for MJPEG or for snapshots, or give its rtsp:// address", kind))
	}
	p.reached(ingest.StageDescribe)
	p.reached(ingest.StageSetup)
	err = p.read(resp.Body)
	switch {
	case errors.Is(err, errTooLarge):
		return false, s.fault(ingest.StagePackets, ingest.ReasonProtocol, err)
	case strings.HasPrefix(kind, "image/") && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return true, nil
	case errors.Is(err, io.EOF):
		err = errors.New("the camera ended its answer")
	}
	return false, s.fault(ingest.StagePackets, ingest.ReasonDisconnected, err)
}

// reasonOfKind refuses what cannot be JPEGs by its media type; 0: it may be.
func reasonOfKind(kind string) ingest.Reason {
	switch kind {
	case "", "image/jpeg", "image/jpg", "image/pjpeg", "video/x-motion-jpeg", "video/x-jpeg", "video/jpeg", "video/mjpeg", "video/x-mjpeg", "application/octet-stream":
		return 0
	case "text/html", "text/plain", "application/json", "application/xml", "text/xml":
		return ingest.ReasonNotFound // a page
	}
	if strings.HasPrefix(kind, "multipart/") {
		return 0
	}
	return ingest.ReasonCodecUnsupported
}

// pictures hands on what comes.
type pictures struct {
	sink  ingest.Sink
	now   func() ingest.Instant
	stage ingest.Stage // reached
}

func (p *pictures) reached(s ingest.Stage) {
	if s > p.stage {
		p.stage = s
		p.sink.Reached(s)
	}
}

// read hands on the pictures of one answer and returns why there are no more.
func (p *pictures) read(body io.Reader) error {
	s := scanner{r: bufio.NewReaderSize(body, 64<<10), limit: maxPicture}
	for {
		picture, broken, err := s.next()
		if broken > 0 {
			p.sink.Packets(broken, 0, 0, broken)
		}
		if err != nil {
			return err
		}
		if p.stage < ingest.StageFirstPacket {
			p.reached(ingest.StageFirstPacket)
			p.sink.Stream(ingest.Stream{Codec: ingest.MJPEG, Transport: ingest.TransportTCP, Live: true})
		}
		now := p.now()
		p.sink.Packets(1, uint64(len(picture)), 0, 0)
		p.sink.AccessUnit(ingest.AccessUnit{Data: picture, Ticks: ingest.TicksOf(now.Mono), Received: now, Keyframe: true})
	}
}

// dialogue asks for the same again and again.
type dialogue struct {
	cfg       Config
	transport *http.Transport
	client    *http.Client
	request   *http.Request
	known     bool // how the camera wants its credentials
}

func (s *Source) dialogue(ctx context.Context, transport *http.Transport) (*dialogue, error) {
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
	return &dialogue{cfg: s.cfg, transport: transport, client: client, request: req}, nil
}

// ask sends the request, and again as the camera wants its credentials.
func (d *dialogue) ask() (*http.Response, error) {
	c := d.cfg.Camera
	resp, err := d.client.Do(d.request)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || c.Username == "" || d.known {
		return resp, err
	}
	_ = resp.Body.Close()
	d.known = true
	if strings.Contains(strings.ToLower(strings.Join(resp.Header.Values("WWW-Authenticate"), " ")), "digest") {
		d.client.Transport = &digest.Transport{Username: c.Username, Password: c.Password, Transport: d.transport}
	} else {
		d.request.SetBasicAuth(c.Username, c.Password)
	}
	return d.client.Do(d.request)
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
