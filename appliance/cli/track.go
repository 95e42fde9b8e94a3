package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type trackCommands struct {
	List    trackList    `cmd:"" help:"List tracks, newest first."`
	Get     trackGet     `cmd:"" help:"Show one track."`
	Picture trackPicture `cmd:"" help:"Save the best picture of a track."`
	Watch   trackWatch   `cmd:"" help:"Print tracks as they begin and end."`
}

type trackList struct {
	client
	Filter string `help:"Such as: camera = \"door\" AND class = \"person\" AND start_time >= \"2026-05-01T00:00:00Z\"."`
	Limit  int32  `default:"50" help:"How many at most; 0: all."`
}

// Run lists tracks.
func (c *trackList) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		list, err := pages(c.Limit, 1000, func(size int32, token string) ([]*vedettev1.Track, string, error) {
			r, err := vedettev1.NewAnalyticsServiceClient(conn).ListTracks(ctx, &vedettev1.ListTracksRequest{Filter: c.Filter, PageSize: size, PageToken: token})
			return r.GetTracks(), r.GetNextPageToken(), err
		})
		if err != nil {
			return err
		}
		return show(&c.client, env, trackHeader(), list, trackRow)
	})
}

func trackHeader() []string {
	return []string{"TRACK", "CAMERA", "CLASS", "SCORE", "START", "SECONDS", "SEEN", "STATE"}
}

func trackRow(t *vedettev1.Track) []string {
	state := strings.TrimPrefix(t.GetState().String(), "TRACK_STATE_")
	if t.GetEndReason() != "" {
		state += " (" + t.GetEndReason() + ")"
	}
	return []string{
		t.GetName()[strings.LastIndexByte(t.GetName(), '/')+1:], shortName(t.GetCamera()), t.GetClass(), fmt.Sprintf("%.2f", t.GetScore()),
		t.GetStartTime().AsTime().Local().Format("2006-01-02 15:04:05.000"),
		fmt.Sprintf("%.1f", t.GetEndTime().AsTime().Sub(t.GetStartTime().AsTime()).Seconds()), fmt.Sprint(t.GetObservations()), state,
	}
}

type trackWatch struct {
	client
	Camera []string `help:"Only these cameras."`
}

// Run prints changes until ctx ends.
func (c *trackWatch) Run(ctx context.Context, env *Env, g *grammar) error {
	rpcCtx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	req := &vedettev1.WatchAnalyticsRequest{OmitFrames: true}
	for _, id := range c.Camera {
		req.Cameras = append(req.Cameras, fullName(id))
	}
	watch, err := vedettev1.NewAnalyticsServiceClient(conn).WatchAnalytics(rpcCtx, req)
	if err != nil {
		return plain(err)
	}
	for {
		m, err := watch.Recv()
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return plain(err)
		}
		if err := c.show(env, m); err != nil {
			return err
		}
	}
}

func (c *trackWatch) show(env *Env, m *vedettev1.WatchAnalyticsResponse) error {
	if c.Output == "json" {
		return printJSON(env.Stdout, m)
	}
	switch item := m.GetItem().(type) {
	case *vedettev1.WatchAnalyticsResponse_Track:
		kind := item.Track.GetKind()
		if kind == vedettev1.ChangeKind_CHANGE_KIND_MODIFIED {
			return nil
		}
		r := trackRow(item.Track.GetTrack())
		_, err := fmt.Fprintf(env.Stdout, "%s  %-8s  %-12s  %-12s  %-10s  %s  %ss  %s\n",
			time.Now().Format("15:04:05.000"), strings.ToLower(strings.TrimPrefix(kind.String(), "CHANGE_KIND_")), r[1], r[0], r[2], r[3], r[5], r[7])
		return err
	case *vedettev1.WatchAnalyticsResponse_Gap:
		_, err := fmt.Fprintf(env.Stdout, "-- %d commits were missed: this reader was too slow\n", item.Gap.GetDropped())
		return err
	}
	return nil
}

type trackGet struct {
	client
	Track string `arg:"" help:"CAMERA/TRACK, as list names them."`
}

// Run shows a track; as JSON, with its path.
func (c *trackGet) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		t, err := vedettev1.NewAnalyticsServiceClient(conn).GetTrack(ctx, &vedettev1.GetTrackRequest{Name: childName(c.Track, "tracks")})
		if err != nil {
			return err
		}
		return show(&c.client, env, trackHeader(), []*vedettev1.Track{t}, trackRow)
	})
}

type trackPicture struct {
	client
	Track string `arg:"" help:"CAMERA/TRACK, as list names them."`
	To    string `placeholder:"FILE" help:"Where to save it; - is standard output. Default: TRACK.jpg."`
}

// Run saves the picture.
func (c *trackPicture) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		r, err := vedettev1.NewAnalyticsServiceClient(conn).GetTrackPicture(ctx, &vedettev1.GetTrackPictureRequest{Name: childName(c.Track, "tracks")})
		if err != nil {
			return err
		}
		return save(env, orElse(c.To, lastPart(c.Track)+".jpg"), r.GetJpeg())
	})
}
