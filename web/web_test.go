package web_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/internal/rtsptest"
	"github.com/vedette/vedette/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a small appliance: one camera, one track, a picture that changes with every look.
type box struct {
	vedettev1.UnimplementedCameraServiceServer
	vedettev1.UnimplementedAnalyticsServiceServer
	vedettev1.UnimplementedEventServiceServer
	vedettev1.UnimplementedSystemServiceServer
	vedettev1.UnimplementedUserServiceServer
	looks atomic.Int64
	token string         // asked of every call when set
	clip  *rtsptest.Clip // what its cameras send
	// masking ends the video of a camera that is given privacy masks.
	masking chan struct{}
}

func (b *box) admit(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if a := md.Get("authorization"); b.token != "" && (len(a) != 1 || a[0] != "Bearer "+b.token) {
		return status.Error(codes.Unauthenticated, "unknown token")
	}
	return nil
}

func (b *box) GetSystem(ctx context.Context, _ *vedettev1.GetSystemRequest) (*vedettev1.System, error) {
	return &vedettev1.System{Version: "test"}, b.admit(ctx)
}

func (b *box) GetSession(ctx context.Context, _ *vedettev1.GetSessionRequest) (*vedettev1.Session, error) {
	return &vedettev1.Session{User: "users/ann", Role: "viewer"}, b.admit(ctx)
}

func (b *box) GetSnapshot(ctx context.Context, r *vedettev1.GetSnapshotRequest) (*vedettev1.GetSnapshotResponse, error) {
	if r.GetName() != "cameras/door" {
		return nil, status.Errorf(codes.NotFound, "no camera %s", r.GetName())
	}
	n := b.looks.Add(1)
	return &vedettev1.GetSnapshotResponse{
		Jpeg: fmt.Appendf(nil, "picture %d", n), Frame: n, Width: 640, Height: 360,
		CaptureTime: timestamppb.New(time.UnixMilli(1000 * n)),
	}, b.admit(ctx)
}

