package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/store"
)

// Pictures and clips are files on disk. They are read here alone, behind the gate, and the HTTP handlers at the end of
// this file are clients like any other.

// GetTrackPicture implements vedettev1.AnalyticsServiceServer.
func (s *analyticsService) GetTrackPicture(ctx context.Context, req *vedettev1.GetTrackPictureRequest) (*vedettev1.GetTrackPictureResponse, error) {
	t, err := s.named(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	if t.Picture == "" {
		return nil, fmt.Errorf("%s has no picture: %w", req.GetName(), store.ErrNotFound)
	}
	jpeg, err := s.cfg.Store.ReadMedia(t.Start, t.Picture)
	if err != nil {
		return nil, fmt.Errorf("the picture of %s: %w", req.GetName(), err)
	}
	return &vedettev1.GetTrackPictureResponse{Jpeg: jpeg}, nil
}

// GetEvent implements vedettev1.EventServiceServer.
func (s *eventService) GetEvent(ctx context.Context, req *vedettev1.GetEventRequest) (*vedettev1.Event, error) {
	e, err := s.named(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return event(&e), nil
}

// named reads the event of a name.
func (s *eventService) named(ctx context.Context, name string) (store.Event, error) {
	camera, id, ok := strings.Cut(name, "/events/")
	seq, err := strconv.ParseInt(id, 10, 64)
	if _, bad := cameras.ID(camera); !ok || err != nil || bad != nil || seq <= 0 || strconv.FormatInt(seq, 10) != id {
		return store.Event{}, invalid("name", "%q is not of the form cameras/{camera}/events/{event}", name)
	}
	e, err := s.cfg.Store.GetEvent(ctx, seq)
	if err == nil && cameras.Name(e.Camera) != camera {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Event{}, fmt.Errorf("%s: %w", name, err)
	}
	return e, nil
}

// media reads what of a kind is kept of an event.
func (s *eventService) media(ctx context.Context, name string, kind store.MediaKind, what string) (store.Media, []byte, error) {
	e, err := s.named(ctx, name)
	if err != nil {
		return store.Media{}, nil, err
	}
	for _, m := range e.Media {
		if m.Kind == kind {
			b, err := s.cfg.Store.ReadMedia(m.Time, m.File)
			if err != nil {
				return store.Media{}, nil, fmt.Errorf("the %s of %s: %w", what, name, err)
			}
			return m, b, nil
		}
	}
	return store.Media{}, nil, fmt.Errorf("%s has no %s: %w", name, what, store.ErrNotFound)
}

// GetEventSnapshot implements vedettev1.EventServiceServer.
func (s *eventService) GetEventSnapshot(ctx context.Context, req *vedettev1.GetEventSnapshotRequest) (*vedettev1.GetEventSnapshotResponse, error) {
	m, jpeg, err := s.media(ctx, req.GetName(), store.Snapshot, "snapshot")
	if err != nil {
		return nil, err
	}
	return &vedettev1.GetEventSnapshotResponse{Jpeg: jpeg, CaptureTime: timestamppb.New(m.Start)}, nil
}

// clipPart is how much of a clip travels in one message.
const clipPart = 256 << 10

// GetEventClip implements vedettev1.EventServiceServer.
func (s *eventService) GetEventClip(req *vedettev1.GetEventClipRequest, out vedettev1.EventService_GetEventClipServer) error {
	m, mp4, err := s.media(out.Context(), req.GetName(), store.Clip, "clip")
	if err != nil {
		return err
	}
	total := int64(len(mp4))
	for len(mp4) > 0 {
		n := min(len(mp4), clipPart)
		part := &vedettev1.GetEventClipResponse{Mp4: mp4[:n], TotalBytes: total, StartTime: timestamppb.New(m.Start), EndTime: timestamppb.New(m.End)}
		if err := out.Send(part); err != nil {
			return err
		}
		mp4 = mp4[n:]
	}
	return nil
}

// setMedia says where what is kept of an event can be fetched.
func setMedia(v *vedettev1.Event, media []store.Media) {
	for _, m := range media {
		switch m.Kind {
		case store.Snapshot:
			v.Snapshot = "/v1/" + v.GetName() + "/snapshot.jpg"
		case store.Clip:
			v.Clip = "/v1/" + v.GetName() + "/clip.mp4"
		}
	}
}

func pictureOf(name, file string) string {
	if file == "" {
		return ""
	}
	return "/v1/" + name + "/picture.jpg"
}

// mediaHandler serves pictures and clips as plain files, with ranges.
type mediaHandler struct {
	analytics vedettev1.AnalyticsServiceClient
	events    vedettev1.EventServiceClient
}

// file is what a plain file is served from.
type file struct {
	content []byte
	kind    string
	at      time.Time
	// settled: it never changes.
	settled bool
}

func (h *mediaHandler) register(mux *http.ServeMux) {
	for pattern, get := range map[string]func(context.Context, *http.Request) (file, error){
		"/v1/cameras/{camera}/tracks/{track}/picture.jpg":  h.picture,
		"/v1/cameras/{camera}/events/{event}/snapshot.jpg": h.snapshot,
		"/v1/cameras/{camera}/events/{event}/clip.mp4":     h.clip,
	} {
		mux.Handle(pattern, readOnly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, get) })))
	}
}

// readOnly refuses what is neither GET nor HEAD.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			routingFault(r.Context(), runtime.NewServeMux(), &runtime.JSONPb{}, w, r, http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h *mediaHandler) serve(w http.ResponseWriter, r *http.Request, get func(context.Context, *http.Request) (file, error)) {
	ctx := outgoing(r.Context(), r)
	f, err := get(ctx, r)
	if err != nil {
		jsonFault(ctx, runtime.NewServeMux(), &runtime.JSONPb{}, w, r, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", f.kind)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "private, no-cache")
	if f.settled {
		header.Set("Cache-Control", "private, max-age=86400, immutable")
	}
	header.Set("Etag", fmt.Sprintf(`"%x"`, hash(string(f.content))[:12]))
	http.ServeContent(w, r, "", f.at, bytes.NewReader(f.content))
}

// outgoing is ctx for calls on behalf of a request.
func outgoing(ctx context.Context, r *http.Request) context.Context {
	if auth := r.Header.Get("Authorization"); auth != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", auth)
	}
	return ctx
}

func (h *mediaHandler) picture(ctx context.Context, r *http.Request) (file, error) {
	p, err := h.analytics.GetTrackPicture(ctx, &vedettev1.GetTrackPictureRequest{
		Name: "cameras/" + r.PathValue("camera") + "/tracks/" + r.PathValue("track"),
	})
	return file{content: p.GetJpeg(), kind: "image/jpeg"}, err // a better one may come
}

func eventName(r *http.Request) string {
	return "cameras/" + r.PathValue("camera") + "/events/" + r.PathValue("event")
}

func (h *mediaHandler) snapshot(ctx context.Context, r *http.Request) (file, error) {
	p, err := h.events.GetEventSnapshot(ctx, &vedettev1.GetEventSnapshotRequest{Name: eventName(r)})
	return file{content: p.GetJpeg(), kind: "image/jpeg", at: p.GetCaptureTime().AsTime(), settled: true}, err
}

func (h *mediaHandler) clip(ctx context.Context, r *http.Request) (file, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := h.events.GetEventClip(ctx, &vedettev1.GetEventClipRequest{Name: eventName(r)})
	if err != nil {
		return file{}, err
	}
	f := file{kind: "video/mp4", settled: true}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return file{}, err
		}
		f.content, f.at = append(f.content, part.GetMp4()...), part.GetEndTime().AsTime()
	}
}
