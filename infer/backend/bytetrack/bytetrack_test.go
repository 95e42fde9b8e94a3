package bytetrack_test

import (
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/bytetrack"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/race"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/rows"
)

func boxesTensor(dets ...tracker.Detection) tensor.Tensor {
	return tensor.Tensor{Name: "BOXES", DataType: tensor.FP32, Shape: []int64{int64(len(dets)), 6}, Data: rows.AppendBoxes(nil, dets)}
}

func observed(v byte) tensor.Tensor {
	return tensor.Tensor{Name: "OBSERVED", DataType: tensor.Bool, Shape: []int64{1}, Data: []byte{v}}
}

// walker is a person who walks 5 pixels a frame.
func walker(frame int) tracker.Detection {
	x := float64(100 + 5*frame)
	return tracker.Detection{Box: tracker.Box{X1: x, Y1: 50, X2: x + 40, Y2: 150}, Score: 0.9}
}

// tick runs one request and gives its tracks.
func (s *step) tick(t *testing.T, j backend.Job) []tracker.Track {
	t.Helper()
	r := s.run(t, j)
	defer r.Release()
	tracks, err := rows.Tracks(nil, r.Output("TRACKS").Data, r.Output("TRACK_ID").Data)
	if err != nil {
		t.Fatal(err)
	}
	return tracks
}

func TestSequencesAreFollowedApart(t *testing.T) {
	s := newStep(t, bytetrack.New(), "", parameters("mode", "conformance"))
	for seq := uint64(1); seq <= 2; seq++ {
		if tracks := s.tick(t, backend.Job{Sequence: seq, Start: true, Inputs: []tensor.Tensor{boxesTensor(), timeTensor(0), observed(0)}}); len(tracks) != 0 {
			t.Fatalf("opening gave %v", tracks)
		}
	}
	for i := range 10 {
		for seq := uint64(1); seq <= 2; seq++ {
			j := backend.Job{Sequence: seq, Inputs: []tensor.Tensor{boxesTensor(walker(i)), timeTensor(time.Duration(i+1) * 40 * time.Millisecond)}}
			tracks := s.tick(t, j)
			if len(tracks) != 1 || tracks[0].ID != 1 {
				t.Fatalf("sequence %d, frame %d: %v, want the identity 1", seq, i, tracks)
			}
		}
	}
	if tracks := s.tick(t, backend.Job{Sequence: 1, End: true, Inputs: []tensor.Tensor{boxesTensor(), timeTensor(time.Second), observed(0)}}); len(tracks) != 0 {
		t.Errorf("closing gave %v", tracks)
	}
	keeper, ok := s.instance.(backend.SequenceKeeper)
	if !ok {
		t.Fatal("the instance keeps sequences and does not say so")
	}
	keeper.EndSequence(1, backend.CauseEnd)
	if state := s.snapshot(t, 1); state != nil {
		t.Error("an ended sequence still has a state")
	}
	if state := s.snapshot(t, 2); state == nil {
		t.Error("an open sequence has no state")
	}
}

