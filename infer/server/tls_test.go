package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

// authority signs certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

// issue makes a certificate and returns the paths of it and of its key. Without an authority it signs itself.
func (a *authority) issue(t *testing.T, name string, isAuthority bool) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: isAuthority, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := template, private
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	if isAuthority {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		a.key = private
	}
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func (a *authority) client(t *testing.T, cert, key string) *tls.Config {
	t.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	cfg.RootCAs.AddCert(a.cert)
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

func TestX9TLSAndMutualTLSOnBothListeners(t *testing.T) {
	ours, theirs := &authority{dir: t.TempDir()}, &authority{dir: t.TempDir()}
	root, _ := ours.issue(t, "root", true)
	theirs.issue(t, "root", true)
	cert, key := ours.issue(t, "server", false)
	goodCert, goodKey := ours.issue(t, "client", false)
	badCert, badKey := theirs.issue(t, "client", false)
	files := func(name string, mutual bool) []string {
		args := []string{"--" + name + "-use-ssl=true", "--" + name + "-server-cert=" + cert, "--" + name + "-server-key", key}
		if mutual {
			args = append(args, "--"+name+"-use-ssl-mutual=true", "--"+name+"-root-cert="+root)
		}
		return args
	}
	for _, mutual := range []bool{false, true} {
		r := start(t, append(append(files("http", mutual), files("grpc", mutual)...), "--model-repository", repository(t, testModels()))...)
		for _, c := range []struct {
			name string
			cfg  *tls.Config
			ok   bool
		}{
			{"a client with a certificate", ours.client(t, goodCert, goodKey), true},
			{"a client without", ours.client(t, "", ""), !mutual},
			{"a client with a stranger's", ours.client(t, badCert, badKey), !mutual},
			{"a client that does not trust the server", theirs.client(t, badCert, badKey), false},
			{"a client in plain text", nil, false},
		} {
			t.Run(map[bool]string{false: "server only: ", true: "mutual: "}[mutual]+c.name, func(t *testing.T) {
				scheme := "https://"
				if c.cfg == nil {
					scheme = "http://"
				}
				h := v2client.NewHTTP(scheme+r.at("HTTP"), v2client.Config{TLS: c.cfg})
				defer func() { _ = h.Close() }()
				g, err := v2client.New(r.at("gRPC"), v2client.Config{TLS: c.cfg})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = g.Close() }()
				req := &v2client.Request{Model: "plain", Inputs: []v2client.Input{{Tensor: tensor.Tensor{Name: "INPUT0", DataType: tensor.FP32, Shape: []int64{1, 1}, Data: []byte{0, 0, 128, 63}}}}}
				if _, err := h.Infer(t.Context(), req); (err == nil) != c.ok {
					t.Errorf("HTTP: %v", err)
				}
				if _, err := g.Infer(t.Context(), req); (err == nil) != c.ok {
					t.Errorf("gRPC: %v", err)
				}
			})
		}
	}
}

// probe pings a gRPC server so often, with a pause between, and tells why it hung up; empty: it answered every ping.
func probe(t *testing.T, target string, pings int, pause time.Duration) string {
	t.Helper()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	sent, answered := 0, 0
	ping := func() {
		sent++
		_ = f.WritePing(false, [8]byte{'p', byte(sent)}) // the server may have hung up already
	}
	ping()
	for answered < pings {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("after %d answers: %v", answered, err)
		}
		switch frame := frame.(type) {
		case *http2.PingFrame:
			if frame.IsAck() && frame.Data[0] == 'p' {
				answered++
				<-time.After(pause)
				ping()
			}
		case *http2.GoAwayFrame:
			return frame.ErrCode.String() + " " + string(frame.DebugData())
		default:
		}
	}
	return ""
}

func TestX9KeepaliveTakesAsManyProbesAsItIsTold(t *testing.T) {
	strict := start(t, "--model-repository", repository(t, testModels()))
	if got := probe(t, strict.at("gRPC"), 10, 2*time.Millisecond); got != "ENHANCE_YOUR_CALM too_many_pings" {
		t.Errorf("got %q", got)
	}
	patient := start(t, "--model-repository", repository(t, testModels()),
		"--grpc-keepalive-permit-without-calls=true", "--grpc-http2-min-recv-ping-interval-without-data=1")
	if got := probe(t, patient.at("gRPC"), 10, 2*time.Millisecond); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestX9ServerProbesIdleConnections(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()), "--grpc-keepalive-time=1000")
	conn, err := net.Dial("tcp", r.at("gRPC"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("no probe came: %v", err)
		}
		if p, ok := frame.(*http2.PingFrame); ok && !p.IsAck() {
			return
		}
	}
}
