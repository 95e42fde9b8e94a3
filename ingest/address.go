package ingest

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/vedette/vedette/internal/address"
)

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
	case u.Scheme == "http" || u.Scheme == "https":
		if u.Hostname() == "" {
			fault("address", "has no host")
		}
	case u.Scheme == "file":
		if FilePath(c.Address) == "" {
			fault("address", "names no file")
		}
	case u.Scheme == "v4l2":
		if _, err := address.ParseDevice(c.Address); err != nil {
			fault("address", "%w", err)
		}
	default:
		fault("address", "scheme %q is not rtsp, rtsps, http, https, v4l2 or file", u.Scheme)
	}
	if c.MainAddress != "" {
		if u, err := url.Parse(c.MainAddress); err != nil || u.User != nil || u.Hostname() == "" || u.Scheme != "rtsp" && u.Scheme != "rtsps" {
			fault("main_address", "is not rtsp://host/path or rtsps://host/path, free of credentials")
		}
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
