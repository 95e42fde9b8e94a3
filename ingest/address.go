package ingest

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// SplitAddress takes an address apart as people paste it: user and password inside it, with any
// characters, encoded or not. It returns the address without them.
//
// The host begins after the last @ before the path: passwords with @ / ? # are common and hosts with
// them do not exist. A slash in a password is recognised when what follows it still has
// an @ followed by something that can be a host.
func SplitAddress(pasted string) (address, username, password string, err error) {
	pasted = strings.TrimSpace(pasted)
	scheme, rest, ok := strings.Cut(pasted, "://")
	if !ok {
		if path, isFile := strings.CutPrefix(pasted, "file:"); isFile && path != "" {
			return pasted, "", "", nil
		}
		return "", "", "", errors.New("address has no scheme: expected rtsp://host/path")
	}
	scheme = strings.ToLower(scheme)
	if scheme == "file" {
		return "file://" + rest, "", "", nil
	}
	if at := credentialsEnd(rest); at >= 0 {
		username, password, _ = strings.Cut(rest[:at], ":")
		username, password = unescape(username), unescape(password)
		rest = rest[at+1:]
	}
	u, perr := url.Parse(scheme + "://" + rest)
	if perr != nil || u.User != nil {
		// The parser's own text repeats the address, and with it what may be a password.
		return "", "", "", errors.New("address cannot be read: expected rtsp://host[:port]/path")
	}
	if u.Hostname() == "" {
		return "", "", "", errors.New("address has no host")
	}
	return scheme + "://" + rest, username, password, nil
}

// credentialsEnd returns the place of the @ that ends user and password, or -1.
func credentialsEnd(rest string) int {
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		return at
	}
	// An @ further on belongs to a password with a slash in it only when the authority cannot be
	// a host with a port, as in user:pa/ss@host.
	if u, err := url.Parse("rtsp://" + authority); err == nil && u.Hostname() != "" {
		return -1
	}
	return strings.LastIndexByte(rest, '@')
}

// unescape decodes %XX where that is what it is; a bare % stays.
func unescape(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}

// Check reports every fault of the settings, each with its field.
func (c Camera) Check() error {
	var faults []error
	fault := func(field, format string, args ...any) {
		faults = append(faults, fmt.Errorf(field+": "+format, args...))
	}
	if c.Name == "" {
		fault("name", "is empty")
	}
	u, err := url.Parse(c.Address)
	switch {
	case err != nil:
		fault("address", "cannot be read")
	case u.User != nil:
		fault("address", "contains credentials: give user name and password separately")
	case u.Scheme == "rtsp" || u.Scheme == "rtsps":
		if u.Hostname() == "" {
			fault("address", "has no host")
		}
	case u.Scheme == "file":
		if FilePath(c.Address) == "" {
			fault("address", "names no file")
		}
	default:
		fault("address", "scheme %q is not rtsp, rtsps or file", u.Scheme)
	}
	if c.AnalysisRate < 0 || c.AnalysisRate > 1000 || c.AnalysisRate != c.AnalysisRate {
		fault("analysis_rate", "%v is not within 0 and 1000 frames a second", c.AnalysisRate)
	}
	if c.Slots != 0 && (c.Slots < 2 || c.Slots > 31) {
		fault("slots", "%d is not within 2 and 31", c.Slots)
	}
	masks := [2][]Mask{c.Masks}
	if c.Gate != nil {
		masks[1] = c.Gate.Ignore
		if c.Gate.Threshold < 0 || c.Gate.Threshold > 1 || c.Gate.Hold < 0 || c.Gate.Recheck < 0 {
			fault("motion_gate", "threshold must be within 0 and 1, times not negative")
		}
	}
	for i, field := range []string{"privacy_masks", "motion_gate.ignore"} {
		for j, m := range masks[i] {
			if err := m.check(); err != nil {
				fault(fmt.Sprintf("%s[%d]", field, j), "%w", err)
			}
		}
	}
	return errors.Join(faults...)
}

func (m Mask) check() error {
	if len(m) < 3 {
		return fmt.Errorf("%d points make no area", len(m))
	}
	for _, p := range m {
		if !(p.X >= 0 && p.X <= 1 && p.Y >= 0 && p.Y <= 1) {
			return fmt.Errorf("point (%v, %v) is outside 0 to 1", p.X, p.Y)
		}
	}
	return nil
}

// FilePath returns the path of a file: address; empty when it has none.
func FilePath(address string) string {
	path, ok := strings.CutPrefix(address, "file:")
	if !ok {
		return ""
	}
	if rest, ok := strings.CutPrefix(path, "//"); ok {
		// file:///path, and file://localhost/path as the RFC allows.
		path = strings.TrimPrefix(rest, "localhost")
	}
	if d, err := url.PathUnescape(path); err == nil {
		return d
	}
	return path
}
