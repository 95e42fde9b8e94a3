// Package stream is the backend that watches cameras for clients of the v2 protocol: an address or a camera's
// name in, an answer for every analysed frame out. It is decoupled; one request lasts as long as its camera, or
// until it is cancelled.
//
//	URL      BYTES[1]      rtsp:// or rtsps:// address, with user and password if it needs them; or else
//	CAMERA   BYTES[1]      the name of a camera that the ingest sidecar has
//	TRACKS   FP32[-1,8]    what the pipeline follows in the frame, as its outputs of these names say
//	TRACK_ID INT64[-1]
//	TIME     INT64[1]      when the frame was captured, nanoseconds since the Unix epoch
//	NUMBER   INT64[1]      the frame's place in the stream epoch, sampled or not
//	PICTURE  BYTES[1]      the frame as JPEG; only for requests that name it among their outputs
//
// Every other output of the configuration is the pipeline's output of that name. The response's parameter
// stream_epoch changes when the stream was interrupted; tracks begin anew whenever the parameter sequence changes.
//
// Request parameters: rate (frames a second to analyse, by capture time; 0, the default, is every frame), max_frames
// (answers after which the request ends; 0: none) and picture_width (pixels; 0: as wide as the frame).
//
// Model parameters: pipeline and tracker name the models that are asked ("pipeline", "tracker"), cameras lists the
// names clients may ask for, separated by commas ("*", the default, is all; empty is none), urls "false" refuses
// addresses, and files "true" takes file: addresses too.
//
// Frames are read where the ingest sidecar put them. A client that reads slower than frames come misses frames, not
// the newest one.
package stream

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

// Config is what the backend needs to know.
type Config struct {
	// Socket is the ingest sidecar's. Models do not load without it.
	Socket string
	// Program is the name and version told to the sidecar.
	Program string
}

// Backend is the stream backend.
type Backend struct {
	cfg      Config
	life     context.Context //nolint:containedctx // ends with Stop, and every request with it
	stop     context.CancelFunc
	sequence atomic.Uint64 // correlation ids given to trackers
}

var _ backend.Backend = (*Backend)(nil)

// New returns the backend.
func New(cfg Config) *Backend {
	b := &Backend{cfg: cfg}
	b.life, b.stop = context.WithCancel(context.Background())
	return b
}

// Stop ends every request that is under way, with an error. Otherwise they would keep a server that wants to
// end for as long as it lets them.
func (b *Backend) Stop() { b.stop() }

// Complete fills in the tensors, and that the model is decoupled.
func (b *Backend) Complete(_ context.Context, m *backend.Model) error {
	c := m.Config
	if c.GetMaxBatchSize() > 0 {
		return infer.Errorf(infer.InvalidArgument, "stream model '%s': max_batch_size must be 0: a request is one camera", m.Name)
	}
	if c.GetModelTransactionPolicy() == nil {
		c.ModelTransactionPolicy = &inference.ModelTransactionPolicy{Decoupled: true}
	}
	if !c.GetModelTransactionPolicy().GetDecoupled() {
		return infer.Errorf(infer.InvalidArgument, "stream model '%s' must be decoupled: set model_transaction_policy { decoupled: true }", m.Name)
	}
	modelconfig.FillIO(c, &inference.ModelConfig{
		Input: []*inference.ModelInput{
			{Name: "URL", DataType: inference.DataType_TYPE_STRING, Dims: []int64{1}, Optional: true},
			{Name: "CAMERA", DataType: inference.DataType_TYPE_STRING, Dims: []int64{1}, Optional: true},
		},
		Output: []*inference.ModelOutput{
			{Name: "TRACKS", DataType: inference.DataType_TYPE_FP32, Dims: []int64{-1, 8}},
			{Name: "TRACK_ID", DataType: inference.DataType_TYPE_INT64, Dims: []int64{-1}},
			{Name: outTime, DataType: inference.DataType_TYPE_INT64, Dims: []int64{1}},
			{Name: outNumber, DataType: inference.DataType_TYPE_INT64, Dims: []int64{1}},
			{Name: outPicture, DataType: inference.DataType_TYPE_STRING, Dims: []int64{1}},
		},
	})
	return nil
}

// The outputs that do not come from the pipeline.
const (
	outTime    = "TIME"
	outNumber  = "NUMBER"
	outPicture = "PICTURE"
)

