package sidecar_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/pion/rtp"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

// certificate makes one that signs itself.
func certificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, der
}

func TestAnRTSPSCameraMustShowATrustedCertificate(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cert, der := certificate(t)
	_, other := certificate(t)
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, TLS: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}})
	pin := func(der []byte) string { sum := sha256.Sum256(der); return hex.EncodeToString(sum[:]) }
	authority := func(der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	for _, c := range []struct {
		name   string
		tls    *ingestv1.Tls
		reason ingestv1.ErrorReason // 0: it streams
	}{
		{"its own authority", &ingestv1.Tls{CaPem: authority(der)}, 0},
		{"its pin", &ingestv1.Tls{CertificateSha256: pin(der)}, 0},
		{"nobody knows it", nil, ingestv1.ErrorReason_ERROR_REASON_TLS_CERT},
		{"another authority", &ingestv1.Tls{CaPem: authority(other)}, ingestv1.ErrorReason_ERROR_REASON_TLS_CERT},
		{"another pin", &ingestv1.Tls{CertificateSha256: pin(other), CaPem: authority(der)}, ingestv1.ErrorReason_ERROR_REASON_TLS_CERT},
		{"a pin that is none", &ingestv1.Tls{CertificateSha256: "abc"}, ingestv1.ErrorReason_ERROR_REASON_INVALID_CONFIG},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, sidecar.Config{})
			r.set(&ingestv1.Camera{Name: "door", Address: cam.Address(), Tls: c.tls})
			s := next(t, r.status, "outcome", func(s *ingestv1.CameraStatus) bool {
				return s.GetError() != nil || s.GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING
			})
			if s.GetError().GetReason() != c.reason {
				t.Errorf("got %v", s.GetError())
			}
		})
	}
}

func TestWhereATransportIsRefusedTheNextIsTried(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	for _, c := range []struct {
		name string
		cfg  rtsptest.Config
		want ingestv1.Transport
	}{
		{"all are offered", rtsptest.Config{UDP: true}, ingestv1.Transport_TRANSPORT_TCP},
		{"no TCP", rtsptest.Config{UDP: true, NoTCP: true}, ingestv1.Transport_TRANSPORT_UDP},
		{"multicast alone", rtsptest.Config{UDP: true, Multicast: true, NoTCP: true, NoUDP: true}, ingestv1.Transport_TRANSPORT_MULTICAST},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Clip = clip
			cam := rtsptest.Start(t, c.cfg)
			r := start(t, sidecar.Config{})
			r.client.WatchFrames(&ingestv1.WatchFrames{})
			r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
			if s := r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING); s.GetStream().GetTransport() != c.want {
				t.Errorf("transport %v", s.GetStream().GetTransport())
			}
			for range 10 {
				r.frame().Release()
			}
		})
	}
	t.Run("no TCP, and it is insisted on", func(t *testing.T) {
		cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, UDP: true, NoTCP: true})
		refusedTransport(t, &ingestv1.Camera{Address: cam.Address(), Transport: ingestv1.Transport_TRANSPORT_TCP})
	})
	t.Run("none at all", func(t *testing.T) {
		cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, NoTCP: true})
		refusedTransport(t, &ingestv1.Camera{Address: cam.Address()})
	})
}

func refusedTransport(t *testing.T, c *ingestv1.Camera) {
	t.Helper()
	r := start(t, sidecar.Config{})
	c.Name = "door"
	r.set(c)
	s := next(t, r.status, "refusal", func(s *ingestv1.CameraStatus) bool { return s.GetError() != nil })
	if s.GetError().GetReason() != ingestv1.ErrorReason_ERROR_REASON_TRANSPORT_REFUSED {
		t.Errorf("got %v", s.GetError())
	}
}

// wiretap sees the datagrams a camera sends.
type wiretap struct {
	*net.UDPConn
	sent func([]byte)
}

// WriteTo is part of net.PacketConn.
func (w *wiretap) WriteTo(b []byte, to net.Addr) (int, error) {
	w.sent(b)
	return w.UDPConn.WriteTo(b, to)
}

func TestAnRTSPSCamerasPicturesAreEncryptedOverEveryTransport(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cert, der := certificate(t)
	sum := sha256.Sum256(der)
	trust := &ingestv1.Tls{CertificateSha256: hex.EncodeToString(sum[:])}
	for _, transport := range []ingestv1.Transport{ingestv1.Transport_TRANSPORT_TCP, ingestv1.Transport_TRANSPORT_UDP, ingestv1.Transport_TRANSPORT_MULTICAST} {
		t.Run(transport.String(), func(t *testing.T) {
			var mu sync.Mutex
			var plain [][]byte // what the camera packs
			datagrams, naked := 0, 0
			cam := rtsptest.Start(t, rtsptest.Config{
				Clip: clip, TLS: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
				UDP: true, Multicast: transport == ingestv1.Transport_TRANSPORT_MULTICAST,
				Packet: func(p *rtp.Packet) []*rtp.Packet {
					mu.Lock()
					defer mu.Unlock()
					if len(plain) < 50 && len(p.Payload) > 20 {
						plain = append(plain, bytes.Clone(p.Payload[4:20]))
					}
					return []*rtp.Packet{p}
				},
				Datagrams: func(c net.PacketConn) net.PacketConn {
					return &wiretap{c.(*net.UDPConn), func(b []byte) {
						mu.Lock()
						defer mu.Unlock()
						datagrams++
						for _, p := range plain {
							if bytes.Contains(b, p) {
								naked++
							}
						}
					}}
				},
			})
			r := start(t, sidecar.Config{})
			r.client.WatchFrames(&ingestv1.WatchFrames{})
			r.set(&ingestv1.Camera{Name: "door", Address: cam.Address(), Tls: trust, Transport: transport})
			if s := r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING); s.GetStream().GetTransport() != transport {
				t.Errorf("transport %v", s.GetStream().GetTransport())
			}
			for range 20 {
				f := r.frame()
				if f.Release(); f.GetTainted() {
					t.Fatal("a tainted frame")
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if naked > 0 || transport == ingestv1.Transport_TRANSPORT_UDP && datagrams < 20 {
				t.Errorf("%d of %d datagrams in the clear", naked, datagrams)
			}
		})
	}
	t.Run("no SRTP is offered for UDP", func(t *testing.T) {
		sdp := "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\na=control:trackID=0\r\n"
		cam := rtsptest.Start(t, rtsptest.Config{
			Clip: clip, UDP: true, TLS: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
			Request: func(m base.Method, _ <-chan struct{}) *base.Response {
				if m != base.Describe {
					return nil
				}
				return &base.Response{StatusCode: base.StatusOK, Header: base.Header{"Content-Type": {"application/sdp"}}, Body: []byte(sdp)}
			},
		})
		refusedTransport(t, &ingestv1.Camera{Address: cam.Address(), Tls: trust, Transport: ingestv1.Transport_TRANSPORT_UDP})
		if n := cam.Requests(base.Setup); n > 0 {
			t.Errorf("%d times SETUP: keys for what must not be sent", n)
		}
	})
}
