package cli

import (
	"strings"
	"testing"
)

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
