package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

// Role is what a client may do; each includes the ones before it.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Admin    Role = "admin"
)

func (r Role) rank() int {
	switch r {
	case Viewer:
		return 1
	case Operator:
		return 2
	case Admin:
		return 3
	}
	return 0
}

// required is the role a method asks for: reading is for viewers, running cameras for operators, the rest
// for admins.
func required(method string) Role {
	_, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch {
	case name == "ListTokens", name == "ListUsers", name == "ListAuditEntries", name == "ListBackups",
		name == "ListFindings", name == "GetSupportBundle", // they tell of the machine
		name == "GetSink", name == "ListSinks", name == "ListDeadLetters": // the headers of a webhook may hold keys
		return Admin
	case name == "WatchUnmaskedVideo":
		return Operator
	case name == "TestRules", name == "QueryCounts", strings.HasPrefix(name, "Get"), strings.HasPrefix(name, "List"), strings.HasPrefix(name, "Watch"), name == "ServerReflectionInfo":
		return Viewer
	case name == "LogOut", name == "ChangePassword":
		return Viewer
	case name == "EnableCamera", name == "DisableCamera", name == "MeasureCapacity":
		return Operator
	}
	return Admin
}

// NewToken makes a token of a role and keeps its hash in the store. The token itself is kept nowhere.
func NewToken(ctx context.Context, s *store.Store, user string, role Role) (string, error) {
	token := "vedette_" + random()
	if _, err := s.CreateToken(ctx, store.Token{Hash: hash(token), User: user, Spec: []byte(role)}); err != nil {
		return "", fmt.Errorf("make a token for %s: %w", user, err)
	}
	return token, nil
}

func random() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// hash is a plain SHA-256: tokens are long random strings, so there is nothing to guess.
func hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// gate lets requests in.
type gate struct {
	store *store.Store
	now   func() time.Time
	// visitor is the token of this run that loopback clients of a demonstration are given; empty: none.
	visitor string

	calls calls
	paces paces
}

// open tells whether a method needs nobody's right.
func open(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.v1.Health/") || method == vedettev1.UserService_LogIn_FullMethodName
}

// check returns what the client may do, or the error the request is refused with.
func (g *gate) check(ctx context.Context, method string) (access, error) {
	if open(method) {
		return access{}, nil
	}
	a, err := g.access(ctx)
	if err != nil {
		return access{}, err
	}
	if want := required(method); a.Role.rank() < want.rank() {
		hint := "use a token of that role"
		if g.visitor != "" {
			hint = "the demonstration lets you look; to change something, use the token in the data directory's admin.token"
		}
		return access{}, &ReasonError{
			Code: codes.PermissionDenied, Reason: "ROLE_TOO_LOW",
			Message: fmt.Sprintf("%s needs the role %s, this client is %s", method[strings.LastIndexByte(method, '/')+1:], want, a.Role), Hint: hint,
		}
	}
	return a, nil
}

func (g *gate) access(ctx context.Context) (access, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) == 0 || values[0] == "" {
		return g.accessByPeer(ctx)
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return access{}, &ReasonError{Code: codes.Unauthenticated, Reason: "TOKEN_INVALID", Message: "the authorization is no bearer token", Hint: "send: authorization: Bearer TOKEN"}
	}
	token = strings.TrimSpace(token)
	if g.visitor != "" && token == g.visitor {
		return access{Actor: "visitor", Role: Viewer}, nil
	}
	t, err := g.store.TokenByHash(ctx, hash(token))
	if errors.Is(err, store.ErrNotFound) || (err == nil && !t.ExpireTime.IsZero() && !g.now().Before(t.ExpireTime)) {
		return access{}, &ReasonError{Code: codes.Unauthenticated, Reason: "TOKEN_INVALID", Message: "the token is unknown or has expired"}
	}
	if err != nil {
		return access{}, fmt.Errorf("check a token: %w", err)
	}
	a, err := parseAccess(t.Spec)
	if err == nil && a.Login != "" {
		login := a.Login
		a, err = g.userOf(ctx, login)
		a.Login = login
	}
	a.Actor, a.token, a.expire = t.User, t.ID, t.ExpireTime
	if err == nil && a.Login == "" && g.now().Sub(t.UsedTime) > time.Hour {
		touch, done := context.WithTimeout(ctx, time.Second)
		_ = g.store.TouchToken(touch, t.ID) // a full disk, say, keeps nobody out
		done()
	}
	return a, err
}

