package api_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

// What a hostile client puts into fields.
func badValues(f protoreflect.FieldDescriptor) (list []protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.StringKind:
		for _, s := range []string{
			"'; DROP TABLE events; --", "../../etc/passwd", "cameras/door/tracks/1-1/../../hall", "cameras/", "\x00%s%n", "cameras/" + strings.Repeat("x", 5000),
			strings.Repeat("(", 2000), strings.Repeat("NOT ", 900), strings.Repeat("a.", 900), strings.Repeat("a OR ", 800), strings.Repeat("-", 900), "-1", "99999999999999999999", "rtsp://user:pass@h/x", "time >= \"never\" OR", "score >= NaN",
		} {
			list = append(list, protoreflect.ValueOfString(s))
		}
	case protoreflect.Int32Kind:
		list = append(list, protoreflect.ValueOfInt32(-1), protoreflect.ValueOfInt32(math.MinInt32), protoreflect.ValueOfInt32(math.MaxInt32))
	case protoreflect.Int64Kind:
		list = append(list, protoreflect.ValueOfInt64(-1), protoreflect.ValueOfInt64(math.MinInt64), protoreflect.ValueOfInt64(math.MaxInt64))
	case protoreflect.DoubleKind:
		list = append(list, protoreflect.ValueOfFloat64(math.NaN()), protoreflect.ValueOfFloat64(math.Inf(1)), protoreflect.ValueOfFloat64(-1))
	case protoreflect.FloatKind:
		list = append(list, protoreflect.ValueOfFloat32(float32(math.NaN())), protoreflect.ValueOfFloat32(-1), protoreflect.ValueOfFloat32(math.MaxFloat32))
	case protoreflect.EnumKind:
		list = append(list, protoreflect.ValueOfEnum(-1), protoreflect.ValueOfEnum(9999))
	case protoreflect.BytesKind:
		list = append(list, protoreflect.ValueOfBytes(make([]byte, 1<<16)))
	default: // booleans have no bad value
	}
	return list
}

// corrupt calls try with copies of m, each with one bad value in one field, at any depth.
func corrupt(m protoreflect.Message, path string, depth int, try func(place string)) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		place := strings.TrimPrefix(path+"."+string(f.Name()), ".")
		was, had := m.Get(f), m.Has(f)
		restore := func() {
			m.Clear(f)
			if had {
				m.Set(f, was)
			}
		}
		switch {
		case f.IsMap():
			if f.MapKey().Kind() != protoreflect.StringKind || f.MapValue().Kind() != protoreflect.StringKind {
				continue
			}
			for _, k := range []string{"", "\n", strings.Repeat("k", 5000), "Host"} {
				v := m.NewField(f)
				v.Map().Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString("v\r\nx: y"))
				m.Set(f, v)
				try(place)
				restore()
			}
		case f.IsList():
			for _, n := range []int{1, 300} {
				v := m.NewField(f)
				for range n {
					if f.Message() != nil {
						v.List().AppendMutable()
					} else if bad := badValues(f); len(bad) > 0 {
						v.List().Append(bad[0])
					}
				}
				m.Set(f, v)
				try(place)
				restore()
			}
		case f.Message() != nil && depth < 4:
			clone := proto.Clone(m.Interface()).ProtoReflect()
			child := clone.Mutable(f).Message()
			corrupt(child, place, depth+1, func(place string) {
				m.Set(f, protoreflect.ValueOfMessage(child))
				try(place)
			})
			restore()
		default:
			for _, bad := range badValues(f) {
				m.Set(f, bad)
				try(place)
				restore()
			}
		}
	}
}

