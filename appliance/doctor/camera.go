package doctor

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// Limits of what is well.
const (
	longGOP      = 4.0 // seconds
	wrongClock   = time.Second
	largePicture = 1920 * 1088
	staleFrame   = 5 * time.Second
)

// Camera looks at one camera by what the appliance knows of it, at time now, without opening another session on it.
func Camera(c *vedettev1.Camera, now time.Time) []Finding {
	d := &doctor{}
	s := c.GetStatus()
	d.state(c, s)
	if s.GetState() != vedettev1.CameraState_CAMERA_STATE_STREAMING {
		d.isolation(s.GetIngest())
		return d.findings
	}
	d.stream(s)
	d.decoder(s.GetIngest(), s.GetMedia())
	d.network(s.GetIngest())
	if strings.HasPrefix(c.GetSource().GetUri(), "rtsp") { // nothing else carries the camera's time
		d.cameraClock(s.GetIngest())
	}
	d.gate(s.GetIngest())
	d.isolation(s.GetIngest())
	d.analysis(c, s, now)
	return d.findings
}

func (d *doctor) state(c *vedettev1.Camera, s *vedettev1.CameraStatus) {
	name := strings.TrimPrefix(s.GetState().String(), "CAMERA_STATE_")
	since := ""
	if t := s.GetSinceTime(); t != nil {
		since = " since " + t.AsTime().Local().Format(time.DateTime)
	}
	host := ""
	if u, err := url.Parse(c.GetSource().GetUri()); err == nil {
		host = u.Host
	}
	message, hint, _ := strings.Cut(strings.TrimSuffix(s.GetMessage(), ")"), " (")
	switch s.GetState() {
	case vedettev1.CameraState_CAMERA_STATE_DISABLED:
		why := ""
		if s.GetReason() == "FINISHED" {
			why = ": " + s.GetMessage()
		}
		d.bad(Warning, "state", "vedette camera enable "+strings.TrimPrefix(c.GetName(), "cameras/"), "%s%s%s", name, since, why)
	case vedettev1.CameraState_CAMERA_STATE_STREAMING:
		d.ok("state", "%s%s from %s", name, since, cmp.Or(host, c.GetSource().GetUri()))
	case vedettev1.CameraState_CAMERA_STATE_CONNECTING:
		before := ""
		if s.GetReason() != "" {
			before = fmt.Sprintf(", after %s: %s", s.GetReason(), message)
		}
		d.bad(Warning, "state", cmp.Or(hint, "look again in a moment"), "%s to %s%s, attempt %d%s", name, host, since, s.GetIngest().GetAttempts(), before)
	default:
		retry := ""
		if t := s.GetNextRetryTime(); t != nil {
			retry = "; the next attempt is at " + t.AsTime().Local().Format(time.TimeOnly)
		}
		d.bad(Error, "state", hint, "%s%s: %s: %s%s", name, since, s.GetReason(), message, retry)
	}
}

func (d *doctor) stream(s *vedettev1.CameraStatus) {
	m, in := s.GetMedia(), s.GetIngest()
	text := fmt.Sprintf("%s %dx%d, %.4g a second, %.2f Mbit/s", m.GetCodec(), m.GetWidth(), m.GetHeight(), s.GetReceivedFps(), in.GetBitRate()/1e6)
	if in.GetTransport() != "" { // files and devices have none
		text += " over " + in.GetTransport()
	}
	if int(m.GetWidth())*int(m.GetHeight()) > largePicture {
		d.bad(Warning, "stream", "analyse the camera's sub stream; keep this one for people", "%s", text)
	} else {
		d.ok("stream", "%s", text)
	}
	if s.GetReceivedFps() <= 0 || in.GetGop() == 0 {
		return
	}
	if seconds := float64(in.GetGop()) / s.GetReceivedFps(); seconds > longGOP {
		d.bad(Warning, "keyframes", "set the camera's I-frame interval to 1 or 2 s and its smart coding (H.264+, H.265+) off", "%.0f s from one to the next: after every loss nothing is seen for as long", seconds)
	} else {
		every := fmt.Sprintf("every %d pictures", in.GetGop())
		if in.GetGop() == 1 {
			every = "every picture"
		}
		d.ok("keyframes", "%s, %.1f s", every, seconds)
	}
}

