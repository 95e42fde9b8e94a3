package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/store"
)

func TestARequestSentAgainMakesNothingMore(t *testing.T) {
	b := start(t, false, album{})
	cameras := vedettev1.NewCameraServiceClient(b.local)
	request := func(id, name string) *vedettev1.CreateCameraRequest {
		c := door()
		c.DisplayName, c.Source.Username, c.Source.Password = name, "root", "p4ss"
		return &vedettev1.CreateCameraRequest{Camera: c, RequestId: id}
	}
	var mu sync.Mutex
	names := map[string]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c, err := cameras.CreateCamera(t.Context(), request("7b1e-1", "Door"))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			names[c.GetName()]++
		})
	}
	wg.Wait()
	if len(names) != 1 {
		t.Fatalf("one request, sent 8 times at once, made %v", names)
	}
	if _, err := cameras.CreateCamera(t.Context(), request("7b1e-1", "Hall")); reason(err) != "REQUEST_ID_REUSED" || status.Code(err) != codes.InvalidArgument {
		t.Errorf("the id with another camera: %v", err)
	}
	other, err := vedettev1.NewCameraServiceClient(b.tcp).CreateCamera(b.as(api.Admin), request("7b1e-1", "Hall"))
	if err != nil || names[other.GetName()] != 0 {
		t.Errorf("the id of somebody else: %v, %v", other, err)
	}
	for _, bad := range []string{"a b", "\n", "\u00e4", strings.Repeat("x", 129)} {
		for _, check := range []bool{true, false} {
			r := request(bad, "Bad")
			r.ValidateOnly = check
			if _, err := cameras.CreateCamera(t.Context(), r); reason(err) != "INVALID_ARGUMENT" {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
	refused := request("7b1e-2", "Refused")
	refused.Camera.Source.Uri = "nonsense"
	if _, err := cameras.CreateCamera(t.Context(), refused); reason(err) != "INVALID_ARGUMENT" {
		t.Errorf("a bad camera: %v", err)
	}
	if _, err := cameras.CreateCamera(t.Context(), request("7b1e-2", "Refused")); err != nil {
		t.Errorf("what was refused may be put right: %v", err)
	}
	list, err := cameras.ListCameras(t.Context(), &vedettev1.ListCamerasRequest{})
	if err != nil || len(list.GetCameras()) != 3 {
		t.Errorf("%d cameras, want 3 (%v)", len(list.GetCameras()), err)
	}

	// Zones, lines and sinks alike; over JSON the id is a parameter.
	parent := list.GetCameras()[0].GetName()
	for path, body := range map[string]string{
		"/v1/" + parent + "/zones": `{"polygon": [{"x": 0.1, "y": 0.1}, {"x": 0.9, "y": 0.1}, {"x": 0.5, "y": 0.9}]}`,
		"/v1/" + parent + "/lines": `{"start": {"y": 0.5}, "end": {"x": 1, "y": 0.5}}`,
		"/v1/sinks":                `{"webhook": {"uri": "https://h/x"}, "disabled": true}`,
	} {
		var answers []string
		for range 2 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.http+path+"?request_id=again", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+b.tokens[api.Admin])
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s %s", path, resp.Status, text)
			}
			answers = append(answers, string(text))
		}
		if answers[0] != answers[1] {
			t.Errorf("%s: first %s, then %s", path, answers[0], answers[1])
		}
	}
}

