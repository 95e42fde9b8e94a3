package modelstore_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.uber.org/goleak"
	"gocloud.dev/blob"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/file"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/vedette/vedette/infer/modelstore"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// server is a store on this machine.
type server struct {
	url string
	// put replaces everything in the store.
	put func(files map[string]string)
	// break makes what the store sends wrong, off cuts it off.
	// stall lets it send nothing more.
	damage, off, stall *atomic.Bool
	asked              atomic.Int64 // requests that came
}

// unreliable stands before a handler and does what the flags say.
func unreliable(t *testing.T, s *server, h http.Handler) *httptest.Server {
	t.Helper()
	s.damage, s.off, s.stall = new(atomic.Bool), new(atomic.Bool), new(atomic.Bool)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if s.off.Load() {
			http.Error(w, "the store is away", http.StatusForbidden) // which no client tries again
			return
		}
		content := r.Method == http.MethodGet && (strings.Contains(r.URL.Path, "model.onnx") || strings.Contains(r.URL.Path, "/blobs/"))
		if s.stall.Load() && content {
			_, _ = w.Write([]byte("some")) // it does not matter whether it arrives
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		if s.damage.Load() && content {
			w = &damaging{w}
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// damaging changes a byte of what is sent.
type damaging struct{ http.ResponseWriter }

func (d *damaging) Write(p []byte) (int, error) {
	p = bytes.Clone(p)
	p[len(p)-1]++
	return d.ResponseWriter.Write(p)
}

func fill(t *testing.T, bucket string, files map[string]string) {
	t.Helper()
	b, err := blob.OpenBucket(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	for it := b.List(nil); ; {
		o, err := it.Next(t.Context())
		if err != nil {
			break
		}
		if err := b.Delete(t.Context(), o.Key); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		if err := b.WriteAll(t.Context(), "some/prefix/"+name, []byte(text), nil); err != nil {
			t.Fatal(err)
		}
	}
}

func s3(t *testing.T) *server {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	backend := s3mem.New()
	if err := backend.CreateBucket("models"); err != nil {
		t.Fatal(err)
	}
	s := new(server)
	srv := unreliable(t, s, gofakes3.New(backend).Server())
	s.url = "s3://" + srv.URL + "/models/some/prefix"
	s.put = func(files map[string]string) {
		fill(t, "s3://models?use_path_style=true&endpoint="+url.QueryEscape(srv.URL), files)
	}
	return s
}

func gs(t *testing.T) *server {
	t.Helper()
	s := new(server)
	var gcs *fakestorage.Server
	srv := unreliable(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { gcs.HTTPHandler().ServeHTTP(w, r) }))
	host := strings.TrimPrefix(srv.URL, "http://")
	gcs, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, PublicHost: host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gcs.Stop)
	gcs.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "models"})
	t.Setenv("STORAGE_EMULATOR_HOST", host)
	s.url = "gs://models/some/prefix?anonymous=true"
	s.put = func(files map[string]string) { fill(t, "gs://models?anonymous=true", files) }
	return s
}

func oci(t *testing.T) *server {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	s := new(server)
	srv := unreliable(t, s, registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))))
	name := strings.TrimPrefix(srv.URL, "http://") + "/some/models"
	s.url = "oci://" + name + ":v1"
	s.put = func(files map[string]string) {
		dir := t.TempDir()
		for name, text := range files {
			to := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o750), os.WriteFile(to, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		push(t, name, dir)
	}
	return s
}

// push does what "oras push NAME:v1 DIR..." does.
func push(t *testing.T, name, dir string) {
	t.Helper()
	from, err := file.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	from.TarReproducible = true
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var layers []ocispec.Descriptor
	for _, e := range entries {
		l, err := from.Add(t.Context(), e.Name(), "", filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, l)
	}
	publish(t, name, from, layers...)
}

