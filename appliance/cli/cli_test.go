package cli_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/cli"
	"github.com/vedette/vedette/appliance/rulebook"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/appliance/sinks"
	"github.com/vedette/vedette/store"
)

// run types a command and returns what it printed.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Run(t.Context(), cli.Env{Args: args, Stdin: strings.NewReader("c4nary from standard input\n"), Stdout: &out, Stderr: &out, Version: "1.2.3", Executable: filepath.Join(t.TempDir(), "bin", "vedette")})
	return out.String(), err
}

// serve answers the command line in a data directory, without sidecars, and returns the directory.
func serve(t *testing.T) string {
	t.Helper()
	return serveIn(t, t.TempDir())
}

func serveIn(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := store.New(store.Config{Dir: dir, Retention: store.Retention{MinFree: -1}})
	ctx, cancel := context.WithCancel(context.Background())
	storeCtx, cancelStore := context.WithCancel(context.Background())
	var serving, storing sync.WaitGroup
	storing.Go(func() {
		if err := s.Run(storeCtx); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	<-s.Ready()
	box, err := secret.Open(filepath.Join(dir, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(dir, "run", "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	registry := cameras.New(cameras.Config{Store: s, Secrets: box})
	server := api.New(api.Config{
		Store: s, Cameras: registry, Local: ln, System: func() *vedettev1.System { return &vedettev1.System{Version: "1.2.3"} },
		Rules: rulebook.New(rulebook.Config{Store: s, Cameras: registry}), Sinks: sinks.New(sinks.Config{Store: s, Secrets: box}),
	})
	serving.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Errorf("API: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		cancelStore()
		storing.Wait()
	})
	return dir
}

func TestCamerasAreManagedFromTheCommandLine(t *testing.T) {
	data := serve(t)
	for _, step := range []struct {
		args []string
		want []string
		not  string
	}{
		{[]string{"camera", "add", "door", "rtsp://viewer:c4nary%40x@camera.example/door", "--fps", "5"}, []string{"door", "rtsp://camera.example/door"}, "c4nary"},
		{[]string{"camera", "list"}, []string{"CAMERA", "door", "OFFLINE"}, "c4nary"},
		{[]string{"camera", "get", "door", "-o", "json"}, []string{`"username": "viewer"`, `"passwordSet": true`, `"fps": 5`}, "c4nary"},
		{[]string{"camera", "update", "cameras/door", "--name", "Front", "--address", "rtsp://other.example/x"}, []string{"rtsp://other.example/x"}, "c4nary"},
		{[]string{"camera", "get", "door", "-o", "json"}, []string{`"displayName": "Front"`, `"username": "viewer"`}, "c4nary"},
		{[]string{"camera", "disable", "door"}, []string{"DISABLED"}, "OFFLINE"},
		{[]string{"camera", "enable", "door"}, []string{"OFFLINE"}, "DISABLED"},
		{[]string{"camera", "remove", "door"}, []string{"removed door"}, ""},
		{[]string{"camera", "add", "odd", " rtsp://viewer:c4n%ary@1 :x@camera.example:8554/a?b=c "}, []string{"rtsp://camera.example:8554/a?b=c"}, "c4n"},
		{[]string{"camera", "remove", "odd"}, []string{"removed odd"}, ""},
		{[]string{"camera", "add", "piped", "rtsp://camera.example/a", "--username", "viewer", "--password-file", "-"}, []string{"piped"}, "c4nary"},
		{[]string{"camera", "get", "piped", "-o", "json"}, []string{`"passwordSet": true`}, "c4nary"},
		{[]string{"camera", "remove", "piped"}, []string{"removed piped"}, ""},
		{[]string{"camera", "list", "-o", "json"}, nil, "door"},
		{[]string{"track", "list"}, []string{"TRACK"}, ""},
	} {
		out, err := run(t, append(step.args, "--data-dir", data)...)
		if err != nil {
			t.Fatalf("vedette %s: %v", strings.Join(step.args, " "), err)
		}
		for _, want := range step.want {
			if !strings.Contains(out, want) {
				t.Errorf("vedette %s does not say %q:\n%s", strings.Join(step.args, " "), want, out)
			}
		}
		if step.not != "" && strings.Contains(out, step.not) {
			t.Errorf("vedette %s says %q:\n%s", strings.Join(step.args, " "), step.not, out)
		}
	}
}

func TestFaultsAreForPeople(t *testing.T) {
	data := serve(t)
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"nobody runs", []string{"camera", "list", "--data-dir", t.TempDir()}, "start one (vedette run)"},
		{"unknown camera", []string{"camera", "get", "none", "--data-dir", data}, `camera "none": not found`},
		{"bad id", []string{"camera", "add", "Door", "rtsp://camera/", "--data-dir", data}, "camera_id"},
		{"bad address", []string{"camera", "add", "door", "ftp://camera/", "--data-dir", data}, `scheme "ftp"`},
		{"password with a slash", []string{"camera", "add", "door", "rtsp://viewer:c4n@ary/1@camera/", "--data-dir", data}, "--password-file"},
		{"password with a slash and a number before it", []string{"camera", "add", "door", "rtsp://viewer:12/34@camera/", "--data-dir", data}, "%2F"},
		{"no scheme", []string{"camera", "add", "door", "camera.example:554/x", "--data-dir", data}, "write it whole"},
		{"password file that is not there", []string{"camera", "add", "door", "rtsp://camera/", "--password-file", "/nowhere/x", "--data-dir", data}, "--password-file: open /nowhere/x"},
		{"nobody at an address", []string{"camera", "list", "--server", "127.0.0.1:1"}, "the appliance cannot be reached"},
		{"watch of no camera", []string{"track", "watch", "--camera", "none", "--data-dir", data}, `camera "none": not found`},
		{"bad filter", []string{"track", "list", "--filter", "x = 1", "--data-dir", data}, `"x" is no field`},
		{"nothing to change", []string{"camera", "update", "door", "--data-dir", data}, "not found"},
		{"unknown command", []string{"dance"}, "dance"},
		{"unknown transport", []string{"camera", "add", "door", "rtsp://camera/", "--transport", "pigeon", "--data-dir", data}, "tcp"},
	} {
		out, err := run(t, tc.args...)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v does not say %q (%s)", tc.name, err, tc.want, out)
		}
		if err != nil && strings.Contains(err.Error(), "rpc error") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestSettingsComeFromFileEnvironmentAndFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vedette.yaml")
	if err := os.WriteFile(file, []byte("data_dir: "+filepath.Join(t.TempDir(), "from-file")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "camera", "list", "--config", file); err == nil || !strings.Contains(err.Error(), "from-file") {
		t.Errorf("from the file: %v", err)
	}
	if _, err := run(t, "camera", "list", "--config", file, "--data-dir", "/from/flag"); err == nil || !strings.Contains(err.Error(), "/from/flag") {
		t.Errorf("a flag before the file: %v", err)
	}
	t.Setenv("VEDETTE_DATA_DIR", "/from/environment")
	if _, err := run(t, "camera", "list"); err == nil || !strings.Contains(err.Error(), "/from/environment") {
		t.Errorf("from the environment: %v", err)
	}
}

func TestVersionIsPrinted(t *testing.T) {
	if out, err := run(t, "version"); err != nil || out != "vedette 1.2.3\n" {
		t.Errorf("%q %v", out, err)
	}
}
