package fleet_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/fleet"
	"github.com/vedette/vedette/appliance/rulebook"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/appliance/sinks"
	"github.com/vedette/vedette/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

// box is an API without sidecars.
type box struct {
	t       *testing.T
	cameras *cameras.Registry
	conn    *grpc.ClientConn
}

func start(t *testing.T) *box {
	t.Helper()
	dir := t.TempDir()
	s := store.New(store.Config{Dir: dir})
	ctx, cancel := context.WithCancel(context.Background())
	storeCtx, cancelStore := context.WithCancel(context.Background())
	var serving, storing sync.WaitGroup
	storing.Go(func() {
		if err := s.Run(storeCtx); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	<-s.Ready()
	secrets, err := secret.Open(filepath.Join(dir, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(dir, "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, cameras: cameras.New(cameras.Config{Store: s, Secrets: secrets})}
	server := api.New(api.Config{
		Store: s, Cameras: b.cameras, Local: ln, System: func() *vedettev1.System { return &vedettev1.System{Version: "1.2.3"} },
		Rules: rulebook.New(rulebook.Config{Store: s, Cameras: b.cameras}), Sinks: sinks.New(sinks.Config{Store: s, Secrets: secrets}),
	})
	serving.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Errorf("API: %v", err)
		}
	})
	if b.conn, err = grpc.NewClient("unix:"+filepath.Join(dir, "api.sock"), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.conn.Close()
		cancel()
		serving.Wait()
		cancelStore()
		storing.Wait()
	})
	return b
}

// apply brings the box to a state and returns what changed, a line each.
func (b *box) apply(text string, o fleet.Options) string {
	b.t.Helper()
	s, err := fleet.Read(strings.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	plan, err := fleet.Plan(b.t.Context(), b.conn, s, o)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := fleet.Apply(b.t.Context(), plan); err != nil {
		b.t.Fatal(err)
	}
	var lines []string
	for _, c := range plan {
		line := c.Action + " " + c.Name
		for _, f := range c.Fields {
			line += fmt.Sprintf(" %s:%s>%s", f.Path, f.From, f.To)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

const house = `
cameras:
  door:
    display_name: Front door
    labels: {floor: "0"}
    source: {uri: "rtsp://10.0.0.5/main", username: root, password: hunter2, transport: TRANSPORT_TCP}
    analysis: {fps: 5}
    recording: {clip: 5s}
    zones:
      mat: {polygon: [[0.1, 0.1], [0.9, 0.1], [0.5, 0.9]], dwell: 10s, classes: [person]}
    lines:
      step: {start: [0, 0.5], end: [1, 0.5]}
  yard:
    source: {uri: "rtsp://10.0.0.6/main"}
    desired_state: DESIRED_STATE_DISABLED
sinks:
  hub: {nats: {uri: "nats://10.0.0.1:4222", stream: events}, types: [zone_entered], secret: token}
`

func TestAStateIsBroughtAboutOnce(t *testing.T) {
	b := start(t)
	want := "create cameras/door\ncreate cameras/yard\ncreate cameras/door/zones/mat\ncreate cameras/door/lines/step\ncreate sinks/hub"
	if got := b.apply(house, fleet.Options{}); got != want {
		t.Errorf("at first:\n%s\nwant:\n%s", got, want)
	}
	if got := b.apply(house, fleet.Options{Prune: true}); got != "" {
		t.Errorf("again:\n%s", got)
	}
	changed := strings.NewReplacer("fps: 5", "fps: 10", "dwell: 10s, ", "", `labels: {floor: "0"}`, "labels: {}", "10.0.0.1:", "10.0.0.2:").Replace(house)
	want = "update cameras/door analysis.fps:5>10 labels.floor:0>\nupdate cameras/door/zones/mat dwell:10s>\nupdate sinks/hub nats.uri:nats://10.0.0.1:4222>nats://10.0.0.2:4222"
	if got := b.apply(changed, fleet.Options{}); got != want {
		t.Errorf("a change:\n%s\nwant:\n%s", got, want)
	}
	if got := b.apply(changed, fleet.Options{Secrets: true}); got != "update cameras/door source.password:>***\nupdate sinks/hub secret:>***" {
		t.Errorf("passwords again:\n%s", got)
	}
	if got := b.apply(changed, fleet.Options{}); got != "" {
		t.Errorf("again:\n%s", got)
	}
	fewer := "cameras:\n  yard: {source: {uri: rtsp://10.0.0.6/main}, desired_state: DESIRED_STATE_DISABLED}\n"
	if got := b.apply(fewer, fleet.Options{}); got != "" {
		t.Errorf("without pruning:\n%s", got)
	}
	if got := b.apply(fewer, fleet.Options{Prune: true}); got != "delete cameras/door" {
		t.Errorf("with pruning (of cameras alone: the file has no list of sinks):\n%s", got)
	}
}

func TestABadStateIsToldWithItsPlaces(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":                 {"cameras: [", "no YAML"},
		"an unknown section":      {"kameras: {}", "kameras: there are cameras and sinks"},
		"an unknown field":        {"cameras: {door: {sauce: 1}}", "cameras.door: unknown field \"sauce\""},
		"a wrong type":            {"cameras: {door: {analysis: {fps: fast}}}", "cameras.door: invalid value for double"},
		"a list for a map":        {"cameras: [door]", "cameras: want names"},
		"the box's own field":     {"cameras: {door: {uid: x}}", "cameras.door.uid: is the box's own"},
		"a password file missing": {"cameras: {door: {source: {uri: x, password_file: /does/not/exist}}}", "cameras.door.source.password_file"},
		"two faults":              {"x: 1\ny: 2", "x: there are cameras and sinks, and nothing of this name\ny: there"},
	} {
		if _, err := fleet.Read(strings.NewReader(c.text)); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "\u00a0", " "), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	b := start(t)
	s, err := fleet.Read(strings.NewReader("cameras: {good: {source: {uri: rtsp://h/x}}, bad: {source: {uri: ftp://h/x}}}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.Plan(t.Context(), b.conn, s, fleet.Options{}); err == nil || !strings.Contains(err.Error(), "cameras/bad") {
		t.Errorf("a state the box would not take: %v", err)
	}
	if list, _ := b.cameras.List("", 10); len(list) != 0 {
		t.Errorf("%d cameras were made of it", len(list))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(house))
	f.Add([]byte("cameras: {door: {zones: {mat: {polygon: [[0,0],[1,1]]}}}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := fleet.Read(bytes.NewReader(text)); err == nil && !strings.HasPrefix(s.Digest, "sha256:") {
			t.Errorf("a state without a digest")
		}
	})
}

// interfered lets a test into the calls of a follower.
type interfered struct {
	*grpc.ClientConn
	before func(method string) error
	after  func(method string, req any)
}

func (c *interfered) Invoke(ctx context.Context, method string, req, resp any, o ...grpc.CallOption) error {
	if c.before != nil {
		if err := c.before(method); err != nil {
			return err
		}
	}
	err := c.ClientConn.Invoke(ctx, method, req, resp, o...)
	if c.after != nil {
		c.after(method, req)
	}
	return err
}

// hub keeps what was reported.
type hub struct{ reports []fleet.Status }

func (h *hub) take(_ context.Context, s fleet.Status) error {
	h.reports = append(h.reports, s)
	return nil
}

func (h *hub) last() fleet.Status { return h.reports[len(h.reports)-1] }

func newRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(server.Close)
	return "oci://" + strings.TrimPrefix(server.URL, "http://") + "/vedette/boxes:stable"
}

func TestABoxFollowsATag(t *testing.T) {
	b, h := start(t), &hub{}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	tag, dir := newRegistry(t), t.TempDir()
	push := func(text string, key ed25519.PrivateKey) {
		t.Helper()
		if _, err := fleet.Push(t.Context(), tag, []byte(text), key); err != nil {
			t.Fatal(err)
		}
	}
	conn := &interfered{ClientConn: b.conn}
	follower := func() *fleet.Follower {
		f, err := fleet.Follow(fleet.FollowConfig{Source: tag, Key: public, Dir: dir, Conn: conn, ID: "00ff", Box: "gate-3", Report: h.take, Settle: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := follower()
	if err := f.Look(t.Context()); err == nil || h.last().Phase != fleet.Waiting {
		t.Errorf("before there is a state: %v, %s", err, h.last())
	}
	push(house, private)
	if err := f.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := h.last()
	if first.Phase != fleet.Running || first.Applied == "" || first.Applied != first.Desired || first.Cameras != 2 || first.Version != "1.2.3" || first.Box != "gate-3" || first.ID != "00ff" {
		t.Errorf("reported %s", first)
	}

	for name, c := range map[string]struct {
		text string
		key  ed25519.PrivateKey
		want string
	}{
		"without a signature":          {"cameras: {}", nil, "signature"},
		"one the box would not take":   {"cameras: {door: {source: {uri: ftp://h/x}}}", private, "would not take it"},
		"of another's key":             {"cameras: {}", ed25519.NewKeyFromSeed(make([]byte, 32)), "signature"},
		"with a rule of no such place": {strings.Replace(house, "[0.9, 0.1]", "[9, 0.1]", 1), private, "would not take it"},
	} {
		push(c.text, c.key)
		if err := f.Look(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if s := h.last(); s.Phase != fleet.Refused || s.Applied != first.Applied || s.Desired == s.Applied || s.Cameras != 2 || !strings.Contains(s.Message, c.want) {
			t.Errorf("%s: reported %s", name, s)
		}
		if err := f.Look(t.Context()); err != nil {
			t.Errorf("%s, told once: %v", name, err)
		}
	}

	// A state that breaks half way is taken back.
	conn.before = func(method string) error {
		if strings.HasSuffix(method, "DeleteSink") {
			return errors.New("injected")
		}
		return nil
	}
	push("cameras: {door: {source: {uri: rtsp://10.0.0.7/x}}}\nsinks: {}", private)
	if err := f.Look(t.Context()); err == nil || h.last().Phase != fleet.RolledBack {
		t.Errorf("a state that breaks: %v, %s", err, h.last())
	}
	conn.before = nil
	if got := b.apply(house, fleet.Options{Prune: true}); got != "" {
		t.Errorf("after going back there was left to do:\n%s", got)
	}

	// A state under which a camera is lost is taken back, also by a follower that began anew.
	f = follower()
	state := func(s vedettev1.CameraState) { b.cameras.SetStream("door", &vedettev1.CameraStatus{State: s}) }
	b.cameras.SetOnline()
	state(vedettev1.CameraState_CAMERA_STATE_STREAMING)
	conn.after = func(method string, req any) {
		if r, ok := req.(*vedettev1.UpdateCameraRequest); ok && !r.GetValidateOnly() {
			state(vedettev1.CameraState_CAMERA_STATE_BACKOFF)
		}
	}
	push(strings.Replace(house, "10.0.0.5", "10.0.0.99", 1), private)
	if err := f.Look(t.Context()); err == nil || h.last().Phase != fleet.RolledBack || !strings.Contains(h.last().Message, "cameras/door") {
		t.Errorf("a state that loses a camera: %v, %s", err, h.last())
	}
	conn.after = nil
	if c, err := b.cameras.Get("cameras/door"); err != nil || c.GetSource().GetUri() != "rtsp://10.0.0.5/main" || !c.GetSource().GetPasswordSet() {
		t.Errorf("the camera is %v, %v", c.GetSource(), err)
	}

	push("cameras: {}", private)
	if err := f.Look(t.Context()); err != nil || h.last().Phase != fleet.Running || h.last().Cameras != 0 {
		t.Errorf("the next good state: %v, %s", err, h.last())
	}
}

func TestABoxFollowsAFile(t *testing.T) {
	b, h := start(t), &hub{}
	path := filepath.Join(t.TempDir(), "box.yaml")
	f, err := fleet.Follow(fleet.FollowConfig{Source: path, Dir: t.TempDir(), Conn: b.conn, Box: "one", Report: h.take})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Look(t.Context()); err == nil {
		t.Error("a file that is not there was followed")
	}
	if err := os.WriteFile(path, []byte(house), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Look(t.Context()); err != nil || h.last().Phase != fleet.Running || h.last().Cameras != 2 {
		t.Errorf("%v, %s", err, h.last())
	}
	n := len(h.reports)
	if err := f.Look(t.Context()); err != nil || len(h.reports) != n+1 { // a heartbeat
		t.Errorf("%v, %d reports", err, len(h.reports)-n)
	}
}
