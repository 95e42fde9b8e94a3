package api

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/store"
)

type eventService struct {
	vedettev1.UnimplementedEventServiceServer
	cfg      *Config
	stopping context.Context //nolint:containedctx // ends the streams, whose life is that of the server
}

func (s *eventService) ListEvents(ctx context.Context, req *vedettev1.ListEventsRequest) (*vedettev1.ListEventsResponse, error) {
	q, err := s.cfg.query(ctx, req.GetParent(), req.GetFilter(), req.GetOrderBy(), "time", eventFields())
	if err != nil {
		return nil, err
	}
	if q.PageSize, err = pageSize(req.GetPageSize(), 50, 1000); err != nil {
		return nil, err
	}
	q.PageToken = req.GetPageToken()
	list, next, err := s.cfg.Store.ListEvents(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &vedettev1.ListEventsResponse{NextPageToken: next, Events: make([]*vedettev1.Event, len(list))}
	for i := range list {
		resp.Events[i] = event(&list[i])
	}
	return resp, nil
}

func (s *eventService) WatchEvents(req *vedettev1.WatchEventsRequest, out vedettev1.EventService_WatchEventsServer) error {
	beat, err := heartbeatInterval(req.GetHeartbeatInterval())
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, name := range req.GetCameras() {
		id, err := cameras.ID(name)
		if err != nil {
			return err
		}
		wanted[id] = true
	}
	var last uint64
	if t := req.GetResumeToken(); t != "" {
		if last, err = parseResumeToken(t); err != nil {
			return err
		}
	}
	ctx, cancel := until(out.Context(), s.stopping)
	defer cancel()
	sub := s.cfg.Store.Subscribe(last)
	if err := out.Send(&vedettev1.WatchEventsResponse{Item: &vedettev1.WatchEventsResponse_Synced{Synced: &vedettev1.Synced{ResumeToken: resumeToken(sub.Seen())}}}); err != nil {
		return err
	}
	for {
		commit, err := nextWithin(ctx, beat, sub.Next)
		switch {
		case errors.Is(err, errBeat):
			h := &vedettev1.Heartbeat{ServerTime: timestamppb.New(s.cfg.Now()), ResumeToken: resumeToken(sub.Seen())}
			err = out.Send(&vedettev1.WatchEventsResponse{Item: &vedettev1.WatchEventsResponse_Heartbeat{Heartbeat: h}})
		case err == nil:
			err = s.sendEvents(out, &commit, wanted)
		}
		if err != nil {
			return err
		}
	}
}

func (s *eventService) sendEvents(out vedettev1.EventService_WatchEventsServer, commit *store.Commit, wanted map[string]bool) error {
	if commit.Missed > 0 {
		gap := &vedettev1.Gap{Dropped: int64(commit.Missed), ToTime: timestamppb.New(commit.Time)}
		if err := out.Send(&vedettev1.WatchEventsResponse{Item: &vedettev1.WatchEventsResponse_Gap{Gap: gap}}); err != nil {
			return err
		}
	}
	for i := range commit.Events {
		e := &commit.Events[i]
		if len(wanted) > 0 && !wanted[e.Camera] {
			continue
		}
		if err := out.Send(&vedettev1.WatchEventsResponse{Item: &vedettev1.WatchEventsResponse_Event{Event: event(e)}}); err != nil {
			return err
		}
	}
	return s.sendMedia(out, commit, wanted)
}

// sendMedia sends the events again whose pictures or clips are ready now.
func (s *eventService) sendMedia(out vedettev1.EventService_WatchEventsServer, commit *store.Commit, wanted map[string]bool) error {
	sent := map[int64]bool{}
	for _, m := range commit.Media {
		if sent[m.Event] || (len(wanted) > 0 && !wanted[m.Camera]) {
			continue
		}
		sent[m.Event] = true
		e, err := s.cfg.Store.GetEvent(out.Context(), m.Event)
		if errors.Is(err, store.ErrNotFound) { // retention was faster
			continue
		}
		if err != nil {
			return err
		}
		if err := out.Send(&vedettev1.WatchEventsResponse{Item: &vedettev1.WatchEventsResponse_Media{Media: event(&e)}}); err != nil {
			return err
		}
	}
	return nil
}

// event is an event as the API shows it. Its payload is a JSON object of strings.
func event(e *store.Event) *vedettev1.Event {
	v := &vedettev1.Event{
		Name: "events/" + strconv.FormatInt(e.Seq, 10), Type: e.Type, Time: timestamppb.New(e.Time), Track: trackName(e.Camera, e.Track),
	}
	if e.Camera != "" {
		v.Camera = cameras.Name(e.Camera)
		v.Name = v.Camera + "/" + v.Name
	}
	if len(e.Payload) > 0 {
		if err := json.Unmarshal(e.Payload, &v.Attributes); err != nil {
			v.Attributes = map[string]string{"payload": "unreadable"}
		}
	}
	setMedia(v, e.Media)
	return v
}
