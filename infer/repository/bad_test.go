package repository_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

func TestP13ShapesThatCannotBeAreRefused(t *testing.T) {
	root := write(t, files{
		"open/config.pbtxt":  `backend: "echo" input { name: "IN" data_type: TYPE_INT32 dims: [ -1, -1, -1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }`,
		"open/1/keep":        "",
		"batch/config.pbtxt": `backend: "echo" max_batch_size: 8 input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }`,
		"batch/1/keep":       "",
		"words/config.pbtxt": `backend: "echo" input { name: "IN" data_type: TYPE_STRING dims: [ -1, -1 ] } output { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] }`,
		"words/1/keep":       "",
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho()})
		for _, c := range []struct {
			name, model string
			shape       []int64
			want        string
		}{
			{"a product that overflows", "open", []int64{1 << 31, 1 << 31, 4}, "input 'IN' for model 'open': "},
			{"a product that wraps to zero", "open", []int64{1 << 32, 1 << 32, 1}, "input 'IN' for model 'open': "},
			{"bytes that overflow where elements do not", "open", []int64{math.MaxInt64 / 2, 1, 1}, "input 'IN' for model 'open': "},
			{"an overflow hidden behind a zero", "open", []int64{math.MaxInt64, math.MaxInt64, 0}, "input"},
			{"a negative size", "open", []int64{-4, -1, 1}, "All input dimensions should be specified for input 'IN'"},
			{"the least number there is", "open", []int64{math.MinInt64, 1, 1}, "All input dimensions should be specified for input 'IN'"},
			{"a negative batch", "batch", []int64{-1, 1}, "All input dimensions should be specified for input"},
			{"an empty batch", "batch", []int64{0, 1}, "inference request batch-size must be >= 1"},
			{"a batch beyond an int32", "batch", []int64{1 << 33, 1}, "inference request batch-size must be <= 8"},
			{"strings that overflow", "words", []int64{1 << 40, 1 << 40}, "input 'IN' for model 'words': "},
			{"more strings than bytes", "words", []int64{1 << 40, 1}, "expected 1099511627776 string elements"},
		} {
			in := tensor.Tensor{Name: "IN", DataType: tensor.Int32, Shape: c.shape, Data: make([]byte, 4)}
			if c.model == "words" {
				in.DataType = tensor.Bytes
			}
			resp, err := infer.Do(t.Context(), r, &infer.Request{Model: c.model, Inputs: []tensor.Tensor{in}})
			if err == nil || infer.CodeOf(err) != infer.InvalidArgument || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.name, err)
			}
			resp.Release()
		}
	})
}

