package web

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

const (
	cookieName = "vedette_session"
	// csrfHeader must be on every request that changes something and is authorised by the cookie:
	// another site can make a browser send the cookie, but not this header.
	csrfHeader = "X-Vedette"
)

// WithSession turns the dashboard's cookie into the bearer token it stands for, so that the handlers behind it
// know only tokens. A request that brings its own Authorization header passes as it is. A changing request
// that relies on the cookie must carry the header X-Vedette.
// A changing request that a browser sends for a page from elsewhere is refused, with or without a cookie.
func WithSession(next http.Handler) http.Handler {
	elsewhere := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := elsewhere.Check(r); err != nil {
			writeError(w, http.StatusForbidden, "CSRF", "a page from elsewhere cannot change anything here: "+err.Error())
			return
		}
		if token := cookieToken(r); token != "" && r.Header.Get("Authorization") == "" {
			if !safeMethod(r.Method) && r.Header.Get(csrfHeader) == "" {
				writeError(w, http.StatusForbidden, "CSRF", "a request with the session cookie that changes something needs the header "+csrfHeader)
				return
			}
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+token)
		}
		next.ServeHTTP(w, r)
	})
}

func safeMethod(m string) bool {
	return m == http.MethodGet || m == http.MethodHead || m == http.MethodOptions
}

func cookieToken(r *http.Request) string {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return ""
	}
	return c.Value
}

// authorised adds to ctx what the API wants to know of the person behind a request.
func authorised(ctx context.Context, r *http.Request) context.Context {
	auth := r.Header.Get("Authorization")
	if auth == "" {
		if token := cookieToken(r); token != "" {
			auth = "Bearer " + token
		}
	}
	if auth != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", auth)
	}
	return metadata.AppendToOutgoingContext(ctx, "x-forwarded-for", r.RemoteAddr)
}

// login takes a person's name and password, or checks a token by using it, and keeps what stands for them in a cookie that
// scripts cannot read.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token    string `json:"token"`
		User     string `json:"user"`
		Password string `json:"password"`
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&body)
	token, life := strings.TrimSpace(body.Token), 30*24*time.Hour
	switch {
	case err == nil && body.User != "":
		in, err := s.cfg.Users.LogIn(authorised(r.Context(), r), &vedettev1.LogInRequest{User: body.User, Password: body.Password})
		if err != nil {
			writeStatus(w, err)
			return
		}
		token, life = in.GetSecret(), time.Until(in.GetSession().GetExpireTime().AsTime())
	case err == nil && token != "":
		ctx := metadata.AppendToOutgoingContext(r.Context(), "authorization", "Bearer "+token)
		if _, err := s.cfg.System.GetSystem(ctx, &vedettev1.GetSystemRequest{}); err != nil {
			writeStatus(w, err)
			return
		}
	default:
		writeError(w, http.StatusBadRequest, "TOKEN_MISSING", `send {"user": "...", "password": "..."} or {"token": "..."}; the first token is printed when the box starts for the first time`)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: token, Path: "/", HttpOnly: true, Secure: r.TLS != nil,
		SameSite: http.SameSiteStrictMode, MaxAge: int(life / time.Second),
	})
	w.WriteHeader(http.StatusNoContent)
}

// logout ends a person's session, and forgets the cookie in any case.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if _, err := s.cfg.Users.LogOut(authorised(r.Context(), r), &vedettev1.LogOutRequest{}); err != nil && status.Code(err) != codes.Unauthenticated {
		s.cfg.Logger.WarnContext(r.Context(), "a session could not be ended", slog.Any("err", err))
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode, MaxAge: -1,
	})
	w.WriteHeader(http.StatusNoContent)
}

// httpCodes maps the codes the API answers with; what is not here is 500.
func httpCode(c codes.Code) int {
	switch c {
	case codes.OK:
		return http.StatusOK
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}

func writeStatus(w http.ResponseWriter, err error) {
	st := status.Convert(err)
	writeError(w, httpCode(st.Code()), st.Code().String(), st.Message())
}

func writeError(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"reason": reason, "message": message})
}
