package api_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/appliance/video"
	"github.com/vedette/vedette/store"
)

// film gives two access units of every camera, and then says that it was removed.
type film struct{}

func (film) Watch(_ context.Context, camera string, main bool, take func(*ingestv1.StreamDescription, *ingestv1.AccessUnit) error) error {
	d := &ingestv1.StreamDescription{Camera: camera, Main: main, Codec: ingestv1.Codec_CODEC_H264, Width: 64, Height: 48, ParameterSets: [][]byte{{0x67}}}
	for n := range 2 {
		if err := take(d, &ingestv1.AccessUnit{Units: [][]byte{{0x65}}, Keyframe: n == 0, Number: uint64(n), CaptureTimeNs: 1e18}); err != nil {
			return err
		}
		d = nil
	}
	return video.ErrRemoved
}

func TestCodedVideoIsForThoseWhoMaySeeIt(t *testing.T) {
	b := start(t, false, album{})
	square := &vedettev1.PrivacyMask{Points: []*vedettev1.PrivacyPoint{{X: 0, Y: 0}, {X: 1, Y: 0}, {X: 1, Y: 1}}}
	for id, masks := range map[string][]*vedettev1.PrivacyMask{"door": nil, "bath": {square}} {
		if _, err := b.cameras.Create(t.Context(), id, &vedettev1.Camera{Source: &vedettev1.Source{Uri: "rtsp://camera/"}, PrivacyMasks: masks}, false); err != nil {
			t.Fatal(err)
		}
	}
	cameras := vedettev1.NewCameraServiceClient(b.tcp)
	plain := func(ctx context.Context, name string, stream vedettev1.VideoStream) (units int, err error) {
		s, err := cameras.WatchVideo(ctx, &vedettev1.WatchVideoRequest{Name: name, Stream: stream})
		return drain(s, err)
	}
	unmasked := func(ctx context.Context, name string, stream vedettev1.VideoStream) (units int, err error) {
		s, err := cameras.WatchUnmaskedVideo(ctx, &vedettev1.WatchUnmaskedVideoRequest{Name: name, Stream: stream})
		return drain(s, err)
	}
	for _, c := range []struct {
		name   string
		role   api.Role
		watch  func(context.Context, string, vedettev1.VideoStream) (int, error)
		camera string
		stream vedettev1.VideoStream
		units  int
		reason string
	}{
		{"a viewer sees a camera until it is removed", api.Viewer, plain, "cameras/door", 0, 2, "CAMERA_REMOVED"},
		{"nobody is told of masked video", api.Admin, plain, "cameras/bath", 0, 0, "MASKED"},
		{"a viewer may not look behind masks", api.Viewer, unmasked, "cameras/bath", 0, 0, "ROLE_TOO_LOW"},
		{"an operator may", api.Operator, unmasked, "cameras/bath", 0, 2, "CAMERA_REMOVED"},
		{"no such camera", api.Viewer, plain, "cameras/shed", 0, 0, "NOT_FOUND"},
		{"no main stream", api.Viewer, plain, "cameras/door", vedettev1.VideoStream_VIDEO_STREAM_MAIN, 0, "NO_MAIN_STREAM"},
		{"no such stream", api.Viewer, plain, "cameras/door", 9, 0, "INVALID_ARGUMENT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			units, err := c.watch(b.as(c.role), c.camera, c.stream)
			if units != c.units || reason(err) != c.reason {
				t.Errorf("%d units, then %v (%s)", units, err, reason(err))
			}
		})
	}
	entries, _, err := b.store.ListAudit(t.Context(), store.Query{PageSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if e.Action == "WatchUnmaskedVideo" && e.Resource == "cameras/bath" && e.Actor == "someone" && e.Outcome == "OK" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d entries of unmasked video in the audit log, want 1: %v", n, entries)
	}
}

// drain counts the units of a stream.
func drain[M interface{ GetUnit() *vedettev1.VideoUnit }](s interface {
	grpc.ClientStream
	Recv() (M, error)
}, err error,
) (units int, _ error) {
	for err == nil {
		var m M
		if m, err = s.Recv(); err == nil && m.GetUnit() != nil {
			units++
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return units, err
}

func TestPacketsAreCapturedOfCamerasThatHaveThem(t *testing.T) {
	b := start(t, false, album{})
	for id, c := range map[string]*vedettev1.Camera{
		"door": {Source: &vedettev1.Source{Uri: "rtsp://camera/"}},
		"gate": {Source: &vedettev1.Source{Uri: "rtsp://camera/2"}, DesiredState: vedettev1.DesiredState_DESIRED_STATE_DISABLED},
		"clip": {Source: &vedettev1.Source{Uri: "file:///clip.mp4"}},
	} {
		if _, err := b.cameras.Create(t.Context(), id, c, false); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]string{"door": "", "gate": "CAMERA_DISABLED", "clip": "NO_PACKETS", "shed": "NOT_FOUND"} {
		stream, err := vedettev1.NewCameraServiceClient(b.tcp).DumpPackets(b.as(api.Admin), &vedettev1.DumpPacketsRequest{Name: "cameras/" + id})
		if err != nil {
			t.Fatal(err)
		}
		part, err := stream.Recv()
		if (want == "") != (err == nil && string(part.GetData()) == "packets") || want != "" && reason(err) != want {
			t.Errorf("%s: %q, %v, want %q", id, part.GetData(), err, want)
		}
	}
}
