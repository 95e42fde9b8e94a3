package address_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/vedette/vedette/internal/address"
)

func TestSplitTakesPastedAddressesApart(t *testing.T) {
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
		{"parameters", "rtsp://cam/live?user=admin&password=s%26cret&channel=1", "rtsp://cam/live?user={username}&password={password}&channel=1", "admin", "s&cret"},
		{"parameters in the path", "rtsp://cam:554/user=admin&password=se_cret&channel=1&stream=0.sdp", "rtsp://cam:554/user={username}&password={password}&channel=1&stream=0.sdp", "admin", "se_cret"},
		{"parameters with underscores", "rtsp://cam/user=admin_password=tlJw_6_channel=1_stream=0.sdp?real_stream", "rtsp://cam/user={username}_password={password}_channel=1_stream=0.sdp?real_stream", "admin", "tlJw_6"},
		{"a user among the parameters alone", "rtsp://cam/live?user=admin", "rtsp://cam/live?user=admin", "", ""},
		{"a parameter that only ends so", "rtsp://cam/live?bypass=1", "rtsp://cam/live?bypass=1", "", ""},
		{"both, the same", "rtsp://u:p@cam/live?user=u&pwd=p", "rtsp://cam/live?user={username}&pwd={password}", "u", "p"},
		{"IPv6", "rtsps://u:p@[fe80::1]:322/x", "rtsps://[fe80::1]:322/x", "u", "p"},
		{"spaces around", "  RTSP://cam/Live \n", "rtsp://cam/Live", "", ""},
		{"a file", "file:/srv/clip.mp4", "file:/srv/clip.mp4", "", ""},
		{"a file with slashes", "file:///srv/clip.mp4", "file:///srv/clip.mp4", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			uri, user, password, err := address.Split(c.pasted)
			if err != nil || uri != c.address || user != c.user || password != c.password {
				t.Errorf("got %q %q %q, %v", uri, user, password, err)
			}
		})
	}
}

func TestSplitNeverRepeatsWhatItCannotRead(t *testing.T) {
	for _, pasted := range []string{"admin:canary@cam/live", "rtsp://admin:canary@/live", "rtsp://admin:canary@[bad/live", "rtsp://", "", "rtsp://u:1/canary@cam/live", "rtsp://u:canary@cam/a@b", "rtsp://u:canary@cam/?password=other", "rtsp://cam/live?password=canary#x"} {
		if _, _, _, err := address.Split(pasted); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", pasted, err)
		}
	}
}

func TestFillPutsCredentialsBack(t *testing.T) {
	uri, user, password, err := address.Split("rtsp://cam/live?user=ad%20min&password=a%2Bb%26c&channel=1")
	if err != nil {
		t.Fatal(err)
	}
	if got := address.Fill(uri, user, password); got != "rtsp://cam/live?user=ad%20min&password=a%2Bb%26c&channel=1" {
		t.Errorf("%s of %s", got, uri)
	}
}

func TestAddressesOfOneStreamAreTheSame(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"rtsp://camera/x?y=1", "RTSP://Camera:554/x?y=1", true},
		{"rtsps://camera:322/x", "rtsps://camera/x", true},
		{"rtsp://camera", "rtsp://camera/", true},
		{"rtsp://camera/x", "rtsp://camera/X", false},
		{"rtsp://camera/x?y=1", "rtsp://camera/x?y=2", false},
		{"rtsp://camera:8554/x", "rtsp://camera/x", false},
		{"rtsps://camera/x", "rtsp://camera/x", false},
		{"http://camera:80/x", "http://camera/x", true},
		{"rtsp://[FE80::1]/x", "rtsp://[fe80::1]:554/x", true},
		{"v4l2:/dev/video0", "v4l2:/dev/video1", false},
		{"rtsp://camera/%zz", "rtsp://camera/%zz", true},
	} {
		if address.Same(c.a, c.b) != c.want || address.Same(c.b, c.a) != c.want {
			t.Errorf("%s and %s", c.a, c.b)
		}
	}
}

func TestADeviceIsReadWithWhatIsAskedOfIt(t *testing.T) {
	for uri, want := range map[string]address.Device{
		"v4l2:/dev/video0":   {Path: "/dev/video0"},
		"v4l2:///dev/video0": {Path: "/dev/video0"},
		"v4l2:/dev/v4l/by-id/usb-A%20b?rate=7.5&size=640x480&format=yuyv": {Path: "/dev/v4l/by-id/usb-A b", Width: 640, Height: 480, Rate: 7.5, Format: "yuyv"},
	} {
		got, err := address.ParseDevice(uri)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", uri, got, err)
		}
		if kept, _, _, err := address.Split(uri); err != nil || kept != uri {
			t.Errorf("%s is taken apart: %q, %v", uri, kept, err)
		}
	}
	for _, uri := range []string{
		"v4l2:", "v4l2:video0", "v4l2:/dev/../etc/passwd", "v4l2:/dev/video0/../sda", "v4l2:/dev/watchdog", "v4l2://host/dev/video0", "/dev/video0",
		"v4l2:/dev/video0?size=640", "v4l2:/dev/video0?size=0x480", "v4l2:/dev/video0?size=99999x1", "v4l2:/dev/video0?rate=-1", "v4l2:/dev/video0?rate=NaN",
		"v4l2:/dev/video0?format=mp4", "v4l2:/dev/video0?fps=5", "v4l2:/dev/video0?%zz",
	} {
		if d, err := address.ParseDevice(uri); err == nil {
			t.Errorf("%s is %+v", uri, d)
		}
	}
}

func FuzzParseDevice(f *testing.F) {
	f.Add("v4l2:/dev/video0?size=1280x720&rate=15&format=mjpeg")
	f.Fuzz(func(t *testing.T, uri string) {
		d, err := address.ParseDevice(uri)
		if err != nil {
			return
		}
		if !strings.HasPrefix(d.Path, "/dev/v") || strings.Contains(d.Path, "/../") || d.Width < 0 || d.Height < 0 || (d.Width == 0) != (d.Height == 0) || !(d.Rate >= 0 && d.Rate <= 1000) {
			t.Errorf("%q is %+v", uri, d)
		}
	})
}

func FuzzSplit(f *testing.F) {
	f.Add("admin", "p@ss:/w#rd?%", "cam:554/live?x=1")
	f.Add("", "", "[::1]/")
	f.Fuzz(func(t *testing.T, user, password, rest string) {
		_, _, _, _ = address.Split("rtsp://" + user + ":" + password + "@" + rest)
		// What is properly encoded comes back whole.
		u := url.URL{Scheme: "rtsp", User: url.UserPassword(user, password), Host: "cam:554", Path: "/live"}
		if user == "" {
			return
		}
		uri, gotUser, gotPassword, err := address.Split(u.String())
		if err != nil || uri != "rtsp://cam:554/live" || gotUser != user || gotPassword != password {
			t.Fatalf("%q: got %q %q %q, %v", u.String(), uri, gotUser, gotPassword, err)
		}
	})
}