func (b *box) WatchCameras(_ *vedettev1.WatchCamerasRequest, s grpc.ServerStreamingServer[vedettev1.WatchCamerasResponse]) error {
	for _, m := range []*vedettev1.WatchCamerasResponse{
		{Item: &vedettev1.WatchCamerasResponse_Change{Change: &vedettev1.CameraChange{
			Kind: vedettev1.ChangeKind_CHANGE_KIND_SNAPSHOT, Camera: &vedettev1.Camera{Name: "cameras/door"},
		}}},
		{Item: &vedettev1.WatchCamerasResponse_Synced{Synced: &vedettev1.Synced{}}},
	} {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	<-s.Context().Done()
	return nil
}

func (b *box) WatchAnalytics(_ *vedettev1.WatchAnalyticsRequest, s grpc.ServerStreamingServer[vedettev1.WatchAnalyticsResponse]) error {
	err := s.Send(&vedettev1.WatchAnalyticsResponse{Item: &vedettev1.WatchAnalyticsResponse_Frame{Frame: &vedettev1.FrameObservations{
		Camera: "cameras/door", Observations: []*vedettev1.Observation{{Class: "person"}},
	}}})
	if err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func (b *box) WatchEvents(_ *vedettev1.WatchEventsRequest, s grpc.ServerStreamingServer[vedettev1.WatchEventsResponse]) error {
	<-s.Context().Done()
	return nil
}

// dashboard serves a dashboard of b over HTTP.
func dashboard(t *testing.T, b *box) *httptest.Server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	vedettev1.RegisterCameraServiceServer(g, b)
	vedettev1.RegisterAnalyticsServiceServer(g, b)
	vedettev1.RegisterEventServiceServer(g, b)
	vedettev1.RegisterSystemServiceServer(g, b)
	vedettev1.RegisterUserServiceServer(g, b)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := web.New(web.Config{
		Cameras: vedettev1.NewCameraServiceClient(conn), Analytics: vedettev1.NewAnalyticsServiceClient(conn),
		Events: vedettev1.NewEventServiceClient(conn), System: vedettev1.NewSystemServiceClient(conn),
		Users:       vedettev1.NewUserServiceClient(conn),
		PictureRate: 200, PictureIdle: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(web.WithSession(s))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		s.Close()
		_ = conn.Close()
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return h
}

func get(t *testing.T, url string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func TestThePageNamesItsAssetsByTheirContent(t *testing.T) {
	h := dashboard(t, &box{})
	page := get(t, h.URL+"/")
	body, err := io.ReadAll(page.Body)
	if err != nil {
		t.Fatal(err)
	}
	if csp := page.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'self'") || strings.Contains(csp, "unsafe") {
		t.Errorf("content policy %q", csp)
	}
	if strings.Contains(string(body), "<script>") || strings.Contains(string(body), "http://") || strings.Contains(string(body), "https://") {
		t.Error("the page has inline script or loads from elsewhere")
	}
	names := regexp.MustCompile(`/assets/[a-z]+-[\w-]{8}\.(js|css|svg)`).FindAllString(string(body), -1)
	if len(names) < 3 {
		t.Fatalf("the page names %v, want script, style and icon with their hashes", names)
	}
	for _, n := range names {
		a := get(t, h.URL+n, "Accept-Encoding", "gzip")
		if a.StatusCode != http.StatusOK || !strings.Contains(a.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %s, cache %q", n, a.Status, a.Header.Get("Cache-Control"))
		}
		plain := get(t, h.URL+n)
		want, err := io.ReadAll(plain.Body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		if a.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(got))
			if err != nil {
				t.Fatal(err)
			}
			if got, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: compressed and plain differ", n)
		}
	}
	if a := get(t, h.URL+"/assets/app.js"); a.StatusCode != http.StatusNotFound {
		t.Errorf("an asset without its hash: %s", a.Status)
	}
	for path, want := range map[string]string{"/nope": "/#/nope", "/cameras": "/#/cameras", "//other.example/x%0d%0aa": "/#/other.example/x%0d%0aa", "/session": "/#/session"} {
		if a := get(t, h.URL+path, "Accept", "text/html,*/*"); a.StatusCode != http.StatusFound || a.Header.Get("Location") != want {
			t.Errorf("a person at %s: %s, to %q", path, a.Status, a.Header.Get("Location"))
		}
	}
	if a := get(t, h.URL+"/nope"); a.StatusCode != http.StatusNotFound {
		t.Errorf("a program at an address that is none: %s", a.Status)
	}
}

func TestTheLiveStreamCarriesCamerasAndFrames(t *testing.T) {
	h := dashboard(t, &box{})
	lines := bufio.NewScanner(get(t, h.URL+"/live").Body)
	want := map[string]string{"session": "users/ann", "cameras": "cameras/door", "analytics": "person", "system": "test"}
	event := ""
	for len(want) > 0 && lines.Scan() {
		if e, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			event = e
		}
		if d, ok := strings.CutPrefix(lines.Text(), "data: "); ok && want[event] != "" && strings.Contains(d, want[event]) {
			delete(want, event)
		}
	}
	if len(want) > 0 {
		t.Errorf("the stream ended without %v", want)
	}
}

// readPicture reads one picture of the stream of pictures.
func readPicture(t *testing.T, r io.Reader) (head map[string]any, jpeg string) {
	t.Helper()
	var sizes [8]byte
	if _, err := io.ReadFull(r, sizes[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(sizes[:4])+binary.BigEndian.Uint32(sizes[4:]))
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	n := binary.BigEndian.Uint32(sizes[:4])
	if err := json.Unmarshal(b[:n], &head); err != nil {
		t.Fatal(err)
	}
	return head, string(b[n:])
}

func TestPicturesCarryTheirCaptureTime(t *testing.T) {
	b := &box{}
	h := dashboard(t, b)
	r := get(t, h.URL+"/live/pictures?camera=door").Body
	for range 3 {
		head, jpeg := readPicture(t, r)
		frame, _ := head["frame"].(float64)
		if jpeg != fmt.Sprintf("picture %d", int(frame)) || head["capture"] != 1000*frame {
			t.Errorf("picture %q with header %v", jpeg, head)
		}
	}
}

func TestMJPEGTellsWhenEachPictureWasCaptured(t *testing.T) {
	a := get(t, dashboard(t, &box{}).URL+"/live/door/mjpeg?rate=200")
	kind, params, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/x-mixed-replace" {
		t.Fatalf("%q: %v", kind, err)
	}
	parts := multipart.NewReader(a.Body, params["boundary"])
	for range 3 {
		part, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		jpeg, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		captured, err := time.Parse(time.RFC3339Nano, part.Header.Get("X-Vedette-Capture-Time"))
		if want := fmt.Sprintf("picture %d", captured.Unix()); err != nil || string(jpeg) != want || part.Header.Get("Content-Type") != "image/jpeg" {
			t.Errorf("%q with %v, want %q", jpeg, part.Header, want)
		}
	}
}

func TestACameraThatIsNotThereSaysSoInItsStream(t *testing.T) {
	h := dashboard(t, &box{})
	head, jpeg := readPicture(t, get(t, h.URL+"/live/pictures?camera=cellar").Body)
	if jpeg != "" || head["code"] != "NotFound" || head["error"] != "no camera cameras/cellar" {
		t.Errorf("got %v and %d bytes of picture", head, len(jpeg))
	}
	if a := get(t, h.URL+"/live/cellar/mjpeg"); a.StatusCode != http.StatusNotFound {
		t.Errorf("as MJPEG: %s", a.Status)
	}
}

func TestOneStreamCarriesThePicturesOfManyCameras(t *testing.T) {
	h := dashboard(t, &box{})
	r := get(t, h.URL+"/live/pictures?camera=door&camera=cellar&camera=door&rate=50&width=320").Body
	seen := map[any]int{}
	for seen["door"] < 3 || seen["cellar"] < 1 {
		head, jpeg := readPicture(t, r)
		seen[head["camera"]]++
		if (jpeg == "") != (head["camera"] == "cellar") {
			t.Errorf("%d bytes of picture with header %v", len(jpeg), head)
		}
	}
	for _, query := range []string{"", "camera=door&rate=NaN", "camera=door&rate=0", "camera=door&width=-1", "camera=door&width=99999", strings.Repeat("camera=door&", 129)} {
		if a := get(t, h.URL+"/live/pictures?"+query); a.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s", query, a.Status)
		}
	}
}

