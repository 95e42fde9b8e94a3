package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/alexedwards/argon2id"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/vedette/vedette/store"
)

// sessionTTL is how long a session lasts.
const sessionTTL = 7 * 24 * time.Hour

// errEnded is the end of what was under way for somebody who may no longer do it.
var errEnded = &ReasonError{
	Code: codes.Unauthenticated, Reason: "TOKEN_INVALID", Message: "the token or session was ended, or its rights were changed", Hint: "log in again",
}

// calls knows the streams and requests under way and whose they are, so that they end when the right to them does.
// Safe for concurrent use; the zero value is ready.
type calls struct {
	mu   sync.Mutex
	open map[*call]struct{}
}

type call struct {
	token, user string
	cancel      context.CancelCauseFunc
}

// maxStreams is how many streams may be open with one token: more than any wall of cameras needs.
const maxStreams = 500

// room tells whether another stream may be opened with a token.
func (c *calls) room(token string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for o := range c.open {
		if o.token == token {
			n++
		}
	}
	if token == "" || n < maxStreams {
		return nil
	}
	return &ReasonError{
		Code: codes.ResourceExhausted, Reason: "TOO_MANY_STREAMS", Message: fmt.Sprintf("%d streams are open with this token, which is the most", n),
		Hint: "end those that nobody looks at, or give each client a token of its own",
	}
}

// begin notes a call. Its context ends with errEnded when the token or user does; done has to be called at its end.
func (c *calls) begin(ctx context.Context, a access, now time.Time) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	one := &call{token: a.token, user: a.Login, cancel: cancel}
	c.mu.Lock()
	if c.open == nil {
		c.open = map[*call]struct{}{}
	}
	c.open[one] = struct{}{}
	c.mu.Unlock()
	expire := func() bool { return false }
	if !a.expire.IsZero() {
		expire = time.AfterFunc(a.expire.Sub(now), func() { cancel(errEnded) }).Stop
	}
	return ctx, func() {
		expire()
		cancel(context.Canceled)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, one)
	}
}

// endToken ends what is under way with a token, endUser what is for a user, except with the token spared.
func (c *calls) endToken(id string) { c.end(func(o *call) bool { return o.token == id }) }

func (c *calls) endUser(name, spared string) {
	c.end(func(o *call) bool { return o.user == name && o.token != spared })
}

func (c *calls) end(which func(*call) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.open {
		if which(o) {
			o.cancel(errEnded)
		}
	}
}

// lasting is a stream whose context ends when the right to it does.
type lasting struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // it is the stream's
}

// Context implements grpc.ServerStream.
func (l *lasting) Context() context.Context { return l.ctx }

