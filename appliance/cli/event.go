package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type eventCommands struct {
	List     eventList     `cmd:"" help:"List events, newest first."`
	Get      eventGet      `cmd:"" help:"Show one event."`
	Watch    eventWatch    `cmd:"" help:"Print events as they happen."`
	Snapshot eventSnapshot `cmd:"" help:"Save the picture an event was found in."`
	Clip     eventClip     `cmd:"" help:"Save the video around an event."`
}

func eventHeader() []string {
	return []string{"EVENT", "TIME", "TYPE", "TRACK", "KEPT", "ABOUT"}
}

func eventRow(e *vedettev1.Event) []string {
	var about, kept []string
	for _, k := range slices.Sorted(maps.Keys(e.GetAttributes())) {
		about = append(about, k+"="+e.GetAttributes()[k])
	}
	if e.GetSnapshot() != "" {
		kept = append(kept, "snapshot")
	}
	if e.GetClip() != "" {
		kept = append(kept, "clip")
	}
	return []string{
		shortName(e.GetCamera()) + "/" + lastPart(e.GetName()), clock(e.GetTime()), e.GetType(), lastPart(e.GetTrack()), strings.Join(kept, "+"), strings.Join(about, " "),
	}
}

type eventList struct {
	client
	watching
	Filter string `help:"Such as: camera = \"door\" AND type = \"zone_entered\" AND time >= \"2026-05-01T00:00:00Z\"."`
	Limit  int32  `default:"50" help:"How many at most; 0: all."`
}

// Run lists events.
func (c *eventList) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		return c.again(ctx, env, func() error {
			list, err := pages(c.Limit, 1000, func(size int32, token string) ([]*vedettev1.Event, string, error) {
				r, err := vedettev1.NewEventServiceClient(conn).ListEvents(ctx, &vedettev1.ListEventsRequest{Filter: c.Filter, PageSize: size, PageToken: token})
				return r.GetEvents(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return show(&c.client, env, eventHeader(), list, eventRow)
		})
	})
}

type eventGet struct {
	client
	Event string `arg:"" help:"CAMERA/NUMBER, as list names it."`
}

// Run shows an event.
func (c *eventGet) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		e, err := vedettev1.NewEventServiceClient(conn).GetEvent(ctx, &vedettev1.GetEventRequest{Name: childName(c.Event, "events")})
		if err != nil {
			return err
		}
		return show(&c.client, env, eventHeader(), []*vedettev1.Event{e}, eventRow)
	})
}

type eventWatch struct {
	client
	Camera []string `help:"Only these cameras."`
}

// Run prints events until ctx ends.
func (c *eventWatch) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		req := &vedettev1.WatchEventsRequest{}
		for _, id := range c.Camera {
			req.Cameras = append(req.Cameras, fullName(id))
		}
		watch, err := vedettev1.NewEventServiceClient(conn).WatchEvents(ctx, req)
		if err != nil {
			return err
		}
		return follow(ctx, &c.client, env, watch.Recv, func(m *vedettev1.WatchEventsResponse) string {
			switch item := m.GetItem().(type) {
			case *vedettev1.WatchEventsResponse_Event:
				return strings.Join(eventRow(item.Event), "  ")
			case *vedettev1.WatchEventsResponse_Media:
				return strings.Join(eventRow(item.Media), "  ")
			case *vedettev1.WatchEventsResponse_Gap:
				return fmt.Sprintf("-- %d commits were missed: this reader was too slow", item.Gap.GetDropped())
			}
			return ""
		})
	})
}

type eventSnapshot struct {
	client
	Event string `arg:"" help:"CAMERA/NUMBER, as list names it."`
	To    string `placeholder:"FILE" help:"Where to save it; - is standard output. Default: NUMBER.jpg."`
}

// Run saves the snapshot.
func (c *eventSnapshot) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		r, err := vedettev1.NewEventServiceClient(conn).GetEventSnapshot(ctx, &vedettev1.GetEventSnapshotRequest{Name: childName(c.Event, "events")})
		if err != nil {
			return err
		}
		return save(env, orElse(c.To, lastPart(c.Event)+".jpg"), r.GetJpeg())
	})
}

type eventClip struct {
	client
	Event string `arg:"" help:"CAMERA/NUMBER, as list names it."`
	To    string `placeholder:"FILE" help:"Where to save it; - is standard output. Default: NUMBER.mp4."`
}

// Run saves the clip.
func (c *eventClip) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		stream, err := vedettev1.NewEventServiceClient(conn).GetEventClip(ctx, &vedettev1.GetEventClipRequest{Name: childName(c.Event, "events")})
		if err != nil {
			return err
		}
		var data []byte
		for {
			part, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return save(env, orElse(c.To, lastPart(c.Event)+".mp4"), data)
			}
			if err != nil {
				return err
			}
			data = append(data, part.GetMp4()...)
		}
	})
}

func orElse(v, standard string) string {
	if v == "" {
		return standard
	}
	return v
}
