package doctor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/doctor"
)

// well is a camera with nothing wrong.
func well(now time.Time) *vedettev1.Camera {
	return &vedettev1.Camera{
		Name: "cameras/door", Source: &vedettev1.Source{Uri: "rtsp://192.0.2.7/stream1"},
		Status: &vedettev1.CameraStatus{
			State: vedettev1.CameraState_CAMERA_STATE_STREAMING, ReceivedFps: 25, AnalysedFps: 5, LastFrameTime: timestamppb.New(now.Add(-time.Second)),
			Media:  &vedettev1.Media{Codec: "H264", Width: 640, Height: 360, Fps: 25},
			Ingest: &vedettev1.IngestStatus{Transport: "TCP", Decoder: "software", Gop: 50, SenderReports: true},
		},
	}
}

func TestACameraThatIsWellPasses(t *testing.T) {
	now := time.Now()
	list := doctor.Camera(well(now), now)
	if doctor.Worst(list) != doctor.OK || len(list) < 6 {
		t.Errorf("%+v", list)
	}
	pictures := well(now)
	pictures.Source.Uri, pictures.Status.Ingest.SenderReports = "http://192.0.2.7/video", false
	if list = doctor.Camera(pictures, now); doctor.Worst(list) != doctor.OK || slices.ContainsFunc(list, func(f doctor.Finding) bool { return f.Check == "camera-clock" }) {
		t.Errorf("over HTTP: %+v", list)
	}
}

func TestWhatIsWrongWithACameraIsFoundWithAnAdvice(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name     string
		harm     func(*vedettev1.Camera)
		check    string
		severity doctor.Severity
		says     string
	}{
		{"refused credentials", func(c *vedettev1.Camera) {
			c.Status = &vedettev1.CameraStatus{
				State: vedettev1.CameraState_CAMERA_STATE_QUARANTINED, Reason: "AUTH_FAILED", Message: "describe: 401 (check user name and password)",
				NextRetryTime: timestamppb.New(now.Add(time.Minute)),
			}
		}, "state", doctor.Error, "AUTH_FAILED: describe: 401; the next attempt"},
		{"another attempt", func(c *vedettev1.Camera) {
			c.Status = &vedettev1.CameraStatus{
				State: vedettev1.CameraState_CAMERA_STATE_CONNECTING, Reason: "STALLED", Message: "nothing came (restart it)", Ingest: &vedettev1.IngestStatus{Attempts: 2},
			}
		}, "state", doctor.Warning, "attempt 2, after STALLED: nothing came"},
		{"a disabled camera", func(c *vedettev1.Camera) { c.Status.State = vedettev1.CameraState_CAMERA_STATE_DISABLED }, "state", doctor.Warning, "DISABLED"},
		{"a file that was read", func(c *vedettev1.Camera) {
			c.Status = &vedettev1.CameraStatus{State: vedettev1.CameraState_CAMERA_STATE_DISABLED, Reason: "FINISHED", Message: "the file has been read to its end"}
		}, "state", doctor.Warning, "DISABLED: the file has been read"},
		{"a long distance of keyframes", func(c *vedettev1.Camera) { c.Status.Ingest.Gop = 250 }, "keyframes", doctor.Warning, "10 s"},
		{"a main stream of 4K", func(c *vedettev1.Camera) { c.Status.Media.Width, c.Status.Media.Height = 3840, 2160 }, "stream", doctor.Warning, "3840x2160"},
		{"a decoder that is not the first choice", func(c *vedettev1.Camera) { c.Status.Ingest.DecoderFallback = "vaapi: no device" }, "decoder", doctor.Warning, "vaapi: no device"},
		{"a decoder that hung", func(c *vedettev1.Camera) { c.Status.Ingest.DecodersAbandoned = 1 }, "decoder", doctor.Error, "1 hung"},
		{"loss", func(c *vedettev1.Camera) { c.Status.Ingest.PacketsLost = 7 }, "network", doctor.Warning, "7 packets"},
		{"a wrong clock", func(c *vedettev1.Camera) { c.Status.Ingest.ClockOffset = durationpb.New(3 * time.Hour) }, "camera-clock", doctor.Warning, "3h0m0s"},
		{"a stream that crashes", func(c *vedettev1.Camera) {
			c.Status.Ingest.Isolated, c.Status.Ingest.IsolationReason = true, "its stream crashed the shared process 2 times"
		}, "process", doctor.Warning, "2 times"},
		{"no inference", func(c *vedettev1.Camera) { c.Status.AnalysisReason = "INFERENCE_UNAVAILABLE" }, "analysis", doctor.Error, "INFERENCE_UNAVAILABLE"},
		{"analysis that stands still", func(c *vedettev1.Camera) { c.Status.LastFrameTime = timestamppb.New(now.Add(-time.Minute)) }, "analysis", doctor.Warning, "1m0s"},
	} {
		camera := well(now)
		c.harm(camera)
		f := find(t, doctor.Camera(camera, now), c.check)
		if f.Severity != c.severity || f.Advice == "" || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}
