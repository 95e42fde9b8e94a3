package bitstream_test

import (
	"bytes"
	"testing"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/bitstream"
	"github.com/vedette/vedette/internal/rtsptest"
)

func TestKeyframesCarryTheirParameterSets(t *testing.T) {
	for _, codec := range []string{"h264", "h265"} {
		t.Run(codec, func(t *testing.T) {
			clip := rtsptest.Render(t, rtsptest.ClipConfig{Codec: codec, Width: 96, Height: 64, Frames: 6, GOP: 3})
			kind := ingest.H264
			if codec == "h265" {
				kind = ingest.H265
			}
			a := bitstream.NewAssembler(kind, clip.Sets...)
			if s := a.Stream(); s.Width != 96 || s.Height != 64 || s.Profile == "" {
				t.Errorf("the SDP's sets say %+v", s)
			}
			for i, u := range clip.Units {
				// A camera that sends its sets in the SDP alone.
				var bare [][]byte
				for _, n := range u.NALUs {
					if !bytes.Equal(n, clip.Sets[0]) && !bytes.Equal(n, clip.Sets[1]) && !bytes.Equal(n, clip.Sets[len(clip.Sets)-1]) {
						bare = append(bare, n)
					}
				}
				data, key, changed := a.Assemble(bare)
				if key != u.Key || changed {
					t.Errorf("unit %d: key %v, changed %v", i, key, changed)
				}
				units := bitstream.Units(data)
				if want := len(bare); key {
					if len(units) != want+len(clip.Sets) || !bytes.Equal(units[0], clip.Sets[0]) {
						t.Errorf("unit %d: %d NAL units of %d", i, len(units), want)
					}
				} else if len(units) != want {
					t.Errorf("unit %d: %d NAL units of %d", i, len(units), want)
				}
			}
		})
	}
}

func TestAnotherSizeIsNoticed(t *testing.T) {
	small := rtsptest.Render(t, rtsptest.ClipConfig{Width: 96, Height: 64, Frames: 2})
	large := rtsptest.Render(t, rtsptest.ClipConfig{Width: 128, Height: 64, Frames: 2})
	a := bitstream.NewAssembler(ingest.H264)
	if _, _, changed := a.Assemble(small.Units[0].NALUs); changed {
		t.Error("the first size is no change")
	}
	if _, _, changed := a.Assemble(small.Units[0].NALUs); changed {
		t.Error("the same again is no change")
	}
	if _, key, changed := a.Assemble(large.Units[0].NALUs); !changed || !key || a.Stream().Width != 128 {
		t.Errorf("changed %v to %+v", changed, a.Stream())
	}
}

func TestUnitsOfNoPictureGiveNoData(t *testing.T) {
	a := bitstream.NewAssembler(ingest.H264)
	for name, units := range map[string][][]byte{"nothing": nil, "an empty unit": {{}}, "a delimiter": {{9, 16}}, "parameter sets": {{7, 1}, {8, 1}}} {
		if data, key, _ := a.Assemble(units); len(data) != 0 || key {
			t.Errorf("%s: %d bytes", name, len(data))
		}
	}
}

func FuzzAssemble(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0x67, 66, 0, 10, 0, 0, 1, 0x68, 1, 0, 0, 1, 0x65, 1, 2, 3}, uint8(1))
	f.Add([]byte{0, 0, 1, 0x40, 1, 0, 0, 1, 0x42, 1, 0, 0, 1, 0x26, 1, 9}, uint8(2))
	f.Add([]byte{0, 0, 1, 0x0A, 1, 1}, uint8(4))
	f.Fuzz(func(t *testing.T, raw []byte, codec uint8) {
		kind := ingest.Codec(codec%4 + 1)
		units := bitstream.Units(raw)
		total := 0
		for _, u := range units {
			total += len(u)
		}
		if total > len(raw) {
			t.Fatalf("%d bytes of units in %d", total, len(raw))
		}
		a := bitstream.NewAssembler(kind)
		data, key, _ := a.Assemble(units)
		if key && kind != ingest.MJPEG && len(data) == 0 {
			t.Fatal("a keyframe without data")
		}
		if kind == ingest.H264 || kind == ingest.H265 {
			again, sameKey, changed := a.Assemble(bitstream.Units(data))
			if len(data) > 0 && (!bytes.Equal(data, again) || key != sameKey || changed) {
				t.Fatalf("%x came back as %x", data, again)
			}
		}
	})
}
