package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
)

func (b *box) audit(filter string) []*vedettev1.AuditEntry {
	b.t.Helper()
	r, err := vedettev1.NewSystemServiceClient(b.local).ListAuditEntries(context.Background(), &vedettev1.ListAuditEntriesRequest{Filter: filter})
	if err != nil {
		b.t.Fatal(err)
	}
	return r.GetAuditEntries()
}

func TestEveryChangeIsWrittenDown(t *testing.T) {
	b := start(t, false, album{})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+b.tokens[api.Admin])
	cameras := vedettev1.NewCameraServiceClient(b.tcp)
	camera := &vedettev1.Camera{Source: &vedettev1.Source{Uri: "rtsp://10.0.0.9/x", Username: "root", Password: "canary-17"}}
	if _, err := cameras.CreateCamera(ctx, &vedettev1.CreateCameraRequest{CameraId: "door", Camera: camera}); err != nil {
		t.Fatal(err)
	}
	if _, err := cameras.CreateCamera(ctx, &vedettev1.CreateCameraRequest{CameraId: "hall", Camera: camera, ValidateOnly: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := cameras.GetCamera(ctx, &vedettev1.GetCameraRequest{Name: "cameras/door"}); err != nil {
		t.Fatal(err)
	}
	if _, err := cameras.DeleteCamera(ctx, &vedettev1.DeleteCameraRequest{Name: "cameras/door", Etag: "old"}); err == nil {
		t.Fatal("an old etag passed")
	}
	viewer := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+b.tokens[api.Viewer])
	if _, err := cameras.DisableCamera(viewer, &vedettev1.DisableCameraRequest{Name: "cameras/door"}); err == nil {
		t.Fatal("a viewer disabled a camera")
	}
	if _, err := cameras.DisableCamera(t.Context(), &vedettev1.DisableCameraRequest{Name: "cameras/door"}); err == nil {
		t.Fatal("a stranger disabled a camera")
	}
	list := b.audit("")
	var got []string
	for _, e := range list {
		got = append(got, strings.Join([]string{e.GetActor(), e.GetPeer(), e.GetMethod(), e.GetResource(), e.GetOutcome()}, " "))
		if strings.Contains(e.String(), "canary-17") {
			t.Errorf("an entry tells the password: %s", e)
		}
	}
	want := []string{
		"someone 127.0.0.1 DisableCamera cameras/door ROLE_TOO_LOW",
		"someone 127.0.0.1 DeleteCamera cameras/door ETAG_MISMATCH",
		"someone 127.0.0.1 CreateCamera cameras/door OK",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("written down:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !strings.Contains(list[2].GetRequest(), "rtsp://10.0.0.9/x") {
		t.Errorf("the request is %s", list[2].GetRequest())
	}
	if n := len(b.audit(`method = "CreateCamera" AND outcome = "OK" AND actor = "someone"`)); n != 1 {
		t.Errorf("%d entries were found", n)
	}
	_, err := vedettev1.NewSystemServiceClient(b.tcp).ListAuditEntries(viewer, &vedettev1.ListAuditEntriesRequest{})
	wantReason(t, err, "ROLE_TOO_LOW")
}

func TestAuditTellsWhereAChangeOverHTTPCameFrom(t *testing.T) {
	b := start(t, false, album{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.http+"/v1/backups", strings.NewReader(`{"backup_id": "now"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.tokens[api.Admin])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s", resp.Status, text)
	}
	list := b.audit("")
	if len(list) != 1 || list[0].GetPeer() != "127.0.0.1" || list[0].GetResource() != "backups/now" {
		t.Errorf("written down: %v", list)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestBackupsAreMadeListedAndRemoved(t *testing.T) {
	b := start(t, false, album{})
	system := vedettev1.NewSystemServiceClient(b.local)
	made, err := system.CreateBackup(t.Context(), &vedettev1.CreateBackupRequest{BackupId: "before-the-move"})
	if err != nil {
		t.Fatal(err)
	}
	if made.GetName() != "backups/before-the-move" || made.GetFiles() < 1 || made.GetBytes() == 0 {
		t.Errorf("made %v", made)
	}
	_, err = system.CreateBackup(t.Context(), &vedettev1.CreateBackupRequest{BackupId: "before-the-move"})
	wantReason(t, err, "ALREADY_EXISTS")
	for _, bad := range []string{"../x", "UPPER", "-x", strings.Repeat("x", 64), "a/b", "."} {
		_, err = system.CreateBackup(t.Context(), &vedettev1.CreateBackupRequest{BackupId: bad})
		wantReason(t, err, "INVALID_ARGUMENT")
		_, err = system.DeleteBackup(t.Context(), &vedettev1.DeleteBackupRequest{Name: "backups/" + bad})
		wantReason(t, err, "INVALID_ARGUMENT")
	}
	if _, err := system.CreateBackup(t.Context(), &vedettev1.CreateBackupRequest{}); err != nil {
		t.Errorf("without a name: %v", err)
	}
	list, err := system.ListBackups(t.Context(), &vedettev1.ListBackupsRequest{})
	if err != nil || len(list.GetBackups()) != 2 || list.GetBackups()[1].GetName() != made.GetName() {
		t.Errorf("listed %v, %v", list, err)
	}
	if _, err := system.DeleteBackup(t.Context(), &vedettev1.DeleteBackupRequest{Name: made.GetName()}); err != nil {
		t.Error(err)
	}
	_, err = system.DeleteBackup(t.Context(), &vedettev1.DeleteBackupRequest{Name: made.GetName()})
	wantReason(t, err, "NOT_FOUND")
	sys, err := system.GetSystem(t.Context(), &vedettev1.GetSystemRequest{})
	if err != nil || sys.GetStorage().GetPressure() == vedettev1.DiskPressure_DISK_PRESSURE_UNSPECIFIED || sys.GetStorage().GetUsedBytes() == 0 {
		t.Errorf("storage %v, %v", sys.GetStorage(), err)
	}
}

func wantReason(t *testing.T, err error, want string) {
	t.Helper()
	if got := reason(err); got != want {
		t.Errorf("%v: reason %q, want %q", err, got, want)
	}
}

// Who signs in is one entry, whatever the call was let in as.
func TestASignInIsWrittenDownOnce(t *testing.T) {
	b := start(t, true, album{}) // a demonstration, which knows whoever calls from the box
	b.user("ann", "viewer")
	if resp, text := b.do("POST", "/v1/session:logIn", `{"user": "ann", "password": "`+goodPassword+`"}`); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, text)
	}
	if list := b.audit(`method = "LogIn"`); len(list) != 1 || list[0].GetActor() != "users/ann" || list[0].GetPeer() != "127.0.0.1" {
		t.Errorf("written down: %v", list)
	}
}
