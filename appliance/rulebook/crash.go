package rulebook

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/vedette/vedette/appliance/rules"
	"github.com/vedette/vedette/store"
)

// maxLookedThrough bounds the events of a camera that are read for what a crash left open.
const maxLookedThrough = 50_000

// Settle tells what the last run could not, when it was killed: whoever was in a zone is no longer known to be, and no zone
// is occupied. Call it after Load and before frames are seen.
func (b *Book) Settle(ctx context.Context) error {
	for _, q := range b.cfg.Store.Crashed() {
		events, err := b.leftOpen(ctx, &q)
		if err != nil {
			return fmt.Errorf("what camera %s had in its zones: %w", q.Camera, err)
		}
		if len(events) == 0 {
			continue
		}
		if _, err := b.cfg.Store.Append(ctx, store.Batch{Events: stored(q.Camera, events, b.cfg.Now())}); err != nil {
			return fmt.Errorf("end the visits of camera %s: %w", q.Camera, err)
		}
	}
	return nil
}

// leftOpen are the events that end what a sequence began.
func (b *Book) leftOpen(ctx context.Context, q *store.Sequence) (ends []rules.Event, err error) {
	query := store.Query{
		Cameras: []string{q.Camera}, PageSize: 1000,
		Types: []string{rules.ZoneEntered, rules.ZoneLeft, rules.ZoneOccupied, rules.ZoneCleared},
		Start: q.OpenedAt.Add(-time.Minute), // by the capture time of a frame, before the sequence was opened
	}
	type subject struct {
		zone  string
		track store.TrackID
	}
	settled := map[subject]bool{} // by an event that came later
	var cleared []rules.Event
	for n := 0; n < maxLookedThrough; {
		list, next, err := b.cfg.Store.ListEvents(ctx, query) // newest first
		if err != nil {
			return nil, err
		}
		for i := range list {
			e := &list[i]
			var a map[string]string
			if json.Unmarshal(e.Payload, &a) != nil {
				continue
			}
			s := subject{a["zone"], e.Track}
			if settled[s] || (e.Track.Local != 0 && e.Track.Sequence != q.ID) {
				continue
			}
			settled[s] = true
			end := rules.Event{Rule: s.zone, Time: b.cfg.Now(), Since: e.Time, Reason: rules.TrackEnded}
			switch e.Type {
			case rules.ZoneOccupied:
				end.Type = rules.ZoneCleared
				cleared = append(cleared, end)
			case rules.ZoneEntered:
				end.Type, end.Sequence, end.Local, end.Class = rules.ZoneLeft, e.Track.Sequence, e.Track.Local, a["class"]
				end.Score, _ = strconv.ParseFloat(a["score"], 64)
				if tr, err := b.cfg.Store.GetTrack(ctx, e.Track); err == nil && tr.End.After(e.Time) {
					end.Since = tr.End
				}
				if entered, err := time.Parse(time.RFC3339Nano, a["since"]); err == nil {
					end.Spent = end.Since.Sub(entered)
				}
				ends = append(ends, end)
			}
		}
		n += len(list)
		if query.PageToken = next; next == "" {
			break
		}
	}
	return append(ends, cleared...), nil
}
