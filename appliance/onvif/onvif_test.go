package onvif_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/onvif"
)

const envelope = `<?xml version="1.0" encoding="UTF-8"?><s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:tds="http://www.onvif.org/ver10/device/wsdl"
 xmlns:trt="http://www.onvif.org/ver10/media/wsdl" xmlns:tt="http://www.onvif.org/ver10/schema"><s:Body>%s</s:Body></s:Envelope>`

// device speaks as much ONVIF as a camera must, its clock three hours ahead.
func device(t *testing.T, password string) *httptest.Server {
	t.Helper()
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body, now := string(b), time.Now().UTC().Add(3*time.Hour)
		answer := func(format string, args ...any) { _, _ = fmt.Fprintf(w, envelope, fmt.Sprintf(format, args...)) }
		secret := !strings.Contains(body, "GetCapabilities") && !strings.Contains(body, "GetSystemDateAndTime")
		if secret && password != "" && (!strings.Contains(body, "UsernameToken") || !strings.Contains(body, ">admin<")) {
			w.WriteHeader(http.StatusBadRequest)
			answer(`<s:Fault><s:Code><s:Subcode><s:Value>ter:NotAuthorized</s:Value></s:Subcode></s:Code></s:Fault>`)
			return
		}
		switch {
		case strings.Contains(body, "GetCapabilities"):
			answer(`<tds:GetCapabilitiesResponse><tds:Capabilities><tt:Media><tt:XAddr>%s/onvif/media</tt:XAddr></tt:Media></tds:Capabilities></tds:GetCapabilitiesResponse>`, server.URL)
		case strings.Contains(body, "GetSystemDateAndTime"):
			answer(`<tds:GetSystemDateAndTimeResponse><tds:SystemDateAndTime><tt:UTCDateTime><tt:Time><tt:Hour>%d</tt:Hour><tt:Minute>%d</tt:Minute><tt:Second>%d</tt:Second></tt:Time>`+
				`<tt:Date><tt:Year>%d</tt:Year><tt:Month>%d</tt:Month><tt:Day>%d</tt:Day></tt:Date></tt:UTCDateTime></tds:SystemDateAndTime></tds:GetSystemDateAndTimeResponse>`,
				now.Hour(), now.Minute(), now.Second(), now.Year(), now.Month(), now.Day())
		case strings.Contains(body, "GetDeviceInformation"):
			answer(`<tds:GetDeviceInformationResponse><tds:Manufacturer>Acme</tds:Manufacturer><tds:Model>C-1</tds:Model><tds:FirmwareVersion>1.2</tds:FirmwareVersion><tds:SerialNumber>7</tds:SerialNumber></tds:GetDeviceInformationResponse>`)
		case strings.Contains(body, "GetProfiles"):
			profile := `<trt:Profiles token="%s"><tt:Name>%s</tt:Name><tt:VideoEncoderConfiguration><tt:Encoding>H264</tt:Encoding><tt:Resolution><tt:Width>%d</tt:Width><tt:Height>%d</tt:Height></tt:Resolution><tt:RateControl><tt:FrameRateLimit>15</tt:FrameRateLimit></tt:RateControl></tt:VideoEncoderConfiguration></trt:Profiles>`
			answer(`<trt:GetProfilesResponse>%s%s</trt:GetProfilesResponse>`, fmt.Sprintf(profile, "p2", "sub", 640, 360), fmt.Sprintf(profile, "p1", "main", 1920, 1080))
		case strings.Contains(body, "GetStreamUri"):
			token := regexp.MustCompile(`>(p\d)<`).FindStringSubmatch(body)[1]
			answer(`<trt:GetStreamUriResponse><trt:MediaUri><tt:Uri>rtsp://admin:%s@192.0.2.9/%s</tt:Uri></trt:MediaUri></trt:GetStreamUriResponse>`, "canary", token)
		default:
			http.Error(w, "what?", http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func TestADeviceTellsItsStreamsAndItsClock(t *testing.T) {
	server := device(t, "secret")
	list, err := onvif.Discover(t.Context(), onvif.Config{Address: strings.TrimPrefix(server.URL, "http://"), Username: "admin", Password: "secret", Timeout: 20 * time.Second})
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	c := list[0]
	if c.GetReason() != "" || c.GetManufacturer() != "Acme" || c.GetModel() != "C-1" || c.GetFirmware() != "1.2" || c.GetSerial() != "7" {
		t.Errorf("%v", c)
	}
	if off := c.GetClockOffset().AsDuration() - 3*time.Hour; off < -10*time.Second || off > 10*time.Second {
		t.Errorf("its clock is %v off, want 3 h", c.GetClockOffset().AsDuration())
	}
	if s := c.GetStreams(); len(s) != 2 || s[0].GetUri() != "rtsp://192.0.2.9/p1" || s[0].GetMedia().GetWidth() != 1920 || s[1].GetProfile() != "sub" || s[1].GetMedia().GetCodec() != "H264" {
		t.Errorf("streams, largest first and without credentials: %v", s)
	}
}

func TestADeviceThatTellsNothingSaysWhy(t *testing.T) {
	server := device(t, "secret")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a hang-up is noticed behind it
		<-r.Context().Done()
	}))
	defer silent.Close()
	for _, c := range []struct{ name, address, want string }{
		{"without a user", server.URL + "/onvif/device_service", "AUTH_FAILED"},
		{"nobody there", closed.URL + "/", "UNREACHABLE"},
		{"no address", "http://%zz", "INVALID_ARGUMENT"},
	} {
		list, err := onvif.Discover(t.Context(), onvif.Config{Address: c.address, Timeout: 20 * time.Second})
		if err != nil || len(list) != 1 || list[0].GetReason() != c.want || list[0].GetMessage() == "" {
			t.Errorf("%s: %v, %v", c.name, list, err)
		}
	}
	list, err := onvif.Discover(t.Context(), onvif.Config{Address: silent.URL, Timeout: 100 * time.Millisecond})
	if err != nil || len(list) != 1 || list[0].GetReason() == "" {
		t.Errorf("silent: %v, %v", list, err)
	}
}

