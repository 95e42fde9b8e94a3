package sidecar_test

import (
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
	"testing"
	"time"

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

func TestWhereTCPIsRefusedUDPIsTried(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, UDP: true, NoTCP: true})
	r := start(t, sidecar.Config{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	if s := r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING); s.GetStream().GetTransport() != ingestv1.Transport_TRANSPORT_UDP {
		t.Errorf("transport %v", s.GetStream().GetTransport())
	}
	r.set(&ingestv1.Camera{Name: "insists", Address: cam.Address(), Transport: ingestv1.Transport_TRANSPORT_TCP})
	s := next(t, r.status, "refusal", func(s *ingestv1.CameraStatus) bool { return s.GetCamera() == "insists" && s.GetError() != nil })
	if s.GetError().GetReason() != ingestv1.ErrorReason_ERROR_REASON_TRANSPORT_REFUSED {
		t.Errorf("got %v", s.GetError())
	}
}
