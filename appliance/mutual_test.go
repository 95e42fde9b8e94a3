package appliance_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance"
	"github.com/vedette/vedette/appliance/certificate"
)

// authority signs certificates of clients.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, cert, key}
}

func (a *authority) client(until time.Time) []tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "wall"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, form, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
}

// With tls-client-ca only who shows a certificate of that authority gets as far as showing a token, over HTTP and gRPC
// alike; others are told what is wrong.
func TestMutualTLSHoldsForHTTPAndGRPC(t *testing.T) {
	dir, ours, theirs := t.TempDir(), newAuthority(t), newAuthority(t)
	trusted := filepath.Join(dir, "clients.pem")
	if err := os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ours.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	out := &sheet{want: "Next:", came: make(chan struct{})}
	a := appliance.New(appliance.Config{
		DataDir: filepath.Join(dir, "data"), HTTP: "0.0.0.0:0", GRPC: "0.0.0.0:0", Models: "../models", Version: "test", Out: out,
		Logger: slog.New(slog.DiscardHandler), TLS: certificate.Config{ClientCA: trusted},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Errorf("appliance: %v", err)
		}
	})
	defer wg.Wait()
	defer cancel()
	select {
	case <-out.came:
	case <-time.After(time.Minute):
		t.Fatalf("the appliance does not come up:\n%s", out)
	}
	page := "https://127.0.0.1:" + found(t, out.String(), `dashboard +https://[^:]*:+\]?:?(\d+)/`) + "/v1/system"
	rpc := "127.0.0.1:" + found(t, out.String(), `gRPC +[^:]*:+\]?:?(\d+)`)
	fingerprint, token := found(t, out.String(), `SHA-256 ([0-9A-F:]+)`), found(t, out.String(), `admin token  (\S+)`)
	for _, c := range []struct {
		name, want string // what is wrong; empty: nothing
		show       []tls.Certificate
	}{
		{"a certificate of the authority", "", ours.client(time.Now().Add(time.Hour))},
		{"no certificate", "certificate required", nil},
		{"a certificate of somebody else", "unknown certificate authority", theirs.client(time.Now().Add(time.Hour))},
		{"a certificate that has expired", "expired certificate", ours.client(time.Now().Add(-time.Hour))},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := certificate.Pinned(fingerprint)
			if err != nil {
				t.Fatal(err)
			}
			// Whatever the server says of whom it trusts: the client shows what it has.
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(c.show) == 0 {
					return &tls.Certificate{}, nil
				}
				return &c.show[0], nil
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
			resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}).Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			switch {
			case c.want == "" && (err != nil || resp.StatusCode != http.StatusOK):
				t.Errorf("over HTTP: %v %v", resp, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("over HTTP: %v, want %q", err, c.want)
			}
			ask := func() error {
				conn, err := grpc.NewClient(rpc, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				_, err = vedettev1.NewSystemServiceClient(conn).GetSystem(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token), &vedettev1.GetSystemRequest{})
				return err
			}
			err = ask()
			// A client that writes first may find the connection closed before it reads why: it tries again.
			for late := time.Now().Add(30 * time.Second); err != nil && !strings.Contains(err.Error(), c.want) && time.Now().Before(late); {
				err = ask()
			}
			if (c.want == "") != (err == nil) || !strings.Contains(status.Convert(err).Message(), c.want) {
				t.Errorf("over gRPC: %v, want %q", err, c.want)
			}
		})
	}
}
