package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/rulebook"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/appliance/sinks"
	"github.com/vedette/vedette/store"
)

// box serves the API over real sockets and a real store.
type box struct {
	t       *testing.T
	store   *store.Store
	cameras *cameras.Registry
	http    string // base address
	tokens  map[api.Role]string
	local   *grpc.ClientConn // an admin by its socket
	tcp     *grpc.ClientConn
	stop    func() // ends the API
	off     func() // ends everything
}

// album gives one picture for every camera.
type album struct{ err error }

func (a album) Picture(_ context.Context, r api.PictureRequest) (*vedettev1.GetSnapshotResponse, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &vedettev1.GetSnapshotResponse{
		Jpeg: []byte("jpeg of " + r.Camera), CaptureTime: timestamppb.New(time.Unix(1700000000, 5e6)), Width: 640, Height: 360, StreamEpoch: "e1", Frame: 42,
	}, nil
}

func (a album) DumpPackets(_ context.Context, _ string, _ time.Duration, _ int64, take func([]byte) error) error {
	return take([]byte("packets"))
}

func (a album) Probe(context.Context, *vedettev1.Source) (*vedettev1.ProbeCameraResponse, error) {
	return nil, &api.ReasonError{Code: codes.FailedPrecondition, Reason: "AUTH_FAILED", Message: "describe rtsp://camera: 401", Hint: "check user name and password"}
}

func start(t *testing.T, visitors bool, pictures api.Pictures) *box {
	t.Helper()
	return startIn(t, t.TempDir(), visitors, pictures)
}

func startIn(t *testing.T, dir string, visitors bool, pictures api.Pictures) *box {
	t.Helper()
	b := &box{t: t, tokens: map[api.Role]string{}, store: store.New(store.Config{Dir: dir, Window: 5 * time.Millisecond, Backlog: 4, Retention: store.Retention{MinFree: -1}})}
	ctx, cancel := context.WithCancel(context.Background())
	storeCtx, cancelStore := context.WithCancel(context.Background())
	var wg, storeWG sync.WaitGroup
	storeWG.Go(func() {
		if err := b.store.Run(storeCtx); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	<-b.store.Ready()
	secrets, err := secret.Open(filepath.Join(dir, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	b.cameras = cameras.New(cameras.Config{Store: b.store, Secrets: secrets})
	if err := b.cameras.Load(ctx); err != nil {
		t.Fatal(err)
	}
	for _, role := range []api.Role{api.Viewer, api.Operator, api.Admin} {
		if b.tokens[role], err = api.NewToken(ctx, b.store, "someone", role); err != nil {
			t.Fatal(err)
		}
	}
	listen := func(network, address string) net.Listener {
		ln, err := new(net.ListenConfig).Listen(ctx, network, address)
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	web, rpc, local := listen("tcp", "127.0.0.1:0"), listen("tcp", "127.0.0.1:0"), listen("unix", filepath.Join(dir, "api.sock"))
	b.http = "http://" + web.Addr().String()
	server := api.New(api.Config{
		Store: b.store, Cameras: b.cameras, Pictures: pictures, Video: film{}, Visitors: visitors, HTTP: web, GRPC: rpc, Local: local,
		System:   func() *vedettev1.System { return &vedettev1.System{Version: "test"} },
		Capacity: scales{}, Timing: timing,
		Doctor: func(context.Context) []*vedettev1.Finding {
			return []*vedettev1.Finding{{Check: "disk", Severity: vedettev1.Severity_SEVERITY_WARNING, Message: "3 GB are free", Advice: "make room"}}
		},
		Bundle: func(_ context.Context, w io.Writer) error {
			_, err := w.Write(bytes.Repeat([]byte("bundle "), 1<<17)) // of more than one message
			return err
		},
		Rules: rulebook.New(rulebook.Config{Store: b.store, Cameras: b.cameras}), Sinks: sinks.New(sinks.Config{Store: b.store, Secrets: secrets}),
	})
	wg.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Errorf("API: %v", err)
		}
	})
	dial := func(target string) *grpc.ClientConn {
		conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	b.tcp, b.local = dial(rpc.Addr().String()), dial("unix:"+filepath.Join(dir, "api.sock"))
	b.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	b.off = sync.OnceFunc(func() {
		b.stop()
		_ = b.tcp.Close()
		_ = b.local.Close()
		http.DefaultClient.CloseIdleConnections()
		cancelStore()
		storeWG.Wait()
	})
	t.Cleanup(b.off)
	return b
}

func (b *box) as(role api.Role) context.Context {
	return metadata.AppendToOutgoingContext(b.t.Context(), "authorization", "Bearer "+b.tokens[role])
}

// reason is the ErrorInfo of an error.
func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

func door() *vedettev1.Camera {
	return &vedettev1.Camera{Source: &vedettev1.Source{Uri: "rtsp://camera.example/door"}}
}

func (b *box) add(id string) *vedettev1.Camera {
	b.t.Helper()
	c, err := vedettev1.NewCameraServiceClient(b.local).CreateCamera(b.t.Context(), &vedettev1.CreateCameraRequest{CameraId: id, Camera: door()})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func TestRolesDecideWhatIsAllowed(t *testing.T) {
	b := start(t, false, album{})
	b.add("door")
	c := vedettev1.NewCameraServiceClient(b.tcp)
	list := func(ctx context.Context) error {
		_, err := c.ListCameras(ctx, &vedettev1.ListCamerasRequest{})
		return err
	}
	disable := func(ctx context.Context) error {
		_, err := c.DisableCamera(ctx, &vedettev1.DisableCameraRequest{Name: "cameras/door"})
		return err
	}
	update := func(ctx context.Context) error {
		_, err := c.UpdateCamera(ctx, &vedettev1.UpdateCameraRequest{Camera: &vedettev1.Camera{Name: "cameras/door", DisplayName: "x"}})
		return err
	}
	watch := func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := c.WatchCameras(ctx, &vedettev1.WatchCamerasRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	bad := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer vedette_guess")
	odd := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Basic YTpi")
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		call   func(context.Context) error
		code   codes.Code
		reason string
	}{
		{"nobody lists", t.Context(), list, codes.Unauthenticated, "TOKEN_MISSING"},
		{"nobody watches", t.Context(), watch, codes.Unauthenticated, "TOKEN_MISSING"},
		{"a guessed token lists", bad, list, codes.Unauthenticated, "TOKEN_INVALID"},
		{"another scheme lists", odd, list, codes.Unauthenticated, "TOKEN_INVALID"},
		{"a viewer lists", b.as(api.Viewer), list, codes.OK, ""},
		{"a viewer watches", b.as(api.Viewer), watch, codes.OK, ""},
		{"a viewer disables", b.as(api.Viewer), disable, codes.PermissionDenied, "ROLE_TOO_LOW"},
		{"an operator disables", b.as(api.Operator), disable, codes.OK, ""},
		{"an operator changes", b.as(api.Operator), update, codes.PermissionDenied, "ROLE_TOO_LOW"},
		{"an admin changes", b.as(api.Admin), update, codes.OK, ""},
	} {
		err := tc.call(tc.ctx)
		if status.Code(err) != tc.code || reason(err) != tc.reason {
			t.Errorf("%s: %v %q, want %v %q", tc.name, status.Code(err), reason(err), tc.code, tc.reason)
		}
	}
}

func (b *box) do(method, path, body string, header ...string) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.http+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(text)
}

func TestVisitorsOfADemonstrationLookFromLoopbackOnly(t *testing.T) {
	b := start(t, true, album{})
	if resp, text := b.do("GET", "/v1/cameras", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("a visitor: %s %s", resp.Status, text)
	}
	if resp, _ := b.do("GET", "/v1/cameras", "", "Host", "rebound.example:8080"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a page from elsewhere whose name points here: %s", resp.Status)
	}
	if resp, text := b.do("POST", "/v1/cameras?camera_id=door", `{"source":{"uri":"rtsp://camera/"}}`); resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "admin.token") {
		t.Errorf("a visitor adding a camera: %s %s", resp.Status, text)
	}
	if _, err := vedettev1.NewCameraServiceClient(b.tcp).ListCameras(t.Context(), &vedettev1.ListCamerasRequest{}); err != nil {
		t.Errorf("a visitor by gRPC: %v", err)
	}
	closed := start(t, false, album{})
	if resp, _ := closed.do("GET", "/v1/cameras", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a visitor where there is no demonstration: %s", resp.Status)
	}
}

func TestCamerasOverJSON(t *testing.T) {
	b := start(t, false, album{})
	auth := []string{"Authorization", "Bearer " + b.tokens[api.Admin]}
	resp, text := b.do("POST", "/v1/cameras?cameraId=door", `{"displayName":"Door","source":{"uri":"rtsp://camera.example/door","username":"u","password":"c4nary"}}`, auth...)
	if resp.StatusCode != http.StatusOK || strings.Contains(text, "c4nary") || !strings.Contains(text, `"passwordSet":true`) {
		t.Fatalf("create: %s %s", resp.Status, text)
	}
	if resp, text = b.do("POST", "/v1/cameras?camera_id=door", `{"source":{"uri":"rtsp://camera.example/door"}}`, auth...); resp.StatusCode != http.StatusConflict {
		t.Errorf("create again: %s %s", resp.Status, text)
	}
	if resp, text = b.do("PATCH", "/v1/cameras/door", `{"displayName":"Back door"}`, auth...); resp.StatusCode != http.StatusOK || !strings.Contains(text, "Back door") || !strings.Contains(text, "camera.example") {
		t.Errorf("patch: %s %s", resp.Status, text)
	}
	if resp, text = b.do("PATCH", "/v1/cameras/door?updateMask=source.uri,analysis.fps", `{"source":{"uri":"rtsp://other.example/"},"analysis":{"fps":3}}`, auth...); resp.StatusCode != http.StatusOK ||
		!strings.Contains(text, `"fps":3`) || !strings.Contains(text, `"username":"u"`) {
		t.Errorf("patch with a mask: %s %s", resp.Status, text)
	}
	resp, text = b.do("POST", "/v1/cameras?camera_id=Bad", `{"source":{"uri":"ftp://x"}}`, auth...)
	var fault struct {
		Details []struct {
			Reason          string
			FieldViolations []struct{ Field string }
		}
	}
	if err := json.Unmarshal([]byte(text), &fault); err != nil || resp.StatusCode != http.StatusBadRequest || len(fault.Details) != 2 ||
		fault.Details[0].Reason != "INVALID_ARGUMENT" || len(fault.Details[1].FieldViolations) != 2 {
		t.Errorf("create with two faults: %s %s (%v)", resp.Status, text, err)
	}
	if resp, text = b.do("POST", "/v1/cameras/door:disable", `{}`, auth...); resp.StatusCode != http.StatusOK || !strings.Contains(text, "DESIRED_STATE_DISABLED") {
		t.Errorf("disable: %s %s", resp.Status, text)
	}
	if resp, text = b.do("DELETE", "/v1/cameras/door?etag=old", "", auth...); resp.StatusCode != http.StatusConflict || !strings.Contains(text, "ETAG_MISMATCH") {
		t.Errorf("delete with an old etag: %s %s", resp.Status, text)
	}
	if resp, _ = b.do("DELETE", "/v1/cameras/door", "", auth...); resp.StatusCode != http.StatusOK {
		t.Errorf("delete: %s", resp.Status)
	}
	if resp, text = b.do("GET", "/v1/cameras/door", "", auth...); resp.StatusCode != http.StatusNotFound {
		t.Errorf("get after the delete: %s %s", resp.Status, text)
	}
	if resp, text = b.do("POST", "/v1/cameras:probe", `{"source":{"uri":"rtsp://camera/"}}`, auth...); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "AUTH_FAILED") {
		t.Errorf("probe: %s %s", resp.Status, text)
	}
	if resp, text = b.do("POST", "/v1/cameras", `{"source":`+strings.Repeat(" ", 5<<20)+`}`, auth...); resp.StatusCode < 400 {
		t.Errorf("five megabytes: %s %s", resp.Status, text)
	}
}

func TestSnapshotIsAPlainPicture(t *testing.T) {
	b := start(t, false, album{})
	b.add("door")
	auth := []string{"Authorization", "Bearer " + b.tokens[api.Viewer]}
	resp, text := b.do("GET", "/v1/cameras/door/snapshot.jpg?max_width=320", "", auth...)
	if resp.StatusCode != http.StatusOK || text != "jpeg of door" || resp.Header.Get("Content-Type") != "image/jpeg" {
		t.Fatalf("%s %q %v", resp.Status, text, resp.Header)
	}
	if got := resp.Header.Get("X-Vedette-Capture-Time"); got != "2023-11-14T22:13:20.005Z" {
		t.Errorf("capture time %q", got)
	}
	if resp, _ := b.do("GET", "/v1/cameras/door/snapshot.jpg", "", append(auth, "If-None-Match", resp.Header.Get("Etag"))...); resp.StatusCode != http.StatusNotModified {
		t.Errorf("the same picture again: %s", resp.Status)
	}
	if resp, text := b.do("GET", "/v1/cameras/none/snapshot.jpg", "", auth...); resp.StatusCode != http.StatusNotFound {
		t.Errorf("of an unknown camera: %s %s", resp.Status, text)
	}
	if resp, _ := b.do("GET", "/v1/cameras/door/snapshot.jpg", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", resp.Status)
	}
	if resp, _ := b.do("GET", "/v1/cameras/door/snapshot.jpg?max_width=wide", "", auth...); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("of no width: %s", resp.Status)
	}
	dead := start(t, false, album{err: errors.New("secret inner workings")})
	dead.add("door")
	if resp, text := dead.do("GET", "/v1/cameras/door/snapshot.jpg", "", "Authorization", "Bearer "+dead.tokens[api.Admin]); resp.StatusCode != http.StatusInternalServerError || strings.Contains(text, "inner") {
		t.Errorf("an unexpected error: %s %s", resp.Status, text)
	}
}

