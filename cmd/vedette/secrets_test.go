package main_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/internal/rtsptest"
)

// TestNoSecretIsShownAnywhere gives the three processes a secret of every kind, lets them use it, and looks for it in
// everything they show: logs, answers, metrics, profiles, the support bundle, the command lines and environments of the
// processes, and every file, the database and a backup of it among them.
func TestNoSecretIsShownAnywhere(t *testing.T) {
	secrets := map[string]string{
		"the camera's password": "k4narienvogel-kamera", "the main stream's password": "k4narienvogel-haupt",
		"the sink's password": "k4narienvogel-senke", "the user's password": "k4narienvogel-anna",
	}
	data := t.TempDir()
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 50, GOP: 10})
	camera := rtsptest.Start(t, rtsptest.Config{Clip: clip, Username: "admin", Password: secrets["the camera's password"]})
	p := launch(t, data, "--onnxruntime", "/nowhere/libonnxruntime.so", "--log-level", "debug")
	host := strings.TrimPrefix(camera.Address(), "rtsp://")
	p.cli("camera", "add", "door", "rtsp://admin:"+secrets["the camera's password"]+"@"+host[strings.LastIndexByte(host, '@')+1:])
	var status struct{ Status struct{ State string } }
	p.until("the camera streams by its password", time.Minute, func() bool {
		return p.get("/v1/cameras/door", &status) == nil && status.Status.State == "CAMERA_STATE_STREAMING"
	})
	call := func(method string, request any) string {
		t.Helper()
		b, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		return p.cli("call", method, string(b))
	}
	type object = map[string]any
	shown := map[string]string{}
	shown["a camera that is wrong"], _ = p.tryCLI("camera", "add", "wrong", "rtsp://admin:"+secrets["the main stream's password"]+"@127.0.0.1:1/x", "--pipeline", "no such pipeline!")
	shown["a camera that is not there"] = p.cli("camera", "add", "away", "rtsp://admin:"+secrets["the main stream's password"]+"@127.0.0.1:1/x")
	shown["the sink"] = call("CreateSink", object{"sink_id": "hall", "sink": object{"mqtt": object{"uri": "mqtt://127.0.0.1:1", "username": "box"}, "secret": secrets["the sink's password"]}})
	shown["the user"] = call("CreateUser", object{"user_id": "anna", "user": object{"role": "viewer", "password": secrets["the user's password"]}})
	in := call("LogIn", object{"user": "anna", "password": secrets["the user's password"]})
	m := regexp.MustCompile(`"secret": *"([^"]+)"`).FindStringSubmatch(in)
	if m == nil {
		t.Fatalf("no session in %s", in)
	}
	secrets["the session"] = m[1]
	made := p.cli("token", "create", "wall", "--role", "viewer")
	if m = regexp.MustCompile(`vedette_[A-Za-z0-9_-]{16,}`).FindStringSubmatch(made); m == nil {
		t.Fatalf("no token in %s", made)
	}
	secrets["the token"] = m[0]
	p.until("the camera that is not there has failed", time.Minute, func() bool {
		return p.get("/v1/cameras/away", &status) == nil && (status.Status.State == "CAMERA_STATE_BACKOFF" || status.Status.State == "CAMERA_STATE_QUARANTINED")
	})
	shown["a backup"] = p.cli("backup")
	for _, path := range []string{
		"/v1/cameras", "/v1/cameras/door", "/v1/cameras/away", "/v1/sinks", "/v1/users", "/v1/auditEntries", "/v1/events", "/v1/models", "/v1/system", "/v1/backups",
		"/v1/session", "/v1/system/capacity", "/metrics", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2",
	} {
		text, err := p.text(path)
		if err != nil {
			t.Error(err)
		}
		shown[path] = string(text)
	}
	for _, args := range [][]string{{"token", "list"}, {"user", "list"}, {"sink", "list"}, {"camera", "get", "door", "-o", "json"}, {"doctor"}, {"doctor", "camera", "away"}} {
		shown["vedette "+strings.Join(args, " ")], _ = p.tryCLI(args...)
	}
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	p.cli("support-bundle", bundle)
	archive, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	shown["the support bundle"] = unzipped(t, archive)
	if archive, err = p.text("/v1/system/support-bundle.tar.gz"); err != nil {
		t.Fatal(err)
	}
	shown["the support bundle by the API"] = unzipped(t, archive)
	for _, pid := range []int{p.cmd.Process.Pid, p.child("vedette-ingest"), p.child("vedette-infer")} {
		for _, file := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil {
				t.Fatal(err)
			}
			shown[fmt.Sprintf("%s of process %d", file, pid)] = string(b)
		}
	}
	if err := p.interrupt(); err != nil {
		t.Errorf("vedette ended with %v", err)
	}
	shown["the logs"] = p.output()
	files := 0
	err = filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		shown[path] = string(b)
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%d files were looked at: %v", files, err)
	}
	for where, text := range shown {
		for what, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in %s", what, where)
			}
		}
	}
	t.Logf("%d secrets were looked for in %d places, %d of them files", len(secrets), len(shown), files)
}

func unzipped(t *testing.T, b []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
