package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
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
