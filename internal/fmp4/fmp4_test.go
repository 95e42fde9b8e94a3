package fmp4_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/internal/fmp4"
	"github.com/vedette/vedette/internal/rtsptest"
)

func units(clip *rtsptest.Clip) []fmp4.Unit {
	var all []fmp4.Unit
	for i, u := range clip.Units {
		all = append(all, fmp4.Unit{Units: clip.Delivered(u), Key: u.Key, Ticks: u.PTS + 5000, Capture: time.Unix(1_700_000_000, int64(i)*4e7)})
	}
	return all
}

// probe asks ffprobe for the pictures of an MP4: their presentation times, each after it was decoded.
func probe(t *testing.T, mp4 []byte) []float64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.mp4")
	if err := os.WriteFile(path, mp4, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "ffprobe", "-v", "warning", "-select_streams", "v", "-show_entries", "frame=pts_time", "-of", "csv=p=0", path)
	var faults bytes.Buffer
	cmd.Stderr = &faults
	out, err := cmd.Output()
	if err != nil || faults.Len() > 0 {
		t.Fatalf("ffprobe: %v: %s", err, faults.String())
	}
	var times []float64
	for line := range strings.Lines(string(out)) {
		if line == "\n" {
			continue
		}
		v, err := strconv.ParseFloat(strings.Trim(line, ",\n"), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		times = append(times, v)
	}
	return times
}

func evenly(t *testing.T, times []float64, n int, step float64) {
	t.Helper()
	if len(times) != n {
		t.Fatalf("%d pictures, want %d", len(times), n)
	}
	for i := 1; i < n; i++ {
		if d := times[i] - times[i-1]; d < step-0.001 || d > step+0.001 {
			t.Errorf("picture %d comes %.4f s after the one before, want %.4f", i, d, step)
		}
	}
}

func TestWhatIsPackedPlays(t *testing.T) {
	for _, c := range []struct {
		name  string
		codec fmp4.Codec
		clip  rtsptest.ClipConfig
		mime  string
	}{
		{"H.264", fmp4.H264, rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 30, GOP: 10}, `video/mp4; codecs="avc1.`},
		{"H.264 with B-frames", fmp4.H264, rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 31, GOP: 10, BFrames: 2}, `video/mp4; codecs="avc1.`},
		{"AV1", fmp4.AV1, rtsptest.ClipConfig{Codec: "av1", Width: 128, Height: 96, Frames: 30, GOP: 10}, `video/mp4; codecs="av01.0.00M.08"`},
		{"H.265", fmp4.H265, rtsptest.ClipConfig{Codec: "h265", Width: 128, Height: 96, Frames: 30, GOP: 10}, `video/mp4; codecs="hvc1.1.6.L`},
		{"H.265 with B-frames", fmp4.H265, rtsptest.ClipConfig{Codec: "h265", Width: 128, Height: 96, Frames: 31, GOP: 10, BFrames: 2}, `video/mp4; codecs="hvc1.1.6.L`},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := units(rtsptest.Render(t, c.clip))
			var file bytes.Buffer
			w := fmp4.NewWriter(&file)
			for _, u := range all {
				if err := w.Add(c.codec, u); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			evenly(t, probe(t, file.Bytes()), len(all), 0.04)

			m, err := fmp4.NewMuxer(c.codec, all[0])
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(m.MIME(), c.mime) {
				t.Errorf("MIME %s", m.MIME())
			}
			live := bytes.Clone(m.Init())
			for _, u := range all {
				b, at, err := m.Fragment(u)
				if err != nil {
					t.Fatal(err)
				}
				if got := binary.BigEndian.Uint64(b[24:32]); string(b[4:8]) != "prft" || time.Duration(got)*time.Second/fmp4.Rate != at {
					t.Fatalf("the reference time box %x does not say %v", b[:32], at)
				}
				seconds := binary.BigEndian.Uint32(b[16:20])
				if int64(seconds)-2208988800 != u.Capture.Unix() {
					t.Fatalf("captured at %d, written %d", u.Capture.Unix(), int64(seconds)-2208988800)
				}
				live = append(live, b...)
			}
			evenly(t, probe(t, live), len(all), 0.04)
		})
	}
}

