package rtsptest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
)

// Config of a camera.
type Config struct {
	// Clip to loop. Required.
	Clip *Clip
	// Format announces the stream as another than the clip's; Packet then makes its packets.
	Format format.Format
	// Username and Password asked for, when either is set.
	Username, Password string
	// Path of the stream; empty: "stream".
	Path string
	// Address to listen on; empty: a free port of the loopback.
	Address string
	// TLS makes it an rtsps camera.
	TLS *tls.Config
	// UDP lets clients choose UDP.
	UDP bool
	// Multicast lets clients choose UDP to a group. The camera then listens on the box's own address (MulticastHost).
	Multicast bool
	// NoTCP refuses RTP over TCP, NoUDP unicast over UDP.
	NoTCP, NoUDP bool
	// NoReports leaves out RTCP sender reports.
	NoReports bool
	// Speed of time; 0: 1. Pictures are sent that much faster than their rate, with timestamps to match
	// their rate.
	Speed float64
	// Packet, when set, may change or drop (nil) packets, or send others along with them, in the sending goroutine.
	Packet func(*rtp.Packet) []*rtp.Packet
	// Request, when set, may answer a request in place of the camera (nil: the camera answers). It may block,
	// until done is closed.
	Request func(method base.Method, done <-chan struct{}) *base.Response
	// Ask, when set, may answer DESCRIBE, SETUP and PLAY in place of the camera by what stands in them (nil: the camera answers).
	Ask func(*base.Request) *base.Response
	// NTP shifts the camera's clock in its sender reports; nil: the box's clock.
	NTP func(time.Time) time.Time
	// Conn, when set, stands between the camera and each client's connection, Datagrams between it and its UDP ports.
	Conn      func(net.Conn) net.Conn
	Datagrams func(net.PacketConn) net.PacketConn
	// ReportsWhilePaused: sender reports go on when Pause stops the pictures.
	ReportsWhilePaused bool
}

// Camera serves a clip until the test ends or Close.
type Camera struct {
	cfg    Config
	server *gortsplib.Server
	host   string
	stop   context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once
	done   chan struct{}

	mu       sync.Mutex // guards everything below
	stream   *gortsplib.ServerStream
	sessions map[*gortsplib.ServerSession]*gortsplib.ServerConn
	opened   int
	most     int // sessions at once
	paused   bool
	other    bool // plays Clip.Other from its next keyframe on
	requests map[base.Method]int
}

// Start begins to serve.
func Start(tb testing.TB, cfg Config) *Camera {
	tb.Helper()
	cfg.Path = or(cfg.Path, "stream")
	host := "127.0.0.1"
	if cfg.Multicast {
		host = MulticastHost(tb)
	}
	cfg.Address = or(cfg.Address, host+":0")
	cfg.Speed = or(cfg.Speed, 1)
	c := &Camera{
		cfg: cfg, done: make(chan struct{}), sessions: map[*gortsplib.ServerSession]*gortsplib.ServerConn{}, requests: map[base.Method]int{},
	}
	var listener net.Listener
	c.server = &gortsplib.Server{
		Handler: (*handler)(c), RTSPAddress: cfg.Address, TLSConfig: cfg.TLS, DisableRTCPSenderReports: cfg.NoReports,
		Listen: func(network, address string) (net.Listener, error) {
			var err error
			listener, err = net.Listen(network, address) //nolint:noctx // the library's signature
			if err == nil && cfg.Conn != nil {
				return &wrapped{listener, cfg.Conn}, nil
			}
			return listener, err
		},
		ListenPacket: func(network, address string) (net.PacketConn, error) {
			p, err := net.ListenPacket(network, address) //nolint:noctx // the library's signature
			if err == nil && cfg.Datagrams != nil {
				return cfg.Datagrams(p), nil
			}
			return p, err
		},
		WriteTimeout: 2 * time.Second, WriteQueueSize: 1024,
	}
	if cfg.UDP {
		c.server.UDPRTPAddress, c.server.UDPRTCPAddress = udpPair(tb, host)
	}
	if cfg.Multicast {
		// A group of the range for sites (RFC 2365) and ports that nobody else has now.
		rtpAddress, _ := udpPair(tb, host)
		c.server.MulticastRTPPort, _ = strconv.Atoi(rtpAddress[strings.LastIndexByte(rtpAddress, ':')+1:])
		c.server.MulticastIPRange, c.server.MulticastRTCPPort = "239.255.77.0/24", c.server.MulticastRTPPort+1
	}
	if err := c.server.Start(); err != nil {
		tb.Fatalf("start camera: %v", err)
	}
	c.host = listener.Addr().String()
	announced := cfg.Format
	if announced == nil {
		announced = cfg.Clip.format()
	}
	c.stream = &gortsplib.ServerStream{Server: c.server, Desc: &description.Session{Medias: []*description.Media{{
		Type: description.MediaTypeVideo, Formats: []format.Format{announced},
	}}}}
	if err := c.stream.Initialize(); err != nil {
		tb.Fatalf("start camera: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.wg.Go(func() { c.play(ctx) })
	tb.Cleanup(c.Close)
	return c
}

// udpPair finds two ports side by side, the first even.
func udpPair(tb testing.TB, host string) (rtpAddress, rtcpAddress string) {
	for range 100 {
		a, err := net.ListenPacket("udp", host+":0") //nolint:noctx // closed below
		if err != nil {
			tb.Fatal(err)
		}
		port := a.LocalAddr().(*net.UDPAddr).Port
		_ = a.Close()
		if port%2 == 1 {
			continue
		}
		b, err := net.ListenPacket("udp", fmt.Sprintf("%s:%d", host, port+1)) //nolint:noctx // closed below
		if err != nil {
			continue
		}
		_ = b.Close()
		return fmt.Sprintf("%s:%d", host, port), fmt.Sprintf("%s:%d", host, port+1)
	}
	tb.Fatal("no two free UDP ports side by side")
	return "", ""
}

// Address of the stream.
func (c *Camera) Address() string {
	scheme := "rtsp"
	if c.cfg.TLS != nil {
		scheme = "rtsps"
	}
	return fmt.Sprintf("%s://%s/%s", scheme, c.Host(), c.cfg.Path)
}

// Host is address and port.
func (c *Camera) Host() string { return c.host }

// MulticastHost is an address of this box on a network that carries multicast; a test that needs one is skipped where
// there is none.
func MulticastHost(tb testing.TB) string {
	tb.Helper()
	interfaces, err := net.Interfaces()
	if err != nil {
		tb.Fatal(err)
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagMulticast == 0 || i.Flags&net.FlagUp == 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
				return n.IP.String()
			}
		}
	}
	tb.Skip("no network of this box carries multicast")
	return ""
}

