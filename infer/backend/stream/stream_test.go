package stream_test

import (
	"bytes"
	"context"
	"image/jpeg"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/bytetrack"
	"github.com/vedette/vedette/infer/backend/script"
	"github.com/vedette/vedette/infer/backend/stream"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/ingest/camera"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pipeline that sees one thing in every frame, in the middle of it, and a tracker that follows it.
var models = map[string]string{
	"watch/config.pbtxt":    `backend: "stream" parameters { key: "files" value { string_value: "true" } }`,
	"watch/1/keep":          "",
	"narrow/config.pbtxt":   `backend: "stream" parameters { key: "cameras" value { string_value: "gate" } } parameters { key: "urls" value { string_value: "false" } }`,
	"narrow/1/keep":         "",
	"pipeline/config.pbtxt": pipelineConfig,
	"pipeline/1/keep":       "",
	"middle/config.pbtxt":   middleConfig,
	"middle/1/model.star": `
def execute(request):
    info = request.inputs["FRAME_INFO"].values()
    w, h = info[1], info[2]
    if request.inputs["FRAME"].size != w * h * 3 // 2:
        fail("the frame has", request.inputs["FRAME"].size, "bytes")
    return {"BOXES": tensor("FP32", [1, 1, 6], [w / 4.0, h / 4.0, w * 0.75, h * 0.75, 0.9, 0.0])}
`,
	"tracker/config.pbtxt": trackerConfig,
	"tracker/1/keep":       "",
}

const (
	pipelineConfig = `platform: "ensemble" max_batch_size: 1
input [ { name: "FRAME" data_type: TYPE_UINT8 dims: [ -1 ] }, { name: "FRAME_INFO" data_type: TYPE_INT64 dims: [ 8 ] }, { name: "TIME" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "TRACKS" data_type: TYPE_FP32 dims: [ -1, 8 ] }, { name: "TRACK_ID" data_type: TYPE_INT64 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "middle" model_version: -1 input_map { key: "FRAME" value: "FRAME" } input_map { key: "FRAME_INFO" value: "FRAME_INFO" } output_map { key: "BOXES" value: "BOXES" } },
  { model_name: "tracker" model_version: -1 input_map { key: "BOXES" value: "BOXES" } input_map { key: "TIME" value: "TIME" }
    output_map { key: "TRACKS" value: "TRACKS" } output_map { key: "TRACK_ID" value: "TRACK_ID" } } ] }`
	middleConfig = `backend: "script" max_batch_size: 1
input [ { name: "FRAME" data_type: TYPE_UINT8 dims: [ -1 ] }, { name: "FRAME_INFO" data_type: TYPE_INT64 dims: [ 8 ] } ]
output [ { name: "BOXES" data_type: TYPE_FP32 dims: [ -1, 6 ] } ]`
	trackerConfig = `backend: "bytetrack" max_batch_size: 4
input [ { name: "BOXES" data_type: TYPE_FP32 dims: [ -1, 6 ] allow_ragged_batch: true }, { name: "TIME" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "OBSERVED" data_type: TYPE_BOOL dims: [ 1 ] optional: true } ]
output [ { name: "TRACKS" data_type: TYPE_FP32 dims: [ -1, 8 ] }, { name: "TRACK_ID" data_type: TYPE_INT64 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
sequence_batching { oldest { max_candidate_sequences: 8 } }`
)

// background runs until the test ends.
func background(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

// rig is an ingest sidecar and models that watch its cameras.
type rig struct {
	t      *testing.T
	socket string
	back   *stream.Backend
	repo   *repository.Repository
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, socket: filepath.Join(t.TempDir(), "ingest.sock")}
	served := make(chan struct{})
	background(t, sidecar.New(sidecar.Config{
		Socket: r.socket, Deadlines: camera.Deadlines{Packets: 3 * time.Second, Answer: time.Second}, Backoff: camera.Backoff{Base: 20 * time.Millisecond, Max: 100 * time.Millisecond, Slow: time.Hour, Busy: 50 * time.Millisecond},
		Ready: func() error { close(served); return nil },
	}).Run)
	<-served
	dir := t.TempDir()
	for name, text := range models {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.back = stream.New(stream.Config{Socket: r.socket, Program: "test"})
	t.Cleanup(r.back.Stop)
	var err error
	r.repo, err = repository.New(repository.Config{
		Roots: []string{dir}, Mode: repository.ModeExplicit, Startup: []string{"*"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Backends: map[string]backend.Backend{"stream": r.back, "script": script.New(), "bytetrack": bytetrack.New()},
	})
	if err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) error { return r.repo.Run(ctx, 20*time.Second) })
	if err := r.repo.Loaded(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// ask submits a request; its replies come by the channel, which ends after the final one.
func (r *rig) ask(ctx context.Context, model string, inputs map[string]string, parameters map[string]any, outputs ...string) <-chan infer.Reply {
	r.t.Helper()
	req := &infer.Request{Model: model, Parameters: parameters}
	for name, s := range inputs {
		req.Inputs = append(req.Inputs, tensor.Tensor{Name: name, DataType: tensor.Bytes, Shape: []int64{1}, Data: tensor.EncodeStrings(s)})
	}
	for _, o := range outputs {
		req.Outputs = append(req.Outputs, infer.OutputSpec{Name: o})
	}
	replies := make(chan infer.Reply, 100) // the server must not wait for the test
	err := r.repo.Submit(ctx, req, func(reply infer.Reply) {
		replies <- reply
		if reply.Final {
			close(replies)
		}
	})
	if err != nil {
		replies <- infer.Reply{Err: err, Final: true}
		close(replies)
	}
	return replies
}

// end reads until the final reply and returns its error.
func end(t *testing.T, replies <-chan infer.Reply) error {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case reply, ok := <-replies:
			if !ok {
				return nil
			}
			reply.Response.Release()
			if reply.Final {
				return reply.Err
			}
		case <-deadline:
			t.Fatal("the request does not end")
		}
	}
}

func clip(t *testing.T) *rtsptest.Clip {
	t.Helper()
	return rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, Frames: 25, GOP: 5})
}