// following ends what is read over HTTP, pages' streams above all, when the right to it ends. A change is answered, also
// when it is what ends the right.
func (g *gate) following(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if auth := r.Header.Get("Authorization"); auth != "" && r.Method == http.MethodGet {
			md := metadata.Pairs("authorization", auth)
			if a, err := g.access(metadata.NewIncomingContext(r.Context(), md)); err == nil {
				ctx, done := g.calls.begin(r.Context(), a, g.now())
				defer done()
				r = r.WithContext(ctx)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// userOf finds what a session's user may do now.
func (g *gate) userOf(ctx context.Context, name string) (access, error) {
	u, err := g.store.Get(ctx, store.Users, name)
	if errors.Is(err, store.ErrNotFound) || (err == nil && !u.Enabled) {
		return access{}, errEnded
	}
	if err != nil {
		return access{}, fmt.Errorf("check a session: %w", err)
	}
	return parseAccess(u.Spec)
}

// Passwords are kept by argon2id with what OWASP asks for: 19 MiB, two passes.
var hashing = &argon2id.Params{Memory: 19 << 10, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32} //nolint:gochecknoglobals // never changed

// door lets people in by password, one after another, and the slower the more passwords were wrong.
type door struct {
	store *store.Store
	now   func() time.Time

	hashing sync.Mutex // one at a time: hashing takes memory on purpose
	decoy   func() string

	mu     sync.Mutex
	failed map[string]*failures // by user, and by address
}

type failures struct {
	count int
	until time.Time // nobody is let in before
	last  time.Time
}

func newDoor(s *store.Store, now func() time.Time) *door {
	return &door{store: s, now: now, failed: map[string]*failures{}, decoy: sync.OnceValue(func() string {
		h, err := argon2id.CreateHash(rand.Text(), hashing)
		if err != nil {
			return "" // no entropy: nothing matches it
		}
		return h
	})}
}

const (
	// freeFailures is how many wrong passwords cost no wait; then it doubles from a second to a minute.
	freeFailures = 5
	longestWait  = time.Minute
	// maxFailures bounds what is remembered; forgetAfter is when a key is forgotten.
	maxFailures = 4096
	forgetAfter = 15 * time.Minute
)

// open tells whether the password is the user's. Keys are what a wrong one is held against.
func (d *door) open(ctx context.Context, user, password string, keys ...string) error {
	if wait := d.wait(keys); wait > 0 {
		return &ReasonError{
			Code: codes.ResourceExhausted, Reason: "TOO_MANY_ATTEMPTS", Message: "too many wrong passwords",
			Hint: fmt.Sprintf("try again in %d s", int(wait/time.Second)+1),
		}
	}
	u, err := d.store.Get(ctx, store.Users, user)
	known := err == nil && u.Enabled
	if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrInvalid) {
		return fmt.Errorf("check a password: %w", err)
	}
	kept := string(u.Secret)
	if !known { // takes as long as for a known user
		kept = d.decoy()
	}
	d.hashing.Lock()
	match, err := argon2id.ComparePasswordAndHash(password, kept)
	d.hashing.Unlock()
	if err != nil || !match || !known {
		d.note(keys)
		return &ReasonError{Code: codes.Unauthenticated, Reason: "PASSWORD_WRONG", Message: "there is no such user with this password"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.failed, keys[0])
	return nil
}

// wait is how long none of the keys is let in.
func (d *door) wait(keys []string) (wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range keys {
		if f := d.failed[k]; f != nil {
			wait = max(wait, f.until.Sub(d.now()))
		}
	}
	return wait
}

func (d *door) note(keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	if len(d.failed) >= maxFailures {
		for k, f := range d.failed {
			if now.Sub(f.last) > forgetAfter || len(d.failed) >= 2*maxFailures {
				delete(d.failed, k)
			}
		}
	}
	for _, k := range keys {
		f := d.failed[k]
		if f == nil || now.Sub(f.last) > forgetAfter {
			f = &failures{}
			d.failed[k] = f
		}
		f.last = now
		if f.count++; f.count >= freeFailures {
			f.until = now.Add(min(longestWait, time.Second<<min(f.count-freeFailures, 10)))
		}
	}
}

// hash is what is kept of a password.
func (d *door) hash(password string) ([]byte, error) {
	d.hashing.Lock()
	defer d.hashing.Unlock()
	h, err := argon2id.CreateHash(password, hashing)
	if err != nil {
		return nil, fmt.Errorf("hash a password: %w", err)
	}
	return []byte(h), nil
}

// addressOf is where a call comes from: over HTTP the gateway and the dashboard, which are this process, tell. IPv6
// addresses of one network count as one.
func addressOf(ctx context.Context) string {
	address := ""
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		address = p.Addr.String()
		if p.Addr.Network() == "bufconn" {
			md, _ := metadata.FromIncomingContext(ctx)
			if via := md.Get("x-forwarded-for"); len(via) > 0 {
				parts := strings.Split(via[len(via)-1], ",")
				address = strings.TrimSpace(parts[len(parts)-1]) // the last is what this process added
			}
		}
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		return ip.Mask(net.CIDRMask(64, 128)).String()
	}
	return host
}

// paces bounds how many calls a client makes: enough for any dashboard, too few to keep the box from its work.
type paces struct {
	mu      sync.Mutex
	clients map[string]*rate.Limiter
}

const (
	callsPerSecond = 100
	callBurst      = 400
	maxPaces       = 4096
)

// take spends a call of a client; the error tells it to slow down.
func (p *paces) take(client string, now time.Time) error {
	p.mu.Lock()
	l := p.clients[client]
	if l == nil {
		if p.clients == nil || len(p.clients) >= maxPaces {
			p.clients = map[string]*rate.Limiter{} // forgetting is generous
		}
		l = rate.NewLimiter(callsPerSecond, callBurst)
		p.clients[client] = l
	}
	p.mu.Unlock()
	if l.AllowN(now, 1) {
		return nil
	}
	return &ReasonError{
		Code: codes.ResourceExhausted, Reason: "TOO_MANY_REQUESTS", Message: fmt.Sprintf("more than %d calls a second", callsPerSecond),
		Hint: "use a Watch call instead of asking again and again, or larger pages",
	}
}
