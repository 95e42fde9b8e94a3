// Package web serves the dashboard: one page with its assets, one stream of server-sent events that carries all
// live state, and streams of pictures for the tiles. It knows the appliance only through the API of
// api/vedette/v1, so that what a person may see is decided in one place.
package web

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// Config is what the dashboard is made of. The clients are required; the page asks nothing of the
// appliance but through them and through the JSON API below /v1.
type Config struct {
	Cameras   vedettev1.CameraServiceClient
	Analytics vedettev1.AnalyticsServiceClient
	Events    vedettev1.EventServiceClient
	System    vedettev1.SystemServiceClient
	Users     vedettev1.UserServiceClient
	// Models may be nil: the live stream tells nothing of models.
	Models vedettev1.ModelServiceClient
	// Sinks may be nil: the live stream tells nothing of sinks.
	Sinks vedettev1.SinkServiceClient
	// Logger may be nil: nothing is logged.
	Logger *slog.Logger
	// PictureRate is the highest rate of pictures a second sent to one viewer; 0: 15.
	PictureRate float64
	// PictureIdle is how long a camera's pictures are still fetched after the last viewer left; 0: 1 s.
	PictureIdle time.Duration
}

// Server is the dashboard as an http.Handler. Safe for concurrent use. Close ends its streams.
type Server struct {
	cfg      Config
	mux      *http.ServeMux
	pictures *pictures
	whep     whepSessions
	viewers  atomic.Int32 // of live video
	assets   map[string]asset
	index    []byte
	policy   string
}

// New prepares the dashboard; it starts nothing. It fails when a client is missing.
func New(cfg Config) (*Server, error) {
	if cfg.Cameras == nil || cfg.Analytics == nil || cfg.Events == nil || cfg.System == nil || cfg.Users == nil {
		return nil, errors.New("dashboard: a client of the API is missing from its configuration")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.PictureRate == 0 {
		cfg.PictureRate = 15
	}
	if cfg.PictureIdle == 0 {
		cfg.PictureIdle = time.Second
	}
	assets, index, err := loadAssets(dist)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, mux: http.NewServeMux(), assets: assets, index: index,
		pictures: newPictures(cfg), whep: whepSessions{byID: map[string]*whepSession{}},
		policy: contentPolicy,
	}
	s.mux.HandleFunc("GET /{$}", s.page)
	s.mux.HandleFunc("GET /assets/{name}", s.asset)
	s.mux.HandleFunc("GET /favicon.ico", s.icon)
	s.mux.HandleFunc("GET /live", s.live)
	s.mux.HandleFunc("GET /live/pictures", s.livePictures)
	s.mux.HandleFunc("GET /live/{camera}/mjpeg", s.liveMJPEG)
	s.mux.HandleFunc("GET /live/{camera}/offers", s.liveOffers)
	s.mux.HandleFunc("GET /live/{camera}/fmp4", s.liveFMP4)
	s.mux.HandleFunc("GET /live/{camera}/video.mp4", s.liveMP4)
	s.mux.HandleFunc("POST /live/{camera}/whep", s.whepOpen)
	s.mux.HandleFunc("DELETE /live/{camera}/whep/{session}", s.whepClose)
	s.mux.HandleFunc("POST /session", s.login)
	s.mux.HandleFunc("DELETE /session", s.logout)
	return s, nil
}

// Close ends every stream and waits for the fetching of pictures to stop. Requests after it are refused.
func (s *Server) Close() {
	s.whep.mu.Lock()
	s.whep.closed = true
	s.whep.mu.Unlock()
	s.pictures.close()
	s.whep.wg.Wait()
}

// contentPolicy lets the page load nothing from elsewhere and run no inline script. Pictures become blobs.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; " +
	"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// ServeHTTP answers requests for the page, its assets and its streams.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", s.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	// A person at an address that is none comes to the dashboard, which has that screen or says that there is none.
	if _, pattern := s.mux.Handler(r); pattern == "" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, "/#"+r.URL.EscapedPath(), http.StatusFound)
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(s.index)
}

// asset serves a file under its hashed name, for ever.
func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	a, ok := s.assets[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Add("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && a.gzipped != nil {
		h.Set("Content-Encoding", "gzip")
		a.plain = a.gzipped
	}
	h.Set("Content-Length", strconv.Itoa(len(a.plain)))
	_, _ = w.Write(a.plain)
}

func (s *Server) icon(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "image/svg+xml")
	b, _ := fs.ReadFile(dist, "dist/icon.svg")
	_, _ = w.Write(b)
}

// hashed returns name with eight characters of its content's SHA-256 before the extension.
func hashed(name string, content []byte) string {
	sum := sha256.Sum256(content)
	tag := base64.RawURLEncoding.EncodeToString(sum[:])[:8]
	stem, ext, _ := strings.Cut(name, ".")
	return stem + "-" + tag + "." + ext
}