// seen writes a frame with one object of one track.
func (b *box) seen(sequence, local int64, at time.Time, state store.TrackState) {
	b.t.Helper()
	obj := store.Object{Local: local, Class: "person", Score: 0.9, Box: store.Box{X1: 0.25, Y1: 0.25, X2: 0.5, Y2: 0.75}}
	committed, err := b.store.Append(b.t.Context(), store.Batch{
		Frames: []store.Frame{{Sequence: sequence, Camera: "door", CaptureTime: at, Number: 7, Objects: []store.Object{obj}}},
		Tracks: []store.Track{{ID: store.TrackID{Sequence: sequence, Local: local}, Camera: "door", Class: "person", Start: at, End: at, State: state, Score: 0.9, Box: obj.Box, Path: []store.Point{{Time: at, X: 0.5, Y: 0.5}}}},
		Events: []store.Event{{Camera: "door", Type: "note", Time: at, Payload: []byte(`{"n":"1"}`)}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := <-committed; err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) sequence() int64 {
	b.t.Helper()
	id, err := b.store.OpenSequence(b.t.Context(), store.Sequence{Camera: "door", StreamEpoch: "e1", Model: "pipeline", ModelVersion: "2", OpenReason: "TEST", OpenedAt: time.Now()})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func TestHistoryIsListedByFilterAndPage(t *testing.T) {
	b := start(t, false, album{})
	seq, now := b.sequence(), time.Now().UTC().Truncate(time.Millisecond)
	for n := range int64(5) {
		b.seen(seq, n+1, now.Add(time.Duration(n)*time.Millisecond), store.TrackActive)
	}
	a := vedettev1.NewAnalyticsServiceClient(b.local)
	var names []string
	for token := ""; ; {
		r, err := a.ListTracks(t.Context(), &vedettev1.ListTracksRequest{Filter: `camera = "door" AND class = person`, PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, tr := range r.GetTracks() {
			names = append(names, tr.GetName())
			if tr.GetModel() != "pipeline:2" || tr.GetStreamEpoch() != "e1" || tr.GetState() != vedettev1.TrackState_TRACK_STATE_OPEN {
				t.Errorf("track %v", tr)
			}
		}
		if token = r.GetNextPageToken(); token == "" {
			break
		}
		if _, err := a.ListTracks(t.Context(), &vedettev1.ListTracksRequest{PageSize: 2, PageToken: token}); status.Code(err) != codes.InvalidArgument || reason(err) != "PAGE_TOKEN_INVALID" {
			t.Errorf("the token of another query: %v", err)
		}
	}
	if want := "cameras/door/tracks/1-5 cameras/door/tracks/1-4 cameras/door/tracks/1-3 cameras/door/tracks/1-2 cameras/door/tracks/1-1"; strings.Join(names, " ") != want {
		t.Errorf("tracks %v", names)
	}
	d, err := a.ListDetections(t.Context(), &vedettev1.ListDetectionsRequest{Parent: "cameras/door", OrderBy: "capture_time", Filter: `track = "1-2"`})
	if err != nil || len(d.GetDetections()) != 1 || d.GetDetections()[0].GetTrack() != "cameras/door/tracks/1-2" || d.GetDetections()[0].GetFrame() != 7 {
		t.Errorf("detections %v %v", d, err)
	}
	one, err := a.GetTrack(t.Context(), &vedettev1.GetTrackRequest{Name: "cameras/door/tracks/1-3"})
	if err != nil || len(one.GetPath()) != 1 {
		t.Errorf("one track %v %v", one, err)
	}
	if _, err := a.GetTrack(t.Context(), &vedettev1.GetTrackRequest{Name: "cameras/other/tracks/1-3"}); status.Code(err) != codes.NotFound {
		t.Errorf("a track under another camera's name: %v", err)
	}
	e, err := vedettev1.NewEventServiceClient(b.local).ListEvents(t.Context(), &vedettev1.ListEventsRequest{Filter: `type = "note"`, PageSize: 1})
	if err != nil || len(e.GetEvents()) != 1 || e.GetEvents()[0].GetAttributes()["n"] != "1" || e.GetNextPageToken() == "" {
		t.Errorf("events %v %v", e, err)
	}
	for _, bad := range []*vedettev1.ListTracksRequest{
		{PageSize: -1}, {OrderBy: "class"}, {Parent: "door"}, {Parent: "cameras/a", Filter: `camera = "b"`}, {PageToken: "x"}, {Filter: "x = 1"},
	} {
		if _, err := a.ListTracks(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestEventsAreFoundByWhatTheyAreAbout(t *testing.T) {
	b := start(t, false, album{})
	var events []store.Event
	for i, payload := range []string{
		`{"zone":"cameras/door/zones/yard","class":"car"}`, `{"zone":"cameras/door/zones/yard","class":"person"}`, `{"line":"cameras/door/lines/gate","class":"car"}`, `not JSON`, ``,
	} {
		events = append(events, store.Event{Camera: "door", Type: fmt.Sprint("e", i), Time: time.Now(), Payload: []byte(payload)})
	}
	committed, err := b.store.Append(t.Context(), store.Batch{Events: events})
	if err == nil {
		err = <-committed
	}
	if err != nil {
		t.Fatal(err)
	}
	for filter, want := range map[string]string{
		`zone = "cameras/door/zones/yard"`:                   "e0 e1",
		`line = "cameras/door/lines/gate"`:                   "e2",
		`class = "car"`:                                      "e0 e2",
		`zone = "cameras/door/zones/yard" AND class = "car"`: "e0",
		`zone = "yard"`:                                      "",
		`(class = "car" OR class = "person") AND (type = "e1" OR type = "e2") AND camera = "door"`: "e1 e2",
		`zone = "cameras/door/zones/yard" AND line = "cameras/door/lines/gate"`:                    "",
		`zone = "' OR 1=1 --"`: "",
	} {
		list, err := vedettev1.NewEventServiceClient(b.local).ListEvents(t.Context(), &vedettev1.ListEventsRequest{Filter: filter, OrderBy: "time"})
		if err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		var have []string
		for _, e := range list.GetEvents() {
			have = append(have, e.GetType())
		}
		if slices.Sort(have); strings.Join(have, " ") != want {
			t.Errorf("%s: %v, want %s", filter, have, want)
		}
	}
}

func TestWatchBeginsWithWhatIsOpenAndGoesOnAfterItsToken(t *testing.T) {
	b := start(t, false, album{})
	seq, now := b.sequence(), time.Now().UTC()
	b.seen(seq, 1, now, store.TrackActive)
	a := vedettev1.NewAnalyticsServiceClient(b.local)
	open := func(token string) (vedettev1.AnalyticsService_WatchAnalyticsClient, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := a.WatchAnalytics(ctx, &vedettev1.WatchAnalyticsRequest{ResumeToken: token, HeartbeatInterval: durationpb.New(time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		return w, cancel
	}
	next := func(w vedettev1.AnalyticsService_WatchAnalyticsClient, beat bool) *vedettev1.WatchAnalyticsResponse {
		t.Helper()
		for {
			m, err := w.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if (m.GetHeartbeat() != nil) == beat { // which comes when it is due, whatever else does
				return m
			}
		}
	}
	recv := func(w vedettev1.AnalyticsService_WatchAnalyticsClient) *vedettev1.WatchAnalyticsResponse {
		return next(w, false)
	}
	w, cancel := open("")
	if m := recv(w); m.GetTrack().GetKind() != vedettev1.ChangeKind_CHANGE_KIND_SNAPSHOT || m.GetSeq() != 1 {
		t.Errorf("first %v", m)
	}
	if m := recv(w); m.GetSynced().GetResumeToken() == "" {
		t.Errorf("second %v", m)
	}
	b.seen(seq, 2, now.Add(time.Millisecond), store.TrackActive)
	if m := recv(w); len(m.GetFrame().GetObservations()) != 1 || m.GetFrame().GetObservations()[0].GetTrack() != "cameras/door/tracks/1-2" {
		t.Errorf("third %v", m)
	}
	if m := recv(w); m.GetTrack().GetKind() != vedettev1.ChangeKind_CHANGE_KIND_ADDED {
		t.Errorf("fourth %v", m)
	}
	b.seen(seq, 2, now.Add(2*time.Millisecond), store.TrackEnded)
	recv(w)
	if m := recv(w); m.GetTrack().GetKind() != vedettev1.ChangeKind_CHANGE_KIND_REMOVED {
		t.Errorf("after the end %v", m)
	}
	beat := next(w, true)
	if beat.GetHeartbeat().GetResumeToken() == "" {
		t.Fatalf("no heartbeat but %v", beat)
	}
	cancel()
	b.seen(seq, 3, now.Add(3*time.Millisecond), store.TrackActive)
	w, cancel = open(beat.GetHeartbeat().GetResumeToken())
	if m := recv(w); m.GetFrame().GetObservations()[0].GetLocalId() != 3 {
		t.Errorf("after coming back %v", m)
	}
	cancel()
	for range 10 { // more than the box remembers
		b.seen(seq, 4, now.Add(4*time.Millisecond), store.TrackActive)
	}
	w, cancel = open(beat.GetHeartbeat().GetResumeToken())
	defer cancel()
	if m := recv(w); m.GetGap().GetDropped() == 0 {
		t.Errorf("coming back too late %v", m)
	}
	if bad, err := a.WatchAnalytics(t.Context(), &vedettev1.WatchAnalyticsRequest{ResumeToken: "x"}); err == nil {
		if _, err := bad.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("with a made-up token: %v", err)
		}
	}
}

func TestStopEndsWatchesWithAReason(t *testing.T) {
	b := start(t, false, album{})
	w, err := vedettev1.NewCameraServiceClient(b.local).WatchCameras(context.Background(), &vedettev1.WatchCamerasRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := w.Recv(); err != nil || m.GetSynced() == nil {
		t.Fatalf("of no cameras: %v %v", m, err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := w.Recv()
		ended <- err
	}()
	b.stop()
	if err := <-ended; status.Code(err) != codes.Unavailable || reason(err) != "STOPPING" {
		t.Errorf("the watch ended with %v", err)
	}
}

func TestDocumentsAreServed(t *testing.T) {
	b := start(t, false, album{})
	resp, text := b.do("GET", "/openapi.json", "")
	var doc struct{ Paths map[string]any }
	if err := json.Unmarshal([]byte(text), &doc); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %v", resp.Status, err)
	}
	for _, path := range []string{"/v1/cameras", "/v1/tracks", "/v1/detections", "/v1/events", "/v1/cameras/{camera}/events/{event}:clip", "/v1/cameras/{camera}/zones/{zone}"} {
		if doc.Paths[path] == nil {
			t.Errorf("%s is not in the OpenAPI document", path)
		}
	}
	if resp, _ := b.do("GET", "/healthz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %s", resp.Status)
	}
	if resp, text := b.do("GET", "/v1/system", "", "Authorization", "Bearer "+b.tokens[api.Viewer]); resp.StatusCode != http.StatusOK || !bytes.Contains([]byte(text), []byte(`"version":"test"`)) {
		t.Errorf("/v1/system: %s %s", resp.Status, text)
	}
	if !slices.Contains([]int{http.StatusNotFound, http.StatusUnauthorized}, func() int { r, _ := b.do("GET", "/v1/nothing", ""); return r.StatusCode }()) {
		t.Error("an unknown path is not refused")
	}
}
