package rtsp_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/icholy/digest"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/rtsp"
	"github.com/vedette/vedette/internal/rtsptest"
)

// guard asks for user and password as some camera does.
type guard struct {
	ask   []string // the headers; NONCE stands for the nonce
	stale string   // added where a nonce is old
	life  int      // requests a nonce is good for; 0: all

	user, password string
	udp            bool
	digest         string // the challenge that is to be answered; empty: basic

	mu                       sync.Mutex
	nonce, used, last, wrong int
}

func (g *guard) answer(r *base.Request) *base.Response {
	g.mu.Lock()
	defer g.mu.Unlock()
	got := strings.Join(r.Header["Authorization"], "")
	old := false
	if got != "" {
		right := got == "Basic "+base64Of(g.user+":"+g.password)
		if c, err := digest.ParseCredentials(got); g.digest != "" && err == nil {
			asked, err := digest.ParseChallenge(g.header(g.digest))
			if err != nil {
				panic(err) // the test's own
			}
			want, err := digest.Digest(asked, digest.Options{Method: string(r.Method), URI: r.URL.String(), Username: g.user, Password: g.password, Cnonce: c.Cnonce, Count: c.Nc})
			right = err == nil && want.Response == c.Response && c.Nonce == asked.Nonce && c.Opaque == asked.Opaque && c.QOP == want.QOP && c.Username == g.user && (c.QOP == "" || c.Nc > g.last)
			g.last = c.Nc
			old = c.Nonce != asked.Nonce
		}
		if right && (g.life == 0 || g.used < g.life) {
			g.used++
			return nil
		}
		if old = old || right; !old {
			g.wrong++
		}
	}
	if g.life > 0 || g.nonce == 0 {
		g.nonce, g.used, g.last = g.nonce+1, 0, 0
	}
	var headers base.HeaderValue
	for _, h := range g.ask {
		if old {
			h += g.stale
		}
		headers = append(headers, g.header(h))
	}
	return &base.Response{StatusCode: base.StatusUnauthorized, Header: base.Header{"WWW-Authenticate": headers}}
}

func (g *guard) header(h string) string {
	return strings.ReplaceAll(h, "NONCE", fmt.Sprintf("n%d", g.nonce))
}

func TestCamerasThatAskForUserAndPasswordInEveryWayAreAnswered(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, GOP: 5})
	const plain = `Digest realm="cam", nonce="NONCE"`
	for name, g := range map[string]*guard{
		"basic":                              {ask: []string{`Basic realm="cam"`}},
		"basic in small letters":             {ask: []string{`basic realm="cam"`}},
		"digest":                             {ask: []string{plain}, digest: plain},
		"digest in small letters":            {ask: []string{`digest realm="cam", nonce="NONCE"`}, digest: plain},
		"SHA-256":                            {ask: []string{plain + `, algorithm=SHA-256`}, digest: plain + `, algorithm=SHA-256`},
		"SHA-256 and MD5":                    {ask: []string{plain + `, algorithm=MD5`, plain + `, algorithm=SHA-256`}, digest: plain + `, algorithm=SHA-256`},
		"basic and digest":                   {ask: []string{`Basic realm="cam"`, plain}, digest: plain},
		"digest and basic in one header":     {ask: []string{plain + `, Basic realm="cam"`}, digest: plain},
		"a scheme nobody knows and digest":   {ask: []string{`Bearer realm="cam"`, plain}, digest: plain},
		"an algorithm nobody knows and MD5":  {ask: []string{plain + `, algorithm=XYZ`, plain + `, algorithm=MD5`}, digest: plain + `, algorithm=MD5`},
		"quality of protection":              {ask: []string{plain + `, qop="auth", algorithm=MD5`}, digest: plain + `, qop="auth", algorithm=MD5`},
		"qualities of protection":            {ask: []string{plain + `, qop="auth-int, auth"`}, digest: plain + `, qop="auth"`},
		"an opaque value":                    {ask: []string{plain + `, opaque="xyz"`}, digest: plain + `, opaque="xyz"`},
		"a nonce for each request":           {ask: []string{plain}, life: 1, digest: plain},
		"a nonce for each request, over UDP": {ask: []string{plain}, life: 1, udp: true, digest: plain},
		"a nonce for each request, and told": {ask: []string{plain + `, qop="auth"`}, life: 1, stale: `, stale=true`, digest: plain + `, qop="auth"`},
		"signs in the user's name":           {ask: []string{plain}, digest: plain, user: `us"er\n`},
	} {
		t.Run(name, func(t *testing.T) {
			if g.user == "" {
				g.user = "us er"
			}
			g.password = "p@ss:/w#rd % ü\""
			cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, UDP: g.udp, Ask: g.answer})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := ingest.Camera{Name: "door", Address: cam.Address(), Username: g.user, Password: g.password}
			if g.udp {
				c.Transport = ingest.TransportUDP
			}
			if err := rtsp.New(rtsp.Config{Camera: c}).Run(ctx, &viewer{end: cancel}); err != nil {
				t.Fatal(err)
			}
			if g.wrong > 0 {
				t.Errorf("%d wrong answers, after which cameras lock accounts", g.wrong)
			}
			// Without any there is nothing to answer.
			c.Username, c.Password = "", ""
			if e := ingest.AsError(rtsp.New(rtsp.Config{Camera: c}).Run(t.Context(), &viewer{end: cancel})); e == nil || e.Reason != ingest.ReasonAuthFailed || g.wrong > 0 {
				t.Errorf("%v and %d wrong answers without a password", e, g.wrong)
			}
			// One wrong answer for each attempt, and no more.
			c.Username, c.Password = g.user, "wrong"
			err := rtsp.New(rtsp.Config{Camera: c}).Run(t.Context(), &viewer{end: cancel})
			if e := ingest.AsError(err); e == nil || e.Reason != ingest.ReasonAuthFailed || g.wrong != 1 {
				t.Errorf("%v after %d wrong answers", err, g.wrong)
			}
		})
	}
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
