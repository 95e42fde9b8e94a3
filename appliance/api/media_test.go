package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/store"
)

// seenBox has a track with a picture and an event with a snapshot and a clip.
func seenBox(t *testing.T) (b *box, track, event string) {
	t.Helper()
	b = start(t, false, album{})
	ctx := context.Background()
	seq, err := b.store.OpenSequence(ctx, store.Sequence{Camera: "door"})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Truncate(time.Second)
	for file, data := range map[string]string{"door/t.jpg": "picture", "door/e.jpg": "snapshot", "door/e.mp4": strings.Repeat("clip", 200_000)} {
		if err := b.store.WriteMedia(at, file, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	id := store.TrackID{Sequence: seq, Local: 1}
	batch := store.Batch{
		Tracks: []store.Track{{ID: id, Camera: "door", Class: "person", Start: at, End: at, State: store.TrackActive, Picture: "door/t.jpg"}},
		Events: []store.Event{{Camera: "door", Type: "zone_entered", Time: at, Track: id}},
	}
	b.append(batch)
	n := batch.Events[0].Seq
	b.append(store.Batch{Media: []store.Media{
		{Event: n, Camera: "door", Time: at, Kind: store.Snapshot, File: "door/e.jpg", Start: at, End: at},
		{Event: n, Camera: "door", Time: at, Kind: store.Clip, File: "door/e.mp4", Start: at.Add(-time.Second), End: at.Add(time.Second)},
	}})
	return b, "cameras/door/tracks/" + id.String(), "cameras/door/events/" + strconv.FormatInt(n, 10)
}

func (b *box) append(batch store.Batch) {
	b.t.Helper()
	done, err := b.store.Append(context.Background(), batch)
	if err == nil {
		err = <-done
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestPicturesAndClipsAreServed(t *testing.T) {
	b, track, event := seenBox(t)
	tr, err := vedettev1.NewAnalyticsServiceClient(b.local).GetTrack(t.Context(), &vedettev1.GetTrackRequest{Name: track})
	if err != nil || tr.GetPicture() == "" {
		t.Fatalf("%v, %v", tr, err)
	}
	ev, err := vedettev1.NewEventServiceClient(b.local).GetEvent(t.Context(), &vedettev1.GetEventRequest{Name: event})
	if err != nil || ev.GetSnapshot() == "" || ev.GetClip() == "" {
		t.Fatalf("%v, %v", ev, err)
	}
	for path, want := range map[string]struct {
		kind string
		size int
	}{
		tr.GetPicture(): {"image/jpeg", len("picture")}, ev.GetSnapshot(): {"image/jpeg", len("snapshot")}, ev.GetClip(): {"video/mp4", 800_000},
	} {
		resp, body := b.fetch(http.MethodGet, path, api.Viewer, nil)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != want.kind || len(body) != want.size {
			t.Errorf("%s: %s, %s, %d bytes", path, resp.Status, resp.Header.Get("Content-Type"), len(body))
		}
		if resp, _ := b.fetch(http.MethodGet, path, "", nil); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token: %s", path, resp.Status)
		}
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			if resp, body := b.fetch(method, path, api.Admin, nil); resp.StatusCode != http.StatusMethodNotAllowed || !strings.Contains(body, "METHOD_NOT_ALLOWED") {
				t.Errorf("%s %s: %s, %s", method, path, resp.Status, body)
			}
		}
		if resp, _ := b.fetch(http.MethodGet, path, api.Viewer, http.Header{"If-None-Match": {resp.Header.Get("Etag")}}); resp.StatusCode != http.StatusNotModified {
			t.Errorf("%s again: %s", path, resp.Status)
		}
	}
	resp, body := b.fetch(http.MethodGet, ev.GetClip(), api.Viewer, http.Header{"Range": {"bytes=4-7"}})
	if resp.StatusCode != http.StatusPartialContent || body != "clip" {
		t.Errorf("a range: %s, %q", resp.Status, body)
	}
	for _, path := range []string{
		"/v1/cameras/door/tracks/1-99/picture.jpg", "/v1/cameras/hall/tracks/" + track[strings.LastIndex(track, "/")+1:] + "/picture.jpg",
		"/v1/cameras/door/events/99999/clip.mp4", "/v1/cameras/hall/events/" + event[strings.LastIndex(event, "/")+1:] + "/snapshot.jpg",
	} {
		if resp, body := b.fetch(http.MethodGet, path, api.Viewer, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s, %s", path, resp.Status, body)
		}
	}
}

// fetch does one request.
func (b *box) fetch(method, path string, role api.Role, header http.Header) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.http+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if role != "" {
		req.Header.Set("Authorization", "Bearer "+b.tokens[role])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(body)
}

func TestASnapshotIsReadOnly(t *testing.T) {
	b := start(t, false, album{})
	if resp, body := b.fetch(http.MethodPost, "/v1/cameras/door/snapshot.jpg", api.Admin, nil); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("%s, %s", resp.Status, body)
	}
}

func TestACameraThatNeverWasHasNoLists(t *testing.T) {
	b, _, _ := seenBox(t)
	for _, list := range []string{"tracks", "detections", "events"} {
		if resp, body := b.fetch(http.MethodGet, "/v1/cameras/nope/"+list, api.Viewer, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s, %s", list, resp.Status, body)
		}
		// It is not registered, but it was there.
		if resp, body := b.fetch(http.MethodGet, "/v1/cameras/door/"+list, api.Viewer, nil); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %s", list, resp.Status, body)
		}
		if resp, body := b.fetch(http.MethodGet, "/v1/cameras/-/"+list, api.Viewer, nil); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %s", list, resp.Status, body)
		}
	}
}

func TestWatchSaysWhenAClipIsReady(t *testing.T) {
	b, _, event := seenBox(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	watch, err := vedettev1.NewEventServiceClient(b.local).WatchEvents(ctx, &vedettev1.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil { // SYNCED
		t.Fatal(err)
	}
	e, err := b.store.GetEvent(ctx, must(strconv.ParseInt(event[strings.LastIndex(event, "/")+1:], 10, 64)))
	if err != nil {
		t.Fatal(err)
	}
	b.append(store.Batch{Media: e.Media[1:]})
	for {
		m, err := watch.Recv()
		if errors.Is(err, io.EOF) || err != nil {
			t.Fatal(err)
		}
		if v := m.GetMedia(); v != nil {
			if v.GetName() != event || v.GetClip() != "/v1/"+event+"/clip.mp4" {
				t.Errorf("told %v", v)
			}
			return
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestThePageOfTheAPINamesEveryPath(t *testing.T) {
	b := start(t, false, album{})
	resp, body := b.fetch(http.MethodGet, "/api", "", nil)
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("%s, %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	for _, want := range []string{"CameraService", "/v1/cameras:probe", "/v1/auditEntries", "returns who changed what"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in it", want)
		}
	}
}
