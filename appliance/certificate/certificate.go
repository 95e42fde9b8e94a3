// Package certificate gives listeners that others can reach their TLS: the operator's certificate, read again when its
// files change, or one of the box's own, made once and known by its fingerprint.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Config says where the certificate is.
type Config struct {
	// Cert and Key are PEM files of the operator's certificate chain and its key; both empty: the box's own.
	Cert, Key string
	// ClientCA is a PEM file of the authorities of clients' certificates; when set, clients must show one.
	ClientCA string
	// Dir is where the box's own certificate is kept.
	Dir string
	// Names are further names and addresses of the box for its own certificate.
	Names []string
	// Logger, nil: discarded.
	Logger *slog.Logger
	// Now, nil: time.Now.
	Now func() time.Time
}

// Source serves the newest good certificate. Safe for concurrent use.
type Source struct {
	cfg Config

	mu      sync.Mutex // guards what follows
	loaded  *tls.Config
	stamp   string // of the files that loaded was read from
	checked time.Time
	broken  string // stamp of files that were refused, so that it is logged once
}

// Open reads the certificate, or makes the box's own. The error names the file at fault.
func Open(cfg Config) (*Source, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if (cfg.Cert == "") != (cfg.Key == "") {
		return nil, errors.New("a TLS certificate and its key belong together: give both --tls-cert and --tls-key, or neither")
	}
	s := &Source{cfg: cfg}
	if cfg.Cert == "" {
		s.cfg.Cert, s.cfg.Key = filepath.Join(cfg.Dir, "tls.crt"), filepath.Join(cfg.Dir, "tls.key")
		if err := s.bootstrap(); err != nil {
			return nil, err
		}
	}
	s.stamp = s.stamps()
	var err error
	if s.loaded, err = s.load(); err != nil {
		return nil, err
	}
	s.checked = cfg.Now()
	return s, nil
}

// Config is for a listener of HTTP and gRPC alike. Every handshake gets the newest certificate.
func (s *Source) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil },
	}
}

// Fingerprint is the SHA-256 of the certificate in use, as browsers show it.
func (s *Source) Fingerprint() string {
	sum := sha256.Sum256(s.current().Certificates[0].Certificate[0])
	text := strings.ToUpper(hex.EncodeToString(sum[:]))
	parts := make([]string, 0, len(sum))
	for i := 0; i < len(text); i += 2 {
		parts = append(parts, text[i:i+2])
	}
	return strings.Join(parts, ":")
}

// interval is how often, at most, a handshake looks at the files.
const interval = time.Second

// current reads the files again when they have changed; what cannot be used leaves the old certificate in place.
func (s *Source) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.cfg.Now(); now.Sub(s.checked) < interval && !now.Before(s.checked) {
		return s.loaded
	}
	s.checked = s.cfg.Now()
	stamp := s.stamps()
	if stamp == s.stamp || stamp == s.broken {
		return s.loaded
	}
	loaded, err := s.load()
	if err != nil {
		s.broken = stamp
		s.cfg.Logger.Error("changed TLS files cannot be used; the certificate read before stays", slog.Any("err", err))
		return s.loaded
	}
	s.loaded, s.stamp, s.broken = loaded, stamp, ""
	s.cfg.Logger.Info("TLS certificate was read again", slog.String("file", s.cfg.Cert))
	return s.loaded
}

// stamps changes when one of the files does.
func (s *Source) stamps() string {
	var b strings.Builder
	for _, f := range []string{s.cfg.Cert, s.cfg.Key, s.cfg.ClientCA} {
		if info, err := os.Stat(f); err == nil {
			fmt.Fprintf(&b, "%d %d;", info.ModTime().UnixNano(), info.Size())
		} else {
			b.WriteString("none;")
		}
	}
	return b.String()
}

func (s *Source) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(s.cfg.Cert, s.cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate %s with key %s: %w", s.cfg.Cert, s.cfg.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{pair}}
	if s.cfg.ClientCA != "" {
		text, err := os.ReadFile(s.cfg.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("authorities of clients: %w", err)
		}
		c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !c.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("authorities of clients: there is no certificate in %s", s.cfg.ClientCA)
		}
	}
	return c, nil
}

const (
	lifetime = 5 * 365 * 24 * time.Hour
	renewal  = 30 * 24 * time.Hour
)

// bootstrap makes the box's own certificate when there is none, or it ends soon.
func (s *Source) bootstrap() error {
	if pair, err := tls.LoadX509KeyPair(s.cfg.Cert, s.cfg.Key); err == nil {
		if leaf, err := x509.ParseCertificate(pair.Certificate[0]); err == nil && s.cfg.Now().Add(renewal).Before(leaf.NotAfter) {
			return nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the box's own TLS certificate: %w (remove %s and %s to have another made)", err, s.cfg.Cert, s.cfg.Key)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a TLS key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return fmt.Errorf("make a TLS certificate: %w", err)
	}
	now := s.cfg.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "vedette"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, IsCA: true,
		DNSNames: []string{"localhost", "vedette.local"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, n := range s.cfg.Names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if n != "" {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("make a TLS certificate: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("make a TLS key: %w", err)
	}
	if err := writePEM(s.cfg.Key, "PRIVATE KEY", pkcs8); err != nil {
		return err
	}
	return writePEM(s.cfg.Cert, "CERTIFICATE", der)
}

// writePEM replaces a file as a whole; its owner alone may read it.
func writePEM(path, kind string, der []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tls-*")
	if err != nil {
		return fmt.Errorf("keep a TLS certificate: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if err = errors.Join(pem.Encode(tmp, &pem.Block{Type: kind, Bytes: der}), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("keep a TLS certificate: %w", err)
	}
	return nil
}

// Pinned is how a client trusts a server by the fingerprint of its certificate, whoever signed it.
func Pinned(fingerprint string) (*tls.Config, error) {
	want, err := hex.DecodeString(strings.ReplaceAll(fingerprint, ":", ""))
	if err != nil || len(want) != sha256.Size {
		return nil, fmt.Errorf("%q is no SHA-256 fingerprint: it has 32 pairs of hexadecimal digits", fingerprint)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, // the next lines verify
		VerifyConnection: func(cs tls.ConnectionState) error {
			sum := sha256.Sum256(cs.PeerCertificates[0].Raw)
			if string(sum[:]) != string(want) {
				return fmt.Errorf("the server's certificate has another fingerprint (%X): either it was replaced, or this is not your box", sum)
			}
			return nil
		},
	}, nil
}
