// Package rtsp reads the video of an RTSP camera and hands it on as access units.
package rtsp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/headers"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"
	"github.com/pion/rtcp"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/packetdump"
	"github.com/vedette/vedette/internal/address"
	"github.com/vedette/vedette/internal/pause"
)

// Config of one session.
type Config struct {
	Camera ingest.Camera
	// DialTimeout bounds the TCP and TLS handshakes; 0: 5 s.
	DialTimeout time.Duration
	// AnswerTimeout bounds sending a request, and together with 10 s, whichever is longer, each answer (OPTIONS, DESCRIBE,
	// SETUP, PLAY); who runs the session has the finer deadlines. 0: 5 s.
	AnswerTimeout time.Duration
	// Now reads both clocks; nil: the box's.
	Now func() ingest.Instant
	// Tap is shown every packet and every message, without credentials; nil: nothing is.
	Tap Tap
	// UserAgent names this program to the camera; empty: "vedette".
	UserAgent string
}

// Tap is where packets and messages pass.
type Tap interface {
	// Active reports whether anybody looks; Packet is not called otherwise.
	Active() bool
	// Packet never waits and keeps nothing of the payload.
	Packet(kind packetdump.Kind, at time.Time, payload []byte)
}

// Source is one session with one camera.
type Source struct {
	cfg Config
}

// New checks nothing and dials nothing; the camera's settings have been checked (ingest.Camera.Check).
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
	if cfg.UserAgent == "" {
		cfg.UserAgent = "vedette"
	}
	if cfg.Tap == nil {
		cfg.Tap = (*packetdump.Tap)(nil)
	}
	return &Source{cfg: cfg}
}

// Run holds one session until ctx ends (nil) or the session fails (an *ingest.Error), and tears it down.
// The sink's methods are called by the library's reading goroutine, so they must return at once.
func (s *Source) Run(ctx context.Context, sink ingest.Sink) error {
	transports := []ingest.Transport{s.cfg.Camera.Transport}
	if transports[0] == ingest.TransportAuto {
		transports = []ingest.Transport{ingest.TransportTCP, ingest.TransportUDP, ingest.TransportMulticast}
	}
	var refused error // the first refusal says most
	for _, t := range transports {
		cfg := s.cfg
		cfg.Camera.Transport = t
		err := s.once(ctx, sink, cfg)
		// A server may still be clearing away what the refused attempt began, and has no session meanwhile: GStreamer's
		// answers 503. The waits together are shorter than the one for an answer.
		for wait := s.cfg.AnswerTimeout / 20; refused != nil && err != nil && ingest.AsError(err).Reason == ingest.ReasonCameraBusy && wait <= s.cfg.AnswerTimeout/5; wait *= 2 {
			if !pause.For(ctx, wait) {
				return nil
			}
			err = s.once(ctx, sink, cfg)
		}
		if err == nil || ingest.AsError(err).Reason != ingest.ReasonTransportRefused {
			return err
		}
		if refused == nil {
			refused = err
		}
	}
	return refused
}

func (s *Source) once(ctx context.Context, sink ingest.Sink, cfg Config) error {
	r := &session{cfg: cfg, sink: sink, login: login{user: cfg.Camera.Username, password: cfg.Camera.Password}}
	err := r.run(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // asked to stop
	}
	return typed(err, r.stage, cfg.Camera)
}

// session is what one Run holds.
type session struct {
	cfg    Config
	sink   ingest.Sink
	stage  ingest.Stage
	client *gortsplib.Client
	login  login
	camera net.IP        // its address; only the library dials, and asks
	asked  *base.Request // last
	// redirects so far; only the library's answers to Describe count them.
	redirects int
	// said is what the description says of video besides; only the library's answers to Describe come with it.
	said map[uint8]said
	// settingUp: a SETUP has been sent.
	settingUp atomic.Bool
	// oversize counts packets that were too large for UDP.
	oversize atomic.Int32
	// callbacks keeps the sink to one caller: with UDP, RTP and RTCP have a goroutine each.
	callbacks sync.Mutex
}