func TestR4NamesThatLeadAwayAreRefused(t *testing.T) {
	outside := t.TempDir()
	root := filepath.Join(outside, "models")
	for file, text := range map[string]string{
		"models/a/config.pbtxt": echoModel, "models/a/1/keep": "",
		"secret/config.pbtxt": echoModel, "secret/1/keep": "",
		"models/l/config.pbtxt": `backend: "echo" input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] label_filename: "../../secret/config.pbtxt" }`, "models/l/1/keep": "",
		"models/s/config.pbtxt": `backend: "implicit_state" input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
sequence_batching { state { input_name: "S" output_name: "T" data_type: TYPE_INT32 dims: [ 1 ] initial_state { name: "i" data_type: TYPE_INT32 dims: [ 1 ] data_file: "../../../secret/config.pbtxt" } } }`,
		"models/s/1/keep": "",
	} {
		file = filepath.Join(outside, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := references()
		b["echo"] = echo{}
		r := serve(t, repository.Config{Roots: []string{root}, Backends: b, Mode: repository.ModeExplicit, Startup: []string{"a", "../secret", "a"}})
		if got := index(r); strings.Contains(got, "READY\nsecret") || !strings.Contains(got, "a 1 READY") {
			t.Errorf("index:\n%s", got)
		}
		for _, name := range []string{"../secret", "..", ".", "", "/etc", "a/../../secret", `..\secret`, "a\x00b"} {
			if err := r.Load(ctx, name, infer.LoadOptions{}); infer.CodeOf(err) != infer.InvalidArgument {
				t.Errorf("load %q: %v", name, err)
			}
			if err := r.Unload(ctx, name, true); infer.CodeOf(err) != infer.InvalidArgument {
				t.Errorf("unload %q: %v", name, err)
			}
			if _, err := r.Model(name, 0); infer.CodeOf(err) != infer.NotFound {
				t.Errorf("metadata of %q: %v", name, err)
			}
		}
		json := `{"backend":"echo","input":[{"name":"IN","data_type":"TYPE_INT32","dims":[-1]}],"output":[{"name":"OUT","data_type":"TYPE_INT32","dims":[-1]}]}`
		for _, file := range []string{"../x", "1/../../x", "/tmp/x", "", "..", "1/../../../secret/config.pbtxt"} {
			err := r.Load(ctx, "a", infer.LoadOptions{Config: json, Files: map[string][]byte{"1/keep": nil, file: []byte("x")}})
			if code := infer.CodeOf(err); err == nil || code != infer.InvalidArgument && code != infer.Internal {
				t.Errorf("file %q: %v", file, err)
			}
		}
		long := strings.Repeat("x", 5000)
		err := r.Load(ctx, "a", infer.LoadOptions{Config: json, Files: map[string][]byte{"1/" + long: nil}})
		if infer.CodeOf(err) != infer.Internal || !strings.Contains(err.Error(), "failed to poll from model repository") {
			t.Errorf("a name too long: %v", err)
		}
		if err := r.Load(ctx, long, infer.LoadOptions{}); infer.CodeOf(err) != infer.Internal {
			t.Errorf("a model's name too long: %v", err)
		}
		for name, want := range map[string]string{"l": "must be inside the model's directory", "s": "initial_state"} {
			if err := r.Load(ctx, name, infer.LoadOptions{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("load %s: %v", name, err)
			}
		}
		if err := ask(t, r, "a"); err != nil {
			t.Errorf("the model that served: %v", err)
		}
	})
	if left, err := filepath.Glob(filepath.Join(outside, "x")); err != nil || len(left) > 0 {
		t.Errorf("written outside: %v %v", left, err)
	}
}

// stuck hangs while it is loaded until it is told to stop, and crashes where
// it is asked to complete a configuration.
type stuck struct{ crash bool }

func (s stuck) Complete(context.Context, *backend.Model) error {
	if s.crash {
		panic("no such operator")
	}
	return nil
}

func (s stuck) NewInstance(ctx context.Context, _ *backend.Model, _ backend.Placement) (backend.Instance, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestX7AModelThatHangsAtLoadHoldsUpNoOther(t *testing.T) {
	root := write(t, files{
		"hangs/config.pbtxt": strings.Replace(echoModel, "echo", "stuck", 1), "hangs/1/keep": "",
		"crashes/config.pbtxt": strings.Replace(echoModel, "echo", "crash", 1), "crashes/1/keep": "",
		"good/config.pbtxt": echoModel, "good/1/keep": "",
		"e/config.pbtxt": ensemble("A", "B", "good IN=A OUT=B"), "e/1/keep": "",
	})
	synctest.Test(t, func(t *testing.T) {
		b := withEcho()
		b["stuck"], b["crash"] = stuck{}, stuck{crash: true}
		r, err := repository.New(repository.Config{Roots: []string{root}, Backends: b, LoadThreads: 2})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.Run(ctx, time.Minute); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		synctest.Wait()
		want := "crashes 1 UNAVAILABLE model crashed while it was loaded: no such operator\ne 1 READY\ngood 1 READY\nhangs 1 LOADING"
		if got := index(r); got != want {
			t.Errorf("index:\n%s\nwant:\n%s", got, want)
		}
		if err := ask(t, r, "good"); err != nil {
			t.Error(err)
		}
		if r.Ready(ctx) {
			t.Error("the server says it is ready")
		}
		if _, err := infer.Do(ctx, r, &infer.Request{Model: "hangs", Version: 1}); infer.CodeOf(err) != infer.Unavailable {
			t.Errorf("a request for the one that hangs: %v", err)
		}
		cancel()
		wg.Wait()
		if err := r.Loaded(t.Context()); err == nil || !strings.Contains(err.Error(), "hangs") {
			t.Errorf("what was said of the start: %v", err)
		}
	})
}

func TestR1WhatIsNoFileOfAModelIsRefused(t *testing.T) {
	root := write(t, files{
		"good/config.pbtxt": echoModel, "good/1/keep": "", "back/config.pbtxt": echoModel, "back/1/keep": "",
		"config/1/keep": "", "data/config.pbtxt": echoModel, "data/1/keep": "", "old\xff/config.pbtxt": echoModel, "old\xff/1/keep": "",
	})
	for _, err := range []error{
		unix.Mkfifo(filepath.Join(root, "config", "config.pbtxt"), 0o600),
		os.Symlink("/dev/zero", filepath.Join(root, "data", "1", "model.onnx")),
		os.Symlink("..", filepath.Join(root, "back", "1", "up")),
		os.Symlink("itself", filepath.Join(root, "back", "1", "itself")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho()})
		if err := r.Loaded(t.Context()); err == nil {
			t.Error("nothing was said of the bad models")
		}
		got := strings.ReplaceAll(index(r), root, "ROOT")
		want := `back 1 READY
config  UNAVAILABLE failed to load 'config', failed to poll from model repository: ROOT/config/config.pbtxt is neither a file nor a directory (p---------): remove it from the model
data  UNAVAILABLE failed to load 'data', failed to poll from model repository: ROOT/data/1/model.onnx is neither a file nor a directory (Dc---------): remove it from the model
good 1 READY
old` + "\uFFFD" + `   the name of its directory is not UTF-8: rename it`
		if got != want {
			t.Errorf("index:\n%s\nwant:\n%s", got, want)
		}
	})
}

