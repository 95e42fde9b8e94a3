package rulebook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/rules"
	"github.com/vedette/vedette/store"
)

// Limits of what one request looks at.
const (
	maxTested    = 24 * time.Hour
	maxTestedSum = 2_000_000 // detections
	maxFired     = 10_000    // events of a test
	maxCounted   = 1_000_000 // events of a count
	maxBuckets   = 100_000
)

// TestRules implements vedettev1.RuleServiceServer.
func (b *Book) TestRules(ctx context.Context, req *vedettev1.TestRulesRequest) (*vedettev1.TestRulesResponse, error) {
	camera, err := b.camera(req.GetParent())
	if err != nil {
		return nil, err
	}
	start, end, err := b.window(req.GetStartTime(), req.GetEndTime(), time.Hour)
	if err != nil {
		return nil, err
	}
	if end.Sub(start) > maxTested {
		return nil, invalid("start_time", "the time to look at is %s, at most %s", end.Sub(start), maxTested)
	}
	set, err := drafts(req)
	if err != nil {
		return nil, err
	}
	if len(req.GetZones())+len(req.GetLines()) == 0 {
		set, _ = b.set(camera)
	}
	h := &seen{store: b.cfg.Store, query: store.Query{Cameras: []string{camera}, Start: start, End: end, Ascending: true, PageSize: 10_000}}
	resp := &vedettev1.TestRulesResponse{}
	for e := range rules.Replay(set, h.frames(ctx)) {
		if len(resp.Events) == maxFired {
			resp.StoppedTime = timestamppb.New(e.Time)
			break
		}
		v := &vedettev1.Event{Camera: req.GetParent(), Type: e.Type, Time: timestamppb.New(e.Time), Attributes: attributes(&e)}
		if e.Local != 0 {
			v.Track = fmt.Sprintf("%s/tracks/%s", req.GetParent(), store.TrackID{Sequence: e.Sequence, Local: e.Local})
		}
		resp.Events = append(resp.Events, v)
	}
	if h.err != nil {
		return nil, h.err
	}
	resp.Frames = h.n
	if !h.stopped.IsZero() && resp.StoppedTime == nil {
		resp.StoppedTime = timestamppb.New(h.stopped)
	}
	return resp, nil
}

// drafts are the rules of a request.
func drafts(req *vedettev1.TestRulesRequest) (set rules.Set, err error) {
	if n := len(req.GetZones()) + len(req.GetLines()); n > maxRules {
		return set, invalid("zones", "%d zones and lines, at most %d", n, maxRules)
	}
	f := &faults{}
	n := 0
	name := func(r rule) string {
		n++
		if r.GetName() != "" {
			return r.GetName()
		}
		return fmt.Sprintf("draft-%d", n)
	}
	for i, z := range req.GetZones() {
		f.prefix = fmt.Sprintf("zones[%d].", i)
		f.rule(z)
		c := compileZone(z)
		c.ID = name(z)
		set.Zones = append(set.Zones, c)
	}
	for i, l := range req.GetLines() {
		f.prefix = fmt.Sprintf("lines[%d].", i)
		f.rule(l)
		c := compileLine(l)
		c.ID = name(l)
		set.Lines = append(set.Lines, c)
	}
	return set, f.err()
}

// seen goes through what a camera saw.
type seen struct {
	store   *store.Store
	query   store.Query
	n       int64     // frames shown
	stopped time.Time // where it became too much
	err     error
}

func (h *seen) frames(ctx context.Context) iter.Seq[rules.Frame] {
	return func(yield func(rules.Frame) bool) {
		var f rules.Frame
		var sequence, number int64
		sum := 0
		for {
			list, next, err := h.store.ListDetections(ctx, h.query)
			if err != nil {
				h.err = err
				return
			}
			for i := range list {
				d := &list[i]
				if len(f.Objects) > 0 && (d.Sequence != sequence || d.Frame != number || !d.CaptureTime.Equal(f.Time)) {
					h.n++
					if !yield(f) {
						return
					}
					f.Objects = nil
				}
				f.Time, sequence, number = d.CaptureTime, d.Sequence, d.Frame
				if d.Local > 0 {
					f.Objects = append(f.Objects, object(d.Sequence, &d.Object))
				}
			}
			if sum += len(list); sum >= maxTestedSum && next != "" {
				h.stopped = f.Time
				return
			}
			if h.query.PageToken = next; next == "" {
				break
			}
		}
		if len(f.Objects) > 0 {
			h.n++
			yield(f)
		}
	}
}