func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	u, err := base.ParseURL(address.Fill(s.cfg.Camera.Address, s.cfg.Camera.Username, s.cfg.Camera.Password))
	if err != nil {
		return &ingest.Error{Reason: ingest.ReasonInvalidConfig, Err: errors.New("address cannot be read")}
	}
	if s.cfg.Camera.Username != "" || s.cfg.Camera.Password != "" {
		u.User = url.UserPassword(s.cfg.Camera.Username, s.cfg.Camera.Password)
	}
	trust, err := Trust(s.cfg.Camera)
	if err != nil {
		return err
	}
	s.client = &gortsplib.Client{
		Scheme: u.Scheme,
		Host:   u.Host,
		// The library measures silence in whole seconds and takes this for answers and for media alike; the
		// camera's own timers are finer and come first.
		ReadTimeout: max(s.cfg.AnswerTimeout, 10*time.Second), WriteTimeout: s.cfg.AnswerTimeout,
		Protocol:    protocolOf(s.cfg.Camera.Transport),
		UserAgent:   s.cfg.UserAgent,
		DialContext: s.dial,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return s.dialTLS(ctx, network, addr, trust)
		},
		TLSConfig: trust,
		OnPacketsLost: func(n uint64) {
			if n < 1<<15 { // otherwise one has come late, or again
				s.locked(func() { s.sink.Packets(0, 0, n, 0) })
			}
		},
		OnDecodeError: func(err error) {
			s.locked(func() { s.sink.Packets(0, 0, 0, 1) })
			if errors.Is(err, liberrors.ErrClientRTPPacketTooBigUDP{}) && s.oversize.Add(1) == maxOversize {
				cancel(errOversize)
			}
		},
		AnyPortEnable: true, // some do not say theirs, or another
		OnRequest: func(r *base.Request) {
			s.asked = r
			s.login.answer(r)
			if s.cfg.Tap.Active() {
				s.show(packetdump.Request, r)
			}
		},
		OnResponse: func(r *base.Response) {
			if s.cfg.Tap.Active() {
				s.show(packetdump.Answer, r)
			}
			s.login.question(r)
			lenient(s.asked, r, s.camera)
			if len(r.Header["Location"]) > 0 && r.StatusCode >= base.StatusMovedPermanently && r.StatusCode <= base.StatusUseProxy {
				// The library follows without end.
				if s.redirects++; s.redirects > maxRedirects {
					delete(r.Header, "Location")
				}
			}
			if len(r.Body) > 0 {
				s.said = read(r.Body)
				r.Body = mend(r.Body)
			}
		},
		// The library logs these by itself when nobody listens.
		OnTransportSwitch: func(error) {},
	}
	if err := s.client.Start(); err != nil {
		return err
	}
	// Close ends whatever the library waits for, sends TEARDOWN and waits for its goroutines.
	// A session whose SETUP was not answered yet cannot be torn down by its name, and would occupy the camera until
	// its own timeout: the answer is waited for, within reason.
	played := make(chan struct{})
	closed := context.AfterFunc(ctx, func() {
		if s.settingUp.Load() {
			t := time.NewTimer(min(s.cfg.AnswerTimeout, time.Second))
			defer t.Stop()
			select {
			case <-played:
			case <-t.C:
			}
		}
		s.client.Close()
	})
	defer func() {
		if closed() {
			s.client.Close()
			return
		}
		_ = s.client.Wait()
	}()
	err = s.play(u)
	close(played)
	if err != nil {
		return err
	}
	s.stage = ingest.StageFirstPacket
	err = s.client.Wait()
	if errors.Is(context.Cause(ctx), errOversize) {
		return &ingest.Error{Reason: ingest.ReasonTransportRefused, Stage: ingest.StagePackets, Err: errOversize}
	}
	return err
}

// maxRedirects are followed to where the stream is.
const maxRedirects = 5

// A keyframe or two of packets that no datagram carries whole; the pictures in between are of no use without them.
const maxOversize = 20

