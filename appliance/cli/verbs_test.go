package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// typed runs a command that must work and returns what it printed.
func typed(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(t, args...)
	if err != nil {
		t.Fatalf("vedette %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func TestEveryMethodOfTheAPICanBeCalled(t *testing.T) {
	data := serve(t)
	list := typed(t, "call")
	methods := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("vedette.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				name := string(s.Name()) + "." + string(s.Methods().Get(j).Name())
				if methods++; !strings.Contains(list, name) {
					t.Errorf("%s is not listed", name)
				}
			}
		}
		return true
	})
	if methods < 50 {
		t.Errorf("%d methods", methods)
	}
	typed(t, "call", "CreateCamera", `{"camera_id": "door", "camera": {"source": {"uri": "rtsp://10.0.0.9/x"}}}`, "--data-dir", data)
	if out := typed(t, "call", "vedette.v1.CameraService/GetCamera", `{"name": "cameras/door"}`, "--data-dir", data); !strings.Contains(out, "rtsp://10.0.0.9/x") {
		t.Errorf("GetCamera says %s", out)
	}
	file := filepath.Join(t.TempDir(), "request.json")
	if err := os.WriteFile(file, []byte(`{"parent": "cameras/door"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	typed(t, "call", "ListZones", "@"+file, "--data-dir", data)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"call", "Nothing"}, "no method"},
		{[]string{"call", "GetCamera", `{"nme": 1}`}, "no GetCameraRequest"},
		{[]string{"call", "GetCamera", `{"name": "cameras/hall"}`}, "not found"},
		{[]string{"call", "GetEventClip", `{"name": "cameras/door/events/7"}`}, "not found"},
	} {
		if out, err := run(t, append(c.args, "--data-dir", data)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q (%s)", c.args, err, c.want, out)
		}
	}
}

func TestSinksRulesAndAuditAreManagedFromTheCommandLine(t *testing.T) {
	data := serve(t)
	at := func(args ...string) []string { return append(args, "--data-dir", data) }
	typed(t, at("camera", "add", "door", "rtsp://10.0.0.9/x")...)
	typed(t, at("camera", "update", "door", "--clip", "5s", "--no-pictures")...)
	if out := typed(t, at("camera", "get", "door", "-o", "json")...); !strings.Contains(out, `"clip": "5s"`) || !strings.Contains(out, `"noPictures": true`) {
		t.Errorf("the camera is %s", out)
	}
	typed(t, at("rule", "zone", "door", "mat", "0.1,0.1", "0.9,0.1", "0.5,0.9")...)
	if out := typed(t, at("rule", "test", "door", "--zone", "0,0 1,0 1,1", "--line", "0,0.5 1,0.5")...); !strings.Contains(out, "0 events in 0 frames") {
		t.Errorf("rule test says %s", out)
	}
	if out := typed(t, at("rule", "count", "door")...); !strings.Contains(out, "DIRECTION") {
		t.Errorf("rule count says %s", out)
	}
	typed(t, at("sink", "add", "hub", "nats://10.0.0.1:4222")...)
	typed(t, at("sink", "update", "hub", "--address", "nats://10.0.0.2:4222", "--disabled", "--type", "zone_entered")...)
	if out := typed(t, at("sink", "get", "hub", "-o", "json")...); !strings.Contains(out, "10.0.0.2") || !strings.Contains(out, `"disabled": true`) || !strings.Contains(out, "zone_entered") {
		t.Errorf("the sink is %s", out)
	}
	typed(t, at("sink", "update", "hub", "--no-disabled")...)
	if _, err := run(t, at("sink", "update", "hub")...); err == nil || !strings.Contains(err.Error(), "nothing would change") {
		t.Errorf("an empty update: %v", err)
	}
	if out := typed(t, at("sink", "refused", "hub")...); !strings.Contains(out, "REASON") {
		t.Errorf("sink refused says %s", out)
	}
	if out := typed(t, at("sink", "redeliver", "hub", "--all")...) + typed(t, at("sink", "forget", "hub", "--all")...); !strings.Contains(out, "sent again: 0\ngiven up: 0") {
		t.Errorf("sink redeliver and forget say %s", out)
	}
	if _, err := run(t, at("sink", "redeliver", "hub", "7")...); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("an event that was not refused: %v", err)
	}
	out := typed(t, at("audit", "--filter", `actor = "local" AND resource = "sinks/hub"`)...)
	if strings.Count(out, "UpdateSink") != 2 || strings.Count(out, "CreateSink") != 1 {
		t.Errorf("audit says %s", out)
	}
	if out := typed(t, at("system")...); !strings.Contains(out, "kept") {
		t.Errorf("system says %s", out)
	}
	for _, list := range [][]string{{"event", "list"}, {"detection", "list"}, {"track", "list"}} {
		typed(t, at(list...)...)
		typed(t, at(append(list, "-o", "json")...)...)
	}
}

func TestBackupsAreRestoredFromTheCommandLine(t *testing.T) {
	data := serve(t)
	typed(t, "camera", "add", "door", "rtsp://10.0.0.9/x", "--data-dir", data)
	to := filepath.Join(t.TempDir(), "elsewhere")
	typed(t, "backup", "create", "one", "--to", to, "--data-dir", data)
	typed(t, "backup", "two", "--data-dir", data)
	if out := typed(t, "backup", "list", "--data-dir", data); strings.Contains(out, "one") || !strings.Contains(out, "two") {
		t.Errorf("backup list says %s", out)
	}
	if out := typed(t, "backup", "verify", to); !strings.Contains(out, "whole") {
		t.Errorf("backup verify says %s", out)
	}
	if _, err := run(t, "backup", "create", "three", "--to", to, "--data-dir", data); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("onto another backup: %v", err)
	}
	into := filepath.Join(t.TempDir(), "new")
	if out := typed(t, "restore", to, "--data-dir", into); !strings.Contains(out, "restored") {
		t.Errorf("restore says %s", out)
	}
	if _, err := run(t, "restore", to, "--data-dir", into); err == nil {
		t.Error("a backup was restored over a database")
	}
	catalogue, err := os.OpenFile(filepath.Join(to, "vedette.db"), os.O_WRONLY, 0)
	if err == nil {
		_, err = catalogue.WriteAt([]byte("damage"), 5000)
		_ = catalogue.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "backup", "verify", to); err == nil {
		t.Error("a damaged backup was found whole")
	}
}

func TestHistoryGoesInAndOutByTheCommandLine(t *testing.T) {
	fresh := t.TempDir()
	in := filepath.Join(t.TempDir(), "walk.txt")
	if err := os.WriteFile(in, []byte("1,1,10,20,30,40,0.9,-1,-1,-1\n2,1,12,20,30,40,0.8,-1,-1,-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"import", "detections", in, "--format", "mot", "--camera", "door", "--mot-size", "100x100", "--mot-start", "2026-05-01T00:00:00Z"}
	if out := typed(t, append(args, "--data-dir", fresh)...); !strings.Contains(out, "imported 2 detections") {
		t.Errorf("import says %s", out)
	}
	data := serveIn(t, fresh)
	if _, err := run(t, append(args, "--data-dir", data)...); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("import into a running appliance: %v", err)
	}
	out := typed(t, "export", "detections", "--format", "mot", "--camera", "door", "--mot-size", "100x100", "--data-dir", data)
	if !regexp.MustCompile(`(?m)^2,1,12(\.\d+)?,20`).MatchString(out) {
		t.Errorf("exported %s", out)
	}
	if out := typed(t, "export", "tracks", "--format", "csv", "--data-dir", data); strings.Count(out, "door") != 1 {
		t.Errorf("exported %s", out)
	}
	if out := typed(t, "export", "tracks", "--class", "car", "--data-dir", data); strings.Contains(out, "door") {
		t.Errorf("exported %s", out)
	}
}

func TestShellsComplete(t *testing.T) {
	data := serve(t)
	typed(t, "camera", "add", "door", "rtsp://10.0.0.9/x", "--data-dir", data)
	for _, c := range []struct {
		words string // the last is being typed
		want  string
	}{
		{"ca", "call camera"},
		{"camera up", "update"},
		{"camera get ", "door"},
		{"--data-dir " + data + " camera get do", "door"},
		{"sink add x mqtt://h --home", "--home-assistant"},
		{"track list -o ", "json table"},
		{"completion ", "bash fish zsh"},
		{"call GetSys", "GetSystem"},
		{"export ", "detections tracks"},
		{"nothing of this kind", ""},
	} {
		args := append([]string{"--data-dir", data, "complete", "--"}, strings.Split(c.words, " ")...)
		if out := typed(t, args...); strings.Join(strings.Fields(out), " ") != c.want {
			t.Errorf("%q: %q, want %q", c.words, strings.Fields(out), c.want)
		}
	}
	for shell, want := range map[string]string{"bash": "complete -o default", "zsh": "#compdef vedette", "fish": "complete -c vedette"} {
		if out := typed(t, "completion", shell); !strings.Contains(out, want) {
			t.Errorf("%s: %s", shell, out)
		}
	}
}