// QueryCounts implements vedettev1.RuleServiceServer.
func (b *Book) QueryCounts(ctx context.Context, req *vedettev1.QueryCountsRequest) (*vedettev1.QueryCountsResponse, error) {
	camera, err := b.camera(req.GetParent())
	if errors.Is(err, store.ErrNotFound) { // what a camera counted stays when it goes
		camera, err = b.former(ctx, req.GetParent(), err)
	}
	if err != nil {
		return nil, err
	}
	start, end, err := b.window(req.GetStartTime(), req.GetEndTime(), 24*time.Hour)
	if err != nil {
		return nil, err
	}
	c := &rules.Counts{Length: time.Hour}
	if d := req.GetBucket(); d != nil && d.AsDuration() != 0 {
		if c.Length = d.AsDuration(); !d.IsValid() || c.Length < time.Second || c.Length > 24*time.Hour {
			return nil, invalid("bucket", "not within 1s and 24h")
		}
	}
	if end.Sub(start)/c.Length > maxBuckets {
		return nil, invalid("bucket", "there would be more than %d buckets: make them longer, or the time shorter", maxBuckets)
	}
	if c.Location, err = location(req.GetTimeZone()); err != nil {
		return nil, invalid("time_zone", "%q is no time zone of the IANA data base, such as Europe/Oslo", req.GetTimeZone())
	}
	newest := b.cfg.Store.NewestEvent()
	if err := b.tally(ctx, c, req.GetRule(), newest, store.Query{
		Cameras: []string{camera}, Types: []string{rules.LineCrossed, rules.ZoneEntered}, Start: start, End: end, Ascending: true, PageSize: 1000,
	}); err != nil {
		return nil, err
	}
	resp := &vedettev1.QueryCountsResponse{NewestEvent: newest}
	for k, n := range c.All() {
		resp.Counts = append(resp.Counts, &vedettev1.Count{
			Rule: k.Rule, Type: k.Type, Class: k.Class, Direction: k.Direction, StartTime: timestamppb.New(k.Start), Count: n,
		})
	}
	return resp, nil
}

// tally counts the events up to the newest that a query finds; rule "": of every rule.
func (b *Book) tally(ctx context.Context, c *rules.Counts, rule string, newest int64, q store.Query) error {
	for n := 0; ; {
		list, next, err := b.cfg.Store.ListEvents(ctx, q)
		if err != nil {
			return err
		}
		for i := range list {
			var a map[string]string
			if list[i].Seq > newest || json.Unmarshal(list[i].Payload, &a) != nil {
				continue // came meanwhile, or is none of ours
			}
			e := rules.Event{Type: list[i].Type, Time: list[i].Time, Rule: a["zone"] + a["line"], Class: a["class"], Direction: a["direction"]}
			if rule == "" || rule == e.Rule {
				c.Add(e)
			}
		}
		if n += len(list); n >= maxCounted {
			return invalid("start_time", "there are more than %d events in that time: make it shorter", maxCounted)
		}
		if q.PageToken = next; next == "" {
			return nil
		}
	}
}

// camera is the id of a registered camera.
func (b *Book) camera(parent string) (string, error) {
	if _, err := b.cfg.Cameras.Get(parent); err != nil {
		return "", err
	}
	return cameras.ID(parent)
}

// former is the id of a camera that was registered once; of any other the error stays.
func (b *Book) former(ctx context.Context, parent string, gone error) (string, error) {
	camera, err := cameras.ID(parent)
	if err != nil {
		return "", err
	}
	known, err := b.cfg.Store.HasSequences(ctx, camera)
	if err == nil && !known {
		err = gone
	}
	return camera, err
}

func (b *Book) window(from, to *timestamppb.Timestamp, standard time.Duration) (start, end time.Time, err error) {
	end = b.cfg.Now()
	if to != nil {
		end = to.AsTime()
	}
	start = end.Add(-standard)
	if from != nil {
		start = from.AsTime()
	}
	if !start.Before(end) || (from != nil && !from.IsValid()) || (to != nil && !to.IsValid()) {
		return start, end, invalid("start_time", "is not before end_time")
	}
	return start, end, nil
}