var errOversize = errors.New("the camera's RTP packets are larger than a UDP datagram carries in one piece (1472 bytes): read it over TCP, or lower the packet size in its settings")

var errInTheClear = errors.New("the camera offers no SRTP, without which UDP would carry in the clear what rtsps:// is to protect: read it over TCP")

// play brings the session to where packets flow.
func (s *session) play(u *base.URL) error {
	s.stage = ingest.StageDial
	var desc *description.Session
	if err := s.login.try(func() (err error) {
		desc, _, err = s.client.Describe(u)
		return err
	}); err != nil {
		return err
	}
	s.stage = ingest.StageDescribe
	t, err := pick(desc, s.said)
	if err != nil {
		return err
	}
	t.sink, t.now, t.camera = s.sink, s.cfg.Now, s.cfg.Camera
	s.stage = ingest.StageSetup
	s.sink.Reached(ingest.StageDescribe)
	if s.client.Scheme == "rtsps" && s.cfg.Camera.Transport != ingest.TransportTCP && t.media.Profile != headers.TransportProfileSAVP {
		return &ingest.Error{Reason: ingest.ReasonTransportRefused, Err: errInTheClear}
	}
	s.settingUp.Store(true)
	if err := s.login.try(func() error {
		_, err := s.client.Setup(desc.BaseURL, t.media, 0, 0)
		return err
	}); err != nil {
		return err
	}
	t.stream.Transport = transportOf(s.client)
	s.client.OnPacketRTP(t.media, t.format, func(p *packet) {
		if s.cfg.Tap.Active() {
			s.show(packetdump.RTP, p)
		}
		s.locked(func() { t.packet(p) })
	})
	s.client.OnPacketRTCP(t.media, func(p rtcp.Packet) {
		if s.cfg.Tap.Active() {
			s.show(packetdump.RTCP, p)
		}
		if sr, ok := p.(*rtcp.SenderReport); ok {
			s.locked(func() { t.report(sr) })
		}
	})
	if err := s.login.try(func() error {
		_, err := s.client.Play(nil)
		return err
	}); err != nil {
		return err
	}
	s.sink.Reached(ingest.StageSetup)
	return nil
}

func (s *session) locked(f func()) {
	s.callbacks.Lock()
	defer s.callbacks.Unlock()
	f()
}

func (s *session) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	// A camera that vanished without a word is noticed by the media timers long before TCP notices.
	c, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, network, addr)
	if err == nil {
		return s.connected(c), nil
	}
	return nil, err
}

// connected notes a connection with the camera, and lets it say things its way and end politely.
func (s *session) connected(c net.Conn) net.Conn {
	s.stage = ingest.StageDescribe
	s.sink.Reached(ingest.StageDial)
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		s.camera = a.IP
	}
	return &farewell{Conn: &tidy{Conn: c}, patience: min(s.cfg.AnswerTimeout, time.Second)}
}

func (s *session) dialTLS(ctx context.Context, network, addr string, trust *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	raw, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	cfg := trust.Clone()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		cfg.ServerName = host
	}
	c := tls.Client(raw, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, &handshakeError{err}
	}
	return s.connected(c), nil
}

func protocolOf(t ingest.Transport) *gortsplib.Protocol {
	var p gortsplib.Protocol
	switch t {
	case ingest.TransportUDP:
		p = gortsplib.ProtocolUDP
	case ingest.TransportMulticast:
		p = gortsplib.ProtocolUDPMulticast
	default:
		p = gortsplib.ProtocolTCP
	}
	return &p
}

func transportOf(c *gortsplib.Client) ingest.Transport {
	t := c.Transport()
	if t == nil || t.Session == nil {
		return ingest.TransportAuto
	}
	switch t.Session.Protocol {
	case gortsplib.ProtocolUDP:
		return ingest.TransportUDP
	case gortsplib.ProtocolUDPMulticast:
		return ingest.TransportMulticast
	default:
		return ingest.TransportTCP
	}
}