// accessByPeer is for clients without a token. Whoever reaches the Unix socket owns the data directory; a
// demonstration lets loopback look.
func (g *gate) accessByPeer(ctx context.Context) (access, error) {
	if p, ok := peer.FromContext(ctx); ok {
		switch a := p.Addr.(type) {
		case *net.UnixAddr:
			return access{Actor: "local", Role: Admin}, nil
		case *net.TCPAddr:
			if g.visitor != "" && a.IP.IsLoopback() {
				return access{Actor: "visitor", Role: Viewer}, nil
			}
		}
	}
	return access{}, &ReasonError{
		Code: codes.Unauthenticated, Reason: "TOKEN_MISSING", Message: "this request carries no token",
		Hint: "send: authorization: Bearer TOKEN; the first token is in the data directory's admin.token",
	}
}

func (g *gate) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	a, err := g.check(ctx, info.FullMethod)
	if err == nil && a.token != "" {
		err = g.paces.take(a.token, g.now())
	}
	if err != nil {
		return nil, err
	}
	return a.answer(ctx, info.FullMethod, req, next)
}

func (g *gate) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	a, err := g.check(s.Context(), info.FullMethod)
	if err == nil && a.token != "" {
		err = errors.Join(g.paces.take(a.token, g.now()), g.calls.room(a.token))
	}
	if err != nil {
		return err
	}
	if !open(info.FullMethod) {
		ctx, done := g.calls.begin(s.Context(), a, g.now())
		defer done()
		// Again, now that an end of the right would be heard.
		if a, err = g.check(ctx, info.FullMethod); err != nil {
			return err
		}
		s = &lasting{ServerStream: s, ctx: ctx}
		next = ending(next)
	}
	if a.scoped() {
		if !a.open(info.FullMethod) {
			return closed(info.FullMethod)
		}
		s = &narrow{ServerStream: s, access: a}
	}
	return next(srv, s)
}

// ending makes the end of a right the end of a stream.
func ending(next grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, s grpc.ServerStream) error {
		err := next(srv, s)
		if errors.Is(context.Cause(s.Context()), errEnded) {
			return errEnded
		}
		return err
	}
}

// admitVisitors gives a demonstration's loopback clients the visitor's token, so that everything behind it
// knows only tokens.
func (g *gate) admitVisitors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.visitor != "" && r.Header.Get("Authorization") == "" && fromLoopback(r) {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+g.visitor)
		}
		next.ServeHTTP(w, r)
	})
}

// fromLoopback also looks at the name the client called the box by: a page from elsewhere whose name was made to
// point here must not pass for a visitor.
func fromLoopback(r *http.Request) bool {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !ap.Addr().Unmap().IsLoopback() {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host = strings.Trim(host, "[]"); host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// watchers lets loopback clients see metrics, and others with a token of any role that is not for some cameras only:
// metrics name cameras.
func (g *gate) watchers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !fromLoopback(r) {
			md := metadata.Pairs("authorization", r.Header.Get("Authorization"))
			if a, err := g.access(metadata.NewIncomingContext(r.Context(), md)); err != nil || a.scoped() {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "metrics need a token that is for all cameras: authorization: Bearer TOKEN", http.StatusUnauthorized)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// admins lets admins alone through, wherever they come from.
func (g *gate) admins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		md := metadata.Pairs("authorization", r.Header.Get("Authorization"))
		switch a, err := g.access(metadata.NewIncomingContext(r.Context(), md)); {
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "this needs an admin's token: authorization: Bearer TOKEN", http.StatusUnauthorized)
		case a.Role != Admin:
			http.Error(w, "this is for admins", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