// Close ends the camera as if it had lost its power, and waits.
func (c *Camera) Close() {
	c.once.Do(func() {
		close(c.done)
		c.stop()
		c.wg.Wait()
		c.stream.Close()
		c.server.Close()
	})
}

// Pause stops (or starts again) the pictures; the connections stay.
func (c *Camera) Pause(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = on
}

// Switch plays the other clip (Clip.Other), or the first again, from its next keyframe on.
func (c *Camera) Switch(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.other = on
}

// Kick ends every client's connection.
func (c *Camera) Kick() {
	c.mu.Lock()
	var conns []*gortsplib.ServerConn
	for session, conn := range c.sessions {
		conns = append(conns, conn)
		delete(c.sessions, session) // the server tells of its end a moment later
	}
	c.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
	}
}

// Sessions returns how many sessions are open, how many there were in all, and most at once.
func (c *Camera) Sessions() (open, all, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions), c.opened, c.most
}

// Requests returns how many requests of a method came.
func (c *Camera) Requests(m base.Method) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[m]
}

func (c *Clip) format() format.Format {
	switch c.Codec {
	case "h265":
		return &format.H265{PayloadTyp: 96, VPS: c.Sets[0], SPS: c.Sets[1], PPS: c.Sets[2]}
	case "mjpeg":
		return &format.MJPEG{}
	case "av1":
		return &format.AV1{PayloadTyp: 96}
	default:
		return &format.H264{PayloadTyp: 96, PacketizationMode: 1, SPS: c.Sets[0], PPS: c.Sets[1]}
	}
}

// encoder makes packets of units.
func (c *Clip) encoder() (func([][]byte) ([]*rtp.Packet, error), error) {
	switch f := c.format().(type) {
	case *format.H264:
		e, err := f.CreateEncoder()
		if err != nil {
			return nil, err
		}
		return e.Encode, nil
	case *format.H265:
		e, err := f.CreateEncoder()
		if err != nil {
			return nil, err
		}
		return e.Encode, nil
	case *format.AV1:
		e, err := f.CreateEncoder()
		if err != nil {
			return nil, err
		}
		return e.Encode, nil
	case *format.MJPEG:
		e, err := f.CreateEncoder()
		if err != nil {
			return nil, err
		}
		return func(units [][]byte) ([]*rtp.Packet, error) { return e.Encode(units[0]) }, nil
	default:
		return nil, fmt.Errorf("no encoder for %T", f)
	}
}

