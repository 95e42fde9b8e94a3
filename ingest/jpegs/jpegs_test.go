package jpegs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/jpegs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink collects what a source delivers and stops it after some pictures.
type sink struct {
	units  []ingest.AccessUnit
	stream ingest.Stream
	bad    uint64
	enough int
	stop   func()
}

func (s *sink) Reached(ingest.Stage)             {}
func (s *sink) Stream(d ingest.Stream)           { s.stream = d }
func (s *sink) SenderReport(ingest.SenderReport) {}
func (s *sink) Packets(_, _, _, bad uint64)      { s.bad += bad }

func (s *sink) AccessUnit(u ingest.AccessUnit) {
	if s.units = append(s.units, u); len(s.units) == s.enough {
		s.stop()
	}
}

func read(t *testing.T, c ingest.Camera, enough int) (*sink, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &sink{enough: enough, stop: cancel}
	return s, jpegs.New(jpegs.Config{Camera: c}).Run(ctx, s)
}

// stream is what ffmpeg makes of 10 pictures, as a camera sends them.
func stream(t *testing.T) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10",
		"-frames:v", "10", "-f", "mpjpeg", "-boundary_tag", "frame", "-").Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// parts are the pictures of a stream.
func parts(t *testing.T, body []byte) [][]byte {
	t.Helper()
	var list [][]byte
	for r := multipart.NewReader(bytes.NewReader(body), "frame"); ; {
		part, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		picture, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, picture)
	}
}

func TestPicturesComeOneByOneHoweverTheCameraWrapsThem(t *testing.T) {
	body := stream(t)
	want := parts(t, body)
	for _, c := range []struct {
		kind string
		body []byte
	}{
		{"multipart/x-mixed-replace; boundary=frame", body},
		{"multipart/x-mixed-replace;boundary=--frame", body}, // the dashes counted
		{"multipart/x-mixed-replace; boundary=another", body},
		{"multipart/x-mixed-replace; boundary=my frame;", body}, // cannot be read
		{"multipart/x-mixed-replace", body},
		{"Multipart/Mixed; boundary=\"frame\"", body},
		{"video/x-motion-jpeg", bytes.Join(want, nil)},
		{"application/octet-stream", bytes.Join(want, []byte("\r\n"))},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			_, _ = w.Write(c.body)
		}))
		s, err := read(t, ingest.Camera{Address: server.URL + "/video"}, 0)
		server.Close()
		if e, ok := errors.AsType[*ingest.Error](err); !ok || e.Reason != ingest.ReasonDisconnected {
			t.Errorf("%s: at its end: %v", c.kind, err)
		}
		if len(s.units) != len(want) || len(want) != 10 || s.stream.Codec != ingest.MJPEG || !s.stream.Live || s.stream.RTCP || s.bad != 0 {
			t.Fatalf("%s: %d pictures of %v, %d bad", c.kind, len(s.units), s.stream, s.bad)
		}
		for i, u := range s.units {
			if !u.Keyframe || !bytes.Equal(u.Data, bytes.TrimRight(want[i], "\r\n")) {
				t.Errorf("%s: picture %d is another", c.kind, i)
			}
		}
	}
}

// Who waits for the boundary behind a picture has it when the next one comes.
func TestAPictureIsThereWithItsLastByte(t *testing.T) {
	first := parts(t, stream(t))[0]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=frame")
		_, _ = fmt.Fprintf(w, "--frame\r\nContent-Type: image/jpeg\r\n\r\n%s", first)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	if s, err := read(t, ingest.Camera{Address: server.URL}, 1); err != nil || len(s.units) != 1 {
		t.Errorf("%d pictures, %v", len(s.units), err)
	}
}

func TestACameraThatGivesOnePictureIsAskedAgain(t *testing.T) {
	want := parts(t, stream(t))
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="cam"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "image/jpeg")
		switch n := asked.Add(1); n {
		case 2: // cut short: the next may be whole
			_, _ = w.Write(want[1][:100])
		default:
			_, _ = w.Write(want[n-1])
		}
	}))
	defer server.Close()
	s, err := read(t, ingest.Camera{Address: server.URL + "/snapshot.jpg", Username: "u", Password: "p"}, 3)
	if err != nil || len(s.units) != 3 || asked.Load() != 4 || s.bad != 1 {
		t.Fatalf("%d pictures of %d, %d bad, %v", len(s.units), asked.Load(), s.bad, err)
	}
	for i, n := range []int{0, 2, 3} {
		if !bytes.Equal(s.units[i].Data, bytes.TrimRight(want[n], "\r\n")) {
			t.Errorf("picture %d is not the one of answer %d", i, n+1)
		}
	}
}

