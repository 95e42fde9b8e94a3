// Package examples_test runs every example against the real server.
package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
	"github.com/vedette/vedette/internal/rtsptest"
)

const module = "github.com/vedette/vedette/"

// programs is the folder of everything the examples need, which TestMain makes and build fills, once.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "examples-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programs = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var compile = sync.OnceValues(func() ([]byte, error) {
	cmd := exec.CommandContext(context.Background(), "go", "build", "-tags", "gocv_specific_modules", "-o", programs+"/",
		module+"cmd/vedette-infer", module+"cmd/vedette-ingest", module+"docs/examples/client/...", module+"docs/examples/inprocess")
	cmd.Env = append(os.Environ(), "CGO_LDFLAGS=-Wl,--as-needed") // as the Makefile builds
	return cmd.CombinedOutput()
})

// build compiles the programs and returns their folder.
func build(t *testing.T) string {
	t.Helper()
	if out, err := compile(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return programs
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// listening is what the server logs of a listener.
var listening = regexp.MustCompile(`msg=listening what=(\w+) address=(\S+)`)

// serve runs the server and returns the addresses it listens at, when its models are loaded.
func serve(t *testing.T, program string, args ...string) map[string]string {
	t.Helper()
	library := absolute(t, "../../third_party/onnxruntime/libonnxruntime.so.1")
	if _, err := os.Stat(library); err != nil {
		t.Skip("ONNX Runtime is not there: make deps fetches it")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, append([]string{
		"--http-address=127.0.0.1", "--http-port=0", "--grpc-address=127.0.0.1", "--grpc-port=0", "--metrics-address=127.0.0.1", "--metrics-port=0", "--onnxruntime", library,
	}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = cmd.Wait() // it was told to end
	})
	addresses, log := make(map[string]string), new(bytes.Buffer)
	ready := make(chan bool, 1)
	wg.Go(func() {
		loaded := false
		for s := bufio.NewScanner(out); s.Scan(); {
			if !loaded {
				fmt.Fprintln(log, s.Text())
			}
			if m := listening.FindStringSubmatch(s.Text()); m != nil {
				addresses[m[1]] = m[2]
			}
			if strings.Contains(s.Text(), "models are loaded") && !loaded {
				loaded = true
				ready <- true
			}
		}
		if !loaded {
			ready <- false
		}
	})
	select {
	case ok := <-ready:
		if !ok {
			t.Fatalf("the server ended:\n%s", log)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server does not get ready")
	}
	return addresses
}

// ingest runs the ingest sidecar and returns its socket.
func ingest(t *testing.T, program string) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "ingest.sock")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--socket", socket)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was told to end
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
		if err == nil {
			_ = conn.Close()
			return socket
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// picture writes a street of boxes.
func picture(t *testing.T) string {
	t.Helper()
	const side = 416 // both clients then see the same pixels
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	draw.Draw(img, img.Bounds(), image.NewUniform(color.RGBA{90, 110, 90, 255}), image.Point{}, draw.Src)
	for i := range 5 {
		r := image.Rect(40+70*i, 150, 70+70*i, 230)
		draw.Draw(img, r, image.NewUniform(color.RGBA{uint8(40 * i), 60, 200, 255}), image.Point{}, draw.Src)
	}
	path := filepath.Join(t.TempDir(), "street.png")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(f, img); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(program), err, out)
	}
	return string(out)
}

func TestEveryClientRunsAgainstTheServer(t *testing.T) {
	dir := build(t)
	server := serve(t, filepath.Join(dir, "vedette-infer"), "--model-repository", absolute(t, "models"), "--model-repository", absolute(t, "../../models"),
		"--model-repository", absolute(t, "stream/models"), "--ingest-socket", ingest(t, filepath.Join(dir, "vedette-ingest")),
		"--model-control-mode=explicit", "--load-model=*", "--allow-client-shm=true")
	street := picture(t)
	watched := rtsptest.Start(t, rtsptest.Config{Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})})
	seen := map[string]string{}
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"simple", "sums: [100 102 104", nil},
		{"async", "sums: [8 10 12", nil},
		{"stream", "sums: [8 10 12", nil},
		{"sequence", "so far: 29", nil},
		{"sequence_stream", "sums: 29 -29", nil},
		{"text", `"zwölf"`, nil},
		{"shared_memory", "sums: [100 101", nil},
		{"reuse", "sums: [4 5 6", nil},
		{"custom_args", "sums: [1 3 5", []string{"-t", "20s"}},
		{"keepalive", "sums: [1 3 5", nil},
		{"health_metadata", "input INPUT0 INT32 [-1 16]", nil},
		{"model_control", "simple_string 1 READY", nil},
		{"repeat", "answers: [4 2 0 1]", nil},
		{"camera", ": 0 tracks", []string{"-address", watched.Address(), "-frames", "3", "-picture", filepath.Join(t.TempDir(), "frame.jpg")}},
		{"image_client", "score 0.", []string{"-i", street}},
		{"ensemble_image_client", "score 0.", []string{"-i", street}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := run(t, filepath.Join(dir, c.name), append([]string{"-u", server["gRPC"]}, c.args...)...)
			if !strings.Contains(out, c.want) {
				t.Errorf("%q is not in\n%s", c.want, out)
			}
			seen[c.name] = out
		})
	}
	if a, b := seen["image_client"], seen["ensemble_image_client"]; a != b {
		t.Errorf("opened by the client the picture is %s, by the server %s", a, b)
	}
	if out := run(t, filepath.Join(dir, "inprocess"), "-models", absolute(t, "models")); !strings.Contains(out, "sums: [0 2 4") {
		t.Errorf("in process: %s", out)
	}
	// Every example there is was run.
	list, err := os.ReadDir("client")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if seen[e.Name()] == "" {
			t.Errorf("the example %s was not run", e.Name())
		}
	}
}

