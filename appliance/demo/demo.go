// Package demo is the camera that Vedette shows before the first real one is
// connected: a rendered street with known truth, served over RTSP by the
// appliance itself.
//
// The clip loops without a seam, and RTP time runs on across the loops. Frame
// k since the start (k mod scene.Frames within the clip) was captured at
// Started plus k frame intervals; the sender reports state that time, one each
// second and one before the first packet, so a capture time taken from them
// leads back to the frame by FrameAt.
package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"
	"github.com/pion/rtcp"

	"github.com/vedette/vedette/appliance/demo/scene"
)

// Seed is the scene that the embedded clip shows.
const Seed = 7

//go:embed clip/street.h264
var street []byte

// Config says what to serve and where. The zero value serves the embedded
// clip at its own rate on a free port of the loopback.
type Config struct {
	// Address to listen on; empty: 127.0.0.1 and a free port.
	Address string
	// Path of the stream; empty: "street".
	Path string
	// User and Password that clients must give; both empty: none.
	User, Password string
	// Clip is an H.264 Annex B stream without B-frames, one slice or more a
	// picture; nil: the embedded street. It is not copied and must not change.
	Clip []byte
	// FrameRate of Clip in frames a second; 0: scene.Rate.
	FrameRate float64
	// Log gets what clients do, at debug level; nil: nothing.
	Log *slog.Logger
}

// Camera serves a clip over RTSP, by TCP and by UDP, to any number of clients.
type Camera struct {
	cfg      Config
	ready    chan struct{}
	address  string
	started  atomic.Pointer[time.Time]
	server   *gortsplib.Server
	stream   *gortsplib.ServerStream
	media    *description.Media
	format   *format.H264
	pictures []picture
}