func TestAGapLeavesNoHole(t *testing.T) {
	all := units(rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 30, GOP: 10, BFrames: 2}))
	m, err := fmp4.NewMuxer(fmp4.H264, all[0])
	if err != nil {
		t.Fatal(err)
	}
	live := bytes.Clone(m.Init())
	// The second group is lost, and the third comes from another origin, hours back.
	kept := append(all[:10:10], all[20:]...)
	for i, u := range kept {
		if i >= 10 {
			u.Gap, u.Ticks = i == 10, u.Ticks-3600*fmp4.Rate*5
		}
		b, _, err := m.Fragment(u)
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, b...)
	}
	times := probe(t, live)
	if len(times) != 20 || times[19]-times[0] > 1.2 {
		t.Errorf("%d pictures from %.2f to %.2f s, want 20 within 0.8", len(times), times[0], times[len(times)-1])
	}
}

func TestALivePictureComesBeforeABrowserGivesTheGroupUp(t *testing.T) {
	for name, step := range map[string]func(n int) int64{
		"ten a second":       func(int) int64 { return fmp4.Rate / 10 },
		"one a second":       func(int) int64 { return fmp4.Rate },
		"sixty a second":     func(int) int64 { return fmp4.Rate / 60 },
		"unevenly":           func(n int) int64 { return []int64{900, 8100, 90, 20_000}[n%4] },
		"slower and slower":  func(n int) int64 { return int64(n*n) * 90 },
		"one picture missed": func(n int) int64 { return []int64{3600, 3600, 3600, 14_400}[n%4] },
	} {
		for _, reordered := range []int{0, 2} {
			all := units(rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 40, GOP: 40, BFrames: reordered}))
			// In the order they are shown, pictures come as the step says.
			shown := make([]int, len(all))
			for i := range shown {
				shown[i] = i
			}
			slices.SortFunc(shown, func(a, b int) int { return cmp.Compare(all[a].Ticks, all[b].Ticks) })
			at := int64(0)
			for n, i := range shown {
				at += step(n + 1)
				all[i].Ticks = at
			}
			m, err := fmp4.NewMuxer(fmp4.H264, all[0])
			if err != nil {
				t.Fatal(err)
			}
			presented := map[time.Duration]bool{}
			var decoded, lasts int64
			for n, u := range all {
				data, pts, err := m.Fragment(u)
				if err != nil {
					t.Fatal(err)
				}
				dts, duration := timed(t, data)
				if n > 0 && (dts <= decoded || dts-decoded > 2*lasts) {
					t.Fatalf("%s, %d reordered: picture %d is decoded %d ticks after one of %d: a browser shows nothing until the next keyframe", name, reordered, n, dts-decoded, lasts)
				}
				if presented[pts] {
					t.Errorf("%s, %d reordered: picture %d takes the place of another", name, reordered, n)
				}
				decoded, lasts, presented[pts] = dts, duration, true
			}
		}
	}
}

// timed are the decoding time and the duration of a fragment's one picture.
func timed(t *testing.T, data []byte) (dts, duration int64) {
	t.Helper()
	at := func(box string) []byte {
		i := bytes.Index(data, []byte(box))
		if i < 0 {
			t.Fatalf("no %s in %x", box, data[:min(200, len(data))])
		}
		return data[i+4:]
	}
	// tfdt: version and flags, 64 bits. trun: version and flags, count, data offset, then the sample's duration first.
	return int64(binary.BigEndian.Uint64(at("tfdt")[4:])), int64(binary.BigEndian.Uint32(at("trun")[12:])) //nolint:gosec // ours
}

func TestWhatDoesNotGoIntoOneFileIsRefused(t *testing.T) {
	a := units(rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 5, GOP: 5}))
	b := units(rtsptest.Render(t, rtsptest.ClipConfig{Width: 96, Height: 64, Frames: 5, GOP: 5}))
	w := fmp4.NewWriter(&bytes.Buffer{})
	if err := w.Close(); !errors.Is(err, fmp4.ErrEmpty) {
		t.Errorf("an empty file: %v", err)
	}
	if err := w.Add(fmp4.H264, a[1]); err != nil {
		t.Errorf("a unit before the first keyframe: %v", err)
	}
	if err := w.Add(fmp4.H264, a[0]); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(fmp4.H264, b[0]); !errors.Is(err, fmp4.ErrFormatChanged) {
		t.Errorf("another size: %v", err)
	}
	if _, err := fmp4.NewMuxer(0, a[0]); !errors.Is(err, fmp4.ErrCodec) {
		t.Errorf("no codec: %v", err)
	}
	if _, err := fmp4.NewMuxer(fmp4.H264, a[1]); err == nil {
		t.Error("a picture without parameter sets makes a header")
	}
}

