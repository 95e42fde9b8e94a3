package cameras

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// Violation is one thing wrong with a registration.
type Violation struct {
	// Field is its path in the request: "camera.source.uri".
	Field string
	// Description says what is wrong and what is allowed.
	Description string
}

// InvalidError lists everything that is wrong with a registration.
type InvalidError struct {
	Violations []Violation
}

// Error implements error.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Violations))
	for i, v := range e.Violations {
		parts[i] = v.Field + ": " + v.Description
	}
	return strings.Join(parts, "; ")
}

func (e *InvalidError) add(field, format string, args ...any) {
	e.Violations = append(e.Violations, Violation{Field: field, Description: fmt.Sprintf(format, args...)})
}

const idPattern = `^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`

// Limits of a registration.
const (
	maxDisplayName = 200
	maxLabels      = 64
	maxFPS         = 240
	maxStaleness   = time.Minute
	maxClip        = 30 * time.Second
)

// validate reports every fault at once.
func validate(id string, c *vedettev1.Camera, password string) error {
	faults := &InvalidError{}
	if !regexp.MustCompile(idPattern).MatchString(id) {
		faults.add("camera_id", "%q: 1 to 63 of a-z, 0-9 and -, the first a letter and the last not -", id)
	}
	if n := utf8.RuneCountInString(c.GetDisplayName()); n > maxDisplayName || !utf8.ValidString(c.GetDisplayName()) {
		faults.add("camera.display_name", "%d characters, at most %d", n, maxDisplayName)
	}
	if len(c.GetLabels()) > maxLabels {
		faults.add("camera.labels", "%d labels, at most %d", len(c.GetLabels()), maxLabels)
	}
	for k, v := range c.GetLabels() {
		if k == "" || len(k) > 63 || len(v) > 255 {
			faults.add("camera.labels", "%q: keys have 1 to 63 bytes, values up to 255", k)
		}
	}
	if _, ok := vedettev1.DesiredState_name[int32(c.GetDesiredState())]; !ok {
		faults.add("camera.desired_state", "%d is no such state", c.GetDesiredState())
	}
	validateSource(faults, "camera.source", c.GetSource(), password)
	validateAnalysis(faults, c.GetAnalysis())
	validateRecording(faults, c.GetRecording())
	if len(faults.Violations) > 0 {
		return faults
	}
	return nil
}

// ValidateSource checks a source that is not part of a registration; field is its path in the request.
func ValidateSource(field string, s *vedettev1.Source) error {
	faults := &InvalidError{}
	validateSource(faults, field, s, s.GetPassword())
	if len(faults.Violations) > 0 {
		return faults
	}
	return nil
}

func validateSource(faults *InvalidError, field string, s *vedettev1.Source, password string) {
	validateURI(faults, field, s.GetUri())
	if len(s.GetUsername()) > 256 {
		faults.add(field+".username", "%d bytes, at most 256", len(s.GetUsername()))
	}
	if len(password) > 1024 {
		faults.add(field+".password", "%d bytes, at most 1024", len(password))
	}
	if password != "" && s.GetUsername() == "" {
		faults.add(field+".username", "missing: a password without a user is of no use")
	}
	if _, ok := vedettev1.Transport_name[int32(s.GetTransport())]; !ok {
		faults.add(field+".transport", "%d is no such transport", s.GetTransport())
	}
}

func validateURI(faults *InvalidError, field, uri string) {
	field += ".uri"
	if uri == "" {
		faults.add(field, "missing: the camera's address, for example rtsp://192.168.1.20/stream1")
		return
	}
	if len(uri) > 2048 {
		faults.add(field, "%d bytes, at most 2048", len(uri))
		return
	}
	u, err := url.Parse(uri)
	if err != nil {
		// The parser's error quotes the address, which may hold a password.
		faults.add(field, "is not an address (characters other than letters and digits in it may need %%-escaping)")
		return
	}
	if u.User != nil || (u.Scheme != "file" && strings.Contains(uri, "@")) {
		// An @ further behind may end a password that holds a / or a #.
		faults.add(field, "holds a user or password: give them as username and password, so that they can be kept secret (an @ of the path is written %%40)")
	}
	if u.Fragment != "" || strings.Contains(uri, "#") {
		faults.add(field, "holds a #: write it %%23")
	}
	switch u.Scheme {
	case "rtsp", "rtsps":
		if u.Hostname() == "" {
			faults.add(field, "has no host: write rtsp://host/path")
		}
		if port := u.Port(); port != "" {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				faults.add(field, "port %q is not within 1 and 65535", port)
			}
		}
	case "file":
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") {
			faults.add(field, "a file's address is file:/// and an absolute path")
		}
	default:
		faults.add(field, "scheme %q is none of rtsp, rtsps and file", u.Scheme)
	}
}

func validateAnalysis(faults *InvalidError, a *vedettev1.Analysis) {
	if _, ok := vedettev1.Priority_name[int32(a.GetPriority())]; !ok {
		faults.add("camera.analysis.priority", "%d is no such priority", a.GetPriority())
	}
	validateGate(faults, a.GetMotionGate())
	if fps := a.GetFps(); !(fps >= 0 && fps <= maxFPS) {
		faults.add("camera.analysis.fps", "%v is not within 0 (every frame) and %d", fps, maxFPS)
	}
	if p := a.GetPipeline(); p != "" && !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`).MatchString(p) {
		faults.add("camera.analysis.pipeline", "%q is no model name (letters, digits, _, . and -)", p)
	}
	if d := a.GetStalenessBudget(); d != nil && (!d.IsValid() || d.AsDuration() < 0 || d.AsDuration() > maxStaleness) {
		faults.add("camera.analysis.staleness_budget", "not within 0 and %s", maxStaleness)
	}
}

func validateRecording(faults *InvalidError, r *vedettev1.Recording) {
	if d := r.GetClip(); d != nil && (!d.IsValid() || d.AsDuration() < 0 || d.AsDuration() > maxClip) {
		faults.add("camera.recording.clip", "not within 0 and %s", maxClip)
	}
}

// maxGateTime bounds the times of a motion gate.
const maxGateTime = time.Hour

func validateGate(faults *InvalidError, g *vedettev1.MotionGate) {
	if t := g.GetThreshold(); !(t >= 0 && t <= 1) {
		faults.add("camera.analysis.motion_gate.threshold", "%v is not within 0 (the standard one) and 1", t)
	}
	for field, d := range map[string]*durationpb.Duration{"hold": g.GetHold(), "recheck": g.GetRecheck()} {
		if d != nil && (!d.IsValid() || d.AsDuration() < 0 || d.AsDuration() > maxGateTime) {
			faults.add("camera.analysis.motion_gate."+field, "not within 0 (the standard one) and %s", maxGateTime)
		}
	}
}
