package ingest_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/vedette/vedette/ingest"
)

func TestSplitAddressTakesPastedAddressesApart(t *testing.T) {
	for _, c := range []struct{ name, pasted, address, user, password string }{
		{"nothing to take", "rtsp://10.0.0.5:554/live", "rtsp://10.0.0.5:554/live", "", ""},
		{"a plain password", "rtsp://admin:secret@cam/live", "rtsp://cam/live", "admin", "secret"},
		{"an @ in the password", "rtsp://admin:p@ss@cam/live", "rtsp://cam/live", "admin", "p@ss"},
		{"a colon in the password", "rtsp://admin:a:b@cam:554/live", "rtsp://cam:554/live", "admin", "a:b"},
		{"a slash in the password", "rtsp://admin:a/b@cam/live", "rtsp://cam/live", "admin", "a/b"},
		{"a hash and a question mark", "rtsp://admin:a#b?c@cam/live", "rtsp://cam/live", "admin", "a#b?c"},
		{"an encoded password", "rtsp://admin:p%40ss%23@cam/live", "rtsp://cam/live", "admin", "p@ss#"},
		{"a bare per cent sign", "rtsp://admin:100%@cam/live", "rtsp://cam/live", "admin", "100%"},
		{"a user without a password", "rtsp://admin@cam/live", "rtsp://cam/live", "admin", ""},
		{"an @ in the query is no credential", "rtsp://cam/live?user=a@b", "rtsp://cam/live?user=a@b", "", ""},
		{"IPv6", "rtsps://u:p@[fe80::1]:322/x", "rtsps://[fe80::1]:322/x", "u", "p"},
		{"spaces around", "  RTSP://cam/Live \n", "rtsp://cam/Live", "", ""},
		{"a file", "file:/srv/clip.mp4", "file:/srv/clip.mp4", "", ""},
		{"a file with slashes", "file:///srv/clip.mp4", "file:///srv/clip.mp4", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, user, password, err := ingest.SplitAddress(c.pasted)
			if err != nil || address != c.address || user != c.user || password != c.password {
				t.Errorf("got %q %q %q, %v", address, user, password, err)
			}
		})
	}
}

func TestSplitAddressNeverRepeatsWhatItCannotRead(t *testing.T) {
	for _, pasted := range []string{"admin:canary@cam/live", "rtsp://admin:canary@/live", "rtsp://admin:canary@[bad/live", "rtsp://", ""} {
		if _, _, _, err := ingest.SplitAddress(pasted); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", pasted, err)
		}
	}
}

func FuzzSplitAddress(f *testing.F) {
	f.Add("admin", "p@ss:/w#rd?%", "cam:554/live?x=1")
	f.Add("", "", "[::1]/")
	f.Fuzz(func(t *testing.T, user, password, rest string) {
		_, _, _, _ = ingest.SplitAddress("rtsp://" + user + ":" + password + "@" + rest)
		// What is properly encoded comes back whole.
		u := url.URL{Scheme: "rtsp", User: url.UserPassword(user, password), Host: "cam:554", Path: "/live"}
		if user == "" {
			return
		}
		address, gotUser, gotPassword, err := ingest.SplitAddress(u.String())
		if err != nil || address != "rtsp://cam:554/live" || gotUser != user || gotPassword != password {
			t.Fatalf("%q: got %q %q %q, %v", u.String(), address, gotUser, gotPassword, err)
		}
	})
}

func TestCheckNamesEveryFault(t *testing.T) {
	err := ingest.Camera{
		Address: "http://x", AnalysisRate: -1, Slots: 1, Masks: []ingest.Mask{{{X: 0}}, {{X: 2}, {X: 0}, {X: 1}}},
		Gate: &ingest.Gate{Threshold: 2},
	}.Check()
	for _, want := range []string{"name:", "address:", "analysis_rate:", "slots:", "privacy_masks[0]:", "privacy_masks[1]:", "motion_gate:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among %v", want, err)
		}
	}
	if err := (ingest.Camera{Name: "a", Address: "rtsp://x/"}).Check(); err != nil {
		t.Errorf("a good camera: %v", err)
	}
}

func TestACameraPrintsNoCredentials(t *testing.T) {
	c := ingest.Camera{Name: "door", Username: "canary-u", Password: "canary-p"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, c); strings.Contains(s, "canary") {
			t.Errorf("%s prints %s", format, s)
		}
	}
}

func TestTicksAndDurationsAgree(t *testing.T) {
	for _, ticks := range []ingest.Ticks{0, 1, -1, 90000, 3003, 1 << 48, -(1 << 48)} {
		if got := ingest.TicksOf(ticks.Duration()); got != ticks && got != ticks-1 && got != ticks+1 {
			t.Errorf("%d ticks came back as %d", ticks, got)
		}
	}
}
