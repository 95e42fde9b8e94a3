package appliance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/capacity"
	"github.com/vedette/vedette/appliance/pipeline"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/store"
)

// weigh returns a budget and what registers cameras, on a box of two cores where a frame costs 20 ms and a picture 1 ms.
func weigh(t *testing.T) (*budget, func(id string, a *vedettev1.Analysis)) {
	t.Helper()
	dir := t.TempDir()
	s := store.New(store.Config{Dir: dir})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	<-s.Ready()
	secrets, err := secret.Open(filepath.Join(dir, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	r := cameras.New(cameras.Config{Store: s, Secrets: secrets})
	b := &budget{
		file: filepath.Join(dir, "capacity.json"), cameras: r, pipe: pipeline.New(pipeline.Config{Store: s}), logger: slog.New(slog.DiscardHandler),
		costs: capacity.Costs{
			Cores: 2, Time: time.Unix(1, 0), Pipelines: map[string]capacity.Pipeline{"pipeline": {Processor: 20 * time.Millisecond}},
			Decoders: []capacity.Decoder{{Codec: "H264", Width: 640, Height: 360, Processor: time.Millisecond, Frames: 1}},
		},
	}
	return b, func(id string, a *vedettev1.Analysis) {
		t.Helper()
		if _, err := r.Create(t.Context(), id, &vedettev1.Camera{Source: &vedettev1.Source{Uri: "rtsp://camera/"}, Analysis: a}, false); err != nil {
			t.Fatal(err)
		}
		r.SetStream(id, &vedettev1.CameraStatus{Media: &vedettev1.Media{Codec: "H264", Width: 640, Height: 360, Fps: 25}})
	}
}

func TestCamerasAreWeighedByWhatTheyAskFor(t *testing.T) {
	b, add := weigh(t)
	five := &vedettev1.Analysis{Fps: 5}
	// One takes (25 × 1 ms + 5 × 20 ms) / 2 s = 6.25 % of the box.
	if got := b.Capacity(&vedettev1.GetCapacityRequest{}); !got.GetMeasured() || got.GetCamerasTotal() != 14 || got.GetCamerasLeft() != 14 {
		t.Errorf("of an empty box: %v", got)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		add(id, five)
	}
	add("recorded", &vedettev1.Analysis{EveryFrame: true}) // takes what is left
	if got := b.Capacity(&vedettev1.GetCapacityRequest{}); got.GetCamerasLeft() != 10 || got.GetCamerasTotal() != 14 {
		t.Errorf("beside four: %v", got)
	}
	if err := b.Admit(nil, &vedettev1.Camera{Analysis: five}); err != nil {
		t.Errorf("a fifth: %v", err)
	}
	err := b.Admit(nil, &vedettev1.Camera{Analysis: &vedettev1.Analysis{}}) // every frame of the usual 25
	if err != nil {
		t.Errorf("every frame of one more still fits: %v", err)
	}
	add("greedy", &vedettev1.Analysis{})
	add("greedy2", &vedettev1.Analysis{})
	add("greedy3", &vedettev1.Analysis{})
	err = b.Admit(nil, &vedettev1.Camera{Analysis: five})
	refused, ok := errors.AsType[*api.ReasonError](err)
	if !ok || refused.Code != codes.ResourceExhausted || refused.Reason != "CAPACITY_EXCEEDED" || refused.Metadata["wanted"] != "6%" || refused.Metadata["frame_ms"] != "20.0" {
		t.Fatalf("%v %+v", err, refused)
	}
	if err := b.Admit(nil, &vedettev1.Camera{Analysis: &vedettev1.Analysis{EveryFrame: true}}); err != nil {
		t.Errorf("recorded material takes what is left: %v", err)
	}
	if err := b.Admit(nil, &vedettev1.Camera{Analysis: five, DesiredState: vedettev1.DesiredState_DESIRED_STATE_DISABLED}); err != nil {
		t.Errorf("a disabled camera costs nothing: %v", err)
	}
}

func TestWhatIsNotMeasuredYetIsNamed(t *testing.T) {
	b, add := weigh(t)
	add("known", &vedettev1.Analysis{Fps: 5})
	if got := b.Capacity(&vedettev1.GetCapacityRequest{}); len(got.GetUnmeasuredPipelines()) != 0 || strings.Contains(got.GetSummary(), "not measured") {
		t.Errorf("all is measured: %v", got)
	}
	add("fresh", &vedettev1.Analysis{Fps: 5, Pipeline: "demo"})
	add("paused", &vedettev1.Analysis{Fps: 5, Pipeline: "other", Paused: true})
	got := b.Capacity(&vedettev1.GetCapacityRequest{})
	if names := got.GetUnmeasuredPipelines(); !got.GetMeasured() || len(names) != 1 || names[0] != "demo" || !strings.Contains(got.GetSummary(), "less what analysis by demo takes, which is not measured yet") {
		t.Errorf("beside a camera of a pipeline nobody measured: %v", got)
	}
	if got := b.Capacity(&vedettev1.GetCapacityRequest{Pipeline: "demo"}); got.GetMeasured() || !strings.Contains(got.GetSummary(), "analysis by demo takes is not measured") {
		t.Errorf("of that pipeline: %v", got)
	}
}

func TestWhatWasMeasuredIsKeptForTheSameMachine(t *testing.T) {
	b, _ := weigh(t)
	costs := b.costs.Clone()
	b.save(&costs)
	a := New(Config{DataDir: filepath.Dir(b.file)})
	if again := newBudget(a); again.costs.Known("pipeline") && again.costs.Cores != 2 {
		t.Errorf("%+v was kept for another number of cores", again.costs)
	}
	if err := os.WriteFile(b.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := newBudget(a); again.costs.Known("pipeline") || again.costs.Cores == 0 {
		t.Errorf("of a damaged file: %+v", again.costs)
	}
}

func TestOnlyAChangeThatCostsMoreIsWeighed(t *testing.T) {
	b, add := weigh(t)
	five, off := &vedettev1.Analysis{Fps: 5}, vedettev1.DesiredState_DESIRED_STATE_DISABLED
	for i := range 13 { // of the 14 that fit
		add(fmt.Sprint("c", i), five)
	}
	was, err := b.cameras.Get("cameras/c0")
	if err != nil {
		t.Fatal(err)
	}
	changed := func(analysis *vedettev1.Analysis, state vedettev1.DesiredState) *vedettev1.Camera {
		c := proto.CloneOf(was)
		c.Analysis, c.DesiredState = analysis, state
		return c
	}
	exceeded := func(was, c *vedettev1.Camera) bool {
		refused, ok := errors.AsType[*api.ReasonError](b.Admit(was, c))
		return ok && refused.Reason == "CAPACITY_EXCEEDED" && refused.Metadata["used"] != ""
	}
	if exceeded(was, changed(&vedettev1.Analysis{Fps: 10}, 0)) {
		t.Error("10 a second in the place of 5 fit beside the twelve others")
	}
	if !exceeded(was, changed(&vedettev1.Analysis{Fps: 20}, 0)) {
		t.Error("20 a second do not")
	}
	if exceeded(was, changed(&vedettev1.Analysis{Fps: 20, MotionGate: &vedettev1.MotionGate{}}, 0)) {
		t.Error("20 a second fit when they are gated")
	}
	for i := range 4 {
		add(fmt.Sprint("more", i), five)
	}
	if exceeded(was, changed(&vedettev1.Analysis{Fps: 4}, 0)) || exceeded(was, changed(&vedettev1.Analysis{Fps: 20}, off)) || exceeded(was, was) {
		t.Error("a change that costs no more was refused on a box that is full")
	}
	if !exceeded(changed(five, off), was) {
		t.Error("a camera was enabled on a box that is full")
	}
}
