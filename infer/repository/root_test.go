package repository_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/vedette/vedette/infer/repository"
)

// eventually waits for what happens in real time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func TestR1AndR4PollingFollowsAnObjectStore(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	backend := s3mem.New()
	if err := backend.CreateBucket("models"); err != nil {
		t.Fatal(err)
	}
	var away, stalls, hangs atomic.Bool
	s3 := gofakes3.New(backend).Server()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			http.Error(w, "the store is away", http.StatusForbidden) // which no client tries again
			return
		}
		if hangs.Load() || stalls.Load() && strings.HasSuffix(r.URL.Path, "/stalled/1/keep") {
			<-r.Context().Done()
			return
		}
		s3.ServeHTTP(w, r)
	}))
	defer srv.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:forcetypeassert // it is one
	put := func(key, text string) {
		t.Helper()
		if _, err := backend.PutObject("models", "fleet/"+key, nil, strings.NewReader(text), int64(len(text)), nil); err != nil {
			t.Fatal(err)
		}
	}
	put("good/config.pbtxt", echoModel)
	put("good/1/keep", "x")
	put("bad/config.pbtxt", `backend: `)
	put("bad/1/keep", "x")
	put("notes/readme", "nothing to load")
	store := "s3://" + srv.URL + "/models/fleet"

	t.Run("poll", func(t *testing.T) {
		local := write(t, files{"near/config.pbtxt": echoModel, "near/1/keep": ""})
		r := serve(t, repository.Config{
			Roots: []string{local, store}, Backends: withEcho(), Mode: repository.ModePoll, PollInterval: 10 * time.Millisecond,
			LooseReadiness: true,
		})
		for _, model := range []string{"good", "near"} {
			if err := ask(t, r, model); err != nil {
				t.Error(err)
			}
		}
		if got := index(r); !strings.Contains(got, "bad  UNAVAILABLE config.pbtxt: ") || !strings.HasSuffix(got, "\nnotes   it has neither a configuration nor a version") {
			t.Errorf("got %s", got)
		}
		put("bad/config.pbtxt", echoModel)
		eventually(t, "the mended model's load", func() bool { return ask(t, r, "bad") == nil })
		put("good/config.pbtxt", echoModel+`version_policy { all {} }`)
		put("good/2/keep", "x")
		eventually(t, "the new version's load", func() bool { return strings.Contains(index(r), "good 2 READY") })

		away.Store(true)
		put("good/3/keep", "x") // cannot be seen
		if err := ask(t, r, "good"); err != nil {
			t.Errorf("a store that is away takes its models along: %v", err)
		}
		away.Store(false)
		eventually(t, "the load of what came meanwhile", func() bool { return strings.Contains(index(r), "good 3 READY") })
		for _, key := range []string{"config.pbtxt", "1/keep", "2/keep", "3/keep"} {
			if _, err := backend.DeleteObject("models", "fleet/good/"+key); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the unload", func() bool { return ask(t, r, "good") != nil })
		put("good/config.pbtxt", echoModel)
		put("good/1/keep", "x")
		eventually(t, "the load", func() bool { return ask(t, r, "good") == nil })
		for range 2 { // what comes back is what went
			if _, err := backend.DeleteObject("models", "fleet/good/config.pbtxt"); err != nil {
				t.Fatal(err)
			}
			if _, err := backend.DeleteObject("models", "fleet/good/1/keep"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the unload", func() bool { return ask(t, r, "good") != nil })
			put("good/config.pbtxt", echoModel)
			put("good/1/keep", "x")
			eventually(t, "the load of the same again", func() bool { return ask(t, r, "good") == nil })
		}
	})

	t.Run("others load while a download stalls", func(t *testing.T) {
		r := serve(t, repository.Config{
			Roots: []string{store}, Backends: withEcho(), Mode: repository.ModePoll, PollInterval: 10 * time.Millisecond, LooseReadiness: true,
		})
		stalls.Store(true)
		for _, key := range []string{"a", "b", "c", "stalled", "x", "y", "z"} { // more than are read at once
			put(key+"/config.pbtxt", echoModel)
			put(key+"/1/keep", "x")
		}
		for _, name := range []string{"a", "b", "c", "x", "y", "z"} {
			eventually(t, "the load of "+name, func() bool { return ask(t, r, name) == nil })
		}
		stalls.Store(false)
	})

	t.Run("the index does not wait for a store that hangs", func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{store}, Backends: withEcho(), LooseReadiness: true})
		hangs.Store(true)
		defer hangs.Store(false)
		if got := index(r); !strings.Contains(got, "a 1 READY") {
			t.Errorf("got %s", got)
		}
	})

	t.Run("a store that is away at the start hides no others", func(t *testing.T) {
		away.Store(true)
		defer away.Store(false)
		put("good/config.pbtxt", echoModel)
		put("good/1/keep", "x")
		put("bad/config.pbtxt", echoModel)
		local := write(t, files{"near/config.pbtxt": echoModel, "near/1/keep": ""})
		r := serve(t, repository.Config{
			Roots: []string{local, store}, Backends: withEcho(), Mode: repository.ModePoll, PollInterval: 10 * time.Millisecond,
		})
		if err := ask(t, r, "near"); err != nil {
			t.Error(err)
		}
		if r.Ready(t.Context()) {
			t.Error("the server is ready and does not know what it has to serve")
		}
		if err := os.Rename(filepath.Join(write(t, files{"nearer/config.pbtxt": echoModel, "nearer/1/keep": ""}), "nearer"), filepath.Join(local, "nearer")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the load of a local model", func() bool { return ask(t, r, "nearer") == nil })
		away.Store(false)
		eventually(t, "the load of a stored model", func() bool { return ask(t, r, "good") == nil && r.Ready(t.Context()) })
	})

	t.Run("a start without the store", func(t *testing.T) {
		put("good/config.pbtxt", echoModel)
		put("good/1/keep", "x")
		copies := t.TempDir()
		start := func(t *testing.T) *repository.Repository {
			t.Helper()
			return serve(t, repository.Config{Roots: []string{store}, StoreCopies: copies, Backends: withEcho(), Mode: repository.ModeNone})
		}
		t.Run("with it", func(t *testing.T) {
			if err := ask(t, start(t), "good"); err != nil {
				t.Error(err)
			}
		})
		away.Store(true)
		t.Run("without it", func(t *testing.T) {
			t.Cleanup(func() { away.Store(false) })
			if err := ask(t, start(t), "good"); err != nil {
				t.Error(err)
			}
		})
	})
}
