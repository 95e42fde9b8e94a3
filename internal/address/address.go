// Package address takes addresses of cameras apart as people paste them, so that what is secret in them can be kept
// secret, and puts them together again for the camera.
package address

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"strings"
)

// Split takes user and password out of an address: those before its host, with any characters, encoded or not, and those
// among its parameters (?user=…&password=…, also in the path, as some cameras have it), which are replaced by {username}
// and {password}. It guesses nothing: where an @ could belong to a password or to the path, the error says so. No error
// repeats any of the address.
func Split(pasted string) (uri, username, password string, err error) {
	pasted = strings.TrimSpace(pasted)
	scheme, rest, ok := strings.Cut(pasted, "://")
	if !ok {
		if path, isFile := strings.CutPrefix(pasted, "file:"); isFile && path != "" || IsDevice(pasted) {
			return pasted, "", "", nil
		}
		return "", "", "", errors.New("the address begins with no scheme: write it whole, such as rtsp://192.168.1.20/stream1")
	}
	if scheme = strings.ToLower(scheme); scheme == "file" || scheme == "v4l2" {
		return scheme + "://" + rest, "", "", nil
	}
	at, err := credentialsEnd(rest)
	if err != nil {
		return "", "", "", err
	}
	if at >= 0 {
		username, password, _ = strings.Cut(rest[:at], ":")
		username, password, rest = unescape(username), unescape(password), rest[at+1:]
	}
	if strings.Contains(rest, "#") {
		return "", "", "", errors.New("there is a # in the address: write it %23")
	}
	u, perr := url.Parse(scheme + "://" + rest)
	if perr != nil || u.User != nil {
		return "", "", "", errors.New("the address cannot be read: write rtsp://host:port/path (characters other than letters and digits in it may need %-escaping)")
	}
	if u.Hostname() == "" {
		return "", "", "", errors.New("the address has no host: write rtsp://host/path")
	}
	rest, user, secret := parameters(rest)
	if secret != "" {
		if password != "" && (password != secret || user != "" && username != user) {
			return "", "", "", errors.New("the address holds two passwords: one before the host and another among its parameters")
		}
		if password = secret; user != "" {
			username = user
		}
	}
	return scheme + "://" + rest, username, password, nil
}

var errAmbiguous = errors.New("there is an @ after the first / or ? or # of the address: if it ends the password, give user and password in their own fields (--username, --password-file) " +
	"or %-escape them: / is %2F, ? is %3F, # is %23, @ is %40; if it belongs to the path, write %40")

// credentialsEnd returns the place of the @ that ends user and password, or -1.
func credentialsEnd(rest string) (int, error) {
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if strings.Contains(rest[len(authority):], "@") {
			return 0, errAmbiguous // user:p@ss/word@host, or a path with an @
		}
		return at, nil
	}
	last := strings.LastIndexByte(rest, '@')
	if last < 0 {
		return -1, nil
	}
	// user:pa/ss@host is certain, as "user:pa" is no host with a port; user:1/2@host is not.
	if u, err := url.Parse("rtsp://" + authority); err == nil && u.Hostname() != "" {
		return 0, errAmbiguous
	}
	return last, nil
}

// parameters replaces the credentials among the parameters; only with a password is anything replaced.
func parameters(rest string) (filled, user, password string) {
	i, j := value(rest, "password", "passwd", "pass", "pwd", "psw")
	if i == j || rest[i:j] == "{password}" {
		return rest, "", ""
	}
	password = unescape(rest[i:j])
	rest = rest[:i] + "{password}" + rest[j:]
	if i, j = value(rest, "user", "usr", "username", "login"); i < j {
		user = unescape(rest[i:j])
		rest = rest[:i] + "{username}" + rest[j:]
	}
	return rest, user, password
}

// value finds the value of the first of some parameters.
func value(rest string, keys ...string) (begin, end int) {
	lower := strings.ToLower(rest)
	for _, key := range keys {
		for at := 0; ; {
			i := strings.Index(lower[at:], key+"=")
			if i < 0 {
				break
			}
			i += at
			at = i + len(key) + 1
			if i == 0 || !strings.ContainsRune("?&;/_", rune(rest[i-1])) {
				continue
			}
			end = len(rest)
			for _, e := range []string{"&", ";", "/", "?", "_password=", "_channel=", "_stream=", "_subtype="} {
				if n := strings.Index(lower[at:], e); n >= 0 {
					end = min(end, at+n)
				}
			}
			return at, end
		}
	}
	return 0, 0
}

// Fill puts user and password where Split left their places.
func Fill(uri, username, password string) string {
	return strings.NewReplacer("{username}", escape(username), "{password}", escape(password)).Replace(uri)
}

func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// unescape decodes %XX where that is what it is; a bare % stays.
func unescape(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}

// Same tells whether two addresses are those of one stream (see Key).
func Same(a, b string) bool { return Key(a) == Key(b) }

// Key writes an address as every address of the same stream is written, whatever the case of the host and whether its usual
// port is there.
func Key(a string) string {
	u, err := url.Parse(a)
	if err != nil || u.Host == "" {
		return a
	}
	port := cmp.Or(u.Port(), map[string]string{"rtsp": "554", "rtsps": "322", "http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port) + u.RequestURI()
}