// sound requests that the bad values are put into, so that the other fields pass.
func soundRequests() map[string]proto.Message {
	zone := &vedettev1.Zone{Polygon: []*vedettev1.Point{{X: 0.1, Y: 0.1}, {X: 0.9, Y: 0.1}, {X: 0.5, Y: 0.9}}}
	line := &vedettev1.Line{Start: &vedettev1.Point{Y: 0.5}, End: &vedettev1.Point{X: 1, Y: 0.5}}
	sink := &vedettev1.Sink{Target: &vedettev1.Sink_Webhook{Webhook: &vedettev1.WebhookTarget{Uri: "https://h/x"}}, Disabled: true}
	return map[string]proto.Message{
		"CreateCamera": &vedettev1.CreateCameraRequest{Camera: door(), ValidateOnly: true},
		"CreateZone":   &vedettev1.CreateZoneRequest{Parent: "cameras/door", Zone: zone, ValidateOnly: true},
		"CreateLine":   &vedettev1.CreateLineRequest{Parent: "cameras/door", Line: line, ValidateOnly: true},
		"CreateSink":   &vedettev1.CreateSinkRequest{Sink: sink, ValidateOnly: true},
		"TestRules":    &vedettev1.TestRulesRequest{Parent: "cameras/door", Zones: []*vedettev1.Zone{zone}, Lines: []*vedettev1.Line{line}},
		"QueryCounts":  &vedettev1.QueryCountsRequest{Parent: "cameras/door"},
		"ListZones":    &vedettev1.ListZonesRequest{Parent: "cameras/door"},
		"ListLines":    &vedettev1.ListLinesRequest{Parent: "cameras/door"},
	}
}

// TestBadInputInEveryFieldOfEveryMethodIsATypedError calls every method of every service with bad values in every field.
// Whatever the answer is, it is not the box's own fault, it has a reason, and nothing is lost by it.
func TestBadInputInEveryFieldOfEveryMethodIsATypedError(t *testing.T) {
	b := start(t, false, album{})
	b.add("door")
	sound := soundRequests()
	calls, refused := 0, 0
	protoregistry.GlobalFiles.RangeFilesByPackage("vedette.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				m := file.Services().Get(i).Methods().Get(j)
				if skipped(m) {
					continue
				}
				in, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
				if err != nil {
					t.Fatal(err)
				}
				req := in.New().Interface()
				if s := sound[string(m.Name())]; s != nil {
					req = proto.Clone(s)
				}
				corrupt(req.ProtoReflect(), "", 0, func(place string) {
					calls++
					err := b.call(m, req)
					if err == nil {
						return
					}
					refused++
					s := status.Convert(err)
					switch {
					case s.Code() == codes.Unimplemented: // served by others than this package
					case s.Code() == codes.Internal, s.Code() == codes.Unknown, s.Code() == codes.DataLoss, reason(err) == "":
						t.Errorf("%s with a bad %s: %v, reason %q", m.FullName(), place, err, reason(err))
					}
				})
			}
		}
		return true
	})
	t.Logf("%d calls, %d refused", calls, refused)
	if calls < 1000 || refused < calls/2 {
		t.Errorf("%d calls, %d refused: that is not every field", calls, refused)
	}
	if _, err := b.cameras.Get("cameras/door"); err != nil {
		t.Errorf("afterwards the camera is gone: %v", err)
	}
	if err := b.store.Flush(context.Background()); err != nil {
		t.Errorf("afterwards the store: %v", err)
	}
}

// skipped are methods whose right answer takes long, or is not this package's.
func skipped(m protoreflect.MethodDescriptor) bool {
	switch m.Name() {
	case "MeasureCapacity", "CreateBackup":
		return true
	}
	return false
}

