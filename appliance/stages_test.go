package appliance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStagesStopInTheOppositeOrderOfTheirStart(t *testing.T) {
	s := newStages(t.Context())
	var mu sync.Mutex
	var ended []string
	for _, name := range []string{"store", "pipeline", "API"} {
		s.start(name, func(ctx context.Context) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, name)
			return nil
		})
	}
	s.stop()
	if want := []string{"API", "pipeline", "store"}; !slices.Equal(ended, want) {
		t.Errorf("ended %v, want %v", ended, want)
	}
}

func TestStageThatFailsOrEndsStopsTheAppliance(t *testing.T) {
	broken := errors.New("disk on fire")
	for want, run := range map[string]func(context.Context) error{
		"disk on fire":             func(context.Context) error { return broken },
		"the x ended unexpectedly": func(context.Context) error { return nil },
	} {
		s := newStages(t.Context())
		s.start("the x", run)
		if err := s.wait(); err == nil || err.Error() != want {
			t.Errorf("stopped by %v, want %q", err, want)
		}
		if err := s.await(make(chan struct{})); err == nil {
			t.Error("waiting for what will never be ready succeeded")
		}
		s.stop()
	}
}

func TestRegistrationsAreTranslatedForTheSidecars(t *testing.T) {
	got := wanted([]cameras.Desired{
		{ID: "door", UID: "u1", Password: "p", Enabled: true, Camera: &vedettev1.Camera{
			Source: &vedettev1.Source{Uri: "rtsp://camera/", Username: "u", Transport: vedettev1.Transport_TRANSPORT_UDP},
			Analysis: &vedettev1.Analysis{
				Fps: 5, Pipeline: "nano", StalenessBudget: durationpb.New(1e9), Priority: vedettev1.Priority_PRIORITY_LOW,
				MotionGate: &vedettev1.MotionGate{
					Threshold: 0.01, Hold: durationpb.New(3e9), Recheck: durationpb.New(4e9),
					Ignore: []*vedettev1.PrivacyMask{{Points: []*vedettev1.PrivacyPoint{{X: 0.5}, {Y: 1}, {X: 1, Y: 1}}}},
				},
			},
			CreateTime: timestamppb.New(time.Unix(77, 0)),
		}},
		{ID: "clip", UID: "u2", Camera: &vedettev1.Camera{Source: &vedettev1.Source{Uri: "file:///clip.mp4"}, Analysis: &vedettev1.Analysis{EveryFrame: true}}},
	})
	want := []pipeline.Camera{
		{
			UID: "u1", Since: time.Unix(77, 0).UTC(), Analysing: pipeline.Analysing{Pipeline: "nano", Staleness: 1e9, Priority: -1},
			Ingest: &ingestv1.Camera{
				Name: "door", Address: "rtsp://camera/", Username: "u", Password: "p", Transport: ingestv1.Transport_TRANSPORT_UDP, AnalysisRate: 5,
				MotionGate: &ingestv1.MotionGate{
					Threshold: 0.01, HoldNs: 3e9, RecheckNs: 4e9, Ignore: []*ingestv1.PrivacyMask{{Points: []*ingestv1.Point{{X: 0.5}, {Y: 1}, {X: 1, Y: 1}}}},
				},
			},
		},
		{
			UID: "u2", Since: time.Unix(0, 0).UTC(), Analysing: pipeline.Analysing{EveryFrame: true},
			Ingest: &ingestv1.Camera{Name: "clip", Address: "file:///clip.mp4", Disabled: true, Slots: everyFrameSlots, File: &ingestv1.FilePlayback{FullSpeed: true}},
		},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryStateOfIngestHasAStateOfTheAPI(t *testing.T) {
	for n, name := range ingestv1.CameraState_name {
		if got := cameraState(ingestv1.CameraState(n)); (got == 0) != (n == 0) {
			t.Errorf("%s becomes %v", name, got)
		}
	}
}

func TestIngestFaultsKeepTheirReason(t *testing.T) {
	for text, want := range map[string]string{
		"GONE: the frame was overwritten": "get a picture: the frame was overwritten",
		"no reason here: at all":          "get a picture: no reason here: at all",
	} {
		if got := ingestFault("get a picture", errors.New(text)).Error(); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got := ingestFault("get a picture", pipeline.ErrIngestGone).Error(); !strings.Contains(got, "started again by itself") {
		t.Errorf("%q", got)
	}
}
