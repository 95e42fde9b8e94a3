package remote_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/backend/remote"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/server"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// far is a real server with an echo and an accumulator.
type far struct {
	grpc, http string
	stop       func()
}

const (
	echo = `backend: "identity" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_INT32 dims: -1 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 }`
	adder = `backend: "sequence" max_batch_size: 8
input { name: "INPUT" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 }
sequence_batching { control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [0, 1] } } }`
)

const many = `backend: "repeat" model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: -1 } input { name: "DELAY" data_type: TYPE_UINT32 dims: -1 } input { name: "WAIT" data_type: TYPE_UINT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 } output { name: "IDX" data_type: TYPE_UINT32 dims: 1 }`

func start(t *testing.T) *far {
	t.Helper()
	return startAt(t, "127.0.0.1:0", "127.0.0.1:0")
}

func startAt(t *testing.T, grpcAddress, httpAddress string) *far {
	t.Helper()
	dir := t.TempDir()
	for name, config := range map[string]string{"echo": echo, "adder": adder, "many": many} {
		if err := os.MkdirAll(filepath.Join(dir, name, "1"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "config.pbtxt"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := &far{}
	var mu sync.Mutex
	ready := make(chan struct{})
	s, err := server.New(server.Config{
		Repository: repository.Config{Roots: []string{dir}, Mode: repository.ModeExplicit, Startup: []string{"*"}}, HTTP: httpAddress, GRPC: grpcAddress,
		Ready: func() error { close(ready); return nil },
		Listening: func(what string, at net.Addr) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case strings.Contains(strings.ToLower(what), "grpc"):
				f.grpc = "grpc://" + at.String()
			case strings.Contains(strings.ToLower(what), "http"):
				f.http = "http://" + at.String()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(f.stop)
	mu.Lock()
	defer mu.Unlock()
	return f
}

func model(t *testing.T, config string, kv ...string) *backend.Model {
	t.Helper()
	c := &inference.ModelConfig{}
	for i := 0; i < len(kv); i += 2 {
		config += ` parameters { key: "` + kv[i] + `" value { string_value: "` + kv[i+1] + `" } }`
	}
	if err := prototext.Unmarshal([]byte(config), c); err != nil {
		t.Fatal(err)
	}
	return &backend.Model{Name: "near", Config: c, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
}

func load(t *testing.T, m *backend.Model) backend.Instance {
	t.Helper()
	if err := remote.New().Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	in, err := remote.New().NewInstance(t.Context(), m, backend.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	return in
}

func numbers(name string, v ...int32) tensor.Tensor {
	return tensor.Tensor{Name: name, DataType: tensor.Int32, Shape: []int64{1, int64(len(v))}, Data: tensor.AsBytes(v)}
}

func run(t *testing.T, in backend.Instance, j backend.Job) (*infer.Response, error) {
	t.Helper()
	o := &backendtest.Owner{}
	j.Request, j.Owner, j.Batch = &infer.Request{ID: "x"}, o, 1
	in.Execute(t.Context(), []*backend.Job{&j})
	if (o.Response == nil) == (o.Err == nil) {
		t.Fatalf("response %v and error %v: want exactly one", o.Response, o.Err)
	}
	return o.Response, o.Err
}

func TestX7AModelElsewhereIsAsOneHere(t *testing.T) {
	f := start(t)
	for _, url := range []string{f.grpc, f.http} {
		t.Run(url[:4], func(t *testing.T) {
			m := model(t, "", "url", url, "remote_model", "echo")
			in := load(t, m)
			if m.Config.GetMaxBatchSize() != 8 || len(m.Config.GetInput()) != 1 || m.Config.GetOutput()[0].GetName() != "OUTPUT0" {
				t.Errorf("completed to %v", m.Config)
			}
			r, err := run(t, in, backend.Job{Inputs: []tensor.Tensor{numbers("INPUT0", 1, 2, 3)}})
			if err != nil {
				t.Fatal(err)
			}
			o := r.Output("OUTPUT0")
			if !slices.Equal(o.Shape, []int64{1, 3}) || !slices.Equal(tensor.View[int32](o.Data), []int32{1, 2, 3}) {
				t.Errorf("got %v", o)
			}
			r.Release()
			_, err = run(t, in, backend.Job{Inputs: []tensor.Tensor{{Name: "INPUT0", DataType: tensor.FP32, Shape: []int64{1, 1}, Data: make([]byte, 4)}}})
			if infer.CodeOf(err) != infer.InvalidArgument || !strings.Contains(err.Error(), url) {
				t.Errorf("a refusal there is %v (code %d) here", err, infer.CodeOf(err))
			}
		})
	}
}

func TestX7Conformance(t *testing.T) {
	f := start(t)
	backendtest.Run(t, backendtest.Case{
		Backend: remote.New(), Model: model(t, "", "url", f.grpc, "remote_model", "echo"),
		Inputs: func(i int) []tensor.Tensor { return []tensor.Tensor{numbers("INPUT0", int32(i), 2)} },
	})
}

func TestX7SequencesStayWithTheirServer(t *testing.T) {
	a, b := start(t), start(t)
	in := load(t, model(t, "", "url", a.grpc+","+b.grpc, "remote_model", "adder"))
	sums := map[uint64]int32{}
	for step := range 4 {
		for seq := uint64(1); seq <= 6; seq++ {
			v := int32(10*int(seq) + step)
			r, err := run(t, in, backend.Job{Sequence: seq, Start: step == 0, End: step == 3, Inputs: []tensor.Tensor{numbers("INPUT", v)}})
			if err != nil {
				t.Fatal(err)
			}
			sums[seq] += v
			if got := tensor.View[int32](r.Output("OUTPUT").Data)[0]; got != sums[seq] {
				t.Fatalf("sequence %d is at %d, want %d", seq, got, sums[seq])
			}
			r.Release()
		}
	}
}

func TestAnotherServerStandsIn(t *testing.T) {
	a, b := start(t), start(t)
	for _, urls := range []string{a.grpc + "," + b.grpc, a.http + "," + b.http} {
		in := load(t, model(t, "", "url", urls, "remote_model", "echo"))
		for range 4 {
			if _, err := run(t, in, backend.Job{Inputs: []tensor.Tensor{numbers("INPUT0", 1)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	in := load(t, model(t, "", "url", a.grpc+","+b.grpc, "remote_model", "echo"))
	inHTTP := load(t, model(t, "", "url", a.http+","+b.http, "remote_model", "echo"))
	a.stop()
	for i := range 8 {
		if _, err := run(t, in, backend.Job{Inputs: []tensor.Tensor{numbers("INPUT0", 1)}}); err != nil {
			t.Fatalf("request %d after one of two servers went: %v", i, err)
		}
		if _, err := run(t, inHTTP, backend.Job{Inputs: []tensor.Tensor{numbers("INPUT0", 1)}}); err != nil {
			t.Fatalf("request %d by http after one of two servers went: %v", i, err)
		}
	}
}

func TestAServerWhoseModelIsNotReadyIsPassedOver(t *testing.T) {
	a, b := start(t), start(t)
	client, err := v2client.New(strings.TrimPrefix(a.grpc, "grpc://"), v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	for _, urls := range []string{a.grpc + "," + b.grpc, a.http + "," + b.http} {
		in := load(t, model(t, "", "url", urls, "remote_model", "echo", "health_check_ms", "5", "retries", "0"))
		settles := func() { // until ten requests in a row are answered, which need no second try
			t.Helper()
			deadline := time.Now().Add(20 * time.Second)
			for row := 0; row < 10; row++ {
				r, err := run(t, in, backend.Job{Inputs: []tensor.Tensor{numbers("INPUT0", 1)}})
				if err == nil {
					r.Release()
					continue
				}
				if row = -1; time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
		}
		if _, err := client.RepositoryModelUnload(t.Context(), &inference.RepositoryModelUnloadRequest{ModelName: "echo"}); err != nil {
			t.Fatal(err)
		}
		settles()
		if _, err := client.RepositoryModelLoad(t.Context(), &inference.RepositoryModelLoadRequest{ModelName: "echo"}); err != nil {
			t.Fatal(err)
		}
	}
	// And one that is ready again is used again.
	in := load(t, model(t, "", "url", a.grpc+","+b.grpc, "remote_model", "echo", "health_check_ms", "5"))
	b.stop()
	for range 10 {
		r, err := run(t, in, backend.Job{Inputs: []tensor.Tensor{numbers("INPUT0", 1)}})
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
}

func TestADecoupledModelAnswersThroughTheProxy(t *testing.T) {
	f := start(t)
	m := model(t, "", "url", f.grpc, "remote_model", "many")
	in := load(t, m)
	if !m.Config.GetModelTransactionPolicy().GetDecoupled() {
		t.Error("the proxy of a decoupled model is not decoupled")
	}
	o := &backendtest.Owner{}
	flat := func(name string, typ tensor.DataType, v ...int32) tensor.Tensor {
		return tensor.Tensor{Name: name, DataType: typ, Shape: []int64{int64(len(v))}, Data: tensor.AsBytes(v)}
	}
	in.Execute(t.Context(), []*backend.Job{{Request: &infer.Request{ID: "x"}, Owner: o, Batch: 1, Inputs: []tensor.Tensor{
		flat("IN", tensor.Int32, 7, 8, 9), flat("DELAY", tensor.Uint32, 0, 0, 0), flat("WAIT", tensor.Uint32, 0),
	}}})
	if o.Err != nil || !o.Finished || len(o.Responses) != 3 {
		t.Fatalf("%d responses, finished %v, error %v", len(o.Responses), o.Finished, o.Err)
	}
	for i, r := range o.Responses {
		if v := tensor.View[int32](r.Output("OUT").Data); !slices.Equal(v, []int32{int32(7 + i)}) {
			t.Errorf("response %d is %v", i, v)
		}
	}
	if err := remote.New().Complete(t.Context(), model(t, "model_transaction_policy { decoupled: true }", "url", f.http)); err == nil {
		t.Error("a decoupled model over http was accepted")
	}
}

func TestNobodyThereIsATypedError(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"grpc://" + free, "http://" + free} {
		in := load(t, model(t, strings.Replace(echo, `backend: "identity"`, "", 1), "url", url, "retries", "1", "timeout_ms", "5000"))
		begin := time.Now()
		if _, err := run(t, in, backend.Job{Inputs: []tensor.Tensor{numbers("INPUT0", 1)}}); infer.CodeOf(err) != infer.Unavailable || !strings.Contains(err.Error(), url) {
			t.Errorf("got %v (code %d) after %v", err, infer.CodeOf(err), time.Since(begin))
		}
		if err := remote.New().Complete(t.Context(), model(t, "", "url", url, "timeout_ms", "2000")); err == nil || !strings.Contains(err.Error(), free) {
			t.Errorf("completed by nobody: %v", err)
		}
	}
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		kv   []string
		want string
	}{
		"no address":              {nil, "names no server"},
		"another scheme":          {[]string{"url", "ftp://x:1"}, "is not grpc://"},
		"no port":                 {[]string{"url", "grpc://x"}, "is not grpc://host:port"},
		"a time-out of nothing":   {[]string{"url", "grpc://x:1", "timeout_ms", "0"}, "parameters[timeout_ms]"},
		"a certificate not there": {[]string{"url", "grpc://x:1", "tls", "true", "ca_file", "../../none.pem"}, "parameters[ca_file]"},
		"tls perhaps":             {[]string{"url", "grpc://x:1", "tls", "perhaps"}, "parameters[tls]"},
	} {
		if err := remote.New().Complete(t.Context(), model(t, "", c.kv...)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestX7AnswersThatCannotBeAreRefused(t *testing.T) {
	output := func(name, typ string, shape []int64, size int) string {
		text, err := json.Marshal(map[string]any{"name": name, "datatype": typ, "shape": shape, "parameters": map[string]any{"binary_data_size": size}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	right := output("OUTPUT0", "INT32", []int64{1, 1}, 4)
	for _, c := range []struct {
		name, outputs, data, want string
	}{
		{"as it should be", right, "abcd", ""},
		{"and one more than asked for", right + "," + output("MORE", "INT32", []int64{1}, 4), "abcdefgh", ""},
		{"fewer bytes than the shape takes", output("OUTPUT0", "INT32", []int64{1, 2}, 4), "abcd", "output 'OUTPUT0' of the answer: shape [1,2] takes 8 bytes, not 4"},
		{"a negative shape", output("OUTPUT0", "INT32", []int64{-1, -1}, 4), "abcd", "has a negative dimension"},
		{"a shape that overflows", output("OUTPUT0", "INT32", []int64{1 << 62, 1 << 62}, 4), "abcd", "more elements than 63 bits count"},
		{"bytes that overflow", output("OUTPUT0", "INT32", []int64{1 << 62}, 4), "abcd", "output 'OUTPUT0' of the answer: "},
		{"another type", output("OUTPUT0", "FP32", []int64{1, 1}, 4), "abcd", "it is FP32, the configuration says INT32"},
		{"nothing", "", "", "the answer lacks output 'OUTPUT0'"},
		{"twice the same", right + "," + right, "abcdefgh", "output 'OUTPUT0' of the answer: it is there twice"},
		{"fewer bytes than announced", output("OUTPUT0", "INT32", []int64{1, 4}, 16), "abcd", "16 bytes are announced, 4 are left"},
		{"no JSON", "{", "", "the answer is not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int32
			there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/infer") {
					return // ready
				}
				asked.Add(1)
				head := `{"model_name":"echo","model_version":"1","outputs":[` + c.outputs + `]}`
				w.Header().Set("Inference-Header-Content-Length", strconv.Itoa(len(head)))
				_, _ = io.WriteString(w, head+c.data)
			}))
			defer there.Close()
			in := load(t, model(t, strings.Replace(echo, `backend: "identity"`, "", 1), "url", there.URL, "health_check_ms", "0"))
			r, err := run(t, in, backend.Job{Inputs: []tensor.Tensor{numbers("INPUT0", 1)}})
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
			} else if infer.CodeOf(err) != infer.Internal || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
			r.Release()
			if n := asked.Load(); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}
