package rtsp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/pion/rtp"
	"go.uber.org/goleak"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/rtsp"
	"github.com/vedette/vedette/internal/av"
	"github.com/vedette/vedette/internal/rtsptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// viewer ends its session at the first picture.
type viewer struct {
	end  context.CancelFunc
	once sync.Once
}

func (*viewer) Reached(ingest.Stage)             {}
func (*viewer) Stream(ingest.Stream)             {}
func (*viewer) SenderReport(ingest.SenderReport) {}
func (*viewer) Packets(_, _, _, _ uint64)        {}
func (v *viewer) AccessUnit(ingest.AccessUnit)   { v.once.Do(v.end) }

// Media are still on their way when a session ends; a camera whose connection is reset by what nobody read any more may
// never see the TEARDOWN before it.
func TestEverySessionEndsWithATeardownThatTheCameraHears(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 640, Height: 360, Frames: 25, GOP: 1, Source: "testsrc2", Extra: []string{"-qp", "5"}})
	for _, transport := range []ingest.Transport{ingest.TransportTCP, ingest.TransportUDP} {
		cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, UDP: true, Speed: 4})
		const sessions = 20
		for range sessions {
			ctx, cancel := context.WithCancel(t.Context())
			v := &viewer{end: cancel}
			if err := rtsp.New(rtsp.Config{Camera: ingest.Camera{Name: "door", Address: cam.Address(), Transport: transport}}).Run(ctx, v); err != nil {
				t.Fatal(err)
			}
			cancel()
			if open, _, most := cam.Sessions(); open > 0 || most > 1 {
				t.Errorf("%d sessions open after Run has returned, %d at once", open, most)
			}
		}
		if n := cam.Requests(base.Teardown); n != sessions {
			t.Errorf("transport %d: the camera heard %d of %d goodbyes", transport, n, sessions)
		}
	}
}

func TestACameraThatClearsAwayTheRefusedTransportFirstIsAskedAgain(t *testing.T) {
	var setups, refusals atomic.Int32
	cam := rtsptest.Start(t, rtsptest.Config{
		Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, GOP: 5}), UDP: true, NoTCP: true,
		Request: func(method base.Method, _ <-chan struct{}) *base.Response {
			switch {
			case method == base.Setup:
				setups.Add(1)
			case method == base.Describe && setups.Load() == 1 && refusals.Add(1) <= 2:
				return &base.Response{StatusCode: base.StatusServiceUnavailable}
			}
			return nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := rtsp.New(rtsp.Config{Camera: ingest.Camera{Name: "door", Address: cam.Address()}}).Run(ctx, &viewer{end: cancel}); err != nil || refusals.Load() != 3 {
		t.Errorf("%v after %d refusals", err, refusals.Load()-1)
	}
}

// discard ignores everything.
type discard struct{ viewer }

func (*discard) AccessUnit(ingest.AccessUnit) {}

func TestPacketsTooLargeForADatagramAreNamed(t *testing.T) {
	var fault rtsptest.Fault
	for _, f := range rtsptest.Faults() {
		if f.Name == "packets larger than a datagram" {
			fault = f
		}
	}
	cam := fault.Start(t, rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64}))
	defer cam.Close()
	err := rtsp.New(rtsp.Config{Camera: ingest.Camera{Name: "door", Address: cam.Address(), Transport: ingest.TransportUDP}}).Run(t.Context(), &discard{})
	if e := ingest.AsError(err); err == nil || e.Reason != ingest.ReasonTransportRefused || !strings.Contains(e.Error(), "TCP") {
		t.Errorf("got %v", err)
	}
}

