package av_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/vedette/vedette/internal/av"
	"github.com/vedette/vedette/internal/rtsptest"
)

var variants = flag.Int("variants", 450, "damaged streams in TestDamagedStreamsNeitherCrashNorLast")

// annexB joins a unit's NAL units.
func annexB(u rtsptest.Unit) []byte {
	var b []byte
	for _, n := range u.NALUs {
		b = append(append(b, 0, 0, 0, 1), n...)
	}
	return b
}

func decoder(t testing.TB, cfg av.DecoderConfig) *av.Decoder {
	t.Helper()
	d, err := av.NewDecoder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func TestPicturesComeInDisplayOrderWithTheirTimes(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, Frames: 24, GOP: 12, BFrames: 2})
	d := decoder(t, av.DecoderConfig{Codec: av.H264})
	var p av.Picture
	defer p.Close()
	var got []int64
	receive := func() {
		for {
			ok, err := d.Receive(&p)
			if err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if !ok {
				return
			}
			if p.Width != 64 || p.Height != 48 || p.Corrupt || p.FullRange {
				t.Errorf("picture %+v", p)
			}
			got = append(got, p.PTS)
		}
	}
	for _, u := range clip.Units {
		if err := d.Send(annexB(u), u.PTS); err != nil {
			t.Fatal(err)
		}
		receive()
	}
	d.Drain()
	receive()
	if len(got) != 24 {
		t.Fatalf("%d pictures", len(got))
	}
	for i, pts := range got {
		if pts != int64(i)*3600 {
			t.Errorf("picture %d is shown at %d", i, pts)
		}
	}
}

func TestAPictureIsCopiedTight(t *testing.T) {
	// An odd size and a solid colour: every byte is known.
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 34, Height: 22, Frames: 1, Source: "color=c=gray"})
	d := decoder(t, av.DecoderConfig{Codec: av.H264})
	if err := d.Send(annexB(clip.Units[0]), 0); err != nil {
		t.Fatal(err)
	}
	d.Drain()
	var p av.Picture
	defer p.Close()
	if ok, err := d.Receive(&p); !ok {
		t.Fatal(err)
	}
	n := 34*22 + 2*17*11
	b := bytes.Repeat([]byte{7}, n+1)
	if err := p.I420(b[:n-1]); err == nil {
		t.Error("a picture fits too little room")
	}
	if err := p.I420(b); err != nil {
		t.Fatal(err)
	}
	for i, v := range b[:n] {
		if want := byte(126); i < 34*22 && (v < want-2 || v > want+2) || i >= 34*22 && (v < 126 || v > 130) {
			t.Fatalf("byte %d is %d", i, v)
		}
	}
	if b[n] != 7 {
		t.Error("written beyond the picture")
	}
	var q av.Picture
	defer q.Close()
	if err := q.Take(&p); err != nil || q.Width != 34 || q.Empty() || !p.Empty() {
		t.Errorf("take: %v, %+v", err, q)
	}
	if err := p.I420(b); err == nil {
		t.Error("an empty picture was copied")
	}
}

func TestJPEGKeepsGreysAndSizes(t *testing.T) {
	const w, h = 50, 40
	s := av.Still{Width: w, Height: h, Pixels: make([]byte, w*h+2*25*20)}
	for i := range s.Pixels {
		s.Pixels[i] = 128
		if i < w*h {
			s.Pixels[i] = byte(16 + i%w*4) // a ramp from black
		}
	}
	for _, c := range []struct {
		name     string
		crop     image.Rectangle
		maxWidth int
		want     image.Point
	}{
		{"whole", image.Rectangle{}, 0, image.Pt(50, 40)},
		{"scaled down", image.Rectangle{}, 25, image.Pt(25, 20)},
		{"not scaled up", image.Rectangle{}, 500, image.Pt(50, 40)},
		{"a crop at odd edges", image.Rect(11, 7, 31, 17), 0, image.Pt(21, 11)},
		{"a crop beyond the edge", image.Rect(40, 30, 400, 300), 0, image.Pt(10, 10)},
		{"one pixel", image.Rect(49, 39, 50, 40), 0, image.Pt(2, 2)},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, size, err := av.JPEG(s, c.crop, c.maxWidth, 95)
			if err != nil {
				t.Fatal(err)
			}
			img, err := jpeg.Decode(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if size != c.want || img.Bounds().Size() != c.want {
				t.Fatalf("got %v and %v, want %v", size, img.Bounds().Size(), c.want)
			}
			at := img.(*image.YCbCr).Y[0]
			x := c.crop.Min.X &^ 1
			if want := (x*4 - 0) * 255 / 219; int(at) < want-8 || int(at) > want+8 {
				t.Errorf("first pixel is %d, want %d", at, want)
			}
		})
	}
	if _, _, err := av.JPEG(s, image.Rect(60, 0, 70, 10), 0, 0); err == nil {
		t.Error("a crop outside the picture was encoded")
	}
	if _, _, err := av.JPEG(av.Still{Width: 50, Height: 50, Pixels: s.Pixels}, image.Rectangle{}, 0, 0); err == nil {
		t.Error("too few pixels were encoded")
	}
}

func TestAFileThatIsNoVideoIsRefused(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "x.mp4")
	if err := os.WriteFile(text, []byte("#EXTM3U\nhttp://127.0.0.1:1/x.ts\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{text, dir, filepath.Join(dir, "none")} {
		if d, err := av.OpenFile(path); err == nil {
			d.Close()
			t.Errorf("%s was opened", path)
		}
	}
}