// publish makes layers of a store a registry's NAME:v1.
func publish(t *testing.T, name string, from oras.Target, layers ...ocispec.Descriptor) {
	t.Helper()
	m, err := oras.PackManifest(t.Context(), from, oras.PackManifestVersion1_1, "application/vnd.vedette.models",
		oras.PackManifestOptions{Layers: layers})
	if err == nil {
		err = from.Tag(t.Context(), m, "v1")
	}
	if err != nil {
		t.Fatal(err)
	}
	repo, err := remote.NewRepository(name)
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP = true
	if _, err := oras.Copy(t.Context(), from, "v1", repo, "v1", oras.DefaultCopyOptions); err != nil {
		t.Fatal(err)
	}
}

var kinds = map[string]func(t *testing.T) *server{"s3": s3, "gs": gs, "oci": oci, "azblob": azblob}

func each(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	for kind, start := range kinds {
		t.Run(kind, func(t *testing.T) { test(t, start(t)) })
	}
}

func open(t *testing.T, cfg modelstore.Config) *modelstore.Store {
	t.Helper()
	s, err := modelstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:forcetypeassert // it is one
	})
	return s
}

func read(t *testing.T, c *modelstore.Copy, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir, name))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func repository() map[string]string {
	return map[string]string{
		"door/config.pbtxt": "backend: \"identity\"", "door/1/model.onnx": "weights of the door", "door/labels/all.txt": "cat\ndog",
		"gate/1/model.onnx": "weights of the gate",
	}
}

func TestR1ModelsAreCopiedFromObjectStoresAndRegistries(t *testing.T) {
	each(t, func(t *testing.T, srv *server) {
		srv.put(repository())
		s := open(t, modelstore.Config{URL: srv.url})
		all, err := s.List(t.Context())
		if err != nil || len(all) != 2 || all["door"].Print == "" || all["door"].Print == all["gate"].Print {
			t.Fatalf("got %v, %v", all, err)
		}
		old, err := s.Fetch(t.Context(), "door")
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range repository() {
			if below, ok := strings.CutPrefix(name, "door/"); ok && read(t, old, below) != text {
				t.Errorf("%s: got %q", name, read(t, old, below))
			}
		}
		same, err := s.Fetch(t.Context(), "door")
		if err != nil || same.Dir != old.Dir || same.Print != all["door"].Print {
			t.Errorf("an unchanged model was copied again: %v, %v", same, err)
		}
		same.Release()

		next := repository()
		next["door/1/model.onnx"] = "weights of a better door"
		delete(next, "gate/1/model.onnx")
		srv.put(next)
		fresh, err := s.Fetch(t.Context(), "door")
		if err != nil {
			t.Fatal(err)
		}
		if read(t, old, "1/model.onnx") != "weights of the door" || read(t, fresh, "1/model.onnx") != "weights of a better door" {
			t.Error("the copy in use is not left alone, or the new one is not the new one")
		}
		dir := old.Dir
		old.Release()
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a copy that nobody needs is kept: %v", err)
		}
		fresh.Release()
		if _, err := s.Fetch(t.Context(), "gate"); !errors.Is(err, modelstore.ErrNoModel) {
			t.Errorf("got %v for a model that is gone", err)
		}
		if _, err := s.Print(t.Context(), "gate"); !errors.Is(err, modelstore.ErrNoModel) {
			t.Errorf("got %v", err)
		}
	})
}

func TestR1WhatArrivesDamagedIsNoCopy(t *testing.T) {
	each(t, func(t *testing.T, srv *server) {
		if srv.damage == nil {
			t.Skip("the server cannot be made to send something else")
		}
		srv.put(repository())
		dir := t.TempDir()
		s := open(t, modelstore.Config{URL: srv.url, Dir: dir})
		if _, err := s.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		srv.damage.Store(true)
		_, err := s.Fetch(t.Context(), "gate")
		var fault *modelstore.Error
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), "gate") {
			t.Fatalf("got %v", err)
		}
		left, _ := filepath.Glob(filepath.Join(dir, "*", "gate", "*"))
		parts, _ := filepath.Glob(filepath.Join(dir, "*", ".part-*"))
		if len(left)+len(parts) > 0 {
			t.Errorf("left behind: %v %v", left, parts)
		}
		srv.damage.Store(false)
		c, err := s.Fetch(t.Context(), "gate")
		if err != nil {
			t.Fatal(err)
		}
		c.Release()
	})
}

