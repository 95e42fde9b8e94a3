package v2http

import (
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vedette/vedette/infer"
)

// The groups of calls a restriction can close.
const (
	apiHealth          = "health"
	apiMetadata        = "metadata"
	apiInference       = "inference"
	apiSharedMemory    = "shared-memory"
	apiModelConfig     = "model-config"
	apiModelRepository = "model-repository"
	apiStatistics      = "statistics"
	apiTrace           = "trace"
	apiLogging         = "logging"
)

// route is where a path leads: what group of calls it is of, which methods it takes, and what the path names.
type route struct {
	api     string
	methods []string
	serve   func(*Server, http.ResponseWriter, *http.Request, route) error

	model, version, region, verb string
}

//nolint:gochecknoglobals // constant tables; Go has no constant slices
var (
	get       = []string{http.MethodGet}
	post      = []string{http.MethodPost}
	getOrPost = []string{http.MethodGet, http.MethodPost}
)

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r, ok := find(req.URL.EscapedPath())
	switch {
	case !ok:
		writeError(w, http.StatusNotFound, "Not Found")
		return
	case !slices.Contains(r.methods, req.Method):
		w.Header().Set("Allow", strings.Join(r.methods, ", "))
		writeError(w, http.StatusMethodNotAllowed, "Method Not Allowed")
		return
	}
	if header, closed := s.closed(req, r.api); closed {
		writeError(w, http.StatusForbidden, "This API is restricted, expecting header '"+header+"'")
		return
	}
	if s.stopping.Load() && r.api != apiHealth {
		fail(w, infer.Errorf(infer.Unavailable, "Server exiting"))
		return
	}
	if err := r.serve(s, w, req, r); err != nil {
		fail(w, err)
		return
	}
	if r.api == apiInference {
		s.takeOver(w, req)
	}
}

func (s *Server) closed(req *http.Request, api string) (header string, closed bool) {
	for _, r := range s.cfg.Restricted {
		if slices.Contains(r.APIs, api) && subtle.ConstantTimeCompare([]byte(req.Header.Get(r.Header)), []byte(r.Value)) != 1 {
			return r.Header, true
		}
	}
	return "", false
}

// find reads a path. Names are unescaped only after the path was taken apart, so that none can hold a slash
// that means something.
func find(path string) (route, bool) {
	if model, ok := plainInfer(path); ok {
		return route{api: apiInference, methods: post, serve: (*Server).infer, model: model}, true
	}
	rest, ok := strings.CutPrefix(path, "/v2")
	if !ok {
		return route{}, false
	}
	if rest == "" || rest == "/" {
		return route{api: apiMetadata, methods: get, serve: (*Server).serverMetadata}, true
	}
	if rest[0] != '/' {
		return route{}, false
	}
	parts := strings.Split(rest[1:], "/")
	for i, p := range parts {
		u, err := url.PathUnescape(p)
		if err != nil || u == "" || !utf8.ValidString(u) {
			return route{}, false
		}
		parts[i] = u
	}
	switch parts[0] {
	case "health":
		return findHealth(parts[1:])
	case "models":
		return findModel(parts[1:])
	case "repository":
		return findRepository(parts[1:])
	case "systemsharedmemory":
		return findMemory(parts[1:], (*Server).systemMemory)
	case "cudasharedmemory":
		return findMemory(parts[1:], (*Server).cudaMemory)
	case "trace":
		if len(parts) == 2 && parts[1] == "setting" {
			return route{api: apiTrace, methods: getOrPost, serve: (*Server).traceSetting}, true
		}
	case "logging":
		if len(parts) == 1 {
			return route{api: apiLogging, methods: getOrPost, serve: (*Server).logging}, true
		}
	case "sequences":
		if len(parts) == 1 {
			return route{api: apiStatistics, methods: get, serve: (*Server).sequences}, true
		}
	}
	return route{}, false
}

// plainInfer is the short way for the path that is asked for most.
func plainInfer(path string) (model string, ok bool) {
	model, ok = strings.CutPrefix(path, "/v2/models/")
	if !ok {
		return "", false
	}
	model, ok = strings.CutSuffix(model, "/infer")
	return model, ok && model != "" && !strings.ContainsAny(model, "/%")
}

func findHealth(parts []string) (route, bool) {
	if len(parts) != 1 || (parts[0] != "live" && parts[0] != "ready") {
		return route{}, false
	}
	return route{api: apiHealth, methods: get, serve: (*Server).health, verb: parts[0]}, true
}

func findModel(parts []string) (route, bool) {
	if len(parts) == 1 && parts[0] == "stats" {
		return route{api: apiStatistics, methods: get, serve: (*Server).statistics}, true
	}
	if len(parts) == 0 {
		return route{}, false
	}
	r := route{model: parts[0]}
	parts = parts[1:]
	if len(parts) >= 2 && parts[0] == "versions" && digits(parts[1]) {
		r.version, parts = parts[1], parts[2:]
	}
	switch strings.Join(parts, "/") {
	case "":
		r.api, r.methods, r.serve = apiMetadata, get, (*Server).modelMetadata
	case "ready":
		r.api, r.methods, r.serve = apiHealth, get, (*Server).modelReady
	case "config":
		r.api, r.methods, r.serve = apiModelConfig, get, (*Server).modelConfig
	case "stats":
		r.api, r.methods, r.serve = apiStatistics, get, (*Server).statistics
	case "instances":
		r.api, r.methods, r.serve = apiStatistics, get, (*Server).instances
	case "infer":
		r.api, r.methods, r.serve = apiInference, post, (*Server).infer
	case "trace/setting":
		r.api, r.methods, r.serve = apiTrace, getOrPost, (*Server).traceSetting
	default:
		return route{}, false
	}
	return r, true
}

func digits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func findRepository(parts []string) (route, bool) {
	r := route{api: apiModelRepository, methods: post}
	if len(parts) > 0 && parts[0] != "index" && parts[0] != "models" {
		r.region, parts = parts[0], parts[1:] // the name of a repository, which is refused
	}
	switch {
	case len(parts) == 1 && parts[0] == "index":
		r.serve = (*Server).index
	case len(parts) == 3 && parts[0] == "models" && parts[2] == "load":
		r.model, r.serve = parts[1], (*Server).load
	case len(parts) == 3 && parts[0] == "models" && parts[2] == "unload":
		r.model, r.serve = parts[1], (*Server).unload
	default:
		return route{}, false
	}
	return r, true
}

func findMemory(parts []string, serve func(*Server, http.ResponseWriter, *http.Request, route) error) (route, bool) {
	r := route{api: apiSharedMemory, serve: serve}
	if len(parts) >= 2 && parts[0] == "region" {
		r.region, parts = parts[1], parts[2:]
	}
	if len(parts) != 1 {
		return route{}, false
	}
	switch r.verb = parts[0]; r.verb {
	case "status":
		r.methods = get
	case "register", "unregister":
		r.methods = post
	default:
		return route{}, false
	}
	return r, true
}
