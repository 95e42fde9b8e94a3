package repository_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/identity"
	"github.com/vedette/vedette/infer/backend/sequence"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files is a repository to be written: path to content.
type files map[string]string

func write(t testing.TB, f files) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range f {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func backends() map[string]backend.Backend {
	return map[string]backend.Backend{"identity": identity.New(), "sequence": sequence.Backend{}}
}

// serve runs a repository for the length of the test.
func serve(t testing.TB, cfg repository.Config) *repository.Repository {
	t.Helper()
	if cfg.Backends == nil {
		cfg.Backends = backends()
	}
	r, err := repository.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx, time.Minute); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if n := r.Buffers(); n != 0 {
			t.Errorf("%d buffers were never released", n)
		}
	})
	_ = r.Loaded(ctx)
	return r
}

func numbers(name string, batch bool, v ...int32) tensor.Tensor {
	shape := []int64{int64(len(v))}
	if batch {
		shape = []int64{1, int64(len(v))}
	}
	return tensor.Tensor{Name: name, DataType: tensor.Int32, Shape: shape, Data: tensor.AsBytes(v)}
}

func ints(t testing.TB, r *infer.Response, name string) []int32 {
	t.Helper()
	out := r.Output(name)
	if out == nil {
		t.Fatalf("the response has no output %q: %v", name, r.Outputs)
	}
	return append([]int32(nil), tensor.View[int32](out.Data)...)
}

const identityModel = `backend: "identity" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] }
`

const sequenceModel = `backend: "sequence" max_batch_size: 4
input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
sequence_batching {
  %s
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] }
  ]
}
`

