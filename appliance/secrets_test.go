package appliance_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance"
	"github.com/vedette/vedette/appliance/certificate"
)

// sheet is a buffer that may be written while it is read. It tells when a text it waits for has come.
type sheet struct {
	mu   sync.Mutex
	b    bytes.Buffer
	want string
	came chan struct{}
}

func (s *sheet) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.b.Write(p)
	if s.want != "" && strings.Contains(s.b.String(), s.want) {
		s.want = ""
		close(s.came)
	}
	return n, err
}

func (s *sheet) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// found is the part of a text that a pattern's group matches.
func found(t *testing.T, text, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %q in:\n%s", pattern, text)
	}
	return m[1]
}

// A camera's password goes in and comes out nowhere: not in logs, answers, metrics or files; and an address that
// others can reach is served over TLS, to tokens.
func TestAPasswordAppearsNowhereAndTheNetworkIsServedOverTLS(t *testing.T) {
	const canary = "k4narienvogel-im-bergwerk"
	dir := t.TempDir()
	out, logs := &sheet{want: "Next:", came: make(chan struct{})}, &sheet{}
	a := appliance.New(appliance.Config{
		DataDir: dir, HTTP: "0.0.0.0:0", GRPC: "0.0.0.0:0", Models: "../models", Version: "test", Out: out,
		Logger: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
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
		t.Fatalf("the appliance does not come up:\n%s\n%s", out, logs)
	}

	conn, err := grpc.NewClient("unix:"+appliance.LocalSocket(dir), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cameras := vedettev1.NewCameraServiceClient(conn)
	source := &vedettev1.Source{Uri: "rtsp://127.0.0.1:1/stream", Username: "admin", Password: canary}
	made, err := cameras.CreateCamera(ctx, &vedettev1.CreateCameraRequest{CameraId: "door", Camera: &vedettev1.Camera{Source: source}})
	if err != nil {
		t.Fatal(err)
	}
	answers := made.String()
	// What is refused must not be quoted either.
	for _, bad := range []string{"rtsp://admin:" + canary + "@127.0.0.1:1/stream", "rtsp://admin:" + canary + "@bad host/%zz"} {
		if _, err := cameras.CreateCamera(ctx, &vedettev1.CreateCameraRequest{CameraId: "yard", Camera: &vedettev1.Camera{Source: &vedettev1.Source{Uri: bad}}}); err != nil {
			answers += err.Error()
		}
	}

	address := found(t, out.String(), `dashboard +https://[^:]*:+\]?:?(\d+)/`)
	pinned, err := certificate.Pinned(found(t, out.String(), `SHA-256 ([0-9A-F:]+)`))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path, token string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "box.example" // as others call it
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		transport := &http.Transport{TLSClientConfig: pinned, DisableKeepAlives: true}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	token := found(t, out.String(), `admin token  (\S+)`)
	for _, path := range []string{"/v1/cameras", "/v1/system", "/metrics"} {
		if code, _ := get(path, ""); code != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", path, code)
		}
		code, body := get(path, token)
		if code != http.StatusOK {
			t.Errorf("%s with a token: %d %s", path, code, body)
		}
		answers += body
	}
	if conn, err := tls.Dial("tcp", "127.0.0.1:"+address, &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
		_ = conn.Close()
		t.Error("a certificate that nobody signed is taken for one of the machine's authorities")
	}

	cancel()
	wg.Wait()
	for what, text := range map[string]string{"the answers": answers, "the logs": logs.String(), "the greeting": out.String()} {
		if strings.Contains(text, canary) {
			t.Errorf("%s hold the password:\n%s", what, text)
		}
	}
	files := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(canary)) {
			t.Errorf("%s holds the password", path)
		}
		return err
	})
	if err != nil || files < 3 {
		t.Errorf("%d files were looked at: %v", files, err)
	}
}
