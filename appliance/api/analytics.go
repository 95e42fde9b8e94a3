package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/store"
)

type analyticsService struct {
	vedettev1.UnimplementedAnalyticsServiceServer
	cfg      *Config
	stopping context.Context //nolint:containedctx // ends the streams, whose life is that of the server

	observed observedWindows

	mu        sync.Mutex // guards sequences
	sequences map[int64]store.Sequence
}

func (s *analyticsService) ListTracks(ctx context.Context, req *vedettev1.ListTracksRequest) (*vedettev1.ListTracksResponse, error) {
	q, err := s.cfg.query(ctx, req.GetParent(), req.GetFilter(), req.GetOrderBy(), "start_time", trackFields())
	if err != nil {
		return nil, err
	}
	if q.PageSize, err = pageSize(req.GetPageSize(), 50, 1000); err != nil {
		return nil, err
	}
	q.PageToken = req.GetPageToken()
	list, next, err := s.cfg.Store.ListTracks(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &vedettev1.ListTracksResponse{NextPageToken: next, Tracks: make([]*vedettev1.Track, len(list))}
	for i := range list {
		resp.Tracks[i] = s.track(ctx, &list[i])
	}
	return resp, nil
}

func (s *analyticsService) GetTrack(ctx context.Context, req *vedettev1.GetTrackRequest) (*vedettev1.Track, error) {
	t, err := s.named(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	v := s.track(ctx, &t)
	for _, p := range t.Path {
		v.Path = append(v.Path, &vedettev1.TrackPoint{Time: timestamppb.New(p.Time), X: p.X, Y: p.Y})
	}
	return v, nil
}

// named reads the track of a name.
func (s *analyticsService) named(ctx context.Context, name string) (store.Track, error) {
	camera, id, ok := strings.Cut(name, "/tracks/")
	if !ok {
		return store.Track{}, invalid("name", "%q is not of the form cameras/{camera}/tracks/{track}", name)
	}
	track, err := store.ParseTrackID(id)
	if err != nil {
		return store.Track{}, invalid("name", "%q is no track", id)
	}
	t, err := s.cfg.Store.GetTrack(ctx, track)
	if err == nil && cameras.Name(t.Camera) != camera {
		err = fmt.Errorf("%s: %w", name, store.ErrNotFound)
	}
	return t, err
}

func (s *analyticsService) ListDetections(ctx context.Context, req *vedettev1.ListDetectionsRequest) (*vedettev1.ListDetectionsResponse, error) {
	q, err := s.cfg.query(ctx, req.GetParent(), req.GetFilter(), req.GetOrderBy(), "capture_time", detectionFields())
	if err != nil {
		return nil, err
	}
	if q.PageSize, err = pageSize(req.GetPageSize(), 500, 10000); err != nil {
		return nil, err
	}
	switch req.GetTimeBasis() {
	case vedettev1.TimeBasis_TIME_BASIS_UNSPECIFIED, vedettev1.TimeBasis_TIME_BASIS_CAPTURE:
	case vedettev1.TimeBasis_TIME_BASIS_RECEIVE:
		q.Received = true
	default:
		return nil, invalid("time_basis", "%d is no clock", req.GetTimeBasis())
	}
	q.PageToken = req.GetPageToken()
	list, next, err := s.cfg.Store.ListDetections(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &vedettev1.ListDetectionsResponse{NextPageToken: next, Detections: make([]*vedettev1.Detection, len(list))}
	for i := range list {
		d := &list[i]
		resp.Detections[i] = &vedettev1.Detection{
			Camera: cameras.Name(d.Camera), CaptureTime: timestamppb.New(d.CaptureTime), ReceiveTime: timestamppb.New(d.ReceiveTime), Frame: d.Frame, Sequence: d.Sequence,
			Box: box(d.Box), Class: d.Class, Score: d.Score, Track: trackName(d.Camera, store.TrackID{Sequence: d.Sequence, Local: d.Local}),
		}
	}
	return resp, nil
}

// WatchAnalytics begins to listen before it reads the open tracks, so that nothing falls between.
func (s *analyticsService) WatchAnalytics(req *vedettev1.WatchAnalyticsRequest, out vedettev1.AnalyticsService_WatchAnalyticsServer) error {
	w := &analyticsWatch{service: s, req: req, out: out, open: map[store.TrackID]bool{}}
	if err := w.selectCameras(req.GetCameras()); err != nil {
		return err
	}
	beat, err := heartbeatInterval(req.GetHeartbeatInterval())
	if err != nil {
		return err
	}
	var last uint64
	if t := req.GetResumeToken(); t != "" {
		if last, err = parseResumeToken(t); err != nil {
			return err
		}
	}
	ctx, cancel := until(out.Context(), s.stopping)
	defer cancel()
	w.sub = s.cfg.Store.Subscribe(last)
	if req.GetResumeToken() == "" {
		if err := w.snapshot(ctx); err != nil {
			return err
		}
	}
	for {
		commit, err := nextWithin(ctx, beat, w.sub.Next)
		switch {
		case errors.Is(err, errBeat):
			err = w.heartbeat()
		case err == nil:
			err = w.commit(ctx, &commit)
		}
		if err != nil {
			return err
		}
	}
}

// analyticsWatch is one reader's stream. Its memory is bounded by the tracks open at once.
type analyticsWatch struct {
	service *analyticsService
	req     *vedettev1.WatchAnalyticsRequest
	out     vedettev1.AnalyticsService_WatchAnalyticsServer
	cameras map[string]bool // nil: all
	seq     int64
	sub     *store.Subscription
	open    map[store.TrackID]bool
}

func (w *analyticsWatch) selectCameras(names []string) error {
	for _, name := range names {
		id, err := cameras.ID(name)
		if err != nil {
			return err
		}
		if _, err := w.service.cfg.Cameras.Get(name); err != nil { // a misspelt name would wait for ever
			return err
		}
		if w.cameras == nil {
			w.cameras = map[string]bool{}
		}
		w.cameras[id] = true
	}
	return nil
}

func (w *analyticsWatch) wants(camera string) bool { return w.cameras == nil || w.cameras[camera] }

func (w *analyticsWatch) send(m *vedettev1.WatchAnalyticsResponse) error {
	w.seq++
	m.Seq = w.seq
	return w.out.Send(m)
}

func (w *analyticsWatch) snapshot(ctx context.Context) error {
	for token := ""; ; {
		list, next, err := w.service.cfg.Store.ListTracks(ctx, store.Query{State: store.TrackActive, PageSize: 1000, PageToken: token, Ascending: true})
		if err != nil {
			return err
		}
		for i := range list {
			if err := w.track(ctx, &list[i], vedettev1.ChangeKind_CHANGE_KIND_SNAPSHOT); err != nil {
				return err
			}
		}
		if token = next; token == "" {
			break
		}
	}
	return w.send(&vedettev1.WatchAnalyticsResponse{Item: &vedettev1.WatchAnalyticsResponse_Synced{Synced: &vedettev1.Synced{ResumeToken: resumeToken(w.sub.Seen())}}})
}

func (w *analyticsWatch) heartbeat() error {
	h := &vedettev1.Heartbeat{ServerTime: timestamppb.New(w.service.cfg.Now()), ResumeToken: resumeToken(w.sub.Seen())}
	return w.send(&vedettev1.WatchAnalyticsResponse{Item: &vedettev1.WatchAnalyticsResponse_Heartbeat{Heartbeat: h}})
}

func (w *analyticsWatch) commit(ctx context.Context, c *store.Commit) error {
	if c.Missed > 0 {
		gap := &vedettev1.Gap{Dropped: int64(c.Missed), ToTime: timestamppb.New(c.Time)}
		if err := w.send(&vedettev1.WatchAnalyticsResponse{Item: &vedettev1.WatchAnalyticsResponse_Gap{Gap: gap}}); err != nil {
			return err
		}
	}
	if !w.req.GetOmitFrames() {
		frames, err := w.service.observed.of(c)
		if err != nil {
			return err
		}
		for i := range frames {
			if !w.wants(c.Frames[i].Camera) {
				continue
			}
			w.seq++
			if err := w.out.SendMsg(&observed{w.seq, frames[i].camera, frames[i].frame}); err != nil {
				return err
			}
		}
	}
	for i := range c.Tracks {
		kind := vedettev1.ChangeKind_CHANGE_KIND_MODIFIED
		if !w.open[c.Tracks[i].ID] {
			kind = vedettev1.ChangeKind_CHANGE_KIND_ADDED
		}
		if err := w.track(ctx, &c.Tracks[i], kind); err != nil {
			return err
		}
	}
	return nil
}

func (w *analyticsWatch) track(ctx context.Context, t *store.Track, kind vedettev1.ChangeKind) error {
	if !w.wants(t.Camera) {
		return nil
	}
	if t.State == store.TrackEnded {
		delete(w.open, t.ID)
		kind = vedettev1.ChangeKind_CHANGE_KIND_REMOVED
	} else {
		w.open[t.ID] = true
	}
	return w.send(&vedettev1.WatchAnalyticsResponse{Item: &vedettev1.WatchAnalyticsResponse_Track{
		Track: &vedettev1.TrackChange{Kind: kind, Track: w.service.track(ctx, t)},
	}})
}

// track is a track as the API shows it, without its path.
func (s *analyticsService) track(ctx context.Context, t *store.Track) *vedettev1.Track {
	v := &vedettev1.Track{
		Name: trackName(t.Camera, t.ID), Camera: cameras.Name(t.Camera), Sequence: t.ID.Sequence, LocalId: t.ID.Local,
		Class: t.Class, Score: t.Score, StartTime: timestamppb.New(t.Start), EndTime: timestamppb.New(t.End),
		State: vedettev1.TrackState_TRACK_STATE_OPEN, EndReason: t.EndReason, Observations: t.Detections, Box: box(t.Box),
	}
	v.Picture = pictureOf(v.GetName(), t.Picture)
	if t.State == store.TrackEnded {
		v.State = vedettev1.TrackState_TRACK_STATE_ENDED
	}
	if q, ok := s.sequence(ctx, t.ID.Sequence); ok {
		v.StreamEpoch, v.Model = q.StreamEpoch, q.Model
		if q.ModelVersion != "" {
			v.Model += ":" + q.ModelVersion
		}
	}
	return v
}

// sequence remembers what never changes of a sequence; lists name the same few again and again.
func (s *analyticsService) sequence(ctx context.Context, id int64) (store.Sequence, bool) {
	s.mu.Lock()
	q, ok := s.sequences[id]
	s.mu.Unlock()
	if ok {
		return q, true
	}
	q, err := s.cfg.Store.GetSequence(ctx, id)
	if err != nil {
		return store.Sequence{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sequences == nil || len(s.sequences) >= 4096 {
		s.sequences = map[int64]store.Sequence{}
	}
	s.sequences[id] = q
	return q, true
}

func trackName(camera string, id store.TrackID) string {
	if id.Local == 0 {
		return ""
	}
	return cameras.Name(camera) + "/tracks/" + id.String()
}

func box(b store.Box) *vedettev1.Box {
	return &vedettev1.Box{XMin: b.X1, YMin: b.Y1, XMax: b.X2, YMax: b.Y2}
}

// query is query for a camera that is, or was, there: of any other there is no list, not even an empty one.
func (cfg *Config) query(ctx context.Context, parent, filter, orderBy, timeField string, fields map[string]field) (store.Query, error) {
	q, err := query(parent, filter, orderBy, timeField, fields)
	if scope := cameras.Scope(ctx); scope != nil {
		q.Cameras = narrowed(q.Cameras, scope)
	}
	if err != nil || parent == "" || parent == cameras.Name("-") {
		return q, err
	}
	if _, err := cfg.Cameras.Get(parent); !errors.Is(err, store.ErrNotFound) {
		return q, err
	}
	known, err := cfg.Store.HasSequences(ctx, q.Cameras[0])
	if err == nil && !known {
		err = fmt.Errorf("%s: %w", parent, store.ErrNotFound)
	}
	return q, err
}

// narrowed are the cameras to look at for somebody who may know of those in scope alone, and of what the box itself tells.
func narrowed(asked, scope []string) []string {
	if len(asked) == 0 {
		return append([]string{""}, scope...)
	}
	mine := slices.DeleteFunc(slices.Clone(asked), func(id string) bool { return !slices.Contains(scope, id) })
	if len(mine) == 0 {
		return []string{"-"} // no camera is called so
	}
	return mine
}

// query reads what the list methods have in common.
func query(parent, filter, orderBy, timeField string, fields map[string]field) (store.Query, error) {
	var q store.Query
	switch strings.Join(strings.Fields(orderBy), " ") {
	case "", timeField + " desc":
	case timeField, timeField + " asc":
		q.Ascending = true
	default:
		return q, invalid("order_by", "%q is neither %q nor %q", orderBy, timeField+" desc", timeField)
	}
	if err := applyFilter(&q, filter, fields); err != nil {
		return q, err
	}
	if parent != "" && parent != cameras.Name("-") {
		id, err := cameras.ID(parent)
		if err != nil {
			return q, invalid("parent", "%q is not of the form cameras/{camera}", parent)
		}
		if len(q.Cameras) > 0 && !slices.Equal(q.Cameras, []string{id}) {
			return q, invalid("filter", "names another camera than parent does")
		}
		q.Cameras = []string{id}
	}
	return q, nil
}
