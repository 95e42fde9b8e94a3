package server_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/server"
	"github.com/vedette/vedette/infer/server/flags"
)

// library finds ONNX Runtime where the build puts it.
func library() string {
	path, err := filepath.Abs(filepath.Join("..", "..", "third_party", "onnxruntime", "libonnxruntime.so.1"))
	if err != nil {
		return ""
	}
	return path
}

// repository writes model directories: a path and what is in it.
func repository(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// running is a server that was started with a command line.
type running struct {
	server    *server.Server
	mu        sync.Mutex
	addresses map[string]string
	done      chan error
	stop      context.CancelFunc
}

func (r *running) at(what string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addresses[what]
}

// start runs a server on ports of its own and waits until its models are loaded.
func start(t testing.TB, args ...string) *running {
	t.Helper()
	args = append([]string{
		"--http-address=127.0.0.1", "--http-port=0", "--grpc-address", "127.0.0.1", "--grpc-port", "0",
		"--metrics-address=127.0.0.1", "--metrics-port=0", "--onnxruntime", library(), "--exit-timeout-secs=5",
	}, args...)
	cfg, _, _, err := flags.Parse(args, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	r := &running{addresses: make(map[string]string), done: make(chan error, 1)}
	cfg.Listening = func(what string, at net.Addr) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.addresses[what] = at.String()
	}
	ready := make(chan struct{})
	cfg.Ready = func() error { close(ready); return nil }
	var log strings.Builder
	cfg.Log.Output = &lockedWriter{w: &log}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.server, r.stop = s, cancel
	go func() { r.done <- s.Run(ctx) }()
	select {
	case <-ready:
	case err := <-r.done:
		t.Fatalf("the server ended: %v\n%s", err, log.String())
	case <-time.After(time.Minute):
		t.Fatal("the server does not get ready")
	}
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
	})
	return r
}

type lockedWriter struct {
	mu sync.Mutex
	w  *strings.Builder
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func dial(t testing.TB, target string) inference.GRPCInferenceServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return inference.NewGRPCInferenceServiceClient(conn)
}

const (
	identityModel = `backend: "identity" max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
parameters { key: "response_parameters" value { string_value: "false" } }
`
	chainModel = `platform: "ensemble" max_batch_size: 8
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "plain" model_version: -1 input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "MID" } },
  { model_name: "plain2" model_version: -1 input_map { key: "INPUT0" value: "MID" } output_map { key: "OUTPUT0" value: "OUT" } } ] }
`
	sequenceModel = `backend: "sequence" max_batch_size: 8
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
sequence_batching { direct { } max_sequence_idle_microseconds: 60000000
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] } ] }
`
)

func testModels() map[string]string {
	return map[string]string{
		"plain/config.pbtxt": identityModel, "plain/1/keep": "",
		"plain2/config.pbtxt": identityModel, "plain2/1/keep": "",
		"chain/config.pbtxt": chainModel, "chain/1/keep": "",
		"sum/config.pbtxt": sequenceModel, "sum/1/keep": "",
	}
}