func TestARequestSentAgainAfterARestartMakesNothingMore(t *testing.T) {
	dir := t.TempDir()
	b := startIn(t, dir, false, album{})
	request := &vedettev1.CreateCameraRequest{Camera: door(), RequestId: "7b1e-1"}
	made, err := vedettev1.NewCameraServiceClient(b.local).CreateCamera(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	b.off()
	cameras := vedettev1.NewCameraServiceClient(startIn(t, dir, false, album{}).local)
	again, err := cameras.CreateCamera(t.Context(), request)
	if err != nil || again.GetName() != made.GetName() || again.GetUid() != made.GetUid() || again.GetEtag() != made.GetEtag() {
		t.Errorf("again %v, %v, want %v", again, err, made)
	}
	request.Camera.DisplayName = "another"
	if _, err := cameras.CreateCamera(t.Context(), request); reason(err) != "REQUEST_ID_REUSED" {
		t.Errorf("with another content: %v", err)
	}
}

func TestDetectionsAreFoundByTheClockTheClientNames(t *testing.T) {
	b := start(t, false, album{})
	b.add("door")
	seen := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	b.append(store.Batch{Frames: []store.Frame{{
		Sequence: 1, Camera: "door", CaptureTime: seen, ReceiveTime: seen.Add(3 * time.Hour),
		Objects: []store.Object{{Local: 1, Class: "person", Score: 0.9, Box: store.Box{X2: 1, Y2: 1}}},
	}}})
	analytics := vedettev1.NewAnalyticsServiceClient(b.local)
	for basis, want := range map[vedettev1.TimeBasis]int{
		vedettev1.TimeBasis_TIME_BASIS_UNSPECIFIED: 0, vedettev1.TimeBasis_TIME_BASIS_CAPTURE: 0, vedettev1.TimeBasis_TIME_BASIS_RECEIVE: 1,
	} {
		r, err := analytics.ListDetections(t.Context(), &vedettev1.ListDetectionsRequest{Filter: `time >= "2026-05-01T14:00:00Z"`, TimeBasis: basis})
		if err != nil || len(r.GetDetections()) != want {
			t.Errorf("%v: %v, %v", basis, r, err)
		} else if want == 1 && !r.GetDetections()[0].GetReceiveTime().AsTime().Equal(seen.Add(3*time.Hour)) {
			t.Errorf("received at %v", r.GetDetections()[0].GetReceiveTime().AsTime())
		}
	}
	if _, err := analytics.ListDetections(t.Context(), &vedettev1.ListDetectionsRequest{TimeBasis: 9}); reason(err) != "INVALID_ARGUMENT" {
		t.Errorf("a clock that is none: %v", err)
	}
}

func TestAStarInTheMaskReplacesEverythingButSecrets(t *testing.T) {
	b := start(t, false, album{})
	star := &fieldmaskpb.FieldMask{Paths: []string{"*"}}
	camera := door()
	camera.DisplayName, camera.Labels, camera.Source.Username, camera.Source.Password = "Door", map[string]string{"floor": "1"}, "root", "p4ss"
	cameras, rules, sinks := vedettev1.NewCameraServiceClient(b.local), vedettev1.NewRuleServiceClient(b.local), vedettev1.NewSinkServiceClient(b.local)
	if _, err := cameras.CreateCamera(t.Context(), &vedettev1.CreateCameraRequest{CameraId: "door", Camera: camera}); err != nil {
		t.Fatal(err)
	}
	camera = door()
	camera.Name, camera.Source.Username = "cameras/door", "root"
	c, err := cameras.UpdateCamera(t.Context(), &vedettev1.UpdateCameraRequest{Camera: camera, UpdateMask: star})
	if err != nil || c.GetDisplayName() != "" || len(c.GetLabels()) != 0 || !c.GetSource().GetPasswordSet() || c.GetSource().GetUri() == "" {
		t.Errorf("camera %v, %v", c, err)
	}
	zone := &vedettev1.Zone{DisplayName: "Mat", Classes: []string{"person"}, Polygon: []*vedettev1.Point{{X: 0.1, Y: 0.1}, {X: 0.9, Y: 0.1}, {X: 0.5, Y: 0.9}}}
	if zone, err = rules.CreateZone(t.Context(), &vedettev1.CreateZoneRequest{Parent: "cameras/door", ZoneId: "mat", Zone: zone}); err != nil {
		t.Fatal(err)
	}
	z, err := rules.UpdateZone(t.Context(), &vedettev1.UpdateZoneRequest{Zone: &vedettev1.Zone{Name: zone.GetName(), Polygon: zone.GetPolygon()}, UpdateMask: star})
	if err != nil || z.GetDisplayName() != "" || len(z.GetClasses()) != 0 || z.GetUid() != zone.GetUid() {
		t.Errorf("zone %v, %v", z, err)
	}
	if z, err := rules.UpdateZone(t.Context(), &vedettev1.UpdateZoneRequest{Zone: &vedettev1.Zone{Name: zone.GetName()}, UpdateMask: star}); reason(err) != "INVALID_ARGUMENT" {
		t.Errorf("a zone without a polygon: %v, %v", z, err)
	}
	hook := &vedettev1.Sink_Webhook{Webhook: &vedettev1.WebhookTarget{Uri: "https://h/x"}}
	if _, err := sinks.CreateSink(t.Context(), &vedettev1.CreateSinkRequest{SinkId: "hook", Sink: &vedettev1.Sink{Target: hook, Types: []string{"x"}, Secret: "k3y", Disabled: true}}); err != nil {
		t.Fatal(err)
	}
	s, err := sinks.UpdateSink(t.Context(), &vedettev1.UpdateSinkRequest{Sink: &vedettev1.Sink{Name: "sinks/hook", Target: hook, Disabled: true}, UpdateMask: star})
	if err != nil || len(s.GetTypes()) != 0 || !s.GetSecretSet() || s.GetWebhook().GetUri() != "https://h/x" {
		t.Errorf("sink %v, %v", s, err)
	}
}

func TestHeartbeatsComeWhileThingsHappen(t *testing.T) {
	b := start(t, false, album{})
	seq, now := b.sequence(), time.Now().UTC()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w, err := vedettev1.NewAnalyticsServiceClient(b.local).WatchAnalytics(ctx, &vedettev1.WatchAnalyticsRequest{HeartbeatInterval: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	for {
		b.seen(seq, 1, now, store.TrackActive)
		m, err := w.Recv()
		if err != nil {
			t.Fatalf("no heartbeat: %v", err)
		}
		if beat := m.GetHeartbeat(); beat != nil {
			if beat.GetResumeToken() == "" {
				t.Error("a heartbeat without a token")
			}
			return
		}
	}
}
