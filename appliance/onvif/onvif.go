// Package onvif finds the ONVIF devices of the local network (WS-Discovery) and asks them for their streams and their
// clock.
package onvif

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IOTechSystems/onvif"
	"github.com/IOTechSystems/onvif/device"
	"github.com/IOTechSystems/onvif/media"
	wsdiscovery "github.com/IOTechSystems/onvif/ws-discovery"
	xsd "github.com/IOTechSystems/onvif/xsd/onvif"
	"google.golang.org/protobuf/types/known/durationpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/internal/address"
)

// Config of a search.
type Config struct {
	// Address of one device: host, host:port or the address of its service. Empty: the network is asked.
	Address string
	// Username and Password, which most devices want before they tell their streams.
	Username, Password string
	// Timeout of it all; 0: 3 s.
	Timeout time.Duration
}

// maxAnswer bounds an answer of a device.
const maxAnswer = 1 << 20

// Discover returns the devices that answered, by their address. That none did is no error.
func Discover(ctx context.Context, cfg Config) ([]*vedettev1.DiscoveredCamera, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 3 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	var found []*vedettev1.DiscoveredCamera
	if cfg.Address != "" {
		service := cfg.Address
		if !strings.Contains(service, "://") {
			service = "http://" + service + "/onvif/device_service"
		}
		found = []*vedettev1.DiscoveredCamera{{Service: service}}
	} else {
		var err error
		if found, err = probe(); err != nil {
			return nil, err
		}
	}
	var wg sync.WaitGroup
	for _, c := range found {
		wg.Go(func() { ask(ctx, cfg, c) })
	}
	wg.Wait()
	slices.SortFunc(found, func(a, b *vedettev1.DiscoveredCamera) int { return strings.Compare(a.GetService(), b.GetService()) })
	return found, nil
}

// probe asks on every interface at once.
func probe() ([]*vedettev1.DiscoveredCamera, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	var mu sync.Mutex
	found := map[string]*vedettev1.DiscoveredCamera{}
	var wg sync.WaitGroup
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&(net.FlagMulticast|net.FlagLoopback) == 0 {
			continue
		}
		wg.Go(func() {
			// An interface that cannot be asked has no cameras for us.
			answers, _ := wsdiscovery.SendProbe(i.Name, nil, []string{"dn:NetworkVideoTransmitter"}, map[string]string{"dn": "http://www.onvif.org/ver10/network/wsdl"})
			mu.Lock()
			defer mu.Unlock()
			for _, a := range answers {
				for _, c := range matches([]byte(a)) {
					found[c.GetEndpoint()+c.GetService()] = c
				}
			}
		})
	}
	wg.Wait()
	list := make([]*vedettev1.DiscoveredCamera, 0, len(found))
	for _, c := range found {
		list = append(list, c)
	}
	return list, nil
}

// matches reads an answer to a probe.
func matches(answer []byte) []*vedettev1.DiscoveredCamera {
	var envelope struct {
		Matches []struct {
			Endpoint string `xml:"EndpointReference>Address"`
			Scopes   string `xml:"Scopes"`
			XAddrs   string `xml:"XAddrs"`
		} `xml:"Body>ProbeMatches>ProbeMatch"`
	}
	if xml.Unmarshal(answer, &envelope) != nil {
		return nil
	}
	var list []*vedettev1.DiscoveredCamera
	for _, m := range envelope.Matches {
		// The first address is enough: others are the same service by IPv6.
		service, _, _ := strings.Cut(strings.TrimSpace(m.XAddrs), " ")
		if u, err := url.Parse(service); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			continue
		}
		c := &vedettev1.DiscoveredCamera{Endpoint: strings.TrimSpace(m.Endpoint), Service: service}
		for scope := range strings.FieldsSeq(m.Scopes) {
			for prefix, to := range map[string]*string{"onvif://www.onvif.org/name/": &c.DisplayName, "onvif://www.onvif.org/hardware/": &c.Model} {
				if text, ok := strings.CutPrefix(scope, prefix); ok {
					if d, err := url.PathUnescape(text); err == nil {
						*to = d
					}
				}
			}
		}
		list = append(list, c)
	}
	return list
}

// within makes every request end with ctx.
type within struct{ ctx context.Context } //nolint:containedctx // the library's requests carry none

func (w within) RoundTrip(r *http.Request) (*http.Response, error) {
	return http.DefaultTransport.RoundTrip(r.WithContext(w.ctx))
}

// fault is why a device told nothing more.
type fault struct{ reason, message string }

func (f *fault) Error() string { return f.message }