func TestR1DirectoriesThatUnpackWithoutBoundAreRefused(t *testing.T) {
	srv := oci(t)
	name, _, _ := strings.Cut(strings.TrimPrefix(srv.url, "oci://"), ":v1")
	for _, c := range []struct {
		name, want string
		pack       func(w *tar.Writer) error
	}{
		{"as many files as one likes", "more than 10000 files are packed in it", func(w *tar.Writer) error {
			var err error
			for i := range 10_001 {
				err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "door/" + strconv.Itoa(i), Typeflag: tar.TypeReg, Mode: 0o600}))
			}
			return err
		}},
		{"a file of a terabyte", "it unpacks to more than the", func(w *tar.Writer) error {
			return w.WriteHeader(&tar.Header{Name: "door/model.onnx", Typeflag: tar.TypeReg, Mode: 0o600, Size: 1 << 40})
		}},
		{"a device", `"door/null" in it is no file and no directory (type '3')`, func(w *tar.Writer) error {
			return w.WriteHeader(&tar.Header{Name: "door/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3})
		}},
		{"a link that leads away", "is outside of", func(w *tar.Writer) error {
			return w.WriteHeader(&tar.Header{Name: "door/config.pbtxt", Typeflag: tar.TypeSymlink, Linkname: "../../../../etc/passwd"})
		}},
		{"half an archive", "EOF", func(w *tar.Writer) error {
			if err := w.WriteHeader(&tar.Header{Name: "door/model.onnx", Typeflag: tar.TypeReg, Mode: 0o600, Size: 5000}); err != nil {
				return err
			}
			_, err := w.Write(make([]byte, 100))
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var packed bytes.Buffer
			gz := gzip.NewWriter(&packed)
			w := tar.NewWriter(gz)
			if err := c.pack(w); err != nil {
				t.Fatal(err)
			}
			_ = w.Flush() // an archive that lacks its end is one of the cases
			if err := gz.Close(); err != nil {
				t.Fatal(err)
			}
			pushLayer(t, name, "door", packed.Bytes())
			dir := t.TempDir()
			s := open(t, modelstore.Config{URL: srv.url, Dir: dir})
			_, err := s.Fetch(t.Context(), "door")
			var fault *modelstore.Error
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if parts, _ := filepath.Glob(filepath.Join(dir, "*", ".part-*")); len(parts) > 0 {
				t.Errorf("left behind: %v", parts)
			}
		})
	}
}

// pushLayer puts one packed directory into a registry.
func pushLayer(t *testing.T, name, title string, packed []byte) {
	t.Helper()
	from := memory.New()
	l := content.NewDescriptorFromBytes("application/vnd.oci.image.layer.v1.tar+gzip", packed)
	l.Annotations = map[string]string{"org.opencontainers.image.title": title, file.AnnotationUnpack: "true"}
	if err := from.Push(t.Context(), l, bytes.NewReader(packed)); err != nil {
		t.Fatal(err)
	}
	publish(t, name, from, l)
}

