package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
	"github.com/vedette/vedette/store/transfer"
)

// motFlags describe frames to the MOT format, which has neither their size nor their times.
type motFlags struct {
	MotSize     string        `name:"mot-size" placeholder:"WxH" help:"Size of the frames in pixels (MOT)."`
	MotStart    time.Time     `name:"mot-start" placeholder:"TIME" help:"Capture time of frame 1 (MOT)."`
	MotInterval time.Duration `name:"mot-interval" help:"From frame to frame; 40ms by default (MOT)."`
}

func (m *motFlags) config(camera string) (transfer.MOTConfig, error) {
	cfg := transfer.MOTConfig{Camera: camera, Start: m.MotStart, Interval: m.MotInterval}
	if m.MotSize == "" {
		return cfg, nil
	}
	if n, err := fmt.Sscanf(m.MotSize, "%dx%d", &cfg.Width, &cfg.Height); n != 2 || err != nil {
		return cfg, fmt.Errorf("--mot-size %q is not of the form 1920x1080", m.MotSize)
	}
	return cfg, nil
}

type exportCommand struct {
	client
	motFlags
	What   string    `arg:"" enum:"detections,tracks" help:"detections or tracks."`
	Format string    `default:"jsonl" enum:"parquet,csv,jsonl,mot" help:"parquet, csv, jsonl or mot (detections of one camera)."`
	Camera []string  `help:"Only these cameras."`
	Class  []string  `help:"Only these classes."`
	Start  time.Time `placeholder:"TIME" help:"From this time on, such as 2026-05-01T00:00:00Z."`
	End    time.Time `placeholder:"TIME" help:"Before this time."`
	To     string    `default:"-" placeholder:"FILE" help:"Where to write; - is standard output."`
}

// Run exports history, also from a box far away.
func (c *exportCommand) Run(ctx context.Context, env *Env, g *grammar) (err error) {
	format, err := transfer.ParseFormat(c.Format)
	if err != nil {
		return err
	}
	mot, err := c.config(strings.Join(c.Camera, ","))
	if err != nil {
		return err
	}
	to := env.Stdout
	if c.To != "-" {
		f, err := os.Create(c.To)
		if err != nil {
			return fmt.Errorf("--to: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		to = f
	}
	q := store.Query{Cameras: c.Camera, Classes: c.Class, Start: c.Start, End: c.End}
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		from := &remoteHistory{client: vedettev1.NewAnalyticsServiceClient(conn)}
		var n int64
		if c.What == "tracks" {
			n, err = transfer.ExportTracks(ctx, from, q, format, to)
		} else {
			n, err = transfer.ExportDetections(ctx, from, q, format, mot, to)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stderr, "%d %s\n", n, c.What)
		return err
	})
}

// remoteHistory reads the history of a box over its API.
type remoteHistory struct {
	client vedettev1.AnalyticsServiceClient
	names  map[store.TrackID]string // of the tracks that were listed last
}

func filterOf(q store.Query, timeField string) string {
	var parts []string
	oneOf := func(field string, values []string) {
		var either []string
		for _, v := range values {
			either = append(either, fmt.Sprintf("%s = %q", field, v))
		}
		if len(either) > 0 {
			parts = append(parts, "("+strings.Join(either, " OR ")+")")
		}
	}
	oneOf("camera", q.Cameras)
	oneOf("class", q.Classes)
	if !q.Start.IsZero() {
		parts = append(parts, fmt.Sprintf("%s >= %q", timeField, q.Start.UTC().Format(time.RFC3339Nano)))
	}
	if !q.End.IsZero() {
		parts = append(parts, fmt.Sprintf("%s < %q", timeField, q.End.UTC().Format(time.RFC3339Nano)))
	}
	return strings.Join(parts, " AND ")
}

