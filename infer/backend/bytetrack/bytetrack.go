// Package bytetrack is the backend that follows objects: a sequence model whose
// sequences are cameras' unbroken runs of frames.
//
//	BOXES     FP32[-1,6]   detections of one frame (tracker/rows)
//	TIME      INT64[1]     nanoseconds since the sequence opened, by capture
//	OBSERVED  BOOL[1]      optional: false says that time passed and nobody looked
//	TRACKS    FP32[-1,8]   the tracks matched in the frame (tracker/rows)
//	TRACK_ID  INT64[-1]    their identities, from 1 within the sequence
//
// A sequence begins with START, with or without a frame (no rows are then no
// observation), and ends with END. The tracker's settings are the model's
// parameters, by the names tracker.Config.Set knows: mode (default,
// conformance), track_thresh, match_thresh and so on.
package bytetrack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/rows"
)

// New returns the backend.
func New() *Backend { return &Backend{} }

// Backend is the bytetrack backend.
type Backend struct{}

var _ backend.Backend = (*Backend)(nil)

// Complete fills in the tensors and a sequence batcher, and refuses settings a
// tracker does not take.
func (*Backend) Complete(_ context.Context, m *backend.Model) error {
	complete(m.Config)
	_, err := parse(m)
	return err
}

// NewInstance makes a home for the trackers of some sequences.
func (*Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	complete(m.Config)
	cfg, err := parse(m)
	if err != nil {
		return nil, err
	}
	return &instance{cfg: cfg, batching: m.Config.GetMaxBatchSize() > 0, sequences: map[uint64]*sequence{}}, nil
}

// defaultSequences is more than the cameras one box can have.
const defaultSequences = 256

func complete(c *inference.ModelConfig) {
	if len(c.GetInput()) == 0 {
		c.Input = []*inference.ModelInput{
			{Name: "BOXES", DataType: inference.DataType_TYPE_FP32, Dims: []int64{-1, rows.BoxColumns}},
			{Name: "TIME", DataType: inference.DataType_TYPE_INT64, Dims: []int64{1}},
			{Name: "OBSERVED", DataType: inference.DataType_TYPE_BOOL, Dims: []int64{1}, Optional: true},
		}
	}
	if len(c.GetOutput()) == 0 {
		c.Output = []*inference.ModelOutput{
			{Name: "TRACKS", DataType: inference.DataType_TYPE_FP32, Dims: []int64{-1, rows.TrackColumns}},
			{Name: "TRACK_ID", DataType: inference.DataType_TYPE_INT64, Dims: []int64{-1}},
		}
	}
	if c.GetSchedulingChoice() == nil {
		c.SchedulingChoice = &inference.ModelConfig_SequenceBatching{SequenceBatching: &inference.ModelSequenceBatching{
			MaxSequenceIdleMicroseconds: uint64(time.Minute / time.Microsecond),
			StrategyChoice: &inference.ModelSequenceBatching_Oldest{
				Oldest: &inference.ModelSequenceBatching_StrategyOldest{MaxCandidateSequences: defaultSequences},
			},
		}}
	}
}