// Cameras describe tracks nobody reads here in ways that no library reads, and their video with another clock than it has.
func TestVideoIsReadWhateverADescriptionSaysBesides(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, GOP: 5})
	const (
		head  = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\n"
		video = "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:trackID=0\r\n"
		audio = "m=audio 0 RTP/AVP 97\r\na=control:trackID=1\r\n"
		aac   = audio + "a=rtpmap:97 mpeg4-generic/16000/1\r\n"
	)
	for name, sdp := range map[string]string{
		"AAC without its settings":          head + video + aac,
		"AAC with settings that are none":   head + aac + "a=fmtp:97 mode=AAC-hbr;sizelength=13;config=zz\r\n" + video,
		"LATM with the clock of its sound":  head + video + audio + "a=rtpmap:97 MP4A-LATM/16000\r\n",
		"sound without a name":              head + video + audio,
		"metadata without a clock":          head + "m=application 0 RTP/AVP 107\r\na=rtpmap:107 vnd.onvif.metadata\r\n" + video,
		"a group with a track that is none": head + "a=group:FEC 1 2\r\n" + video + "a=mid:1\r\n" + aac,
		"the clock of something else":       head + strings.Replace(video, "90000", "8000", 1),
		"no clock":                          head + strings.Replace(video, "/90000", "", 1),
		"an origin of impossible numbers":   strings.Replace(head, "1 1", "99999999999999999999999 1", 1) + video,
		"lines that say nothing":            head + "b=AS:none\r\nr=x y\r\nq=1\r\nhello\r\n=\r\n\r\n" + video + "k=z\r\n",
		"times that are none":               strings.Replace(head, "0 0", "x y", 1) + video,
		"another order":                     "t=0 0\r\ns=x\r\nv=0\r\n" + video,
		"zeros at the end":                  head + video + "\x00\x00",
		"blanks at the ends of lines":       strings.ReplaceAll(head+video, "\r\n", " \r\n"),
		"blanks in a map":                   head + strings.Replace(video, ":96 H264", ": 96  H264", 1),
		"numbers that nothing tells of":     head + strings.Replace(video, "AVP 96", "AVP 96 97 98", 1),
		"parameter sets that are none":      head + video + "a=fmtp:96 packetization-mode=1;sprop-parameter-sets=AAA,!!\r\n",
	} {
		for _, over := range []string{"TCP", "UDP", "TLS"} {
			t.Run(name+" over "+over, func(t *testing.T) {
				c := ingest.Camera{Name: "door"}
				cfg := rtsptest.Config{Clip: clip, UDP: over == "UDP"}
				switch over {
				case "UDP":
					c.Transport = ingest.TransportUDP
				case "TLS":
					cert := certificate(t)
					sum := sha256.Sum256(cert.Certificate[0])
					cfg.TLS, c.CertificateSHA256 = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, hex.EncodeToString(sum[:])
				}
				var cam *rtsptest.Camera
				cfg.Request = func(method base.Method, _ <-chan struct{}) *base.Response {
					if method != base.Describe {
						return nil
					}
					return &base.Response{StatusCode: base.StatusOK, Body: []byte(sdp), Header: base.Header{
						"Content-Base": base.HeaderValue{cam.Address() + "/"}, "Content-Type": base.HeaderValue{"application/sdp"},
					}}
				}
				cam = rtsptest.Start(t, cfg)
				c.Address = cam.Address()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if err := rtsp.New(rtsp.Config{Camera: c}).Run(ctx, &viewer{end: cancel}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// certificate makes one that signs itself.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// keeper keeps a few units and ends its session.
type keeper struct {
	viewer

	units []ingest.AccessUnit
}

func (k *keeper) AccessUnit(u ingest.AccessUnit) {
	if k.units = append(k.units, u); len(k.units) == 5 {
		k.end()
	}
}

func TestPayloadTypesAndClocksAreThoseOfTheDescription(t *testing.T) {
	h264 := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, GOP: 5})
	mjpeg := rtsptest.Render(t, rtsptest.ClipConfig{Codec: "mjpeg", Width: 64, Height: 64})
	for name, c := range map[string]struct {
		clip *rtsptest.Clip
		kind uint8
		maps string
		rate int
	}{
		"JPEG by a number of its own":     {mjpeg, 96, "JPEG/90000", 90000},
		"JPEG by its usual number":        {mjpeg, 26, "JPEG/90000", 90000},
		"JPEG of another clock":           {mjpeg, 98, "jpeg/1000", 1000},
		"H.264 by a number of others":     {h264, 77, "H264/90000", 90000},
		"H.264 of a clock of 8 kHz":       {h264, 96, "H264/8000", 8000},
		"H.264 of a clock of 1 kHz":       {h264, 96, "h264/1000", 1000},
		"H.264 of a clock that is none":   {h264, 96, "H264/0", 90000},
		"H.264 without a clock":           {h264, 96, "H264", 90000},
		"H.264 of a clock beyond numbers": {h264, 96, "H264/99999999999999999999", 90000},
	} {
		t.Run(name, func(t *testing.T) {
			cam := rtsptest.Start(t, rtsptest.Config{
				Clip: c.clip, Format: &format.Generic{PayloadTyp: c.kind, RTPMa: c.maps, ClockRat: 90000},
				Packet: func(p *rtp.Packet) []*rtp.Packet {
					p.PayloadType, p.Timestamp = c.kind, uint32(uint64(p.Timestamp)*uint64(c.rate)/90000)
					return []*rtp.Packet{p}
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			k := &keeper{viewer: viewer{end: cancel}}
			if err := rtsp.New(rtsp.Config{Camera: ingest.Camera{Name: "door", Address: cam.Address()}}).Run(ctx, k); err != nil {
				t.Fatal(err)
			}
			for i, u := range k.units[1:] {
				if step := u.Ticks - k.units[i].Ticks; step < 3599 || step > 3601 {
					t.Errorf("%d ticks from one picture to the next", step)
				}
			}
		})
	}
}

func TestRedirectsAreFollowedButNotForEver(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, GOP: 5})
	for _, c := range []struct{ times, asked int }{{0, 1}, {5, 6}, {6, 6}, {1 << 30, 6}} {
		var cam *rtsptest.Camera
		var asked atomic.Int64
		cam = rtsptest.Start(t, rtsptest.Config{Clip: clip, Ask: func(r *base.Request) *base.Response {
			if r.Method != base.Describe || asked.Add(1) > int64(c.times) {
				return nil
			}
			return &base.Response{StatusCode: base.StatusFound, Header: base.Header{"Location": {cam.Address()}}}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		err := rtsp.New(rtsp.Config{Camera: ingest.Camera{Name: "door", Address: cam.Address()}}).Run(ctx, &viewer{end: cancel})
		cancel()
		if failed := err != nil; failed != (c.times > 5) || int(asked.Load()) != c.asked {
			t.Errorf("redirected %d times: asked %d times, %v", c.times, asked.Load(), err)
		}
	}
}

// losses counts lost packets beside.
type losses struct {
	keeper

	lost atomic.Uint64
}

func (l *losses) Packets(_, _, lost, _ uint64) { l.lost.Add(lost) }

func TestAPacketThatComesAgainIsNotLost(t *testing.T) {
	again := func(p *rtp.Packet) []*rtp.Packet { return []*rtp.Packet{p, p.Clone()} }
	cam := rtsptest.Start(t, rtsptest.Config{Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, GOP: 5}), Packet: again})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := &losses{keeper: keeper{viewer: viewer{end: cancel}}}
	if err := rtsp.New(rtsp.Config{Camera: ingest.Camera{Name: "door", Address: cam.Address()}}).Run(ctx, l); err != nil {
		t.Fatal(err)
	}
	if n := l.lost.Load(); n > 0 || len(l.units) < 5 {
		t.Errorf("%d packets are lost, %d units came", n, len(l.units))
	}
	for i, u := range l.units {
		if i > 0 && (u.Lost || u.Damaged || u.Ticks == l.units[i-1].Ticks) {
			t.Errorf("unit %d: %v, lost %v, damaged %v", i, u.Ticks, u.Lost, u.Damaged)
		}
	}
}

// A camera that describes several streams' parameter sets at once, by number, and sends none.
func TestParameterSetsOfADescriptionAreChosenByNumber(t *testing.T) {
	other := rtsptest.Render(t, rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 1})
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 20, GOP: 5, Extra: []string{"-x264-params", "sps-id=3:keyint=5:min-keyint=5:scenecut=0:bframes=0:aud=1"}})
	var text []string
	for _, set := range append(slices.Clone(other.Sets), clip.Sets...) {
		text = append(text, base64.StdEncoding.EncodeToString(set))
	}
	for i, u := range clip.Units {
		clip.Units[i].NALUs = slices.DeleteFunc(u.NALUs, func(n []byte) bool { return n[0]&0x1F == 7 || n[0]&0x1F == 8 })
	}
	for name, list := range map[string]string{
		"one after the other": strings.Join(text, ","),
		"by kind":             strings.Join([]string{text[0], text[2], text[1], text[3]}, ", "),
		"without padding":     strings.ReplaceAll(strings.Join(text, ","), "=", ""),
	} {
		t.Run(name, func(t *testing.T) {
			var cam *rtsptest.Camera
			cam = rtsptest.Start(t, rtsptest.Config{Clip: clip, Ask: func(r *base.Request) *base.Response {
				if r.Method != base.Describe {
					return nil
				}
				return &base.Response{
					StatusCode: base.StatusOK, Header: base.Header{"Content-Base": {cam.Address() + "/"}, "Content-Type": {"application/sdp"}},
					Body: []byte("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n" +
						"a=fmtp:96 packetization-mode=1;sprop-parameter-sets=" + list + ";profile-level-id=42C00A\r\na=control:trackID=0\r\n"),
				}
			}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			k := &described{keeper: keeper{viewer: viewer{end: cancel}}}
			if err := rtsp.New(rtsp.Config{Camera: ingest.Camera{Name: "door", Address: cam.Address()}}).Run(ctx, k); err != nil {
				t.Fatal(err)
			}
			dec, err := av.NewDecoder(av.DecoderConfig{Codec: av.H264})
			if err != nil {
				t.Fatal(err)
			}
			defer dec.Close()
			var p av.Picture
			defer p.Close()
			begin := slices.IndexFunc(k.units, func(u ingest.AccessUnit) bool { return u.Keyframe })
			if begin < 0 || dec.Send(k.units[begin].Data, 0) != nil {
				t.Fatalf("no keyframe that can be decoded among %d units", len(k.units))
			}
			if ok, err := dec.Receive(&p); !ok || err != nil || p.Width != 64 || k.stream.Width != 64 {
				t.Errorf("a picture %d wide (%v, %v) of a stream that is %d wide", p.Width, ok, err, k.stream.Width)
			}
		})
	}
}

// described keeps what the stream is said to be, beside.
type described struct {
	keeper

	stream ingest.Stream
}

func (d *described) Stream(s ingest.Stream) { d.stream = s }