// NewInstance implements backend.Backend. One instance serves any number of cameras at once.
func (b *Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	if b.cfg.Socket == "" {
		return nil, infer.Errorf(infer.InvalidArgument, "stream model '%s' needs the ingest sidecar: start the server with --ingest-socket", m.Name)
	}
	i := &instance{
		backend: b, model: m, pipeline: m.Parameter("pipeline", "pipeline"), tracker: m.Parameter("tracker", "tracker"),
		cameras: strings.Split(m.Parameter("cameras", "*"), ","), urls: m.Parameter("urls", "true") == "true", files: m.Parameter("files", "false") == "true",
	}
	for _, o := range m.Config.GetOutput() {
		switch o.GetName() {
		case outTime, outNumber, outPicture:
		default:
			i.outputs = append(i.outputs, o.GetName())
		}
	}
	i.life, i.retire = context.WithCancel(b.life)
	return i, nil
}

type instance struct {
	backend           *Backend
	model             *backend.Model
	pipeline, tracker string
	cameras           []string
	urls, files       bool
	outputs           []string // those that come from the pipeline

	life    context.Context //nolint:containedctx // ends with Retire
	retire  context.CancelFunc
	running sync.WaitGroup
}

var (
	_ backend.Instance = (*instance)(nil)
	_ backend.Retirer  = (*instance)(nil)
)

// Execute implements backend.Instance. The answers are given in the background.
func (i *instance) Execute(ctx context.Context, jobs []*backend.Job) {
	for _, j := range jobs {
		w, err := i.watch(j)
		if err != nil {
			j.Fail(err)
			continue
		}
		i.running.Go(func() { w.run(ctx) })
	}
}

// Retire implements backend.Retirer.
func (i *instance) Retire() { i.retire() }

// Close implements backend.Instance.
func (i *instance) Close() error {
	i.retire()
	i.running.Wait()
	return nil
}

// watch reads a request.
func (i *instance) watch(j *backend.Job) (*watch, error) {
	w := &watch{instance: i, job: j, pictures: slices.ContainsFunc(j.Request.Outputs, func(o infer.OutputSpec) bool { return o.Name == outPicture })}
	address, hasAddress, err := text(j, "URL")
	if err != nil {
		return nil, err
	}
	camera, hasCamera, err := text(j, "CAMERA")
	if err != nil {
		return nil, err
	}
	switch {
	case hasAddress == hasCamera:
		return nil, infer.Errorf(infer.InvalidArgument, "model '%s' needs either URL or CAMERA", i.model.Name)
	case hasCamera && (camera == "" || (!slices.Contains(i.cameras, "*") && !slices.Contains(i.cameras, camera))):
		return nil, infer.Errorf(infer.NotFound, "no camera '%s' that model '%s' may watch", camera, i.model.Name)
	case hasCamera:
		w.camera = camera
	default:
		if w.address, err = i.address(address); err != nil {
			return nil, err
		}
	}
	for _, p := range []struct {
		name string
		to   *float64
		most float64
	}{{"rate", &w.rate, 1000}, {"max_frames", &w.most, 1 << 53}, {"picture_width", &w.width, 16384}} {
		v, ok := number(j.Request.Parameters[p.name])
		if !ok || v < 0 || v > p.most {
			return nil, infer.Errorf(infer.InvalidArgument, "parameter '%s' is %v, it must be a number from 0 to %v", p.name, j.Request.Parameters[p.name], p.most)
		}
		*p.to = v
	}
	return w, nil
}

// address takes an address apart: nobody sees its password again.
func (i *instance) address(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"rtsp", "rtsps", "file"}, u.Scheme) {
		return nil, infer.Errorf(infer.InvalidArgument, "URL is no rtsp:// or rtsps:// address") // which may have a password in it
	}
	if u.Scheme == "file" && !i.files {
		return nil, infer.Errorf(infer.InvalidArgument, "model '%s' takes no files: its parameter files is not \"true\"", i.model.Name)
	}
	if u.Scheme != "file" && !i.urls {
		return nil, infer.Errorf(infer.InvalidArgument, "model '%s' takes no addresses, only cameras: its parameter urls is \"false\"", i.model.Name)
	}
	return u, nil
}

// text is the one string of an input.
func text(j *backend.Job, name string) (s string, given bool, err error) {
	in := j.Input(name)
	if in == nil {
		return "", false, nil
	}
	words, err := tensor.DecodeStrings(in.Data)
	if err != nil || len(words) != 1 {
		return "", true, infer.Errorf(infer.InvalidArgument, "input '%s' holds %d strings, it must hold one", name, len(words))
	}
	return words[0], true, nil
}

// number reads a parameter; absent is 0.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case nil:
		return 0, true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, v == v //nolint:gocritic // not a number is none
	}
	return 0, false
}
