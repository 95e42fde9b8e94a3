package pipeline_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/appliance/pipeline"
	"github.com/vedette/vedette/store"
	"github.com/vedette/vedette/tracker"
)

// shown answers with a picture that names what was asked for; the sharpness is that of the frame's lease.
func (p *ingestPeer) shown(sharpness map[uint64]float64) {
	p.pictures = func(q *ingestv1.GetPicture) *ingestv1.Picture {
		return &ingestv1.Picture{Jpeg: fmt.Appendf(nil, "lease %d crop %v", q.GetLeaseId(), q.GetCrop()), Sharpness: sharpness[q.GetLeaseId()]}
	}
}

// commits reads what is committed until ok has seen enough.
func commits(t *testing.T, sub *store.Subscription, ok func(*store.Commit) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		c, err := sub.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ok(&c) {
			return
		}
	}
}

func sized(half float64) tracker.Track {
	return tracker.Track{ID: 4, Box: tracker.Box{X1: 32 - half, Y1: 24 - half, X2: 32 + half, Y2: 24 + half}, Score: 0.75, State: tracker.Tracked}
}

func TestTheBestPictureOfATrackIsKept(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	// The largest is blurred, the second largest is not.
	b.ingest.shown(map[uint64]float64{1: 500, 2: 500, 3: 1, 4: 500})
	seq := b.begin("e1")
	sub := b.store.Subscribe(0)
	var leases []uint64
	for i, half := range []float64{4, 14, 20, 6} {
		leases = append(leases, b.ingest.announce("door", "e1", uint64(i), base+int64(i)*700*milli, 0))
		b.request((*inferRequest).isFrame).answer(t, sized(half))
		if got := next(t, b.ingest.released); got != leases[i] {
			t.Fatalf("lease %d was released, want %d", got, leases[i])
		}
	}
	b.stop()
	var last store.Track
	commits(t, sub, func(c *store.Commit) bool {
		for _, tr := range c.Tracks {
			if tr.Picture != "" {
				b.media(tr.Start, tr.Picture)
			}
			last = tr
		}
		return last.State == store.TrackEnded
	})
	if last.ID.Sequence != seq || last.Picture == "" {
		t.Fatalf("the track ended as %+v", last)
	}
	data := string(b.media(last.Start, last.Picture))
	if !strings.HasPrefix(data, "lease 2 ") {
		t.Errorf("kept %q, want that of the second frame", data)
	}
}

func TestNoPicturesWhenNoneAreWanted(t *testing.T) {
	b := startWith(t, pipeline.Analysing{NoPictures: true}, echo{})
	b.ingest.pictures = func(*ingestv1.GetPicture) *ingestv1.Picture {
		t.Error("a picture was asked for")
		return &ingestv1.Picture{}
	}
	b.begin("e1")
	lease := b.ingest.announce("door", "e1", 1, base+100*milli, 0)
	b.request((*inferRequest).isFrame).answer(t, sized(10))
	if got := next(t, b.ingest.released); got != lease {
		t.Errorf("lease %d was released", got)
	}
	b.stop()
}

func TestAnEventHasThePictureItWasFoundIn(t *testing.T) {
	b := startWith(t, pipeline.Analysing{}, echo{})
	b.ingest.shown(nil)
	b.begin("e1")
	sub := b.store.Subscribe(0)
	for i := range 2 { // the second event is so close that it shares the picture
		b.ingest.announce("door", "e1", uint64(i), base+int64(i+1)*100*milli, 0)
		b.request((*inferRequest).isFrame).answer(t)
		if i == 0 {
			next(t, b.ingest.released)
		}
	}
	got := map[int64]store.Media{}
	seen := map[int64]store.Event{}
	commits(t, sub, func(c *store.Commit) bool {
		for _, e := range c.Events {
			if e.Type == "seen" {
				seen[e.Seq] = e
			}
		}
		for _, m := range c.Media {
			if _, err := b.store.ReadMedia(m.Time, m.File); err != nil {
				t.Errorf("a row names a file before it is there: %v", err)
			}
			got[m.Event] = m
		}
		return len(got) == 2
	})
	for seq, e := range seen {
		m := got[seq]
		if m.Kind != store.Snapshot || !m.Time.Equal(e.Time) || m.Start.UnixNano() != base+100*milli {
			t.Errorf("event %d has %+v", seq, m)
		}
		if data := string(b.media(m.Time, m.File)); !strings.HasPrefix(data, "lease 1 ") {
			t.Errorf("its picture is %q", data)
		}
	}
	b.stop()
}

// everyTrack is a rule that tells of every track at every frame, whether it is there or not.
type everyTrack struct{ known []store.TrackID }

func (r *everyTrack) Seen(f *store.Frame, _ []store.Track) (events []store.Event) {
	for _, o := range f.Objects {
		if id := (store.TrackID{Sequence: f.Sequence, Local: o.Local}); !slices.Contains(r.known, id) {
			r.known = append(r.known, id)
		}
	}
	for _, id := range r.known {
		events = append(events, store.Event{Camera: f.Camera, Type: "told", Time: f.CaptureTime, Track: id, Payload: []byte("{}")})
	}
	return events
}

func (*everyTrack) Closed(string, int64, time.Time) []store.Event { return nil }

func TestThePictureOfAnEventShowsItsTrack(t *testing.T) {
	b := startWith(t, pipeline.Analysing{}, &everyTrack{})
	b.ingest.shown(nil)
	b.begin("e1")
	sub := b.store.Subscribe(0)
	for i, tracks := range [][]tracker.Track{{person(4, 0)}, {person(4, 0), person(5, 0)}, nil} {
		lease := b.ingest.announce("door", "e1", uint64(i), base+int64(i+1)*100*milli, 0)
		b.request((*inferRequest).isFrame).answer(t, tracks...)
		if got := next(t, b.ingest.released); got != lease {
			t.Fatalf("lease %d was released, want %d", got, lease)
		}
	}
	events := map[int64]store.Event{}
	pictures := map[int64]string{}
	commits(t, sub, func(c *store.Commit) bool {
		for _, e := range c.Events {
			if e.Type == "told" {
				events[e.Seq] = e
			}
		}
		for _, m := range c.Media {
			pictures[m.Event] = strings.Join(strings.Fields(string(b.media(m.Time, m.File)))[:2], " ")
		}
		return len(pictures) == 5
	})
	got := map[string]string{}
	for seq, e := range events {
		got[fmt.Sprintf("track %d at %d ms", e.Track.Local, (e.Time.UnixNano()-base)/milli)] = pictures[seq]
	}
	want := map[string]string{
		"track 4 at 100 ms": "lease 1", "track 4 at 200 ms": "lease 1", // so soon after it
		"track 5 at 200 ms": "lease 2",
		"track 4 at 300 ms": "lease 1", "track 5 at 300 ms": "lease 2", // the last that show them
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	b.stop()
}

// media reads a file that is there whatever state the store is in.
func (b *box) media(at time.Time, file string) []byte {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.store.MediaDir(at), file))
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}
