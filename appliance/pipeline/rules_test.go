package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/pipeline"
	"github.com/vedette/vedette/store"
)

// echo is a rule that tells what it was shown.
type echo struct{}

func (echo) Seen(f *store.Frame, ended []store.Track) []store.Event {
	return []store.Event{{Camera: f.Camera, Type: "seen", Time: f.CaptureTime, Payload: fmt.Appendf(nil, "%d objects, %d ended", len(f.Objects), len(ended))}}
}

func (echo) Closed(camera string, sequence int64, at time.Time) []store.Event {
	return []store.Event{{Camera: camera, Type: "closed", Time: at, Payload: fmt.Append(nil, sequence)}}
}

func TestEventsOfRulesAreKeptWithWhatWasSeen(t *testing.T) {
	b := startWith(t, pipeline.Analysing{}, echo{})
	seq := b.begin("e1")
	sub := b.store.Subscribe(0)
	b.ingest.announce("door", "e1", 5, base+100*milli, 0)
	b.request((*inferRequest).isFrame).answer(t, person(4, 60*time.Millisecond))
	for {
		c, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Frames) == 0 {
			continue
		}
		// One commit window may hold the opening of the sequence too.
		seen := slices.DeleteFunc(c.Events, func(e store.Event) bool { return e.Type == "sequence_opened" })
		if len(seen) != 1 || seen[0].Type != "seen" || string(seen[0].Payload) != "1 objects, 0 ended" {
			t.Errorf("with the frame came %+v", seen)
		}
		break
	}
	var stopping sync.WaitGroup
	stopping.Go(b.stop) // closes the sequence
	defer stopping.Wait()
	var types []string
	for len(types) == 0 || types[len(types)-1] != "sequence_closed" {
		within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		c, err := sub.Next(within)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range c.Events {
			types = append(types, e.Type)
			if e.Type == "closed" && (string(e.Payload) != fmt.Sprint(seq) || !e.Time.Equal(time.Unix(0, base+100*milli))) {
				t.Errorf("closed %s at %s", e.Payload, e.Time)
			}
		}
	}
	if got := strings.Join(types, " "); got != "closed sequence_closed" {
		t.Errorf("the end of the sequence made %s", got)
	}
}
