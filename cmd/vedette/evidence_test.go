package main_test

import (
	"bytes"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestEventsAndTracksHavePicturesAndClips runs the demo with a zone over most of the picture.
func TestEventsAndTracksHavePicturesAndClips(t *testing.T) {
	// On a disk that is near full pictures are shed.
	p := launch(t, t.TempDir(), "--demo", "--onnxruntime", onnxruntime(t), "--min-free-gib=0.01")
	p.until("confirmed tracks", 60*time.Second, func() bool { return len(p.tracks("")) > 0 })
	p.cli("camera", "update", "street", "--clip", "1s")
	p.cli("rule", "line", "street", "middle", "0.5,0", "0.5,1")
	p.cli("rule", "zone", "street", "most", "0.2,0", "0.8,0", "0.8,1", "0.2,1")
	type event struct{ Name, Type, Snapshot, Clip string }
	var e event
	p.until("an event with a snapshot and a clip", 180*time.Second, func() bool {
		var r struct{ Events []event }
		if err := p.get(`/v1/events?page_size=1000&filter=type%3D%22zone_entered%22`, &r); err != nil {
			return false
		}
		for _, e = range r.Events {
			if e.Snapshot != "" && e.Clip != "" {
				return true
			}
		}
		return false
	})
	id := "street/" + e.Name[strings.LastIndex(e.Name, "/")+1:]
	dir := t.TempDir()
	picture, clip := filepath.Join(dir, "e.jpg"), filepath.Join(dir, "e.mp4")
	p.cli("event", "snapshot", id, "--to", picture)
	data, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := jpeg.DecodeConfig(bytes.NewReader(data)); err != nil || c.Width < 300 {
		t.Errorf("the snapshot: %+v, %v", c, err)
	}
	p.cli("event", "clip", id, "--to", clip)
	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-count_frames", "-select_streams", "v", "-show_entries", "stream=codec_name,nb_read_frames,width", "-of", "csv=p=0", clip).CombinedOutput()
	fields := strings.Split(strings.TrimSpace(string(out)), ",")
	if err != nil || len(fields) != 3 || fields[0] != "h264" {
		t.Fatalf("the clip: %v, %s", err, out)
	}
	if n, err := strconv.Atoi(fields[2]); err != nil || n < 20 { // two seconds and what lies before, at 25 a second or less
		t.Errorf("the clip has %s pictures", fields[2])
	}
	type track struct{ Name, Picture string }
	var tr track
	p.until("a track with a picture", 180*time.Second, func() bool {
		var r struct{ Tracks []track }
		if err := p.get(`/v1/tracks?page_size=1000&filter=state%3D%22ENDED%22`, &r); err != nil {
			return false
		}
		for _, tr = range r.Tracks {
			if tr.Picture != "" {
				return true
			}
		}
		return false
	})
	p.cli("track", "picture", strings.Replace(strings.TrimPrefix(tr.Name, "cameras/"), "/tracks/", "/", 1), "--to", picture)
	if data, err = os.ReadFile(picture); err != nil {
		t.Fatal(err)
	}
	if c, err := jpeg.DecodeConfig(bytes.NewReader(data)); err != nil || c.Width < 8 {
		t.Errorf("the picture of %s: %+v, %v", tr.Name, c, err)
	}
	if err := p.interrupt(); err != nil {
		t.Errorf("Ctrl-C: %v\n%s", err, p.output())
	}
}