// TestTheNetworkIsAsked lets a device answer probes on the loopback, as WS-Discovery says.
func TestTheNetworkIsAsked(t *testing.T) {
	server := device(t, "")
	group := &net.UDPAddr{IP: net.IPv4(239, 255, 255, 250), Port: 3702}
	conn, err := net.ListenPacket("udp4", "239.255.255.250:3702")
	if err != nil {
		t.Skipf("the port of WS-Discovery is taken: %v", err)
	}
	p := ipv4.NewPacketConn(conn)
	lo, err := net.InterfaceByName("lo")
	if err != nil || p.JoinGroup(lo, group) != nil {
		_ = conn.Close()
		t.Skipf("no multicast on the loopback here: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 8192)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if !strings.Contains(string(b[:n]), "NetworkVideoTransmitter") {
				continue
			}
			answer := `<Envelope><Body><ProbeMatches><ProbeMatch><EndpointReference><Address>urn:uuid:1234</Address></EndpointReference>` +
				`<Scopes>onvif://www.onvif.org/name/Front%20Door onvif://www.onvif.org/hardware/X9</Scopes><XAddrs>` + server.URL + `/onvif/device_service http://[::1]/</XAddrs></ProbeMatch></ProbeMatches></Body></Envelope>`
			_, _ = conn.WriteTo([]byte(answer), from)
		}
	}()
	list, err := onvif.Discover(t.Context(), onvif.Config{Timeout: 20 * time.Second})
	_ = conn.Close()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	var found *vedettev1.DiscoveredCamera
	for _, c := range list {
		if c.GetEndpoint() == "urn:uuid:1234" {
			found = c
		}
	}
	if found == nil || found.GetDisplayName() != "Front Door" || len(found.GetStreams()) != 2 {
		t.Errorf("found %v among %d", found, len(list))
	}
}
