package api_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
)

const goodPassword = "correct horse battery"

func (b *box) user(id, role string, names ...string) {
	b.t.Helper()
	_, err := vedettev1.NewUserServiceClient(b.local).CreateUser(b.t.Context(), &vedettev1.CreateUserRequest{
		UserId: id, User: &vedettev1.User{Role: role, Cameras: names, Password: goodPassword},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// logIn returns a context that carries a session of a user.
func (b *box) logIn(id, password string) context.Context {
	b.t.Helper()
	in, err := vedettev1.NewUserServiceClient(b.tcp).LogIn(b.t.Context(), &vedettev1.LogInRequest{User: id, Password: password})
	if err != nil {
		b.t.Fatal(err)
	}
	return metadata.AppendToOutgoingContext(b.t.Context(), "authorization", "Bearer "+in.GetSecret())
}

func TestPeopleLogInAndSeeWhatTheyMay(t *testing.T) {
	b := start(t, false, album{})
	b.add("door")
	b.add("yard")
	b.user("anna", "operator", "cameras/door")
	ctx := b.logIn("Anna", goodPassword)
	users, cams := vedettev1.NewUserServiceClient(b.tcp), vedettev1.NewCameraServiceClient(b.tcp)

	me, err := users.GetSession(ctx, &vedettev1.GetSessionRequest{})
	if err != nil || me.GetUser() != "users/anna" || me.GetRole() != "operator" || len(me.GetCameras()) != 1 || me.GetExpireTime() == nil {
		t.Errorf("session %v, %v", me, err)
	}
	if list, err := cams.ListCameras(ctx, &vedettev1.ListCamerasRequest{}); err != nil || len(list.GetCameras()) != 1 {
		t.Errorf("cameras %v, %v", list, err)
	}
	if _, err := users.ListUsers(ctx, &vedettev1.ListUsersRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an operator lists users: %v", err)
	}
	// The same over JSON, where the session may be opened too, and nothing tells a password.
	resp, body := b.do(http.MethodPost, "/v1/session:logIn", `{"user":"anna","password":"`+goodPassword+`"}`)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"secret":"vedette_`) {
		t.Fatalf("JSON: %d %s", resp.StatusCode, body)
	}
	resp, body = b.do(http.MethodGet, "/v1/users", "", "Authorization", "Bearer "+b.tokens[api.Admin])
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "users/anna") || strings.Contains(body, "argon2") || strings.Contains(body, goodPassword) {
		t.Errorf("users as JSON: %d %s", resp.StatusCode, body)
	}
	tokens, err := vedettev1.NewTokenServiceClient(b.local).ListTokens(t.Context(), &vedettev1.ListTokensRequest{})
	if err != nil || len(tokens.GetTokens()) != len(b.tokens) {
		t.Errorf("sessions are listed as tokens: %v, %v", tokens, err)
	}

	// Rights change at once, without a new session where the session may go on.
	if _, err := users.LogOut(ctx, &vedettev1.LogOutRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cams.ListCameras(ctx, &vedettev1.ListCamerasRequest{}); reason(err) != "TOKEN_INVALID" {
		t.Errorf("after logging out: %v", err)
	}
}

func TestFaultsOfUsersAreTold(t *testing.T) {
	b := start(t, false, album{})
	b.user("anna", "viewer")
	users := vedettev1.NewUserServiceClient(b.local)
	for name, c := range map[string]struct {
		call func() error
		want string
	}{
		"a role there is not": {func() error {
			_, err := users.CreateUser(t.Context(), &vedettev1.CreateUserRequest{UserId: "bob", User: &vedettev1.User{Role: "king", Password: goodPassword}})
			return err
		}, "user.role"},
		"a short password": {func() error {
			_, err := users.CreateUser(t.Context(), &vedettev1.CreateUserRequest{UserId: "bob", User: &vedettev1.User{Role: "viewer", Password: "short"}})
			return err
		}, "user.password"},
		"a name as password": {func() error {
			_, err := users.CreateUser(t.Context(), &vedettev1.CreateUserRequest{UserId: "bobthebuilder", User: &vedettev1.User{Role: "viewer", Password: "BobTheBuilder1"}})
			return err
		}, "user.password"},
		"a name with a slash": {func() error {
			_, err := users.CreateUser(t.Context(), &vedettev1.CreateUserRequest{UserId: "a/b", User: &vedettev1.User{Role: "viewer", Password: goodPassword}})
			return err
		}, "user_id"},
		"an admin for some cameras": {func() error {
			_, err := users.CreateUser(t.Context(), &vedettev1.CreateUserRequest{UserId: "bob", User: &vedettev1.User{Role: "admin", Cameras: []string{"cameras/door"}, Password: goodPassword}})
			return err
		}, "user.cameras"},
		"a name that is taken": {func() error {
			_, err := users.CreateUser(t.Context(), &vedettev1.CreateUserRequest{UserId: "anna", User: &vedettev1.User{Role: "viewer", Password: goodPassword}})
			return err
		}, "exists"},
		"nobody": {func() error {
			_, err := users.DeleteUser(t.Context(), &vedettev1.DeleteUserRequest{Name: "users/bob"})
			return err
		}, "not found"},
		"a field there is not": {func() error {
			_, err := users.UpdateUser(t.Context(), &vedettev1.UpdateUserRequest{User: &vedettev1.User{Name: "users/anna"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"name"}}})
			return err
		}, "update_mask"},
		"a password of no person": {func() error {
			_, err := users.ChangePassword(t.Context(), &vedettev1.ChangePasswordRequest{Password: goodPassword, NewPassword: goodPassword + "2"})
			return err
		}, "no person"},
	} {
		if err := c.call(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestWrongPasswordsHaveToWait(t *testing.T) {
	b := start(t, false, album{})
	b.user("anna", "viewer")
	users := vedettev1.NewUserServiceClient(b.tcp)
	try := func(user, password string) string {
		_, err := users.LogIn(t.Context(), &vedettev1.LogInRequest{User: user, Password: password})
		return reason(err)
	}
	for i := range 4 {
		// Whether there is such a user is not told.
		if r := try([]string{"anna", "nobody"}[i%2], "wrong"); r != "PASSWORD_WRONG" {
			t.Errorf("attempt %d: %s", i, r)
		}
	}
	if r := try("anna", goodPassword); r != "" {
		t.Errorf("the right password after four wrong ones: %s", r)
	}
	for range 20 {
		if try("anna", "wrong") == "TOO_MANY_ATTEMPTS" {
			if r := try("anna", goodPassword); r != "TOO_MANY_ATTEMPTS" {
				t.Errorf("the right password does not wait: %q", r)
			}
			return
		}
	}
	t.Error("twenty wrong passwords in a row were not slowed down")
}

// What is open ends when the right to it ends: streams of gRPC and of the page alike.
func TestTheEndOfARightEndsWhatIsOpen(t *testing.T) {
	b := start(t, false, album{})
	b.add("door")
	users, tokens := vedettev1.NewUserServiceClient(b.local), vedettev1.NewTokenServiceClient(b.local)
	watch := func(ctx context.Context) <-chan error {
		t.Helper()
		w, err := vedettev1.NewCameraServiceClient(b.tcp).WatchCameras(ctx, &vedettev1.WatchCamerasRequest{})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		var first sync.WaitGroup
		first.Add(1)
		go func() {
			_, err := w.Recv()
			first.Done()
			for err == nil {
				_, err = w.Recv()
			}
			ended <- err
		}()
		first.Wait()
		return ended
	}
	expect := func(what string, ended <-chan error) {
		t.Helper()
		select {
		case err := <-ended:
			if reason(err) != "TOKEN_INVALID" {
				t.Errorf("%s: the stream ended with %v", what, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: the stream goes on", what)
		}
	}

	made, err := tokens.CreateToken(t.Context(), &vedettev1.CreateTokenRequest{Token: &vedettev1.Token{User: "wall", Role: "viewer"}})
	if err != nil {
		t.Fatal(err)
	}
	byToken := watch(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+made.GetSecret()))
	if _, err := tokens.RevokeToken(t.Context(), &vedettev1.RevokeTokenRequest{Name: made.GetToken().GetName()}); err != nil {
		t.Fatal(err)
	}
	expect("a revoked token", byToken)

	b.user("anna", "viewer")
	updated := watch(b.logIn("anna", goodPassword))
	if _, err := users.UpdateUser(t.Context(), &vedettev1.UpdateUserRequest{User: &vedettev1.User{Name: "users/anna", Cameras: []string{"cameras/yard"}}}); err != nil {
		t.Fatal(err)
	}
	expect("narrower rights", updated)

	leaving := b.logIn("anna", goodPassword)
	left := watch(leaving)
	if _, err := vedettev1.NewUserServiceClient(b.tcp).LogOut(leaving, &vedettev1.LogOutRequest{}); err != nil {
		t.Fatal(err)
	}
	expect("a logout", left)

	mine, other := b.logIn("anna", goodPassword), b.logIn("anna", goodPassword)
	elsewhere := watch(other)
	if _, err := vedettev1.NewUserServiceClient(b.tcp).ChangePassword(mine, &vedettev1.ChangePasswordRequest{Password: goodPassword, NewPassword: goodPassword + " staple"}); err != nil {
		t.Fatal(err)
	}
	expect("another session after a change of password", elsewhere)
	if _, err := vedettev1.NewUserServiceClient(b.tcp).GetSession(mine, &vedettev1.GetSessionRequest{}); err != nil {
		t.Errorf("the session that changed the password: %v", err)
	}

	deleted := watch(mine)
	if _, err := users.DeleteUser(t.Context(), &vedettev1.DeleteUserRequest{Name: "users/anna"}); err != nil {
		t.Fatal(err)
	}
	expect("a deleted user", deleted)
}

func TestAClientThatAsksTooMuchIsSlowedDown(t *testing.T) {
	b := start(t, false, album{})
	client := vedettev1.NewSystemServiceClient(b.tcp)
	var wg sync.WaitGroup
	var mu sync.Mutex
	refused := map[string]int{}
	for range 8 {
		wg.Go(func() {
			for range 300 {
				_, err := client.GetSystem(b.as(api.Viewer), &vedettev1.GetSystemRequest{})
				mu.Lock()
				refused[reason(err)]++
				enough := refused["TOO_MANY_REQUESTS"] > 0
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	wg.Wait()
	if refused[""] < 300 || refused["TOO_MANY_REQUESTS"] == 0 {
		t.Skipf("this machine is too slow to ask too much: %v", refused)
	}
	// Others go on.
	if _, err := client.GetSystem(b.as(api.Operator), &vedettev1.GetSystemRequest{}); err != nil {
		t.Errorf("another client: %v", err)
	}
}