// call makes one call; of a stream it takes what comes first.
func (b *box) call(m protoreflect.MethodDescriptor, req proto.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	out, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return err
	}
	if !m.IsStreamingServer() {
		return b.local.Invoke(ctx, path, req, out.New().Interface())
	}
	stream, err := b.local.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err == nil {
		err = errors.Join(stream.SendMsg(req), stream.CloseSend())
	}
	if err == nil {
		err = stream.RecvMsg(out.New().Interface())
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func TestAPageTokenIsGoodForItsOwnQueryAlone(t *testing.T) {
	b, _, _ := seenBox(t)
	ctx := t.Context()
	seq, err := b.store.OpenSequence(ctx, store.Sequence{Camera: "hall"})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	var batch store.Batch
	for i := range int64(4) {
		batch.Tracks = append(batch.Tracks, store.Track{ID: store.TrackID{Sequence: seq, Local: i + 1}, Camera: "hall", Class: "person", Start: at, End: at, State: store.TrackActive})
		batch.Events = append(batch.Events, store.Event{Camera: "hall", Type: "x", Time: at})
	}
	b.append(batch)
	analytics, events := vedettev1.NewAnalyticsServiceClient(b.local), vedettev1.NewEventServiceClient(b.local)
	tracks, err := analytics.ListTracks(ctx, &vedettev1.ListTracksRequest{PageSize: 1})
	if err != nil || tracks.GetNextPageToken() == "" {
		t.Fatal(tracks, err)
	}
	token := tracks.GetNextPageToken()
	other := "A"
	if strings.HasSuffix(token, other) {
		other = "Q"
	}
	for what, err := range map[string]error{
		"another list":    second(events.ListEvents(ctx, &vedettev1.ListEventsRequest{PageToken: token})),
		"another filter":  second(analytics.ListTracks(ctx, &vedettev1.ListTracksRequest{PageToken: token, Filter: `class = "car"`})),
		"another order":   second(analytics.ListTracks(ctx, &vedettev1.ListTracksRequest{PageToken: token, OrderBy: "start_time"})),
		"another parent":  second(analytics.ListTracks(ctx, &vedettev1.ListTracksRequest{PageToken: token, Parent: "cameras/hall"})),
		"a damaged one":   second(analytics.ListTracks(ctx, &vedettev1.ListTracksRequest{PageToken: token[:len(token)-1] + other})),
		"one of nothing":  second(analytics.ListTracks(ctx, &vedettev1.ListTracksRequest{PageToken: "AAAA"})),
		"of other length": second(analytics.ListTracks(ctx, &vedettev1.ListTracksRequest{PageToken: token + "AAAA"})),
	} {
		if reason(err) != "PAGE_TOKEN_INVALID" {
			t.Errorf("a token for %s: %v", what, err)
		}
	}
	if more, err := analytics.ListTracks(ctx, &vedettev1.ListTracksRequest{PageSize: 3, PageToken: token}); err != nil || len(more.GetTracks()) != 3 {
		t.Errorf("for its own query, with another size: %v, %v", more, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestAFilterIsNoSQL(t *testing.T) {
	b, _, _ := seenBox(t)
	for _, value := range []string{`door' OR '1'='1`, `door"; DROP TABLE tracks; --`, "door\x00", `%`, `*`, `door' UNION SELECT * FROM meta --`} {
		quoted := fmt.Sprintf("%q", value)
		r, err := vedettev1.NewAnalyticsServiceClient(b.local).ListTracks(t.Context(), &vedettev1.ListTracksRequest{Filter: "camera = " + quoted})
		if err == nil && len(r.GetTracks()) > 0 {
			t.Errorf("%s found %v", value, r.GetTracks())
		}
		if err != nil && reason(err) != "INVALID_ARGUMENT" {
			t.Errorf("%s: %v", value, err)
		}
	}
	if r, err := vedettev1.NewAnalyticsServiceClient(b.local).ListTracks(t.Context(), &vedettev1.ListTracksRequest{}); err != nil || len(r.GetTracks()) != 1 {
		t.Errorf("afterwards %v, %v", r, err)
	}
}

func TestRequestsOfTenMegabytesAreRefusedAndOthersGoOn(t *testing.T) {
	b := start(t, false, album{})
	cameras := vedettev1.NewCameraServiceClient(b.local)
	camera := door()
	camera.DisplayName = strings.Repeat("x", 10<<20)
	if _, err := cameras.CreateCamera(t.Context(), &vedettev1.CreateCameraRequest{CameraId: "door", Camera: camera}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("over gRPC: %v", err)
	}
	b.add("door")
}

var many = flag.Int("many", 1000, "how many cameras TestManyCameras registers")

func TestManyCameras(t *testing.T) {
	n := *many
	b := start(t, false, album{})
	for i := range n {
		if _, err := b.cameras.Create(t.Context(), fmt.Sprintf("camera-%05d", i), &vedettev1.Camera{
			Source: &vedettev1.Source{Uri: "rtsp://camera.example/x"}, DesiredState: vedettev1.DesiredState_DESIRED_STATE_DISABLED,
		}, false); err != nil {
			t.Fatal(err)
		}
	}
	cameras := vedettev1.NewCameraServiceClient(b.local)
	seen, last := 0, ""
	for token := ""; ; {
		page, err := cameras.ListCameras(t.Context(), &vedettev1.ListCamerasRequest{PageSize: 1000, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range page.GetCameras() {
			if c.GetName() <= last {
				t.Fatalf("%s comes after %s", c.GetName(), last)
			}
			seen, last = seen+1, c.GetName()
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if seen != n {
		t.Errorf("%d cameras were listed", seen)
	}
	if _, err := cameras.GetCamera(t.Context(), &vedettev1.GetCameraRequest{Name: fmt.Sprintf("cameras/camera-%05d", n-1)}); err != nil {
		t.Error(err)
	}
}
