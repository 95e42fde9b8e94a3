package cameras_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// register opens a register over the store in dir; close ends the store.
func register(t *testing.T, dir string) (r *cameras.Registry, closeStore func()) {
	t.Helper()
	s := store.New(store.Config{Dir: dir})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	<-s.Ready()
	closeStore = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(closeStore)
	box, err := secret.Open(filepath.Join(dir, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	r = cameras.New(cameras.Config{Store: s, Secrets: box})
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r, closeStore
}

func door() *vedettev1.Camera {
	return &vedettev1.Camera{
		DisplayName: "Front door", Labels: map[string]string{"site": "home"},
		Source:   &vedettev1.Source{Uri: "rtsp://camera.example/door", Username: "viewer", Password: canary, Transport: vedettev1.Transport_TRANSPORT_TCP},
		Analysis: &vedettev1.Analysis{Fps: 5},
	}
}

const canary = "c4nary-pa55"

func create(t *testing.T, r *cameras.Registry) *vedettev1.Camera {
	t.Helper()
	c, err := r.Create(t.Context(), "door", door(), false)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCreatedCameraIsThereAfterARestart(t *testing.T) {
	dir := t.TempDir()
	r, closeStore := register(t, dir)
	created := create(t, r)
	if created.GetName() != "cameras/door" || created.GetUid() == "" || created.GetEtag() == "" || created.GetSource().GetPassword() != "" || !created.GetSource().GetPasswordSet() {
		t.Errorf("created %v", created)
	}
	closeStore()
	again, _ := register(t, dir)
	read, err := again.Get("cameras/door")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(created, read, protocmp.Transform()); diff != "" {
		t.Errorf("after the restart (-before +after):\n%s", diff)
	}
	if list, _, _ := again.Desired(); len(list) != 1 || list[0].Password != canary || !list[0].Enabled {
		t.Errorf("desired after the restart: %+v", list)
	}
}

func TestPasswordIsNeitherShownNorStoredInClear(t *testing.T) {
	dir := t.TempDir()
	r, closeStore := register(t, dir)
	create(t, r)
	w := r.Watch()
	defer w.Close()
	changes, err := w.Next(t.Context())
	if err != nil || len(changes) != 1 {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	list, _ := r.List("", 10)
	for _, m := range []proto.Message{changes[0], list[0]} {
		if b, err := proto.Marshal(m); err != nil || bytes.Contains(b, []byte(canary)) {
			t.Errorf("the password is in %v", m)
		}
	}
	closeStore()
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(canary)) {
			t.Errorf("the password is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUpdateChangesWhatTheMaskNames(t *testing.T) {
	for _, tc := range []struct {
		name  string
		from  *vedettev1.Camera
		paths []string
		want  func(*vedettev1.Camera)
		pass  string
	}{
		{
			"one field of the source keeps the others and the password", &vedettev1.Camera{Source: &vedettev1.Source{Uri: "rtsp://other.example/door"}},
			[]string{"source.uri"},
			func(c *vedettev1.Camera) { c.Source.Uri = "rtsp://other.example/door" }, canary,
		},
		{
			"the whole source without a password keeps it", &vedettev1.Camera{Source: &vedettev1.Source{Uri: "rtsp://other.example/door", Username: "viewer"}},
			[]string{"source"},
			func(c *vedettev1.Camera) { c.Source.Uri, c.Source.Transport = "rtsp://other.example/door", 0 }, canary,
		},
		{
			"the whole source without a user loses the password", &vedettev1.Camera{Source: &vedettev1.Source{Uri: "rtsp://other.example/door"}},
			[]string{"source"},
			func(c *vedettev1.Camera) {
				c.Source = &vedettev1.Source{Uri: "rtsp://other.example/door"}
			}, "",
		},
		{"a new password replaces the old", &vedettev1.Camera{Source: &vedettev1.Source{Password: "new"}}, []string{"source.password"}, func(*vedettev1.Camera) {}, "new"},
		{
			"an empty password removes it", &vedettev1.Camera{Source: &vedettev1.Source{}},
			[]string{"source.password"},
			func(c *vedettev1.Camera) { c.Source.PasswordSet = false }, "",
		},
		{"no mask means what is set", &vedettev1.Camera{DisplayName: "Back door"}, nil, func(c *vedettev1.Camera) { c.DisplayName = "Back door" }, canary},
		{"a mask with an empty value clears", &vedettev1.Camera{}, []string{"labels", "display_name"}, func(c *vedettev1.Camera) { c.Labels, c.DisplayName = nil, "" }, canary},
		{
			"analysis by its parts", &vedettev1.Camera{Analysis: &vedettev1.Analysis{Paused: true, Fps: 9}},
			[]string{"analysis.paused"},
			func(c *vedettev1.Camera) { c.Analysis.Paused = true }, canary,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := register(t, t.TempDir())
			want := create(t, r)
			tc.from.Name = "cameras/door"
			got, err := r.Update(t.Context(), tc.from, tc.paths, false)
			if err != nil {
				t.Fatal(err)
			}
			if got.GetEtag() == want.GetEtag() {
				t.Error("the etag is still the same")
			}
			tc.want(want)
			opts := []cmp.Option{protocmp.Transform(), protocmp.IgnoreFields(&vedettev1.Camera{}, "etag", "update_time")}
			if diff := cmp.Diff(want, got, opts...); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if list, _, _ := r.Desired(); list[0].Password != tc.pass {
				t.Errorf("password %q, want %q", list[0].Password, tc.pass)
			}
		})
	}
}

func TestFaultsAreTyped(t *testing.T) {
	r, _ := register(t, t.TempDir())
	c := create(t, r)
	var conflict *store.ConflictError
	if _, err := r.Create(t.Context(), "door", door(), false); !errors.Is(err, store.ErrExists) {
		t.Errorf("a second camera of the name: %v", err)
	}
	if _, err := r.Get("cameras/none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("reading an unknown camera: %v", err)
	}
	if _, err := r.Update(t.Context(), &vedettev1.Camera{Name: "cameras/none", DisplayName: "x"}, nil, false); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("changing an unknown camera: %v", err)
	}
	if _, err := r.Update(t.Context(), &vedettev1.Camera{Name: c.GetName(), Etag: "old", DisplayName: "x"}, nil, false); !errors.As(err, &conflict) {
		t.Errorf("changing with an old etag: %v", err)
	}
	if err := r.Delete(t.Context(), c.GetName(), "old", false); !errors.As(err, &conflict) {
		t.Errorf("removing with an old etag: %v", err)
	}
}

func TestEveryFaultOfARegistrationIsReported(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tc := range []struct {
		name, id string
		change   func(*vedettev1.Camera)
		fields   []string
	}{
		{"id with capitals", "Door", func(*vedettev1.Camera) {}, []string{"camera_id"}},
		{"id that ends in a dash", "door-", func(*vedettev1.Camera) {}, []string{"camera_id"}},
		{"no address", "door", func(c *vedettev1.Camera) { c.Source.Uri = "" }, []string{"camera.source.uri"}},
		{"no source at all", "door", func(c *vedettev1.Camera) { c.Source = nil }, []string{"camera.source.uri"}},
		{"misspelt scheme", "door", func(c *vedettev1.Camera) { c.Source.Uri = "rstp://camera" }, []string{"camera.source.uri"}},
		{"credentials in the address", "door", func(c *vedettev1.Camera) { c.Source.Uri = "rtsp://a:b@camera/" }, []string{"camera.source.uri"}},
		{"an @ that may end a password", "door", func(c *vedettev1.Camera) { c.Source.Uri = "rtsp://a:1/" + canary + "@camera/" }, []string{"camera.source.uri"}},
		{"address that cannot be read", "door", func(c *vedettev1.Camera) { c.Source.Uri = "rtsp://camera/" + canary + "%zz" }, []string{"camera.source.uri"}},
		{"port out of range", "door", func(c *vedettev1.Camera) { c.Source.Uri = "rtsp://camera:99999/" }, []string{"camera.source.uri"}},
		{"no host", "door", func(c *vedettev1.Camera) { c.Source.Uri = "rtsp:///path" }, []string{"camera.source.uri"}},
		{"relative file", "door", func(c *vedettev1.Camera) { c.Source.Uri = "file://clip.mp4" }, []string{"camera.source.uri"}},
		{"password without a user", "door", func(c *vedettev1.Camera) { c.Source.Username = "" }, []string{"camera.source.username"}},
		{"negative rate", "door", func(c *vedettev1.Camera) { c.Analysis.Fps = -1 }, []string{"camera.analysis.fps"}},
		{"model name with a slash", "door", func(c *vedettev1.Camera) { c.Analysis.Pipeline = "../x" }, []string{"camera.analysis.pipeline"}},
		{"staleness of an hour", "door", func(c *vedettev1.Camera) { c.Analysis.StalenessBudget = durationpb.New(1 << 42) }, []string{"camera.analysis.staleness_budget"}},
		{"unknown transport", "door", func(c *vedettev1.Camera) { c.Source.Transport = 9 }, []string{"camera.source.transport"}},
		{"unknown state", "door", func(c *vedettev1.Camera) { c.DesiredState = 9 }, []string{"camera.desired_state"}},
		{"main stream over HTTP", "door", func(c *vedettev1.Camera) { c.Source.MainUri = "http://camera/" }, []string{"camera.source.main_uri"}},
		{"a main stream to keep that is none", "door", func(c *vedettev1.Camera) { c.Source.KeepMain = true }, []string{"camera.source.keep_main"}},
		{"a certificate that is none", "door", func(c *vedettev1.Camera) { c.Source.Tls = &vedettev1.CameraTls{CaPem: "hello"} }, []string{"camera.source.tls.ca_pem"}},
		{"half a fingerprint", "door", func(c *vedettev1.Camera) { c.Source.Tls = &vedettev1.CameraTls{CertificateSha256: "ab:cd"} }, []string{"camera.source.tls.certificate_sha256"}},
		{"a gigabyte of pre-roll", "door", func(c *vedettev1.Camera) { c.Source.PreRollBytes = 1 << 30 }, []string{"camera.source.pre_roll_bytes"}},
		{"a mask without area, and one outside", "door", func(c *vedettev1.Camera) {
			c.PrivacyMasks = []*vedettev1.PrivacyMask{{Points: make([]*vedettev1.PrivacyPoint, 2)}, {Points: []*vedettev1.PrivacyPoint{{X: 0}, {X: 1}, {X: 2, Y: math.NaN()}}}}
		}, []string{"camera.privacy_masks[0]", "camera.privacy_masks[1].points[2]"}},
		{"motion masked by no area", "door", func(c *vedettev1.Camera) {
			c.Analysis = &vedettev1.Analysis{MotionGate: &vedettev1.MotionGate{Ignore: []*vedettev1.PrivacyMask{{Points: make([]*vedettev1.PrivacyPoint, 2)}}}}
		}, []string{"camera.analysis.motion_gate.ignore[0]"}},
		{"several at once", "", func(c *vedettev1.Camera) {
			c.Source.Uri, c.DisplayName, c.Labels, c.Analysis.Fps = "ftp://camera", long, map[string]string{"": "x"}, 1e9
		}, []string{"camera.display_name", "camera.labels", "camera.source.uri", "camera.analysis.fps"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := register(t, t.TempDir())
			c := door()
			tc.change(c)
			_, err := r.Create(t.Context(), tc.id, c, false)
			var bad *cameras.InvalidError
			if !errors.As(err, &bad) {
				t.Fatalf("error %v", err)
			}
			var fields []string
			for _, v := range bad.Violations {
				fields = append(fields, v.Field)
			}
			if diff := cmp.Diff(tc.fields, fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

func TestValidateOnlyChangesNothing(t *testing.T) {
	r, _ := register(t, t.TempDir())
	if _, err := r.Create(t.Context(), "door", door(), true); err != nil {
		t.Fatal(err)
	}
	if list, _ := r.List("", 10); len(list) != 0 {
		t.Errorf("%d cameras after a check", len(list))
	}
	c := create(t, r)
	if got, err := r.Update(t.Context(), &vedettev1.Camera{Name: c.GetName(), DisplayName: "x"}, nil, true); err != nil || got.GetDisplayName() != "x" {
		t.Errorf("checked update: %v %v", got, err)
	}
	if err := r.Delete(t.Context(), c.GetName(), "", true); err != nil {
		t.Error(err)
	}
	now, err := r.Get(c.GetName())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, now, protocmp.Transform()); diff != "" {
		t.Errorf("checks changed the camera:\n%s", diff)
	}
}

func TestWatchShowsTheSnapshotThenChangesAndMeltsWhatWasNotReadYet(t *testing.T) {
	r, _ := register(t, t.TempDir())
	create(t, r)
	w := r.Watch()
	defer w.Close()
	read := func() []*vedettev1.CameraChange {
		t.Helper()
		c, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := read(); len(c) != 1 || c[0].GetKind() != vedettev1.ChangeKind_CHANGE_KIND_SNAPSHOT {
		t.Fatalf("first %v", c)
	}
	r.SetStream("door", &vedettev1.CameraStatus{State: vedettev1.CameraState_CAMERA_STATE_CONNECTING})
	r.SetStream("door", &vedettev1.CameraStatus{State: vedettev1.CameraState_CAMERA_STATE_STREAMING})
	r.SetAnalysis("door", cameras.Analysis{Sequence: 7, Drops: map[string]int64{"busy": 2}})
	c := read()
	if s := c[0].GetCamera().GetStatus(); len(c) != 1 || c[0].GetKind() != vedettev1.ChangeKind_CHANGE_KIND_MODIFIED ||
		s.GetState() != vedettev1.CameraState_CAMERA_STATE_STREAMING || s.GetSequence() != 7 || s.GetDrops()["busy"] != 2 {
		t.Errorf("then %v", c)
	}
	if err := r.Delete(t.Context(), "cameras/door", "", false); err != nil {
		t.Fatal(err)
	}
	if c := read(); len(c) != 1 || c[0].GetKind() != vedettev1.ChangeKind_CHANGE_KIND_REMOVED {
		t.Errorf("last %v", c)
	}
	r.SetStream("door", &vedettev1.CameraStatus{}) // too late: nobody is there
	if list, _ := r.List("", 10); len(list) != 0 {
		t.Errorf("a late status brought %v back", list)
	}
}

func TestStatusSaysWhyNothingIsKnown(t *testing.T) {
	r, _ := register(t, t.TempDir())
	c := create(t, r)
	if s := c.GetStatus(); s.GetState() != vedettev1.CameraState_CAMERA_STATE_OFFLINE || s.GetReason() != "INGEST_UNAVAILABLE" {
		t.Errorf("before ingest is there: %v", s)
	}
	r.SetStream("door", &vedettev1.CameraStatus{State: vedettev1.CameraState_CAMERA_STATE_STREAMING})
	r.ClearStreams()
	if c, _ = r.Get("cameras/door"); c.GetStatus().GetState() != vedettev1.CameraState_CAMERA_STATE_OFFLINE {
		t.Errorf("after ingest was lost: %v", c.GetStatus())
	}
	c, err := r.Update(t.Context(), &vedettev1.Camera{Name: "cameras/door", DesiredState: vedettev1.DesiredState_DESIRED_STATE_DISABLED}, nil, false)
	if err != nil || c.GetStatus().GetState() != vedettev1.CameraState_CAMERA_STATE_DISABLED {
		t.Errorf("disabled: %v %v", c.GetStatus(), err)
	}
}

func TestAPastedAddressIsTakenApart(t *testing.T) {
	r, _ := register(t, t.TempDir())
	c, err := r.Create(t.Context(), "yard", &vedettev1.Camera{Source: &vedettev1.Source{
		Uri: "rtsp://admin:p@ss@camera/sub", MainUri: "rtsp://admin:p@ss@camera/main",
	}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.GetSource(); s.GetUri() != "rtsp://camera/sub" || s.GetMainUri() != "rtsp://camera/main" || s.GetUsername() != "admin" || !s.GetPasswordSet() || s.GetPassword() != "" {
		t.Errorf("created: %v", s)
	}
	c, err = r.Update(t.Context(), &vedettev1.Camera{Name: c.GetName(), Source: &vedettev1.Source{
		Uri: "rtsp://camera/live?user=guest&password=" + canary,
	}}, []string{"source.uri"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.GetSource(); s.GetUri() != "rtsp://camera/live?user={username}&password={password}" || s.GetUsername() != "guest" {
		t.Errorf("updated: %v", s)
	}
	list, _, _ := r.Desired()
	if len(list) != 1 || list[0].Password != canary {
		t.Errorf("wanted: %v", list)
	}
	var bad *cameras.InvalidError
	_, err = r.Create(t.Context(), "other", &vedettev1.Camera{Source: &vedettev1.Source{Uri: "rtsp://a:" + canary + "@camera/", Username: "b", Password: "c"}}, false)
	if !errors.As(err, &bad) || strings.Contains(err.Error(), canary) {
		t.Errorf("two users: %v", err)
	}
}
