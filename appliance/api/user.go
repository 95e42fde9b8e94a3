package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/store"
)

type userService struct {
	vedettev1.UnimplementedUserServiceServer
	cfg  *Config
	gate *gate
	door *door
}

var userForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]{0,63}$`)

func userID(field, name string) (string, error) {
	id, ok := strings.CutPrefix(name, "users/")
	if !ok || !userForm.MatchString(id) {
		return "", invalid(field, "%q is not of the form users/{user}", name)
	}
	return id, nil
}

// accessOf reads what somebody is to be allowed.
func accessOf(field, role string, names []string) (access, error) {
	a := access{Role: Role(role)}
	if a.Role.rank() == 0 {
		return access{}, invalid(field+".role", "%q is not viewer, operator or admin", role)
	}
	for i, name := range names {
		id, err := cameras.ID(name)
		if err != nil {
			return access{}, invalid(fmt.Sprintf("%s.cameras[%d]", field, i), "%q is not of the form cameras/{camera}", name)
		}
		a.Cameras = append(a.Cameras, id)
	}
	if a.scoped() && a.Role == Admin {
		return access{}, invalid(field+".cameras", "an admin is for all cameras: leave them out, or choose operator")
	}
	return a, nil
}

func checkPassword(field, password, user string) error {
	switch n := utf8.RuneCountInString(password); {
	case n < 10 || n > 256 || !utf8.ValidString(password):
		return invalid(field, "it must have between 10 and 256 characters")
	case strings.Contains(strings.ToLower(password), user) && n < len(user)+6:
		return invalid(field, "it is little more than the user's name")
	}
	return nil
}

// CreateUser implements vedettev1.UserServiceServer.
func (s *userService) CreateUser(ctx context.Context, req *vedettev1.CreateUserRequest) (*vedettev1.User, error) {
	want := req.GetUser()
	id, err := userID("user_id", "users/"+req.GetUserId())
	if err != nil {
		return nil, invalid("user_id", "it must have 1 to 64 lower-case letters, digits, and . _ - @")
	}
	a, err := accessOf("user", want.GetRole(), want.GetCameras())
	if err != nil {
		return nil, err
	}
	if err := checkPassword("user.password", want.GetPassword(), id); err != nil {
		return nil, err
	}
	kept, err := s.door.hash(want.GetPassword())
	if err != nil {
		return nil, err
	}
	r, err := s.cfg.Store.Create(ctx, store.Users, store.Resource{Name: id, Spec: a.spec(), Secret: kept, Enabled: !want.GetDisabled()})
	if err != nil {
		return nil, err
	}
	return userView(r)
}

// ListUsers implements vedettev1.UserServiceServer.
func (s *userService) ListUsers(ctx context.Context, _ *vedettev1.ListUsersRequest) (*vedettev1.ListUsersResponse, error) {
	resp := &vedettev1.ListUsersResponse{}
	for token := ""; ; {
		list, next, err := s.cfg.Store.List(ctx, store.Users, "", 1000, token)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			u, err := userView(r)
			if err != nil {
				return nil, err
			}
			resp.Users = append(resp.Users, u)
		}
		if token = next; token == "" {
			return resp, nil
		}
	}
}

// UpdateUser implements vedettev1.UserServiceServer.
func (s *userService) UpdateUser(ctx context.Context, req *vedettev1.UpdateUserRequest) (*vedettev1.User, error) {
	want := req.GetUser()
	id, err := userID("user.name", want.GetName())
	if err != nil {
		return nil, err
	}
	r, err := s.cfg.Store.Get(ctx, store.Users, id)
	if err != nil {
		return nil, err
	}
	a, err := parseAccess(r.Spec)
	if err != nil {
		return nil, err
	}
	role, names := string(a.Role), a.names()
	r.Secret = nil // stays as it is
	paths := req.GetUpdateMask().GetPaths()
	if len(paths) == 0 {
		for path, set := range map[string]bool{"role": want.GetRole() != "", "cameras": len(want.GetCameras()) > 0, "password": want.GetPassword() != "", "disabled": want.GetDisabled()} {
			if set {
				paths = append(paths, path)
			}
		}
	}
	if slices.Equal(paths, []string{"*"}) { // the whole user; the password stays unless there is one
		paths = []string{"role", "cameras", "disabled"}
		if want.GetPassword() != "" {
			paths = append(paths, "password")
		}
	}
	for _, path := range paths {
		switch path {
		case "role":
			role = want.GetRole()
		case "cameras":
			names = want.GetCameras()
		case "disabled":
			r.Enabled = !want.GetDisabled()
		case "password":
			if err := checkPassword("user.password", want.GetPassword(), id); err != nil {
				return nil, err
			}
			if r.Secret, err = s.door.hash(want.GetPassword()); err != nil {
				return nil, err
			}
		default:
			return nil, invalid("update_mask", "%q is not role, cameras, password or disabled", path)
		}
	}
	if a, err = accessOf("user", role, names); err != nil {
		return nil, err
	}
	r.Spec, r.Etag = a.spec(), ""
	if r, err = s.cfg.Store.Update(ctx, store.Users, r); err != nil {
		return nil, err
	}
	if err := s.endSessions(ctx, id, ""); err != nil {
		return nil, err
	}
	return userView(r)
}

// DeleteUser implements vedettev1.UserServiceServer.
func (s *userService) DeleteUser(ctx context.Context, req *vedettev1.DeleteUserRequest) (*vedettev1.DeleteUserResponse, error) {
	id, err := userID("name", req.GetName())
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Store.Delete(ctx, store.Users, id, ""); err != nil {
		return nil, err
	}
	return &vedettev1.DeleteUserResponse{}, s.endSessions(ctx, id, "")
}

// endSessions ends the sessions of a user and what is under way in them, but for one of them.
func (s *userService) endSessions(ctx context.Context, user, spared string) error {
	defer s.gate.calls.endUser(user, spared)
	list, err := s.cfg.Store.ListTokens(ctx, sessionUser(user))
	if err != nil {
		return err
	}
	for _, t := range list {
		if t.ID != spared {
			if err := s.cfg.Store.DeleteToken(ctx, t.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// sessionUser is whom the store keeps sessions for; no token for a program can be called so.
func sessionUser(user string) string { return "users/" + user }

// LogIn implements vedettev1.UserServiceServer.
func (s *userService) LogIn(ctx context.Context, req *vedettev1.LogInRequest) (*vedettev1.LogInResponse, error) {
	user := strings.ToLower(strings.TrimSpace(req.GetUser()))
	if len(user) > 64 || len(req.GetPassword()) > 4*256 {
		user = "" // nobody's
	}
	address := addressOf(ctx)
	if err := s.door.open(ctx, user, req.GetPassword(), "user "+user, "address "+address); err != nil {
		s.cfg.Logger.WarnContext(ctx, "login refused", slog.String("address", address), slog.Any("err", err))
		return nil, err
	}
	now := s.cfg.Now()
	if err := s.forgetExpired(ctx, user, now); err != nil {
		return nil, err
	}
	secret := "vedette_" + random()
	t, err := s.cfg.Store.CreateToken(ctx, store.Token{
		User: sessionUser(user), Hash: hash(secret), Spec: access{Login: user}.spec(), ExpireTime: now.Add(sessionTTL),
	})
	if err != nil {
		return nil, err
	}
	a, err := s.gate.userOf(ctx, user)
	if err != nil {
		return nil, err
	}
	a.Login, a.expire = user, t.ExpireTime
	s.cfg.Logger.InfoContext(ctx, "login", slog.String("user", user), slog.String("address", address))
	detail, _ := json.Marshal(auditDetail{Peer: peerOf(ctx)}) // strings alone
	if err := s.cfg.Store.Audit(ctx, store.AuditEntry{Actor: sessionUser(user), Action: "LogIn", Resource: sessionUser(user), Outcome: "OK", Detail: detail}); err != nil {
		return nil, err
	}
	return &vedettev1.LogInResponse{Secret: secret, Session: sessionView(a)}, nil
}

// maxSessions is how many sessions of one user there are at most; the oldest go first.
const maxSessions = 50

// forgetExpired removes sessions of a user that have ended by themselves, and the oldest of too many.
func (s *userService) forgetExpired(ctx context.Context, user string, now time.Time) error {
	list, err := s.cfg.Store.ListTokens(ctx, sessionUser(user))
	if err != nil {
		return err
	}
	var oldest *store.Token
	live := 0
	for i, t := range list {
		if !now.Before(t.ExpireTime) {
			if err := s.cfg.Store.DeleteToken(ctx, t.ID); err != nil {
				return err
			}
			continue
		}
		live++
		if oldest == nil || t.CreateTime.Before(oldest.CreateTime) {
			oldest = &list[i]
		}
	}
	if live < maxSessions {
		return nil
	}
	s.gate.calls.endToken(oldest.ID)
	return s.cfg.Store.DeleteToken(ctx, oldest.ID)
}

// LogOut implements vedettev1.UserServiceServer.
func (s *userService) LogOut(ctx context.Context, _ *vedettev1.LogOutRequest) (*vedettev1.LogOutResponse, error) {
	a, err := s.gate.access(ctx)
	if err != nil {
		return nil, err
	}
	if a.Login == "" {
		return &vedettev1.LogOutResponse{}, nil // a token for a program is ended by RevokeToken
	}
	defer s.gate.calls.endToken(a.token)
	return &vedettev1.LogOutResponse{}, s.cfg.Store.DeleteToken(ctx, a.token)
}

// GetSession implements vedettev1.UserServiceServer.
func (s *userService) GetSession(ctx context.Context, _ *vedettev1.GetSessionRequest) (*vedettev1.Session, error) {
	a, err := s.gate.access(ctx)
	if err != nil {
		return nil, err
	}
	return sessionView(a), nil
}

// ChangePassword implements vedettev1.UserServiceServer.
func (s *userService) ChangePassword(ctx context.Context, req *vedettev1.ChangePasswordRequest) (*vedettev1.ChangePasswordResponse, error) {
	a, err := s.gate.access(ctx)
	if err != nil {
		return nil, err
	}
	if a.Login == "" {
		return nil, invalid("password", "this client is no person who logged in")
	}
	if err := s.door.open(ctx, a.Login, req.GetPassword(), "user "+a.Login); err != nil {
		return nil, err
	}
	if err := checkPassword("new_password", req.GetNewPassword(), a.Login); err != nil {
		return nil, err
	}
	r, err := s.cfg.Store.Get(ctx, store.Users, a.Login)
	if err != nil {
		return nil, err
	}
	if r.Secret, err = s.door.hash(req.GetNewPassword()); err != nil {
		return nil, err
	}
	if _, err := s.cfg.Store.Update(ctx, store.Users, r); err != nil {
		return nil, err
	}
	return &vedettev1.ChangePasswordResponse{}, s.endSessions(ctx, a.Login, a.token)
}

func sessionView(a access) *vedettev1.Session {
	v := &vedettev1.Session{Role: string(a.Role), Cameras: a.names()}
	if a.Login != "" {
		v.User = "users/" + a.Login
	}
	if !a.expire.IsZero() {
		v.ExpireTime = timestamppb.New(a.expire)
	}
	return v
}

func userView(r store.Resource) (*vedettev1.User, error) {
	a, err := parseAccess(r.Spec)
	if err != nil {
		return nil, err
	}
	return &vedettev1.User{
		Name: "users/" + r.Name, Role: string(a.Role), Cameras: a.names(), Disabled: !r.Enabled,
		CreateTime: timestamppb.New(r.CreateTime), UpdateTime: timestamppb.New(r.UpdateTime),
	}, nil
}
