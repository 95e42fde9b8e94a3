package bitstream_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"

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
	f.Add([]byte{0, 0, 1, 0x06, 6, 1, 0x18, 0x80, 0, 0, 1, 0x41, 0x9A, 1}, uint8(0))
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

func TestRecoveryPointsAreRead(t *testing.T) {
	inter, still := []byte{0x41, 0x9A, 0x00}, []byte{0x41, 0x88, 0x80} // slices of type P and I
	for _, c := range []struct {
		name  string
		units [][]byte
		key   bool
		after int
	}{
		{"a keyframe in the strict sense", [][]byte{{0x65, 0x88, 0x80}}, true, 0},
		{"pictures in between", [][]byte{inter}, false, 0},
		{"a picture of its own at a recovery point", [][]byte{{0x06, 6, 1, 0xC4, 0x80}, still}, true, 0},
		{"a picture of its own without one", [][]byte{still}, false, 0},
		{"a recovery point that can be none", [][]byte{{0x06, 6, 1, 0xC4, 0x80}, inter}, false, 0},
		{"a recovery point 11 pictures ahead", [][]byte{{0x06, 6, 1, 0x18, 0x80}, inter}, true, 11},
		{"behind something else", [][]byte{{0x06, 5, 3, 1, 2, 3, 6, 1, 0x18, 0x80}, inter}, true, 11},
		{"behind something long", [][]byte{append(append([]byte{0x06, 5, 0xFF, 1}, bytes.Repeat([]byte{7}, 256)...), 6, 1, 0x18, 0x80), inter}, true, 11},
		{"behind the picture", [][]byte{inter, {0x06, 6, 1, 0x18, 0x80}}, false, 0},
		{"cut short", [][]byte{{0x06, 6}, {0x06, 6, 9, 1}, {0x06}, {0x06, 0xFF, 0xFF}, inter}, false, 0},
		{"in front of a keyframe", [][]byte{{0x06, 6, 1, 0x18, 0x80}, {0x65, 0x88, 0x80}}, true, 0},
	} {
		a := bitstream.NewAssembler(ingest.H264)
		if _, key, _ := a.Assemble(c.units); key != c.key || a.Recovery() != c.after {
			t.Errorf("%s: key %v, right %d pictures later", c.name, key, a.Recovery())
		}
	}
}

func TestAPictureChoosesItsParameterSetsByNumber(t *testing.T) {
	for _, codec := range []ingest.Codec{ingest.H264, ingest.H265} {
		t.Run(codec.String(), func(t *testing.T) {
			name := map[ingest.Codec]string{ingest.H264: "h264", ingest.H265: "h265"}[codec]
			small := rtsptest.Render(t, rtsptest.ClipConfig{Codec: name, Width: 96, Height: 64, Frames: 2})
			large := rtsptest.Render(t, rtsptest.ClipConfig{Codec: name, Width: 128, Height: 64, Frames: 2})
			sets := append(renumbered(codec, small.Sets), large.Sets...)
			// Slices that begin as keyframes do, with the number of their PPS.
			zero, one := []byte{0x65, 0b1_0001000, 0b1_1000000, 1}, []byte{0x65, 0b1_0001000, 0b010_10000, 1}
			if codec == ingest.H265 {
				zero, one = []byte{0x26, 1, 0b10_1_10000, 1}, []byte{0x26, 1, 0b10_010_100, 1}
			}
			a := bitstream.NewAssembler(codec, sets...)
			for i, c := range []struct {
				slice   []byte
				width   int
				changed bool
			}{{zero, 128, false}, {zero, 128, false}, {one, 96, true}, {one, 96, false}, {zero, 128, true}} {
				data, key, changed := a.Assemble([][]byte{c.slice})
				units := bitstream.Units(data)
				if !key || i > 0 && changed != c.changed || a.Stream().Width != c.width {
					t.Errorf("keyframe %d: key %v, changed %v to %+v", i, key, changed, a.Stream())
				}
				if len(units) != len(sets)+1 || !bytes.Equal(units[0], a.ParameterSets()[0]) || len(a.ParameterSets()) != len(sets)/2 {
					t.Errorf("keyframe %d: %d units", i, len(units))
				}
				// Whoever begins here finds the same in use.
				b := bitstream.NewAssembler(codec)
				b.Assemble(units)
				if b.Stream() != a.Stream() || !bytes.Equal(bytes.Join(b.ParameterSets(), nil), bytes.Join(a.ParameterSets(), nil)) {
					t.Errorf("keyframe %d: read again as %+v", i, b.Stream())
				}
			}
			// A new set takes the place of the one of its number.
			if data, _, changed := a.Assemble(append(slices.Clone(large.Sets), zero)); changed || len(bitstream.Units(data)) != len(sets)+1 {
				t.Errorf("the same sets again: changed %v, %d units", changed, len(bitstream.Units(data)))
			}
		})
	}
}

// renumbered gives parameter sets of the number 0, which refer to each other, the number 1.
func renumbered(codec ingest.Codec, sets [][]byte) [][]byte {
	// What stands in front of the numbers (in bytes; then they are one bit, 1, which becomes 010), without emulation prevention.
	at := map[byte]int{0x67: 4, 0x68: 1, 0x42: 15, 0x44: 2} // an SPS of H.265: header, 1, and 12 of profile and level
	var all [][]byte
	for _, s := range sets {
		b := h264.EmulationPreventionRemove(s)
		if b[0] == 0x40 { // a VPS, and an SPS, which has its number as well, have four bits for it
			b[2] |= 0x10
			all = append(all, b)
			continue
		}
		if b[0] == 0x42 {
			b[2] |= 0x10
		}
		n := at[b[0]]
		text := ""
		for _, v := range b[n:] {
			for i := 7; i >= 0; i-- {
				text += string('0' + rune(v>>i&1))
			}
		}
		numbers := 1
		if b[0] == 0x68 || b[0] == 0x44 {
			numbers = 2 // its own and that of its SPS
		}
		for i := range numbers {
			text = text[:3*i] + "010" + text[3*i+1:]
		}
		b = b[:n:n]
		for text += "0000000"; len(text) >= 8; text = text[8:] {
			v := byte(0)
			for _, c := range text[:8] {
				v = v<<1 | byte(c-'0')
			}
			b = append(b, v)
		}
		all = append(all, bytes.TrimRight(b, "\x00"))
	}
	return all
}
