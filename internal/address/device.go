package address

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// Device is a video device of the box itself.
type Device struct {
	// Path is /dev/video… or /dev/v4l/….
	Path string
	// Width, Height and Rate (pictures a second) to ask the device for; 0: its own or usual ones.
	Width, Height int
	Rate          float64
	// Format to ask for: "h264", "mjpeg", "yuyv", or empty.
	Format string
}

// IsDevice reports whether an address is that of a video device: v4l2:….
func IsDevice(uri string) bool { return strings.HasPrefix(uri, "v4l2:") }

// ParseDevice reads v4l2:/dev/video0, with what to ask the device for behind it: ?size=1280x720&rate=15&format=mjpeg.
func ParseDevice(uri string) (Device, error) {
	rest, ok := strings.CutPrefix(uri, "v4l2:")
	if !ok {
		return Device{}, errors.New("no address of a video device, such as v4l2:/dev/video0")
	}
	rest, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	name, err := url.PathUnescape(rest)
	// Opening other devices can have effects of its own.
	if err != nil || path.Clean(name) != name || !strings.HasPrefix(name, "/dev/video") && !strings.HasPrefix(name, "/dev/v4l/") {
		return Device{}, errors.New("a video device is v4l2:/dev/video0, or by a name that stays, v4l2:/dev/v4l/by-id/…")
	}
	d := Device{Path: name}
	values, err := url.ParseQuery(query)
	if err != nil {
		return Device{}, errors.New("what follows the ? of a video device cannot be read: write ?size=1280x720&rate=15&format=mjpeg")
	}
	for key, v := range values {
		switch key {
		case "size":
			w, h, _ := strings.Cut(v[0], "x")
			d.Width, d.Height = side(w), side(h)
			if d.Width == 0 || d.Height == 0 {
				return Device{}, fmt.Errorf("size=%q of a video device is no size: write size=1280x720", v[0])
			}
		case "rate":
			d.Rate, err = strconv.ParseFloat(v[0], 64)
			if err != nil || !(d.Rate > 0 && d.Rate <= 1000) {
				return Device{}, fmt.Errorf("rate=%q of a video device is not within 0 and 1000 pictures a second", v[0])
			}
		case "format":
			if d.Format = v[0]; d.Format != "h264" && d.Format != "mjpeg" && d.Format != "yuyv" {
				return Device{}, fmt.Errorf("format=%q of a video device is none of h264, mjpeg and yuyv", v[0])
			}
		default:
			return Device{}, fmt.Errorf("%q is nothing a video device is asked for: size, rate and format are", key)
		}
	}
	return d, nil
}

// side reads one side of a size; 0 when it is none.
func side(s string) int {
	n, err := strconv.ParseUint(s, 10, 14)
	if err != nil {
		return 0
	}
	return int(n)
}