// ask fills in what a device tells.
func ask(ctx context.Context, cfg Config, c *vedettev1.DiscoveredCamera) {
	if err := interview(ctx, cfg, c); err != nil {
		var f *fault
		if !errors.As(err, &f) {
			f = &fault{"UNREACHABLE", "the device does not answer as ONVIF says"}
			if ctx.Err() != nil {
				f = &fault{"TIMEOUT", "the device did not answer in time"}
			}
		}
		c.Reason, c.Message = f.reason, f.message
	}
}

func interview(ctx context.Context, cfg Config, c *vedettev1.DiscoveredCamera) error {
	u, err := url.Parse(c.GetService())
	if err != nil || u.Host == "" {
		return &fault{"INVALID_ARGUMENT", "the address cannot be read: write host, host:port or http://host/onvif/device_service"}
	}
	d, err := onvif.NewDevice(onvif.DeviceParams{
		Xaddr: u.Host, Username: cfg.Username, Password: cfg.Password, AuthMode: onvif.Both, HttpClient: &http.Client{Transport: within{ctx}},
	})
	if err != nil {
		return &fault{"UNREACHABLE", "there is no ONVIF service at " + u.Host}
	}
	var clock struct {
		UTC struct {
			Time struct{ Hour, Minute, Second int }
			Date struct{ Year, Month, Day int }
		} `xml:"Body>GetSystemDateAndTimeResponse>SystemDateAndTime>UTCDateTime"`
	}
	asked := time.Now()
	if err := call(d, device.GetSystemDateAndTime{}, &clock); err == nil && clock.UTC.Date.Year > 0 {
		t := clock.UTC
		told := time.Date(t.Date.Year, time.Month(t.Date.Month), t.Date.Day, t.Time.Hour, t.Time.Minute, t.Time.Second, 0, time.UTC)
		c.ClockOffset = durationpb.New(told.Sub(asked.Add(time.Since(asked) / 2)).Round(time.Second)) // it tells whole seconds
	}
	var info struct {
		Body struct {
			Manufacturer, Model, FirmwareVersion, SerialNumber string
		} `xml:"Body>GetDeviceInformationResponse"`
	}
	if err := call(d, device.GetDeviceInformation{}, &info); err == nil {
		c.Manufacturer, c.Firmware, c.Serial = info.Body.Manufacturer, info.Body.FirmwareVersion, info.Body.SerialNumber
		if info.Body.Model != "" {
			c.Model = info.Body.Model
		}
	}
	var profiles struct {
		List []struct {
			Token string `xml:"token,attr"`
			Name  string
			Video struct {
				Encoding   string
				Resolution struct{ Width, Height int32 }
				Rate       struct{ FrameRateLimit float64 } `xml:"RateControl"`
			} `xml:"VideoEncoderConfiguration"`
		} `xml:"Body>GetProfilesResponse>Profiles"`
	}
	if err := call(d, media.GetProfiles{}, &profiles); err != nil {
		return err
	}
	for _, p := range profiles.List {
		token := xsd.ReferenceToken(p.Token)
		var stream struct {
			URI string `xml:"Body>GetStreamUriResponse>MediaUri>Uri"`
		}
		transport, kind := xsd.TransportProtocol("RTSP"), xsd.StreamType("RTP-Unicast")
		err := call(d, media.GetStreamUri{ProfileToken: &token, StreamSetup: &xsd.StreamSetup{Stream: &kind, Transport: &xsd.Transport{Protocol: &transport}}}, &stream)
		if err != nil {
			return err
		}
		uri, _, _, err := address.Split(stream.URI) // some devices write credentials there
		if err != nil {
			continue
		}
		c.Streams = append(c.Streams, &vedettev1.DiscoveredStream{Profile: p.Name, Uri: uri, Media: &vedettev1.Media{
			Codec: strings.ToUpper(strings.ReplaceAll(p.Video.Encoding, ".", "")), Width: p.Video.Resolution.Width, Height: p.Video.Resolution.Height, Fps: p.Video.Rate.FrameRateLimit,
		}})
	}
	slices.SortStableFunc(c.Streams, func(a, b *vedettev1.DiscoveredStream) int {
		return int(b.GetMedia().GetWidth()*b.GetMedia().GetHeight()) - int(a.GetMedia().GetWidth()*a.GetMedia().GetHeight())
	})
	if len(c.Streams) == 0 {
		return &fault{"NOT_FOUND", "the device offers no video stream"}
	}
	return nil
}

// call sends a request and reads its answer.
func call(d *onvif.Device, method, answer any) error {
	resp, err := d.CallMethod(method)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is lost with it
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized || strings.Contains(string(b), "NotAuthorized"):
		return &fault{"AUTH_FAILED", "the device wants a user and password, or others than these"}
	case resp.StatusCode != http.StatusOK:
		return &fault{"PROTOCOL", "the device answered " + resp.Status}
	}
	if err := xml.Unmarshal(b, answer); err != nil {
		return &fault{"PROTOCOL", "the device's answer is no SOAP"}
	}
	return nil
}