func TestLumaIsThePicturesOwn(t *testing.T) {
	for name, extra := range map[string][]string{"8 bits": nil, "10 bits": {"-pix_fmt", "yuv420p10le"}} {
		clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 320, Height: 180, Frames: 1, Extra: extra})
		d := decoder(t, av.DecoderConfig{Codec: av.H264})
		var p av.Picture
		defer p.Close()
		if err := d.Send(annexB(clip.Units[0]), 0); err != nil {
			t.Fatal(err)
		}
		d.Drain()
		if ok, err := d.Receive(&p); !ok {
			t.Fatalf("%s: no picture: %v", name, err)
		}
		pixels, luma := make([]byte, 320*180*3/2), make([]byte, 16*9)
		if err := p.I420(pixels); err != nil {
			t.Fatal(err)
		}
		if err := p.Luma(luma, 16, 9); err != nil {
			t.Fatal(err)
		}
		off := 0
		for i, got := range luma {
			sum := 0
			for y := i / 16 * 20; y < i/16*20+20; y++ {
				for x := i % 16 * 20; x < i%16*20+20; x++ {
					sum += int(pixels[y*320+x])
				}
			}
			off += max(int(got)-sum/400, sum/400-int(got))
		}
		if mean := float64(off) / float64(len(luma)); mean > 10 {
			t.Errorf("%s: the cells differ by %.1f grey levels on average from their pixels", name, mean)
		}
		if err := p.Luma(luma, 17, 9); err == nil {
			t.Errorf("%s: too little room was enough", name)
		}
	}
}

// damage hurts a unit in one of the ways networks and encoders do.
func damage(rng *rand.Rand, units [][]byte) [][]byte {
	out := make([][]byte, len(units))
	for i, u := range units {
		out[i] = bytes.Clone(u)
	}
	for range 1 + rng.IntN(4) {
		i := rng.IntN(len(out))
		switch rng.IntN(5) {
		case 0: // bits
			for range 1 + rng.IntN(20) {
				if len(out[i]) > 0 {
					out[i][rng.IntN(len(out[i]))] ^= 1 << rng.IntN(8)
				}
			}
		case 1: // cut
			out[i] = out[i][:rng.IntN(len(out[i])+1)]
		case 2: // lost
			out[i] = nil
		case 3: // swapped
			j := rng.IntN(len(out))
			out[i], out[j] = out[j], out[i]
		case 4: // garbage
			for k := range out[i] {
				if rng.IntN(50) == 0 {
					out[i][k] = byte(rng.Uint32())
				}
			}
		}
	}
	return out
}

// Damage decodes variants of the clips with damaged units; nothing may crash, and after the damage a
// keyframe heals the picture.
func TestDamagedStreamsNeitherCrashNorLast(t *testing.T) {
	tried, healed, before := 0, 0, resident(t)
	for _, c := range []struct {
		codec string
		av    av.Codec
	}{{"h264", av.H264}, {"h265", av.H265}, {"mjpeg", av.MJPEG}} {
		t.Run(c.codec, func(t *testing.T) {
			clip := rtsptest.Render(t, rtsptest.ClipConfig{Codec: c.codec, Width: 80, Height: 64, Frames: 12, GOP: 6})
			var units [][]byte
			for _, u := range clip.Units {
				if c.codec == "mjpeg" {
					units = append(units, u.NALUs[0])
				} else {
					units = append(units, annexB(u))
				}
			}
			room := make([]byte, 8<<20)
			for v := range (*variants + 2) / 3 {
				rng := rand.New(rand.NewPCG(uint64(v), 7))
				d, err := av.NewDecoder(av.DecoderConfig{Codec: c.av})
				if err != nil {
					t.Fatal(err)
				}
				var p av.Picture
				last := int64(-1)
				for pts, u := range append(damage(rng, units), units...) {
					if len(u) == 0 {
						continue
					}
					_ = d.Send(u, int64(pts)) // an error is an answer
					for {
						ok, err := d.Receive(&p)
						if !ok || err != nil {
							break
						}
						if p.Width*p.Height*2 <= len(room) {
							if err := p.I420(room); err != nil {
								t.Logf("variant %d: %v", v, err)
							}
						}
						last = p.PTS
					}
				}
				if tried++; last >= int64(len(units)) {
					healed++
				} else {
					t.Errorf("variant %d: no picture after the damage", v)
				}
				p.Close()
				d.Close()
			}
		})
	}
	grown := resident(t) - before
	if grown > 64 {
		t.Errorf("memory grew by %d MB", grown)
	}
	if *variants >= 1000 {
		say := func(what string, v int, unit, relation string, budget int) {
			verdict := "ok"
			if (relation == ">=" && v < budget) || (relation == "<=" && v > budget) {
				verdict = "over"
			}
			fmt.Printf("%s %d %s %s%d %s\n", what, v, unit, relation, budget, verdict)
		}
		say("damaged.tried", tried, "streams", ">=", *variants)
		say("damaged.healed", healed, "streams", ">=", tried)
		say("damaged.memory_grown", grown, "MB", "<=", 64)
	}
}

// resident returns the process's memory in megabytes.
func resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize() >> 20
}
