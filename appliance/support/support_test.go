package support

import (
	"fmt"
	"strings"
	"testing"
)

func TestALogKeepsItsNewestLinesWhole(t *testing.T) {
	var l Log
	const lines = 100_000
	for i := range lines {
		if _, err := fmt.Fprintf(&l, "line %d of some length, so that not all of them fit\n", i); err != nil {
			t.Fatal(err)
		}
	}
	got := string(l.Bytes())
	if len(got) > keptLog || len(got) < keptLog/2 {
		t.Errorf("%d bytes are kept of %d", len(got), keptLog)
	}
	if !strings.HasPrefix(got, "line ") || !strings.HasSuffix(got, fmt.Sprintf("line %d of some length, so that not all of them fit\n", lines-1)) {
		t.Errorf("it begins with %.60q", got)
	}
}

func TestABundleKeepsNoSecret(t *testing.T) {
	const canary = "kanarienvogel"
	for _, text := range []string{
		"open rtsp://admin:" + canary + "@192.0.2.1/stream: refused",
		`{"password": "` + canary + `", "uri": "rtsp://x"}`,
		"camera-password=" + canary + " next",
		"Authorization: Bearer " + canary,
		"token vedette_" + canary + canary,
		"AGE-SECRET-KEY-1" + strings.ToUpper(canary),
		"-----BEGIN PRIVATE KEY-----\n" + canary + "\n-----END PRIVATE KEY-----",
	} {
		if got := string(redact([]byte(text))); strings.Contains(strings.ToLower(got), canary) {
			t.Errorf("%q became %q", text, got)
		}
	}
	const plain = "camera door: 3 frames dropped, http://127.0.0.1:8080/"
	if got := string(redact([]byte(plain))); got != plain {
		t.Errorf("a harmless line became %q", got)
	}
}