// New checks cfg; nothing listens before Run.
func New(cfg Config) (*Camera, error) {
	if cfg.Address == "" {
		cfg.Address = "127.0.0.1:0"
	}
	if cfg.Path == "" {
		cfg.Path = "street"
	}
	if cfg.Clip == nil {
		cfg.Clip = street
	}
	if cfg.FrameRate == 0 {
		cfg.FrameRate = scene.Rate
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Password != "" && cfg.User == "" {
		return nil, errors.New("demo camera: a password without a user: set both or neither")
	}
	if cfg.FrameRate < 0 {
		return nil, fmt.Errorf("demo camera: frame rate %g is negative", cfg.FrameRate)
	}
	pictures, sps, pps, err := split(cfg.Clip)
	if err != nil {
		return nil, fmt.Errorf("demo camera: clip: %w", err)
	}
	f := &format.H264{PayloadTyp: 96, PacketizationMode: 1, SPS: sps, PPS: pps}
	return &Camera{
		cfg:      cfg,
		ready:    make(chan struct{}),
		media:    &description.Media{Type: description.MediaTypeVideo, Formats: []format.Format{f}},
		format:   f,
		pictures: pictures,
	}, nil
}

// Run listens and plays until ctx ends, and then returns nil. A Camera runs
// once.
func (c *Camera) Run(ctx context.Context) error {
	c.server = &gortsplib.Server{
		Handler:                  &handler{c},
		RTSPAddress:              c.cfg.Address,
		DisableRTCPSenderReports: true, // play sends its own, more often
	}
	host, _, err := net.SplitHostPort(c.cfg.Address)
	if err != nil {
		return fmt.Errorf("demo camera: address %q: %w", c.cfg.Address, err)
	}
	if err := offerUDP(ctx, c.server, host); err != nil {
		return fmt.Errorf("demo camera: %w", err)
	}
	if err := c.server.Start(); err != nil {
		return fmt.Errorf("demo camera: listen on %s: %w", c.cfg.Address, err)
	}
	defer c.server.Close()
	c.stream = &gortsplib.ServerStream{
		Server: c.server,
		Desc:   &description.Session{Title: "Vedette demo", Medias: []*description.Media{c.media}},
	}
	if err := c.stream.Initialize(); err != nil {
		return fmt.Errorf("demo camera: %w", err)
	}
	defer c.stream.Close()
	c.address = c.server.NetListener().Addr().String()
	now := time.Now()
	c.started.Store(&now)
	close(c.ready)
	return c.play(ctx, now)
}

// Ready is closed once clients can connect.
func (c *Camera) Ready() <-chan struct{} { return c.ready }

// Address is the host and port that clients connect to. It blocks until Ready.
func (c *Camera) Address() string {
	<-c.ready
	return c.address
}

// URL is the stream's RTSP address without credentials. It blocks until Ready.
func (c *Camera) URL() string {
	u := url.URL{Scheme: "rtsp", Host: c.Address(), Path: "/" + c.cfg.Path}
	return u.String()
}

// Started is the capture time of the first frame. It blocks until Ready.
func (c *Camera) Started() time.Time {
	<-c.ready
	return *c.started.Load()
}

// FrameAt is the frame captured nearest to t, counted from the start over all
// loops; ok is false before the start.
func (c *Camera) FrameAt(t time.Time) (k int64, ok bool) {
	p := c.started.Load()
	if p == nil {
		return 0, false
	}
	// Wall time on both sides: t comes from a sender report.
	d := t.Round(0).Sub(p.Round(0)).Seconds() * c.cfg.FrameRate
	if d < -0.5 {
		return 0, false
	}
	return int64(d + 0.5), true
}

// since is when frame k is captured, counted from the start.
func (c *Camera) since(k int64) time.Duration {
	return time.Duration(float64(k) / c.cfg.FrameRate * float64(time.Second))
}

// ticks is frame k's RTP time.
func (c *Camera) ticks(k int64) uint32 {
	const first = 0xFFF00000 // rolls over within the first minute, as any stream does some day
	return uint32(first + uint64(float64(k)*90000/c.cfg.FrameRate))
}

func (c *Camera) play(ctx context.Context, start time.Time) error {
	enc, err := c.format.CreateEncoder()
	if err != nil {
		return fmt.Errorf("demo camera: %w", err)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	every := max(int64(c.cfg.FrameRate), 1)
	for k := int64(0); ; k++ {
		// A process that was stopped for long goes on with what is due now.
		if late := time.Since(start) - c.since(k); late > 2*time.Second {
			k += int64(late.Seconds() * c.cfg.FrameRate)
		}
		timer.Reset(time.Until(start.Add(c.since(k))))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if k%every == 0 {
			if err := c.report(start, k); err != nil {
				return fmt.Errorf("demo camera: sender report: %w", err)
			}
		}
		packets, err := enc.Encode(c.pictures[k%int64(len(c.pictures))].nalus)
		if err != nil {
			return fmt.Errorf("demo camera: frame %d: %w", k, err)
		}
		for _, p := range packets {
			p.Timestamp = c.ticks(k)
			if err := c.stream.WritePacketRTPWithNTP(c.media, p, start.Add(c.since(k))); err != nil {
				return fmt.Errorf("demo camera: send: %w", err)
			}
		}
	}
}

// report tells all clients which RTP time is which wall time.
func (c *Camera) report(start time.Time, k int64) error {
	stats := c.stream.Stats().Medias[c.media].Formats[c.format]
	return c.stream.WritePacketRTCP(c.media, &rtcp.SenderReport{
		SSRC:        stats.LocalSSRC,
		NTPTime:     ntp(start.Round(0).Add(c.since(k))),
		RTPTime:     c.ticks(k),
		PacketCount: uint32(stats.OutboundRTPPackets),
	})
}

// ntp is seconds since 1900 in 32.32 fixed point.
func ntp(t time.Time) uint64 {
	const epoch = 2208988800
	sec := uint64(t.Unix() + epoch)
	frac := (uint64(t.Nanosecond())<<32 + 5e8) / 1e9
	return sec<<32 + frac
}

// offerUDP binds a pair of ports for RTP and RTCP and lends them to the server.
func offerUDP(ctx context.Context, s *gortsplib.Server, host string) error {
	var lc net.ListenConfig
	var last error
	for range 64 {
		a, err := lc.ListenPacket(ctx, "udp", net.JoinHostPort(host, "0"))
		if err != nil {
			return fmt.Errorf("listen for UDP on %s: %w", host, err)
		}
		port := a.LocalAddr().(*net.UDPAddr).Port
		if port%2 == 1 {
			last = errors.Join(errors.New("no even port came"), a.Close())
			continue
		}
		b, err := lc.ListenPacket(ctx, "udp", net.JoinHostPort(host, fmt.Sprint(port+1)))
		if err != nil {
			last = errors.Join(err, a.Close())
			continue
		}
		pair := []net.PacketConn{a, b}
		s.UDPRTPAddress = a.LocalAddr().String()
		s.UDPRTCPAddress = b.LocalAddr().String()
		s.ListenPacket = func(_, _ string) (net.PacketConn, error) {
			p := pair[0]
			pair = pair[1:]
			return p, nil
		}
		return nil
	}
	return fmt.Errorf("no free pair of UDP ports on %s: %w", host, last)
}

// handler answers RTSP requests.
type handler struct{ c *Camera }

func (h *handler) OnDescribe(ctx *gortsplib.ServerHandlerOnDescribeCtx) (*base.Response, *gortsplib.ServerStream, error) {
	res, stream, err := h.admit(ctx.Conn, ctx.Request, ctx.Path)
	h.c.cfg.Log.Debug("described", slog.Int("status", int(res.StatusCode)))
	return res, stream, err
}

func (h *handler) OnSetup(ctx *gortsplib.ServerHandlerOnSetupCtx) (*base.Response, *gortsplib.ServerStream, error) {
	return h.admit(ctx.Conn, ctx.Request, ctx.Path)
}

func (h *handler) OnPlay(_ *gortsplib.ServerHandlerOnPlayCtx) (*base.Response, error) {
	return &base.Response{StatusCode: base.StatusOK}, nil
}

func (h *handler) admit(conn *gortsplib.ServerConn, req *base.Request, path string) (*base.Response, *gortsplib.ServerStream, error) {
	<-h.c.ready
	cfg := &h.c.cfg
	if cfg.User != "" && !conn.VerifyCredentials(req, cfg.User, cfg.Password) {
		return &base.Response{StatusCode: base.StatusUnauthorized}, nil, liberrors.ErrServerAuth{}
	}
	if path != "/"+cfg.Path {
		return &base.Response{StatusCode: base.StatusNotFound}, nil, nil
	}
	return &base.Response{StatusCode: base.StatusOK}, h.c.stream, nil
}