func (d *doctor) decoder(in *vedettev1.IngestStatus, m *vedettev1.Media) {
	switch {
	case in.GetDecodersAbandoned() > 0:
		d.bad(Error, "decoder", "restart vedette-ingest to free what hung decoders hold; update the driver, or choose software decoding", "%s is in use; %d hung and were abandoned", in.GetDecoder(), in.GetDecodersAbandoned())
	case in.GetDecoderFallback() != "":
		d.bad(Warning, "decoder", "see that the service reaches the device (drop-in gpu.conf) and its driver is there; it is tried again by itself", "%s is in use instead of the first choice: %s", in.GetDecoder(), in.GetDecoderFallback())
	case in.GetDecodeErrors() > 0:
		d.bad(Warning, "decoder", "look at the network first; if nothing is lost there, update the camera or lower its profile", "%s is in use; %d pictures could not be decoded", in.GetDecoder(), in.GetDecodeErrors())
	case m.GetCodec() == "H265" && in.GetDecoder() == "software":
		d.ok("decoder", "software; H.265 costs about twice what H.264 does")
	default:
		d.ok("decoder", "%s", in.GetDecoder())
	}
}

func (d *doctor) network(in *vedettev1.IngestStatus) {
	if in.GetPacketsLost() > 0 {
		d.bad(Warning, "network", "look for a bad cable, a weak radio link or a full uplink; TCP hides loss at the price of delay", "%d packets never arrived; %d times connected anew", in.GetPacketsLost(), in.GetReconnects())
		return
	}
	if in.GetReconnects() > 0 {
		d.bad(Warning, "network", "compare with the camera's own log: it or the network drops the connection", "no packet was lost, but the camera was connected anew %d times", in.GetReconnects())
		return
	}
	d.ok("network", "no packet was lost and the connection never broke")
}

func (d *doctor) cameraClock(in *vedettev1.IngestStatus) {
	off := in.GetClockOffset().AsDuration()
	switch {
	case !in.GetSenderReports():
		d.ok("camera-clock", "the camera does not tell its time (no RTCP sender reports): capture times are those of arrival, less the usual delay")
	case off.Abs() > wrongClock:
		d.bad(Warning, "camera-clock", "give the camera this box or another NTP server; until then its time is not believed", "the camera's clock is off by %v", off.Round(time.Millisecond))
	default:
		d.ok("camera-clock", "within %v of this box's", off.Abs().Round(time.Millisecond))
	}
}

func (d *doctor) gate(in *vedettev1.IngestStatus) {
	if in.GetGate() != "" {
		d.ok("motion-gate", "%s; %d frames were held back", in.GetGate(), in.GetFramesGated())
	}
}

func (d *doctor) isolation(in *vedettev1.IngestStatus) {
	switch {
	case in.GetIsolationReason() != "":
		d.bad(Warning, "process", "update the camera's firmware; report the crash with a support bundle and a packet dump", "it has a process of its own, because %s", in.GetIsolationReason())
	case in.GetIsolated():
		d.ok("process", "its own, as asked for")
	}
}

func (d *doctor) analysis(c *vedettev1.Camera, s *vedettev1.CameraStatus, now time.Time) {
	switch {
	case c.GetAnalysis().GetPaused():
		d.ok("analysis", "paused")
	case s.GetAnalysisReason() != "":
		d.bad(Error, "analysis", "see vedette doctor and the log of vedette-infer", "%s: %s", s.GetAnalysisReason(), s.GetAnalysisMessage())
	case s.GetLastFrameTime() == nil:
		d.bad(Warning, "analysis", "look again in a moment", "no frame has been analysed yet")
	case now.Sub(s.GetLastFrameTime().AsTime()) > staleFrame && s.GetIngest().GetGate() != "CLOSED":
		d.bad(Warning, "analysis", "see whether the box has more to do than it can (vedette camera list)", "the newest analysed frame is %v old", now.Sub(s.GetLastFrameTime().AsTime()).Round(time.Second))
	default:
		d.ok("analysis", "%.1f frames a second", s.GetAnalysedFps())
	}
}