// ListDetections reads a page.
func (h *remoteHistory) ListDetections(ctx context.Context, q store.Query) ([]store.Detection, string, error) {
	r, err := h.client.ListDetections(ctx, &vedettev1.ListDetectionsRequest{
		Filter: filterOf(q, "time"), PageSize: int32(q.PageSize), PageToken: q.PageToken, OrderBy: "capture_time",
	})
	if err != nil {
		return nil, "", err
	}
	list := make([]store.Detection, len(r.GetDetections()))
	for i, d := range r.GetDetections() {
		list[i] = store.Detection{
			Sequence: d.GetSequence(), Camera: shortName(d.GetCamera()), CaptureTime: d.GetCaptureTime().AsTime(), ReceiveTime: d.GetCaptureTime().AsTime(),
			Frame: d.GetFrame(), Object: store.Object{Class: d.GetClass(), Score: d.GetScore(), Box: storeBox(d.GetBox())},
		}
		if d.GetTrack() == "" {
			continue
		}
		id, err := store.ParseTrackID(lastPart(d.GetTrack()))
		if err != nil {
			return nil, "", err
		}
		list[i].Local = id.Local
	}
	return list, r.GetNextPageToken(), nil
}

// ListTracks reads a page.
func (h *remoteHistory) ListTracks(ctx context.Context, q store.Query) ([]store.Track, string, error) {
	r, err := h.client.ListTracks(ctx, &vedettev1.ListTracksRequest{
		Filter: filterOf(q, "start_time"), PageSize: int32(q.PageSize), PageToken: q.PageToken, OrderBy: "start_time",
	})
	if err != nil {
		return nil, "", err
	}
	list := make([]store.Track, len(r.GetTracks()))
	h.names = map[store.TrackID]string{}
	for i, t := range r.GetTracks() {
		list[i] = storeTrack(t)
		h.names[list[i].ID] = t.GetName()
	}
	return list, r.GetNextPageToken(), nil
}

// GetTrack reads a track that was listed.
func (h *remoteHistory) GetTrack(ctx context.Context, id store.TrackID) (store.Track, error) {
	t, err := h.client.GetTrack(ctx, &vedettev1.GetTrackRequest{Name: h.names[id]})
	if status.Code(err) == codes.NotFound {
		return store.Track{}, store.ErrNotFound
	}
	if err != nil {
		return store.Track{}, err
	}
	return storeTrack(t), nil
}

func storeBox(b *vedettev1.Box) store.Box {
	return store.Box{X1: b.GetXMin(), Y1: b.GetYMin(), X2: b.GetXMax(), Y2: b.GetYMax()}
}

func storeTrack(t *vedettev1.Track) store.Track {
	v := store.Track{
		ID: store.TrackID{Sequence: t.GetSequence(), Local: t.GetLocalId()}, Camera: shortName(t.GetCamera()), Class: t.GetClass(), Start: t.GetStartTime().AsTime(),
		End: t.GetEndTime().AsTime(), State: store.TrackActive, EndReason: t.GetEndReason(), Score: t.GetScore(), Box: storeBox(t.GetBox()), Detections: t.GetObservations(),
	}
	if t.GetState() == vedettev1.TrackState_TRACK_STATE_ENDED {
		v.State = store.TrackEnded
	}
	for _, p := range t.GetPath() {
		v.Path = append(v.Path, store.Point{Time: p.GetTime().AsTime(), X: p.GetX(), Y: p.GetY()})
	}
	return v
}

type importCommand struct {
	motFlags
	What   string `arg:"" enum:"detections,tracks" help:"detections or tracks."`
	File   string `arg:"" type:"existingfile" help:"File to read."`
	Format string `default:"jsonl" enum:"parquet,csv,jsonl,mot" help:"parquet, csv, jsonl or mot (detections of one camera)."`
	Camera string `help:"Camera the file is of (MOT)."`
}

// Run imports history into the data directory of an appliance that does not run.
func (c *importCommand) Run(ctx context.Context, env *Env, g *grammar) (err error) {
	format, err := transfer.ParseFormat(c.Format)
	if err != nil {
		return err
	}
	mot, err := c.config(c.Camera)
	if err != nil {
		return err
	}
	from, err := os.Open(c.File)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	n, err := c.into(ctx, g.DataDir, format, mot, from)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "imported %d %s\n", n, c.What)
	return err
}

func (c *importCommand) into(ctx context.Context, dir string, f transfer.Format, mot transfer.MOTConfig, from io.Reader) (n int64, err error) {
	s := store.New(store.Config{Dir: dir})
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		return 0, fmt.Errorf("open %s: %w (importing needs the appliance stopped)", dir, err)
	}
	importer := transfer.NewImporter(s)
	if c.What == "tracks" {
		n, err = importer.Tracks(ctx, f, from)
	} else {
		n, err = importer.Detections(ctx, f, mot, from)
	}
	return n, errors.Join(err, importer.Close(ctx))
}
