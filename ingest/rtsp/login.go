package rtsp

import (
	"regexp"
	"strings"
	"sync"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/icholy/digest"

	"github.com/vedette/vedette/ingest"
)

// login answers a camera that asks for user and password in a way the library does not: with a quality of protection or an
// opaque value (RFC 7616), by several schemes in one header, or anew in the middle of a session.
type login struct {
	user, password string

	mu       sync.Mutex // guards everything below
	asked    *digest.Challenge
	count    int  // of answers to it
	renewed  bool // it has asked again, and the last answer was not wrong but old
	accepted bool // it has taken an answer
}

// scheme begins a challenge; several may stand in one header.
var scheme = regexp.MustCompile(`(?i)(?:^|,)\s*(?:basic|digest)\s`)

// question takes a camera's answer, and leaves of its challenges the one that is to be answered, as the library reads it.
func (l *login) question(r *base.Response) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.user == "" && l.password == "" {
		return
	}
	if r.StatusCode != base.StatusUnauthorized {
		l.accepted = l.accepted || l.count > 0 && r.StatusCode == base.StatusOK
		return
	}
	var best *digest.Challenge
	basic := false
	for _, header := range r.Header["WWW-Authenticate"] {
		for _, text := range challenges(header) {
			c, err := digest.ParseChallenge(text)
			if err != nil {
				basic = basic || strings.EqualFold(text[:min(len(text), 5)], "basic")
				continue
			}
			for i, q := range c.QOP {
				c.QOP[i] = strings.TrimSpace(q)
			}
			if digest.CanDigest(c) && (best == nil || strings.EqualFold(c.Algorithm, "SHA-256")) {
				best = c
			}
		}
	}
	switch {
	case best != nil:
		l.renewed = l.count > 0 && (best.Stale || l.accepted && l.asked.Nonce != best.Nonce)
		l.asked, l.count = best, 0
		r.Header["WWW-Authenticate"] = base.HeaderValue{`Digest realm="camera", nonce="x"`} // answer knows the true ones
	case basic:
		l.asked, l.renewed = nil, false
		r.Header["WWW-Authenticate"] = base.HeaderValue{`Basic realm="camera"`}
	}
}

// challenges takes a header apart.
func challenges(header string) []string {
	var all []string
	begins := scheme.FindAllStringIndex(header, -1)
	for i, at := range begins {
		end := len(header)
		if i+1 < len(begins) {
			end = begins[i+1][0]
		}
		all = append(all, strings.TrimLeft(header[at[0]:end], ", \t"))
	}
	return all
}

// answer puts the answer to the camera's last challenge into a request.
func (l *login) answer(r *base.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == nil {
		return
	}
	l.count++
	c, err := digest.Digest(l.asked, digest.Options{
		Method: string(r.Method), URI: r.URL.CloneWithoutCredentials().String(), Count: l.count, Username: l.user, Password: l.password,
	})
	if err == nil {
		r.Header["Authorization"] = base.HeaderValue{c.String()}
	}
}

// try sends a request, and once more where the camera has asked anew.
func (l *login) try(send func() error) error {
	err := send()
	if l.again(err) {
		err = send()
	}
	return err
}

// again reports whether a request that failed is to be sent again: the camera has asked anew.
func (l *login) again(err error) bool {
	if err == nil || ingest.AsError(typed(err, ingest.StageSetup, ingest.Camera{})).Reason != ingest.ReasonAuthFailed {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	again := l.renewed
	l.renewed = false
	return again
}