// gone waits until nobody watches the camera any more.
func gone(t *testing.T, cam *rtsptest.Camera) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for n, _, _ := cam.Sessions(); n > 0; n, _, _ = cam.Sessions() {
		select {
		case <-deadline:
			t.Fatal("the camera's session is still open")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestEveryFrameOfAnAddressIsAnswered(t *testing.T) {
	r := start(t)
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip(t), Username: "operator", Password: "s:cr/t"})
	address := strings.Replace(cam.Address(), "rtsp://", "rtsp://operator:s%3Acr%2Ft@", 1)
	replies := r.ask(t.Context(), "watch", map[string]string{"URL": address}, map[string]any{"max_frames": int64(10)}, "TRACKS", "TRACK_ID", "TIME", "NUMBER", "PICTURE")
	last, lastTime := int64(-1), int64(0)
	n := 0
	for reply := range replies {
		if reply.Err != nil {
			t.Fatal(reply.Err)
		}
		if reply.Final {
			continue
		}
		n++
		resp := reply.Response
		number, captured := tensor.View[int64](resp.Output("NUMBER").Data)[0], tensor.View[int64](resp.Output("TIME").Data)[0]
		if number <= last || captured <= lastTime {
			t.Errorf("frame %d at %d came after frame %d at %d", number, captured, last, lastTime)
		}
		last, lastTime = number, captured
		tracks := tensor.Float32s(resp.Output("TRACKS").Data)
		if n > 1 && (len(tracks) != 8 || len(resp.Output("TRACKS").Shape) != 2 || tensor.View[int64](resp.Output("TRACK_ID").Data)[0] != 1) {
			t.Errorf("frame %d: tracks %v", number, tracks)
		}
		words, err := tensor.DecodeStrings(resp.Output("PICTURE").Data)
		if err != nil {
			t.Fatal(err)
		}
		if img, err := jpeg.Decode(bytes.NewReader([]byte(words[0]))); err != nil || img.Bounds().Dx() != 64 || img.Bounds().Dy() != 48 {
			t.Errorf("frame %d: picture %v", number, err)
		}
		if resp.Parameters["stream_epoch"] == "" {
			t.Error("no stream epoch")
		}
		resp.Release()
	}
	if n != 10 {
		t.Errorf("%d answers, want 10", n)
	}
	gone(t, cam)
	if open := r.repo.Sequences(); len(open) != 0 {
		t.Errorf("sequences are left: %+v", open)
	}
}

