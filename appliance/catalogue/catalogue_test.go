package catalogue_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/catalogue"
)

func TestTheShippedCatalogueHasNoFault(t *testing.T) {
	models, err := catalogue.Shipped()
	if err != nil || len(models) < 5 {
		t.Fatalf("%d models, %v", len(models), err)
	}
	for _, m := range models {
		if !strings.HasPrefix(m.URL, "https://") {
			t.Errorf("%s is fetched from %s", m.Name, m.URL)
		}
	}
}

func TestEveryFaultOfACatalogueIsToldAtOnce(t *testing.T) {
	_, err := catalogue.Read(strings.NewReader("models:\n- {name: A, url: ftp://x, sha256: zz}\n- {name: b, reference: nobody}\n"))
	for _, want := range []string{"models[0]", "name: up to", "licence is missing", "ftp://x", "64 hexadecimal", "bytes:", "models[1]", `reference "nobody"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	if _, err := catalogue.Read(strings.NewReader("models:\n- {title: a, size: 5}\n")); err == nil {
		t.Error("an unknown field is taken")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("models:\n- {name: a, licence: MIT, url: https://h/f, sha256: " + strings.Repeat("ab", 32) + ", bytes: 1, input: 1x1, classes: 1, accuracy: none}\n")
	f.Fuzz(func(t *testing.T, text string) {
		models, err := catalogue.Read(strings.NewReader(text))
		for _, m := range models {
			if err != nil || m.Bytes < 1 || len(m.SHA256) != 64 || strings.ContainsAny(m.Name, "/.") {
				t.Errorf("%+v, %v", m, err)
			}
		}
	})
}

// content is a file whose every part is different.
func content() []byte {
	b := make([]byte, 1<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func model(url string, file []byte) catalogue.Model {
	sum := sha256.Sum256(file)
	return catalogue.Model{Name: "net", Licence: "MIT", URL: url, SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(file)), Input: "1x1", Classes: "1", Accuracy: "none"}
}

func serving(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func whole(w http.ResponseWriter, r *http.Request, file []byte) {
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file))
}

// cut writes some of an answer and ends the connection.
func cut(w http.ResponseWriter, r *http.Request, file []byte, after int) {
	whole(&limited{ResponseWriter: w, left: after}, r, file)
	panic(http.ErrAbortHandler)
}

type limited struct {
	http.ResponseWriter
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	b = b[:min(len(b), l.left)]
	if len(b) == 0 {
		return 0, errors.New("enough")
	}
	l.left -= len(b)
	return l.ResponseWriter.Write(b)
}

func TestAFileComesWholeThroughWhateverTheServerDoes(t *testing.T) {
	file := content()
	for name, handler := range map[string]func(n int32, w http.ResponseWriter, r *http.Request){
		"a good server": func(_ int32, w http.ResponseWriter, r *http.Request) { whole(w, r, file) },
		"connections that end": func(n int32, w http.ResponseWriter, r *http.Request) {
			if n < 8 {
				cut(w, r, file, 100_000)
			}
			whole(w, r, file)
		},
		"a server that cannot go on": func(n int32, w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Range")
			if n == 0 {
				cut(w, r, file, 100_000)
			}
			whole(w, r, file)
		},
		"a server that is busy at first": func(n int32, w http.ResponseWriter, r *http.Request) {
			if n < 3 {
				http.Error(w, "later", http.StatusServiceUnavailable)
				return
			}
			whole(w, r, file)
		},
		"a server that refuses ranges": func(n int32, w http.ResponseWriter, r *http.Request) {
			if n == 0 {
				cut(w, r, file, 100_000)
			}
			if r.Header.Get("Range") != "" {
				http.Error(w, "no", http.StatusRequestedRangeNotSatisfiable)
				return
			}
			whole(w, r, file)
		},
		"a proxy that damages the first part": func(n int32, w http.ResponseWriter, r *http.Request) {
			if n == 0 {
				bad := bytes.Clone(file)
				bad[5]++
				cut(w, r, bad, 100_000)
			}
			whole(w, r, file)
		},
		"a server that falls silent": func(n int32, w http.ResponseWriter, r *http.Request) {
			if n == 0 {
				w.Header().Set("Content-Length", "1048576")
				_, _ = w.Write(file[:1000])
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return
			}
			whole(w, r, file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			url := serving(t, func(w http.ResponseWriter, r *http.Request) { handler(n.Add(1)-1, w, r) })
			dir := t.TempDir()
			var last int64
			p := catalogue.Puller{Pause: time.Millisecond, Stall: 500 * time.Millisecond, Progress: func(done, _ int64) { last = done }}
			path, err := p.Pull(t.Context(), model(url, file), dir)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, file) {
				t.Errorf("%d bytes, %v: not the file", len(got), err)
			}
			if last != int64(len(file)) {
				t.Errorf("progress ended at %d", last)
			}
			asked := n.Load()
			if _, err := p.Pull(t.Context(), model(url, file), dir); err != nil || n.Load() != asked {
				t.Errorf("a model that is there was fetched again: %v", err)
			}
		})
	}
}

func TestAWrongFileIsNeverInstalled(t *testing.T) {
	file := content()
	bad := bytes.Clone(file)
	bad[len(bad)/2]++
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"another file":           {func(w http.ResponseWriter, r *http.Request) { whole(w, r, bad) }, "another file than the catalogue means"},
		"a longer file":          {func(w http.ResponseWriter, r *http.Request) { whole(w, r, append(bytes.Clone(file), 0)) }, "a file of 1048577 bytes"},
		"a shorter file":         {func(w http.ResponseWriter, r *http.Request) { whole(w, r, file[1:]) }, "a file of 1048575 bytes"},
		"a page that says sorry": {func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }, "404"},
		"a file without end": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(file)
			}
		}, "more than the 1048576 bytes"},
		"a server that is always busy": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusBadGateway) }, "502"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := catalogue.Puller{Pause: time.Millisecond, Attempts: 2}
			_, err := p.Pull(t.Context(), model(serving(t, c.handler), file), dir)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*.onnx")); len(left) > 0 {
				t.Errorf("installed: %v", left)
			}
		})
	}
}

func TestAnInterruptedPullIsGoneOnWith(t *testing.T) {
	file := content()
	ctx, cancel := context.WithCancelCause(t.Context())
	var asked atomic.Pointer[string]
	url := serving(t, func(w http.ResponseWriter, r *http.Request) {
		at := r.Header.Get("Range")
		asked.Store(&at)
		if at == "" {
			w.Header().Set("Content-Length", "1048576")
			_, _ = w.Write(file[:300_000])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		whole(w, r, file)
	})
	dir := t.TempDir()
	interrupted := errors.New("interrupted")
	p := catalogue.Puller{Progress: func(done, _ int64) {
		if done == 300_000 {
			cancel(interrupted)
		}
	}}
	if _, err := p.Pull(ctx, model(url, file), dir); !errors.Is(err, interrupted) {
		t.Fatalf("got %v", err)
	}
	if _, err := (catalogue.Puller{}).Pull(t.Context(), model(url, file), dir); err != nil {
		t.Fatal(err)
	}
	if at := *asked.Load(); at != "bytes=300000-" {
		t.Errorf("went on at %q", at)
	}
}