func (s *step) snapshot(t *testing.T, seq uint64) []byte {
	t.Helper()
	shots, ok := s.instance.(backend.SequenceSnapshotter)
	if !ok {
		t.Fatal("no snapshots")
	}
	state, err := shots.SnapshotSequence(seq)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestASequenceOutlivesAReload(t *testing.T) {
	before, after := newStep(t, bytetrack.New(), "", ""), newStep(t, bytetrack.New(), "", "")
	frame := func(i int) backend.Job {
		return backend.Job{Sequence: 3, Start: i == 0, Inputs: []tensor.Tensor{boxesTensor(walker(i)), timeTensor(time.Duration(i) * 100 * time.Millisecond)}}
	}
	var id int64
	for i := range 10 {
		for _, k := range before.tick(t, frame(i)) {
			id = k.ID
		}
	}
	if id == 0 {
		t.Fatal("nobody was followed")
	}
	shots, ok := after.instance.(backend.SequenceSnapshotter)
	if !ok {
		t.Fatal("no snapshots")
	}
	if err := shots.RestoreSequence(3, before.snapshot(t, 3)); err != nil {
		t.Fatal(err)
	}
	if tracks := after.tick(t, frame(10)); len(tracks) != 1 || tracks[0].ID != id {
		t.Errorf("after the reload %v, want the identity %d", tracks, id)
	}
	if err := shots.RestoreSequence(4, []byte("noise")); err == nil {
		t.Error("noise was taken for a state")
	}
}

func TestUnobservedTimeCostsNoTrack(t *testing.T) {
	s := newStep(t, bytetrack.New(), "", "")
	at := time.Duration(0)
	tick := func(start bool, more ...tensor.Tensor) []tracker.Track {
		at += 200 * time.Millisecond
		return s.tick(t, backend.Job{Sequence: 9, Start: start, Inputs: append(more, timeTensor(at))})
	}
	var id int64
	for i := range 10 {
		for _, k := range tick(i == 0, boxesTensor(walker(0)), observed(1)) {
			id = k.ID
		}
	}
	for range 100 {
		if tracks := tick(false, boxesTensor(), observed(0)); len(tracks) != 0 {
			t.Fatalf("nobody looked, yet %v", tracks)
		}
	}
	var back int64
	for range 3 {
		for _, k := range tick(false, boxesTensor(walker(0)), observed(1)) {
			back = k.ID
		}
	}
	if back != id || id == 0 {
		t.Errorf("identity %d became %d over 20 s in which nobody looked", id, back)
	}
}

func TestBadRequestsFailAndHarmNoSequence(t *testing.T) {
	s := newStep(t, bytetrack.New(), "", "")
	s.tick(t, backend.Job{Sequence: 1, Start: true, Inputs: []tensor.Tensor{boxesTensor(), timeTensor(0)}})
	nan := walker(0)
	nan.X1, nan.Score = math.NaN(), math.Inf(1)
	if tracks := s.tick(t, backend.Job{Sequence: 1, Inputs: []tensor.Tensor{boxesTensor(nan), timeTensor(1)}}); len(tracks) != 0 {
		t.Errorf("a box that is none was followed: %v", tracks)
	}
	for name, j := range map[string]backend.Job{
		"no sequence":           {Inputs: []tensor.Tensor{boxesTensor(), timeTensor(0)}},
		"no time":               {Sequence: 1, Inputs: []tensor.Tensor{boxesTensor()}},
		"no boxes":              {Sequence: 1, Inputs: []tensor.Tensor{timeTensor(0)}},
		"half a row":            {Sequence: 1, Inputs: []tensor.Tensor{{Name: "BOXES", DataType: tensor.FP32, Data: make([]byte, 20)}, timeTensor(0)}},
		"boxes nobody observed": {Sequence: 1, Inputs: []tensor.Tensor{boxesTensor(walker(0)), timeTensor(0), observed(0)}},
	} {
		j.Request, j.Owner, j.Batch = &infer.Request{}, &s.owner, 1
		s.owner.Response, s.owner.Err = nil, nil
		s.instance.Execute(t.Context(), []*backend.Job{&j})
		if s.owner.Err == nil || s.owner.Response != nil || infer.CodeOf(s.owner.Err) != infer.InvalidArgument {
			t.Errorf("%s: error %v, response %v", name, s.owner.Err, s.owner.Response)
		}
	}
	for i := range 5 {
		if tracks := s.tick(t, backend.Job{Sequence: 1, Inputs: []tensor.Tensor{boxesTensor(walker(i)), timeTensor(time.Duration(i) * time.Second / 10)}}); i == 4 && len(tracks) != 1 {
			t.Errorf("afterwards %v", tracks)
		}
	}
}

func TestSettingsNoTrackerTakesAreRefused(t *testing.T) {
	for _, c := range []struct{ name, config, want string }{
		{"a mode there is not", parameters("mode", "magic"), `"magic" is not default or conformance`},
		{"a threshold that is no number", parameters("track_thresh", "high"), `parameters[track_thresh]`},
		{"a threshold out of range", parameters("mode", "conformance", "match_thresh", "7"), "match_thresh"},
		{"a setting nobody knows", parameters("reid", "on"), `"reid" is not known`},
		{"a model without sequences", "dynamic_batching {}", "needs sequence_batching"},
		{"another input", `input { name: "X" data_type: TYPE_FP32 dims: 1 }`, `input[0] "X" is not one of the tracker's tensors`},
		{"boxes of five", `input { name: "BOXES" data_type: TYPE_FP32 dims: [-1, 5] } input { name: "TIME" data_type: TYPE_INT64 dims: 1 }`, `"BOXES" must be TYPE_FP32 [-1 6]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := &inference.ModelConfig{}
			if err := prototext.Unmarshal([]byte(c.config), cfg); err != nil {
				t.Fatal(err)
			}
			m := &backend.Model{Name: "tracker", Config: cfg, Logger: slog.New(slog.DiscardHandler)}
			if err := bytetrack.New().Complete(t.Context(), m); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestASteadyStreamAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's pools forget; the run without it counts")
	}
	s := newStep(t, bytetrack.New(), "", "")
	at := []int64{0}
	j := &backend.Job{
		Request: &infer.Request{}, Batch: 1, Owner: &s.owner, Sequence: 1,
		Inputs: []tensor.Tensor{boxesTensor(walker(0), walker(60)), {Name: "TIME", DataType: tensor.Int64, Shape: []int64{1}, Data: tensor.AsBytes(at)}},
	}
	jobs := []*backend.Job{j}
	n := testing.AllocsPerRun(100, func() {
		at[0] += int64(40 * time.Millisecond)
		s.instance.Execute(t.Context(), jobs)
		s.owner.Response.Release()
	})
	if n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}
