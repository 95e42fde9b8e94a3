package rows_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/rows"
)

func TestBoxesRoundTrip(t *testing.T) {
	in := []tracker.Detection{
		{Box: tracker.Box{X1: 1.5, Y1: -2.25, X2: 30, Y2: 40.125}, Score: 0.5, Class: 2},
		{Box: tracker.Box{X1: 0, Y1: 0, X2: 1920, Y2: 1080}, Score: 0.25, Class: 79},
		{Box: tracker.Box{X2: 1, Y2: 1}, Class: -1},
	}
	data := rows.AppendBoxes(nil, in)
	if want := len(in) * 24; len(data) != want {
		t.Fatalf("BOXES takes %d bytes, want %d", len(data), want)
	}
	out, err := rows.Boxes(nil, data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Errorf("detections changed on the way (-in +out):\n%s", diff)
	}
}

func TestTracksRoundTrip(t *testing.T) {
	in := []tracker.Track{
		{
			ID: 1 << 40, Box: tracker.Box{X1: 1, Y1: 2, X2: 3, Y2: 4},
			Score: 0.75, Class: 3, State: tracker.Tracked, Age: 1500 * time.Millisecond,
		},
		{ID: 7, Box: tracker.Box{X1: -5, Y1: 2, X2: 3, Y2: 4}, Class: -1, State: tracker.Lost},
	}
	data, ids := rows.AppendTracks(nil, nil, in)
	out, err := rows.Tracks(nil, data, ids)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Errorf("tracks changed on the way (-in +out):\n%s", diff)
	}
}

func TestTrackRowLayoutIsFixed(t *testing.T) {
	data, ids := rows.AppendTracks(nil, nil, []tracker.Track{{
		ID: 258, Box: tracker.Box{X1: 1, Y1: 2, X2: 3, Y2: 4}, Score: 0.5, Class: 5,
		State: tracker.Lost, Age: 2 * time.Second,
	}})
	want := []byte{
		0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40, 0, 0, 0x80, 0x40,
		0, 0, 0, 0x3f, 0, 0, 0xa0, 0x40, 0, 0, 0, 0x40, 0, 0, 0xfa, 0x44,
	}
	if !bytes.Equal(data, want) {
		t.Errorf("TRACKS row\n got %x\nwant %x", data, want)
	}
	if want := []byte{2, 1, 0, 0, 0, 0, 0, 0}; !bytes.Equal(ids, want) {
		t.Errorf("TRACK_ID got %x, want %x", ids, want)
	}
}

func TestBadTensorsAreRefused(t *testing.T) {
	good, ids := rows.AppendTracks(nil, nil, []tracker.Track{{ID: 1}})
	state := bytes.Clone(good)
	state[27] = 0x41 // 8
	age := bytes.Clone(good)
	age[31] = 0xc0 // -2
	cases := []struct {
		name string
		err  error
	}{
		{"half a box", second(rows.Boxes(nil, make([]byte, 23)))},
		{"half a track", second(rows.Tracks(nil, good[:31], ids))},
		{"half an identity", second(rows.Tracks(nil, good, ids[:7]))},
		{"a track without an identity", second(rows.Tracks(nil, good, nil))},
		{"an unknown state", second(rows.Tracks(nil, state, ids))},
		{"a negative age", second(rows.Tracks(nil, age, ids))},
	}
	for _, c := range cases {
		if c.err == nil {
			t.Errorf("%s is taken", c.name)
		}
	}
}

func FuzzRows(f *testing.F) {
	data, ids := rows.AppendTracks(nil, nil, []tracker.Track{{ID: 3, Box: tracker.Box{X2: 9, Y2: 9}, State: tracker.Tracked}})
	f.Add(data, ids)
	f.Add(rows.AppendBoxes(nil, []tracker.Detection{{Box: tracker.Box{X2: 2, Y2: 2}, Score: 1}}), []byte{})
	f.Fuzz(func(t *testing.T, data, ids []byte) {
		dets, err := rows.Boxes(nil, data)
		if (err == nil) != (len(data)%24 == 0) {
			t.Fatalf("%d bytes of BOXES: error %v", len(data), err)
		}
		if got := len(rows.AppendBoxes(nil, dets)); err == nil && got != len(data) {
			t.Fatalf("%d bytes became %d", len(data), got)
		}
		tracks, err := rows.Tracks(nil, data, ids)
		if err == nil && (len(tracks) != len(data)/32 || len(tracks) != len(ids)/8) {
			t.Fatalf("%d tracks from %d and %d bytes", len(tracks), len(data), len(ids))
		}
	})
}

func second[T any](_ T, err error) error { return err }