func TestS1AndS2AndS5AndS11EveryKindOfModelServes(t *testing.T) {
	root := write(t, files{
		"plain/config.pbtxt":   identityModel,
		"plain/1/keep":         "",
		"dynamic/config.pbtxt": identityModel + "dynamic_batching { max_queue_delay_microseconds: 2000 }",
		"dynamic/1/keep":       "",
		"direct/config.pbtxt":  fmt.Sprintf(sequenceModel, "direct {}"),
		"direct/1/keep":        "",
		"both/config.pbtxt": `platform: "ensemble" max_batch_size: 4
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "SUM" data_type: TYPE_INT32 dims: [ 1 ] }
ensemble_scheduling { step [
  { model_name: "dynamic" input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "mid" } },
  { model_name: "direct" input_map { key: "INPUT" value: "mid" } output_map { key: "OUTPUT" value: "SUM" } } ] }`,
		"both/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}})
		if err := r.Loaded(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, model := range []string{"plain", "dynamic"} {
			resp, err := infer.Do(t.Context(), r, &infer.Request{Model: model, Inputs: []tensor.Tensor{numbers("INPUT0", true, 1, 2, 3)}})
			if err != nil {
				t.Fatalf("%s: %v", model, err)
			}
			if got := ints(t, resp, "OUTPUT0"); fmt.Sprint(got) != "[1 2 3]" {
				t.Errorf("%s answered %v", model, got)
			}
			resp.Release()
		}
		for _, c := range []struct{ model, in, out string }{{"direct", "INPUT", "OUTPUT"}, {"both", "IN", "SUM"}} {
			sum := int32(0)
			for i := range 5 {
				sum += int32(i + 1)
				resp, err := infer.Do(t.Context(), r, &infer.Request{
					Model: c.model, Inputs: []tensor.Tensor{numbers(c.in, true, int32(i+1))},
					Correlation: infer.CorrelationID{Num: 7}, SequenceStart: i == 0, SequenceEnd: i == 4,
				})
				if err != nil {
					t.Fatalf("%s: %v", c.model, err)
				}
				if got := ints(t, resp, c.out); got[0] != sum {
					t.Errorf("%s answered %v to request %d, want %d", c.model, got, i, sum)
				}
				resp.Release()
			}
		}
	})
}

// follower is a stateful model that checks on its own what the scheduler
// promises: one request of a sequence at a time, in order.
type follower struct{ t *testing.T }

func (f follower) Complete(context.Context, *backend.Model) error { return nil }

func (f follower) NewInstance(context.Context, *backend.Model, backend.Placement) (backend.Instance, error) {
	return &followerInstance{f.t, make(map[uint64]int64)}, nil
}

type followerInstance struct {
	t    *testing.T
	last map[uint64]int64
}

func (f *followerInstance) Execute(_ context.Context, jobs []*backend.Job) {
	time.Sleep(3 * time.Millisecond)
	seen := make(map[uint64]bool)
	for _, j := range jobs {
		if seen[j.Sequence] {
			f.t.Errorf("two requests of sequence %d in one batch", j.Sequence)
		}
		seen[j.Sequence] = true
		n := int64(binary.LittleEndian.Uint64(j.Input("TIME").Data))
		if n != f.last[j.Sequence]+1 {
			f.t.Errorf("sequence %d: request %d came after %d", j.Sequence, n, f.last[j.Sequence])
		}
		f.last[j.Sequence] = n
		r := j.NewResponse()
		observed := j.Input("OBSERVED").Data[0]
		copy(r.Add("TRACKS", tensor.Int32, []int64{1}, 4), []byte{observed, 0, 0, 0})
		j.Respond(r)
	}
}

func (f *followerInstance) EndSequence(sequence uint64, _ backend.Cause) { delete(f.last, sequence) }

func (f *followerInstance) Close() error {
	if len(f.last) != 0 {
		f.t.Errorf("%d sequences were never ended", len(f.last))
	}
	return nil
}

// flaky fails requests whose input is negative.
type flaky struct{ delay time.Duration }

func (f flaky) Complete(context.Context, *backend.Model) error { return nil }

func (f flaky) NewInstance(context.Context, *backend.Model, backend.Placement) (backend.Instance, error) {
	return f, nil
}

func (f flaky) Execute(_ context.Context, jobs []*backend.Job) {
	time.Sleep(f.delay)
	for _, j := range jobs {
		in := j.Input("FRAME")
		if tensor.View[int32](in.Data)[0] < 0 {
			j.Fail(infer.Errorf(infer.InvalidArgument, "the frame is broken"))
			continue
		}
		r := j.NewResponse()
		r.AddView("BOXES", tensor.Int32, in.Shape, in.Data)
		j.Respond(r)
	}
}

func (f flaky) Close() error { return nil }

var pipelineModels = files{
	"detector/config.pbtxt": `backend: "flaky" input { name: "FRAME" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "BOXES" data_type: TYPE_INT32 dims: [ -1 ] } instance_group { count: 3 kind: KIND_CPU }`,
	"detector/1/keep": "",
	"tracker/config.pbtxt": `backend: "follower" max_batch_size: 0
input [ { name: "BOXES" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "TIME" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "OBSERVED" data_type: TYPE_BOOL dims: [ 1 ] } ]
output { name: "TRACKS" data_type: TYPE_INT32 dims: [ 1 ] }
sequence_batching { max_sequence_idle_microseconds: 5000000 oldest { max_candidate_sequences: 8 } }`,
	"tracker/1/keep": "",
	"pipeline/config.pbtxt": `platform: "ensemble"
input [ { name: "FRAME" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "TIME" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "OBSERVED" data_type: TYPE_BOOL dims: [ 1 ] } ]
output { name: "TRACKS" data_type: TYPE_INT32 dims: [ 1 ] }
ensemble_scheduling { step [
  { model_name: "detector" input_map { key: "FRAME" value: "FRAME" } output_map { key: "BOXES" value: "boxes" } },
  { model_name: "tracker" input_map [ { key: "BOXES" value: "boxes" }, { key: "TIME" value: "TIME" }, { key: "OBSERVED" value: "OBSERVED" } ]
    output_map { key: "TRACKS" value: "TRACKS" } } ] }`,
	"pipeline/1/keep": "",
}

func frame(model string, camera uint64, n int64, value int32) *infer.Request {
	clock := binary.LittleEndian.AppendUint64(nil, uint64(n))
	req := &infer.Request{
		Model: model, Correlation: infer.CorrelationID{Num: camera}, Inputs: []tensor.Tensor{
			{Name: "TIME", DataType: tensor.Int64, Shape: []int64{1}, Data: clock},
			{Name: "OBSERVED", DataType: tensor.Bool, Shape: []int64{1}, Data: []byte{1}},
		},
	}
	if model == "pipeline" {
		req.Inputs = append(req.Inputs, numbers("FRAME", false, value))
	} else {
		req.Inputs = append(req.Inputs, tensor.Tensor{Name: "BOXES", DataType: tensor.Int32, Shape: []int64{0}})
		req.SequenceStart = true
	}
	return req
}

// Two cameras for a minute: the detector takes most of a frame's time on its
// three instances, every tenth frame is broken, and the tracker must see each
// camera's ticks in order without a hole.
func TestS11TwoCamerasKeepTheirOrder(t *testing.T) {
	root := write(t, pipelineModels)
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: map[string]backend.Backend{
			"flaky": flaky{35 * time.Millisecond}, "follower": follower{t},
		}})
		if err := r.Loaded(t.Context()); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for camera := uint64(1); camera <= 2; camera++ {
			wg.Go(func() { runCamera(t, r, camera) })
		}
		wg.Wait()
	})
}

func runCamera(t *testing.T, r *repository.Repository, camera uint64) {
	resp, err := infer.Do(t.Context(), r, frame("tracker", camera, 1, 0))
	if err != nil {
		t.Error(err)
		return
	}
	resp.Release()
	const frames = 25 * 60
	type answer struct {
		n   int64
		err error
		age time.Duration
	}
	answers := make(chan answer, frames)
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for n := int64(2); n < frames+2; n++ {
		<-tick.C
		sent := time.Now()
		value := int32(1)
		if n%10 == 0 {
			value = -1
		}
		err := r.Submit(t.Context(), frame("pipeline", camera, n, value), func(rep infer.Reply) {
			answers <- answer{n, rep.Err, time.Since(sent)}
			rep.Response.Release()
		})
		if err != nil {
			t.Errorf("frame %d was refused: %v", n, err)
		}
	}
	for range frames {
		a := <-answers
		broken := a.n%10 == 0
		if (a.err != nil) != broken {
			t.Errorf("camera %d frame %d: error %v, broken %v", camera, a.n, a.err, broken)
		}
		if broken && !strings.HasPrefix(a.err.Error(), "in ensemble 'pipeline', ") {
			t.Errorf("error does not say where it is from: %v", a.err)
		}
		if a.age > 200*time.Millisecond {
			t.Errorf("camera %d frame %d starved for %v", camera, a.n, a.age)
		}
	}
}
