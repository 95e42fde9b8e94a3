package server

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
)

func TestX6FormatOfTheLogFollowsItsSetting(t *testing.T) {
	var out strings.Builder
	l := newLogs(LogConfig{Output: &out})
	log := slog.New(l).With(slog.String("model", "m"))
	iso := regexp.MustCompile(`^time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ level=WARN msg=slow model=m\n$`)
	log.Warn("slow")
	if iso.MatchString(out.String()) {
		t.Errorf("got %s", &out)
	}
	out.Reset()
	if err := l.Update(map[string]any{"log_format": "ISO8601"}); err != nil {
		t.Fatal(err)
	}
	log.Warn("slow")
	if !iso.MatchString(out.String()) {
		t.Errorf("got %s", &out)
	}
}