func TestViewersShareOnePictureAndNoViewerMeansNoPicture(t *testing.T) {
	b := &box{}
	h := dashboard(t, b)
	first, second := get(t, h.URL+"/live/door/mjpeg"), get(t, h.URL+"/live/pictures?camera=door")
	seen := map[float64]string{}
	for range 20 {
		head, jpeg := readPicture(t, second.Body)
		frame, _ := head["frame"].(float64)
		seen[frame] = jpeg
	}
	if _, err := io.CopyN(io.Discard, first.Body, 200); err != nil {
		t.Fatal(err)
	}
	// Twenty pictures reached a viewer. Fetched once a viewer, it would have been twice as many looks.
	if n := b.looks.Load(); n > 35 {
		t.Errorf("%d looks for %d pictures shown to two viewers", n, len(seen))
	}
	_ = first.Body.Close()
	_ = second.Body.Close()
	// The last viewer left: looks must stop, which shows as two counts that are equal.
	deadline := time.Now().Add(10 * time.Second)
	for last := int64(-1); b.looks.Load() != last; {
		last = b.looks.Load()
		if time.Now().After(deadline) {
			t.Fatal("pictures are still fetched ten seconds after the last viewer left")
		}
		waitForTicks(t, 20*time.Millisecond)
	}
}

// waitForTicks lets several fetching periods of 5 ms pass.
func waitForTicks(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func TestTheCookieStandsForTheToken(t *testing.T) {
	h := dashboard(t, &box{token: "secret"})
	if a := get(t, h.URL+"/live"); a.StatusCode != http.StatusUnauthorized {
		t.Fatalf("without a token: %s", a.Status)
	}
	post := func(body string, cookie *http.Cookie, csrf string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/session", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if cookie != nil {
			r.AddCookie(cookie)
		}
		r.Header.Set("X-Vedette", csrf)
		a, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Body.Close() })
		return a
	}
	if a := post(`{"token":"wrong"}`, nil, "page"); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong token: %s", a.Status)
	}
	if a := post(`{}`, nil, "page"); a.StatusCode != http.StatusBadRequest {
		t.Errorf("no token: %s", a.Status)
	}
	in := post(`{"token":" secret\n"}`, nil, "page")
	cookies := in.Cookies()
	if in.StatusCode != http.StatusNoContent || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
		t.Fatalf("signing in: %s, cookies %v", in.Status, cookies)
	}
	if a := get(t, h.URL+"/live", "Cookie", cookies[0].Name+"="+cookies[0].Value); a.StatusCode != http.StatusOK {
		t.Errorf("with the cookie: %s", a.Status)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/session", strings.NewReader(`{"token":"secret"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Vedette", "page")
	r.Header.Set("Origin", "https://elsewhere.example")
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if _ = a.Body.Close(); a.StatusCode != http.StatusForbidden || len(a.Cookies()) != 0 {
		t.Errorf("signing in for a page from elsewhere: %s, cookies %v", a.Status, a.Cookies())
	}
	if a := post(`{"token":"secret"}`, cookies[0], ""); a.StatusCode != http.StatusForbidden {
		t.Errorf("a change by cookie alone, as another site could cause: %s", a.Status)
	}
}

func TestADashboardWithoutItsClientsIsRefused(t *testing.T) {
	if _, err := web.New(web.Config{}); err == nil {
		t.Error("accepted")
	}
}
