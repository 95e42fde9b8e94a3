package main_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/demo"
)

func TestStartFaultsSayHowToMendThem(t *testing.T) {
	busy, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	file := filepath.Join(t.TempDir(), "file")
	settings := filepath.Join(t.TempDir(), "vedette.yaml")
	for path, text := range map[string]string{file: "no folder", settings: "htttp: 127.0.0.1:1\ngrpc: [1]\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, data string
		args       []string
		want       []string
	}{
		{"port taken", t.TempDir(), []string{"--http", busy.Addr().String()}, []string{busy.Addr().String(), "address already in use", "choose another with --http"}},
		{"data directory is a file", file, nil, []string{file, "not a directory", "--data-dir"}},
		{"no model repository", t.TempDir(), []string{"--models", "/nowhere"}, []string{"/nowhere", "--models"}},
		{"open to the network with half a certificate", t.TempDir(), []string{"--http", "0.0.0.0:0", "--tls-cert", "box.crt"}, []string{"--tls-cert", "tls-key"}},
		{"address without a port", t.TempDir(), []string{"--grpc", "localhost"}, []string{`--grpc "localhost"`, "host:port"}},
		{"settings that are none", t.TempDir(), []string{"--config", settings}, []string{"htttp: there is no such setting", "grpc: its value is a list or a group"}},
		{"socket path too long", filepath.Join(t.TempDir(), strings.Repeat("x", 100)), nil, []string{"shorter --data-dir"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := tryLaunch(t, tc.data, tc.args...)
			if err == nil {
				t.Fatal("it started")
			}
			for _, want := range tc.want {
				if !strings.Contains(p.output(), want) {
					t.Errorf("the output does not say %q:\n%s", want, p.output())
				}
			}
		})
	}
}

func TestSecondApplianceOnTheSameDataIsRefused(t *testing.T) {
	data := t.TempDir()
	first := launch(t, data)
	second, err := tryLaunch(t, data)
	if err == nil || !strings.Contains(second.output(), "another vedette is running with this data directory") {
		t.Errorf("%v:\n%s", err, second.output())
	}
	if out := first.cli("camera", "list"); !strings.Contains(out, "CAMERA") {
		t.Errorf("the first suffered: %s", out)
	}
}

func TestCameraFaultsAreTypedAndMoveNoOtherCamera(t *testing.T) {
	locked, err := demo.New(demo.Config{User: "viewer", Password: "right"})
	if err != nil {
		t.Fatal(err)
	}
	runCamera(t, locked)
	host := locked.Address()
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	_ = closed.Close()

	p := launch(t, t.TempDir(), "--onnxruntime", onnxruntime(t))
	p.cli("camera", "add", "good", "rtsp://viewer:right@"+host+"/street", "--fps", "2")
	p.cli("camera", "add", "password", "rtsp://viewer:wr0ng-canary@"+host+"/street")
	p.cli("camera", "add", "path", "rtsp://viewer:right@"+host+"/nowhere")
	p.cli("camera", "add", "address", "rtsp://"+nobody+"/street")
	p.cli("camera", "add", "model", "rtsp://viewer:right@"+host+"/street", "--pipeline", "missing")
	type camera struct {
		Status struct{ State, Reason, Message, AnalysisReason, AnalysisMessage string }
	}
	for id, want := range map[string]string{"password": "AUTH_FAILED", "path": "NOT_FOUND", "address": "UNREACHABLE"} {
		var c camera
		p.until(id+" is reported", 60*time.Second, func() bool { return p.get("/v1/cameras/"+id, &c) == nil && c.Status.Reason == want })
		if c.Status.Message == "" {
			t.Errorf("%s: no message", id)
		}
		t.Logf("%s: %s %s: %s", id, c.Status.State, c.Status.Reason, c.Status.Message)
	}
	var c camera
	p.until("the missing model is reported", 60*time.Second, func() bool {
		return p.get("/v1/cameras/model", &c) == nil && c.Status.AnalysisReason == "MODEL_NOT_READY"
	})
	t.Logf("model: %s", c.Status.AnalysisMessage)
	if c.Status.State != "CAMERA_STATE_STREAMING" {
		t.Errorf("a camera without its model is %s; it should stream and give pictures", c.Status.State)
	}
	p.until("tracks of the good camera", 60*time.Second, func() bool { return len(p.tracks(`camera = "good"`)) > 0 })
	if strings.Contains(p.output(), "canary") || strings.Contains(p.cli("camera", "list", "-o", "json"), "canary") {
		t.Errorf("a password is shown:\n%s", p.output())
	}
	for _, tc := range []struct{ address, want string }{
		{"rtsp://viewer:wrong@" + host + "/street", "check user name and password"},
		{"rtsp://viewer:right@" + host + "/nowhere", "check the path"},
		{"rtsp://" + nobody + "/", "check that the camera is powered"},
		{"ftp://camera/", `scheme "ftp" is none of rtsp`},
	} {
		if out, err := p.tryCLI("camera", "probe", tc.address); err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("probe of %s: %v\n%s", tc.address, err, out)
		}
	}
}

func TestMissingONNXRuntimeLeavesCamerasAndTheAPIAlive(t *testing.T) {
	c := truthCamera(t)
	p := launch(t, t.TempDir(), "--onnxruntime", "/nowhere/libonnxruntime.so")
	p.cli("camera", "add", "truth", c.URL())
	type camera struct {
		Status struct{ State, AnalysisReason, AnalysisMessage string }
	}
	var got camera
	p.until("the fault is reported", 60*time.Second, func() bool {
		return p.get("/v1/cameras/truth", &got) == nil && got.Status.AnalysisReason != "" && got.Status.State == "CAMERA_STATE_STREAMING" &&
			got.Status.AnalysisReason != "INFERENCE_UNAVAILABLE"
	})
	t.Logf("%s: %s", got.Status.AnalysisReason, got.Status.AnalysisMessage)
	if !strings.Contains(got.Status.AnalysisMessage, "libonnxruntime") {
		t.Errorf("%q does not name the missing library", got.Status.AnalysisMessage)
	}
}
