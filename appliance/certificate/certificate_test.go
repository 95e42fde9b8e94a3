package certificate_test

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/certificate"
)

// dial makes one handshake with the source and returns the client's error.
func dial(t *testing.T, s *certificate.Source, client *tls.Config) error {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	var wg sync.WaitGroup
	wg.Go(func() {
		a, err := ln.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		conn := tls.Server(a, s.Config())
		if conn.HandshakeContext(t.Context()) == nil {
			_, _ = conn.Write([]byte("x"))
		}
		_ = a.Close()
	})
	b, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(b, client)
	err = conn.HandshakeContext(t.Context())
	if err == nil {
		_, err = conn.Read(make([]byte, 1)) // a refused client certificate shows here
	}
	_ = b.Close()
	wg.Wait()
	return err
}

func TestTheBoxsOwnCertificateIsMadeOnceAndKnownByItsFingerprint(t *testing.T) {
	dir := t.TempDir()
	s, err := certificate.Open(certificate.Config{Dir: dir, Names: []string{"box.example", "192.0.2.7"}})
	if err != nil {
		t.Fatal(err)
	}
	seen := s.Fingerprint()
	pinned, err := certificate.Pinned(seen)
	if err != nil {
		t.Fatal(err)
	}
	if err := dial(t, s, pinned); err != nil {
		t.Errorf("the right fingerprint: %v", err)
	}
	other, err := certificate.Pinned(strings.Repeat("00:", 31) + "00")
	if err != nil {
		t.Fatal(err)
	}
	if err := dial(t, s, other); err == nil || !strings.Contains(err.Error(), "fingerprint") {
		t.Errorf("another fingerprint: %v", err)
	}
	again, err := certificate.Open(certificate.Config{Dir: dir})
	if err != nil || again.Fingerprint() != seen {
		t.Errorf("a second start has another certificate (%v)", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "tls.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v %v", info, err)
	}
	late, err := certificate.Open(certificate.Config{Dir: dir, Now: func() time.Time { return time.Now().Add(5 * 365 * 24 * time.Hour) }})
	if err != nil || late.Fingerprint() == seen {
		t.Errorf("a certificate that has ended is kept (%v)", err)
	}
}

func TestAChangedCertificateIsServedAndABrokenOneIsNot(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	now := time.Now()
	first, err := certificate.Open(certificate.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	second, err := certificate.Open(certificate.Config{Dir: other})
	if err != nil {
		t.Fatal(err)
	}
	s, err := certificate.Open(certificate.Config{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	copyFile := func(name string) {
		b, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	copyFile("tls.crt") // without its key: a broken pair
	now = now.Add(time.Minute)
	if s.Fingerprint() != first.Fingerprint() {
		t.Error("a pair that does not fit is served")
	}
	copyFile("tls.key")
	now = now.Add(time.Minute)
	if s.Fingerprint() != second.Fingerprint() {
		t.Error("the new certificate is not served")
	}
}

func TestMutualTLSRefusesAClientWithoutCertificate(t *testing.T) {
	dir, clients := t.TempDir(), t.TempDir()
	if _, err := certificate.Open(certificate.Config{Dir: clients}); err != nil {
		t.Fatal(err)
	}
	s, err := certificate.Open(certificate.Config{Dir: dir, ClientCA: filepath.Join(clients, "tls.crt")})
	if err != nil {
		t.Fatal(err)
	}
	client, err := certificate.Pinned(s.Fingerprint())
	if err != nil {
		t.Fatal(err)
	}
	if err := dial(t, s, client); err == nil {
		t.Error("a client without a certificate is let in")
	}
}

func TestFaultsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	for name, cfg := range map[string]certificate.Config{
		"belong together": {Cert: "a"},
		"none.crt":        {Cert: filepath.Join(dir, "none.crt"), Key: filepath.Join(dir, "none.key")},
		"none.pem":        {Dir: dir, ClientCA: filepath.Join(dir, "none.pem")},
	} {
		if _, err := certificate.Open(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want it to tell of %s", err, name)
		}
	}
	if _, err := certificate.Pinned("12"); err == nil {
		t.Error("a short fingerprint is taken")
	}
}