func TestTheDocumentsCommandStartsTheServer(t *testing.T) {
	text, err := os.ReadFile("../inference.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^bin/vedette-infer (.*)$`).FindSubmatch(text)
	if command == nil {
		t.Fatal("docs/inference.md has no command that starts the server")
	}
	args := strings.Fields(string(command[1]))
	for i, a := range args {
		if !strings.HasPrefix(a, "--") {
			args[i] = absolute(t, filepath.Join("../..", a))
		}
	}
	serve(t, filepath.Join(build(t), "vedette-infer"), args...)
}

func TestModelInPythonBehindTheRemoteBackend(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, python, "backend/server.py", "--port", "0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	models, dir := t.TempDir(), build(t)
	conf, err := os.ReadFile("backend/models/median/config.pbtxt")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(models, "median", "1"), 0o750); err != nil {
		t.Fatal(err)
	}
	conf = bytes.ReplaceAll(conf, []byte("http://127.0.0.1:8100"), []byte(strings.TrimSpace(address)))
	if err := os.WriteFile(filepath.Join(models, "median", "config.pbtxt"), conf, 0o600); err != nil {
		t.Fatal(err)
	}
	server := serve(t, filepath.Join(dir, "vedette-infer"), "--model-repository", models)
	client, err := v2client.New(server["gRPC"], v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ask := func(shape []int64, values ...float32) (*v2client.Response, error) {
		return client.Infer(t.Context(), &v2client.Request{Model: "median", Inputs: []v2client.Input{{
			Tensor: tensor.Tensor{Name: "IN", DataType: tensor.FP32, Shape: shape, Data: tensor.AsBytes(values)},
		}}})
	}
	resp, err := ask([]int64{2, 3}, 3, 1, 2, -5, 10, 7)
	if err != nil {
		t.Fatal(err)
	}
	if got := tensor.Float32s(resp.Output("OUT").Data); got[0] != 2 || got[1] != 7 {
		t.Errorf("got %v", got)
	}
	if _, err := ask([]int64{1, 0}); err == nil || !strings.Contains(err.Error(), "no numbers have no median") {
		t.Errorf("got %v", err)
	}
}

func TestTwoServersBehindOneName(t *testing.T) {
	dir, models := build(t), t.TempDir()
	program := filepath.Join(dir, "vedette-infer")
	var behind []string
	for range 2 {
		behind = append(behind, serve(t, program, "--model-repository", absolute(t, "models"), "--model-control-mode=explicit", "--load-model=simple")["gRPC"])
	}
	conf, err := os.ReadFile("scaleout/models/simple/config.pbtxt")
	if err != nil {
		t.Fatal(err)
	}
	conf = bytes.ReplaceAll(conf, []byte("127.0.0.1:8011"), []byte(behind[0]))
	conf = bytes.ReplaceAll(conf, []byte("127.0.0.1:8021"), []byte(behind[1]))
	if err := os.MkdirAll(filepath.Join(models, "simple", "1"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(models, "simple", "config.pbtxt"), conf, 0o600); err != nil {
		t.Fatal(err)
	}
	front := serve(t, program, "--model-repository", models)
	for range 4 {
		if out := run(t, filepath.Join(dir, "simple"), "-u", front["gRPC"]); !strings.Contains(out, "sums: [100 102 104") {
			t.Error(out)
		}
	}
	for _, address := range behind {
		client, err := v2client.New(address, v2client.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		resp, err := client.ModelStatistics(t.Context(), &inference.ModelStatisticsRequest{Name: "simple"})
		if err != nil || resp.GetModelStats()[0].GetInferenceCount() != 2 {
			t.Errorf("%s: %v, %v", address, resp, err)
		}
	}
}