func TestACancelledRequestReleasesItsCamera(t *testing.T) {
	r := start(t)
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip(t)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	replies := r.ask(ctx, "watch", map[string]string{"URL": cam.Address()}, nil)
	first := <-replies
	if first.Err != nil || first.Response.Output("PICTURE") != nil {
		t.Fatalf("got %+v", first)
	}
	first.Response.Release()
	cancel()
	if err := end(t, replies); infer.CodeOf(err) != infer.Cancelled {
		t.Errorf("got %v", err)
	}
	gone(t, cam)
}

func TestACameraOfTheListIsWatchedByItsName(t *testing.T) {
	r := start(t)
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip(t)})
	client := ingestclient.New(ingestclient.Config{Socket: r.socket})
	background(t, client.Run)
	client.SetCameras(&ingestv1.SetCameras{Cameras: []*ingestv1.Camera{{Name: "gate", Address: cam.Address()}}})
	for _, model := range []string{"watch", "narrow"} {
		for deadline := time.Now().Add(20 * time.Second); ; { // until the sidecar has heard of the camera
			err := end(t, r.ask(t.Context(), model, map[string]string{"CAMERA": "gate"}, map[string]any{"max_frames": int64(5), "rate": 10.0}))
			if err == nil {
				break
			}
			if infer.CodeOf(err) != infer.NotFound || time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	if open, _, most := cam.Sessions(); open != 1 || most != 1 {
		t.Errorf("%d sessions are open, %d were at once, want one", open, most)
	}
}

func TestAFileEndsWithItsLastFrame(t *testing.T) {
	r := start(t)
	path := filepath.Join(t.TempDir(), "clip.h264")
	var data []byte
	for _, u := range clip(t).Units {
		for _, nalu := range u.NALUs {
			data = append(append(data, 0, 0, 0, 1), nalu...)
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	replies := r.ask(t.Context(), "watch", map[string]string{"URL": "file://" + path}, nil)
	n := 0
	for reply := range replies {
		if reply.Err != nil {
			t.Fatal(reply.Err)
		}
		if reply.Response != nil {
			n++
			reply.Response.Release()
		}
	}
	if n != 25 {
		t.Errorf("%d of 25 frames were answered", n)
	}
}

func TestAnInterruptedStreamGoesOnAsANewSequence(t *testing.T) {
	r := start(t)
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip(t)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	replies := r.ask(ctx, "watch", map[string]string{"URL": cam.Address()}, nil)
	epochs := map[any]bool{}
	for reply := range replies {
		if reply.Final {
			if len(epochs) < 2 {
				t.Fatal(reply.Err)
			}
			break
		}
		if e := reply.Response.Parameters["stream_epoch"]; !epochs[e] {
			epochs[e] = true
			if len(epochs) == 1 {
				cam.Kick()
			} else {
				cancel()
			}
		}
		reply.Response.Release()
	}
	gone(t, cam)
}

func TestATrackerThatForgotItsSequenceIsGivenAnother(t *testing.T) {
	r := start(t)
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip(t)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	replies := r.ask(ctx, "watch", map[string]string{"URL": cam.Address()}, nil)
	first := any(nil)
	for reply := range replies {
		if reply.Final {
			t.Fatal(reply.Err)
		}
		sequence := reply.Response.Parameters["sequence"]
		reply.Response.Release()
		if first == nil {
			first = sequence
			cam.Pause(true)
			deadline := time.After(20 * time.Second)
			for len(r.repo.Sequences()) > 0 { // which sit idle for a second at most
				select {
				case <-deadline:
					t.Fatal("the tracker does not forget")
				case <-time.After(time.Millisecond):
				}
			}
			cam.Pause(false)
		} else if sequence != first {
			break
		}
	}
	cancel()
	if err := end(t, replies); infer.CodeOf(err) != infer.Cancelled {
		t.Errorf("got %v", err)
	}
}

func TestWhatCannotBeWatchedIsRefusedWithTheReason(t *testing.T) {
	r := start(t)
	guarded := rtsptest.Start(t, rtsptest.Config{Clip: clip(t), Username: "a", Password: "b"})
	for _, c := range []struct {
		name, model string
		inputs      map[string]string
		parameters  map[string]any
		code        infer.Code
		want        string
	}{
		{"nothing", "watch", nil, nil, infer.InvalidArgument, "needs either URL or CAMERA"},
		{"both", "watch", map[string]string{"URL": "rtsp://x/", "CAMERA": "x"}, nil, infer.InvalidArgument, "needs either URL or CAMERA"},
		{"another scheme", "watch", map[string]string{"URL": "http://u:secret@x/"}, nil, infer.InvalidArgument, "no rtsp:// or rtsps:// address"},
		{"a file of a model that takes none", "narrow", map[string]string{"URL": "file:///etc/passwd"}, nil, infer.InvalidArgument, "takes no files"},
		{"an address of a model that takes none", "narrow", map[string]string{"URL": "rtsp://x/"}, nil, infer.InvalidArgument, "takes no addresses"},
		{"a camera of somebody else", "narrow", map[string]string{"CAMERA": "door"}, nil, infer.NotFound, "no camera 'door'"},
		{"an unknown camera", "watch", map[string]string{"CAMERA": "none"}, nil, infer.NotFound, "no camera 'none'"},
		{"a negative rate", "watch", map[string]string{"CAMERA": "none"}, map[string]any{"rate": -1.0}, infer.InvalidArgument, "parameter 'rate' is -1"},
		{"a rate in words", "watch", map[string]string{"CAMERA": "none"}, map[string]any{"rate": "fast"}, infer.InvalidArgument, "parameter 'rate' is fast"},
		{"wrong credentials", "watch", map[string]string{"URL": strings.Replace(guarded.Address(), "rtsp://", "rtsp://a:wrong@", 1)}, nil, infer.InvalidArgument, "AUTH_FAILED"},
		{"nobody there", "watch", map[string]string{"URL": "rtsp://127.0.0.1:1/x"}, nil, infer.Unavailable, "camera '127.0.0.1:1': "},
		{"a file that is not there", "watch", map[string]string{"URL": "file:///none.mp4"}, nil, infer.NotFound, "camera '/none.mp4': NOT_FOUND"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := end(t, r.ask(t.Context(), c.model, c.inputs, c.parameters))
			if infer.CodeOf(err) != c.code || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "wrong") {
				t.Errorf("got %v (code %d), want %q (code %d)", err, infer.CodeOf(err), c.want, c.code)
			}
		})
	}
}

func TestAModelThatGoesEndsItsRequests(t *testing.T) {
	r := start(t)
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip(t)})
	unload := func() {
		if err := r.repo.Unload(t.Context(), "watch", false); err != nil {
			t.Error(err)
		}
	}
	for _, leave := range []func(){unload, r.back.Stop} {
		if err := r.repo.Load(t.Context(), "watch", infer.LoadOptions{}); err != nil {
			t.Fatal(err)
		}
		replies := r.ask(t.Context(), "watch", map[string]string{"URL": cam.Address()}, nil)
		first := <-replies
		if first.Err != nil {
			t.Fatal(first.Err)
		}
		first.Response.Release()
		leave()
		if err := end(t, replies); infer.CodeOf(err) != infer.Unavailable {
			t.Errorf("got %v", err)
		}
		gone(t, cam)
	}
}

func TestAModelWithoutASidecarDoesNotLoad(t *testing.T) {
	b := stream.New(stream.Config{})
	if _, err := b.NewInstance(t.Context(), &backend.Model{Name: "m"}, backend.Placement{}); err == nil || !strings.Contains(err.Error(), "--ingest-socket") {
		t.Errorf("got %v", err)
	}
}