func TestR1CopiesOutliveTheStoreAndAreCheckedFirst(t *testing.T) {
	srv := s3(t)
	srv.put(repository())
	cfg := modelstore.Config{URL: srv.url, Dir: t.TempDir(), Retry: time.Nanosecond}
	before, err := modelstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"door", "gate"} {
		c, err := before.Fetch(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c.Release()
	}
	if second, err := modelstore.New(cfg); err != nil {
		t.Fatal(err)
	} else if _, err := second.Fetch(t.Context(), "door"); err == nil || !strings.Contains(err.Error(), "used by another server") {
		t.Errorf("two servers share the copies: %v", err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}

	srv.off.Store(true)
	s := open(t, cfg)
	all, err := s.List(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("got %v, %v", all, err)
	}
	patient := cfg
	patient.Dir, patient.Retry = t.TempDir(), time.Hour
	other := open(t, patient)
	asked := srv.asked.Load()
	for range 10 {
		if _, err := other.Fetch(t.Context(), "door"); err == nil {
			t.Fatal("there is a copy nobody made")
		}
	}
	if n := srv.asked.Load() - asked; n != 1 {
		t.Errorf("a store that is away was asked %d times", n)
	}
	c, err := s.Fetch(t.Context(), "door")
	if err != nil {
		t.Fatal(err)
	}
	if read(t, c, "1/model.onnx") != "weights of the door" || c.Print != all["door"].Print {
		t.Error("the copy is another")
	}
	c.Release()
	files, err := filepath.Glob(filepath.Join(cfg.Dir, "*", "gate", "*", "1", "model.onnx"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte("rot"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fetch(t.Context(), "gate"); err == nil {
		t.Error("a damaged copy is served")
	}
	srv.off.Store(false)
	if c, err = s.Fetch(t.Context(), "gate"); err != nil {
		t.Fatal(err)
	}
	if read(t, c, "1/model.onnx") != "weights of the gate" {
		t.Error("the damage stayed")
	}
	c.Release()
}

func TestR1KeysThatLeadAwayAreNoModel(t *testing.T) {
	srv := s3(t)
	for _, key := range []string{"door/../../evil", "door//model.onnx", "door/./model.onnx", "door/1", "../door/config.pbtxt", ".hidden/1/model.onnx", "beside"} {
		srv.put(map[string]string{key: "weights", "door/1/model.onnx": "weights"})
		dir := t.TempDir()
		s := open(t, modelstore.Config{URL: srv.url, Dir: dir})
		c, err := s.Fetch(t.Context(), "door")
		switch key {
		case "../door/config.pbtxt", ".hidden/1/model.onnx", "beside":
			if err != nil {
				t.Errorf("%s beside a model: %v", key, err)
				continue
			}
			c.Release()
		default:
			if err == nil {
				t.Errorf("%s was copied", key)
				c.Release()
			}
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "evil")); err == nil {
			t.Errorf("%s was written", key)
		}
	}
}

func TestR1ADownloadThatStallsIsGivenUp(t *testing.T) {
	each(t, func(t *testing.T, srv *server) {
		if srv.stall == nil {
			t.Skip("the server cannot be made to stall")
		}
		srv.put(repository())
		srv.stall.Store(true)
		dir := t.TempDir()
		for patience := 500 * time.Millisecond; ; patience *= 2 { // on a busy machine the listing may be too slow as well
			s := open(t, modelstore.Config{URL: srv.url, Dir: filepath.Join(dir, patience.String()), Timeout: patience})
			_, err := s.Fetch(t.Context(), "door")
			if err != nil && strings.Contains(err.Error(), "nothing of it came for "+patience.String()) {
				break
			}
			if err == nil || patience > 20*time.Second {
				t.Fatalf("got %v", err)
			}
		}
		if parts, _ := filepath.Glob(filepath.Join(dir, "*", "*", ".part-*")); len(parts) > 0 {
			t.Errorf("left behind: %v", parts)
		}
	})
}

func TestR1CopiesGoWithTheirModels(t *testing.T) {
	each(t, func(t *testing.T, srv *server) {
		all := repository()
		all["odd[*]/1/model.onnx"] = "weights of a model with an odd name"
		srv.put(all)
		dir := t.TempDir()
		s := open(t, modelstore.Config{URL: srv.url, Dir: dir})
		used := make(map[string]*modelstore.Copy)
		for _, name := range []string{"door", "gate", "odd[*]"} {
			c, err := s.Fetch(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			used[name] = c
		}
		used["gate"].Release()
		used["odd[*]"].Release()
		copies := func() string {
			t.Helper()
			if _, err := s.List(t.Context()); err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(filepath.Dir(filepath.Dir(used["door"].Dir)))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				if e.IsDir() {
					names = append(names, e.Name())
				}
			}
			return strings.Join(names, " ")
		}
		if got := copies(); got != "door gate odd[*]" {
			t.Errorf("there are copies of %s", got)
		}
		srv.put(map[string]string{"hall/1/model.onnx": "weights of the hall"})
		if got := copies(); got != "door" || read(t, used["door"], "1/model.onnx") != "weights of the door" {
			t.Errorf("there are copies of %q, one of the door is in use", got)
		}
		used["door"].Release()
		if got := copies(); got != "" {
			t.Errorf("there are copies of %q", got)
		}
	})
}

func TestR1WhatAnswersEverythingIsNoStore(t *testing.T) {
	srv := s3(t)
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>Accept the terms of this network.</html>")) // the client may be gone
	}))
	defer login.Close()
	s := open(t, modelstore.Config{URL: "s3://" + login.URL + "/models"})
	if got, err := s.List(t.Context()); err == nil || !strings.Contains(err.Error(), "it is no object store") {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := open(t, modelstore.Config{URL: srv.url}).List(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v for an empty store", got, err)
	}
}

func TestR1TemporaryCopiesOfKilledServersAreRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	srv := s3(t)
	srv.put(repository())
	alive := open(t, modelstore.Config{URL: srv.url})
	c, err := alive.Fetch(t.Context(), "door")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	killed, other := filepath.Join(tmp, "vedette-models-1"), filepath.Join(tmp, "vedette-models")
	for _, dir := range []string{killed, other} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "door"), 0o750), os.WriteFile(filepath.Join(dir, ".lock"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	locks, err := filepath.Glob(filepath.Join(tmp, "*", ".lock"))
	if err != nil || len(locks) != 3 {
		t.Fatal(locks, err)
	}
	for _, lock := range locks {
		if err := os.Chtimes(lock, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open(t, modelstore.Config{URL: srv.url}).List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(killed); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed server left is there: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("what is another's was removed: %v", err)
	}
	if read(t, c, "1/model.onnx") != "weights of the door" {
		t.Error("what a server uses was removed")
	}
}

func TestR1URLsThatNameNoStoreAreRefused(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"ftp://host/models", "the scheme must be"},
		{"s3://", "names no bucket"},
		{"s3://https://host:9000/", "names no bucket"},
		{"oci://", "invalid reference"},
		{"oci://host/UPPER", "invalid reference"},
		{"as://account", "names no bucket"},
		{"gs://a?x=%zz", "invalid URL escape"},
	} {
		_, err := modelstore.New(modelstore.Config{URL: c.url})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.url, err, c.want)
		}
	}
	s, err := modelstore.New(modelstore.Config{URL: "s3://bucket?endpoint=http://user:secret@host"})
	if err != nil || strings.Contains(s.String(), "secret") {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestR1AnEndedRequestEndsTheCopy(t *testing.T) {
	srv := s3(t)
	srv.put(repository())
	s := open(t, modelstore.Config{URL: srv.url})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Fetch(ctx, "door"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzURL(f *testing.F) {
	for _, u := range []string{
		"s3://bucket/a/b?region=x", "s3://https://host:9000/bucket", "s3://host:9000/bucket/p", "gs://b", "azblob://c/p", "as://account/c",
		"oci://host:5000/a/b:tag", "oci://host/a@sha256:0000000000000000000000000000000000000000000000000000000000000000", "ftp://x", "s3://", "oci://[::1]:5000/a",
	} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, u string) {
		s, err := modelstore.New(modelstore.Config{URL: u})
		if err != nil {
			if _, ok := errors.AsType[*modelstore.Error](err); !ok {
				t.Errorf("%q: not a typed error: %v", u, err)
			}
			return
		}
		if scheme, _, _ := strings.Cut(u, "://"); !slices.Contains([]string{"s3", "gs", "azblob", "as", "oci"}, scheme) {
			t.Errorf("%q is understood", u)
		}
		if strings.Contains(s.String(), "?") {
			t.Errorf("%q tells its query: %s", u, s)
		}
	})
}
