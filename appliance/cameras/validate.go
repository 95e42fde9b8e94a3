package cameras

import (
	"fmt"
	"regexp"
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
	validateMasks(faults, "camera.privacy_masks", c.GetPrivacyMasks())
	validateAnalysis(faults, c.GetAnalysis())
	validateRecording(faults, c.GetRecording())
	if len(faults.Violations) > 0 {
		return faults
	}
	return nil
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
	validateMasks(faults, "camera.analysis.motion_gate.ignore", g.GetIgnore())
	if t := g.GetThreshold(); !(t >= 0 && t <= 1) {
		faults.add("camera.analysis.motion_gate.threshold", "%v is not within 0 (the standard one) and 1", t)
	}
	for field, d := range map[string]*durationpb.Duration{"hold": g.GetHold(), "recheck": g.GetRecheck()} {
		if d != nil && (!d.IsValid() || d.AsDuration() < 0 || d.AsDuration() > maxGateTime) {
			faults.add("camera.analysis.motion_gate."+field, "not within 0 (the standard one) and %s", maxGateTime)
		}
	}
}
