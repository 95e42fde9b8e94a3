package api_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/store"
)

func TestATokenForSomeCamerasSeesNothingOfOthers(t *testing.T) {
	b := start(t, false, album{})
	b.add("door")
	b.add("yard")
	made, err := vedettev1.NewTokenServiceClient(b.local).CreateToken(t.Context(), &vedettev1.CreateTokenRequest{
		Token: &vedettev1.Token{User: "guard", Role: "operator", Cameras: []string{"cameras/door"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+made.GetSecret())
	client := vedettev1.NewCameraServiceClient(b.tcp)

	list, err := client.ListCameras(ctx, &vedettev1.ListCamerasRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.GetCameras()) != 1 || list.GetCameras()[0].GetName() != "cameras/door" {
		t.Errorf("listed %v, want the door alone", list.GetCameras())
	}
	if _, err := client.GetCamera(ctx, &vedettev1.GetCameraRequest{Name: "cameras/door"}); err != nil {
		t.Errorf("its own camera is refused: %v", err)
	}
	_, other := client.GetCamera(ctx, &vedettev1.GetCameraRequest{Name: "cameras/yard"})
	_, absent := client.GetCamera(ctx, &vedettev1.GetCameraRequest{Name: "cameras/nowhere"})
	if status.Code(other) != codes.NotFound || other.Error() != absent.Error() {
		t.Errorf("another camera answers %v, one that is not there %v: they must not differ", other, absent)
	}
	if _, err := client.DisableCamera(ctx, &vedettev1.DisableCameraRequest{Name: "cameras/yard"}); status.Code(err) != codes.NotFound {
		t.Errorf("switched another camera: %v", err)
	}

	for path, want := range map[string]int{"/v1/cameras/door/snapshot.jpg": http.StatusOK, "/v1/cameras/yard/snapshot.jpg": http.StatusNotFound} {
		if resp, body := b.do(http.MethodGet, path, "", "Authorization", "Bearer "+made.GetSecret()); resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", path, resp.StatusCode, body, want)
		}
	}
	if _, body := b.do(http.MethodGet, "/v1/cameras", "", "Authorization", "Bearer "+made.GetSecret()); strings.Contains(body, "yard") {
		t.Errorf("JSON tells of another camera: %s", body)
	}

	watch, err := client.WatchCameras(ctx, &vedettev1.WatchCamerasRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for synced := false; !synced; {
		m, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(m.String(), "yard") {
			t.Errorf("the watch tells of another camera: %v", m)
		}
		synced = strings.Contains(m.String(), "synced")
	}
}

func TestPagesOfATokenForSomeCamerasTellNothingOfOthers(t *testing.T) {
	b := start(t, false, album{})
	rules := vedettev1.NewRuleServiceClient(b.local)
	now := time.Now().UTC()
	var batch store.Batch
	for i, id := range []string{"attic", "door", "garden", "hall", "yard"} { // others before, between and after its own
		b.add(id)
		parent := "cameras/" + id
		triangle := []*vedettev1.Point{{X: 0.1, Y: 0.1}, {X: 0.9, Y: 0.1}, {X: 0.5, Y: 0.9}}
		_, err := rules.CreateZone(t.Context(), &vedettev1.CreateZoneRequest{Parent: parent, ZoneId: "mat", Zone: &vedettev1.Zone{Polygon: triangle}})
		if err == nil {
			_, err = rules.CreateLine(t.Context(), &vedettev1.CreateLineRequest{Parent: parent, LineId: "sill", Line: &vedettev1.Line{Start: triangle[0], End: triangle[1]}})
		}
		if err != nil {
			t.Fatal(err)
		}
		seq, err := b.store.OpenSequence(t.Context(), store.Sequence{Camera: id, StreamEpoch: "e", Model: "pipeline", OpenReason: "TEST", OpenedAt: now})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			at := now.Add(time.Duration(5*n+i) * time.Millisecond)
			o := store.Object{Local: int64(n + 1), Class: "person", Score: 0.9, Box: store.Box{X2: 0.5, Y2: 0.5}}
			batch.Frames = append(batch.Frames, store.Frame{Sequence: seq, Camera: id, CaptureTime: at, Number: int64(n), Objects: []store.Object{o}})
			batch.Tracks = append(batch.Tracks, store.Track{ID: store.TrackID{Sequence: seq, Local: o.Local}, Camera: id, Class: o.Class, Start: at, End: at, State: store.TrackEnded, Score: o.Score, Box: o.Box})
			batch.Events = append(batch.Events, store.Event{Camera: id, Type: "zone_entered", Time: at, Payload: []byte(`{"zone":"cameras/` + id + `/zones/mat","class":"person"}`)})
		}
	}
	batch.Events = append(batch.Events, store.Event{Type: "load_changed", Time: now})
	committed, err := b.store.Append(t.Context(), batch)
	if err == nil {
		err = <-committed
	}
	if err != nil {
		t.Fatal(err)
	}
	made, err := vedettev1.NewTokenServiceClient(b.local).CreateToken(t.Context(), &vedettev1.CreateTokenRequest{
		Token: &vedettev1.Token{User: "guard", Role: "viewer", Cameras: []string{"cameras/door", "cameras/hall"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{ // what a list has in all
		"/v1/cameras": 2, "/v1/cameras/-/zones": 2, "/v1/cameras/-/lines": 2, "/v1/tracks": 4, "/v1/detections": 4, "/v1/cameras/-/tracks": 4,
		"/v1/events":                                                     4 + 1, // the box's own, which is about no camera
		"/v1/events?filter=camera%3Ddoor":                                2,
		"/v1/events?filter=camera%3Dyard":                                0,
		"/v1/tracks?filter=camera%3Dyard":                                0,
		"/v1/events?filter=class%3Dperson":                               4,
		"/v1/events?filter=(camera%3Dyard%20OR%20camera%3Dhall)":         2,
		"/v1/events?filter=zone%3D%22cameras%2Fyard%2Fzones%2Fmat%22":    0,
		"/v1/detections?filter=(camera%3Dyard%20OR%20camera%3Dattic)":    0,
		"/v1/detections?filter=time%3E%3D%222026-01-01T00%3A00%3A00Z%22": 4,
	} {
		n := 0
		for token, pages := "", 0; ; pages++ {
			u, err := url.Parse(path)
			if err != nil {
				t.Fatal(err)
			}
			q := u.Query()
			q.Set("page_size", "1")
			q.Set("page_token", token)
			u.RawQuery = q.Encode()
			resp, body := b.do(http.MethodGet, u.String(), "", "Authorization", "Bearer "+made.GetSecret())
			var list map[string]json.RawMessage
			if err := json.Unmarshal([]byte(body), &list); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d %s", u, resp.StatusCode, body)
			}
			var rows []json.RawMessage
			token = ""
			for k, v := range list {
				if k == "nextPageToken" {
					err = json.Unmarshal(v, &token)
				} else {
					err = json.Unmarshal(v, &rows)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			n += len(rows)
			told, err := base64.RawURLEncoding.DecodeString(token)
			if err != nil {
				t.Fatal(err)
			}
			if whole := body + string(told); strings.Contains(whole, "attic") || strings.Contains(whole, "garden") || strings.Contains(whole, "yard") {
				t.Errorf("%s tells of another camera: %s (its token: %q)", u, body, told)
			}
			if token == "" {
				break
			}
			if len(rows) != 1 || pages > want {
				t.Fatalf("page %d of %s has %d rows, and there is another: that tells of others", pages, path, len(rows))
			}
		}
		if n != want {
			t.Errorf("%s lists %d, want %d", path, n, want)
		}
	}
}

func TestTokensAreMadeListedAndRevoked(t *testing.T) {
	b := start(t, false, album{})
	tokens := vedettev1.NewTokenServiceClient(b.tcp)
	if _, err := tokens.ListTokens(b.as(api.Operator), &vedettev1.ListTokensRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an operator lists tokens: %v", err)
	}
	made, err := tokens.CreateToken(b.as(api.Admin), &vedettev1.CreateTokenRequest{
		Token: &vedettev1.Token{User: "ci", Role: "viewer"}, Ttl: durationpb.New(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+made.GetSecret())
	look := func() error {
		_, err := vedettev1.NewCameraServiceClient(b.tcp).ListCameras(ctx, &vedettev1.ListCamerasRequest{})
		return err
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	list, err := tokens.ListTokens(b.as(api.Admin), &vedettev1.ListTokensRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if text := list.String(); strings.Contains(text, made.GetSecret()) || !strings.Contains(text, made.GetToken().GetName()) {
		t.Errorf("the list is %s", text)
	}
	if _, err := tokens.RevokeToken(b.as(api.Admin), &vedettev1.RevokeTokenRequest{Name: made.GetToken().GetName()}); err != nil {
		t.Fatal(err)
	}
	if err := look(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a revoked token: %v", err)
	}
	for _, bad := range []*vedettev1.Token{
		{User: "x", Role: "king"},
		{Role: "viewer"},
		{User: "x", Role: "viewer", Cameras: []string{"door"}},
		{User: "x", Role: "admin", Cameras: []string{"cameras/door"}},
	} {
		if _, err := tokens.CreateToken(b.as(api.Admin), &vedettev1.CreateTokenRequest{Token: bad}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v, want INVALID_ARGUMENT", bad, err)
		}
	}
}

func TestProfilesAreForAdmins(t *testing.T) {
	b := start(t, true, album{}) // even where anybody may look
	for role, want := range map[api.Role]int{"": http.StatusUnauthorized, api.Operator: http.StatusForbidden, api.Admin: http.StatusOK} {
		var header []string
		if role != "" {
			header = []string{"Authorization", "Bearer " + b.tokens[role]}
		}
		resp, body := b.do(http.MethodGet, "/debug/pprof/goroutine?debug=1", "", header...)
		if role == "" && resp.StatusCode == http.StatusForbidden { // a visitor is a viewer
			continue
		}
		if resp.StatusCode != want || (want == http.StatusOK) != strings.Contains(body, "goroutine profile") {
			t.Errorf("%q: %d %.60s, want %d", role, resp.StatusCode, body, want)
		}
	}
}
