package demo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"go.uber.org/goleak"

	"github.com/vedette/vedette/appliance/demo"
	"github.com/vedette/vedette/appliance/demo/scene"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a camera until the test ends.
func start(t *testing.T, cfg demo.Config) *demo.Camera {
	t.Helper()
	c, err := demo.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-c.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("Run ended: %v", err)
	}
	return c
}

// arrival is one access unit as a client got it.
type arrival struct {
	ticks uint32
	nalus [][]byte
}

// watch plays url and sends what arrives until the test ends.
func watch(t *testing.T, url string, proto gortsplib.Protocol) (<-chan arrival, <-chan *rtcp.SenderReport) {
	t.Helper()
	u, err := base.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := &gortsplib.Client{Scheme: u.Scheme, Host: u.Host, Protocol: &proto}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	desc, _, err := c.Describe(u)
	if err != nil {
		t.Fatal(err)
	}
	var f *format.H264
	media := desc.FindFormat(&f)
	if media == nil {
		t.Fatal("no H.264 in the description")
	}
	if f.SPS == nil || f.PPS == nil {
		t.Error("the description has no parameter sets")
	}
	if _, err := c.Setup(desc.BaseURL, media, 0, 0); err != nil {
		t.Fatal(err)
	}
	dec, err := f.CreateDecoder()
	if err != nil {
		t.Fatal(err)
	}
	units := make(chan arrival, 256)
	reports := make(chan *rtcp.SenderReport, 16)
	c.OnPacketRTP(media, f, func(p *rtp.Packet) {
		if nalus, err := dec.Decode(p); err == nil {
			select {
			case units <- arrival{p.Timestamp, nalus}:
			default:
			}
		}
	})
	c.OnPacketRTCP(media, func(p rtcp.Packet) {
		if sr, ok := p.(*rtcp.SenderReport); ok {
			select {
			case reports <- sr:
			default:
			}
		}
	})
	if _, err := c.Play(nil); err != nil {
		t.Fatal(err)
	}
	return units, reports
}

func wallClock(ntp uint64) time.Time {
	const epoch = 2208988800
	return time.Unix(int64(ntp>>32)-epoch, int64((ntp&0xffffffff)*1e9>>32))
}

// A client that knows nothing but RTP times and sender reports finds the frame
// of the clip that every access unit is, over TCP and over UDP.
func TestAClientRecoversTheFrameFromSenderReports(t *testing.T) {
	for name, proto := range map[string]gortsplib.Protocol{"tcp": gortsplib.ProtocolTCP, "udp": gortsplib.ProtocolUDP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clip := marked(40)
			cam := start(t, demo.Config{Clip: clip, FrameRate: 50})
			units, reports := watch(t, cam.URL(), proto)
			var sr *rtcp.SenderReport
			for n := 0; n < 100; {
				select {
				case sr = <-reports:
				case u := <-units:
					if sr == nil {
						continue
					}
					off := time.Duration(int32(u.ticks-sr.RTPTime)) * time.Second / 90000
					k, ok := cam.FrameAt(wallClock(sr.NTPTime).Add(off))
					if !ok {
						t.Fatalf("no frame at RTP time %d", u.ticks)
					}
					if got, want := mark(u.nalus), byte(k%40); got != want {
						t.Fatalf("frame %d by the clock is picture %d of the clip, want %d", k, got, want)
					}
					n++
				}
			}
		})
	}
}

// marked is a clip of n pictures, each a slice that carries its number.
func marked(n int) []byte {
	sps := []byte{0x67, 0x42, 0xc0, 0x0c, 0xd9, 0x01, 0x41, 0xfb, 0x01, 0x10, 0x00, 0x00, 0x03, 0x00, 0x10, 0x00, 0x00, 0x03, 0x01, 0xe0, 0xf1, 0x42, 0xa4, 0x80}
	pps := []byte{0x68, 0xcb, 0x83, 0xcb, 0x20}
	var b []byte
	put := func(n ...byte) { b = append(append(b, 0, 0, 0, 1), n...) }
	for i := range n {
		put(0x09, 0xf0)
		if i == 0 {
			put(sps...)
			put(pps...)
			put(0x65, 0x88, byte(i), 0x80)
			continue
		}
		put(0x41, 0x9a, byte(i), 0x80)
	}
	return b
}

func mark(nalus [][]byte) byte {
	for _, n := range nalus {
		if kind := n[0] & 0x1f; kind == 1 || kind == 5 {
			return n[2]
		}
	}
	return 0xff
}

func TestTheEmbeddedClipIsServed(t *testing.T) {
	t.Parallel()
	cam := start(t, demo.Config{})
	units, _ := watch(t, cam.URL(), gortsplib.ProtocolTCP)
	last := <-units
	for range 20 {
		u := <-units
		if d := u.ticks - last.ticks; d != 90000/scene.Rate {
			t.Errorf("RTP time went on by %d, want %d", d, 90000/scene.Rate)
		}
		last = u
	}
}

func TestAccessIsRefusedWith(t *testing.T) {
	t.Parallel()
	cam := start(t, demo.Config{User: "guard", Password: "a secret"})
	for name, tc := range map[string]struct {
		url  string
		want base.StatusCode
	}{
		"401 to a client without a password": {"rtsp://" + cam.Address() + "/street", base.StatusUnauthorized},
		"401 to a wrong password":            {"rtsp://guard:wrong@" + cam.Address() + "/street", base.StatusUnauthorized},
		"404 to a wrong path":                {"rtsp://guard:a%20secret@" + cam.Address() + "/garden", base.StatusNotFound},
		"nothing when all is right":          {"rtsp://guard:a%20secret@" + cam.Address() + "/street", base.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := base.ParseURL(tc.url)
			if err != nil {
				t.Fatal(err)
			}
			proto := gortsplib.ProtocolTCP
			c := &gortsplib.Client{Scheme: u.Scheme, Host: u.Host, Protocol: &proto}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _, err = c.Describe(u)
			if tc.want == base.StatusOK {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var bad liberrors.ErrClientBadStatusCode
			if !errors.As(err, &bad) || bad.Code != tc.want {
				t.Errorf("got %v, want status %d", err, tc.want)
			}
		})
	}
}

func TestStartingAndStoppingAtOnceLeavesNothing(t *testing.T) {
	for range 10 {
		ctx, stop := context.WithCancel(t.Context())
		c, err := demo.New(demo.Config{})
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if err := c.Run(ctx); err != nil {
			t.Fatalf("Run: %v", err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]demo.Config{
		"a password without a user": {Password: "x"},
		"a negative frame rate":     {FrameRate: -1},
		"a clip that is no H.264":   {Clip: []byte("this is no video")},
		"a clip without an IDR":     {Clip: []byte{0, 0, 1, 0x41, 0x9a, 1}},
	} {
		if _, err := demo.New(cfg); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestAnAddressInUseIsAnError(t *testing.T) {
	t.Parallel()
	first := start(t, demo.Config{})
	second, err := demo.New(demo.Config{Address: first.Address()})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); err == nil {
		t.Error("two cameras share an address")
	}
}