// parse reads the tracker's settings and checks the tensors; every fault is
// reported.
func parse(m *backend.Model) (tracker.Config, error) {
	var cfg tracker.Config
	var faults []error
	for _, key := range sortedKeys(m.Config.GetParameters()) {
		if err := cfg.Set(key, m.Parameter(key, "")); err != nil {
			faults = append(faults, fmt.Errorf("parameters[%s]: %w", key, err))
		}
	}
	if len(faults) == 0 {
		if _, err := tracker.New(cfg); err != nil {
			faults = append(faults, err)
		}
	}
	want := map[string]struct {
		t        inference.DataType
		dims     []int64
		required bool
	}{
		"BOXES":    {inference.DataType_TYPE_FP32, []int64{-1, rows.BoxColumns}, true},
		"TIME":     {inference.DataType_TYPE_INT64, []int64{1}, true},
		"OBSERVED": {inference.DataType_TYPE_BOOL, []int64{1}, false},
		"TRACKS":   {inference.DataType_TYPE_FP32, []int64{-1, rows.TrackColumns}, true},
		"TRACK_ID": {inference.DataType_TYPE_INT64, []int64{-1}, true},
	}
	check := func(where, name string, t inference.DataType, dims []int64) {
		w, ok := want[name]
		if !ok {
			faults = append(faults, fmt.Errorf("%s %q is not one of the tracker's tensors", where, name))
			return
		}
		delete(want, name)
		if t != w.t || !slices.Equal(dims, w.dims) {
			faults = append(faults, fmt.Errorf("%s %q must be %s %v", where, name, w.t, w.dims))
		}
	}
	for i, in := range m.Config.GetInput() {
		check(fmt.Sprintf("input[%d]", i), in.GetName(), in.GetDataType(), in.GetDims())
	}
	for i, out := range m.Config.GetOutput() {
		check(fmt.Sprintf("output[%d]", i), out.GetName(), out.GetDataType(), out.GetDims())
	}
	for _, name := range sortedKeys(want) {
		if want[name].required {
			faults = append(faults, fmt.Errorf("tensor %q is missing", name))
		}
	}
	if m.Config.GetSequenceBatching() == nil {
		faults = append(faults, errors.New("a tracker needs sequence_batching: without sequences there is nothing to follow"))
	}
	if len(faults) > 0 {
		return cfg, fmt.Errorf("bytetrack model %q: %w", m.Name, errors.Join(faults...))
	}
	return cfg, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// instance holds the trackers of its sequences. The server runs one Execute at
// a time and calls nothing else meanwhile.
type instance struct {
	cfg       tracker.Config
	batching  bool
	sequences map[uint64]*sequence
	dets      []tracker.Detection
	shape     [3]int64
}

// sequence is one camera's unbroken run.
type sequence struct{ tracker *tracker.Tracker }

var (
	_ backend.SequenceKeeper      = (*instance)(nil)
	_ backend.SequenceSnapshotter = (*instance)(nil)
)

// Close forgets every sequence.
func (in *instance) Close() error {
	clear(in.sequences)
	return nil
}

// Execute follows each job's frame in its own sequence.
func (in *instance) Execute(_ context.Context, jobs []*backend.Job) {
	backend.ExecuteEach(jobs, in.follow)
}

func (in *instance) follow(j *backend.Job, r *infer.Response) error {
	if j.Sequence == 0 {
		return errors.New("a request to a tracker must belong to a sequence")
	}
	boxes, clock := j.Input("BOXES"), j.Input("TIME")
	if boxes == nil || clock == nil {
		return errors.New("the tracker needs the inputs BOXES and TIME")
	}
	at := tensor.View[int64](clock.Data)
	if len(at) != 1 {
		return fmt.Errorf("TIME has %d values, not 1", len(at))
	}
	var err error
	if in.dets, err = rows.Boxes(in.dets[:0], boxes.Data); err != nil {
		return err
	}
	observed, told := true, false
	if o := j.Input("OBSERVED"); o != nil && len(o.Data) > 0 {
		observed, told = o.Data[0] != 0, true
	}
	if !observed && len(in.dets) > 0 {
		return fmt.Errorf("OBSERVED is false, yet BOXES has %d rows", len(in.dets))
	}
	s := in.sequences[j.Sequence]
	if s == nil || j.Start {
		t, err := tracker.New(in.cfg)
		if err != nil {
			return err
		}
		s = &sequence{tracker: t}
		in.sequences[j.Sequence] = s
	}
	var tracks []tracker.Track
	switch {
	case (j.Start || j.End) && len(in.dets) == 0 && (!told || !observed):
		// Opening and closing without rows are no frames of their own.
	case observed:
		tracks = s.tracker.Update(time.Duration(at[0]), in.dets)
	default:
		s.tracker.Hold(time.Duration(at[0]))
	}
	in.write(j, r, tracks)
	return nil
}

func (in *instance) write(j *backend.Job, r *infer.Response, tracks []tracker.Track) {
	n := len(tracks)
	size := 4 * rows.TrackColumns * n
	table, ids := j.Into("TRACKS", size), j.Into("TRACK_ID", 8*n)
	if table == nil {
		table = r.Alloc(size)
	}
	if ids == nil {
		ids = r.Alloc(8 * n)
	}
	rows.AppendTracks(table[:0], ids[:0], tracks)
	in.shape = [3]int64{1, int64(n), rows.TrackColumns}
	shape, flat := in.shape[1:], in.shape[1:2]
	if in.batching {
		shape, flat = in.shape[:], in.shape[:2]
	}
	r.AddView("TRACKS", tensor.FP32, shape, table)
	r.AddView("TRACK_ID", tensor.Int64, flat, ids)
}

// EndSequence forgets a sequence.
func (in *instance) EndSequence(seq uint64, _ backend.Cause) { delete(in.sequences, seq) }

// SnapshotSequence returns what a tracker of the same version needs to go on.
func (in *instance) SnapshotSequence(seq uint64) ([]byte, error) {
	s := in.sequences[seq]
	if s == nil {
		return nil, nil //nolint:nilnil // no state is not an error
	}
	return s.tracker.MarshalBinary()
}

// RestoreSequence goes on with a snapshot.
func (in *instance) RestoreSequence(seq uint64, state []byte) error {
	t, err := tracker.New(in.cfg)
	if err != nil {
		return err
	}
	if err := t.UnmarshalBinary(state); err != nil {
		return err
	}
	in.sequences[seq] = &sequence{tracker: t}
	return nil
}