// FuzzMuxer: whatever units come, the answer is an error or boxes that add up.
func FuzzMuxer(f *testing.F) {
	f.Add(byte(1), []byte{0x67, 0x42, 0xc0, 0x1e, 0xd9}, []byte{0x68, 0xce}, []byte{0x65, 0x88})
	f.Add(byte(3), []byte{0x0a, 0x0b, 0, 0, 0, 0x04, 0x3c, 0xff, 0xbc, 0xff, 0xf9, 0x80, 0x40}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, codec byte, a, b, c []byte) {
		key := fmp4.Unit{Units: [][]byte{a, b, c}, Key: true, Capture: time.Unix(1, 0)}
		m, err := fmp4.NewMuxer(fmp4.Codec(codec), key)
		if err != nil {
			return
		}
		all := m.Init()
		for i, u := range []fmp4.Unit{key, {Units: [][]byte{c}, Ticks: 10}, {Units: [][]byte{c}, Ticks: -10, Gap: true}} {
			b, at, err := m.Fragment(u)
			if err != nil {
				continue
			}
			if i == 0 && at < 0 {
				t.Errorf("begins at %v", at)
			}
			all = append(all, b...)
		}
		for len(all) > 0 {
			if len(all) < 8 || int(binary.BigEndian.Uint32(all)) > len(all) || binary.BigEndian.Uint32(all) < 8 {
				t.Fatalf("boxes do not add up: %x", all[:min(16, len(all))])
			}
			all = all[binary.BigEndian.Uint32(all):]
		}
	})
}

func TestAnotherHeaderDoesNotTurnTimeBack(t *testing.T) {
	last := time.Duration(-1)
	var before *fmp4.Muxer
	for _, c := range []struct {
		codec fmp4.Codec
		clip  rtsptest.ClipConfig
	}{
		{fmp4.H264, rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 20, GOP: 10}},
		{fmp4.H264, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 20, GOP: 10}},
		{fmp4.AV1, rtsptest.ClipConfig{Codec: "av1", Width: 64, Height: 64, Frames: 20, GOP: 10}},
	} {
		all := units(rtsptest.Render(t, c.clip))
		m, err := fmp4.NewMuxer(c.codec, all[0])
		if err != nil {
			t.Fatal(err)
		}
		if before != nil {
			m.Follow(before)
		}
		before = m
		for i, u := range all {
			_, at, err := m.Fragment(u)
			if err != nil {
				t.Fatal(err)
			}
			if d := (at - last).Round(time.Millisecond); last >= 0 && d != 40*time.Millisecond {
				t.Errorf("picture %d of %v comes %v after the one before", i, c.clip, d)
			}
			last = at
		}
	}
}

func TestWhatBeginsAtARecoveryPointIsShownInOrder(t *testing.T) {
	for name, params := range map[string]string{
		"open groups of pictures": "keyint=12:min-keyint=12:scenecut=0:bframes=2:b-adapt=0:b-pyramid=none:aud=1:open-gop=1:ref=3",
		"refreshed bit by bit":    "keyint=12:scenecut=0:bframes=0:aud=1:intra-refresh=1",
	} {
		t.Run(name, func(t *testing.T) {
			cfg := rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 61, GOP: 12, Rate: 10, Extra: []string{"-x264-params", params}}
			if strings.Contains(params, "bframes=2") {
				cfg.BFrames = 2
			}
			clip := rtsptest.Render(t, cfg)
			at := slices.IndexFunc(clip.Units[1:], func(u rtsptest.Unit) bool { return len(u.NALUs) > 1 && u.NALUs[0][0]&0x1F == 7 }) + 1
			all := units(clip)[at:]
			all[0].Key = true
			var file bytes.Buffer
			w := fmp4.NewWriter(&file)
			for _, u := range all {
				if err := w.Add(fmp4.H264, u); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "a.mp4")
			if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-show_entries", "packet=pts,dts", "-of", "csv=p=0", path).Output()
			if err != nil {
				t.Fatal(err)
			}
			var shown []int
			last := -1 << 40
			for line := range strings.Lines(string(out)) {
				var pts, dts int
				if _, err := fmt.Sscanf(line, "%d,%d", &pts, &dts); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if dts <= last || pts < dts {
					t.Errorf("decoded at %d, shown at %d, after one decoded at %d", dts, pts, last)
				}
				shown, last = append(shown, pts), dts
			}
			// But for those shown before the first, which refer to what is not there, pictures keep their times.
			if len(shown) != len(all) {
				t.Fatalf("%d pictures of %d", len(shown), len(all))
			}
			for i, u := range all {
				if u.Ticks >= all[0].Ticks && int64(shown[i]-shown[0]) != u.Ticks-all[0].Ticks {
					t.Errorf("picture %d is shown %d ticks after the first, want %d", i, shown[i]-shown[0], u.Ticks-all[0].Ticks)
				}
			}
		})
	}
}
