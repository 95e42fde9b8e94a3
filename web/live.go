package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// liveEvent is one server-sent event: its name, and its data as JSON on one line.
type liveEvent struct {
	name string
	data []byte
}

// live carries everything that moves on the page over one connection: first who is looking, which holds for as long as the
// connection lasts, then cameras, analysed frames, tracks, events,
// processes, and with ?detail= what one screen alone shows: models, sinks, both of them (system), or the timing of a camera (cameras/door). It ends with the connection or when a watch of
// the API ends; the browser then connects again and begins with a new snapshot.
func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	ctx := authorised(r.Context(), r)
	// Who looks comes first: the page offers them what they may do. A refusal can still be an ordinary answer.
	session, err := s.cfg.Users.GetSession(ctx, &vedettev1.GetSessionRequest{})
	if err != nil {
		writeStatus(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")

	// Room for a burst of commits; a browser slower than that blocks its own watches, and the API tells it of
	// the gap.
	out := make(chan liveEvent, 64)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.watchCameras(ctx, out) })
	g.Go(func() error { return s.watchAnalytics(ctx, out) })
	g.Go(func() error { return s.watchEvents(ctx, out) })
	g.Go(func() error {
		return s.repeat(ctx, "system", out, func() (proto.Message, error) { return s.cfg.System.GetSystem(ctx, &vedettev1.GetSystemRequest{}) })
	})
	detail := r.URL.Query().Get("detail")
	if (detail == "models" || detail == "system") && s.cfg.Models != nil {
		g.Go(func() error {
			return s.repeat(ctx, "models", out, func() (proto.Message, error) { return s.models(ctx) })
		})
	}
	if (detail == "sinks" || detail == "system") && s.cfg.Sinks != nil {
		g.Go(func() error {
			return s.repeat(ctx, "sinks", out, func() (proto.Message, error) { return s.sinks(ctx) })
		})
	}
	if strings.HasPrefix(detail, "cameras/") {
		g.Go(func() error {
			return s.repeat(ctx, "timing", out, func() (proto.Message, error) { return s.timing(ctx, detail) })
		})
	}
	g.Go(func() error {
		b, err := protojson.Marshal(session)
		if err != nil {
			return fmt.Errorf("encode the session: %w", err)
		}
		if _, err := fmt.Fprintf(w, "retry: 1000\n\nevent: session\ndata: %s\n\n", b); err != nil {
			return fmt.Errorf("begin the live stream: %w", err)
		}
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case e := <-out:
				if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.name, e.data); err != nil {
					return fmt.Errorf("write to the live stream: %w", err)
				}
				if len(out) > 0 {
					continue
				}
				if err := rc.Flush(); err != nil {
					return fmt.Errorf("flush the live stream: %w", err)
				}
			}
		}
	})
	if err := g.Wait(); err != nil && r.Context().Err() == nil {
		// The page learns why before it connects again.
		b, _ := json.Marshal(map[string]string{"message": err.Error()})
		_, _ = fmt.Fprintf(w, "event: ended\ndata: %s\n\n", b)
	}
}

var errWatchEnded = errors.New("the appliance ended the watch")

// pump sends what receive returns until it fails or the context ends.
func pump(ctx context.Context, name string, out chan<- liveEvent, receive func() (proto.Message, error)) error {
	enc := protojson.MarshalOptions{UseEnumNumbers: false}
	for {
		m, err := receive()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", name, errWatchEnded)
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
		b, err := enc.Marshal(m)
		if err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
		select {
		case out <- liveEvent{name: name, data: b}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func heartbeat() *durationpb.Duration { return durationpb.New(5 * time.Second) }

func (s *Server) watchCameras(ctx context.Context, out chan<- liveEvent) error {
	stream, err := s.cfg.Cameras.WatchCameras(ctx, &vedettev1.WatchCamerasRequest{HeartbeatInterval: heartbeat()})
	if err != nil {
		return fmt.Errorf("watch cameras: %w", err)
	}
	return pump(ctx, "cameras", out, func() (proto.Message, error) { return stream.Recv() })
}

func (s *Server) watchAnalytics(ctx context.Context, out chan<- liveEvent) error {
	stream, err := s.cfg.Analytics.WatchAnalytics(ctx, &vedettev1.WatchAnalyticsRequest{HeartbeatInterval: heartbeat()})
	if err != nil {
		return fmt.Errorf("watch analytics: %w", err)
	}
	return pump(ctx, "analytics", out, func() (proto.Message, error) { return stream.Recv() })
}

func (s *Server) watchEvents(ctx context.Context, out chan<- liveEvent) error {
	stream, err := s.cfg.Events.WatchEvents(ctx, &vedettev1.WatchEventsRequest{HeartbeatInterval: heartbeat()})
	if err != nil {
		return fmt.Errorf("watch events: %w", err)
	}
	return pump(ctx, "events", out, func() (proto.Message, error) { return stream.Recv() })
}

// repeat sends what ask returns every two seconds: the API has no watch for it.
func (*Server) repeat(ctx context.Context, name string, out chan<- liveEvent, ask func() (proto.Message, error)) error {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	first := true
	return pump(ctx, name, out, func() (proto.Message, error) {
		if !first {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		first = false
		return ask()
	})
}

// models lists the models, or says as a model's state why it cannot: the stream goes on.
func (s *Server) models(ctx context.Context) (proto.Message, error) {
	list, err := s.cfg.Models.ListModels(ctx, &vedettev1.ListModelsRequest{})
	if err != nil && ctx.Err() == nil {
		return &vedettev1.ListModelsResponse{Models: []*vedettev1.Model{{State: "UNKNOWN", Reason: status.Convert(err).Message()}}}, nil
	}
	return list, err
}

// sinks lists the sinks, or says as the status of one without a name why it cannot: the stream goes on.
func (s *Server) sinks(ctx context.Context) (proto.Message, error) {
	list, err := s.cfg.Sinks.ListSinks(ctx, &vedettev1.ListSinksRequest{PageSize: 1000})
	if err != nil && ctx.Err() == nil {
		return &vedettev1.ListSinksResponse{Sinks: []*vedettev1.Sink{{Status: &vedettev1.DeliveryStatus{Message: status.Convert(err).Message()}}}}, nil
	}
	return list, err
}

// timing tells how long a camera's newest frames took; nothing of a camera that is not there.
func (s *Server) timing(ctx context.Context, camera string) (proto.Message, error) {
	t, err := s.cfg.Cameras.GetFrameTiming(ctx, &vedettev1.GetFrameTimingRequest{Name: camera})
	if err != nil && ctx.Err() == nil {
		return &vedettev1.FrameTiming{}, nil
	}
	return t, err
}
