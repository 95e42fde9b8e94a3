package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/web"
)

const maxBody = 4 << 20

// handler answers everything over HTTP. The function returned ends its streams.
func (s *Server) handler(ctx context.Context, conn *grpc.ClientConn, g *gate) (http.Handler, func(), error) {
	gateway := runtime.NewServeMux(append(jsonFaults(), runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{
		MarshalOptions: protojson.MarshalOptions{EmitDefaultValues: true},
	}))...)
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		vedettev1.RegisterCameraServiceHandler, vedettev1.RegisterAnalyticsServiceHandler,
		vedettev1.RegisterEventServiceHandler, vedettev1.RegisterSystemServiceHandler,
		vedettev1.RegisterRuleServiceHandler, vedettev1.RegisterSinkServiceHandler, vedettev1.RegisterUserServiceHandler,
		vedettev1.RegisterModelServiceHandler, vedettev1.RegisterTokenServiceHandler,
	} {
		if err := register(context.WithoutCancel(ctx), gateway, conn); err != nil {
			return nil, nil, fmt.Errorf("prepare the JSON gateway: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", http.MaxBytesHandler(gateway, maxBody))
	pictures := &pictureHandler{cameras: vedettev1.NewCameraServiceClient(conn)}
	mux.Handle("/v1/cameras/{camera}/snapshot.jpg", readOnly(pictures))
	(&mediaHandler{analytics: vedettev1.NewAnalyticsServiceClient(conn), events: vedettev1.NewEventServiceClient(conn)}).register(mux)
	mux.Handle("/v1/system/support-bundle.tar.gz", readOnly(&bundleHandler{system: vedettev1.NewSystemServiceClient(conn)}))
	mux.HandleFunc("GET /openapi.json", openapi)
	page, err := reference()
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the page of the API: %w", err)
	}
	mux.Handle("GET /api", page)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", g.watchers(s.cfg.Metrics))
	}
	mux.Handle("/debug/pprof/", g.admins(profiles()))
	end := func() {}
	if s.cfg.Dashboard != nil {
		dash, err := s.cfg.Dashboard(conn)
		if err != nil {
			return nil, nil, fmt.Errorf("prepare the dashboard: %w", err)
		}
		mux.Handle("/", dash)
		end = dash.Close
	}
	return web.WithSession(g.admitVisitors(g.following(mux))), end, nil
}

// profiles answers with what Go's pprof tells about this process.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func openapi(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(vedettev1.OpenAPI())
}

// pictureHandler serves a camera's newest picture as a plain file.
type pictureHandler struct {
	cameras vedettev1.CameraServiceClient
}

func (p *pictureHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := outgoing(r.Context(), r)
	req := &vedettev1.GetSnapshotRequest{Name: "cameras/" + r.PathValue("camera")}
	for name, to := range map[string]*int32{"max_width": &req.MaxWidth, "quality": &req.Quality} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			http.Error(w, name+" is not a number", http.StatusBadRequest)
			return
		}
		*to = int32(n)
	}
	if text := r.URL.Query().Get("main"); text != "" {
		on, err := strconv.ParseBool(text)
		if err != nil {
			http.Error(w, "main is neither true nor false", http.StatusBadRequest)
			return
		}
		req.Main = on
	}
	s, err := p.cameras.GetSnapshot(ctx, req)
	if err != nil {
		runtime.DefaultHTTPErrorHandler(ctx, runtime.NewServeMux(), &runtime.JSONPb{}, w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "image/jpeg")
	h.Set("Content-Length", strconv.Itoa(len(s.GetJpeg())))
	h.Set("Cache-Control", "no-cache")
	h.Set("Last-Modified", s.GetCaptureTime().AsTime().UTC().Format(http.TimeFormat))
	h.Set("X-Vedette-Capture-Time", s.GetCaptureTime().AsTime().UTC().Format(time.RFC3339Nano))
	h.Set("X-Vedette-Stream-Epoch", s.GetStreamEpoch())
	h.Set("X-Vedette-Frame", strconv.FormatInt(s.GetFrame(), 10))
	h.Set("X-Content-Type-Options", "nosniff")
	etag := fmt.Sprintf("%q", s.GetStreamEpoch()+"-"+strconv.FormatInt(s.GetFrame(), 10))
	h.Set("Etag", etag)
	if strings.Contains(r.Header.Get("If-None-Match"), etag) {
		h.Del("Content-Length")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(s.GetJpeg())
}