func TestR4AModelBehindALinkIsFollowed(t *testing.T) {
	elsewhere := write(t, files{"m/config.pbtxt": echoModel, "m/1/model.echo": "1"})
	root := t.TempDir()
	if err := os.Symlink(filepath.Join(elsewhere, "m"), filepath.Join(root, "m")); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), Mode: repository.ModePoll, PollInterval: time.Second})
		if err := r.Loaded(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(elsewhere, "m", "2"), 0o750); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if got := index(r); !strings.Contains(got, "m 2 READY") {
			t.Errorf("index after a version came:\n%s", got)
		}
		if err := os.WriteFile(filepath.Join(elsewhere, "m", "config.pbtxt"), []byte("backend: "), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if got := index(r); !strings.Contains(got, "m 2 READY") || !r.Ready(t.Context()) {
			t.Errorf("ready %v after its configuration broke, index:\n%s", r.Ready(t.Context()), got)
		}
	})
}

func TestR4LoadsOfNamesWithoutAModelLeaveNothing(t *testing.T) {
	root := write(t, files{"m/config.pbtxt": echoModel, "m/1/keep": ""})
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := serve(t, repository.Config{Roots: []string{root}, Backends: withEcho(), Mode: repository.ModeExplicit, Startup: []string{"m"}})
		for _, c := range []struct {
			name, config string
			code         infer.Code
		}{
			{"none", "", infer.Internal},
			{"none", "{", infer.InvalidArgument},
			{"none", "{}", infer.Internal},
			{strings.Repeat("n", 300), "", infer.Internal},
			{"n\xff", "", infer.InvalidArgument},
			{"m", "{", infer.InvalidArgument},
		} {
			if err := r.Load(ctx, c.name, infer.LoadOptions{Config: c.config}); infer.CodeOf(err) != c.code {
				t.Errorf("load %q with %q: %v", c.name, c.config, err)
			}
		}
		if got := index(r); got != "m 1 READY" || !r.Ready(ctx) {
			t.Errorf("ready %v, index:\n%s", r.Ready(ctx), got)
		}
	})
}
