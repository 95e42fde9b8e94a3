package rulebook

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vedette/vedette/appliance/rules"
	"github.com/vedette/vedette/store"
)

// watchers are the engines of the cameras at work.
type watchers struct {
	mu sync.Mutex
	of map[string]*watcher
}

// watcher is the engine of one camera.
type watcher struct {
	mu       sync.Mutex
	engine   *rules.Engine
	revision uint64
}

func (w *watchers) get(camera string) *watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.of[camera]
	if v == nil {
		v = &watcher{engine: rules.New(rules.Set{})}
		w.of[camera] = v
	}
	return v
}

// Seen returns the events that a frame gives rise to. The tracks in ended have ended with it. Frames of one camera come
// in order.
func (b *Book) Seen(f *store.Frame, ended []store.Track) []store.Event {
	w := b.watchers.get(f.Camera)
	w.mu.Lock()
	defer w.mu.Unlock()
	events := b.renewLocked(w, f.Camera)
	events = append(events, w.engine.Observe(f.CaptureTime, objects(f))...)
	for i := range ended {
		if ended[i].State == store.TrackEnded {
			events = append(events, w.engine.End(ended[i].ID.Sequence, ended[i].ID.Local, f.CaptureTime)...)
		}
	}
	return stored(f.Camera, events, f.CaptureTime)
}

// Closed returns the events that the end of a sequence gives rise to.
func (b *Book) Closed(camera string, sequence int64, at time.Time) []store.Event {
	w := b.watchers.get(camera)
	w.mu.Lock()
	defer w.mu.Unlock()
	events := b.renewLocked(w, camera)
	return stored(camera, append(events, w.engine.EndSequence(sequence, at)...), at)
}

// renewLocked puts newer rules in place.
func (b *Book) renewLocked(w *watcher, camera string) []rules.Event {
	if b.revisionOf(camera) == w.revision {
		return nil
	}
	set, revision := b.set(camera)
	w.revision = revision
	return w.engine.Change(set)
}

func objects(f *store.Frame) []rules.Object {
	list := make([]rules.Object, 0, len(f.Objects))
	for i := range f.Objects {
		if o := &f.Objects[i]; o.Local > 0 {
			list = append(list, object(f.Sequence, o))
		}
	}
	return list
}

func object(sequence int64, o *store.Object) rules.Object {
	return rules.Object{
		Sequence: sequence, Local: o.Local, Class: o.Class, Score: float64(o.Score),
		X1: float64(o.Box.X1), Y1: float64(o.Box.Y1), X2: float64(o.Box.X2), Y2: float64(o.Box.Y2),
	}
}

// stored is how events are kept. An engine that has seen no frame yet gives no time; then that of the call counts.
func stored(camera string, events []rules.Event, at time.Time) []store.Event {
	list := make([]store.Event, 0, len(events))
	for i := range events {
		e := &events[i]
		if e.Time.IsZero() {
			e.Time, e.Since = at, at
		}
		payload, err := json.Marshal(attributes(e))
		if err != nil {
			continue // a map of strings is always JSON
		}
		list = append(list, store.Event{
			Camera: camera, Type: e.Type, Time: e.Time, Track: store.TrackID{Sequence: e.Sequence, Local: e.Local}, Payload: payload,
		})
	}
	return list
}

// attributes are what an event says beyond its type, time and track.
func attributes(e *rules.Event) map[string]string {
	a := map[string]string{"since": e.Since.UTC().Format(time.RFC3339Nano)}
	if strings.HasPrefix(e.Type, "line") {
		a["line"] = e.Rule
	} else {
		a["zone"] = e.Rule
		a["inside"] = strconv.Itoa(e.Inside)
	}
	if e.Local != 0 {
		a["class"] = e.Class
		a["score"] = strconv.FormatFloat(e.Score, 'f', 3, 64)
	}
	if e.Direction != "" {
		a["direction"] = e.Direction
	}
	if e.Spent > 0 {
		a["spent"] = strconv.FormatFloat(e.Spent.Seconds(), 'f', 3, 64)
	}
	if e.Reason != "" {
		a["reason"] = e.Reason
	}
	return a
}
