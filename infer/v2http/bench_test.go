package v2http_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/vedette/vedette/infer/v2http"
)

// discard is a client that reads nothing.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func BenchmarkBinaryInference(b *testing.B) {
	m := &models{}
	s := v2http.New(v2http.Config{Inferer: m, Catalog: m, Pool: &m.pool})
	header := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"FP32","parameters":{"binary_data_size":64}}]}`
	body := append([]byte(header), make([]byte, 64)...)
	req := httptest.NewRequest(http.MethodPost, inferPath, nil)
	req.Header.Set("Inference-Header-Content-Length", strconv.Itoa(len(header)))
	req.ContentLength = int64(len(body))
	r := bytes.NewReader(body)
	req.Body = http.NoBody
	w := &discard{h: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(body)
		req.Body = nopCloser{r}
		clear(w.h)
		m.seen = m.seen[:0]
		s.ServeHTTP(w, req)
	}
}

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }
