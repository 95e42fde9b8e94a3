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
	log := slog.New(l).With(slog.String("model", "m")).WithGroup("of")
	for _, c := range []struct{ format, want string }{
		{"", `^time=\S+ level=WARN msg="too slow" model=m of.ms=7\n$`},
		{"ISO8601", `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ W \d+ log_test\.go:\d+] "too slow model=m of\.ms=7"\n$`},
		{"default", `^W\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ log_test\.go:\d+] "too slow model=m of\.ms=7"\n$`},
	} {
		out.Reset()
		if c.format != "" {
			if err := l.Update(map[string]any{"log_format": c.format}); err != nil {
				t.Fatal(err)
			}
		}
		log.Warn("too slow", slog.Int("ms", 7))
		if !regexp.MustCompile(c.want).MatchString(out.String()) {
			t.Errorf("%s: got %s", c.format, &out)
		}
		told := c.format
		if told == "" {
			told = "default"
		}
		if got := l.Settings()["log_format"]; got != told {
			t.Errorf("%s is told as %v", c.format, got)
		}
	}
	out.Reset()
	log.Error("two\nlines")
	if !strings.HasPrefix(out.String(), "E") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("got %s", &out)
	}
}