// play sends the clip over and over.
func (c *Camera) play(ctx context.Context) {
	encode, err := c.cfg.Clip.encoder()
	if err != nil {
		panic(err) // the clip is the test's own
	}
	media := c.stream.Desc.Medias[0]
	start, clip := time.Now(), c.cfg.Clip
	tick := time.Duration(float64(time.Second) / float64(c.cfg.Clip.Rate) / c.cfg.Speed)
	for n := 0; ; n++ {
		t := time.NewTimer(time.Until(start.Add(time.Duration(n) * tick)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		c.mu.Lock()
		paused, other := c.paused, c.other
		c.mu.Unlock()
		if paused {
			if c.cfg.ReportsWhilePaused {
				_ = c.stream.WritePacketRTCP(media, &rtcp.SenderReport{NTPTime: uint64(n)})
			}
			continue
		}
		loop, i := n/len(clip.Units), n%len(clip.Units)
		if clip.Units[i].Key {
			clip = c.cfg.Clip
			if other {
				clip = clip.Other
			}
		}
		u := clip.Units[i]
		packets, err := encode(u.NALUs)
		if err != nil {
			panic(err)
		}
		now := time.Now()
		if c.cfg.NTP != nil {
			now = c.cfg.NTP(now)
		}
		for _, p := range packets {
			p.Timestamp = uint32(1000 + int64(loop)*c.cfg.Clip.Duration() + u.PTS)
			out := []*rtp.Packet{p}
			if c.cfg.Packet != nil {
				out = c.cfg.Packet(p)
			}
			for _, p := range out {
				// A client that has gone is no fault of the camera's.
				_ = c.stream.WritePacketRTPWithNTP(media, p, now)
			}
		}
	}
}

// wrapped is a listener whose connections something stands between.
type wrapped struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

// Accept waits for a client.
func (w *wrapped) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return w.wrap(c), nil
}

// handler answers clients.
type handler Camera

// OnRequest counts the sessions that are over: the server tells of their end a moment after it has answered.
func (h *handler) OnRequest(conn *gortsplib.ServerConn, r *base.Request) {
	if r.Method != base.Teardown {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests[r.Method]++
	for session, of := range h.sessions {
		if of == conn {
			delete(h.sessions, session)
		}
	}
}

func (h *handler) intercept(m base.Method, r *base.Request) *base.Response {
	h.mu.Lock()
	h.requests[m]++
	h.mu.Unlock()
	if h.cfg.Ask != nil {
		return h.cfg.Ask(r)
	}
	if h.cfg.Request == nil {
		return nil
	}
	return h.cfg.Request(m, h.done)
}

func (h *handler) allowed(conn *gortsplib.ServerConn, r *base.Request) bool {
	return (h.cfg.Username == "" && h.cfg.Password == "") || conn.VerifyCredentials(r, h.cfg.Username, h.cfg.Password)
}

// OnSessionOpen counts.
func (h *handler) OnSessionOpen(ctx *gortsplib.ServerHandlerOnSessionOpenCtx) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions[ctx.Session] = ctx.Conn
	h.opened++
	h.most = max(h.most, len(h.sessions))
}

// OnSessionClose counts.
func (h *handler) OnSessionClose(ctx *gortsplib.ServerHandlerOnSessionCloseCtx) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, ctx.Session)
}

// OnDescribe answers DESCRIBE.
func (h *handler) OnDescribe(ctx *gortsplib.ServerHandlerOnDescribeCtx) (*base.Response, *gortsplib.ServerStream, error) {
	if r := h.intercept(base.Describe, ctx.Request); r != nil {
		return r, nil, nil
	}
	if !h.allowed(ctx.Conn, ctx.Request) {
		return &base.Response{StatusCode: base.StatusUnauthorized}, nil, liberrors.ErrServerAuth{}
	}
	if ctx.Path != "/"+h.cfg.Path && ctx.Path != h.cfg.Path {
		return &base.Response{StatusCode: base.StatusNotFound}, nil, nil
	}
	return &base.Response{StatusCode: base.StatusOK}, h.stream, nil
}

// OnSetup answers SETUP.
func (h *handler) OnSetup(ctx *gortsplib.ServerHandlerOnSetupCtx) (*base.Response, *gortsplib.ServerStream, error) {
	if r := h.intercept(base.Setup, ctx.Request); r != nil {
		return r, nil, nil
	}
	if !h.allowed(ctx.Conn, ctx.Request) {
		return &base.Response{StatusCode: base.StatusUnauthorized}, nil, liberrors.ErrServerAuth{}
	}
	if p := ctx.Transport.Protocol; h.cfg.NoTCP && p == gortsplib.ProtocolTCP || h.cfg.NoUDP && p == gortsplib.ProtocolUDP {
		return &base.Response{StatusCode: base.StatusUnsupportedTransport}, nil, nil
	}
	return &base.Response{StatusCode: base.StatusOK}, h.stream, nil
}

// OnPlay answers PLAY.
func (h *handler) OnPlay(ctx *gortsplib.ServerHandlerOnPlayCtx) (*base.Response, error) {
	if r := h.intercept(base.Play, ctx.Request); r != nil {
		return r, nil
	}
	return &base.Response{StatusCode: base.StatusOK}, nil
}