func TestCredentialsAreGivenAsTheCameraWants(t *testing.T) {
	body := stream(t)
	for _, scheme := range []string{"Basic", "Digest"} {
		t.Run(scheme, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				auth := r.Header.Get("Authorization")
				user, password, basic := r.BasicAuth()
				switch {
				case scheme == "Basic" && basic && user == "us er" && password == "p@ss:w/rd",
					scheme == "Digest" && strings.HasPrefix(auth, "Digest ") && strings.Contains(auth, `username="us er"`):
					w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=frame")
					_, _ = w.Write(body)
				default:
					w.Header().Set("WWW-Authenticate", map[string]string{"Basic": `Basic realm="cam"`, "Digest": `Digest realm="cam", nonce="abc", qop="auth", algorithm=MD5`}[scheme])
					w.WriteHeader(http.StatusUnauthorized)
				}
			}))
			defer server.Close()
			sum := sha256.Sum256(server.Certificate().Raw)
			pin := hex.EncodeToString(sum[:])
			good := ingest.Camera{Address: server.URL + "/video", Username: "us er", Password: "p@ss:w/rd", CertificateSHA256: pin}
			if s, err := read(t, good, 3); err != nil || len(s.units) < 3 {
				t.Errorf("%d pictures, %v", len(s.units), err)
			}
			for name, c := range map[string]struct {
				camera ingest.Camera
				want   ingest.Reason
			}{
				"nobody":                   {ingest.Camera{Address: good.Address, CertificateSHA256: pin}, ingest.ReasonAuthFailed},
				"a certificate of nobody":  {ingest.Camera{Address: good.Address, Username: "us er", Password: "canary"}, ingest.ReasonTLSCert},
				"another certificate":      {ingest.Camera{Address: good.Address, CertificateSHA256: strings.Repeat("00", 32)}, ingest.ReasonTLSCert},
				"a pin that cannot be one": {ingest.Camera{Address: good.Address, CertificateSHA256: "xyz"}, ingest.ReasonInvalidConfig},
			} {
				_, err := read(t, c.camera, 1)
				if e, ok := errors.AsType[*ingest.Error](err); !ok || e.Reason != c.want || strings.Contains(err.Error(), "canary") {
					t.Errorf("%s: %v, want %v", name, err, c.want)
				}
			}
		})
	}
}

func TestAnswersThatAreNoStreamAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   ingest.Reason
	}{
		"not found": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, ingest.ReasonNotFound},
		"busy":      {func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, ingest.ReasonCameraBusy},
		"a page":    {func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, "<html>") }, ingest.ReasonNotFound},
		"another kind of video": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "video/mp2t")
			_, _ = fmt.Fprint(w, "G")
		}, ingest.ReasonCodecUnsupported},
		"sent elsewhere": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://elsewhere.invalid/")
			w.WriteHeader(http.StatusFound)
		}, ingest.ReasonUnreachable},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }))
		_, err := read(t, ingest.Camera{Address: server.URL + "/?password={password}", Username: "u", Password: "canary"}, 1)
		server.Close()
		if e, ok := errors.AsType[*ingest.Error](err); !ok || e.Reason != c.want || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func FuzzParts(f *testing.F) {
	f.Add([]byte("--frame\r\nContent-Type: image/jpeg\r\n\r\n\xff\xd8ab\xff\xd9\r\n--frame--\r\n"))
	f.Add([]byte("--frame\r\n\r\nno picture\r\n--frame\r\n"))
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=frame")
		_, _ = w.Write(body)
	}))
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, b []byte) {
		body = b
		s, err := read(t, ingest.Camera{Address: server.URL}, 0)
		if _, ok := errors.AsType[*ingest.Error](err); !ok {
			t.Errorf("ends with %v", err)
		}
		for _, u := range s.units {
			if !bytes.Contains(b, u.Data) || u.Data[0] != 0xFF || u.Data[1] != 0xD8 {
				t.Errorf("%q is no JPEG of what was sent", u.Data)
			}
		}
	})
}
